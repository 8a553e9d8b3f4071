//! From a finished superstep to the next checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::plan::{decide, reduce_writes};
use super::points::BorderReason;
use super::{Checkpoint, Outside, PlannedTask, Position, Source, Task, TaskStatus};
use crate::address::Address;
use crate::graph::{CompiledGraph, END_NAME};
use crate::ids::CheckpointId;
use crate::limits;
use crate::state::{Change, Reducer, StateView};

/// What a superstep did to the state, key by key.
pub type StepChanges = Vec<(String, Change)>;

/// How settling went.
#[derive(Debug, Clone, PartialEq)]
pub enum Settled {
    /// There is a new checkpoint; the changes led to its state.
    Advanced(StepChanges),
    /// The superstep cannot be applied; the tasks at fault have failed and the
    /// state is as before (rule 47).
    Refused,
}

impl Position {
    /// Applies a finished superstep: reduces the writes in task order, follows
    /// edges, joins and conditions, and makes the next checkpoint with its
    /// breakpoints. Call when [`next`](Self::next) says
    /// [`Settle`](super::Next::Settle).
    pub fn settle(&mut self, graph: &CompiledGraph, outside: Outside<'_>) -> Settled {
        if let Some(key) = self.conflict(graph) {
            self.fail_writers(&key);
            return Settled::Refused;
        }
        let changes = match self.reduce_all(graph) {
            Ok(changes) => changes,
            Err((writers, message)) => {
                for index in writers {
                    self.fail(index, message.clone());
                }
                return Settled::Refused;
            }
        };
        let undo = Undo::of(&self.state, &changes);
        // Taken out, so that its count is one and it changes in place.
        self.state = StateView::changed(std::mem::take(&mut self.state), graph.codec.as_ref(), &changes);

        let mut targets = BTreeSet::new();
        for index in 0..self.tasks.len() {
            let node = self.tasks[index].plan.node.clone();
            let decided = match self.tasks[index].record.outcome.as_ref().and_then(|o| o.targets.clone()) {
                Some(decided) => decided,
                None => match decide(graph, &node, &self.state) {
                    Ok(decided) => decided,
                    Err(message) => {
                        self.state = undo.revert(&self.state);
                        self.fail(index, message);
                        return Settled::Refused;
                    }
                },
            };
            targets.extend(decided);
            targets.extend(graph.edges.get(&node).into_iter().flatten().cloned());
        }
        let finished: BTreeSet<String> = self.tasks.iter().map(|task| task.plan.node.clone()).collect();
        let arrivals = self.arrivals.clone();
        targets.extend(self.arrive(graph, &finished));
        targets.remove(END_NAME);
        if let Err(message) = limits::check_tasks(targets.len(), graph.limits.tasks_per_superstep) {
            self.arrivals = arrivals;
            self.state = undo.revert(&self.state);
            (0..self.tasks.len()).for_each(|index| self.fail(index, message.clone()));
            return Settled::Refused;
        }

        self.advance(graph, outside, Source::Loop, targets);
        self.stop_at_breakpoints(graph, outside, &finished);
        Settled::Advanced(changes)
    }

    /// Moves to a new checkpoint that runs `targets` next.
    pub(super) fn advance(
        &mut self,
        graph: &CompiledGraph,
        outside: Outside<'_>,
        source: Source,
        targets: BTreeSet<String>,
    ) {
        let parent = self.checkpoint.id.clone();
        let superstep = self.checkpoint.superstep + 1;
        self.checkpoint = new_checkpoint(outside, Some(parent), source, superstep);
        self.tasks = plan_tasks(graph, &self.checkpoint, targets);
        self.border = Vec::new();
    }

    /// Breakpoints of a new border: before what is due, after what ran. None
    /// after the last node of the root frame (K12, R2).
    pub(super) fn stop_at_breakpoints(
        &mut self,
        graph: &CompiledGraph,
        outside: Outside<'_>,
        finished: &BTreeSet<String>,
    ) {
        if self.tasks.is_empty() {
            return;
        }
        let before: Vec<String> =
            self.tasks.iter().map(|task| task.plan.node.clone()).filter(|node| graph.break_before.has(node)).collect();
        let after: Vec<String> = finished.iter().filter(|node| graph.break_after.has(node)).cloned().collect();
        if !before.is_empty() || !after.is_empty() {
            self.raise(graph, BorderReason::Breakpoint { before, after }, outside.clock.now());
        }
    }

