//! The checkpoints of a thread in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};

use crate::graph::CompiledGraph;
use crate::ids::{CheckpointId, FrameId};
use crate::machine::{Archived, Checkpoint, CheckpointBody, Position, Source, StepChanges, TaskRecord};
use crate::ports::FrameStep;
use crate::state::Values;

/// A checkpoint of the root frame, as history shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryEntry {
    /// Its identity.
    pub checkpoint: Checkpoint,
    /// The state at the start of its superstep.
    pub values: Map<String, Value>,
    /// The nodes of its tasks, one per task, sorted, whatever has become of them.
    pub next: Vec<String>,
}

/// What is kept of one checkpoint: what changed on the way to it, so that a
/// step costs what it changes.
#[derive(Debug)]
struct Entry {
    checkpoint: Checkpoint,
    body: CheckpointBody,
    changes: StepChanges,
    /// What the changes are made to, if it is not the parent's state: that
    /// state as a migration left it.
    base: Option<Values>,
    /// The frame it belongs to, and who runs it.
    owner: Option<Owner>,
}

#[derive(Debug, Clone)]
struct Owner {
    frame: FrameId,
    task: String,
    /// The checkpoint around it.
    around: CheckpointId,
}

/// All checkpoints of a thread, of all frames.
#[derive(Debug, Default)]
pub(super) struct Archive(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    /// In the order in which they were made.
    order: Vec<CheckpointId>,
    /// Those that were amended, and the newest amendment: a task carries the
    /// checkpoint that planned it, and runs on the state that it has by then.
    amended: HashMap<CheckpointId, CheckpointId>,
    by_id: HashMap<CheckpointId, Entry>,
    /// The programs that ran before, each with how many checkpoints there were
    /// when it ended.
    eras: Vec<(usize, Arc<CompiledGraph>)>,
    /// The states of checkpoints that a migration has changed.
    migrated: HashMap<CheckpointId, Values>,
}

impl Archive {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        let entries = self.entries();
        entries.by_id.values().filter(|entry| entry.owner.is_none()).count()
    }

    /// Keeps the newest checkpoint of the root frame.
    pub(super) fn keep(&self, position: &Position, changes: Option<&StepChanges>) {
        self.add(position, changes, None);
    }

    /// Keeps a new checkpoint of an inner frame.
    pub(super) fn keep_frame(&self, step: FrameStep<'_>) {
        let (Some(changes), Some(frame)) = (step.changes, &step.position.place.id) else { return };
        let amended = self.entries().amended.get(step.planned_by).cloned();
        let around = amended.unwrap_or_else(|| step.planned_by.clone());
        let owner = Owner { frame: frame.clone(), task: step.task.to_owned(), around };
        self.add(step.position, Some(changes), Some(owner));
    }

    /// Keeps a checkpoint that was made in an inner frame from outside, by an
    /// edit say: it belongs where its parent does.
    pub(super) fn keep_beside(&self, position: &Position, changes: &StepChanges) {
        let parent = position.checkpoint.parent.as_ref();
        let owner = parent.and_then(|parent| self.entries().by_id.get(parent).and_then(|entry| entry.owner.clone()));
        self.add(position, Some(changes), owner);
    }

    /// Keeps the first checkpoints of frames that a fork put into place, with
    /// all of their state: they have no earlier one of their own.
    pub(super) fn keep_inside(&self, graph: &CompiledGraph, outer: &Position) {
        for task in &outer.tasks {
            let Some(inner) = graph.node(&task.plan.node).and_then(|node| node.subgraph()) else { continue };
            for frame in task.record.frames.values() {
                let Some(id) = &frame.place.id else { continue };
                let around = task.plan.planned_by.clone();
                let owner = Owner { frame: id.clone(), task: task.plan.key.clone(), around };
                self.add(frame, Some(&frame.changes_from_none(inner)), Some(owner));
                self.keep_inside(inner, frame);
            }
        }
    }

    fn add(&self, position: &Position, changes: Option<&StepChanges>, owner: Option<Owner>) {
        let mut entries = self.entries();
        let id = position.checkpoint.id.clone();
        let frame = |owner: &Option<Owner>| owner.as_ref().map(|owner| owner.frame.clone());
        let in_line = |parent: &&CheckpointId| {
            entries.by_id.get(*parent).is_some_and(|parent| frame(&parent.owner) == frame(&owner))
        };
        let parent = position.checkpoint.parent.as_ref().filter(in_line);
        let entry = Entry {
            base: parent.and_then(|parent| entries.migrated.get(parent).cloned()),
            checkpoint: position.checkpoint.clone(),
            body: position.body(),
            changes: changes.cloned().unwrap_or_default(),
            owner,
        };
        if let (Source::Amend, Some(parent)) = (position.checkpoint.source, &position.checkpoint.parent) {
            let first = entries.amended.iter().find(|(_, newest)| *newest == parent).map(|(first, _)| first.clone());
            entries.amended.insert(first.unwrap_or_else(|| parent.clone()), id.clone());
        }
        entries.order.push(id.clone());
        entries.by_id.insert(id, entry);
    }

    /// Ends the time of a program: what there is so far was made under it.
    pub(super) fn end_era(&self, graph: Arc<CompiledGraph>) {
        let mut entries = self.entries();
        let until = entries.order.len();
        entries.eras.push((until, graph));
        // Whatever was built on those is here.
        entries.migrated.clear();
    }

    /// What follows this checkpoint builds on a state that a migration made.
    pub(super) fn rebase(&self, id: CheckpointId, values: Values) {
        self.entries().migrated.insert(id, values);
    }

    /// The program that made a checkpoint, if it was not the present one.
    pub(super) fn program_of(&self, id: &CheckpointId) -> Option<Arc<CompiledGraph>> {
        let entries = self.entries();
        let at = entries.order.iter().position(|made| made == id)?;
        entries.eras.iter().find(|(until, _)| at < *until).map(|(_, graph)| Arc::clone(graph))
    }

    /// A checkpoint with those around it, outermost first: what a fork starts
    /// from.
    pub(super) fn chain(&self, id: &CheckpointId) -> Option<Vec<Archived>> {
        let entries = self.entries();
        let mut chain = Vec::new();
        let mut next = Some(id.clone());
        while let Some(id) = next {
            let entry = entries.by_id.get(&id)?;
            chain.push(Archived {
                frame: entry.owner.as_ref().map(|owner| owner.frame.clone()),
                task: entry.owner.as_ref().map(|owner| owner.task.clone()),
                checkpoint: entry.checkpoint.clone(),
                body: entry.body.clone(),
                values: entries.values(&id),
            });
            next = entry.owner.as_ref().map(|owner| owner.around.clone());
        }
        chain.reverse();
        Some(chain)
    }

    pub(super) fn history(&self, graph: &CompiledGraph) -> Vec<HistoryEntry> {
        let entries = self.entries();
        let root = entries.order.iter().rev().filter_map(|id| entries.by_id.get(id)).filter(|e| e.owner.is_none());
        root.map(|entry| {
            let mut values = entries.values(&entry.checkpoint.id);
            crate::machine::fill_neutral(graph, &mut values);
            let mut next: Vec<String> = entry.body.tasks.iter().map(|task| task.node.clone()).collect();
            next.sort_unstable();
            HistoryEntry { checkpoint: entry.checkpoint.clone(), values: values.to_object(), next }
        })
        .collect()
    }
}

