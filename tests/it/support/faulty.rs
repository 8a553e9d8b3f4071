//! A store whose process dies in the middle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use countersign_kernel::ids::{CheckpointId, DeliveryId, FrameId, InterruptId, ThreadId};
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use countersign_worker::queue::{JobId, Message, QueueDepth};
use countersign_worker::store::commands::{
    Activation, AppendEvents, Claim, Claimed, Committed, CreateThread, DeliveryEnd, Fence, Flush, FrameFlush,
    IdempotencyEntry, MoveThread, RecordVote, ResumeThread, StepCommit, StepResult, Voted,
};
use countersign_worker::store::views::{
    ArchivedAt, AuditEntry, DeliveryTask, DeliveryView, DoneStep, EventPage, HistoryEntry, InterruptFilter,
    InterruptView, Keyset, Overview, ThreadDetail, ThreadFilter, ThreadSummary, TokenRecord,
};
use countersign_worker::store::{Accepted, Cancelled, Due, Journal, SqlStore, Store, StoreError};
use tokio::sync::watch;

/// On which side of a write the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dies {
    /// The write never reaches the file.
    Before,
    /// The write is durable, and nobody hears of it.
    After,
}

/// Counts the writes of activations over all processes of a folder, and ends
/// the one that makes the `n`-th.
#[derive(Debug, Clone)]
pub(crate) struct Fate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writes: AtomicU32,
    deadly: Option<(u32, Dies)>,
    died: watch::Sender<bool>,
}

impl Fate {
    /// Nobody dies.
    pub(crate) fn kind() -> Self {
        Self::new(None)
    }

    /// Whoever makes write number `n` (from 0) dies of it.
    pub(crate) fn at(n: u32, dies: Dies) -> Self {
        Self::new(Some((n, dies)))
    }

    fn new(deadly: Option<(u32, Dies)>) -> Self {
        Self(Arc::new(Inner { writes: AtomicU32::new(0), deadly, died: watch::Sender::new(false) }))
    }

    /// How many writes there were.
    pub(crate) fn writes(&self) -> u32 {
        self.0.writes.load(Ordering::Acquire)
    }

    /// Ends when the process has died.
    pub(crate) async fn death(&self) {
        let mut died = self.0.died.subscribe();
        died.wait_for(|died| *died).await.expect("fate outlives processes");
    }

    /// The number of the next write, and whether the process dies of it.
    fn next(&self) -> Option<Dies> {
        let number = self.0.writes.fetch_add(1, Ordering::AcqRel);
        self.0.deadly.filter(|(deadly, _)| *deadly == number).map(|(_, dies)| dies)
    }
}

/// The store of a process that dies as its fate says.
pub(crate) struct Faulty {
    store: SqlStore,
    fate: Fate,
    dead: AtomicBool,
}

impl Faulty {
    pub(crate) fn new(store: SqlStore, fate: Fate) -> Self {
        Self { store, fate, dead: AtomicBool::new(false) }
    }

    /// Makes one write, or dies of it. A dead process writes no more.
    async fn write<T>(&self, write: impl Future<Output = T>) -> T {
        if self.dead.load(Ordering::Acquire) {
            // Whoever makes the deadly write may not be polled again because of
            // this one. It is on its way by now, and a ping comes after it.
            let _ = self.store.ping().await;
            self.fate.0.died.send_replace(true);
            return std::future::pending().await;
        }
        let Some(dies) = self.fate.next() else { return write.await };
        self.dead.store(true, Ordering::Release);
        if dies == Dies::After {
            write.await;
        }
        self.fate.0.died.send_replace(true);
        std::future::pending().await
    }
}

/// Passes everything on to the store; what an activation writes, through fate.
macro_rules! passes_on {
    (
        fateful { $(fn $write:ident($($given:ident: $of:ty),*) -> $gives:ty;)* }
        plain { $(fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)* }
    ) => {
        #[async_trait]
        impl Store for Faulty {
            $(async fn $write(&self, $($given: $of),*) -> Result<$gives, StoreError> {
                self.write(self.store.$write($($given),*)).await
            })*
            $(async fn $name(&self, $($argument: $kind),*) -> Result<$result, StoreError> {
                self.store.$name($($argument),*).await
            })*
            fn journal(&self) -> &Journal {
                self.store.journal()
            }
        }
    };
}

