//! The store on embedded SQLite.
//!
//! WAL with `synchronous=FULL`: what is committed survives a power cut. One
//! write connection per process, shared with the queue's carrier; one
//! [writer](writer) gathers the commands that wait into one transaction.
//! Readers have connections of their own and never block it.

mod access;
mod activate;
mod audit;
mod beside;
mod claim;
mod commit;
mod deliveries;
mod events;
mod frames;
mod heads;
mod points;
mod reads;
mod since;
mod sweep;
mod threads;
mod votes;
mod writer;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use countersign_kernel::ids::{CheckpointId, DeliveryId, FrameId, InterruptId, ThreadId};
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

pub use self::beside::Beside;
use self::events::Log;
use self::writer::Writer;
use super::commands::{
    Activation, Claim, Claimed, Committed, CreateThread, DeliveryEnd, Fence, Flush, FrameFlush, IdempotencyEntry,
    MoveThread, RecordVote, ResumeThread, StepCommit, StepGuard, StepResult, Voted,
};
use super::views::{
    ArchivedAt, AuditEntry, DeliveryTask, DeliveryView, DoneStep, EventPage, HistoryEntry, InterruptFilter,
    InterruptView, Keyset, Overview, ThreadDetail, ThreadFilter, ThreadSummary, TokenRecord,
};
use super::{Accepted, AppendEvents, Cancelled, Due, Journal, Store, StoreError};
use crate::queue::{self, JobId, Message};

/// The bookkeeping of our own migrations, apart from the carrier's.
const MIGRATIONS_TABLE: &str = "countersign_migrations";

/// The store on one SQLite file.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    writer: Writer,
    write_pool: SqlitePool,
    readers: SqlitePool,
    migrated: Vec<String>,
    journal: Journal,
}

impl SqliteStore {
    /// Opens or creates the file and brings its tables to their present form.
    ///
    /// # Errors
    /// The file cannot be opened, or was written by a newer version.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(10))
            .statement_cache_capacity(256)
            // What a savepoint needs to undo goes to memory: as a temporary
            // file it was most of all that a group of commands wrote.
            .pragma("temp_store", "memory");
        let write_pool = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            // 16 MiB, so that a group of commands fits and is written once, at
            // its commit.
            .connect_with(options.clone().pragma("cache_size", "-16384"))
            .await?;
        queue::migrate(&write_pool).await?;
        let ours = migrations();
        let before = applied(&write_pool).await?;
        ours.run(&write_pool).await.map_err(|error| StoreError::Database(error.to_string()))?;
        let migrated = ours
            .iter()
            .filter(|step| !before.contains(&step.version))
            .map(|step| format!("{:04} {}", step.version, step.description))
            .collect();
        let readers = SqlitePoolOptions::new()
            .max_connections(4)
            .min_connections(0)
            .idle_timeout(Some(Duration::from_secs(60)))
            .connect_with(options.read_only(true).create_if_missing(false))
            .await?;
        let writer = Writer::start(write_pool.clone());
        Ok(Self { writer, write_pool, readers, migrated, journal: Journal::default() })
    }

    /// The one write connection, for the queue's carrier.
    #[must_use]
    pub fn write_pool(&self) -> SqlitePool {
        self.write_pool.clone()
    }

    /// The migrations that opening applied, by number and name.
    #[must_use]
    pub fn migrated(&self) -> &[String] {
        &self.migrated
    }

    /// Finishes what is being written and closes the file.
    pub async fn close(&self) {
        self.writer.stop().await;
        self.readers.close().await;
        self.write_pool.close().await;
    }
}

