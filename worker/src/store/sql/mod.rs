//! The store on a SQL database: embedded SQLite, or a Postgres server.
//!
//! The rules are written once; [`db`](super::db) speaks both dialects. One
//! [writer](writer) per process gathers the commands that wait into one
//! transaction; readers have connections of their own and never block it.
//!
//! On Postgres other processes write too. There a group of commands first
//! locks the rows of its threads, in the order of their ids, so that whatever
//! is about one thread happens one after another and nobody waits in a circle.

mod access;
mod activate;
mod audit;
mod batch;
mod beside;
mod claim;
mod commit;
mod controls;
mod copy;
mod dead_letters;
mod deliveries;
mod events;
mod frames;
mod heads;
mod later;
mod overview;
mod points;
mod postgres;
mod reads;
mod retention;
mod schedules;
mod signals;
mod since;
mod sqlite;
mod stats;
mod sweep;
mod threads;
mod timers;
mod turns;
mod tx;
mod votes;
mod workers;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use countersign_kernel::ids::{CheckpointId, DeliveryId, FrameId, InterruptId, ThreadId};
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;

pub use self::beside::Beside;
use self::claim::Taken;
pub use self::copy::{Copied, CopyError};
use self::events::Log;
pub use self::stats::{GraphSize, StoreStats, TableSize, ThreadSize};
use self::writer::{Locks, Writer};
use super::commands::{
    Activation, Claim, Claimed, Committed, CreateThread, DeliveryEnd, Fence, Flush, FrameFlush, IdempotencyEntry,
    MoveThread, RecordVote, ResumeThread, Serves, StepCommit, StepGuard, StepResult, Voted,
};
use super::db::{self, Conn, Pools};
use super::views::{
    ArchivedAt, AuditEntry, DeliveryTask, DeliveryView, DoneStep, EventPage, HistoryEntry, InterruptFilter,
    InterruptView, Keyset, ThreadDetail, ThreadFilter, ThreadSummary, TokenRecord,
};
use super::{Accepted, AppendEvents, Cancelled, Due, Journal, Store, StoreError};
use crate::queue::{self, JobId, Message, QueueDepth, Transport, Way};
use crate::tally::Tally;

/// The store on a SQL database.
#[derive(Debug, Clone)]
pub struct SqlStore {
    writer: Writer,
    pools: Pools,
    transport: Transport,
    migrated: Vec<String>,
    journal: Journal,
    tally: Arc<Tally>,
    /// Whether there may be switches or limits that claims are judged by.
    controlled: Arc<AtomicBool>,
}

impl SqlStore {
    fn on(pools: Pools, migrated: Vec<String>) -> Self {
        let tally = Arc::<Tally>::default();
        let writer = Writer::start(pools.clone(), Way::Rows, Arc::clone(&tally));
        Self {
            writer,
            pools,
            transport: Transport::Rows,
            migrated,
            journal: Journal::default(),
            tally,
            controlled: Arc::new(AtomicBool::new(true)),
        }
    }

    /// The connections, for the queue's carrier.
    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    /// What carries messages.
    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Sends wake-ups through a Redis instead of leaving them to the database's
    /// own queue: commits write them into the outbox, which a
    /// [`Carrier`](queue::Carrier) of whatever process relays. To be said before
    /// the store is used.
    #[must_use]
    pub fn through(self, redis: queue::Redis) -> Self {
        let transport = Transport::Redis(Arc::new(redis));
        let writer = Writer::start(self.pools.clone(), transport.way(), Arc::clone(&self.tally));
        Self { writer, transport, ..self }
    }

    /// The migrations that opening applied, by number and name.
    #[must_use]
    pub fn migrated(&self) -> &[String] {
        &self.migrated
    }

    /// Whose interrupt it is, which never changes.
    async fn thread_of(&self, interrupt: &InterruptId) -> Result<ThreadId, StoreError> {
        let mut link = self.pools.reading().await?;
        points::thread_of(&mut link.conn(), interrupt).await
    }

    /// Finishes what is being written and closes the database.
    pub async fn close(&self) {
        self.writer.stop().await;
        self.pools.close().await;
    }
}

/// Asks nothing, in a transaction of the writer; or writes a row that means
/// nothing, to see whether that is possible.
async fn probe(conn: &mut Conn<'_>, write: bool) -> Result<(), StoreError> {
    if !write {
        db::query("SELECT 1").execute(conn).await?;
        return Ok(());
    }
    db::query(
        "INSERT INTO idempotency (scope, key, request_hash, status, body, created_at)
         VALUES ('probe', '', '', 0, $1, 0)
         ON CONFLICT (scope, key) DO UPDATE SET body = excluded.body",
    )
    .bind("0".repeat(4096))
    .execute(conn)
    .await?;
    Ok(())
}

