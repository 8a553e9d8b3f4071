//! Many answers at once.

use countersign_kernel::ids::ThreadId;
use countersign_kernel::time::Timestamp;

use super::RecordVote;
use crate::queue::JobId;

/// Answers of one person to points of one thread.
#[derive(Debug, Clone)]
pub struct VoteBatch {
    /// The thread.
    pub thread: ThreadId,
    /// Each as it would be recorded alone; their own jobs are not used.
    pub votes: Vec<RecordVote>,
    /// Whether none is recorded if one is refused.
    pub whole: bool,
    /// The one job that wakes the thread, if any of them decides.
    pub job: JobId,
    /// The time.
    pub now: Timestamp,
}
