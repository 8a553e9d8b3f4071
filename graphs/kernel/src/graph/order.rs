//! In which order threads of a flow are taken up, and which are limited
//! together.

use std::sync::Arc;

use serde_json::Value;

/// Names the threads that are limited together, by what a thread is started
/// with; `None` if it is limited with none.
pub type LimitKeyFn = Arc<dyn Fn(&Value) -> Option<String> + Send + Sync>;

/// What a flow says of the order of its threads. Who starts one may say
/// otherwise.
#[derive(Clone, Default)]
pub(crate) struct Order {
    pub(crate) priority: i64,
    pub(crate) limit_key: Option<LimitKeyFn>,
}
