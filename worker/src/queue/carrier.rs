//! The workers that fetch messages and hand them over.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::worker::{self, Handler, Leaves};
use super::{JobKind, Message, QueueError, Transport, Wake, Way, listen, redis, rows};
use crate::store::SqlStore;
use crate::store::db::Pools;

/// Who gets the messages.
pub trait Receiver: Send + Sync + 'static {
    /// Takes over one message. It must return at once: the messages behind it
    /// and the worker's heartbeat wait for it. What has to be done goes to the
    /// executor, which deletes the message's row when it is dealt with.
    ///
    /// The same message may come again under the same id, and may come when
    /// its row is gone. A panic is logged; the message then comes again when
    /// the worker or the process starts the next time.
    fn receive(&self, message: Message);

    /// Has the executor look by itself for work whose message it will not get.
    /// Must return at once. Calls may collapse into one.
    fn look(&self) {}
}

/// Rows per fetch. Every fetch that finds something is one durable
/// transaction on the connection shared with the store, so a large batch saves
/// syncs, and its size bounds how long the connection is taken: a hundred rows
/// are about two milliseconds. A batch above 1 is safe here only because the
/// handler never waits: apalis sends its heartbeat and fetches again when the
/// batch is used up, and a batch that waits for room has it declared dead.
pub(super) const BATCH: usize = 100;

/// The wait before a worker that ended is started again: doubled from the
/// first to the last with each failure, and back to the first once a worker
/// has run as long as the last.
const RESTART_AFTER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

fn carried(kinds: &[JobKind]) -> Vec<JobKind> {
    kinds.iter().copied().filter(|kind| kind.is_carried()).collect()
}

/// Fetches messages and hands them to a [`Receiver`].
#[derive(Debug, Clone)]
pub struct Carrier {
    pub(super) pools: Pools,
    transport: Transport,
    pub(super) worker_name_prefix: String,
    pub(super) poll_interval: Duration,
    kinds: Vec<JobKind>,
}

impl Carrier {
    /// A good interval for [`Carrier::new`].
    pub const POLL_INTERVAL: Duration = Duration::from_millis(500);

    /// A carrier of the messages of a store: on its database, or on the Redis
    /// that the store [sends through](SqlStore::through).
    ///
    /// On SQLite it shares the one write connection with the store's writer, and
    /// takes it for one short transaction at a time. The prefix starts the name
    /// of each worker, which the operator sees; it need not be unique.
    /// `poll_interval` is how often a queue is fetched without a wake-up:
    /// messages with a delay and wake-ups lost with a process depend on it.
    #[must_use]
    pub fn new(store: &SqlStore, worker_name_prefix: impl Into<String>, poll_interval: Duration) -> Self {
        Self {
            pools: store.pools().clone(),
            transport: store.transport().clone(),
            worker_name_prefix: worker_name_prefix.into(),
            poll_interval,
            kinds: carried(&JobKind::ALL),
        }
    }

    /// The same for messages of these kinds only. The others are left to other
    /// processes.
    #[must_use]
    pub fn of(self, kinds: &[JobKind]) -> Self {
        Self { kinds: carried(kinds), ..self }
    }

