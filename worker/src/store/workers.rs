//! The processes that work on a database.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign_kernel::time::Timestamp;

use super::StoreError;
use super::commands::Serves;
use crate::tally::{Count, Tally};

/// How long a process that went away without a word is still listed.
pub const LOST_SHOWN: Duration = Duration::from_hours(1);

/// Numbers by their [names](Count::name). Those that this build does not know
/// are kept, because another build may.
pub type Numbers = BTreeMap<String, u64>;

/// What a process says of itself from time to time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Its name, which is its own for each start.
    pub name: String,
    /// The machine.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// The version of the program.
    pub version: String,
    /// Whether it serves API and pages.
    pub pages: bool,
    /// What it takes up.
    pub serves: Serves,
    /// When it started.
    pub started_at: Timestamp,
    /// How often it says so.
    pub every: Duration,
    /// Threads and deliveries that it runs now.
    pub running: u64,
    /// Those that wait in its memory.
    pub waiting: u64,
    /// What it has done since it started.
    pub done: Numbers,
    /// What it has done within the last minute.
    pub last_minute: Numbers,
}

/// A process as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    /// What it said.
    pub beat: Heartbeat,
    /// When.
    pub seen_at: Timestamp,
}

impl WorkerView {
    /// Whether it has been silent for so long that it must be dead or cut off:
    /// it missed three heartbeats. Its leases lapse without this.
    #[must_use]
    pub fn is_lost(&self, now: Timestamp) -> bool {
        now.since(self.seen_at) > self.beat.every * 3
    }

    /// How much of something it did within the last minute.
    #[must_use]
    pub fn last_minute(&self, count: Count) -> u64 {
        self.beat.last_minute.get(count.name()).copied().unwrap_or(0)
    }
}

/// The part of a store that knows who works on it.
#[async_trait]
pub trait Workers: Send + Sync {
    /// What this process has done since it started.
    fn tally(&self) -> &Arc<Tally>;

    /// Says that a process is there. Afterwards it is listed with what it said;
    /// those that have been silent for [`LOST_SHOWN`] are not listed any more.
    ///
    /// # Errors
    /// Only of the database.
    async fn beat(&self, beat: Heartbeat, now: Timestamp) -> Result<(), StoreError>;

    /// Says that a process has stopped. Afterwards it is not listed.
    ///
    /// # Errors
    /// Only of the database.
    async fn leave(&self, name: &str) -> Result<(), StoreError>;

    /// The processes that are there and those that were lost, by name.
    ///
    /// # Errors
    /// Only of the database.
    async fn workers(&self) -> Result<Vec<WorkerView>, StoreError>;
}
