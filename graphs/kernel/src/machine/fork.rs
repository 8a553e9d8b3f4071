//! Going back to a checkpoint, of the thread or of a graph inside it (R13).

use std::collections::BTreeMap;

use super::edit::EditRefused;
use super::{Checkpoint, CheckpointBody, FramePlace, Outside, Position};
use crate::address::Address;
use crate::graph::CompiledGraph;
use crate::ids::FrameId;
use crate::state::Values;

/// A checkpoint as an archive gives it back.
#[derive(Debug, Clone)]
pub struct Archived {
    /// The inner frame it belongs to; `None` is the root frame.
    pub frame: Option<FrameId>,
    /// The task around it that ran the frame.
    pub task: Option<String>,
    /// Its identity.
    pub checkpoint: Checkpoint,
    /// Its tasks, arrivals and stops.
    pub body: CheckpointBody,
    /// The state at the start of its superstep.
    pub values: Values,
}

impl Archived {
    /// The root frame at this checkpoint, its tasks not run.
    #[must_use]
    pub fn restore(self, graph: &CompiledGraph, salt: [u8; 16]) -> Position {
        self.restore_at(graph, salt, FramePlace::root(graph))
    }

    fn restore_at(self, graph: &CompiledGraph, salt: [u8; 16], place: FramePlace) -> Position {
        Position::restore(salt, place, self.checkpoint, self.body, self.values, BTreeMap::new()).adopt(graph)
    }
}

/// Forks a thread: a new checkpoint that starts over from the last one of
/// `chain`. A chain of one is a checkpoint of the thread itself; a longer one
/// leads, outermost first, to a checkpoint inside, and the graphs around it
/// start over from where they ran it.
///
/// # Errors
/// [`EditRefused::NothingPending`] when nothing is planned there;
/// [`EditRefused::UnknownFrame`] when only a body knows the graph of a frame.
pub fn fork(
    graph: &CompiledGraph,
    salt: [u8; 16],
    chain: Vec<Archived>,
    outside: Outside<'_>,
) -> Result<Position, EditRefused> {
    let mut chain = chain.into_iter();
    let Some(root) = chain.next() else { return Err(EditRefused::NothingPending) };
    let mut position = root.restore(graph, salt);
    position.replay(outside)?;
    let (mut around, mut graph) = (&mut position, graph);
    for archived in chain {
        let (Some(frame), Some(key)) = (archived.frame.clone(), archived.task.clone()) else {
            return Err(EditRefused::NothingPending);
        };
        let unknown = || EditRefused::UnknownFrame(frame.clone());
        let task = around.tasks.iter().find(|task| task.plan.key == key).ok_or_else(unknown)?;
        let address: Address = task.plan.address.clone();
        let inner = graph.nodes.get(&task.plan.node).and_then(|node| node.subgraph()).ok_or_else(unknown)?;
        let inside = archived.restore_at(inner, salt, FramePlace { id: None, address });
        around = around.replay_inside(&key, inside, outside)?;
        graph = inner;
    }
    Ok(position)
}
