//! From a finished superstep to the next checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::complete::{decide, reduce_writes};
use super::points::BorderReason;
use super::route::Due;
use super::{Checkpoint, Outside, Position, Source, TaskStatus};
use crate::graph::CompiledGraph;
use crate::ids::CheckpointId;
use crate::node::Outcome;
use crate::state::{Change, Reducer, StateView, Writes};

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
    /// edges, joins, conditions, gotos and sends, and makes the next checkpoint
    /// with its breakpoints. Call when [`next`](Self::next) says
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

        let mut due = Due::default();
        for index in 0..self.tasks.len() {
            match self.targets_of(graph, index) {
                Ok(targets) => targets.into_iter().for_each(|target| due.add(target)),
                Err(message) => {
                    self.state = undo.revert(&self.state);
                    self.fail(index, message);
                    return Settled::Refused;
                }
            }
            due.follow(graph, &self.tasks[index].plan.node);
        }
        let finished: BTreeSet<String> = self.tasks.iter().map(|task| task.plan.node.clone()).collect();
        let before = (self.arrivals.clone(), self.deferred.clone());
        self.clear_joins(graph);
        self.arrive(graph, &finished);
        // Planned nodes have left the waiting room.
        self.deferred.retain(|node| !finished.contains(node));
        let checkpoint = self.following(outside, Source::Loop);
        let tasks = match self.plan(graph, &checkpoint, due) {
            Ok(tasks) => tasks,
            Err(message) => {
                (self.arrivals, self.deferred) = before;
                self.state = undo.revert(&self.state);
                (0..self.tasks.len()).for_each(|index| self.fail(index, message.clone()));
                return Settled::Refused;
            }
        };
        self.checkpoint = checkpoint;
        self.tasks = tasks;
        self.border = Vec::new();
        self.ran.clone_from(&finished);
        self.stop_at_breakpoints(graph, outside, &finished);
        self.count_superstep(outside);
        Settled::Advanced(changes)
    }

    /// What the parent graph gets if a task of this finished superstep handed
    /// over to it: all such updates and targets, in task order. What the other
    /// tasks wrote ends with this graph.
    pub(crate) fn handed_over(&self) -> Option<Outcome> {
        let outcomes = self.tasks.iter().filter_map(|task| task.record.outcome.as_ref());
        let mut handing = outcomes.filter(|outcome| outcome.parent).peekable();
        handing.peek()?;
        let (mut writes, mut goto) = (Vec::new(), Vec::new());
        for outcome in handing {
            writes.extend(outcome.writes.iter().cloned());
            goto.extend(outcome.goto.iter().cloned());
        }
        Some(Outcome { writes: Writes::from_iter(writes), goto, parent: false })
    }

    fn targets_of(&self, graph: &CompiledGraph, index: usize) -> Result<Vec<crate::node::Goto>, String> {
        let task = &self.tasks[index];
        let Some(outcome) = &task.record.outcome else { return Ok(Vec::new()) };
        let mut targets = match &outcome.targets {
            Some(decided) => decided.clone(),
            None => decide(graph, &task.plan.node, &self.state)?,
        };
        targets.extend(outcome.goto.iter().cloned());
        Ok(targets)
    }

    /// The identity of the checkpoint after this one.
    pub(super) fn following(&self, outside: Outside<'_>, source: Source) -> Checkpoint {
        new_checkpoint(outside, Some(self.checkpoint.id.clone()), source, self.checkpoint.superstep + 1)
    }

    /// Breakpoints of a new border: before what is due, after what ran. In the
    /// root frame there is none after the last node; in a nested one it parks
    /// the task before its result is handed up (K12, R2).
    pub(super) fn stop_at_breakpoints(
        &mut self,
        graph: &CompiledGraph,
        outside: Outside<'_>,
        finished: &BTreeSet<String>,
    ) {
        if self.tasks.is_empty() && self.place.id.is_none() {
            return;
        }
        let before: BTreeSet<String> =
            self.tasks.iter().map(|task| task.plan.node.clone()).filter(|node| graph.break_before.has(node)).collect();
        let after: Vec<String> = finished.iter().filter(|node| graph.break_after.has(node)).cloned().collect();
        if !before.is_empty() || !after.is_empty() {
            let before = before.into_iter().collect();
            self.raise(BorderReason::Breakpoint { before, after }, outside.clock.now());
        }
    }

    /// A run that has used up its supersteps parks whole, at a border, and
    /// only if something is still due (rule 94, R11).
    fn count_superstep(&mut self, outside: Outside<'_>) {
        self.budget.used += 1;
        let supersteps = self.budget.limit;
        if self.budget.used >= supersteps && !self.tasks.is_empty() {
            self.raise(BorderReason::RecursionLimit { supersteps }, outside.clock.now());
        }
    }

    /// The last-value key that two tasks wrote, if any.
    fn conflict(&self, graph: &CompiledGraph) -> Option<String> {
        if self.tasks.len() < 2 {
            return None;
        }
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
        let names: Vec<String> = writers.iter().map(|&i| self.tasks[i].plan.key.clone()).collect();
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
        self.tasks[index].unsaved.0 = true;
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
