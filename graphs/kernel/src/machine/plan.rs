//! What happens next, and how a body's end is recorded.

use std::sync::Arc;

use super::{Position, Task, TaskStatus};
use crate::context::{TaskRecordAfter, TaskScope};
use crate::graph::CompiledGraph;
use crate::limits;
use crate::node::{NodeError, NodeResult, Outcome};
use crate::occurrence::QuestionState;
use crate::ports::Effects;
use crate::state::{Change, StateView};
use crate::time::Timestamp;

use super::task::StoredOutcome;

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

/// How a thread rests.
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
    /// What happens next.
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

    /// What task `index` needs to run. Takes its record; hand it back through
    /// [`complete`](Self::complete).
    pub fn scope(
        &mut self,
        graph: &CompiledGraph,
        index: usize,
        effects: Arc<dyn Effects>,
        now: Timestamp,
    ) -> TaskScope {
        let resume_all = self.resume_all;
        let Task { plan, record } = &mut self.tasks[index];
        TaskScope {
            address: plan.address.clone(),
            planned_by: plan.planned_by.clone(),
            salt: self.salt,
            state: Arc::clone(&self.state),
            argument: plan.argument.clone().map(Arc::new),
            occurrences: std::mem::take(&mut record.occurrences),
            now,
            resume_all,
            retry: record.retry,
            payload_bytes: graph.limits.payload_bytes,
            resources: Arc::clone(&graph.resources),
            effects,
        }
    }

    /// Records how a task's body ended. A lost lease is the driver's affair
    /// and records nothing.
    pub fn complete(
        &mut self,
        graph: &CompiledGraph,
        index: usize,
        after: TaskRecordAfter,
        result: NodeResult<Outcome>,
    ) {
        let alone = self.tasks.len() == 1;
        let task = &mut self.tasks[index];
        let record = &mut task.record;
        record.retry = false;
        record.occurrences = after.occurrences;
        record.error = None;
        for question in record.occurrences.questions_mut() {
            question.fresh = false;
        }
        let outcome = match result {
            _ if after.waits => {
                // A task that waits beside a failure of its own has failed:
                // the failure must be seen, and its points stay answerable.
                if let Err(NodeError::Failed(message)) = result {
                    record.status = TaskStatus::Failed;
                    record.error = Some(message);
                } else {
                    record.status = TaskStatus::Waiting;
                }
                return;
            }
            Ok(outcome) => outcome,
            Err(NodeError::Failed(message)) => {
                record.status = TaskStatus::Failed;
                record.error = Some(message);
                return;
            }
            Err(NodeError::Interrupted | NodeError::LeaseLost) => {
                record.status = TaskStatus::Failed;
                record.error = Some("the body returned `Interrupted` although it asked nothing".into());
                return;
            }
        };
        match finish(graph, &task.plan.node, &self.state, outcome, alone) {
            Ok(stored) => {
                record.status = TaskStatus::Done;
                record.outcome = Some(stored);
                // What it did not ask again, it no longer waits for (K20).
                for question in record.occurrences.questions_mut().filter(|q| q.is_open()) {
                    question.state = QuestionState::Superseded;
                }
            }
            Err(message) => {
                record.status = TaskStatus::Failed;
                record.error = Some(message);
            }
        }
    }
}

/// Checks a finished node's writes, and decides its conditions if it is not
/// alone in its superstep (alone, they are decided on the settled state, which
/// is the same and costs no copy).
fn finish(
    graph: &CompiledGraph,
    node: &str,
    state: &StateView,
    outcome: Outcome,
    alone: bool,
) -> Result<StoredOutcome, String> {
    let writes = outcome.writes.into_entries()?;
    for (key, value) in &writes {
        limits::check(
            &format!("the value written to `{key}`"),
            "state_key_bytes",
            value,
            graph.limits.state_key_bytes,
        )?;
        if !graph.keys.contains_key(key) {
            return Err(format!("the node writes the key `{key}`, which the graph does not declare"));
        }
    }
    let targets = if alone || !graph.branches.contains_key(node) {
        // Reduced here all the same, so that a wrong type fails its own node.
        reduce_writes(graph, state, &writes)?;
        None
    } else {
        let changes = reduce_writes(graph, state, &writes)?;
        let mut values = state.values().clone();
        for (key, change) in &changes {
            values.apply(key, change);
        }
        Some(decide(graph, node, &StateView::new(values))?)
    };
    Ok(StoredOutcome { writes, targets })
}

/// Several writes of one body to one key combine first.
pub(super) fn reduce_writes(
    graph: &CompiledGraph,
    state: &StateView,
    writes: &[(String, serde_json::Value)],
) -> Result<Vec<(String, Change)>, String> {
    let mut changes: Vec<(String, Change)> = Vec::with_capacity(writes.len());
    for (key, value) in writes {
        let Some(spec) = graph.keys.get(key) else {
            return Err(format!("the key `{key}` is not declared"));
        };
        let known = changes.iter().position(|(changed, _)| changed == key);
        let current = known.and_then(|i| match &changes[i].1 {
            Change::Set(value) => Some(value.clone()),
            Change::Appended(_) => None,
        });
        let current = current.as_ref().or_else(|| state.values().get(key));
        let change = spec.reducer.reduce(key, current, value.clone()).map_err(|fault| fault.to_string())?;
        match (known, change) {
            (Some(i), Change::Appended(more)) => {
                if let Change::Appended(items) = &mut changes[i].1 {
                    items.extend(more);
                }
            }
            (Some(i), change @ Change::Set(_)) => changes[i].1 = change,
            (None, change) => changes.push((key.clone(), change)),
        }
    }
    Ok(changes)
}

/// Where a node's conditions lead on `state`.
pub(super) fn decide(graph: &CompiledGraph, node: &str, state: &StateView) -> Result<Vec<String>, String> {
    let mut targets = Vec::new();
    for branch in graph.branches.get(node).into_iter().flatten() {
        for target in branch(state)? {
            if target != crate::graph::END_NAME && !graph.nodes.contains_key(&target) {
                return Err(format!("the condition after `{node}` leads to `{target}`, which is no node"));
            }
            targets.push(target);
        }
    }
    Ok(targets)
}
