//! Removing what messages leave behind.

use std::sync::LazyLock;

use apalis_redis::Config;
use countersign_kernel::ports::Clock as _;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Redis;
use crate::queue::JobKind;
use crate::system::SystemClock;

/// Most messages that are removed by one call.
const MOST: usize = 500;

/// A worker that was not heard of for so many seconds is dead: four heartbeats
/// of apalis. Below its own 300, after which it would give back what the dead
/// hold in a way that fails for many, and forget the worker but not its data.
const DEAD_AFTER: u64 = 120;

/// Removes messages that were received: from the worker's set, with content and
/// state.
static REMOVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "for i = 1, #ARGV do
             redis.call('SREM', KEYS[1], ARGV[i])
             redis.call('HDEL', KEYS[2], ARGV[i])
             redis.call('DEL', KEYS[3] .. ':' .. ARGV[i])
         end",
    )
});

/// Forgets a worker. What it fetched and nobody received goes back to the queue,
/// or with it: a message that cannot be read ends whoever fetches it.
static FORGET: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local held = redis.call('SMEMBERS', KEYS[1])
         for _, id in ipairs(held) do
             if ARGV[2] == 'back' then
                 redis.call('RPUSH', KEYS[4], id)
             else
                 redis.call('HDEL', KEYS[2], id)
                 redis.call('DEL', KEYS[3] .. ':' .. id)
             end
         end
         redis.call('DEL', KEYS[1], KEYS[6])
         redis.call('ZREM', KEYS[5], ARGV[1])
         return #held",
    )
});

/// What becomes of the messages that a worker leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::queue) enum Held {
    /// Others get them.
    Back,
    /// They are dropped; the sweep finds their work.
    Dropped,
}

/// Where a worker says what it has received.
#[derive(Debug, Clone)]
pub(in crate::queue) struct Received(UnboundedSender<String>);

impl Received {
    /// Notes that a message was received. Never waits.
    pub(in crate::queue) fn note(&self, id: &str) {
        // Nobody listens only when the worker has ended, and then it is forgotten.
        let _ = self.0.send(id.to_owned());
    }
}

/// Removes what one worker has received.
pub(in crate::queue) struct Done {
    connection: MultiplexedConnection,
    config: Config,
    worker: String,
    received: UnboundedReceiver<String>,
}

impl Done {
    /// For the worker of this name, and where it says what it has received.
    pub(in crate::queue) fn of(connection: MultiplexedConnection, config: Config, worker: &str) -> (Self, Received) {
        let (sender, received) = unbounded_channel();
        (Self { connection, config, worker: worker.to_owned(), received }, Received(sender))
    }

    /// Removes what was received, for as long as the worker runs; ends by an
    /// error only.
    pub(in crate::queue) async fn run(&mut self) -> redis::RedisError {
        loop {
            let mut ids = Vec::new();
            if self.received.recv_many(&mut ids, MOST).await == 0 {
                return std::future::pending().await;
            }
            if let Err(error) = self.remove(&ids).await {
                return error;
            }
        }
    }

    /// Removes what the worker has received, which has ended, and forgets it.
    /// Tells how many messages it held besides.
    pub(in crate::queue) async fn end(mut self, held: Held) -> RedisResult<u64> {
        self.received.close();
        let mut ids = Vec::new();
        while self.received.recv_many(&mut ids, MOST).await > 0 {
            self.remove(&ids).await?;
            ids.clear();
        }
        forget(&mut self.connection, &self.config, &self.worker, held).await
    }

    async fn remove(&mut self, ids: &[String]) -> RedisResult<()> {
        let mut call = REMOVE.key(inflight(&self.config, &self.worker));
        call.key(self.config.job_data_hash()).key(self.config.job_meta_hash());
        ids.iter().for_each(|id| _ = call.arg(id));
        call.invoke_async(&mut self.connection).await
    }
}

/// What a worker has fetched.
fn inflight(config: &Config, worker: &str) -> String {
    format!("{}:{worker}", config.inflight_jobs_set())
}

async fn forget(connection: &mut MultiplexedConnection, config: &Config, worker: &str, held: Held) -> RedisResult<u64> {
    FORGET
        .key(inflight(config, worker))
        .key(config.job_data_hash())
        .key(config.job_meta_hash())
        .key(config.active_jobs_list())
        .key(config.workers_set())
        .key(format!("{}:metadata:{worker}", config.workers_set()))
        .arg(worker)
        .arg(match held {
            Held::Back => "back",
            Held::Dropped => "dropped",
        })
        .invoke_async(connection)
        .await
}

impl Redis {
    /// Forgets the workers of dead processes, with what they held: a message
    /// that ended them would end the next one.
    pub(super) async fn bury(&self, connection: &mut MultiplexedConnection) -> RedisResult<()> {
        let now = u64::try_from(SystemClock.now().as_micros() / 1_000_000).unwrap_or(0);
        for kind in JobKind::ALL.into_iter().filter(|kind| kind.is_carried()) {
            let config = self.config(kind);
            let dead: Vec<String> = redis::cmd("ZRANGEBYSCORE")
                .arg(config.workers_set())
                .arg(0)
                .arg(now.saturating_sub(DEAD_AFTER))
                .query_async(connection)
                .await?;
            for worker in dead {
                let dropped = forget(connection, &config, &worker, Held::Dropped).await?;
                tracing::info!(worker, dropped, "forgot a worker of the queue that was not heard of for long");
            }
        }
        Ok(())
    }
}
