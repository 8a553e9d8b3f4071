//! What happens next, and what a task needs to run.

use std::sync::Arc;

use super::{Position, RunAs, Task, TaskChange, TaskEvent, TaskStatus};
use crate::context::TaskScope;
use crate::graph::CompiledGraph;
use crate::ports::Host;

/// What a position asks of whoever drives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Run these tasks (indices into [`Position::tasks`]), side by side.
    Run(Vec<usize>),
    /// All tasks have finished: settle the superstep.
    Settle,
    /// Nothing can run.
    Rest(Rest),
}

/// How a frame rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Something is open.
    Parked,
    /// A task failed; open points stay answerable (R12).
    Failed,
    /// Nothing is left to do.
    Succeeded,
}

impl Position {
    /// What happens next. A stop is the end of an attempt, never of a part of
    /// it: all tasks that can run do (K4).
    #[must_use]
    pub fn next(&self) -> Next {
        if self.border.iter().any(|point| !point.released) {
            return Next::Rest(Rest::Parked);
        }
        if self.tasks.is_empty() {
            return Next::Rest(Rest::Succeeded);
        }
        let run: Vec<usize> = (0..self.tasks.len()).filter(|&i| self.tasks[i].is_runnable(self.resume_all)).collect();
        if !run.is_empty() {
            return Next::Run(run);
        }
        let any = |status| self.tasks.iter().any(|task| task.record.status == status);
        if any(TaskStatus::Failed) {
            Next::Rest(Rest::Failed)
        } else if any(TaskStatus::Waiting) {
            Next::Rest(Rest::Parked)
        } else {
            Next::Settle
        }
    }

    /// Whether something can run or settle here, or a stop after the last node
    /// was passed, so that the result can be handed up (R2).
    #[must_use]
    pub fn can_go_on(&self) -> bool {
        let released = self.border.iter().all(|point| point.released);
        released
            && match self.tasks.as_slice() {
                [] => !self.border.is_empty(),
                tasks => {
                    tasks.iter().any(|task| task.is_runnable(self.resume_all))
                        || tasks.iter().all(|task| task.record.status == TaskStatus::Done)
                }
            }
    }

    /// Whether nothing is left to do here but to hand the result up.
    pub(super) fn has_ended(&self) -> bool {
        !self.has_open() && self.tasks.iter().all(|task| task.record.status == TaskStatus::Done)
    }

    /// What task `index` needs to run, which watchers are told of (K22). Takes
    /// its record; hand it back through
    /// [`complete`](Self::complete) or [`put_back`](Self::put_back).
    pub fn scope(&mut self, graph: &CompiledGraph, index: usize, host: Arc<Host>) -> TaskScope {
        let resume_all = self.resume_all;
        let Task { plan, record, .. } = &mut self.tasks[index];
        let change = TaskChange::Started(RunAs::of(record, resume_all));
        host.effects.note(TaskEvent { frame: self.place.id.as_ref(), task: plan, change });
        // Stored as absent when it is null.
        let argument = plan.argument.clone().or_else(|| plan.is_sent().then_some(serde_json::Value::Null));
        TaskScope {
            address: plan.address.clone(),
            frame: self.place.id.clone(),
            task: plan.key.clone(),
            planned_by: plan.planned_by.clone(),
            salt: self.salt,
            state: Arc::clone(&self.state),
            argument: argument.map(Arc::new),
            occurrences: std::mem::take(&mut record.occurrences),
            frames: std::mem::take(&mut record.frames),
            now: host.clock.now(),
            resume_all,
            retry: record.retry,
            payload_bytes: graph.limits.payload_bytes,
            supersteps: self.budget.limit,
            resources: Arc::clone(&graph.resources),
            host,
        }
    }
}