impl Entries {
    /// The state at a checkpoint: all changes on the way to it.
    fn values(&self, id: &CheckpointId) -> Values {
        let mut way = Vec::new();
        let mut next = self.by_id.get(id);
        let mut values = Values::default();
        while let Some(entry) = next {
            way.push(entry);
            if let Some(base) = &entry.base {
                values = base.clone();
                break;
            }
            let parent = entry.checkpoint.parent.as_ref().and_then(|parent| self.by_id.get(parent));
            // A frame starts from its own input.
            next = parent.filter(|parent| {
                let frame = |entry: &Entry| entry.owner.as_ref().map(|owner| owner.frame.clone());
                frame(parent) == frame(entry)
            });
        }
        for (key, change) in way.iter().rev().flat_map(|entry| &entry.changes) {
            values.apply(key, change);
        }
        values
    }
}

/// A thread as a store gives it back after a restart.
pub(super) fn reload(graph: &CompiledGraph, position: &Position) -> Position {
    let mut reloaded = bare(position).adopt(graph);
    position.each_frame(&mut |around, task, frame| {
        reloaded.insert_frame(graph, around.place.id.as_ref(), task, bare(frame));
    });
    reloaded
}

/// One frame as a store keeps it, without those inside.
pub(super) fn bare(position: &Position) -> Position {
    let mut records: BTreeMap<String, TaskRecord> = BTreeMap::new();
    for task in &position.tasks {
        let mut record = through_json(&task.record);
        for (address, occurrence) in task.record.occurrences.iter().filter(|(_, o)| !o.steps.is_empty()) {
            record.occurrences.entry(address).steps.clone_from(&occurrence.steps);
        }
        records.insert(task.plan.key.clone(), record);
    }
    let (place, checkpoint) = (position.place.clone(), position.checkpoint.clone());
    let values = position.state.values().clone();
    Position::restore(position.salt, place, checkpoint, position.body(), values, records)
}

/// What a store keeps of a record.
fn through_json(record: &TaskRecord) -> TaskRecord {
    serde_json::to_value(record).and_then(serde_json::from_value).unwrap_or_else(|_| record.to_store())
}
