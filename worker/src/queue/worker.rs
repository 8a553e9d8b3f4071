//! The workers of apalis, and what they call for each message.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use apalis::prelude::{BackendExt, Codec, TaskId, WorkerBuilder};
use apalis_postgres::PostgresStorage;
use apalis_redis::RedisStorage;
use apalis_sqlite::SqliteStorage;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;

use super::carrier::BATCH;
use super::poll::FetchWhenWoken;
use super::redis::Received;
use super::{JobKind, Message, QueueError, Receiver, rows};
use crate::store::db::Pools;

/// Runs a worker of apalis on a backend, until it ends. This is the only place
/// where one is built: its types are deep and slow to compile.
macro_rules! run {
    ($backend:expr, $name:expr, $strategy:expr, $handler:expr) => {{
        let (handler, backend) = ($handler, $backend.with_codec(Verbatim).poll_with_strategy($strategy));
        let worker = WorkerBuilder::new($name).backend(backend).build(move |payload: Vec<u8>, id: TaskId| {
            let handler = handler.clone();
            async move { handler.handle(&id.to_string(), &payload).await }
        });
        let ended = worker.run();
        Box::pin(async move {
            match AssertUnwindSafe(ended).catch_unwind().await {
                Ok(ended) => ended.map_err(|error| QueueError::Worker(error.to_string())),
                Err(_) => Err(QueueError::Worker("it panicked".to_owned())),
            }
        })
    }};
}

/// Runs a worker of this name on the carrier's tables.
pub(super) fn on_rows(
    pools: &Pools,
    name: &str,
    strategy: FetchWhenWoken,
    handler: Handler,
) -> BoxFuture<'static, Result<(), QueueError>> {
    let queue = handler.kind.name();
    match pools {
        Pools::Sqlite { write, .. } => {
            let config = apalis_sqlite::Config::default().queue(queue).batch_size(BATCH);
            let config = config.lock_tasks(false).persist_results(false);
            run!(SqliteStorage::<Vec<u8>>::new(write).with_config(config), name, strategy, handler)
        }
        Pools::Postgres(pool) => {
            let config = apalis_postgres::Config::default().queue(queue).batch_size(BATCH);
            let config = config.lock_tasks(false).persist_results(false);
            run!(PostgresStorage::<Vec<u8>>::new(pool).with_config(config), name, strategy, handler)
        }
    }
}

/// Runs a worker of this name on a Redis.
pub(super) fn on_redis(
    connection: MultiplexedConnection,
    config: apalis_redis::Config,
    name: &str,
    strategy: FetchWhenWoken,
    handler: Handler,
) -> BoxFuture<'static, Result<(), QueueError>> {
    run!(RedisStorage::<Vec<u8>, _>::new(connection).with_config(config), name, strategy, handler)
}

/// What a message leaves behind when it was received.
#[derive(Debug, Clone)]
pub(super) enum Leaves {
    /// Its row, which is deleted when its work is done; or at once, if it is none.
    Row(Pools),
    /// Keys, which are removed.
    Keys(Received),
}

/// What apalis calls for each message.
#[derive(Clone)]
pub(super) struct Handler {
    kind: JobKind,
    receiver: Arc<dyn Receiver>,
    leaves: Leaves,
}

impl Handler {
    pub(super) fn new(kind: JobKind, receiver: Arc<dyn Receiver>, leaves: Leaves) -> Self {
        Self { kind, receiver, leaves }
    }

    /// Never fails, and waits only when a row is no message.
    async fn handle(&self, id: &str, payload: &[u8]) {
        let received = match Message::decode(self.kind, id, payload) {
            Ok(message) => {
                let received = catch_unwind(AssertUnwindSafe(|| self.receiver.receive(message)));
                if received.is_err() {
                    tracing::error!(kind = %self.kind, id, "the receiver of messages panicked");
                }
                true
            }
            Err(error) => {
                let content = String::from_utf8_lossy(payload);
                let content: String = content.chars().take(400).collect();
                tracing::error!(
                    kind = %self.kind, id, %error, content,
                    "removed something from the queue that is not a message"
                );
                false
            }
        };
        match &self.leaves {
            Leaves::Keys(done) => done.note(id),
            Leaves::Row(_) if received => {}
            Leaves::Row(pools) => {
                if let Err(error) = remove(pools, id).await {
                    tracing::error!(id, %error, "a job row that is not a message stays");
                }
            }
        }
    }
}

async fn remove(pools: &Pools, id: &str) -> Result<(), QueueError> {
    let mut link = pools.writing().await?;
    rows::remove(&mut link.conn(), id).await
}

/// Leaves the content alone. With a codec of apalis, content that cannot be
/// decoded would end the worker with the message fetched.
#[derive(Debug, Clone, Copy)]
struct Verbatim;

impl Codec<Vec<u8>> for Verbatim {
    type Error = std::convert::Infallible;
    type Compact = Vec<u8>;

    fn encode(&self, value: &Vec<u8>) -> Result<Vec<u8>, Self::Error> {
        Ok(value.clone())
    }

    fn decode(&self, value: &Vec<u8>) -> Result<Vec<u8>, Self::Error> {
        Ok(value.clone())
    }
}
