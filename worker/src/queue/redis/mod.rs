//! Redis as the carrier.
//!
//! Truth stays in the database: a message is a row of the outbox,
//! and Redis only brings it to a process that has time for it. So nothing here has
//! to survive. Redis may be emptied, restarted or away; the work that a message
//! was about is found by the sweep, and until Redis is back each process does what
//! it is handed and what it finds by itself.
//!
//! 1. The [relay](relay) takes rows of the outbox and pushes them, and tells all
//!    processes on a channel of ours: apalis-redis does not (see [`hear`]).
//! 2. A worker of apalis-redis fetches them, and the receiver gets the message.
//! 3. What was received is [removed](done): apalis would keep the content and the
//!    state of each message for ever.
//!
//! Messages that are to come later stay in the outbox until then: every fetch of
//! apalis-redis moves all that is due at once, and fails above some 8,000.

mod check;
mod done;
mod hear;
mod line;
mod relay;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apalis_redis::Config;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, RedisResult};

pub(super) use self::done::Received;
pub(super) use self::hear::hear;
pub(super) use self::line::Line;
pub(super) use self::relay::Relay;
use super::JobKind;

/// How long Redis may take to answer. Nothing waits for it but the relay and the
/// workers of the queue.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The wait before connecting again: doubled from the first to the last with
/// each failure. Short, because nobody but Redis suffers from it.
pub(super) const AGAIN_AFTER: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// A Redis that carries messages.
pub struct Redis {
    client: Client,
    prefix: String,
    shown: String,
    /// Whether it was said that it is away.
    away: AtomicBool,
}

/// A URL or a prefix that no Redis can be reached by. Does not quote the URL,
/// which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RedisUrlError(&'static str);

impl Redis {
    /// The Redis at `redis://[user[:password]@]host[:port][/database]`, or
    /// `rediss://…` for TLS. All keys and channels begin with `prefix`, so that
    /// several installations can share a Redis. Nothing is connected yet.
    ///
    /// # Errors
    /// The URL is none of a Redis, or the prefix is empty or has other characters
    /// than letters, digits, `-`, `_` and `:`.
    pub fn new(url: &str, prefix: &str) -> Result<Self, RedisUrlError> {
        if !url.starts_with("redis://") && !url.starts_with("rediss://") {
            return Err(RedisUrlError("it does not begin with redis:// or rediss://"));
        }
        if url.contains(['#', '?']) {
            return Err(RedisUrlError(
                "it has a # or a ?, which mean nothing there; in a password they are %23 and %3F",
            ));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':');
        if prefix.is_empty() || !prefix.chars().all(allowed) {
            return Err(RedisUrlError("a prefix has letters, digits, `-`, `_` and `:`"));
        }
        let info = url.into_connection_info();
        let info = info.map_err(|_| RedisUrlError("it is not redis://[user[:password]@]host[:port][/database]"))?;
        let scheme = if url.starts_with("rediss") { "rediss" } else { "redis" };
        let shown = format!("{scheme}://{}/{}", info.addr(), info.redis_settings().db());
        let client = Client::open(info).map_err(|_| RedisUrlError("no Redis can be reached by it"))?;
        Ok(Self { client, prefix: prefix.to_owned(), shown, away: AtomicBool::new(false) })
    }

    /// Connects, and gives up soon.
    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWERS_WITHIN))
            .set_response_timeout(Some(ANSWERS_WITHIN));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        self.answers();
        Ok(connection)
    }

    /// A connection for a worker of apalis, and what it is told.
    pub(super) async fn worker(&self, kind: JobKind) -> RedisResult<(MultiplexedConnection, Config)> {
        Ok((self.connect().await?, self.config(kind)))
    }

    /// The queue of `kind`. It is the carrier only: its locks, results and events
    /// are unused.
    fn config(&self, kind: JobKind) -> Config {
        Config::default()
            .queue(format!("{}:{}", self.prefix, kind.name()))
            .batch_size(super::carrier::BATCH)
            .lock_tasks(false)
            .persist_results(false)
            .emit_events(false)
    }

    /// The channel that tells of messages that were relayed.
    fn channel(&self) -> String {
        format!("{}:wake", self.prefix)
    }

    /// Notes that a connection was lost, which says nothing yet: Redis may have
    /// been restarted meanwhile.
    pub(super) fn lost(&self, error: &dyn fmt::Display) {
        tracing::info!(redis = self.shown, %error, "a connection to Redis is of no use any more; another one is made");
    }

    /// Says that Redis is away, once, until it [answers](Self::answers).
    pub(super) fn fails(&self, error: &dyn fmt::Display) {
        let redis = &self.shown;
        if self.away.swap(true, Ordering::Relaxed) {
            tracing::debug!(redis, %error, "Redis still does not do its part");
        } else {
            tracing::error!(
                redis, %error,
                "Redis does not do its part: messages wait in the database until it does, and processes look for \
                 work by themselves, which is slower; nothing is lost"
            );
        }
    }

    /// Says that Redis is back, if it was away.
    fn answers(&self) {
        if self.away.swap(false, Ordering::Relaxed) {
            tracing::warn!(redis = self.shown, "Redis answers again");
        }
    }
}

/// Where it is, without a password.
impl fmt::Display for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("at", &self.shown).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redis_is_shown_without_its_password() {
        for (url, shown) in [
            ("redis://cache", "redis://cache:6379/0"),
            ("redis://:hunter2@cache.example.com:6380/3", "redis://cache.example.com:6380/3"),
            ("rediss://ann:hunter2@cache", "rediss://cache:6379/0"),
        ] {
            let redis = Redis::new(url, "countersign").expect(url);
            assert_eq!(redis.to_string(), shown);
            assert!(!format!("{redis:?}").contains("hunter2"), "{redis:?}");
        }
    }

    #[test]
    fn what_is_no_redis_is_told_without_what_it_says() {
        for url in [
            "",
            "redis:",
            "hunter2",
            "http://cache",
            "redis+unix:///run/redis.sock?pass=hunter2",
            "redis://:hunter2@cache:port",
            "redis://cache/hunter2",
            "rediss://cache/#insecure",
            "redis://cache?password=hunter2",
        ] {
            let error = Redis::new(url, "countersign").expect_err(url);
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        for prefix in ["", "a b", "a\n", "é", "{a}", "a*"] {
            assert!(Redis::new("redis://cache", prefix).is_err(), "{prefix:?}");
        }
        assert!(Redis::new("redis://cache", "team-1:approvals").is_ok());
    }
}
