//! What can go wrong in a store, by who has to act.

use countersign_kernel::fault::Fault;
use countersign_kernel::ids::{CheckpointId, InterruptId, ThreadId};
use countersign_kernel::policy;
use countersign_kernel::principal::Principal;
use countersign_kernel::question::Answered;

use super::views::DoneStep;

/// A store command that did not happen. Nothing of it was written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another activation holds the thread now: this one must stop.
    #[error("the lease on the thread is lost")]
    Fenced,
    /// The caller asked for something that the rules refuse.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What the store holds does not read back.
    #[error("the stored {what} of {of} cannot be read: {problem}")]
    Unreadable {
        /// Which column.
        what: &'static str,
        /// Which row.
        of: String,
        /// What the decoder said.
        problem: String,
    },
    /// The database failed; trying again may help.
    #[error("the database failed: {0}")]
    Database(String),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.to_string())
    }
}

impl From<crate::queue::QueueError> for StoreError {
    fn from(error: crate::queue::QueueError) -> Self {
        Self::Database(error.to_string())
    }
}

/// Why a request is refused (K11). Each is a problem document of the API.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// No thread has this id.
    #[error("there is no thread `{0}`")]
    UnknownThread(ThreadId),
    /// A thread has this id already.
    #[error("the thread `{thread}` exists already")]
    ThreadExists {
        /// The thread.
        thread: ThreadId,
        /// Whether it was started with the same input.
        same_input: bool,
    },
    /// No interrupt has this id.
    #[error("there is no interrupt `{0}`")]
    UnknownInterrupt(InterruptId),
    /// The interrupt was decided, by somebody else or otherwise.
    #[error("the request is decided already")]
    AlreadyAnswered {
        /// The interrupt.
        interrupt: InterruptId,
        /// The recorded answer, with who and when.
        answered: Box<Answered>,
    },
    /// This person voted already, otherwise.
    #[error("{principal} has voted on this request already")]
    AlreadyVoted {
        /// The interrupt.
        interrupt: InterruptId,
        /// Who.
        principal: Principal,
    },
    /// The interrupt no longer waits: dropped, edited away, cancelled.
    #[error("the request no longer waits: it was {status}")]
    Superseded {
        /// The interrupt.
        interrupt: InterruptId,
        /// What became of it.
        status: String,
    },
    /// The request was changed after the voter saw it.
    #[error("the request was changed since it was shown; look at it again")]
    RequestChanged {
        /// The interrupt.
        interrupt: InterruptId,
        /// The revision that is open now.
        revision: u32,
    },
    /// This voter may not decide this.
    #[error("{principal} is {refusal}")]
    NotAllowed {
        /// Who.
        principal: Principal,
        /// Why not.
        refusal: policy::Refusal,
    },
    /// Only an operator may answer points that carry no policy.
    #[error("only an operator may answer this point")]
    OperatorOnly {
        /// The interrupt.
        interrupt: InterruptId,
    },
    /// The answer does not fit the question.
    #[error("the answer does not fit the question")]
    InvalidAnswer {
        /// The interrupt.
        interrupt: InterruptId,
        /// Every fault.
        faults: Vec<Fault>,
    },
    /// New input needs the waiting points to be dropped first.
    #[error("the thread is waiting; say `on_waiting: discard` to drop what waits")]
    ThreadInterrupted,
    /// An activation holds the thread.
    #[error("the thread is running")]
    ThreadBusy,
    /// The thread changed between reading and writing it.
    #[error("the thread has changed meanwhile")]
    ThreadChanged,
    /// Steps that were done would be done again, and the request does not say
    /// that they may (R13).
    #[error("{} steps that were done would be done again; say `re_execute: true` to do them again", .0.len())]
    ReExecutes(Vec<DoneStep>),
    /// The thread has no such checkpoint.
    #[error("the thread has no checkpoint `{0}`")]
    UnknownCheckpoint(CheckpointId),
    /// The thread has no such checkpoint, and older ones were compacted: it may
    /// have been one of them.
    #[error("the thread has no checkpoint `{0}`: older checkpoints were compacted, and it is one of them or none")]
    Compacted(CheckpointId),
    /// The answer to a breakpoint or pause brings data, which changes the state:
    /// that is for a resume, not for a vote (K12).
    #[error("data for a stop is an update of the state; it goes through a resume of the thread")]
    CarriesUpdate {
        /// The interrupt.
        interrupt: InterruptId,
        /// Its thread.
        thread: ThreadId,
    },
    /// The container takes no answer without data (K11).
    #[error("this point takes no answer without data")]
    NotAnswerable {
        /// The interrupt.
        interrupt: InterruptId,
    },
    /// The thread has ended; only new input moves it.
    #[error("the thread has ended: {0}")]
    ThreadEnded(&'static str),
    /// Nothing is open that `continue` releases.
    #[error("no breakpoint or pause is open; questions are released by answers")]
    NothingToContinue,
    /// No task has failed.
    #[error("no task of the thread has failed")]
    NothingToRetry,
    /// Nothing is open.
    #[error("nothing is pending in the thread")]
    NothingPending,
    /// So many signals are kept for the thread already.
    #[error("{most} signals are kept for the thread, which is the most; nothing waits for them")]
    SignalsFull {
        /// How many.
        most: i64,
    },
    /// The idempotency key was used with another request.
    #[error("the idempotency key was used with another request")]
    KeyReused,
}
