//! What a store is told of threads that are started by the clock.

use std::time::Duration;

use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use serde_json::Value;

use super::CreateThread;

/// What becomes of ticks that nobody was there for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CatchUp {
    /// Of several, the newest comes.
    #[default]
    Newest,
    /// All of them come.
    All,
}

impl CatchUp {
    /// The name as stored and configured.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::All => "all",
        }
    }

    /// The one of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Newest, Self::All].into_iter().find(|known| known.name() == name)
    }
}

/// A schedule as it is defined.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleSpec {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// The flow.
    pub graph: String,
    /// What each thread takes.
    pub input: Value,
    /// When: a cron expression of five fields.
    pub expression: String,
    /// In the local time of this zone, by its IANA name.
    pub zone: String,
    /// What becomes of ticks that nobody was there for.
    pub catch_up: CatchUp,
    /// How late a tick may come. Older ones are left out.
    pub catch_within: Duration,
    /// Up to how much later than its instant a tick comes.
    pub jitter: Duration,
    /// Whether it begins paused.
    pub paused: bool,
}

/// When a schedule ticks next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextTick {
    /// The instant.
    pub instant: Timestamp,
    /// When it comes: with its jitter.
    pub at: Timestamp,
}

/// Has a tick come.
#[derive(Debug, Clone)]
pub struct Tick {
    /// The schedule.
    pub schedule: String,
    /// The instant.
    pub instant: Timestamp,
    /// The tick that the schedule was read with; another process may have been
    /// faster. `None` for a tick by hand, which moves nothing.
    pub expected: Option<Timestamp>,
    /// What comes after it. Meaningless for a tick by hand.
    pub next: NextTick,
    /// The thread that it starts; without one the tick is left out.
    pub thread: Option<Box<CreateThread>>,
    /// Why it starts none, if that is a fault.
    pub error: Option<String>,
    /// Who had it come before its time.
    pub by_hand: Option<Principal>,
    /// Now.
    pub now: Timestamp,
}
