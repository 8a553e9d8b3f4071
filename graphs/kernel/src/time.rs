//! Instants as the database keeps them.

use serde::{Deserialize, Serialize};

/// An instant: microseconds since the Unix epoch, UTC.
///
/// The precision is that of the stores, so that a value read back equals the
/// value written. The kernel never reads a clock; every instant comes in from
/// a [`Clock`](crate::ports::Clock).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The instant `micros` microseconds after the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This instant moved `duration` into the future, saturating at the end of time.
    #[must_use]
    pub fn after(self, duration: std::time::Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// How far `self` lies after `earlier`; zero if it does not.
    #[must_use]
    pub fn since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}
