//! One writer, many commands per transaction.
//!
//! A durable commit costs one `fsync`, whatever is in it. So the writer takes
//! everything that waits, runs it in one transaction, commits once, and only
//! then tells each caller. A command that is refused is rolled back to its
//! savepoint and takes nothing else with it.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::sqlite::{SqliteConnection, SqlitePool};
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

/// A command and whoever waits for it.
trait Command: Send {
    /// Writes, and says whether its writes stand.
    fn run<'c>(self: Box<Self>, conn: &'c mut SqliteConnection) -> BoxFuture<'c, (bool, Finish)>
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
    fn run<'c>(self: Box<Self>, conn: &'c mut SqliteConnection) -> BoxFuture<'c, (bool, Finish)>
    where
        Self: 'c,
    {
        Box::pin(async move {
            let Self { command, reply } = *self;
            // A fault in one command must not end the writer of all.
            let outcome = AssertUnwindSafe(command(conn)).catch_unwind().await.unwrap_or_else(|_| {
                Err(StoreError::Database("the command panicked; nothing of it was written".into()))
            });
            let stands = outcome.is_ok();
            let finish: Finish = Box::new(move |committed| {
                // A caller that went away is told nothing.
                let _ = reply.send(committed.and(outcome));
            });
            (stands, finish)
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
        let task = tokio::spawn(serve(pool, incoming, stop.clone()));
        Self { commands, task: Arc::new(Mutex::new(Some(task))), stop }
    }

    /// Runs a command and waits until its transaction is durable.
    pub(super) async fn run<T, F>(&self, command: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        let command: Box<dyn Command> = Box::new(Waiting { command, reply });
        let closed = || StoreError::Database("the store is closed".into());
        self.commands.send(command).await.map_err(|_| closed())?;
        result.await.map_err(|_| closed())?
    }

    pub(super) async fn stop(&self) {
        self.stop.cancel();
        if let Some(task) = self.task.lock().await.take() {
            // The task ends by itself; a panic in it was reported already.
            let _ = task.await;
        }
    }
}

async fn serve(pool: SqlitePool, mut incoming: mpsc::Receiver<Box<dyn Command>>, stop: CancellationToken) {
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
        transaction(&pool, batch).await;
    }
}

async fn transaction(pool: &SqlitePool, batch: Vec<Box<dyn Command>>) {
    let mut transaction = match pool.begin_with("BEGIN IMMEDIATE").await {
        Ok(transaction) => transaction,
        Err(error) => {
            let error = StoreError::from(error);
            tracing::error!(%error, commands = batch.len(), "the store cannot begin a transaction");
            for command in batch {
                command.fail(error.clone());
            }
            return;
        }
    };
    let alone = batch.len() == 1;
    let mut finishes = Vec::with_capacity(batch.len());
    let mut any_stands = false;
    let mut broken = None;
    for command in batch {
        if broken.is_none() && !alone {
            broken = execute(&mut transaction, "SAVEPOINT command").await.err();
        }
        let (stands, finish) = command.run(&mut transaction).await;
        if !alone {
            let end = if stands { "RELEASE command" } else { "ROLLBACK TO command; RELEASE command" };
            if let Err(error) = execute(&mut transaction, end).await {
                broken = Some(error);
            }
        }
        any_stands |= stands;
        finishes.push(finish);
    }
    let ended = match broken {
        Some(error) => Err(error),
        None if any_stands => transaction.commit().await.map_err(StoreError::from),
        None => transaction.rollback().await.map_err(StoreError::from),
    };
    if let Err(error) = &ended {
        tracing::error!(%error, commands = finishes.len(), "a transaction failed; nothing of it was written");
    }
    for finish in finishes {
        finish(ended.clone());
    }
}

async fn execute(conn: &mut SqliteConnection, statement: &'static str) -> Result<(), StoreError> {
    sqlx::raw_sql(statement).execute(conn).await?;
    Ok(())
}
