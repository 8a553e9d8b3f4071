//! One writer, many commands per transaction.
//!
//! A durable commit costs one `fsync`, whatever is in it. So the writer takes
//! everything that waits, runs it in one transaction, commits once, and only
//! then tells each caller. A command that is refused is rolled back to its
//! savepoint and takes nothing else with it.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnection, SqlitePool};
use sqlx::{Connection as _, Sqlite, Transaction};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::StoreError;

/// Most commands in one transaction: bounds what one failed commit undoes.
const BATCH: usize = 256;
/// Commands that may wait before callers do.
const QUEUE: usize = 4096;

/// Told after the commit whether it held.
type Finish = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// How a command ended.
#[derive(Clone, Copy, PartialEq)]
enum Ran {
    /// Its writes stand, if the transaction holds.
    Stands,
    /// The rules refused it.
    Refused,
    /// The database could not.
    Broke,
}

/// A command and whoever waits for it.
trait Command: Send {
    /// Writes, and says how it ended.
    fn run<'c>(self: Box<Self>, conn: &'c mut SqliteConnection) -> BoxFuture<'c, (Ran, Finish)>
    where
        Self: 'c;

    /// There is no transaction to run in.
    fn fail(self: Box<Self>, error: StoreError);
}

struct Waiting<T, F> {
    command: F,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Command for Waiting<T, F>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
{
    fn run<'c>(self: Box<Self>, conn: &'c mut SqliteConnection) -> BoxFuture<'c, (Ran, Finish)>
    where
        Self: 'c,
    {
        Box::pin(async move {
            let Self { command, reply } = *self;
            // A fault in one command must not end the writer of all.
            let outcome = AssertUnwindSafe(command(conn)).catch_unwind().await.unwrap_or_else(|_| {
                Err(StoreError::Database("the command panicked; nothing of it was written".into()))
            });
            let ran = match &outcome {
                Ok(_) => Ran::Stands,
                Err(StoreError::Database(_)) => Ran::Broke,
                Err(StoreError::Fenced | StoreError::Refused(_) | StoreError::Unreadable { .. }) => Ran::Refused,
            };
            let finish: Finish = Box::new(move |committed| {
                // A caller that went away is told nothing.
                let _ = reply.send(committed.and(outcome));
            });
            (ran, finish)
        })
    }

    fn fail(self: Box<Self>, error: StoreError) {
        let _ = self.reply.send(Err(error));
    }
}

#[derive(Clone)]
pub(super) struct Writer {
    commands: mpsc::Sender<Box<dyn Command>>,
    task: Arc<Mutex<Option<JoinHandle<()>>>>,
    stop: CancellationToken,
    /// Whether the last transaction that wanted to write could not.
    failing: Arc<AtomicBool>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Writer")
    }
}

impl Writer {
    pub(super) fn start(pool: SqlitePool) -> Self {
        let (commands, incoming) = mpsc::channel(QUEUE);
        let stop = CancellationToken::new();
        let failing = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(serve(pool, incoming, stop.clone(), Arc::clone(&failing)));
        Self { commands, task: Arc::new(Mutex::new(Some(task))), stop, failing }
    }

    /// Runs a command and waits until its transaction is durable.
    pub(super) async fn run<T, F>(&self, command: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let command: Box<dyn Command> = Box::new(Waiting { command, reply });
        let gone = |what: &str| StoreError::Database(what.to_owned());
        self.commands.send(command).await.map_err(|_| gone("the store is closed"))?;
        result.await.map_err(|_| gone("the writer broke off"))?
    }

    /// Whether the last write failed: a full disk, say.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed)
    }

    pub(super) async fn stop(&self) {
        self.stop.cancel();
        if let Some(task) = self.task.lock().await.take() {
            // The task ends by itself; a panic in it was reported already.
            let _ = task.await;
        }
    }
}

