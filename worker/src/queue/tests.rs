//! The queue on a real database file, durable as in production.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use countersign_kernel::ids::{DeliveryId, ThreadId};
use countersign_kernel::time::Timestamp;
use sqlx::SqlitePool;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::store::db::{Conn, Pools};
use crate::store::{SqlStore, Store as _, StoreError};

const SOON: Duration = Duration::from_secs(10);
/// An interval that does not help: what arrives was fetched for a wake-up.
const NEVER: Duration = Duration::from_secs(3_600);

struct ToChannel(mpsc::UnboundedSender<Message>);

impl Receiver for ToChannel {
    fn receive(&self, message: Message) {
        assert_ne!(message.thread.as_str(), "panic");
        self.0.send(message).ok();
    }
}

async fn open(folder: &Path) -> SqlStore {
    SqlStore::open(&folder.join("data.db")).await.unwrap()
}

struct Queue {
    store: SqlStore,
    pool: SqlitePool,
    wake: Wake,
    next: u128,
    _folder: TempDir,
}

impl Queue {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await;
        let Pools::Sqlite { write: pool, .. } = store.pools().clone() else { unreachable!("SQLite") };
        Self { store, pool, wake: Wake::new(), next: 0, _folder: folder }
    }

    fn message(&mut self, thread: &str) -> Message {
        self.next += 1;
        Message::advance(JobId::new(0, self.next), ThreadId::parse(thread).unwrap())
    }

    async fn now(&self) -> Timestamp {
        let millis: i64 = sqlx::query_scalar("SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)")
            .fetch_one(&self.pool)
            .await
            .unwrap();
        Timestamp::from_micros(millis * 1_000)
    }

    async fn push(&self, messages: &[Message]) {
        self.push_at(messages, self.now().await).await;
    }

    async fn push_at(&self, messages: &[Message], now: Timestamp) {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        push(
            &mut Conn::from(&mut *tx),
            Way::Rows,
            &messages.iter().map(|message| (message.clone(), now)).collect::<Vec<_>>(),
        )
        .await
        .unwrap();
        tx.commit().await.unwrap();
        for message in messages {
            self.wake.wake(message.kind);
        }
    }

    async fn delete(&self, ids: &[JobId]) -> u64 {
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let deleted = delete(&mut Conn::from(&mut *tx), Way::Rows, ids).await.unwrap();
        tx.commit().await.unwrap();
        deleted
    }

    async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// Runs a malformed or foreign statement.
    async fn execute(&self, sql: &'static str) {
        sqlx::query(sql).execute(&self.pool).await.unwrap();
    }

    /// Waits until `sql` counts nothing.
    async fn until_none(&self, sql: &'static str) {
        let gone = async { while self.count(sql).await > 0 {} };
        timeout(SOON, gone).await.unwrap();
    }

    fn carry(&self, poll_interval: Duration) -> Running {
        let (sender, messages) = mpsc::unbounded_channel();
        let shutdown = CancellationToken::new();
        let carrier = Carrier::new(&self.store, "test", poll_interval);
        let (wake, stop) = (self.wake.clone(), shutdown.clone());
        let run = async move { carrier.run(Arc::new(ToChannel(sender)), wake, stop).await };
        Running { messages, shutdown, run: tokio::spawn(run) }
    }
}

struct Running {
    messages: mpsc::UnboundedReceiver<Message>,
    shutdown: CancellationToken,
    run: JoinHandle<Result<(), QueueError>>,
}

impl Running {
    async fn next(&mut self) -> Message {
        timeout(SOON, self.messages.recv()).await.unwrap().unwrap()
    }