/// Runs one command in the writer, which holds the locks:
/// `write!(self, locks, |tx, captured…| expression)`. The command may be run
/// again, so it gets copies of what it captures.
macro_rules! write {
    ($store:expr, $locks:expr, |$tx:ident $(, $captured:ident)*| $body:expr) => {{
        let locks: Locks = $locks;
        let command = $store.writer.run(locks, move |$tx| {
            $(let $captured = $captured.clone();)*
            Box::pin(async move { $body.await })
        });
        command.await
    }};
}

/// As [`write!`], for a command that may have something to tell those who
/// watch a thread: `tell!(self, thread, now, entry, |tx, log, captured…|
/// expression)`. The entry is that of the request under its idempotency key, if
/// it may have one.
macro_rules! tell {
    ($store:expr, $thread:expr, $now:expr, $entry:expr, |$tx:ident, $log:ident $(, $captured:ident)*| $body:expr) => {{
        let thread: ThreadId = $thread.clone();
        let locks = Locks::on(&thread).and_request($entry);
        let $log = Log::new($store.journal.is_on(), $now);
        let done = write!($store, locks, |$tx, $log $(, $captured)*| $body);
        if done.is_ok() {
            $store.journal.tell(&thread);
        }
        done
    }};
}

#[async_trait]
impl Store for SqlStore {
    async fn create(&self, command: CreateThread) -> Result<Accepted, StoreError> {
        tell!(self, command.thread, command.now, command.idempotency.as_ref(), |tx, log, command| threads::create(
            tx, command, log
        ))
    }

    async fn move_thread(&self, command: MoveThread) -> Result<Accepted, StoreError> {
        tell!(self, command.thread, command.now, command.idempotency.as_ref(), |tx, log, command| heads::move_thread(
            tx, command, log
        ))
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        let thread = claim.thread.clone();
        let log = Log::new(self.journal.is_on(), claim.now);
        let controlled = self.controlled.load(Ordering::Relaxed);
        let locks = Locks { limits: controlled, ..Locks::on(&thread) };
        let taken = write!(self, locks, |tx, log, claim, controlled| claim::claim(tx, claim, controlled, log))?;
        self.journal.tell(&thread);
        let fence = match taken {
            Taken::Held(fence) => fence,
            Taken::Nothing => return Ok(Claimed::Nothing),
            Taken::Dead => return Ok(Claimed::Dead),
        };
        match self.load(&thread).await {
            // If the lease has been lost since, this proof is void, as it should be.
            Ok(activation) => Ok(Claimed::Held(Box::new(Activation { fence, ..activation }))),
            Err(error) => {
                write!(self, Locks::on(&thread), |tx, thread| claim::give_back(tx, thread, fence))?;
                Err(error)
            }
        }
    }

    async fn load(&self, thread: &ThreadId) -> Result<Activation, StoreError> {
        let mut link = self.pools.snapshot().await?;
        activate::load(&mut link.conn(), thread).await
    }

    async fn renew(&self, leases: Vec<(ThreadId, Fence)>, until: Timestamp) -> Result<Vec<ThreadId>, StoreError> {
        write!(self, Locks::on_all(leases.iter().map(|(thread, _)| thread)), |tx, leases| claim::renew(
            tx, leases, until
        ))
    }

    async fn release(&self, thread: &ThreadId, fence: Fence, now: Timestamp) -> Result<(), StoreError> {
        let thread = thread.clone();
        tell!(self, thread, now, None, |tx, log, thread, fence, now| claim::release(tx, thread, fence, now, log))
    }

    async fn recover(&self, now: Timestamp) -> Result<u64, StoreError> {
        let way = self.transport.way();
        write!(self, Locks::default(), |tx, way, now| async { sweep::recover(tx.now().await?, way, now).await })
    }

    async fn commit(&self, commit: StepCommit) -> Result<Committed, StoreError> {
        tell!(self, commit.thread, commit.now, None, |tx, log, commit| commit::commit(tx, commit, log))
    }

    async fn record_result(&self, result: StepResult) -> Result<(), StoreError> {
        write!(self, Locks::on(&result.thread), |tx, result| commit::record_result(tx, result))
    }

    async fn flush_frame(&self, flush: FrameFlush) -> Result<(), StoreError> {
        tell!(self, flush.thread, flush.now, None, |tx, log, flush| frames::flush(tx, flush, log))
    }

