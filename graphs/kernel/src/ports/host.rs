//! All that a running body can reach outside the kernel, in one hand.

use std::sync::Arc;

use super::{Clock, Effects, Ids, StopSignal, Timers};
use crate::machine::Outside;

/// What whoever executes bodies provides.
#[derive(Clone)]
pub struct Host {
    /// Makes results durable.
    pub effects: Arc<dyn Effects>,
    /// For ids of checkpoints of inner frames.
    pub ids: Arc<dyn Ids>,
    /// For times.
    pub clock: Arc<dyn Clock>,
    /// For pauses between attempts and for time limits.
    pub timers: Arc<dyn Timers>,
    /// Whether somebody asked for a pause.
    pub stop: StopSignal,
}

impl Host {
    /// Fresh values for a new checkpoint.
    #[must_use]
    pub fn outside(&self) -> Outside<'_> {
        Outside { ids: self.ids.as_ref(), clock: self.clock.as_ref() }
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Host")
    }
}