    /// Carries messages until `shutdown`: one worker for each [`JobKind`], and
    /// a new one, under a new name, when one has ended. On Postgres it also
    /// listens for what other processes insert; over a Redis it also relays what
    /// is in the outbox, whoever put it there.
    ///
    /// After `shutdown` nothing more is received, and the messages that were
    /// fetched and not dealt with are given back, so that the next process gets
    /// them at once. The receiver may still be at work on them; deleting their
    /// rows stays right.
    ///
    /// Dropping the future stops the workers too, but gives nothing back;
    /// [`Store::recover`](crate::store::Store::recover) has to make up for it.
    ///
    /// # Errors
    /// Rows could not be given back after `shutdown`. Errors before that are
    /// logged, and the worker concerned is started again.
    pub async fn run(
        &self,
        receiver: Arc<dyn Receiver>,
        wake: Wake,
        shutdown: CancellationToken,
    ) -> Result<(), QueueError> {
        // One task for each kind: whatever wakes a worker's task makes it
        // fetch, so in a common task each would fetch for the wake-ups of all.
        let mut lines: JoinSet<Result<(), QueueError>> = JoinSet::new();
        match &self.transport {
            Transport::Rows => {
                for kind in self.kinds.iter().copied() {
                    let line = Line {
                        carrier: self.clone(),
                        kind,
                        receiver: Arc::clone(&receiver),
                        wake: wake.clone(),
                        ended: Vec::new(),
                    };
                    lines.spawn(line.run(shutdown.clone()));
                }
            }
            Transport::Redis(redis) => {
                let relayed = Wake::new();
                for kind in self.kinds.iter().copied() {
                    let line = redis::Line {
                        carrier: self.clone(),
                        redis: Arc::clone(redis),
                        kind,
                        receiver: Arc::clone(&receiver),
                        wake: relayed.clone(),
                    };
                    lines.spawn(finishes(line.run(shutdown.clone())));
                }
                lines.spawn(finishes(redis::hear(Arc::clone(redis), relayed, shutdown.clone())));
                let relay = redis::Relay {
                    redis: Arc::clone(redis),
                    pools: self.pools.clone(),
                    wake: wake.clone(),
                    interval: self.poll_interval,
                };
                lines.spawn(finishes(relay.run(shutdown.clone())));
            }
        }
        if let Pools::Postgres(pool) = &self.pools {
            // Over a Redis nobody inserts jobs; what else is said is heard.
            let kinds = if self.transport.way() == Way::Rows { self.kinds.clone() } else { Vec::new() };
            lines.spawn(finishes(listen::listen(pool.clone(), kinds, Arc::clone(&receiver), wake, shutdown)));
        }
        let mut result = Ok(());
        while let Some(line) = lines.join_next().await {
            let line = line.unwrap_or_else(|error| Err(QueueError::Worker(error.to_string())));
            result = result.and(line);
        }
        result
    }
}

async fn finishes(task: impl Future<Output = ()>) -> Result<(), QueueError> {
    task.await;
    Ok(())
}

/// The workers of one kind on the carrier's tables, one after the other.
struct Line {
    carrier: Carrier,
    kind: JobKind,
    receiver: Arc<dyn Receiver>,
    wake: Wake,
    /// Names of workers that ended and whose rows were not given back yet.
    ended: Vec<String>,
}

impl Line {
    async fn run(mut self, shutdown: CancellationToken) -> Result<(), QueueError> {
        let kind = self.kind;
        let mut wait = RESTART_AFTER.0;
        loop {
            let started = Instant::now();
            // The worker is dropped where it stands. Its own way to stop would
            // do the same to a fetch under way, counts attempts, and fails
            // when a row that it buffered was deleted.
            let ended = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                ended = self.work() => ended,
            };
            if started.elapsed() >= RESTART_AFTER.1 {
                wait = RESTART_AFTER.0;
            }
            let error = ended.err().map(|error| error.to_string());
            tracing::warn!(%kind, error, ?wait, "a worker of the queue ended and is started again");
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(wait) => {}
            }
            wait = RESTART_AFTER.1.min(wait * 2);
        }
        self.give_back().await
    }

    /// Runs one worker until it ends.
    async fn work(&mut self) -> Result<(), QueueError> {
        self.give_back().await?;
        let mut link = self.carrier.pools.writing().await?;
        for row in rows::remove_unreadable(&mut link.conn(), self.kind).await? {
            tracing::error!(
                kind = %self.kind, id = row.id, content = row.content,
                "removed a job row whose id is not a ULID; its message is lost"
            );
        }
        // A name that was seen within the heartbeat's interval is refused, so
        // each start has its own.
        let random = rows::random_hex(&mut link.conn()).await?;
        drop(link);
        let name = format!("{}-{}-{random}", self.carrier.worker_name_prefix, self.kind);
        self.ended.push(name.clone());
        let pools = &self.carrier.pools;
        let handler = Handler::new(self.kind, Arc::clone(&self.receiver), Leaves::Row(pools.clone()));
        let strategy = self.wake.strategy(self.kind, self.carrier.poll_interval);
        worker::on_rows(pools, &name, strategy, handler).await
    }

    /// Gives back what the ended workers hold.
    async fn give_back(&mut self) -> Result<(), QueueError> {
        while let Some(name) = self.ended.last() {
            let mut link = self.carrier.pools.writing().await?;
            let rows = rows::give_back(&mut link.conn(), name).await?;
            if rows > 0 {
                tracing::debug!(worker = name, rows, "gave back fetched messages");
            }
            self.ended.pop();
        }
        Ok(())
    }
}
