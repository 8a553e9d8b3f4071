//! Wake-ups from the relays of all processes.
//!
//! apalis-redis announces only what it puts into its queue at once, and it puts
//! every message with a time, that is every one, into its set of later ones. So
//! relays announce on a channel of ours. Nothing depends on it: the workers also
//! look by themselves, at their interval.

use std::sync::Arc;

use futures_util::StreamExt as _;
use redis::RedisResult;
use redis::aio::PubSub;
use tokio_util::sync::CancellationToken;

use super::{AGAIN_AFTER, ANSWERS_WITHIN, Redis};
use crate::queue::{JobKind, Wake};

/// Wakes the workers of this process whenever anybody relays messages of their
/// kind, until `shutdown`.
pub(in crate::queue) async fn hear(redis: Arc<Redis>, wake: Wake, shutdown: CancellationToken) {
    let hearing = async {
        let mut wait = AGAIN_AFTER.0;
        loop {
            match subscribe(&redis).await {
                Ok(said) => {
                    wait = AGAIN_AFTER.0;
                    // Whatever was relayed while nobody heard.
                    JobKind::ALL.iter().for_each(|kind| wake.wake(*kind));
                    let mut said = said.into_on_message();
                    while let Some(message) = said.next().await {
                        let kind = message.get_payload::<String>().ok();
                        if let Some(kind) = kind.as_deref().and_then(JobKind::from_name) {
                            wake.wake(kind);
                        }
                    }
                    redis.lost(&"nobody tells of messages any more");
                }
                Err(error) => redis.fails(&error),
            }
            tokio::time::sleep(wait).await;
            wait = AGAIN_AFTER.1.min(wait * 2);
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = hearing => {}
    }
}

async fn subscribe(redis: &Redis) -> RedisResult<PubSub> {
    let subscribing = async {
        let mut said = redis.client.get_async_pubsub().await?;
        said.subscribe(redis.channel()).await?;
        Ok(said)
    };
    let late = |_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
    tokio::time::timeout(ANSWERS_WITHIN, subscribing).await.unwrap_or_else(late)
}
