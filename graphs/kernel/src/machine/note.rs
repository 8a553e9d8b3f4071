//! What watchers are told of tasks (K22).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{PlannedTask, Position, Task, TaskRecord, TaskStatus};
use crate::ids::FrameId;
use crate::ports::Effects;

/// As what a body runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunAs {
    /// Nothing was asked of it: its first run, or one that a crash or a pause
    /// cut short.
    Fresh,
    /// Something came in for it or for a part of it.
    Target,
    /// A resume-all wakes it, and nobody answered (K10).
    ResumeAll,
    /// It failed and was told to try again (K13).
    Retry,
}

impl RunAs {
    /// The name as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Target => "target",
            Self::ResumeAll => "resume_all",
            Self::Retry => "retry",
        }
    }

    pub(super) fn of(record: &TaskRecord, resume_all: bool) -> Self {
        let target = record.occurrences.has_fresh();
        let inside = || record.frames.values().any(Position::can_go_on);
        match record.status {
            _ if target => Self::Target,
            TaskStatus::Pending => Self::Fresh,
            _ if record.retry => Self::Retry,
            _ if resume_all && !inside() => Self::ResumeAll,
            _ => Self::Target,
        }
    }
}

/// What happened to a task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TaskChange<'a> {
    /// Its body runs.
    Started(RunAs),
    /// It has finished.
    Done {
        /// What it wrote. Nothing if it handed over to the parent graph, which
        /// shows as that graph's task.
        writes: &'a [(String, Value)],
        /// Whether the superstep has no other task.
        alone: bool,
    },
    /// It has come to an open point. A stop is no error (K22).
    Waiting,
    /// It has failed, and why. Also one that was done, if the superstep cannot
    /// be applied (rule 47).
    Failed(&'a str),
    /// Its body was dropped for a pause; it runs again later (R15).
    Stopped,
}

/// Something that happened to a task, in whatever frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskEvent<'a> {
    /// The frame; `None` is the root frame.
    pub frame: Option<&'a FrameId>,
    /// The task.
    pub task: &'a PlannedTask,
    /// What happened.
    pub change: TaskChange<'a>,
}

impl Position {
    /// How the body of task `index` has ended.
    fn end_of(&self, index: usize) -> TaskEvent<'_> {
        let Task { plan: task, record, .. } = &self.tasks[index];
        let change = match record.status {
            TaskStatus::Done => {
                let own = record.outcome.as_ref().filter(|outcome| !outcome.parent);
                let writes = own.map_or(&[][..], |outcome| outcome.writes.as_slice());
                TaskChange::Done { writes, alone: self.tasks.len() == 1 }
            }
            TaskStatus::Waiting => TaskChange::Waiting,
            TaskStatus::Failed => TaskChange::Failed(record.error.as_deref().unwrap_or_default()),
            TaskStatus::Pending => TaskChange::Stopped,
        };
        TaskEvent { frame: self.place.id.as_ref(), task, change }
    }

    /// Tells watchers how the body of task `index` has ended.
    pub(super) fn note_end(&self, index: usize, effects: &dyn Effects) {
        effects.note(self.end_of(index));
    }

    /// The tasks that have failed. After a refused [`settle`](Self::settle)
    /// those are the ones at fault, for watchers to be told of.
    pub fn failed_tasks(&self) -> impl Iterator<Item = TaskEvent<'_>> {
        let failed = |index: &usize| self.tasks[*index].record.status == TaskStatus::Failed;
        (0..self.tasks.len()).filter(failed).map(|index| self.end_of(index))
    }
}
