//! How a thread stands for people: live state, sub-graphs, failures.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use countersign_kernel::address::Address;
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::{CheckpointId, FrameId, InterruptId, ThreadId};
use countersign_kernel::machine::{ParentPoint, Point, fill_neutral};
use countersign_kernel::state::Values;
use serde_json::{Map, Value};

use super::Engine;
use super::requests::RequestError;
use super::restore::{Restored, restore};
use crate::store::StoreError;
use crate::store::views::{HistoryEntry, ThreadDetail};

/// A thread as it stands, what finished tasks of its superstep have written
/// included.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadView {
    /// As the store has it.
    pub detail: ThreadDetail,
    /// The state with the writes of those tasks that have finished.
    pub values: Map<String, Value>,
    /// The nodes that have still to run, one per task, sorted.
    pub next: Vec<String>,
    /// Sub-graphs that have begun and not finished, outer ones first.
    pub frames: Vec<FrameState>,
    /// The failed tasks: the keys of the tasks that lead to each, and why.
    pub failures: Vec<(Vec<String>, String)>,
    /// The open points, as the checkpoint has them, containers left out (K4).
    pub points: Vec<Point>,
    /// The containers around each open point, nearest first (K3).
    pub parents: BTreeMap<InterruptId, Vec<ParentPoint>>,
}

/// An unfinished sub-graph.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameState {
    /// Its id.
    pub frame: FrameId,
    /// The keys of the tasks that lead to it, outermost first.
    pub path: Vec<String>,
    /// Where it runs.
    pub address: Address,
    /// Its graph.
    pub graph: String,
    /// Its newest checkpoint.
    pub checkpoint: CheckpointId,
    /// Its state, live.
    pub values: Map<String, Value>,
    /// The nodes that have still to run in it, one per task, sorted.
    pub next: Vec<String>,
}

impl Engine {
    /// A thread as it stands now. Of a thread whose graph this build lacks, or
    /// has in a version that does not fit, the store's part alone.
    ///
    /// # Errors
    /// Unknown thread; the store failed.
    pub async fn view(&self, thread: &ThreadId) -> Result<ThreadView, RequestError> {
        let (detail, mut held) = self.inner.store.look(thread).await?;
        let known: HashMap<FrameId, (CheckpointId, String)> = held
            .frames
            .iter()
            .map(|frame| (frame.frame.clone(), (frame.checkpoint.id.clone(), frame.owner.graph.clone())))
            .collect();
        let restored = self.inner.graphs.get(&held.graph).and_then(|graph| {
            let Restored { position, .. } = restore(graph, &mut held).ok()?;
            Some((graph, position))
        });
        let Some((graph, position)) = restored else {
            let (values, next) = (detail.state.clone(), detail.next.clone());
            let failures = detail.errors.iter().map(|(task, message)| (vec![task.clone()], message.clone())).collect();
            let (frames, points, parents) = (Vec::new(), Vec::new(), BTreeMap::new());
            return Ok(ThreadView { detail, values, next, frames, failures, points, parents });
        };
        let frames = position.frames(graph).into_iter().filter_map(|frame| {
            let (checkpoint, graph) = known.get(&frame.id).cloned()?;
            Some(FrameState {
                frame: frame.id,
                path: frame.path,
                address: frame.address,
                graph,
                checkpoint,
                values: frame.values,
                next: frame.next,
            })
        });
        let points = position.points();
        Ok(ThreadView {
            detail,
            values: position.live_state(graph),
            next: position.next_nodes().into_iter().map(str::to_owned).collect(),
            frames: frames.collect(),
            failures: position.failures(),
            parents: points.iter().map(|point| (point.id.clone(), point.parents.clone())).collect(),
            points,
        })
    }

    /// Checkpoints of a thread as [`Store::history`](crate::store::Store::history)
    /// gives them, with the neutral value of every key that nobody had written,
    /// as [`view`](Self::view) has it.
    ///
    /// # Errors
    /// Unknown thread; the store failed.
    pub async fn history(
        &self,
        thread: &ThreadId,
        frame: Option<&FrameId>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<HistoryEntry>, StoreError> {
        let mut entries = self.inner.store.history(thread, frame, before, limit).await?;
        let Some(newest) = entries.first() else { return Ok(entries) };
        if let Some(graph) = self.graph_of(thread, frame.map(|_| &newest.checkpoint)).await? {
            for entry in &mut entries {
                let mut values = Values::default();
                for (key, value) in std::mem::take(&mut entry.state) {
                    values.insert(key, value);
                }
                fill_neutral(&graph, &mut values);
                entry.state = values.to_object();
            }
        }
        Ok(entries)
    }

    /// The graph of a thread, or of the checkpoint of a sub-graph in it, as this
    /// build has it; `None` for one that a body called, which only the body
    /// knows.
    async fn graph_of(
        &self,
        thread: &ThreadId,
        inner: Option<&CheckpointId>,
    ) -> Result<Option<Arc<CompiledGraph>>, StoreError> {
        let root = self.inner.store.thread(thread).await?.summary.graph;
        let Some(mut graph) = self.inner.graphs.get(&root).cloned() else { return Ok(None) };
        let Some(checkpoint) = inner else { return Ok(Some(graph)) };
        let chain = self.inner.store.archived(thread, checkpoint).await?;
        for (around, inside) in chain.iter().zip(chain.iter().skip(1)) {
            let task = inside.archived.task.as_ref();
            let task = around.archived.body.tasks.iter().find(|planned| Some(&planned.key) == task);
            match task.and_then(|task| graph.node(&task.node)?.subgraph().cloned()) {
                Some(inner) => graph = inner,
                None => return Ok(None),
            }
        }
        Ok(Some(graph))
    }
}
