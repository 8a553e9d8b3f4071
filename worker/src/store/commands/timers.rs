//! What a store is told and asked about the instants that points wait for.

use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::time::Timestamp;

use crate::queue::{JobId, Message};

/// What a timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimerKind {
    /// The end of a `cx.sleep`.
    Sleep,
    /// The end of the time in which a point can be answered.
    Deadline,
}

impl TimerKind {
    /// The name as stored.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Deadline => "deadline",
        }
    }

    /// The kind of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Sleep, Self::Deadline].into_iter().find(|kind| kind.name() == name)
    }
}

/// A timer that is due. Its name is no id of its own: a point has at most one
/// of each kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DueTimer {
    /// The thread.
    pub thread: ThreadId,
    /// The point that waits for it.
    pub interrupt: InterruptId,
    /// What it is for.
    pub kind: TimerKind,
    /// Since when.
    pub due_at: Timestamp,
}

/// What a look at the timers finds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DueTimers {
    /// Those that are due, the earliest first.
    pub due: Vec<DueTimer>,
    /// When the next one will be.
    pub next: Option<Timestamp>,
}

/// Fires a timer that is due.
#[derive(Debug, Clone)]
pub struct FireTimer {
    /// The thread.
    pub thread: ThreadId,
    /// The point that waits for it.
    pub interrupt: InterruptId,
    /// What it is for.
    pub kind: TimerKind,
    /// The wake-up, if the point is answered.
    pub job: JobId,
    /// Now.
    pub now: Timestamp,
}

/// What firing a timer led to.
#[derive(Debug, Clone, PartialEq)]
pub enum Fired {
    /// It was not due, or was fired or dropped before; nothing was written.
    Nothing,
    /// The instant has passed and that is on record; the point waits on.
    Passed,
    /// The point is answered; here is the wake-up.
    Answered(Message),
}
