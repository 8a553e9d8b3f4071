//! How everything stands: one look for all who ask.
//!
//! Counting costs the more the more threads there are, so a look is shared by
//! the API, the pages, the metrics, and everybody who watches. Nobody looks when
//! nobody asks.

mod warnings;

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_kernel::time::Timestamp;
use countersign_worker::engine::Engine;
use countersign_worker::store::StoreError;
use countersign_worker::store::overview::Overview;
use countersign_worker::store::views::{ThreadFilter, ThreadSummary};
use countersign_worker::tally::Count;
use tokio::sync::Mutex;

pub(crate) use self::warnings::{Affected, warnings};

/// A look that took less may be taken whenever somebody asks.
const CHEAP: Duration = Duration::from_millis(25);
/// Of another, at most this part of the time is spent on looking.
const SHARE: u32 = 20;

/// How many threads a look names, the newest first.
const LATEST: u32 = 25;

/// How everything stood.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    /// In numbers.
    pub(crate) overview: Arc<Overview>,
    /// The newest threads.
    pub(crate) latest: Arc<[ThreadSummary]>,
    /// When.
    pub(crate) at: Timestamp,
    /// How long it took to count.
    pub(crate) took: Duration,
    began: Instant,
    ended: Instant,
}

impl Look {
    /// How it would have been.
    #[cfg(test)]
    pub(crate) fn sample(overview: Overview, latest: Vec<ThreadSummary>, at: Timestamp) -> Self {
        let now = Instant::now();
        let (overview, latest) = (Arc::new(overview), latest.into());
        Self { overview, latest, at, took: Duration::from_millis(3), began: now, ended: now }
    }

    /// Whether people may be asked something else than at an earlier look, or
    /// have answered since: this says so if it cannot tell.
    pub(crate) fn asks_anew(&self, before: &Self) -> bool {
        let answers = |look: &Self| -> Vec<u64> {
            let workers = look.overview.workers.iter();
            workers.filter_map(|worker| worker.beat.done.get(Count::Answers.name()).copied()).collect()
        };
        self.overview.graphs != before.overview.graphs || answers(self) != answers(before)
    }

    /// How long ago it was.
    pub(crate) fn ended_ago(&self) -> Duration {
        self.ended.elapsed()
    }

    /// Whether it is what somebody gets who asked `asked` for one that is not
    /// older than `age`. What is dear is kept for longer.
    fn serves(&self, asked: Instant, now: Instant, age: Duration) -> bool {
        let kept = if self.took > CHEAP { (self.took * SHARE).max(age) } else { age };
        self.began >= asked || now.duration_since(self.ended) < kept
    }
}

/// How fresh a look has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// A second old at most, or older if counting is dear.
    Recent,
    /// Of now, or older if counting is dear.
    Now,
    /// Of now, whatever it costs.
    AtAnyCost,
}

/// Looks, once for all who ask at the same time.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    last: Mutex<Option<Look>>,
}

impl Lookout {
    /// How everything stands.
    pub(crate) async fn look(&self, engine: &Engine, fresh: Fresh) -> Result<Look, StoreError> {
        let asked = Instant::now();
        // Who comes while somebody looks waits, and then gets what was seen.
        let mut last = self.last.lock().await;
        let now = Instant::now();
        let serves = |look: &&Look| match fresh {
            Fresh::Recent => look.serves(asked, now, Duration::from_secs(1)),
            Fresh::Now => look.serves(asked, now, Duration::ZERO),
            Fresh::AtAnyCost => look.began >= asked,
        };
        if let Some(look) = last.as_ref().filter(serves) {
            return Ok(look.clone());
        }
        let at = engine.clock().now();
        let overview = Arc::new(engine.store().overview(at).await?);
        let latest = engine.store().threads(&ThreadFilter::default(), None, LATEST).await?.into();
        let ended = Instant::now();
        let look = Look { overview, latest, at, took: ended.duration_since(now), began: now, ended };
        *last = Some(look.clone());
        Ok(look)
    }
}

/// A number as people read it: `12,480`.
pub(crate) fn grouped<T: std::fmt::Display>(number: T) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|part| std::str::from_utf8(part).ok()).collect();
    parts.join(",")
}

/// A length of time as people read it: `40 s`, `3 min`, `2 h`, `5 days`.
pub(crate) fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_kept_the_longer_the_more_it_cost() {
        let now = Instant::now();
        let after = |millis: u64| now + Duration::from_millis(millis);
        let look = |took| Look {
            overview: Arc::default(),
            latest: Arc::new([]),
            at: Timestamp::from_micros(0),
            took: Duration::from_millis(took),
            began: now,
            ended: after(took),
        };
        let second = Duration::from_secs(1);
        // Asked before it began, and it went on while one waited.
        assert!(look(900).serves(now, after(900), Duration::ZERO));
        // A cheap one serves for as long as one says, a dear one for longer.
        assert!(look(5).serves(after(10), after(900), second) && !look(5).serves(after(10), after(1_100), second));
        assert!(!look(5).serves(after(6), after(7), Duration::ZERO));
        assert!(look(100).serves(after(101), after(2_000), Duration::ZERO));
        assert!(!look(100).serves(after(101), after(2_200), second));
    }

    #[test]
    fn numbers_are_told_in_groups() {
        assert_eq!(
            [0, 999, 1_000, 12_480, 1_000_000].map(grouped::<u64>),
            ["0", "999", "1,000", "12,480", "1,000,000"]
        );
    }

    #[test]
    fn spans_are_told_in_one_unit() {
        let told = [0, 119, 120, 7_199, 7_200, 172_799, 172_800].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(told, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 days"]);
    }
}
