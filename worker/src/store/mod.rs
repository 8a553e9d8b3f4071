//! Where truth lives.
//!
//! [`Store`] is the trait, [`SqlStore`] its implementation on SQLite and Postgres. The
//! trait takes commands and never hands out a transaction (R22): each method
//! is atomic, and its doc says what holds once it has returned. An
//! implementation is free to gather commands of many threads into one
//! transaction; a command that is refused or fenced drops only its own rows.

mod batch;
mod codec;
pub mod commands;
pub mod controls;
pub(crate) mod db;
pub mod dead_letters;
mod error;
mod events;
mod journal;
mod ledger;
pub mod overview;
mod packed;
pub mod retention;
mod schedules;
mod signals;
mod sql;
mod timers;
pub mod views;
pub mod workers;

use async_trait::async_trait;
use countersign_kernel::ids::{CheckpointId, DeliveryId, FrameId, InterruptId, ThreadId};
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;

pub use self::batch::{BatchDone, Batches};
use self::commands::{
    Claim, Claimed, Committed, CreateThread, DeliveryEnd, Fence, Flush, FrameFlush, IdempotencyEntry, MoveThread,
    RecordVote, ResumeThread, Serves, StepCommit, StepResult, Voted,
};
pub use self::controls::Controls;
pub use self::dead_letters::DeadLetters;
pub use self::error::{Refusal, StoreError};
pub use self::events::{AppendEvents, EVENT_KINDS, Event, TaskEnd, TaskPlace, What, Written};
pub use self::journal::{Journal, Watching};
pub use self::ledger::{EffectLedger, LedgerEntry};
pub use self::overview::Overviews;
pub use self::retention::Retention;
pub use self::schedules::{ScheduleView, Schedules};
pub use self::signals::Signals;
pub use self::sql::{Beside, Copied, CopyError, GraphSize, SqlStore, StoreStats, TableSize, ThreadSize};
pub use self::timers::Timers;
use self::views::{
    ArchivedAt, AuditEntry, DeliveryTask, DeliveryView, DoneStep, EventPage, HistoryEntry, InterruptFilter,
    InterruptView, Keyset, ThreadDetail, ThreadFilter, ThreadSummary, TokenRecord,
};
pub use self::workers::Workers;
use crate::queue::{JobId, JobKind, Message, QueueDepth};

/// What a start or a resume led to.
#[derive(Debug, Clone, PartialEq)]
pub enum Accepted {
    /// It is committed; here is the wake-up that was enqueued with it. `None`
    /// when nothing can run yet (a breakpoint before the first node).
    Committed(Option<Message>),
    /// The same request was accepted before; here is what it got.
    Replayed {
        /// The first status.
        status: u16,
        /// The first body.
        body: String,
    },
}

/// How a cancel was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// The thread was at rest and is cancelled now.
    Now,
    /// An activation holds it and will stop at its next commit.
    Requested,
    /// It was cancelled before.
    Already,
}

