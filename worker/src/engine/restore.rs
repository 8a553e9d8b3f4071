//! From what the store has to a thread as the kernel drives it: migrated to
//! this build's version of its graph, inner frames and all.

use std::collections::HashMap;
use std::sync::Arc;

use countersign_kernel::address::Address;
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::FrameId;
use countersign_kernel::machine::{Archived, FramePlace, Migrated, Misfit, Position, migrate_chain};

use super::effects::Rows;
use crate::store::commands::{Activation, LoadedFrame};
use crate::store::views::ArchivedAt;

/// A thread in the kernel's hands.
pub(super) struct Restored {
    pub(super) position: Position,
    /// Where the rows of the root frame stand.
    pub(super) root: Rows,
    /// Where those of the inner frames stand.
    pub(super) frames: HashMap<FrameId, Rows>,
    /// Frames of graphs that their nodes do not run any more.
    pub(super) strange: Vec<Misfit>,
}

/// Restores a thread. Takes its frames, state and records out of `held`.
///
/// # Errors
/// The thread is of a newer version, or a migration refused a value. Whether
/// its nodes are there is for [`Restored::misfits`] to say.
pub(super) fn restore(graph: &CompiledGraph, held: &mut Activation) -> Result<Restored, Misfit> {
    let (values, records) = (std::mem::take(&mut held.values), std::mem::take(&mut held.records));
    let (checkpoint, body) = (held.checkpoint.clone(), held.body.clone());
    let root = Rows { seq: held.seq, branch: held.branch, keys: held.keys.clone(), head: Some(checkpoint.id.clone()) };
    let place = FramePlace::root(graph);
    let position = Position::restore(held.salt, place, checkpoint, body, values, records);
    let position = position.left_under(held.graph_version).take_over(graph)?;
    let mut restored = Restored { position, root, frames: HashMap::new(), strange: Vec::new() };
    for frame in std::mem::take(&mut held.frames) {
        restored.insert(graph, held, frame)?;
    }
    Ok(restored)
}

impl Restored {
    /// Everything for which this build cannot go on with the thread.
    pub(super) fn misfits(&self, graph: &CompiledGraph) -> Vec<Misfit> {
        let mut misfits = self.position.misfits(graph);
        misfits.extend(self.strange.iter().cloned());
        misfits
    }

    fn insert(&mut self, graph: &CompiledGraph, held: &Activation, frame: LoadedFrame) -> Result<(), Misfit> {
        let (id, rows) = Rows::of(&frame);
        let LoadedFrame { owner, graph_version, checkpoint, body, values, records, .. } = frame;
        let place = FramePlace { id: Some(id.clone()), address: owner.address.clone() };
        let mut inside = Position::restore(held.salt, place, checkpoint, body, values, records);
        inside = inside.left_under(graph_version);
        if let Some((node, around, inner)) = self.runs(graph, owner.parent.as_ref(), &owner.task, &owner.address) {
            if inner.name() == owner.graph {
                inside = inside.take_over(&inner)?;
            } else {
                let (graph, version) = around;
                self.strange.push(Misfit::GraphGone { graph, version, node });
            }
        }
        self.frames.insert(id, rows);
        if !self.position.insert_frame(graph, owner.parent.as_ref(), &owner.task, inside) {
            // Of a task of the frame around it that has finished since.
            tracing::debug!(thread = %held.thread, address = %owner.address, "a frame that nobody waits for");
        }
        Ok(())
    }

    /// The node that runs a sub-graph's frame, the graph and version around it,
    /// and the sub-graph; `None` for a graph that a body called, which only the
    /// body knows.
    fn runs(
        &mut self,
        graph: &CompiledGraph,
        parent: Option<&FrameId>,
        task: &str,
        address: &Address,
    ) -> Option<(String, (String, u32), Arc<CompiledGraph>)> {
        let (around, graph) = match parent {
            None => (&mut self.position, graph),
            Some(parent) => self.position.frame_mut(graph, parent)?,
        };
        let task = around.tasks.iter().find(|planned| planned.plan.key == task)?;
        let inner = graph.node(&task.plan.node)?.subgraph().filter(|_| task.plan.address == *address)?;
        Some((task.plan.node.clone(), (graph.name().to_owned(), graph.version()), Arc::clone(inner)))
    }
}

/// A chain of checkpoints to go back to, brought up to this build's versions of
/// their graphs: with what that did to the root frame's, and where the rows of
/// that one lie.
///
/// # Errors
/// As [`restore`].
pub(super) fn restore_chain(
    graph: &CompiledGraph,
    chain: Vec<ArchivedAt>,
) -> Result<(Vec<Archived>, Migrated, Rows), Misfit> {
    let mut rows = Rows::default();
    if let Some(root) = chain.first() {
        rows.keys = root.keys.clone();
        rows.head = Some(root.archived.checkpoint.id.clone());
    }
    let mut chain: Vec<_> = chain.into_iter().map(|at| (at.graph_version, at.archived)).collect();
    let migrated = migrate_chain(graph, &mut chain)?;
    Ok((chain.into_iter().map(|(_, archived)| archived).collect(), migrated, rows))
}