    async fn flush(&self, flush: Flush) -> Result<(), StoreError> {
        tell!(self, flush.thread, flush.now, None, |tx, log, flush| commit::flush(tx, flush, log))
    }

    async fn record_vote(&self, vote: RecordVote) -> Result<Voted, StoreError> {
        let log = Log::new(self.journal.is_on(), vote.now);
        let locks = Locks::on(&self.thread_of(&vote.interrupt).await?);
        let voted = write!(self, locks, |tx, vote, log| votes::record(tx, vote, log));
        if let Ok(voted) = &voted {
            self.journal.tell(&voted.thread);
        }
        voted
    }

    async fn resume(
        &self,
        resume: ResumeThread,
        idempotency: Option<IdempotencyEntry>,
    ) -> Result<Accepted, StoreError> {
        tell!(self, resume.thread, resume.now, idempotency.as_ref(), |tx, log, resume, idempotency| votes::resume(
            tx,
            resume,
            idempotency,
            log
        ))
    }

    async fn pause(
        &self,
        thread: &ThreadId,
        by: &Principal,
        job: JobId,
        now: Timestamp,
    ) -> Result<Option<Message>, StoreError> {
        let (thread, by) = (thread.clone(), by.clone());
        tell!(self, thread, now, None, |tx, log, thread, by, job, now| threads::pause(tx, thread, by, job, now, log))
    }

    async fn cancel(&self, thread: &ThreadId, by: &Principal, now: Timestamp) -> Result<Cancelled, StoreError> {
        let (thread, by) = (thread.clone(), by.clone());
        tell!(self, thread, now, None, |tx, log, thread, by, now| threads::cancel(tx, thread, by, now, log))
    }

    async fn release_hold(
        &self,
        thread: &ThreadId,
        by: &Principal,
        job: JobId,
        now: Timestamp,
    ) -> Result<Message, StoreError> {
        let (thread, by) = (thread.clone(), by.clone());
        tell!(self, thread, now, None, |tx, log, thread, by, job, now| threads::release_hold(
            tx, thread, by, job, now, log
        ))
    }

    async fn sweep(
        &self,
        serves: &Serves,
        now: Timestamp,
        grace: Duration,
        limit: u32,
    ) -> Result<Vec<Due>, StoreError> {
        let mut link = self.pools.reading().await?;
        let mut conn = link.conn();
        let controlled = controls::any(&mut conn).await?;
        self.controlled.store(controlled, Ordering::Relaxed);
        sweep::find(&mut conn, serves, now, grace, limit).await
    }

