//! Saying that this process is there, and what it did lately.

use std::collections::VecDeque;
use std::time::Duration;

use countersign_kernel::time::Timestamp;
use tokio::time::{MissedTickBehavior, interval};

use super::{Engine, lock};
use crate::store::workers::{Heartbeat, Numbers};
use crate::tally::Count;

/// The shortest time between two heartbeats: each is a write.
const EVERY_MIN: Duration = Duration::from_secs(1);
/// What "the last minute" is.
const LATELY: Duration = Duration::from_secs(60);

/// What a process says of itself beside what its engine knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The machine.
    pub host: String,
    /// The process there.
    pub pid: u32,
    /// The version of the program.
    pub version: String,
    /// Whether it serves API and pages.
    pub pages: bool,
}

impl Default for About {
    fn default() -> Self {
        Self { host: String::new(), pid: std::process::id(), version: env!("CARGO_PKG_VERSION").into(), pages: false }
    }
}

/// Numbers as they were, for a minute: how much came since is said by the
/// process itself, so that nobody has to tell a restart from a loss.
#[derive(Debug, Default)]
struct Lately {
    kept: VecDeque<(Timestamp, [u64; Count::ALL.len()])>,
}

impl Lately {
    /// How much came within the last minute. Before there is a minute to look
    /// back on it is all that came.
    fn since(&mut self, now: Timestamp, numbers: [u64; Count::ALL.len()]) -> [u64; Count::ALL.len()] {
        self.kept.push_back((now, numbers));
        while self.kept.len() > 1 && self.kept.get(1).is_some_and(|(at, _)| now.since(*at) >= LATELY) {
            self.kept.pop_front();
        }
        let then = match self.kept.front() {
            Some((at, then)) if now.since(*at) >= LATELY => *then,
            _ => [0; Count::ALL.len()],
        };
        std::array::from_fn(|place| numbers[place].saturating_sub(then[place]))
    }
}

impl Engine {
    /// Says that this process is there, for as long as the engine runs.
    pub(super) async fn beat(self) {
        let every = (self.inner.config.lease / 3).max(EVERY_MIN);
        let mut tick = interval(every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut lately, started_at) = (Lately::default(), self.inner.clock.now());
        loop {
            tick.tick().await;
            let now = self.inner.clock.now();
            let numbers = self.inner.store.tally().numbers();
            let last_minute = named(lately.since(now, numbers));
            let (running, waiting) = lock(&self.inner.waiting).load();
            let (config, about) = (&self.inner.config, &self.inner.config.about);
            let said = Heartbeat {
                name: self.inner.worker.clone(),
                host: about.host.clone(),
                pid: about.pid,
                version: about.version.clone(),
                pages: about.pages,
                serves: config.serves.clone(),
                started_at,
                every,
                running,
                waiting,
                done: named(numbers),
                last_minute,
            };
            if let Err(error) = self.inner.store.beat(said, now).await {
                tracing::warn!(%error, "this process could not say that it is there; the next time tries again");
            }
        }
    }

    /// Says that this process has stopped.
    pub(super) async fn leave(&self) {
        if let Err(error) = self.inner.store.leave(&self.inner.worker).await {
            tracing::warn!(%error, "this process will be listed as lost for a while");
        }
    }
}

fn named(numbers: [u64; Count::ALL.len()]) -> Numbers {
    Count::ALL.into_iter().map(|count| count.name().to_owned()).zip(numbers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn the_last_minute_is_what_came_since_a_minute_ago() {
        let mut lately = Lately::default();
        let mut come = |second, number| lately.since(at(second), [number; Count::ALL.len()])[0];
        // Everything there is, as long as there is no minute to look back on.
        assert_eq!((come(0, 0), come(30, 10), come(55, 12)), (0, 10, 12));
        // From then on against the newest that is a minute old.
        assert_eq!((come(60, 20), come(89, 21), come(90, 22)), (20, 21, 12));
        assert_eq!((come(115, 22), come(600, 25)), (10, 3));
    }
}
