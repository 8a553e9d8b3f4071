//! What the engine does by the clock: sweeping and clearing.

use std::time::Duration;

use countersign_kernel::time::Timestamp;
use tokio::time::{MissedTickBehavior, interval};

use super::Engine;
use super::dispatch::Work;
use crate::store::Due;
use crate::tally::Count;

/// Most pieces of work that one sweep takes up.
const SWEEP_MAX: u32 = 500;
/// Most commits whose events are forgotten in one piece.
const FORGET_MAX: u32 = 1_000;
/// How often what has served its time is cleared.
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// How long calls are waited for that one sweep answers together.
const CALLS_COLLAPSE: Duration = Duration::from_millis(5);

impl Engine {
    /// Finds work whose message was lost, for as long as the engine runs. An
    /// error is logged and the next tick tries again.
    pub(super) async fn sweep(self) {
        let mut tick = interval(self.inner.config.sweep_every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let grace = tokio::select! {
                _ = tick.tick() => self.inner.config.sweep_grace,
                () = self.inner.called.notified() => {
                    // Calls come in swarms.
                    tokio::time::sleep(CALLS_COLLAPSE).await;
                    Duration::ZERO
                }
            };
            let now = self.inner.clock.now();
            let minded = async { self.learn(now).await.and(self.mind_cancels(now).await) };
            if let Err(error) = minded.await {
                tracing::error!(%error, "pauses and cancels were not looked for; the next sweep tries again");
            }
            match self.inner.store.sweep(&self.inner.config.serves, now, grace, SWEEP_MAX).await {
                Ok(due) => {
                    self.inner.store.tally().add_many(Count::Swept, due.len());
                    for due in due {
                        let work = match due {
                            Due::Thread(thread) => Work::Thread(thread),
                            Due::Delivery(thread, delivery) => Work::Delivery(thread, delivery),
                        };
                        self.add(work, None);
                    }
                }
                Err(error) => tracing::error!(%error, "a sweep failed; the next one tries again"),
            }
        }
    }

    /// Clears what has served its time, for as long as the engine runs.
    pub(super) async fn tidy(self) {
        let mut tick = interval(TIDY_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut walked = None;
        loop {
            tick.tick().await;
            self.compact_next(&mut walked).await;
            match self.inner.store.tidy(self.inner.clock.now()).await {
                Ok(0) => {}
                Ok(rows) => tracing::debug!(rows, "cleared what has served its time"),
                Err(error) => tracing::error!(%error, "clearing failed; the next time tries again"),
            }
            self.forget_events().await;
        }
    }

    /// Forgets events that are too old, in pieces, so that others can write in
    /// between.
    async fn forget_events(&self) {
        let kept = i64::try_from(self.inner.config.keep_events.as_micros()).unwrap_or(i64::MAX);
        let before = Timestamp::from_micros(self.inner.clock.now().as_micros().saturating_sub(kept));
        loop {
            match self.inner.store.forget_events(before, FORGET_MAX).await {
                Ok(rows) if rows == u64::from(FORGET_MAX) => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::error!(%error, "old events were not forgotten; the next time tries again");
                    return;
                }
            }
        }
    }
}
