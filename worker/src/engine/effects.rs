//! What bodies do, made durable before they go on.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use countersign_kernel::address::Address;
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::{CheckpointId, FrameId, ThreadId};
use countersign_kernel::machine::{Migrated, Position, Source, StepChanges, TaskEvent};
use countersign_kernel::ports::{Clock, EffectError, Effects, FrameStep};
use countersign_kernel::state::Change;
use countersign_kernel::time::Timestamp;
use serde_json::Value;

use super::activation::index_changes;
use super::gather::Gathered;
use super::leases::Trust;
use super::lock;
use crate::store::commands::{
    Fence, FrameCommit, FrameFlush, FrameOwner, KeyAt, KeyIndex, LoadedFrame, NewCheckpoint, StepResult,
};
use crate::store::{AppendEvents, Event, Store, StoreError, What};
use crate::tally::Count;

/// Where the rows of a frame stand.
#[derive(Debug, Clone, Default)]
pub(super) struct Rows {
    pub(super) seq: i64,
    pub(super) branch: i64,
    pub(super) keys: KeyIndex,
    /// The newest checkpoint; of a frame whose rows are not read yet, none.
    pub(super) head: Option<CheckpointId>,
}

impl Rows {
    pub(super) fn of(frame: &LoadedFrame) -> (FrameId, Self) {
        let rows = Self {
            seq: frame.seq,
            branch: frame.branch,
            keys: frame.keys.clone(),
            head: Some(frame.checkpoint.id.clone()),
        };
        (frame.frame.clone(), rows)
    }
}

impl Rows {
    /// What a migration did to the checkpoint on which the next one builds.
    fn migrated<'p>(&self, position: &'p Position) -> Option<&'p Migrated> {
        Some(&position.migrated).filter(|migrated| migrated.at.is_some() && migrated.at == self.head)
    }
}

/// Where the rows of the inner frames of a thread stand.
pub(super) type FrameRows = Arc<Mutex<HashMap<FrameId, Rows>>>;

/// Writes results under the fence of one activation.
pub(super) struct StoreEffects {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) thread: ThreadId,
    pub(super) fence: Fence,
    pub(super) trust: Trust,
    pub(super) seq: i64,
    /// The newest checkpoint of the root frame.
    pub(super) head: CheckpointId,
    pub(super) rows: FrameRows,
    pub(super) gathered: Arc<Gathered>,
}

fn lost(error: StoreError) -> EffectError {
    match error {
        StoreError::Fenced => EffectError::LeaseLost,
        other => EffectError::Store(other.to_string()),
    }
}

/// The first or next checkpoint of a frame, and who runs it if it is new.
/// `root` is the number and the id of the root frame's checkpoint.
pub(super) fn frame_commit(
    rows: &FrameRows,
    root: (i64, &CheckpointId),
    frame: &FrameId,
    step: &FrameStep<'_>,
) -> FrameCommit {
    let mut rows = lock(rows);
    let is_new = !rows.contains_key(frame);
    let around = match step.parent {
        None => root.1.clone(),
        Some(parent) => rows.get(parent).and_then(|at| at.head.clone()).unwrap_or_else(|| step.planned_by.clone()),
    };
    let at = rows.entry(frame.clone()).or_default();
    let owner = is_new.then(|| FrameOwner {
        parent: step.parent.cloned(),
        root_seq: root.0,
        task: step.task.to_owned(),
        around,
        address: step.position.place.address.clone(),
        graph: step.graph.name().to_owned(),
    });
    let checkpoint = step.changes.map(|changes| {
        if !is_new {
            at.seq += 1;
        }
        checkpoint_of(step.graph, step.position, changes.clone(), at)
    });
    // An amendment takes the records of its superstep along.
    let amends = checkpoint.is_some() && step.position.checkpoint.source == Source::Amend;
    let carry_from = (amends && !is_new).then_some(at.seq - 1);
    let tasks = step.tasks.iter().filter_map(|&index| step.position.tasks.get(index));
    FrameCommit {
        frame: frame.clone(),
        owner,
        checkpoint,
        carry_from,
        seq: at.seq,
        body: None,
        tasks: tasks.map(|task| (task.plan.key.clone(), task.record.to_store())).collect(),
    }
}

/// The checkpoint at which a position stands, as the store writes it; `rows`
/// says where its rows go and learns where its keys lie.
pub(super) fn checkpoint_of(
    graph: &CompiledGraph,
    position: &Position,
    changes: StepChanges,
    rows: &mut Rows,
) -> NewCheckpoint {
    let migrated = rows.migrated(position);
    let changes = whole_where_needed(graph, position, changes, rows, migrated);
    rows.head = Some(position.checkpoint.id.clone());
    index_changes(&mut rows.keys, &changes, rows.seq, rows.branch);
    NewCheckpoint {
        checkpoint: position.checkpoint.clone(),
        seq: rows.seq,
        branch: rows.branch,
        graph_version: graph.version(),
        fingerprint: graph.fingerprint().to_owned(),
        body: position.body(),
        keys: rows.keys.clone(),
        changes,
    }
}

