//! How often a node is tried, and how long one try may take.

use std::time::Duration;

/// What the kernel does with a body beyond running it once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodePolicy {
    /// Tries again after a failure. A question is no failure.
    pub retry: Option<RetryPolicy>,
    /// One attempt that takes longer is dropped and counts as a failure. Time
    /// is what [`Timers`](crate::ports::Timers) say it is.
    pub timeout: Option<Duration>,
    /// Waits until nothing else of the graph is due: for a node that gathers
    /// what branches of different lengths leave.
    pub deferred: bool,
}

/// Tries again within the same run. The count starts anew with every run, and
/// the writes of failed attempts do not count; results of steps stay.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included.
    pub max_attempts: u32,
    /// The wait before the second attempt.
    pub initial_interval: Duration,
    /// What each further wait is multiplied by.
    pub backoff: f64,
    /// The longest wait.
    pub max_interval: Duration,
}

impl RetryPolicy {
    /// Up to `max_attempts` attempts with waits of 0.5 s, 1 s, 2 s… up to a
    /// minute in between.
    #[must_use]
    pub fn new(max_attempts: u32) -> Self {
        Self {
            max_attempts,
            initial_interval: Duration::from_millis(500),
            backoff: 2.0,
            max_interval: Duration::from_secs(60),
        }
    }

    /// Up to `max_attempts` attempts, one right after the other.
    #[must_use]
    pub fn immediate(max_attempts: u32) -> Self {
        Self { initial_interval: Duration::ZERO, ..Self::new(max_attempts) }
    }

    /// The wait after attempt number `attempt` (from 1) has failed.
    #[must_use]
    pub fn wait_after(&self, attempt: u32) -> Duration {
        let factor = self.backoff.max(0.0).powi(i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX));
        let seconds = (self.initial_interval.as_secs_f64() * factor).min(self.max_interval.as_secs_f64());
        Duration::try_from_secs_f64(seconds).unwrap_or(self.max_interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_the_longest() {
        let policy = RetryPolicy { max_interval: Duration::from_secs(3), ..RetryPolicy::new(9) };
        let waits: Vec<f64> = (1..=4).map(|attempt| policy.wait_after(attempt).as_secs_f64()).collect();
        assert_eq!(waits, [0.5, 1.0, 2.0, 3.0]);
        assert_eq!(policy.wait_after(u32::MAX), Duration::from_secs(3));
        assert_eq!(RetryPolicy::immediate(3).wait_after(2), Duration::ZERO);
    }
}
