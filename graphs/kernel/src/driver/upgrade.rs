//! The same thread under another version of its flow.

use std::sync::Arc;

use super::archive::bare;
use super::{Driver, Refused};
use crate::fault::Fault;
use crate::graph::CompiledGraph;
use crate::ids::CheckpointId;
use crate::machine::{Archived, Misfit, Position, migrate_chain};
use crate::state::Values;

impl Driver {
    /// Goes on with the thread under another version of its flow, as a worker
    /// does after a deployment: the version's migrations are applied, and what
    /// they do not mention must fit.
    ///
    /// ```
    /// # use countersign_kernel::driver::Driver;
    /// # use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
    /// # use countersign_kernel::node::body_fn;
    /// # use serde_json::json;
    /// # fn flow(version: u32, node: &'static str) -> CompiledGraph {
    /// #     let mut g = GraphBuilder::new("leave", version);
    /// #     g.node(node, body_fn(|cx| async move { cx.interrupt("Off?").await.map(|_| ()) }));
    /// #     g.edge(START, node).migrate(1, |changes| _ = changes.rename_node("manager", "lead"));
    /// #     g.compile().expect("sound")
    /// # }
    /// # futures_util::future::FutureExt::now_or_never(async {
    /// let mut run = Driver::start(flow(1, "manager"), json!({})).await.expect("good input");
    /// run.upgrade(flow(2, "lead")).expect("version 2 says that `manager` is `lead` now");
    /// run.answer(json!(true)).await.expect("the question waits on");
    /// # }).expect("nothing here waits for I/O");
    /// ```
    ///
    /// # Errors
    /// Everything that does not fit, for which a worker holds a thread; it is
    /// as it was.
    pub fn upgrade(&mut self, graph: impl Into<Arc<CompiledGraph>>) -> Result<(), Vec<Misfit>> {
        let graph = graph.into();
        let mut rebased = Vec::new();
        let mut upgraded = None;
        if let Some(position) = &self.position {
            let position = carried(position, Some(&self.graph), Some(&graph), &mut rebased).map_err(|one| vec![one])?;
            let misfits = position.misfits(&graph);
            if !misfits.is_empty() {
                return Err(misfits);
            }
            upgraded = Some(position);
        }
        self.archive.end_era(std::mem::replace(&mut self.graph, graph));
        for (id, values) in rebased {
            self.archive.rebase(id, values);
        }
        self.position = upgraded;
        Ok(())
    }

    /// A checkpoint with those around it, outermost first, brought up to this
    /// version of the flow.
    pub(super) fn chain(&self, id: &CheckpointId) -> Result<Vec<Archived>, Refused> {
        let chain = self.archive.chain(id).ok_or_else(|| Refused::UnknownCheckpoint(id.clone()))?;
        let Some(old) = self.archive.program_of(id) else { return Ok(chain) };
        let mut graph = Some(old.as_ref());
        let mut versioned: Vec<(u32, Archived)> = Vec::with_capacity(chain.len());
        for archived in chain {
            if let (Some((_, around)), Some(key)) = (versioned.last(), &archived.task) {
                let task = around.body.tasks.iter().find(|task| task.key == *key);
                graph = task.and_then(|task| inner(graph, &task.node));
            }
            versioned.push((graph.map_or(0, CompiledGraph::version), archived));
        }
        let refused = |misfit: Misfit| Refused::Invalid(vec![Fault::at("", misfit.to_string())]);
        migrate_chain(&self.graph, &mut versioned).map_err(refused)?;
        if let Some((_, root)) = versioned.first() {
            self.archive.rebase(root.checkpoint.id.clone(), root.values.clone());
        }
        Ok(versioned.into_iter().map(|(_, archived)| archived).collect())
    }
}

fn inner<'g>(graph: Option<&'g CompiledGraph>, node: &str) -> Option<&'g CompiledGraph> {
    graph.and_then(|graph| graph.node(node)?.subgraph()).map(Arc::as_ref)
}

/// A frame and those inside, as a store gives them back to another version.
fn carried(
    position: &Position,
    old: Option<&CompiledGraph>,
    new: Option<&CompiledGraph>,
    rebased: &mut Vec<(CheckpointId, Values)>,
) -> Result<Position, Misfit> {
    let mut carried_over = bare(position);
    if let Some(old) = old {
        carried_over = carried_over.left_under(old.version());
    }
    if let Some(new) = new {
        carried_over = carried_over.take_over(new)?;
        rebased.extend(carried_over.migrated.at.clone().map(|at| (at, carried_over.state.values().clone())));
    }
    for (task, before) in carried_over.tasks.iter_mut().zip(&position.tasks) {
        for (address, frame) in &before.record.frames {
            // What a body calls has a graph that only the body knows.
            let own = *address == before.plan.address;
            let old = inner(old, &before.plan.node).filter(|_| own);
            let new = inner(new, &task.plan.node).filter(|_| own);
            task.record.frames.insert(address.clone(), carried(frame, old, new, rebased)?);
        }
    }
    Ok(carried_over)
}