    async fn tidy(&self, now: Timestamp) -> Result<u64, StoreError> {
        let way = self.transport.way();
        write!(self, Locks::default(), |tx, way, now| async { sweep::tidy(tx.now().await?, way, now).await })
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    async fn append_events(&self, command: AppendEvents) -> Result<(), StoreError> {
        tell!(self, command.thread, command.now, None, |tx, log, command| events::append(tx, command, log))
    }

    async fn events(&self, thread: &ThreadId, after: Option<i64>, limit: u32) -> Result<EventPage, StoreError> {
        let mut link = self.pools.snapshot().await?;
        events::read(&mut link.conn(), thread, after.unwrap_or(0), limit).await
    }

    async fn forget_events(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        write!(self, Locks::default(), |tx, before, limit| async {
            events::forget(tx.now().await?, before, limit).await
        })
    }

    async fn take_delivery(
        &self,
        thread: &ThreadId,
        delivery: &DeliveryId,
        job: Option<JobId>,
        taken_until: Timestamp,
        now: Timestamp,
    ) -> Result<Option<DeliveryTask>, StoreError> {
        let (thread, delivery) = (thread.clone(), delivery.clone());
        write!(self, Locks::on(&thread), |tx, thread, delivery, job, taken_until, now| deliveries::take(
            tx,
            thread,
            delivery,
            job,
            taken_until,
            now
        ))
    }

    async fn finish_delivery(
        &self,
        thread: &ThreadId,
        delivery: &DeliveryId,
        end: DeliveryEnd,
        job: Option<JobId>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (thread, delivery) = (thread.clone(), delivery.clone());
        write!(self, Locks::on(&thread), |tx, thread, delivery, end, job, now| deliveries::finish(
            tx, thread, delivery, end, job, now
        ))
    }

    async fn look(&self, thread: &ThreadId) -> Result<(ThreadDetail, Activation), StoreError> {
        let mut link = self.pools.snapshot().await?;
        reads::thread(&mut link.conn(), thread).await
    }

    async fn repeated(&self, scope: &str, key: &str, request_hash: &str) -> Result<Option<(u16, String)>, StoreError> {
        let mut link = self.pools.reading().await?;
        threads::repeated(&mut link.conn(), scope, key, request_hash).await
    }

    async fn threads(
        &self,
        filter: &ThreadFilter,
        after: Option<&Keyset>,
        limit: u32,
    ) -> Result<Vec<ThreadSummary>, StoreError> {
        let mut link = self.pools.reading().await?;
        reads::threads(&mut link.conn(), filter, after, limit).await
    }

    async fn archived(&self, thread: &ThreadId, checkpoint: &CheckpointId) -> Result<Vec<ArchivedAt>, StoreError> {
        let mut link = self.pools.snapshot().await?;
        frames::archived(&mut link.conn(), thread, checkpoint).await
    }

    async fn steps_since(&self, thread: &ThreadId, checkpoint: &CheckpointId) -> Result<Vec<DoneStep>, StoreError> {
        let mut link = self.pools.snapshot().await?;
        let guard = StepGuard { from: checkpoint.clone(), leaves: true, anew: Vec::new() };
        since::steps(&mut link.conn(), thread, &guard).await
    }

    async fn history(
        &self,
        thread: &ThreadId,
        frame: Option<&FrameId>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<HistoryEntry>, StoreError> {
        let mut link = self.pools.snapshot().await?;
        reads::history(&mut link.conn(), thread, frame, before, limit).await
    }

    async fn interrupt(&self, id: &InterruptId) -> Result<InterruptView, StoreError> {
        let mut link = self.pools.snapshot().await?;
        points::interrupt(&mut link.conn(), id).await
    }

    async fn interrupts(
        &self,
        filter: &InterruptFilter,
        after: Option<&Keyset>,
        limit: u32,
    ) -> Result<Vec<InterruptView>, StoreError> {
        let mut link = self.pools.snapshot().await?;
        points::interrupts(&mut link.conn(), filter, after, limit).await
    }

    async fn deliveries(
        &self,
        interrupt: Option<&InterruptId>,
        status: Option<&str>,
        limit: u32,
    ) -> Result<Vec<DeliveryView>, StoreError> {
        let mut link = self.pools.reading().await?;
        deliveries::list(&mut link.conn(), interrupt, status, limit).await
    }

    async fn queues(&self) -> Result<Vec<QueueDepth>, StoreError> {
        let mut link = self.pools.reading().await?;
        Ok(queue::depths(&mut link.conn(), self.transport.way()).await?)
    }

    async fn audit(&self, thread: &ThreadId) -> Result<Vec<AuditEntry>, StoreError> {
        let mut link = self.pools.reading().await?;
        audit::entries(&mut link.conn(), thread).await
    }

    async fn verify_audit(&self, thread: &ThreadId) -> Result<Option<i64>, StoreError> {
        let mut link = self.pools.snapshot().await?;
        audit::verify(&mut link.conn(), thread).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        db::query("SELECT 1").execute(&mut self.pools.reading().await?.conn()).await?;
        // Both halves: who reads well may write no more.
        // Where the last write failed, only a write shows that it goes again.
        let failing = self.writer.is_failing();
        write!(self, Locks::default(), |tx, failing| async { probe(tx.now().await?, failing).await })
    }

    async fn put_token(&self, token: &TokenRecord, hash: &str, now: Timestamp) -> Result<(), StoreError> {
        let (token, hash) = (token.clone(), hash.to_owned());
        write!(self, Locks::default(), |tx, token, hash, now| async {
            access::put_token(tx.now().await?, token, hash, now).await
        })
    }

    async fn token(&self, hash: &str) -> Result<Option<TokenRecord>, StoreError> {
        let mut link = self.pools.reading().await?;
        access::token(&mut link.conn(), hash).await
    }

    async fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        let mut link = self.pools.reading().await?;
        access::tokens(&mut link.conn()).await
    }

    async fn revoke_token(&self, name: &str, now: Timestamp) -> Result<bool, StoreError> {
        let name = name.to_owned();
        write!(self, Locks::default(), |tx, name, now| async { access::revoke_token(tx.now().await?, name, now).await })
    }

    async fn head(&self, thread: &ThreadId) -> Result<CheckpointId, StoreError> {
        let mut link = self.pools.reading().await?;
        reads::head(&mut link.conn(), thread).await
    }
}