/// Asks nothing, in a transaction of the writer; or writes a row that means
/// nothing, to see whether that is possible.
async fn probe(conn: &mut SqliteConnection, write: bool) -> Result<(), StoreError> {
    if !write {
        sqlx::query("SELECT 1").execute(conn).await?;
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO idempotency (scope, key, request_hash, status, body, created_at)
         VALUES ('probe', '', '', 0, hex(randomblob(2048)), 0)
         ON CONFLICT (scope, key) DO UPDATE SET body = excluded.body",
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Our migrations.
fn migrations() -> sqlx::migrate::Migrator {
    let mut ours = sqlx::migrate!("../migrations/sqlite");
    ours.dangerous_set_table_name(MIGRATIONS_TABLE);
    ours
}

/// The versions of our migrations that the file has.
async fn applied(pool: &SqlitePool) -> Result<Vec<i64>, StoreError> {
    let known: Option<i64> = sqlx::query_scalar("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1")
        .bind(MIGRATIONS_TABLE)
        .fetch_optional(pool)
        .await?;
    if known.is_none() {
        return Ok(Vec::new());
    }
    Ok(sqlx::query_scalar("SELECT version FROM countersign_migrations").fetch_all(pool).await?)
}

/// Runs one command in the writer: `write!(self, |conn| expression)`.
macro_rules! write {
    ($store:expr, |$conn:ident| $body:expr) => {
        $store.writer.run(move |$conn| Box::pin(async move { $body.await })).await
    };
}

/// As [`write!`], for a command that may have something to tell those who
/// watch a thread: `tell!(self, thread, now, |conn, log| expression)`.
macro_rules! tell {
    ($store:expr, $thread:expr, $now:expr, |$conn:ident, $log:ident| $body:expr) => {{
        let thread: ThreadId = $thread.clone();
        let $log = Log::new($store.journal.is_on(), $now);
        let done = write!($store, |$conn| $body);
        if done.is_ok() {
            $store.journal.tell(&thread);
        }
        done
    }};
}

#[async_trait]
impl Store for SqliteStore {
    async fn create(&self, command: CreateThread) -> Result<Accepted, StoreError> {
        tell!(self, command.thread, command.now, |conn, log| threads::create(conn, command, log))
    }

    async fn move_thread(&self, command: MoveThread) -> Result<Accepted, StoreError> {
        tell!(self, command.thread, command.now, |conn, log| heads::move_thread(conn, command, log))
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        tell!(self, claim.thread, claim.now, |conn, log| claim::claim(conn, claim, log))
    }

    async fn load(&self, thread: &ThreadId) -> Result<Activation, StoreError> {
        let mut conn = self.readers.begin().await?;
        activate::load(&mut conn, thread).await
    }

    async fn renew(&self, leases: Vec<(ThreadId, Fence)>, until: Timestamp) -> Result<Vec<ThreadId>, StoreError> {
        write!(self, |conn| claim::renew(conn, leases, until))
    }

    async fn release(&self, thread: &ThreadId, fence: Fence, now: Timestamp) -> Result<(), StoreError> {
        let thread = thread.clone();
        tell!(self, thread, now, |conn, log| claim::release(conn, thread, fence, now, log))
    }

    async fn recover(&self, now: Timestamp) -> Result<u64, StoreError> {
        write!(self, |conn| sweep::recover(conn, now))
    }

    async fn commit(&self, commit: StepCommit) -> Result<Committed, StoreError> {
        tell!(self, commit.thread, commit.now, |conn, log| commit::commit(conn, commit, log))
    }

    async fn record_result(&self, result: StepResult) -> Result<(), StoreError> {
        write!(self, |conn| commit::record_result(conn, result))
    }

    async fn flush_frame(&self, flush: FrameFlush) -> Result<(), StoreError> {
        tell!(self, flush.thread, flush.now, |conn, log| frames::flush(conn, flush, log))
    }

    async fn flush(&self, flush: Flush) -> Result<(), StoreError> {
        tell!(self, flush.thread, flush.now, |conn, log| commit::flush(conn, flush, log))
    }

    async fn record_vote(&self, vote: RecordVote) -> Result<Voted, StoreError> {
        let log = Log::new(self.journal.is_on(), vote.now);
        let voted = write!(self, |conn| votes::record(conn, vote, log));
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
        tell!(self, resume.thread, resume.now, |conn, log| votes::resume(conn, resume, idempotency, log))
    }

    async fn pause(
        &self,
        thread: &ThreadId,
        by: &Principal,
        job: JobId,
        now: Timestamp,
    ) -> Result<Option<Message>, StoreError> {
        let (thread, by) = (thread.clone(), by.clone());
        tell!(self, thread, now, |conn, log| threads::pause(conn, thread, by, job, now, log))
    }

    async fn cancel(&self, thread: &ThreadId, by: &Principal, now: Timestamp) -> Result<Cancelled, StoreError> {
        let (thread, by) = (thread.clone(), by.clone());
        tell!(self, thread, now, |conn, log| threads::cancel(conn, thread, by, now, log))
    }

    async fn release_hold(
        &self,
        thread: &ThreadId,
        by: &Principal,
        job: JobId,
        now: Timestamp,
    ) -> Result<Message, StoreError> {
        let (thread, by) = (thread.clone(), by.clone());
        tell!(self, thread, now, |conn, log| threads::release_hold(conn, thread, by, job, now, log))
    }

    async fn sweep(&self, now: Timestamp, grace: Duration, limit: u32) -> Result<Vec<Due>, StoreError> {
        let mut conn = self.readers.acquire().await?;
        sweep::find(&mut conn, now, grace, limit).await
    }

    async fn tidy(&self, now: Timestamp) -> Result<u64, StoreError> {
        write!(self, |conn| sweep::tidy(conn, now))
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    async fn append_events(&self, command: AppendEvents) -> Result<(), StoreError> {
        tell!(self, command.thread, command.now, |conn, log| events::append(conn, command, log))
    }

    async fn events(&self, thread: &ThreadId, after: Option<i64>, limit: u32) -> Result<EventPage, StoreError> {
        let mut conn = self.readers.begin().await?;
        events::read(&mut conn, thread, after.unwrap_or(0), limit).await
    }

    async fn forget_events(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        write!(self, |conn| events::forget(conn, before, limit))
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
        write!(self, |conn| deliveries::take(conn, thread, delivery, job, taken_until, now))
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
        write!(self, |conn| deliveries::finish(conn, thread, delivery, end, job, now))
    }

    async fn look(&self, thread: &ThreadId) -> Result<(ThreadDetail, Activation), StoreError> {
        let mut conn = self.readers.begin().await?;
        reads::thread(&mut conn, thread).await
    }

    async fn repeated(&self, scope: &str, key: &str, request_hash: &str) -> Result<Option<(u16, String)>, StoreError> {
        let mut conn = self.readers.acquire().await?;
        threads::repeated(&mut conn, scope, key, request_hash).await
    }

    async fn threads(
        &self,
        filter: &ThreadFilter,
        after: Option<&Keyset>,
        limit: u32,
    ) -> Result<Vec<ThreadSummary>, StoreError> {
        let mut conn = self.readers.acquire().await?;
        reads::threads(&mut conn, filter, after, limit).await
    }

    async fn archived(&self, thread: &ThreadId, checkpoint: &CheckpointId) -> Result<Vec<ArchivedAt>, StoreError> {
        let mut conn = self.readers.begin().await?;
        frames::archived(&mut conn, thread, checkpoint).await
    }

    async fn steps_since(&self, thread: &ThreadId, checkpoint: &CheckpointId) -> Result<Vec<DoneStep>, StoreError> {
        let mut conn = self.readers.begin().await?;
        let guard = StepGuard { from: checkpoint.clone(), leaves: true, anew: Vec::new() };
        since::steps(&mut conn, thread, &guard).await
    }

    async fn history(
        &self,
        thread: &ThreadId,
        frame: Option<&FrameId>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<HistoryEntry>, StoreError> {
        let mut conn = self.readers.begin().await?;
        reads::history(&mut conn, thread, frame, before, limit).await
    }

    async fn interrupt(&self, id: &InterruptId) -> Result<InterruptView, StoreError> {
        let mut conn = self.readers.begin().await?;
        points::interrupt(&mut conn, id).await
    }

    async fn interrupts(
        &self,
        filter: &InterruptFilter,
        after: Option<&Keyset>,
        limit: u32,
    ) -> Result<Vec<InterruptView>, StoreError> {
        let mut conn = self.readers.begin().await?;
        points::interrupts(&mut conn, filter, after, limit).await
    }

    async fn deliveries(
        &self,
        interrupt: Option<&InterruptId>,
        status: Option<&str>,
        limit: u32,
    ) -> Result<Vec<DeliveryView>, StoreError> {
        let mut conn = self.readers.acquire().await?;
        deliveries::list(&mut conn, interrupt, status, limit).await
    }

    async fn overview_of(&self, graphs: Option<&[String]>) -> Result<Overview, StoreError> {
        let mut conn = self.readers.begin().await?;
        reads::overview(&mut conn, graphs).await
    }

    async fn audit(&self, thread: &ThreadId) -> Result<Vec<AuditEntry>, StoreError> {
        let mut conn = self.readers.acquire().await?;
        audit::entries(&mut conn, thread).await
    }

    async fn verify_audit(&self, thread: &ThreadId) -> Result<Option<i64>, StoreError> {
        let mut conn = self.readers.begin().await?;
        audit::verify(&mut conn, thread).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.readers).await?;
        // Both halves: who reads well may write no more.
        // Where the last write failed, only a write shows that it goes again.
        let failing = self.writer.is_failing();
        write!(self, |conn| probe(conn, failing))
    }

    async fn put_token(&self, token: &TokenRecord, hash: &str, now: Timestamp) -> Result<(), StoreError> {
        let (token, hash) = (token.clone(), hash.to_owned());
        write!(self, |conn| access::put_token(conn, token, hash, now))
    }

    async fn token(&self, hash: &str) -> Result<Option<TokenRecord>, StoreError> {
        let mut conn = self.readers.acquire().await?;
        access::token(&mut conn, hash).await
    }

    async fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        let mut conn = self.readers.acquire().await?;
        access::tokens(&mut conn).await
    }

    async fn revoke_token(&self, name: &str, now: Timestamp) -> Result<bool, StoreError> {
        let name = name.to_owned();
        write!(self, |conn| access::revoke_token(conn, name, now))
    }

    async fn head(&self, thread: &ThreadId) -> Result<CheckpointId, StoreError> {
        let mut conn = self.readers.acquire().await?;
        reads::head(&mut conn, thread).await
    }
}
