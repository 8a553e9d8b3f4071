//! One writer, many commands per transaction.
//!
//! A durable commit costs one `fsync`, whatever is in it. So the writer takes
//! everything that waits, runs it in one transaction, commits once, and only
//! then tells each caller. A command that is refused takes nothing else with it;
//! if one breaks, each is tried again alone.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use countersign_kernel::ids::ThreadId;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::hand::{Hand, KEPT_IDLE, Open, discard};
use super::super::StoreError;
use super::super::commands::IdempotencyEntry;
use super::super::db::{self, Arg, Conn, Dialect, Pools};
use super::turns;
use super::tx::Tx;
use crate::queue::Way;
use crate::tally::{Count, Tally, Timed};

/// Most commands in one transaction: bounds what one failed commit undoes.
const BATCH: usize = 256;
/// Commands that may wait before callers do.
const QUEUE: usize = 4096;

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
    /// What must be its own while it runs.
    fn locks(&self) -> &Locks;

    /// Writes, and says how it ended. It may be run again, when what it wrote
    /// was undone.
    fn run<'a>(&'a mut self, tx: &'a mut Tx<'_>) -> BoxFuture<'a, Ran>;

    /// What broke it.
    fn fault(&self) -> Option<StoreError>;

    /// Tells whoever waits how it ended, if what it wrote holds.
    fn finish(self: Box<Self>, held: Result<(), StoreError>);
}

/// What a command must have to itself while it runs. On SQLite there is one
/// writer, and it has everything.
#[derive(Debug, Default)]
pub(super) struct Locks {
    /// The rows of these threads, and with them all that is theirs.
    pub(super) threads: Vec<String>,
    /// The right to accept a request under its idempotency key.
    pub(super) request: Option<String>,
    /// The limits of the threads' flows.
    pub(super) limits: bool,
}

impl Locks {
    pub(super) fn on(thread: &ThreadId) -> Self {
        Self::on_all([thread])
    }

    pub(super) fn on_all<'t>(threads: impl IntoIterator<Item = &'t ThreadId>) -> Self {
        Self { threads: threads.into_iter().map(|thread| thread.as_str().to_owned()).collect(), ..Self::default() }
    }

    pub(super) fn and_request(self, entry: Option<&IdempotencyEntry>) -> Self {
        Self { request: entry.map(|entry| format!("{}\n{}", entry.scope, entry.key)), ..self }
    }
}

