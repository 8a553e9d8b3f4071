//! A store whose process dies in the middle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use countersign_kernel::ids::{CheckpointId, DeliveryId, FrameId, InterruptId, ThreadId};
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use countersign_worker::queue::{JobId, Message, QueueDepth};
use countersign_worker::store::commands::{
    Activation, AppendEvents, Claim, Claimed, Committed, CreateThread, DeliveryEnd, DueTimers, Fence, FireTimer, Fired,
    FlowLimits, Flush, FrameFlush, HoldBack, IdempotencyEntry, MoveThread, NextTick, Operation, PauseSwitch,
    RecordVote, ResumeThread, ScheduleSpec, SendSignal, Serves, StepCommit, StepResult, SwitchOf, Tick, VoteBatch,
    Voted,
};
use countersign_worker::store::controls::Controls;
use countersign_worker::store::dead_letters::{DeadLetter, DeadLetterFilter, DeadLetters};
use countersign_worker::store::overview::Overview;
use countersign_worker::store::retention::{History, Retention};
use countersign_worker::store::views::{
    ArchivedAt, AuditEntry, DeliveryTask, DeliveryView, DoneStep, EventPage, HistoryEntry, InterruptFilter,
    InterruptView, Keyset, ThreadDetail, ThreadFilter, ThreadSummary, TokenRecord,
};
use countersign_worker::store::workers::{Heartbeat, WorkerView};
use countersign_worker::store::{
    Accepted, BatchDone, Batches, Cancelled, Due, Journal, Overviews, Refusal, ScheduleView, Schedules, Signals,
    SqlStore, Store, StoreError, Timers, Workers,
};
use countersign_worker::tally::Tally;
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
        fn sweep(serves: &Serves, now: Timestamp, grace: Duration, limit: u32) -> Vec<Due>;
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

#[async_trait]
impl Workers for Faulty {
    fn tally(&self) -> &Arc<Tally> {
        self.store.tally()
    }

    async fn beat(&self, beat: Heartbeat, now: Timestamp) -> Result<(), StoreError> {
        self.store.beat(beat, now).await
    }

    async fn leave(&self, name: &str) -> Result<(), StoreError> {
        self.store.leave(name).await
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        self.store.workers().await
    }
}

#[async_trait]
impl Overviews for Faulty {
    async fn overview(&self, now: Timestamp) -> Result<Overview, StoreError> {
        self.store.overview(now).await
    }
}

#[async_trait]
impl Timers for Faulty {
    async fn due_timers(&self, now: Timestamp, limit: u32) -> Result<DueTimers, StoreError> {
        self.store.due_timers(now, limit).await
    }

    async fn fire_timer(&self, fire: FireTimer) -> Result<Fired, StoreError> {
        self.write(self.store.fire_timer(fire)).await
    }
}

#[async_trait]
impl Controls for Faulty {
    async fn set_switch(&self, switch: PauseSwitch, id: &str) -> Result<(), StoreError> {
        self.store.set_switch(switch, id).await
    }

    async fn end_switch(&self, of: &SwitchOf, by: &Principal, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        self.store.end_switch(of, by, id, now).await
    }

    async fn switches(&self, now: Timestamp) -> Result<Vec<PauseSwitch>, StoreError> {
        self.store.switches(now).await
    }

    async fn set_limits(
        &self,
        graph: &str,
        limits: FlowLimits,
        by: &Principal,
        id: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.store.set_limits(graph, limits, by, id, now).await
    }

    async fn limits(&self) -> Result<Vec<(String, FlowLimits)>, StoreError> {
        self.store.limits().await
    }

    async fn hold_back(&self, hold: HoldBack) -> Result<Committed, StoreError> {
        self.write(self.store.hold_back(hold)).await
    }

    async fn in_turn(&self, serves: &Serves, now: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError> {
        self.store.in_turn(serves, now, limit).await
    }

    async fn cancelling(&self, worker: &str) -> Result<Vec<ThreadId>, StoreError> {
        self.store.cancelling(worker).await
    }

    async fn abandon(&self, asked_before: Timestamp, limit: u32, now: Timestamp) -> Result<u64, StoreError> {
        self.store.abandon(asked_before, limit, now).await
    }

    async fn operations(&self, limit: u32) -> Result<Vec<Operation>, StoreError> {
        self.store.operations(limit).await
    }
}

#[async_trait]
impl DeadLetters for Faulty {
    async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        after: Option<&Keyset>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        self.store.dead_letters(filter, after, limit).await
    }

    async fn retry_delivery(
        &self,
        thread: &ThreadId,
        delivery: &DeliveryId,
        by: &Principal,
        job: JobId,
        now: Timestamp,
    ) -> Result<Option<Message>, StoreError> {
        self.store.retry_delivery(thread, delivery, by, job, now).await
    }
}

#[async_trait]
impl Signals for Faulty {
    async fn send_signal(&self, command: SendSignal) -> Result<Accepted, StoreError> {
        self.store.send_signal(command).await
    }
}

#[async_trait]
impl Batches for Faulty {
    async fn places_of(&self, points: &[InterruptId]) -> Result<BTreeMap<InterruptId, (ThreadId, String)>, StoreError> {
        self.store.places_of(points).await
    }

    async fn judge_votes(&self, votes: &[RecordVote]) -> Result<Vec<Result<(), Refusal>>, StoreError> {
        self.store.judge_votes(votes).await
    }

    async fn record_votes(&self, batch: VoteBatch) -> Result<BatchDone, StoreError> {
        self.store.record_votes(batch).await
    }

    async fn remember(&self, entry: IdempotencyEntry, now: Timestamp) -> Result<(), StoreError> {
        self.store.remember(entry, now).await
    }
}

#[async_trait]
impl Retention for Faulty {
    async fn compact(&self, thread: &ThreadId, keep: u32, limit: u32) -> Result<u64, StoreError> {
        self.store.compact(thread, keep, limit).await
    }

    async fn histories(&self, after: Option<&ThreadId>, limit: u32) -> Result<Vec<History>, StoreError> {
        self.store.histories(after, limit).await
    }
}

#[async_trait]
impl Schedules for Faulty {
    async fn put_schedule(&self, spec: ScheduleSpec, next: NextTick, now: Timestamp) -> Result<(), StoreError> {
        self.store.put_schedule(spec, next, now).await
    }

    async fn keep_schedules(&self, names: &[String]) -> Result<u64, StoreError> {
        self.store.keep_schedules(names).await
    }

    async fn schedules(&self) -> Result<Vec<ScheduleView>, StoreError> {
        self.store.schedules().await
    }

    async fn due_schedules(&self, now: Timestamp) -> Result<(Vec<ScheduleView>, Option<Timestamp>), StoreError> {
        self.store.due_schedules(now).await
    }

    async fn tick(&self, tick: Tick) -> Result<Option<Accepted>, StoreError> {
        self.write(self.store.tick(tick)).await
    }

    async fn pause_schedule(
        &self,
        name: &str,
        paused: bool,
        next: NextTick,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.store.pause_schedule(name, paused, next, now).await
    }
}
