//! Results of steps, made durable before the body goes on.

use std::sync::Arc;

use async_trait::async_trait;
use countersign_kernel::address::Address;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::ports::{Clock, EffectError, Effects};
use serde_json::Value;

use crate::store::commands::{Fence, StepResult};
use crate::store::{Store, StoreError};

/// Writes results under the fence of one activation.
pub(super) struct StoreEffects {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) thread: ThreadId,
    pub(super) fence: Fence,
    pub(super) seq: i64,
}

#[async_trait]
impl Effects for StoreEffects {
    async fn record(&self, occurrence: &Address, name: &str, result: &Value) -> Result<(), EffectError> {
        let result = StepResult {
            thread: self.thread.clone(),
            fence: self.fence,
            seq: self.seq,
            occurrence: occurrence.clone(),
            name: name.to_owned(),
            result: result.clone(),
            now: self.clock.now(),
        };
        self.store.record_result(result).await.map_err(|error| match error {
            StoreError::Fenced => EffectError::LeaseLost,
            other => EffectError::Store(other.to_string()),
        })
    }
}
