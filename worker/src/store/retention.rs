//! Keeping less of the past.

use async_trait::async_trait;
use countersign_kernel::ids::ThreadId;

use super::StoreError;

/// How long the history of a thread is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The thread.
    pub thread: ThreadId,
    /// The flow.
    pub graph: String,
    /// Checkpoints that were not compacted.
    pub checkpoints: u64,
}

/// Compacting histories.
#[async_trait]
pub trait Retention: Send + Sync {
    /// Deletes what only checkpoints older than the newest `keep` of the thread
    /// need, at most about `limit` rows: the checkpoints, their tasks and steps,
    /// values that no kept checkpoint has, and the frames of sub-graphs that ran
    /// in them. Says how many rows; with 0 nothing is left to compact.
    ///
    /// What stays: the state at each kept checkpoint, the head, open points, all
    /// requests, votes and answers, the audit chain. Nobody can go back to what
    /// is gone: see [`Refusal::Compacted`](super::Refusal::Compacted).
    ///
    /// # Errors
    /// Only of the database.
    async fn compact(&self, thread: &ThreadId, keep: u32, limit: u32) -> Result<u64, StoreError>;

    /// The histories of the next `limit` threads by id, for a walk through all of
    /// them.
    ///
    /// # Errors
    /// Only of the database.
    async fn histories(&self, after: Option<&ThreadId>, limit: u32) -> Result<Vec<History>, StoreError>;
}
