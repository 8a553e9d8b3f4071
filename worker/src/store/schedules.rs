//! Threads that are started by the clock.

use async_trait::async_trait;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::time::Timestamp;

use super::commands::{NextTick, ScheduleSpec, Tick};
use super::{Accepted, StoreError};

/// A schedule as it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleView {
    /// How it is defined; `paused` says how it is now.
    pub spec: ScheduleSpec,
    /// When it ticks next, unless it is paused.
    pub next: NextTick,
    /// The last tick that came.
    pub last_tick: Option<Timestamp>,
    /// What that started.
    pub last_thread: Option<ThreadId>,
    /// Why the last tick started nothing.
    pub last_error: Option<String>,
}

/// Schedules and their ticks.
#[async_trait]
pub trait Schedules {
    /// Makes a schedule as defined, or changes one that is there; `next` holds for
    /// a new one, and for one whose expression or zone is another. A pause
    /// stays as it is.
    ///
    /// # Errors
    /// Only of the database.
    async fn put_schedule(&self, spec: ScheduleSpec, next: NextTick, now: Timestamp) -> Result<(), StoreError>;

    /// Forgets all schedules but these. Ticks that came stay on record. Says how
    /// many.
    ///
    /// # Errors
    /// Only of the database.
    async fn keep_schedules(&self, names: &[String]) -> Result<u64, StoreError>;

    /// All schedules, by name.
    ///
    /// # Errors
    /// Only of the database.
    async fn schedules(&self) -> Result<Vec<ScheduleView>, StoreError>;

    /// Those that are due, the earliest first, and when the next one will be.
    ///
    /// # Errors
    /// Only of the database.
    async fn due_schedules(&self, now: Timestamp) -> Result<(Vec<ScheduleView>, Option<Timestamp>), StoreError>;

    /// Has a tick come. Afterwards the tick is on record, its thread exists and
    /// the schedule has moved on, all or none. Of many processes that find it one
    /// does it: `None` for the others.
    ///
    /// # Errors
    /// Only of the database.
    async fn tick(&self, tick: Tick) -> Result<Option<Accepted>, StoreError>;

    /// Pauses a schedule, or has it go on from its next tick. Says whether there
    /// is one.
    ///
    /// # Errors
    /// Only of the database.
    async fn pause_schedule(
        &self,
        name: &str,
        paused: bool,
        next: NextTick,
        now: Timestamp,
    ) -> Result<bool, StoreError>;
}
