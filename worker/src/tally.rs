//! What a process has done since it started: plain numbers, which cost an
//! addition each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Count {
    /// Supersteps of threads that were committed.
    Supersteps,
    /// Runs that were accepted: starts, new input, replays, forks.
    RunsStarted,
    /// Threads that came to rest with something open.
    RunsParked,
    /// Threads that ended well.
    RunsSucceeded,
    /// Threads that came to rest with a failure.
    RunsFailed,
    /// Threads that were set aside.
    RunsHeld,
    /// Answers that were recorded, those that wait for more votes included.
    Answers,
    /// Resumes that were accepted.
    Resumes,
    /// Messages that were handed over.
    Delivered,
    /// Attempts to deliver that are tried again.
    DeliveryRetries,
    /// Deliveries that gave up.
    DeliveriesFailed,
    /// Transactions that were committed.
    Commits,
    /// Commands in them.
    Commands,
    /// Pieces of work that a sweep found.
    Swept,
}

impl Count {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Supersteps,
        Self::RunsStarted,
        Self::RunsParked,
        Self::RunsSucceeded,
        Self::RunsFailed,
        Self::RunsHeld,
        Self::Answers,
        Self::Resumes,
        Self::Delivered,
        Self::DeliveryRetries,
        Self::DeliveriesFailed,
        Self::Commits,
        Self::Commands,
        Self::Swept,
    ];

    /// Its name, under which processes tell each other their numbers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Supersteps => "supersteps",
            Self::RunsStarted => "runs_started",
            Self::RunsParked => "runs_parked",
            Self::RunsSucceeded => "runs_succeeded",
            Self::RunsFailed => "runs_failed",
            Self::RunsHeld => "runs_held",
            Self::Answers => "answers",
            Self::Resumes => "resumes",
            Self::Delivered => "delivered",
            Self::DeliveryRetries => "delivery_retries",
            Self::DeliveriesFailed => "deliveries_failed",
            Self::Commits => "commits",
            Self::Commands => "commands",
            Self::Swept => "swept",
        }
    }
}

/// What took how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timed {
    /// From the moment that a thread is to be claimed to its first commit.
    ClaimToCommit,
    /// A transaction of the writer, from its begin until it is durable.
    Commit,
    /// From an answer's acceptance until somebody holds the thread and takes it
    /// up.
    AnswerToResume,
    /// An attempt to deliver a message.
    Delivery,
}

impl Timed {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ClaimToCommit, Self::Commit, Self::AnswerToResume, Self::Delivery];
}

/// Upper bounds of the buckets of a [`Spread`], in seconds.
pub const BOUNDS: [f64; 14] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Durations by size.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spread {
    /// How many there were up to each of [`BOUNDS`] and above the one before;
    /// the last number is of those above all.
    pub counts: [u64; BOUNDS.len() + 1],
    /// All of them together, in seconds.
    pub sum: f64,
}

#[derive(Debug, Default)]
struct Durations {
    counts: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// What a process has done since it started.
#[derive(Debug, Default)]
pub struct Tally {
    counts: [AtomicU64; Count::ALL.len()],
    durations: [Durations; Timed::ALL.len()],
}

impl Tally {
    /// One more.
    pub fn add(&self, count: Count) {
        self.add_many(count, 1);
    }

    /// So many more.
    pub fn add_many(&self, count: Count, many: usize) {
        let many = u64::try_from(many).unwrap_or(u64::MAX);
        self.counts[count as usize].fetch_add(many, Ordering::Relaxed);
    }

    /// Something took so long.
    pub fn took(&self, timed: Timed, time: Duration) {
        let durations = &self.durations[timed as usize];
        let seconds = time.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        durations.counts[bucket].fetch_add(1, Ordering::Relaxed);
        durations.micros.fetch_add(u64::try_from(time.as_micros()).unwrap_or(0), Ordering::Relaxed);
    }

    /// How many there were.
    #[must_use]
    pub fn of(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    /// All numbers, in the order of [`Count::ALL`].
    #[must_use]
    pub fn numbers(&self) -> [u64; Count::ALL.len()] {
        Count::ALL.map(|count| self.of(count))
    }

    /// How long things took.
    #[must_use]
    pub fn spread(&self, timed: Timed) -> Spread {
        let durations = &self.durations[timed as usize];
        let mut spread = Spread::default();
        for (count, own) in spread.counts.iter_mut().zip(&durations.counts) {
            *count = own.load(Ordering::Relaxed);
        }
        spread.sum = Duration::from_micros(durations.micros.load(Ordering::Relaxed)).as_secs_f64();
        spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_place() {
        for (place, count) in Count::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, place, "{}", count.name());
        }
        for (place, timed) in Timed::ALL.into_iter().enumerate() {
            assert_eq!(timed as usize, place, "{timed:?}");
        }
        assert!(BOUNDS.is_sorted());
    }

    #[test]
    fn what_happened_is_counted_under_its_own_name_only() {
        let tally = Tally::default();
        tally.add(Count::Answers);
        tally.add_many(Count::Commands, 5);
        let counted = Count::ALL.into_iter().filter(|count| tally.of(*count) > 0);
        assert_eq!(
            counted.map(|count| (count.name(), tally.of(count))).collect::<Vec<_>>(),
            [("answers", 1), ("commands", 5)]
        );
    }

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        let tally = Tally::default();
        for micros in [0, 500, 501, 61_000_000] {
            tally.took(Timed::Delivery, Duration::from_micros(micros));
        }
        let spread = tally.spread(Timed::Delivery);
        assert_eq!((spread.counts[0], spread.counts[1], spread.counts[BOUNDS.len()]), (2, 1, 1));
        assert_eq!(spread.counts.iter().sum::<u64>(), 4);
        assert!((spread.sum - 61.001_001).abs() < 1e-9);
        assert_eq!(tally.spread(Timed::Commit), Spread::default());
    }
}
