//! How a body's end is recorded.

use std::sync::Arc;

use super::task::{StoredOutcome, Task};
use super::{Position, TaskStatus};
use crate::context::TaskRecordAfter;
use crate::graph::{CompiledGraph, END_NAME};
use crate::limits;
use crate::node::{Goto, NodeError, NodeResult, Outcome};
use crate::occurrence::QuestionState;
use crate::state::{Change, StateView};

impl Position {
    /// Records how a task's body ended, and tells watchers (K22). A lost lease
    /// is the driver's affair and records nothing.
    pub fn complete(
        &mut self,
        graph: &CompiledGraph,
        index: usize,
        after: TaskRecordAfter,
        result: NodeResult<Outcome>,
    ) {
        let host = Arc::clone(&after.host);
        self.record_end(graph, index, after, result);
        self.note_end(index, host.effects.as_ref());
    }

    fn record_end(&mut self, graph: &CompiledGraph, index: usize, after: TaskRecordAfter, result: NodeResult<Outcome>) {
        let alone = self.tasks.len() == 1;
        let nested = self.place.id.is_some();
        let Task { plan, record, unsaved } = &mut self.tasks[index];
        unsaved.0 = true;
        record.retry = false;
        record.occurrences = after.occurrences;
        record.frames = after.frames;
        record.passed_by = record.frames.values().any(Self::can_go_on);
        record.error = None;
        record.occurrences.consume();
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
            Err(NodeError::HandOver(outcome)) => *outcome,
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
        let finished = if !outcome.parent {
            finish(graph, &plan.node, &self.state, outcome, alone)
        } else if nested {
            // Checked by the parent, whose keys and nodes they name.
            outcome.writes.into_entries().map(|writes| StoredOutcome {
                writes,
                goto: outcome.goto,
                targets: Some(Vec::new()),
                parent: true,
                version: None,
            })
        } else {
            Err("the node hands over to a parent, and this graph has none".into())
        };
        match finished {
            Ok(stored) => {
                record.status = TaskStatus::Done;
                record.outcome = Some(stored);
                // What it did not ask again, it no longer waits for (K20). A graph
                // that has ended stays until the superstep settles: should that
                // be refused, nothing in it is done twice.
                record.frames.retain(|_, frame| frame.has_ended());
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

    /// Takes back the record of a task whose body was dropped before its end:
    /// what it recorded is kept, and it runs again with the same input (K9).
    pub fn put_back(&mut self, index: usize, after: TaskRecordAfter) {
        let Task { record, unsaved, .. } = &mut self.tasks[index];
        unsaved.0 = true;
        record.occurrences = after.occurrences;
        record.frames = after.frames;
        record.status = TaskStatus::Pending;
        self.note_end(index, after.host.effects.as_ref());
    }
}

/// Checks a finished node's writes and targets, and decides its conditions if
/// it is not alone in its superstep (alone, they are decided on the settled
/// state, which is the same and costs no copy).
fn finish(
    graph: &CompiledGraph,
    node: &str,
    state: &StateView,
    outcome: Outcome,
    alone: bool,
) -> Result<StoredOutcome, String> {
    let writes = outcome.writes.into_entries()?;
    check_writes(graph, &writes)?;
    for target in &outcome.goto {
        check_target(graph, target, || format!("the node `{node}`"))?;
    }
    // Reduced here all the same, so that a wrong type fails its own node.
    let changes = reduce_writes(graph, state, &writes)?;
    let targets = if alone || !graph.branches.contains_key(node) {
        None
    } else {
        let mut values = state.values().clone();
        for (key, change) in &changes {
            values.apply(key, change);
        }
        Some(decide(graph, node, &StateView::new(values))?)
    };
    Ok(StoredOutcome { writes, goto: outcome.goto, targets, parent: false, version: Some(graph.version) })
}

/// Sizes and names of what is written to the state.
pub(super) fn check_writes(graph: &CompiledGraph, writes: &[(String, serde_json::Value)]) -> Result<(), String> {
    for (key, value) in writes {
        if !graph.keys.contains_key(key) {
            return Err(format!("the node writes the key `{key}`, which the graph does not declare"));
        }
        let what = || format!("the value written to `{key}`");
        limits::check(what, "state_key_bytes", value, graph.limits.state_key_bytes)?;
    }
    Ok(())
}

/// Refuses a target that is no node.
pub(super) fn check_target(graph: &CompiledGraph, target: &Goto, who: impl FnOnce() -> String) -> Result<(), String> {
    let known = match target {
        Goto::Node(node) => node == END_NAME || graph.nodes.contains_key(node),
        Goto::Send { node, .. } => graph.nodes.contains_key(node),
    };
    if known { Ok(()) } else { Err(format!("{} leads to `{}`, which is no node", who(), target.node())) }
}

/// Several writes to one key combine in order.
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
        let before = match known {
            Some(i) => match std::mem::replace(&mut changes[i].1, Change::Appended(Vec::new())) {
                Change::Set(value) => Some(value),
                Change::Appended(mut items) => {
                    let more = spec.reducer.appended(key, value.clone()).map_err(|fault| fault.to_string())?;
                    items.extend(more);
                    changes[i].1 = Change::Appended(items);
                    continue;
                }
            },
            None => match state.values().get(key).and_then(|value| spec.reducer.unfit(key, value)) {
                // Of another version of the graph: reducing would drop it.
                Some(fault) => return Err(fault.to_string()),
                None => None,
            },
        };
        let change = match before {
            Some(before) => spec.reducer.reduce_onto(key, before, value.clone()),
            None => spec.reducer.reduce(key, state.values().get(key), value.clone()),
        };
        let change = change.map_err(|fault| fault.to_string())?;
        match known {
            Some(i) => changes[i].1 = change,
            None => changes.push((key.clone(), change)),
        }
    }
    Ok(changes)
}

/// Where a node's conditions lead on `state`.
pub(super) fn decide(graph: &CompiledGraph, node: &str, state: &StateView) -> Result<Vec<Goto>, String> {
    let mut targets = Vec::new();
    for branch in graph.branches.get(node).into_iter().flatten() {
        for target in branch(state)? {
            check_target(graph, &target, || format!("the condition after `{node}`"))?;
            targets.push(target);
        }
    }
    Ok(targets)
}