/// Changes as they can be stored. Keys that a migration changed are written
/// whole; so is a list that lies in one piece so far, once. Lists go to a line
/// of their own then, where no row of theirs lies yet.
fn whole_where_needed(
    graph: &CompiledGraph,
    position: &Position,
    changes: StepChanges,
    rows: &mut Rows,
    migrated: Option<&Migrated>,
) -> StepChanges {
    let of_migration = |key: &String| migrated.is_some_and(|m| m.changed.contains(key) || m.removed.contains(key));
    let in_one_piece = |key: &String| matches!(rows.keys.get(key), Some(KeyAt::Value(_)));
    let mut whole: BTreeSet<String> =
        migrated.iter().flat_map(|m| m.changed.iter().chain(&m.removed)).cloned().collect();
    let mut stored = StepChanges::new();
    for (key, change) in changes {
        match change {
            _ if of_migration(&key) => {}
            Change::Appended(_) if in_one_piece(&key) => _ = whole.insert(key),
            change => stored.push((key, change)),
        }
    }
    let mut of_own_line = false;
    for key in whole {
        rows.keys.remove(&key);
        if let Some(change) = position.whole(graph, &key) {
            of_own_line |= matches!(change, Change::Appended(_));
            stored.push((key, change));
        }
    }
    if of_own_line {
        rows.branch = rows.seq;
    }
    stored
}

impl StoreEffects {
    /// What is told with a superstep of an inner frame, or with records of its
    /// tasks.
    fn events_of(&self, commit: &FrameCommit, now: Timestamp) -> Vec<Event> {
        let here = |frame: Option<&FrameId>| frame == Some(&commit.frame);
        let Some(new) = &commit.checkpoint else {
            let tasks: HashSet<&str> = commit.tasks.iter().map(|(task, _)| task.as_str()).collect();
            return self.gathered.take(|frame, task| here(frame) && tasks.contains(task), None);
        };
        let mut events = self.gathered.take(|frame, _| here(frame), Some((Some(&commit.frame), new)));
        if self.gathered.is_on() {
            events.push(Event { at: now, what: What::Values(new.seq, Some(commit.frame.clone())) });
        }
        events
    }
}

#[async_trait]
impl Effects for StoreEffects {
    fn may_begin(&self) -> Result<(), EffectError> {
        if self.trust.holds() { Ok(()) } else { Err(EffectError::LeaseLost) }
    }

    async fn record(
        &self,
        frame: Option<&FrameId>,
        occurrence: &Address,
        name: &str,
        result: &Value,
    ) -> Result<(), EffectError> {
        let seq = match frame {
            None => self.seq,
            Some(frame) => lock(&self.rows).get(frame).map_or(0, |rows| rows.seq),
        };
        let result = StepResult {
            thread: self.thread.clone(),
            fence: self.fence,
            frame: frame.cloned(),
            seq,
            occurrence: occurrence.clone(),
            name: name.to_owned(),
            result: result.clone(),
            now: self.clock.now(),
        };
        self.store.record_result(result).await.map_err(lost)
    }

    async fn frame(&self, step: FrameStep<'_>) -> Result<(), EffectError> {
        let Some(frame) = step.position.place.id.clone() else { return Ok(()) };
        let commit = frame_commit(&self.rows, (self.seq, &self.head), &frame, &step);
        let (thread, fence, now) = (self.thread.clone(), self.fence, self.clock.now());
        let events = self.events_of(&commit, now);
        let advances = commit.checkpoint.is_some();
        self.store.flush_frame(FrameFlush { thread, fence, commit, events, now }).await.map_err(lost)?;
        if advances {
            self.store.tally().add(Count::Supersteps);
        }
        Ok(())
    }

    async fn emit(&self, occurrence: &Address, event: &Value) -> Result<(), EffectError> {
        if !self.gathered.is_on() {
            return Ok(());
        }
        let mut events = self.gathered.take(|_, _| false, None);
        let (thread, fence, now) = (self.thread.clone(), self.fence, self.clock.now());
        events.push(Event { at: now, what: What::Custom(occurrence.to_string(), event.clone()) });
        self.store.append_events(AppendEvents { thread, fence, events, now }).await.map_err(lost)
    }

    fn note(&self, event: TaskEvent<'_>) {
        self.gathered.note(event);
    }
}