async fn serve(
    pool: SqlitePool,
    mut incoming: mpsc::Receiver<Box<dyn Command>>,
    stop: CancellationToken,
    failing: Arc<AtomicBool>,
) {
    loop {
        let first = tokio::select! {
            biased;
            command = incoming.recv() => command,
            () = stop.cancelled() => {
                incoming.close();
                incoming.recv().await
            }
        };
        let Some(first) = first else { return };
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(command) = incoming.try_recv()
        {
            batch.push(command);
        }
        // A panic was reported by the hook, and dropped the replies of the
        // batch, which tells its callers. It must not end the writer of all.
        let wrote = AssertUnwindSafe(transaction(&pool, batch)).catch_unwind().await;
        match wrote.unwrap_or(Wrote::Failed) {
            Wrote::Failed => failing.store(true, Ordering::Relaxed),
            Wrote::Something => failing.store(false, Ordering::Relaxed),
            Wrote::Nothing => {}
        }
    }
}

/// What became of a transaction.
enum Wrote {
    /// It is durable.
    Something,
    /// No command wanted to write, or each was refused.
    Nothing,
    /// The database could not.
    Failed,
}

async fn transaction(pool: &SqlitePool, batch: Vec<Box<dyn Command>>) -> Wrote {
    let mut conn = match pool.acquire().await {
        Ok(conn) => conn,
        Err(error) => {
            refuse(batch, &error.into());
            return Wrote::Failed;
        }
    };
    let tried = match conn.begin_with("BEGIN IMMEDIATE").await {
        Ok(transaction) => Ok(attempt(transaction, batch).await),
        Err(error) => Err((batch, StoreError::from(error))),
    };
    let (finishes, ended, whole, wrote) = match tried {
        Ok(ended) => ended,
        Err((batch, error)) => {
            refuse(batch, &error);
            discard(conn).await;
            return Wrote::Failed;
        }
    };
    if let Err(error) = &ended {
        tracing::error!(%error, commands = finishes.len(), "a transaction failed; nothing of it was written");
    }
    if !whole {
        discard(conn).await;
    }
    for finish in finishes {
        finish(ended.clone());
    }
    wrote
}

/// Runs the commands and ends the transaction. Says whom to tell, whether it
/// held, whether the connection is still of use, and what was written.
async fn attempt(
    mut transaction: Transaction<'_, Sqlite>,
    batch: Vec<Box<dyn Command>>,
) -> (Vec<Finish>, Result<(), StoreError>, bool, Wrote) {
    let alone = batch.len() == 1;
    let mut finishes = Vec::with_capacity(batch.len());
    let (mut any_stands, mut any_broke) = (false, false);
    let mut broken: Option<StoreError> = None;
    for command in batch {
        if broken.is_none() && !alone {
            broken = execute(&mut transaction, "SAVEPOINT command").await.err();
        }
        if let Some(error) = &broken {
            // A full disk ends SQLite's transaction by itself: what ran now
            // would be committed statement by statement.
            command.fail(error.clone());
            continue;
        }
        let (ran, finish) = command.run(&mut transaction).await;
        let stands = ran == Ran::Stands;
        if !alone {
            let end = if stands { "RELEASE command" } else { "ROLLBACK TO command; RELEASE command" };
            broken = execute(&mut transaction, end).await.err();
        }
        any_stands |= stands;
        any_broke |= ran == Ran::Broke;
        finishes.push(finish);
    }
    if let Some(error) = broken {
        drop(transaction);
        return (finishes, Err(error), false, Wrote::Failed);
    }
    if any_stands {
        let ended = transaction.commit().await.map_err(StoreError::from);
        let whole = ended.is_ok();
        let wrote = if whole && !any_broke { Wrote::Something } else { Wrote::Failed };
        return (finishes, ended, whole, wrote);
    }
    // Nothing was to be written, so each command's own outcome holds, also if
    // SQLite has rolled back before us.
    let whole = transaction.rollback().await.is_ok();
    let wrote = if any_broke { Wrote::Failed } else { Wrote::Nothing };
    (finishes, Ok(()), whole, wrote)
}

fn refuse(batch: Vec<Box<dyn Command>>, error: &StoreError) {
    tracing::error!(%error, commands = batch.len(), "the store cannot begin a transaction");
    for command in batch {
        command.fail(error.clone());
    }
}

/// Closes a connection that is not where sqlx believes it to be: after an
/// error that ended the transaction by itself it would refuse every further
/// one. The pool opens another.
async fn discard(conn: PoolConnection<Sqlite>) {
    if let Err(error) = conn.close().await {
        tracing::warn!(%error, "a connection to the database did not close cleanly");
    }
}

