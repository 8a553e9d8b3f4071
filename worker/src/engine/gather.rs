//! What happened since the last commit, until the next one tells it.

use std::sync::{Arc, Mutex};

use countersign_kernel::ids::FrameId;
use countersign_kernel::machine::{TaskChange, TaskEvent};
use countersign_kernel::ports::Clock;
use countersign_kernel::time::Timestamp;

use super::lock;
use crate::store::commands::NewCheckpoint;
use crate::store::{Event, TaskEnd, TaskPlace, What, Written};

/// Events of one activation that no commit has taken yet.
///
/// Events about a result wait for the commit that keeps the result, so that
/// nobody is told of work that a crash undoes. What only says that something
/// goes on is taken by any.
pub(super) struct Gathered {
    on: bool,
    clock: Arc<dyn Clock>,
    waiting: Mutex<Vec<Noted>>,
}

struct Noted {
    event: Event,
    kind: NotedKind,
}

#[derive(PartialEq)]
enum NotedKind {
    /// Says that something goes on.
    Free,
    /// About a result of this task; `alone` if the superstep has no other.
    Of { frame: Option<FrameId>, task: String, alone: bool },
}

impl NotedKind {
    fn is_of(&self, frame: Option<&FrameId>, task: &str) -> bool {
        matches!(self, Self::Of { frame: f, task: t, .. } if f.as_ref() == frame && t == task)
    }
}

impl Gathered {
    pub(super) fn new(on: bool, clock: Arc<dyn Clock>) -> Self {
        Self { on, clock, waiting: Mutex::default() }
    }

    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// Says that something goes on.
    pub(super) fn add(&self, what: What) {
        if self.on {
            let event = self.event(what);
            lock(&self.waiting).push(Noted { event, kind: NotedKind::Free });
        }
    }

    fn event(&self, what: What) -> Event {
        Event { at: self.clock.now(), what }
    }

    /// Takes down what the kernel says of a task.
    pub(super) fn note(&self, event: TaskEvent<'_>) {
        if !self.on {
            return;
        }
        let TaskEvent { frame, task, change } = event;
        let place = TaskPlace { task: task.key.clone(), address: task.address.to_string(), frame: frame.cloned() };
        let mut alone = false;
        let (what, wrote) = match change {
            TaskChange::Started(run_as) => return self.add(What::Started(place, run_as)),
            TaskChange::Done { writes, alone: only } => {
                alone = only;
                let writes = writes.iter().map(|(key, value)| (key.clone(), Written::Value(value.clone()))).collect();
                (What::Ended(place.clone(), TaskEnd::Done), Some(What::Wrote(place, writes)))
            }
            TaskChange::Waiting => (What::Ended(place, TaskEnd::Waiting), None),
            TaskChange::Failed(error) => (What::Ended(place, TaskEnd::Failed(error.to_owned())), None),
            TaskChange::Stopped => (What::Ended(place, TaskEnd::Stopped), None),
        };
        let at = self.clock.now();
        let mut waiting = lock(&self.waiting);
        if matches!(change, TaskChange::Failed(_)) {
            // A result that could not be applied is none.
            waiting.retain(|noted| !noted.kind.is_of(frame, &task.key));
        }
        for what in std::iter::once(what).chain(wrote) {
            let kind = NotedKind::Of { frame: frame.cloned(), task: task.key.clone(), alone };
            waiting.push(Noted { event: Event { at, what }, kind });
        }
    }

    /// Takes what a commit may tell: all that only says that something goes
    /// on, and what is about results of tasks that it keeps. A commit with the
    /// next checkpoint of a frame holds what a task alone in its superstep
    /// wrote, so that this need not be kept twice.
    pub(super) fn take(
        &self,
        kept: impl Fn(Option<&FrameId>, &str) -> bool,
        next: Option<(Option<&FrameId>, &NewCheckpoint)>,
    ) -> Vec<Event> {
        if !self.on {
            return Vec::new();
        }
        let taken = |noted: &mut Noted| match &noted.kind {
            NotedKind::Free => true,
            NotedKind::Of { frame, task, .. } => kept(frame.as_ref(), task),
        };
        let taken: Vec<Noted> = lock(&self.waiting).extract_if(.., taken).collect();
        let refer = |Noted { event, kind }: Noted| match (kind, next) {
            (NotedKind::Of { frame, alone: true, .. }, Some((of, new))) if frame.as_ref() == of => {
                Event { what: event.what.referring_to(new), ..event }
            }
            _ => event,
        };
        taken.into_iter().map(refer).collect()
    }

    /// All that waits, with the next checkpoint of the root frame if there is
    /// one, committed `now`.
    pub(super) fn take_all(&self, next: Option<&NewCheckpoint>, now: Timestamp) -> Vec<Event> {
        let mut events = self.take(|_, _| true, next.map(|new| (None, new)));
        if let Some(new) = next.filter(|_| self.on) {
            events.push(Event { at: now, what: What::Values(new.seq, None) });
        }
        events
    }
}