passes_on! {
    fateful {
        fn claim(claim: Claim) -> Claimed;
        fn release(thread: &ThreadId, fence: Fence, now: Timestamp) -> ();
        fn commit(commit: StepCommit) -> Committed;
        fn record_result(result: StepResult) -> ();
        fn flush_frame(flush: FrameFlush) -> ();
        fn flush(flush: Flush) -> ();
        fn append_events(command: AppendEvents) -> ();
    }
    plain {
        fn create(command: CreateThread) -> Accepted;
        fn move_thread(command: MoveThread) -> Accepted;
        fn load(thread: &ThreadId) -> Activation;
        fn renew(leases: Vec<(ThreadId, Fence)>, until: Timestamp) -> Vec<ThreadId>;
        fn recover(now: Timestamp) -> u64;
        fn record_vote(vote: RecordVote) -> Voted;
        fn resume(resume: ResumeThread, idempotency: Option<IdempotencyEntry>) -> Accepted;
        fn pause(thread: &ThreadId, by: &Principal, job: JobId, now: Timestamp) -> Option<Message>;
        fn cancel(thread: &ThreadId, by: &Principal, now: Timestamp) -> Cancelled;
        fn release_hold(thread: &ThreadId, by: &Principal, job: JobId, now: Timestamp) -> Message;
        fn sweep(now: Timestamp, grace: Duration, limit: u32) -> Vec<Due>;
        fn tidy(now: Timestamp) -> u64;
        fn take_delivery(
            thread: &ThreadId, delivery: &DeliveryId, job: Option<JobId>, taken_until: Timestamp, now: Timestamp
        ) -> Option<DeliveryTask>;
        fn finish_delivery(
            thread: &ThreadId, delivery: &DeliveryId, end: DeliveryEnd, job: Option<JobId>, now: Timestamp
        ) -> ();
        fn look(thread: &ThreadId) -> (ThreadDetail, Activation);
        fn repeated(scope: &str, key: &str, request_hash: &str) -> Option<(u16, String)>;
        fn threads(filter: &ThreadFilter, after: Option<&Keyset>, limit: u32) -> Vec<ThreadSummary>;
        fn archived(thread: &ThreadId, checkpoint: &CheckpointId) -> Vec<ArchivedAt>;
        fn steps_since(thread: &ThreadId, checkpoint: &CheckpointId) -> Vec<DoneStep>;
        fn history(
            thread: &ThreadId, frame: Option<&FrameId>, before: Option<i64>, limit: u32
        ) -> Vec<HistoryEntry>;
        fn interrupt(id: &InterruptId) -> InterruptView;
        fn interrupts(filter: &InterruptFilter, after: Option<&Keyset>, limit: u32) -> Vec<InterruptView>;
        fn deliveries(interrupt: Option<&InterruptId>, status: Option<&str>, limit: u32) -> Vec<DeliveryView>;
        fn overview_of(graphs: Option<&[String]>) -> Overview;
        fn queues() -> Vec<QueueDepth>;
        fn audit(thread: &ThreadId) -> Vec<AuditEntry>;
        fn verify_audit(thread: &ThreadId) -> Option<i64>;
        fn ping() -> ();
        fn put_token(token: &TokenRecord, hash: &str, now: Timestamp) -> ();
        fn token(hash: &str) -> Option<TokenRecord>;
        fn tokens() -> Vec<TokenRecord>;
        fn revoke_token(name: &str, now: Timestamp) -> bool;
        fn head(thread: &ThreadId) -> CheckpointId;
        fn events(thread: &ThreadId, after: Option<i64>, limit: u32) -> EventPage;
        fn forget_events(before: Timestamp, limit: u32) -> u64;
    }
}