async fn execute(conn: &mut SqliteConnection, statement: &'static str) -> Result<(), StoreError> {
    sqlx::raw_sql(statement).execute(conn).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};

    use super::*;

    struct Place {
        _folder: tempfile::TempDir,
        pool: SqlitePool,
        writer: Writer,
    }

    async fn place() -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        let options = SqliteConnectOptions::new()
            .filename(folder.path().join("test.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal);
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.expect("a pool");
        sqlx::query("CREATE TABLE rows (batch INTEGER, part INTEGER, filler BLOB)")
            .execute(&pool)
            .await
            .expect("a table");
        Place { _folder: folder, writer: Writer::start(pool.clone()), pool }
    }

    impl Place {
        /// Two rows in one command.
        async fn insert(&self, batch: i64, octets: i64) -> Result<(), StoreError> {
            let insert = async move |conn: &mut SqliteConnection| -> Result<(), StoreError> {
                for part in 0..2 {
                    sqlx::query("INSERT INTO rows VALUES (?1, ?2, zeroblob(?3))")
                        .bind(batch)
                        .bind(part)
                        .bind(octets)
                        .execute(&mut *conn)
                        .await?;
                }
                Ok(())
            };
            self.writer.run(move |conn| Box::pin(async move { insert(conn).await })).await
        }

        /// As if the disk held so many more pages and no more.
        async fn fill(&self, pages: i64) {
            let count: i64 = sqlx::query_scalar("PRAGMA page_count").fetch_one(&self.pool).await.expect("a count");
            let limit = format!("PRAGMA max_page_count = {}", count + pages);
            sqlx::query(sqlx::AssertSqlSafe(limit)).execute(&self.pool).await.expect("limited");
        }

        async fn parts_of(&self, batch: i64) -> i64 {
            sqlx::query_scalar("SELECT count(*) FROM rows WHERE batch = ?1")
                .bind(batch)
                .fetch_one(&self.pool)
                .await
                .expect("a count")
        }
    }

    #[tokio::test]
    async fn a_disk_that_was_full_is_written_again_when_it_is_not() {
        let place = place().await;
        place.insert(1, 10).await.expect("there is room");
        place.fill(0).await;
        assert!(!place.writer.is_failing());
        let full = place.insert(2, 100_000).await.expect_err("no room");
        assert!(place.writer.is_failing(), "for the readiness probe");
        assert!(full.to_string().contains("full"), "{full}");
        // The limit went with the connection.
        place.insert(3, 100_000).await.expect("there is room again");
        assert!(!place.writer.is_failing());
        assert_eq!([place.parts_of(1).await, place.parts_of(2).await, place.parts_of(3).await], [2, 0, 2]);
    }

    #[tokio::test]
    async fn what_was_told_to_have_failed_left_nothing_behind() {
        let place = place().await;
        place.insert(0, 10).await.expect("there is room");
        place.fill(4).await;
        // Side by side, so that they share transactions; the large one fails
        // in the middle of them, and the small ones behind it would fit.
        let octets = |batch: i64| if batch == 3 { 1_000_000 } else { 10 };
        let told = futures_util::future::join_all((1..=20).map(|batch| place.insert(batch, octets(batch)))).await;
        assert!(told.iter().any(Result::is_err));
        for (batch, told) in (1..).zip(told) {
            assert_eq!(place.parts_of(batch).await, if told.is_ok() { 2 } else { 0 }, "{batch}: {told:?}");
        }
        place.insert(30, 10).await.expect("the writer goes on");
    }

    #[tokio::test]
    async fn a_command_that_panics_takes_nothing_with_it() {
        let place = place().await;
        let panics = place.writer.run(|_| Box::pin(async { panic!("on purpose") }));
        let (broken, fine): (Result<(), StoreError>, _) = tokio::join!(panics, place.insert(1, 10));
        assert!(broken.is_err());
        fine.expect("not concerned");
        place.insert(2, 10).await.expect("the writer goes on");
        assert_eq!(place.parts_of(1).await, 2);
    }
}