    /// The last-value key that two tasks wrote, if any.
    fn conflict(&self, graph: &CompiledGraph) -> Option<String> {
        let mut writers: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, task) in self.tasks.iter().enumerate() {
            for (key, _) in task.record.outcome.iter().flat_map(|outcome| &outcome.writes) {
                if graph.keys.get(key).is_some_and(|spec| spec.reducer == Reducer::Last)
                    && *writers.entry(key).or_insert(index) != index
                {
                    return Some(key.clone());
                }
            }
        }
        None
    }

    fn writers(&self, key: &str) -> Vec<usize> {
        let writes = |i: &usize| {
            self.tasks[*i].record.outcome.iter().any(|outcome| outcome.writes.iter().any(|(k, _)| k == key))
        };
        (0..self.tasks.len()).filter(writes).collect()
    }

    fn fail_writers(&mut self, key: &str) {
        let writers = self.writers(key);
        let names: Vec<String> = writers.iter().map(|&i| self.tasks[i].plan.node.clone()).collect();
        for index in writers {
            self.fail(
                index,
                format!(
                    "concurrent_update: {} wrote the last-value key `{key}` in one superstep; \
                     give the key a reducer or let one node write it",
                    names.join(" and ")
                ),
            );
        }
    }

    fn fail(&mut self, index: usize, message: String) {
        let record = &mut self.tasks[index].record;
        record.status = TaskStatus::Failed;
        record.outcome = None;
        record.error = Some(message);
    }

    fn reduce_all(&self, graph: &CompiledGraph) -> Result<StepChanges, (Vec<usize>, String)> {
        // One list of all writes in task order: sums and merges of different
        // tasks build on each other, appends follow each other.
        let mut all = Vec::new();
        for task in &self.tasks {
            all.extend(task.record.outcome.iter().flat_map(|outcome| outcome.writes.iter().cloned()));
        }
        reduce_writes(graph, &self.state, &all).map_err(|message| {
            // Each task's own writes fit (checked when it finished), so the
            // fault lies with those who wrote the same key together.
            let faulty = |key: &str| {
                let writes: Vec<_> = all.iter().filter(|(written, _)| written == key).cloned().collect();
                reduce_writes(graph, &self.state, &writes).is_err()
            };
            let key = graph.keys.keys().find(|key| faulty(key));
            (key.map_or_else(|| (0..self.tasks.len()).collect(), |key| self.writers(key)), message)
        })
    }

    /// Counts arrivals at joins; returns the targets that are complete.
    fn arrive(&mut self, graph: &CompiledGraph, finished: &BTreeSet<String>) -> Vec<String> {
        let mut complete = Vec::new();
        for (sources, target) in &graph.joins {
            let new: BTreeSet<&String> = finished.intersection(sources).collect();
            if new.is_empty() {
                continue;
            }
            let key = join_key(sources, target);
            let arrived = self.arrivals.entry(key.clone()).or_default();
            arrived.extend(new.into_iter().cloned());
            if arrived.len() == sources.len() {
                self.arrivals.remove(&key);
                complete.push(target.clone());
            }
        }
        complete
    }
}

fn join_key(sources: &BTreeSet<String>, target: &str) -> String {
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    format!("{}>{target}", sources.join("+"))
}

pub(super) fn new_checkpoint(
    outside: Outside<'_>,
    parent: Option<CheckpointId>,
    source: Source,
    superstep: u64,
) -> Checkpoint {
    // A UUID's text always has the form of an id.
    let id = CheckpointId::parse(outside.ids.uuid()).unwrap_or_else(|error| unreachable!("{error}"));
    Checkpoint { id, parent, source, superstep, created_at: outside.clock.now() }
}

pub(super) fn plan_tasks(graph: &CompiledGraph, checkpoint: &Checkpoint, targets: BTreeSet<String>) -> Vec<Task> {
    let frame = Address::graph(graph.name());
    targets
        .into_iter()
        .map(|node| Task {
            plan: PlannedTask {
                key: node.clone(),
                address: frame.node(&node, checkpoint.superstep),
                node,
                argument: None,
                planned_by: checkpoint.id.clone(),
            },
            record: super::TaskRecord::default(),
        })
        .collect()
}

/// What brings a state back to before a superstep that could not be applied.
/// Costs what the superstep wrote.
struct Undo(Vec<(String, UndoKey)>);

enum UndoKey {
    Restore(Option<Arc<serde_json::Value>>),
    Shorten(usize),
}

impl Undo {
    fn of(state: &StateView, changes: &[(String, Change)]) -> Self {
        Self(
            changes
                .iter()
                .map(|(key, change)| {
                    let undo = match change {
                        Change::Set(_) => UndoKey::Restore(state.values().shared(key)),
                        Change::Appended(items) => UndoKey::Shorten(items.len()),
                    };
                    (key.clone(), undo)
                })
                .collect(),
        )
    }

    fn revert(self, state: &StateView) -> Arc<StateView> {
        let mut values = state.values().clone();
        for (key, undo) in self.0 {
            match undo {
                UndoKey::Restore(Some(value)) => values.put(key, value),
                UndoKey::Restore(None) => values.remove(&key),
                UndoKey::Shorten(by) => {
                    if let Some(serde_json::Value::Array(list)) = values.get(&key) {
                        let kept = list[..list.len().saturating_sub(by)].to_vec();
                        values.insert(key, serde_json::Value::Array(kept));
                    }
                }
            }
        }
        Arc::new(StateView::new(values))
    }
}
