//! What a store is told of events from outside.

use countersign_kernel::ids::ThreadId;
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use serde_json::Value;

use super::IdempotencyEntry;
use crate::queue::JobId;

/// Sends a thread a signal.
#[derive(Debug, Clone)]
pub struct SendSignal {
    /// The thread.
    pub thread: ThreadId,
    /// The signal's name.
    pub name: String,
    /// What it carries.
    pub payload: Value,
    /// Who sends it.
    pub by: Principal,
    /// For a repeated request.
    pub idempotency: Option<IdempotencyEntry>,
    /// The wake-up, if something waits for it.
    pub job: JobId,
    /// Now.
    pub now: Timestamp,
}