    async fn stop(self) {
        self.shutdown.cancel();
        timeout(SOON, self.run).await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test]
async fn migrations_run_twice_beside_others_and_leave_the_database_durable() {
    let queue = Queue::new().await;
    migrate(queue.store.pools()).await.unwrap();
    assert_eq!(queue.count("PRAGMA synchronous").await, 2);
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name = '_sqlx_migrations'";
    assert_eq!(queue.count(tables).await, 0);
}

#[tokio::test]
async fn a_committed_message_arrives_as_it_was_pushed() {
    let mut queue = Queue::new().await;
    let mut carrier = queue.carry(NEVER);
    let advance = queue.message("t-1");
    queue.push(std::slice::from_ref(&advance)).await;
    assert_eq!(carrier.next().await, advance);
    let deliver =
        Message::deliver(JobId::new(1, 1), ThreadId::parse("t-2").unwrap(), &DeliveryId::parse("d-1").unwrap());
    queue.push(std::slice::from_ref(&deliver)).await;
    assert_eq!(carrier.next().await, deliver);
    carrier.stop().await;
}

#[tokio::test]
async fn a_message_pushed_before_the_carrier_runs_arrives_without_a_wake_up() {
    let mut queue = Queue::new().await;
    let message = queue.message("t");
    queue.push(std::slice::from_ref(&message)).await;
    queue.wake = Wake::new();
    let mut carrier = queue.carry(NEVER);
    assert_eq!(carrier.next().await, message);
    carrier.stop().await;
}

#[tokio::test]
async fn a_message_whose_wake_up_was_lost_arrives_by_the_interval() {
    let mut queue = Queue::new().await;
    let mut carrier = queue.carry(Duration::from_millis(20));
    let first = queue.message("first");
    queue.push(std::slice::from_ref(&first)).await;
    carrier.next().await;
    queue.wake = Wake::new();
    let second = queue.message("second");
    queue.push(std::slice::from_ref(&second)).await;
    assert_eq!(carrier.next().await, second);
    carrier.stop().await;
}

#[tokio::test]
async fn a_message_that_was_rolled_back_never_arrives() {
    let mut queue = Queue::new().await;
    let mut carrier = queue.carry(Carrier::POLL_INTERVAL);
    let (ghost, real) = (queue.message("ghost"), queue.message("real"));
    let now = queue.now().await;
    let mut tx = queue.pool.begin().await.unwrap();
    push(&mut Conn::from(&mut *tx), Way::Rows, &[(ghost, now)]).await.unwrap();
    tx.rollback().await.unwrap();
    // The ghost is older and would come first.
    queue.push(std::slice::from_ref(&real)).await;
    assert_eq!(carrier.next().await, real);
    assert_eq!(queue.count("SELECT count(*) FROM Jobs").await, 1);
    carrier.stop().await;
}

#[tokio::test]
async fn a_delayed_message_is_never_early() {
    let mut queue = Queue::new().await;
    let mut carrier = queue.carry(Duration::from_millis(50));
    let due = queue.now().await.after(Duration::from_millis(600));
    let late = queue.message("late").after(Duration::from_millis(600));
    let soon = queue.message("soon");
    queue.push(&[late, soon]).await;
    assert_eq!(carrier.next().await.thread.as_str(), "soon");
    let late = carrier.next().await;
    assert_eq!((late.thread.as_str(), late.run_after), ("late", None));
    assert!(queue.now().await >= due);
    carrier.stop().await;
}

#[tokio::test]
async fn deleting_removes_the_rows_named_and_counts_them() {
    let mut queue = Queue::new().await;
    let messages = ["a", "b", "c"].map(|thread| queue.message(thread));
    let unknown = queue.message("unknown");
    queue.push(&messages).await;
    let [a, b, c] = messages.map(|message| message.id);
    assert_eq!(queue.delete(&[]).await, 0);
    assert_eq!(queue.delete(&[a, c, unknown.id]).await, 2);
    assert_eq!(queue.delete(&[a, b]).await, 1);
    assert_eq!(queue.count("SELECT count(*) FROM Jobs").await, 0);
}

#[tokio::test]
async fn the_same_id_twice_is_an_error() {
    let mut queue = Queue::new().await;
    let message = queue.message("t");
    queue.push(std::slice::from_ref(&message)).await;
    let now = queue.now().await;
    let mut conn = queue.pool.acquire().await.unwrap();
    let again = push(&mut Conn::from(&mut *conn), Way::Rows, &[(message, now)]).await;
    assert!(matches!(again, Err(QueueError::Store(StoreError::Database(_)))), "{again:?}");
}

#[tokio::test]
async fn depths_tell_waiting_from_fetched() {
    let mut queue = Queue::new().await;
    let mut carrier = queue.carry(NEVER);
    let now = queue.now().await;
    let later = queue.message("later").after(Duration::from_secs(3_600));
    let messages = [queue.message("a"), queue.message("b"), later];
    queue.push(&messages).await;
    carrier.next().await;
    carrier.next().await;
    let depths = queue.store.queues().await.unwrap();
    let [advance, deliver, _] = depths[..] else { panic!("{depths:?}") };
    assert_eq!((advance.kind, advance.waiting, advance.fetched), (JobKind::Advance, 1, 2));
    let oldest = advance.oldest_run_at.unwrap();
    assert!(oldest.since(now) < SOON && now.since(oldest) < SOON, "{oldest:?}");
    assert_eq!((deliver.waiting, deliver.fetched, deliver.oldest_run_at), (0, 0, None));
    carrier.stop().await;
}

#[tokio::test]
async fn what_was_not_deleted_comes_again_after_a_stop_and_after_a_crash() {
    let mut queue = Queue::new().await;
    let (done, open) = (queue.message("done"), queue.message("open"));
    let mut carrier = queue.carry(NEVER);
    queue.push(&[done.clone(), open.clone()]).await;
    assert_eq!(carrier.next().await, done);
    assert_eq!(carrier.next().await, open);
    assert_eq!(queue.delete(&[done.id]).await, 1);
    carrier.stop().await;
    let held = "SELECT count(*) FROM Jobs WHERE status <> 'Pending' OR lock_by IS NOT NULL";
    assert_eq!(queue.count(held).await, 0);
    assert_eq!(queue.count("SELECT count(*) FROM Workers").await, 0);

    // At once a second one, under other names; it dies without giving back.
    let mut carrier = queue.carry(NEVER);
    assert_eq!(carrier.next().await, open);
    carrier.run.abort();
    assert!(carrier.run.await.unwrap_err().is_cancelled());
    assert_eq!(queue.count(held).await, 1);

    let mut conn = queue.pool.acquire().await.unwrap();
    assert_eq!(give_back_all(&mut Conn::from(&mut *conn), Way::Rows).await.unwrap(), 1);
    assert_eq!(give_back_all(&mut Conn::from(&mut *conn), Way::Rows).await.unwrap(), 0);
    drop(conn);
    assert_eq!(queue.count("SELECT count(*) FROM Workers").await, 0);
    let mut carrier = queue.carry(NEVER);
    assert_eq!(carrier.next().await, open);
    carrier.stop().await;
}

#[tokio::test]
async fn rows_that_are_no_messages_are_removed_and_stop_nothing() {
    let mut queue = Queue::new().await;
    let mut carrier = queue.carry(NEVER);
    let first = queue.message("first");
    queue.push(std::slice::from_ref(&first)).await;
    assert_eq!(carrier.next().await, first);
    queue
        .execute(
            "INSERT INTO Jobs (job, id, job_type, run_at) VALUES
             ('{\"thread\":\"t\"}', 'not-a-ulid', 'advance', 0),
             ('{\"thread\":\"t\"}', x'fffe', 'advance', 0),
             ('{\"thread\":\"t\"}', '01arz3ndektsv4rrffq69g5fav', 'advance', 0),
             ('{\"thread\":\"t\"}', 'ZZZZZZZZZZZZZZZZZZZZZZZZZZ', 'advance', 0),
             ('{\"thread\":\"t\"}', '01ARZ3NDEK' || char(0) || 'SV4RRFFQ69G5FAV', 'advance', 0),
             ('not json', '01ARZ3NDEKTSV4RRFFQ69G5FAV', 'advance', 0),
             ('{\"thread\":\"a/b\"}', '01ARZ3NDEKTSV4RRFFQ69G5FAW', 'advance', 0),
             (x'ff00', '01ARZ3NDEKTSV4RRFFQ69G5FAX', 'advance', 0)",
        )
        .await;
    let second = queue.message("second");
    queue.push(std::slice::from_ref(&second)).await;
    // The fetch failed and the worker was started again: the first message,
    // not deleted yet, comes again, and the second one comes.
    let mut seen = HashSet::new();
    while !seen.contains(&second.id) {
        seen.insert(carrier.next().await.id);
    }
    assert!(seen.is_subset(&HashSet::from([first.id, second.id])));
    queue.until_none("SELECT count(*) FROM Jobs WHERE run_at = 0").await;
    assert_eq!(queue.count("SELECT count(*) FROM Jobs").await, 2);
    carrier.stop().await;
}

#[tokio::test]
async fn a_panic_of_the_receiver_loses_nothing_and_stops_nothing() {
    let mut queue = Queue::new().await;
    let mut carrier = queue.carry(NEVER);
    let (bad, good) = (queue.message("panic"), queue.message("good"));
    queue.push(&[bad, good.clone()]).await;
    assert_eq!(carrier.next().await, good);
    assert_eq!(queue.count("SELECT count(*) FROM Jobs").await, 2);
    carrier.stop().await;
}

/// Gaps of many lengths, so that wake-ups meet the fetch at every stage, and
/// every now and then a wait for all that is under way, because a later push
/// would make up for a wake-up that was lost. The interval does not help.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_with_gaps_arrives_completely() {
    let mut queue = Queue::new().await;
    let mut carrier = queue.carry(NEVER);
    let now = queue.now().await;
    let mut waiting = HashSet::new();
    let mut random = 7_u32;
    for _ in 0..3_000 {
        let message = queue.message("t");
        waiting.insert(message.id);
        queue.push_at(&[message], now).await;
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        for _ in 0..random >> 24 {
            tokio::task::yield_now().await;
        }
        while random & 0x0030_0000 == 0 && !waiting.is_empty() {
            assert!(waiting.remove(&carrier.next().await.id), "twice");
        }
    }
    while !waiting.is_empty() {
        assert!(waiting.remove(&carrier.next().await.id), "twice");
    }
    carrier.stop().await;
}

/// A worker is dropped wherever it stands, also within a fetch: its rows have
/// to come back, and the only connection has to stay usable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_at_any_moment_leaves_no_row_held() {
    let mut queue = Queue::new().await;
    let messages: Vec<_> = (0..250).map(|_| queue.message("t")).collect();
    queue.push(&messages).await;
    for received in 0..60 {
        let mut carrier = queue.carry(NEVER);
        for _ in 0..received {
            carrier.next().await;
        }
        carrier.stop().await;
        let free = "SELECT count(*) FROM Jobs WHERE status = 'Pending' AND lock_by IS NULL";
        assert_eq!(queue.count(free).await, 250);
        assert_eq!(queue.count("SELECT count(*) FROM Workers").await, 0);
    }
}
