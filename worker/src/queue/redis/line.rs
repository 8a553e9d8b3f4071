//! The workers that fetch from Redis.

use std::sync::Arc;

use countersign_kernel::ports::Ids as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::done::{Done, Held};
use super::{AGAIN_AFTER, Redis};
use crate::queue::worker::{self, Handler, Leaves};
use crate::queue::{Carrier, JobKind, QueueError, Receiver, Wake};
use crate::system::SystemIds;

/// The workers of one kind on a Redis, one after the other.
pub(in crate::queue) struct Line {
    pub(in crate::queue) carrier: Carrier,
    pub(in crate::queue) redis: Arc<Redis>,
    pub(in crate::queue) kind: JobKind,
    pub(in crate::queue) receiver: Arc<dyn Receiver>,
    /// Set when messages were relayed.
    pub(in crate::queue) wake: Wake,
}

impl Line {
    /// Runs workers until `shutdown`; then what they hold goes to others, if
    /// Redis is there.
    pub(in crate::queue) async fn run(self, shutdown: CancellationToken) {
        let mut wait = AGAIN_AFTER.0;
        while !shutdown.is_cancelled() {
            let started = Instant::now();
            if let Err(error) = self.work(&shutdown).await {
                // It had a connection for a while.
                if started.elapsed() >= AGAIN_AFTER.1 {
                    wait = AGAIN_AFTER.0;
                    self.redis.lost(&error);
                } else {
                    self.redis.fails(&error);
                }
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
            }
            wait = AGAIN_AFTER.1.min(wait * 2);
        }
    }

    /// Runs one worker until it ends, or until `shutdown`.
    async fn work(&self, shutdown: &CancellationToken) -> Result<(), QueueError> {
        let connecting = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            connecting = self.redis.worker(self.kind) => connecting,
        };
        let (connection, config) = connecting?;
        // A name that was seen within the last minutes is refused, so each start
        // has its own.
        let random = hex::encode(&SystemIds.salt()[..8]);
        let name = format!("{}-{}-{random}", self.carrier.worker_name_prefix, self.kind);
        let (mut done, received) = Done::of(connection.clone(), config.clone(), &name);
        let handler = Handler::new(self.kind, Arc::clone(&self.receiver), Leaves::Keys(received));
        let strategy = self.wake.strategy(self.kind, self.carrier.poll_interval);
        let worker = worker::on_redis(connection, config, &name, strategy, handler);
        // The worker is dropped where it stands: its own way to stop counts
        // attempts and takes the wrong member out of the set of workers.
        let ended = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            ended = worker => Some(ended),
            error = done.run() => Some(Err(error.into())),
        };
        let held = if ended.is_none() { Held::Back } else { Held::Dropped };
        match done.end(held).await {
            Ok(0) => {}
            Ok(messages) => tracing::debug!(worker = name, messages, ?held, "a worker of the queue left messages"),
            // Whoever is there in some minutes forgets it.
            Err(error) => tracing::debug!(worker = name, %error, "a worker of the queue is not forgotten yet"),
        }
        ended.unwrap_or(Ok(()))
    }
}