struct Waiting<T, F> {
    locks: Locks,
    command: F,
    outcome: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Command for Waiting<T, F>
where
    T: Send + 'static,
    F: for<'a, 'c> Fn(&'a mut Tx<'c>) -> BoxFuture<'a, Result<T, StoreError>> + Send + 'static,
{
    fn locks(&self) -> &Locks {
        &self.locks
    }

    fn run<'a>(&'a mut self, tx: &'a mut Tx<'_>) -> BoxFuture<'a, Ran> {
        Box::pin(async move {
            // A fault in one command must not end the writer of all.
            let outcome = AssertUnwindSafe((self.command)(tx)).catch_unwind().await.unwrap_or_else(|_| {
                Err(StoreError::Database("the command panicked; nothing of it was written".into()))
            });
            let ran = match &outcome {
                Ok(_) => Ran::Stands,
                Err(StoreError::Database(_)) => Ran::Broke,
                Err(StoreError::Fenced | StoreError::Refused(_) | StoreError::Unreadable { .. }) => Ran::Refused,
            };
            self.outcome = Some(outcome);
            ran
        })
    }

    fn fault(&self) -> Option<StoreError> {
        self.outcome.as_ref().and_then(|outcome| outcome.as_ref().err().cloned())
    }

    fn finish(self: Box<Self>, held: Result<(), StoreError>) {
        let never = || Err(StoreError::Database("the command was never run".into()));
        let Self { outcome, reply, .. } = *self;
        // A caller that went away is told nothing.
        let _ = reply.send(held.and_then(|()| outcome.unwrap_or_else(never)));
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
    pub(super) fn start(pools: Pools, way: Way, tally: Arc<Tally>) -> Self {
        let (commands, incoming) = mpsc::channel(QUEUE);
        let stop = CancellationToken::new();
        let failing = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(serve(pools, way, incoming, stop.clone(), Arc::clone(&failing), tally));
        Self { commands, task: Arc::new(Mutex::new(Some(task))), stop, failing }
    }

    /// Runs a command and waits until its transaction is durable.
    pub(super) async fn run<T, F>(&self, locks: Locks, command: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'a, 'c> Fn(&'a mut Tx<'c>) -> BoxFuture<'a, Result<T, StoreError>> + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let command: Box<dyn Command> = Box::new(Waiting { locks, command, outcome: None, reply });
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
    pools: Pools,
    way: Way,
    mut incoming: mpsc::Receiver<Box<dyn Command>>,
    stop: CancellationToken,
    failing: Arc<AtomicBool>,
    tally: Arc<Tally>,
) {
    let mut hand = Hand::new(pools);
    loop {
        let first = tokio::select! {
            biased;
            command = incoming.recv() => command,
            () = stop.cancelled() => {
                incoming.close();
                incoming.recv().await
            }
            () = tokio::time::sleep(KEPT_IDLE), if hand.holds() => {
                hand.let_go();
                continue;
            }
        };
        let Some(first) = first else { return };
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(command) = incoming.try_recv()
        {
            batch.push(command);
        }
        let (commands, began) = (batch.len(), Instant::now());
        // A panic was reported by the hook, and dropped the replies of the
        // batch, which tells its callers. It must not end the writer of all.
        let wrote = AssertUnwindSafe(async {
            if hand.dialect() == Dialect::Postgres {
                // The row of a thread that is about to begin cannot be locked
                // before. Whoever inserts it too has to wait, so all insert
                // in one order; that of commands on one thread stays.
                batch.sort_by(|a, b| a.locks().threads.first().cmp(&b.locks().threads.first()));
            }
            transaction(&mut hand, way, batch).await
        });
        let wrote = wrote.catch_unwind().await;
        match wrote.unwrap_or(Wrote::Failed) {
            Wrote::Failed => failing.store(true, Ordering::Relaxed),
            Wrote::Something => {
                failing.store(false, Ordering::Relaxed);
                tally.add(Count::Commits);
                tally.add_many(Count::Commands, commands);
                tally.took(Timed::Commit, began.elapsed());
            }
            Wrote::Nothing => {}
        }
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq)]
enum Wrote {
    /// It is durable.
    Something,
    /// No command wanted to write, or each was refused.
    Nothing,
    /// The database could not.
    Failed,
}

/// How an attempt to commit commands ended.
enum Attempt {
    /// Each command's own outcome holds.
    Done(Wrote),
    /// The database failed, and nothing was written.
    Failed(StoreError),
    /// Something broke that may be the fault of one of them, and nothing was
    /// written.
    Apart,
}

/// Commits the commands together, or, if that breaks, each alone: then whichever
/// is at fault fails alone too.
async fn transaction(hand: &mut Hand, way: Way, mut batch: Vec<Box<dyn Command>>) -> Wrote {
    match attempt(hand, way, &mut batch).await {
        Attempt::Done(wrote) => {
            batch.into_iter().for_each(|command| command.finish(Ok(())));
            wrote
        }
        Attempt::Failed(error) => {
            tracing::error!(%error, commands = batch.len(), "a transaction failed; nothing of it was written");
            batch.into_iter().for_each(|command| command.finish(Err(error.clone())));
            Wrote::Failed
        }
        Attempt::Apart => {
            let mut all = Wrote::Nothing;
            for command in batch {
                let mut alone = vec![command];
                let (wrote, held) = match attempt(hand, way, &mut alone).await {
                    Attempt::Done(wrote) => (wrote, Ok(())),
                    Attempt::Failed(error) => (Wrote::Failed, Err(error)),
                    Attempt::Apart => (Wrote::Failed, Err(broke())),
                };
                alone.into_iter().for_each(|command| command.finish(held.clone()));
                all = if wrote == Wrote::Failed || all == Wrote::Nothing { wrote } else { all };
            }
            all
        }
    }
}

async fn attempt(hand: &mut Hand, way: Way, batch: &mut [Box<dyn Command>]) -> Attempt {
    let mut open = match hand.open().await {
        Ok(open) => open,
        Err(error) => return Attempt::Failed(error),
    };
    let Some(link) = &mut open.link else { return Attempt::Failed(broke()) };
    let (attempt, whole) = within(link.conn(), way, batch).await;
    match open.link.take() {
        // It is in no transaction.
        Some(link) if whole => hand.keep(link),
        link => discard(Open { link }).await,
    }
    attempt
}

/// Begins a transaction, runs the commands and ends it. Says also whether the
/// connection is still of use.
async fn within(conn: Conn<'_>, way: Way, batch: &mut [Box<dyn Command>]) -> (Attempt, bool) {
    let shared = batch.len() > 1;
    let locks = Wanted::by(batch);
    let mut tx = Tx::new(conn, way, shared);
    let ran = run(&mut tx, locks, batch).await;
    let written = match &ran {
        Ok(true) => tx.finish().await,
        Ok(false) | Err(_) => Ok(()),
    };
    match ran.and_then(|stands| written.map(|()| stands)) {
        Ok(true) => match tx.commit().await {
            Ok(()) => (Attempt::Done(Wrote::Something), true),
            Err(error) => (Attempt::Failed(error), false),
        },
        // Nothing was to be written, so each command's own outcome holds, also
        // if SQLite has rolled back before us.
        Ok(false) => (Attempt::Done(Wrote::Nothing), tx.roll_back().await.is_ok()),
        // A full disk ends SQLite's transaction by itself: what ran now would be
        // committed statement by statement.
        Err(error) => {
            let whole = tx.roll_back().await.is_ok();
            (if shared { Attempt::Apart } else { Attempt::Failed(error) }, whole)
        }
    }
}

/// Runs the commands one after another. Says whether any of them stands.
async fn run(tx: &mut Tx<'_>, locks: Wanted, batch: &mut [Box<dyn Command>]) -> Result<bool, StoreError> {
    lock(tx.own(), locks).await?;
    let mut any = false;
    for command in batch {
        tx.begin(command.locks()).await?;
        let ran = command.run(tx).await;
        if ran == Ran::Broke {
            return Err(command.fault().unwrap_or_else(broke));
        }
        tx.end(ran == Ran::Stands).await?;
        any |= ran == Ran::Stands;
    }
    Ok(any)
}

fn broke() -> StoreError {
    StoreError::Database("the transaction broke".into())
}

/// The locks of a group of commands.
struct Wanted {
    threads: Arg,
    requests: Option<Arg>,
    /// The threads whose flows' limits are judged.
    limited: Option<Arg>,
}

impl Wanted {
    fn by(batch: &[Box<dyn Command>]) -> Self {
        let requests: Vec<&str> = batch.iter().filter_map(|command| command.locks().request.as_deref()).collect();
        let limited = batch.iter().map(|command| command.locks()).filter(|locks| locks.limits);
        let limited: Vec<&String> = limited.flat_map(|locks| &locks.threads).collect();
        Self {
            threads: Arg::texts(batch.iter().flat_map(|command| &command.locks().threads)),
            requests: (!requests.is_empty()).then(|| Arg::texts(requests)),
            limited: (!limited.is_empty()).then(|| Arg::texts(limited)),
        }
    }
}

/// Takes the locks of all commands at once and in one order, so that two groups
/// never wait for each other.
async fn lock(conn: &mut Conn<'_>, wanted: Wanted) -> Result<(), StoreError> {
    if conn.dialect() == Dialect::Sqlite {
        return Ok(());
    }
    if let Some(requests) = wanted.requests {
        db::query(
            "SELECT pg_advisory_xact_lock(number)
             FROM (SELECT DISTINCT hashtextextended(key, 0) AS number FROM unnest($1) AS keys(key) ORDER BY 1) AS sorted",
        )
        .bind(requests)
        .execute(conn)
        .await?;
    }
    if let Some(limited) = wanted.limited {
        turns::lock(conn, limited).await?;
    }
    db::query("SELECT 1 FROM threads WHERE thread = ANY ($1) ORDER BY thread FOR NO KEY UPDATE")
        .bind(wanted.threads)
        .execute(conn)
        .await?;
    Ok(())
}

mod hand;
#[cfg(test)]
mod tests;
