//! One attempt to deliver one message.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use countersign_kernel::ids::{DeliveryId, ThreadId};
use countersign_kernel::ports::{Channel, DeliveryError, Notice, Receipt};
use futures_util::FutureExt as _;

use super::Engine;
use crate::queue::JobId;
use crate::store::commands::DeliveryEnd;
use crate::tally::{Count, Timed};

/// Longest delay between two attempts.
const BACKOFF_MAX: Duration = Duration::from_secs(3600);
/// How long an attempt may take before another worker may try.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(120);

/// One attempt, which ends in time and takes nothing with it.
async fn send(channel: &dyn Channel, notice: &Notice) -> Result<Receipt, DeliveryError> {
    let retryable = |message: &str| Err(DeliveryError { message: message.to_owned(), retryable: true });
    let attempt = AssertUnwindSafe(channel.send(notice)).catch_unwind();
    match tokio::time::timeout(ATTEMPT_WITHIN, attempt).await {
        Ok(Ok(sent)) => sent,
        Ok(Err(_)) => retryable("the channel panicked"),
        Err(_) => retryable("timed out"),
    }
}

impl Engine {
    pub(super) async fn deliver(&self, thread: ThreadId, delivery: DeliveryId, jobs: Vec<JobId>) {
        let mut jobs = jobs.into_iter();
        let job = jobs.next();
        if let Err(error) = self.attempt(&thread, &delivery, job).await {
            tracing::error!(%error, %thread, %delivery, "a delivery could not be recorded; the sweep tries again");
        }
        for job in jobs {
            // Found nothing to do: the job goes with that.
            let now = self.inner.clock.now();
            if let Err(error) = self.inner.store.take_delivery(&thread, &delivery, Some(job), now, now).await {
                tracing::warn!(%error, %delivery, "a spare job could not be deleted");
            }
        }
    }

    async fn attempt(
        &self,
        thread: &ThreadId,
        delivery: &DeliveryId,
        job: Option<JobId>,
    ) -> Result<(), crate::store::StoreError> {
        let now = self.inner.clock.now();
        let until = now.after(ATTEMPT_WITHIN);
        let Some(task) = self.inner.store.take_delivery(thread, delivery, job, until, now).await? else {
            return Ok(());
        };
        let (attempt, began) = (task.notice.attempt, Instant::now());
        let sent = match self.inner.channels.get(&task.channel) {
            // An attempt that takes its worker with it says nothing of itself.
            _ if attempt > self.inner.config.delivery_attempts => Err(DeliveryError {
                message: format!("gave up after {} attempts: the last one lost its worker", attempt - 1),
                retryable: false,
            }),
            Some(channel) => send(channel.as_ref(), &task.notice).await,
            None => Err(DeliveryError {
                message: format!("no channel `{}` is configured", task.channel.as_str()),
                retryable: false,
            }),
        };
        let tally = self.inner.store.tally();
        tally.took(Timed::Delivery, began.elapsed());
        let now = self.inner.clock.now();
        let end = match sent {
            Ok(receipt) => DeliveryEnd::Sent { detail: receipt.detail },
            Err(error) if error.retryable && attempt < self.inner.config.delivery_attempts => {
                DeliveryEnd::Retry { at: now.after(self.backoff(attempt)), error: error.message, job: self.job() }
            }
            Err(error) => DeliveryEnd::Failed { error: error.message },
        };
        match &end {
            DeliveryEnd::Sent { .. } => tracing::info!(%thread, %delivery, attempt, "delivered"),
            DeliveryEnd::Retry { error, .. } => {
                tracing::warn!(%thread, %delivery, attempt, error, "delivery will be retried");
            }
            DeliveryEnd::Failed { error } => tracing::error!(%thread, %delivery, attempt, error, "delivery failed"),
        }
        let count = match &end {
            DeliveryEnd::Sent { .. } => Count::Delivered,
            DeliveryEnd::Retry { .. } => Count::DeliveryRetries,
            DeliveryEnd::Failed { .. } => Count::DeliveriesFailed,
        };
        self.inner.store.finish_delivery(thread, delivery, end, job, now).await?;
        tally.add(count);
        Ok(())
    }

    /// Doubles from the configured delay, with up to a fifth of jitter.
    fn backoff(&self, attempt: u32) -> Duration {
        let doubled = self.inner.config.delivery_backoff.saturating_mul(1 << attempt.saturating_sub(1).min(20));
        let delay = doubled.min(BACKOFF_MAX);
        let jitter = u32::from(self.inner.ids.salt()[0]);
        delay + delay * jitter / (255 * 5)
    }
}