/// Durable truth about threads, interrupts, votes, deliveries and audit.
#[async_trait]
pub trait Store:
    Batches
    + Controls
    + DeadLetters
    + Overviews
    + Retention
    + Workers
    + Schedules
    + Signals
    + Timers
    + Send
    + Sync
    + 'static
{
    // --- threads ---------------------------------------------------------

    /// Starts a thread. Afterwards the thread, its first checkpoint, its run,
    /// its audit row and the job that wakes it exist, all or none.
    ///
    /// # Errors
    /// [`Refusal::ThreadExists`], [`Refusal::KeyReused`].
    async fn create(&self, command: CreateThread) -> Result<Accepted, StoreError>;

    /// Moves the head of a thread at rest: new input, an edit, a replay, a
    /// fork. Afterwards the new checkpoints exist, what they abandon is
    /// superseded, and what is to run has its job, all or none.
    ///
    /// # Errors
    /// [`Refusal::ThreadInterrupted`] when something waits and must not be
    /// dropped, [`Refusal::ThreadBusy`] under a lease, [`Refusal::ThreadChanged`]
    /// when the head moved.
    async fn move_thread(&self, command: MoveThread) -> Result<Accepted, StoreError>;

    /// Takes the lease if the thread has something to do and nobody holds it.
    /// Afterwards no write with an older fence succeeds.
    ///
    /// # Errors
    /// Only of the database.
    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError>;

    /// Reads a thread as [`claim`](Self::claim) would, without taking it.
    ///
    /// # Errors
    /// [`Refusal::UnknownThread`].
    async fn load(&self, thread: &ThreadId) -> Result<commands::Activation, StoreError>;

    /// Extends leases. Returns the threads whose lease was lost.
    ///
    /// # Errors
    /// Only of the database; the leases may lapse then.
    async fn renew(&self, leases: Vec<(ThreadId, Fence)>, until: Timestamp) -> Result<Vec<ThreadId>, StoreError>;

    /// Gives a thread back with work left, at a shutdown. It is queued again.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    async fn release(&self, thread: &ThreadId, fence: Fence, now: Timestamp) -> Result<(), StoreError>;

    /// Gives up leases and job rows of processes that are known to be dead:
    /// called at start by the only process of a data folder.
    ///
    /// # Errors
    /// Only of the database.
    async fn recover(&self, now: Timestamp) -> Result<u64, StoreError>;

    /// Commits what an activation did, guarded by its fence. Resting releases
    /// the lease only if no unconsumed answer or resume is present; otherwise
    /// they are returned and the lease is kept.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]: nothing was written.
    async fn commit(&self, commit: StepCommit) -> Result<Committed, StoreError>;

    /// Makes one result durable, guarded by the fence.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    async fn record_result(&self, result: StepResult) -> Result<(), StoreError>;

    /// Keeps a superstep of an inner frame, or records of its tasks, while its
    /// task runs, guarded by the fence.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    async fn flush_frame(&self, flush: FrameFlush) -> Result<(), StoreError>;

    /// Keeps records of finished tasks while siblings run, guarded by the fence.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    async fn flush(&self, flush: Flush) -> Result<(), StoreError>;

    // --- waking ----------------------------------------------------------

    /// Records one person's answer. Afterwards the vote is on record; if it
    /// decides, so are the answer, its audit row and the job that wakes the
    /// point. The same answer again changes nothing and says so.
    ///
    /// # Errors
    /// Every refusal of K11.
    async fn record_vote(&self, vote: RecordVote) -> Result<Voted, StoreError>;

    /// Records answers and flags for one thread, all or nothing.
    ///
    /// # Errors
    /// The first refusal, with nothing recorded.
    async fn resume(&self, resume: ResumeThread, idempotency: Option<IdempotencyEntry>)
    -> Result<Accepted, StoreError>;

    /// Asks for a pause at the next superstep border. A thread at rest is woken
    /// by the job, to pause where it is.
    ///
    /// # Errors
    /// [`Refusal::ThreadEnded`] when there is nothing left to pause.
    async fn pause(
        &self,
        thread: &ThreadId,
        by: &Principal,
        job: JobId,
        now: Timestamp,
    ) -> Result<Option<Message>, StoreError>;

    /// Cancels a thread, now or at its next commit. Open points are superseded.
    ///
    /// # Errors
    /// [`Refusal::ThreadEnded`] when it succeeded already.
    async fn cancel(&self, thread: &ThreadId, by: &Principal, now: Timestamp) -> Result<Cancelled, StoreError>;

    /// Puts a held thread back to work.
    ///
    /// # Errors
    /// [`Refusal::NothingPending`] when it is not held.
    async fn release_hold(
        &self,
        thread: &ThreadId,
        by: &Principal,
        job: JobId,
        now: Timestamp,
    ) -> Result<Message, StoreError>;

    /// Finds work whose message may have been lost: threads queued for a
    /// while or under a lapsed lease, deliveries that are due. At most
    /// `limit`, oldest first; finding changes nothing. Only what is served:
    /// however much else waits, it takes no room.
    ///
    /// # Errors
    /// Only of the database.
    async fn sweep(
        &self,
        serves: &Serves,
        now: Timestamp,
        grace: std::time::Duration,
        limit: u32,
    ) -> Result<Vec<Due>, StoreError>;

    /// Clears what has served its time: replies to requests after a day (R26),
    /// job rows whose message was fetched and dropped. Says how many rows.
    ///
    /// # Errors
    /// Only of the database.
    async fn tidy(&self, now: Timestamp) -> Result<u64, StoreError>;

    // --- watching --------------------------------------------------------

    /// Whether events are kept, and who in this process waits for them.
    fn journal(&self) -> &Journal;

    /// Appends events while a body runs, guarded by the fence.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    async fn append_events(&self, command: AppendEvents) -> Result<(), StoreError>;

    /// Events of a thread with numbers above `after`, in order, and how the
    /// thread stood when they were read. A page may end before `limit` when the
    /// events in it grow large. Events that were forgotten are left out, so
    /// that the first number tells whether some are missing.
    ///
    /// # Errors
    /// [`Refusal::UnknownThread`].
    async fn events(&self, thread: &ThreadId, after: Option<i64>, limit: u32) -> Result<EventPage, StoreError>;

    /// Forgets events that were committed before `before`, the oldest first;
    /// at most those of `limit` commits. Says of how many.
    ///
    /// # Errors
    /// Only of the database.
    async fn forget_events(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError>;

    // --- deliveries ------------------------------------------------------

    /// Takes a delivery for one attempt, marked before anything is sent (R23).
    /// `None` when there is nothing to do; the job row is deleted then.
    ///
    /// # Errors
    /// Only of the database.
    async fn take_delivery(
        &self,
        thread: &ThreadId,
        delivery: &DeliveryId,
        job: Option<JobId>,
        taken_until: Timestamp,
        now: Timestamp,
    ) -> Result<Option<DeliveryTask>, StoreError>;

    /// Records how an attempt ended, and deletes its job. A retry enqueues the
    /// next attempt; a failure leaves a dead letter.
    ///
    /// # Errors
    /// Only of the database.
    async fn finish_delivery(
        &self,
        thread: &ThreadId,
        delivery: &DeliveryId,
        end: DeliveryEnd,
        job: Option<JobId>,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    // --- questions -------------------------------------------------------

    /// One thread, with state and open interrupts.
    ///
    /// # Errors
    /// [`Refusal::UnknownThread`].
    async fn thread(&self, thread: &ThreadId) -> Result<ThreadDetail, StoreError> {
        self.look(thread).await.map(|(detail, _)| detail)
    }

    /// One thread as [`thread`](Self::thread) and [`load`](Self::load) give it,
    /// both of the same moment.
    ///
    /// # Errors
    /// [`Refusal::UnknownThread`].
    async fn look(&self, thread: &ThreadId) -> Result<(ThreadDetail, commands::Activation), StoreError>;

    /// The status and body that a request under this key got, if it was accepted
    /// before (R26).
    ///
    /// # Errors
    /// [`Refusal::KeyReused`].
    async fn repeated(&self, scope: &str, key: &str, request_hash: &str) -> Result<Option<(u16, String)>, StoreError>;

    /// Threads, newest first.
    ///
    /// # Errors
    /// Only of the database.
    async fn threads(
        &self,
        filter: &ThreadFilter,
        after: Option<&Keyset>,
        limit: u32,
    ) -> Result<Vec<ThreadSummary>, StoreError>;

    /// A checkpoint with those around it, outermost first: one for a checkpoint
    /// of the root frame, more for one of an inner frame.
    ///
    /// # Errors
    /// [`Refusal::UnknownCheckpoint`].
    async fn archived(&self, thread: &ThreadId, checkpoint: &CheckpointId) -> Result<Vec<ArchivedAt>, StoreError>;

    /// The steps that were done at a checkpoint or after it, on whatever line:
    /// what a replay from there does again (R13).
    ///
    /// # Errors
    /// Only of the database.
    async fn steps_since(&self, thread: &ThreadId, checkpoint: &CheckpointId) -> Result<Vec<DoneStep>, StoreError>;

    /// Checkpoints of a thread (of an inner frame, if one is named), newest
    /// first. A page may end before `limit` when the states in it grow large;
    /// the last one is number 0.
    ///
    /// # Errors
    /// [`Refusal::UnknownThread`].
    async fn history(
        &self,
        thread: &ThreadId,
        frame: Option<&FrameId>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<HistoryEntry>, StoreError>;

    /// One interrupt, in whatever state.
    ///
    /// # Errors
    /// [`Refusal::UnknownInterrupt`].
    async fn interrupt(&self, id: &InterruptId) -> Result<InterruptView, StoreError>;

    /// Interrupts, oldest first.
    ///
    /// # Errors
    /// Only of the database.
    async fn interrupts(
        &self,
        filter: &InterruptFilter,
        after: Option<&Keyset>,
        limit: u32,
    ) -> Result<Vec<InterruptView>, StoreError>;

    /// Deliveries about one interrupt, or all with a status.
    ///
    /// # Errors
    /// Only of the database.
    async fn deliveries(
        &self,
        interrupt: Option<&InterruptId>,
        status: Option<&str>,
        limit: u32,
    ) -> Result<Vec<DeliveryView>, StoreError>;

    /// What waits in the queues.
    ///
    /// # Errors
    /// Only of the database.
    async fn queues(&self) -> Result<Vec<QueueDepth>, StoreError>;

    /// The audit chain of a thread, oldest first.
    ///
    /// # Errors
    /// Only of the database.
    async fn audit(&self, thread: &ThreadId) -> Result<Vec<AuditEntry>, StoreError>;

    /// Recomputes a thread's audit chain. `Ok(None)` when it holds, otherwise
    /// the number of the first entry that does not.
    ///
    /// # Errors
    /// Only of the database.
    async fn verify_audit(&self, thread: &ThreadId) -> Result<Option<i64>, StoreError>;

    /// Whether the store answers.
    ///
    /// # Errors
    /// It does not.
    async fn ping(&self) -> Result<(), StoreError>;

    // --- access ----------------------------------------------------------

    /// Creates or replaces an API token by its hash.
    ///
    /// # Errors
    /// Only of the database.
    async fn put_token(&self, token: &TokenRecord, hash: &str, now: Timestamp) -> Result<(), StoreError>;

    /// The token with this hash, unless revoked.
    ///
    /// # Errors
    /// Only of the database.
    async fn token(&self, hash: &str) -> Result<Option<TokenRecord>, StoreError>;

    /// All tokens that are not revoked, by name.
    ///
    /// # Errors
    /// Only of the database.
    async fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError>;

    /// Revokes a token. Whether there was one.
    ///
    /// # Errors
    /// Only of the database.
    async fn revoke_token(&self, name: &str, now: Timestamp) -> Result<bool, StoreError>;

    /// The checkpoint at a thread's head, cheaply.
    ///
    /// # Errors
    /// [`Refusal::UnknownThread`].
    async fn head(&self, thread: &ThreadId) -> Result<CheckpointId, StoreError>;
}

/// Work that a sweep found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// A thread to advance.
    Thread(ThreadId),
    /// A delivery to attempt.
    Delivery(ThreadId, DeliveryId),
}

impl Due {
    /// The kind of job that does it.
    #[must_use]
    pub fn kind(&self) -> JobKind {
        match self {
            Self::Thread(_) => JobKind::Advance,
            Self::Delivery(..) => JobKind::Deliver,
        }
    }
}
