//! Firing the timers that are due (K21).

use std::time::Duration;

use futures_util::stream::{self, StreamExt};

use super::Engine;
use crate::queue::JobKind;
use crate::store::StoreError;
use crate::store::commands::{DueTimer, FireTimer, Fired};

/// The longest time between two looks, which is how late a timer may be that
/// another process has set.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Most timers that one look takes up.
const LOOK_MAX: u32 = 500;
/// Timers that are fired side by side, so that they share transactions.
const AT_ONCE: usize = 64;

impl Engine {
    /// Fires timers as they fall due, for as long as the engine runs. Any number
    /// of processes may do so: which one fires a timer, the timer's row decides.
    /// An error is logged and the next look tries again.
    pub(super) async fn watch_timers(self) {
        if !self.inner.config.serves.kinds.contains(&JobKind::Timer) {
            return;
        }
        let most = self.inner.config.sweep_every.min(LOOK_EVERY);
        loop {
            let wait = self.fire_due().await.unwrap_or_else(|error| {
                tracing::error!(%error, "the timers could not be looked at; the next look tries again");
                None
            });
            let tick = self.tick_due().await.unwrap_or_else(|error| {
                tracing::error!(%error, "the schedules could not be looked at; the next look tries again");
                None
            });
            let tick = tick.map(|tick| tick.since(self.inner.clock.now()));
            let wait = wait.into_iter().chain(tick).fold(most, Duration::min);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.inner.timed.notified() => {}
                () = self.inner.stop.cancelled() => return,
            }
        }
    }

    /// Fires what is due; says how long there is nothing more to do, if that is
    /// known.
    async fn fire_due(&self) -> Result<Option<Duration>, StoreError> {
        let now = self.inner.clock.now();
        let found = self.inner.store.due_timers(now, LOOK_MAX).await?;
        let all = found.due.len() < LOOK_MAX as usize;
        let fired: Vec<bool> =
            stream::iter(found.due).map(|timer| self.fire(timer)).buffer_unordered(AT_ONCE).collect().await;
        // One that cannot be fired must not have the others looked at in a circle.
        if !all && fired.iter().all(|fired| *fired) {
            return Ok(Some(Duration::ZERO));
        }
        Ok(found.next.map(|next| next.since(self.inner.clock.now())))
    }

    /// Fires one timer. Says whether it needs no firing any more.
    async fn fire(&self, timer: DueTimer) -> bool {
        let DueTimer { thread, interrupt, kind, .. } = timer;
        let fire = FireTimer {
            thread: thread.clone(),
            interrupt: interrupt.clone(),
            kind,
            job: self.job(),
            now: self.inner.clock.now(),
        };
        match self.inner.store.fire_timer(fire).await {
            Ok(Fired::Answered(message)) => {
                tracing::info!(%thread, %interrupt, kind = kind.name(), "the time has come");
                self.hand_over(message);
                true
            }
            Ok(Fired::Passed | Fired::Nothing) => true,
            Err(error) => {
                tracing::error!(%error, %thread, %interrupt, "a timer could not be fired; the next look tries again");
                false
            }
        }
    }
}
