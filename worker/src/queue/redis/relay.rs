//! From the outbox to Redis.
//!
//! Every process that carries messages relays, whoever wrote them: there is no
//! leader. A row is taken by one of them, in a transaction of its own, before it
//! is pushed. A relay that dies in between has taken messages with it, whose work
//! the sweep finds.

use std::sync::Arc;
use std::time::Duration;

use apalis::prelude::{Task, TaskBuilder, TaskId};
use countersign_kernel::ports::Clock as _;
use countersign_kernel::time::Timestamp;
use redis::RedisResult;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{AGAIN_AFTER, Redis};
use crate::queue::{JobKind, Message, QueueError, Wake, outbox};
use crate::store::db::Pools;
use crate::system::SystemClock;

/// Most messages that wait in Redis for a worker. They lie better in the outbox:
/// apalis-redis moves all of them with one call, which fails above some 8,000.
const WINDOW: u32 = 500;
/// Most messages of one call.
const BATCH: u32 = 250;
/// How soon a queue is looked at again that had no room.
const FULL_FOR: Duration = Duration::from_millis(20);
/// How long messages are left to the process that wrote them, unless that says
/// that it has no time for them: mostly it does their work itself, and at once.
const HEAD_START: Duration = Duration::from_millis(50);
/// How often the workers of dead processes are looked for.
const BURY_EVERY: Duration = Duration::from_secs(60);

/// Relays messages from the outbox of a database.
pub(in crate::queue) struct Relay {
    pub(in crate::queue) redis: Arc<Redis>,
    pub(in crate::queue) pools: Pools,
    /// Set by the engine when it leaves a message to others.
    pub(in crate::queue) wake: Wake,
    /// How often it looks without being woken.
    pub(in crate::queue) interval: Duration,
}

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    /// Nothing is known to wait.
    Wait,
    /// Redis is full.
    Full,
    /// There may be more.
    More,
}

impl Relay {
    /// Relays until `shutdown`. What it has taken by then it still pushes.
    pub(in crate::queue) async fn run(self, shutdown: CancellationToken) {
        let mut again = AGAIN_AFTER.0;
        while !shutdown.is_cancelled() {
            let Err((error, worked)) = self.connected(&shutdown).await else { return };
            match &error {
                QueueError::Redis(error) if worked => self.redis.lost(error),
                QueueError::Redis(error) => self.redis.fails(error),
                other => tracing::warn!(error = %other, "messages could not be relayed; they wait in the database"),
            }
            if worked {
                again = AGAIN_AFTER.0;
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(again) => {}
            }
            again = AGAIN_AFTER.1.min(again * 2);
        }
    }

    /// Relays over one connection. Says with an error whether it worked before.
    async fn connected(&self, shutdown: &CancellationToken) -> Result<(), (QueueError, bool)> {
        let connecting = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            connecting = self.redis.connect() => connecting,
        };
        let mut connection = connecting.map_err(|error| (error.into(), false))?;
        self.redis.check(&mut connection).await;
        let (mut worked, mut bury_at) = (false, Instant::now());
        // Whatever came while there was no connection.
        let mut urgent = JobKind::ALL.to_vec();
        loop {
            let mut next = Next::Wait;
            for kind in JobKind::ALL.into_iter().filter(|kind| kind.is_carried()) {
                let head_start = if urgent.contains(&kind) { Duration::ZERO } else { HEAD_START };
                let due = before(SystemClock.now(), head_start);
                let relayed = self.relay(&mut connection, kind, due).await.map_err(|error| (error, worked))?;
                if relayed == Next::Wait {
                    urgent.retain(|urgent| *urgent != kind);
                }
                next = next.max(relayed);
            }
            if bury_at <= Instant::now() {
                bury_at = Instant::now() + BURY_EVERY;
                self.redis.bury(&mut connection).await.map_err(|error| (error.into(), worked))?;
            }
            worked = true;
            let wait = match next {
                Next::Wait => self.interval,
                Next::Full => FULL_FOR,
                Next::More => Duration::ZERO,
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                kinds = self.wake.woken() => urgent.extend(kinds),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Relays some of the messages of `kind` that were due at `due`.
    async fn relay(
        &self,
        connection: &mut MultiplexedConnection,
        kind: JobKind,
        due: Timestamp,
    ) -> Result<Next, QueueError> {
        if !outbox::waits(&mut self.pools.reading().await?.conn(), kind, due).await? {
            return Ok(Next::Wait);
        }
        let room = WINDOW.saturating_sub(self.redis.waiting(connection, kind).await?);
        if room == 0 {
            return Ok(Next::Full);
        }
        let limit = room.min(BATCH);
        let mut link = self.pools.writing().await?;
        let messages = outbox::take(&mut link.conn(), kind, due, SystemClock.now(), limit).await?;
        drop(link);
        if messages.is_empty() {
            return Ok(Next::Wait);
        }
        if let Err(error) = self.redis.push(connection, kind, &messages).await {
            // Some may have arrived. A message that comes twice finds nothing to do.
            let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
            outbox::put_back(&mut self.pools.writing().await?.conn(), &ids).await?;
            return Err(error);
        }
        let all = u32::try_from(messages.len()).is_ok_and(|taken| taken < limit);
        Ok(if all { Next::Wait } else { Next::More })
    }
}

fn before(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
}

impl Redis {
    /// How many messages wait for a worker.
    async fn waiting(&self, connection: &mut MultiplexedConnection, kind: JobKind) -> RedisResult<u32> {
        let config = self.config(kind);
        let (due, later): (u32, u32) = redis::pipe()
            .llen(config.active_jobs_list())
            .zcard(config.scheduled_jobs_set())
            .query_async(connection)
            .await?;
        Ok(due.saturating_add(later))
    }

    /// Pushes messages and tells everybody.
    async fn push(
        &self,
        connection: &mut MultiplexedConnection,
        kind: JobKind,
        messages: &[Message],
    ) -> Result<(), QueueError> {
        let task = |message: &Message| -> Result<Task<Vec<u8>>, QueueError> {
            let id = TaskId::from_string(message.id.to_string());
            Ok(TaskBuilder::new(message.encode()?).task_id(id).build())
        };
        let tasks = messages.iter().map(task).collect::<Result<Vec<_>, _>>()?;
        let pushed = apalis_redis::queries::push_tasks(connection, &self.config(kind), &tasks).await;
        pushed.map_err(|error| match error {
            apalis_redis::Error::Database(error) => QueueError::Redis(error),
            other => QueueError::Worker(other.to_string()),
        })?;
        redis::cmd("PUBLISH").arg(self.channel()).arg(kind.name()).query_async::<()>(connection).await?;
        Ok(())
    }
}
