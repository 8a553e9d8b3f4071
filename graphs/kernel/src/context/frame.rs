//! Graphs inside a body: frames, driven to their rest (K17).

use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Map, Value};

use super::{Context, durable};
use crate::address::{Address, Segment, SegmentKind};
use crate::graph::CompiledGraph;
use crate::ids::FrameId;
use crate::machine::{Amend, FramePlace, Next, Position, Rest, Resume, Settled, StepChanges, TaskStatus};
use crate::node::{NodeError, NodeResult};
use crate::ports::FrameStep;
use crate::state::StateView;

impl Context {
    /// Runs a graph inside this body, as a part of the same checkpoint: it has
    /// supersteps and questions of its own, needs no second store, and a body
    /// that runs again finds it where it was, finished nodes and all (K17).
    /// Each call in a run is a graph of its own (R6). Returns the final state.
    ///
    /// # Errors
    /// [`NodeError::Interrupted`] while it waits; a failure if a node of it
    /// failed or the input does not fit; [`NodeError::HandOver`] if a node of it
    /// handed over to this body's graph.
    pub async fn graph(
        &self,
        name: &str,
        graph: &Arc<CompiledGraph>,
        input: impl Into<Value>,
    ) -> NodeResult<Map<String, Value>> {
        let visit = self.nth_entry(SegmentKind::Graph, name);
        let segment = Segment { kind: SegmentKind::Graph, name: name.to_owned(), sub: None, visit };
        let end = self.run_frame(self.address.child(segment), graph, input.into()).await?;
        Ok(end.values().to_object())
    }

    /// Drives the frame at `address` until it rests; gives its final state.
    pub(crate) async fn run_frame(
        &self,
        address: Address,
        graph: &Arc<CompiledGraph>,
        input: Value,
    ) -> NodeResult<Arc<StateView>> {
        let known = self.frames().remove(&address);
        let position = match known {
            Some(position) => {
                let position = self.taken_over(position, graph)?;
                let budget = position.budget.of_run(self.shared.scope.supersteps);
                self.updated(Position { budget, ..position }, graph).await?
            }
            None => self.start_frame(address, graph, &input).await?,
        };
        let mut held = Held { cx: self.clone(), position: Some(position), running: Vec::new() };
        held.drive(graph).await
    }

    /// A frame that was there before, as one of `graph`. Of an older version it
    /// is brought up to this one; one that does not fit stays as it was.
    fn taken_over(&self, position: Position, graph: &CompiledGraph) -> NodeResult<Position> {
        let moved = position.left_under.is_some_and(|version| version != graph.version());
        if !moved {
            return Ok(position.adopt(graph));
        }
        let before = position.clone();
        let misfits = match position.take_over(graph) {
            Ok(position) => match position.misfits(graph) {
                misfits if misfits.is_empty() => return Ok(position),
                misfits => misfits,
            },
            Err(misfit) => vec![misfit],
        };
        self.frames().insert(before.place.address.clone(), before);
        let reasons: Vec<String> = misfits.iter().map(ToString::to_string).collect();
        Err(NodeError::Failed(reasons.join("; ")))
    }

    /// A frame with the data written that came for its stops (K12).
    async fn updated(&self, mut position: Position, graph: &CompiledGraph) -> NodeResult<Position> {
        let update = position.take_updates();
        if !update.is_empty() {
            let amend = Amend { update, ..Amend::default() };
            let outside = self.host().clone();
            let changes = position.amend(graph, &amend, outside.outside()).map_err(NodeError::failed)?;
            self.commit_frame(&position, graph, Some(&changes), &[]).await?;
        }
        Ok(position)
    }

    async fn start_frame(&self, address: Address, graph: &CompiledGraph, input: &Value) -> NodeResult<Position> {
        let scope = &self.shared.scope;
        let id = FrameId::from(address.container_id(&scope.salt, Some(&scope.planned_by)));
        let place = FramePlace { id: Some(id), address };
        let started = Position::start_frame(graph, scope.salt, place, input, scope.host.outside());
        let (mut position, changes) = started.map_err(|faults| {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            NodeError::Failed(format!("the input of graph `{}` does not fit: {}", graph.name(), faults.join("; ")))
        })?;
        position.budget = position.budget.of_run(scope.supersteps);
        self.commit_frame(&position, graph, Some(&changes), &[]).await?;
        Ok(position)
    }

    async fn commit_frame(
        &self,
        position: &Position,
        graph: &CompiledGraph,
        changes: Option<&StepChanges>,
        tasks: &[usize],
    ) -> NodeResult<()> {
        let scope = &self.shared.scope;
        let step = FrameStep {
            parent: scope.frame.as_ref(),
            task: &scope.task,
            planned_by: &scope.planned_by,
            graph,
            position,
            changes,
            tasks,
        };
        durable(scope.host.effects.frame(step).await)
    }
}

/// A frame in hand. Whatever happens to the body, a dropped one included, the
/// frame goes back into the task's record with all that its tasks recorded.
struct Held {
    cx: Context,
    position: Option<Position>,
    running: Vec<(usize, Context)>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(mut position) = self.position.take() else { return };
        for (index, cx) in self.running.drain(..) {
            position.put_back(index, cx.finish());
        }
        self.cx.frames().insert(position.place.address.clone(), position);
    }
}

impl Held {
    /// The frame. It is in hand until the drop.
    fn position(&mut self) -> &mut Position {
        match &mut self.position {
            Some(position) => position,
            None => unreachable!("a frame is given back only when it is dropped"),
        }
    }

    async fn drive(&mut self, graph: &Arc<CompiledGraph>) -> NodeResult<Arc<StateView>> {
        if self.cx.attempt > 1 && self.position().next() == Next::Rest(Rest::Failed) {
            // The node is tried again: so is what failed in it.
            self.position().resume(Resume { retry: true, ..Resume::default() });
        }
        loop {
            match self.position().next() {
                Next::Run(tasks) => self.run_tasks(graph, tasks).await?,
                Next::Settle => {
                    if let Some(outcome) = self.position().handed_over() {
                        return Err(NodeError::HandOver(Box::new(outcome)));
                    }
                    let outside = self.cx.host().clone();
                    let Settled::Advanced(changes) = self.position().settle(graph, outside.outside()) else {
                        self.position().failed_tasks().for_each(|event| outside.effects.note(event));
                        continue;
                    };
                    if outside.stop.is_requested() {
                        self.position().pause(outside.clock.now());
                    }
                    let cx = self.cx.clone();
                    cx.commit_frame(self.position(), graph, Some(&changes), &[]).await?;
                }
                Next::Rest(rest) => return self.rest(graph, rest),
            }
        }
    }

    fn rest(&mut self, graph: &CompiledGraph, rest: Rest) -> NodeResult<Arc<StateView>> {
        let position = self.position();
        position.end_resume_all();
        if position.has_open() {
            self.cx.mark_waiting();
        }
        let position = self.position();
        match rest {
            Rest::Succeeded => {
                // Its last stop has been passed and must not wake the task again.
                position.unsaved.0 |= !position.border.is_empty();
                position.border.clear();
                Ok(Arc::clone(&position.state))
            }
            Rest::Parked => Err(NodeError::Interrupted),
            Rest::Failed => {
                let failures = position.failures().into_iter();
                let messages: Vec<String> =
                    failures.map(|(path, message)| format!("{}: {message}", path.join("/"))).collect();
                Err(NodeError::Failed(format!("in graph `{}`: {}", graph.name(), messages.join("; "))))
            }
        }
    }

    async fn run_tasks(&mut self, graph: &CompiledGraph, tasks: Vec<usize>) -> NodeResult<()> {
        let host = self.cx.host().clone();
        let mut bodies = FuturesUnordered::new();
        for index in tasks {
            let Some(node) = graph.node(&self.position().tasks[index].plan.node).cloned() else {
                return Err(NodeError::failed(format!("graph `{}` has lost a node that is planned", graph.name())));
            };
            let cx = Context::new(self.position().scope(graph, index, Arc::clone(&host)));
            self.running.push((index, cx.clone()));
            bodies.push(async move { (index, node.run(cx).await) });
        }
        while let Some((index, result)) = bodies.next().await {
            if matches!(result, Err(NodeError::LeaseLost)) {
                return Err(NodeError::LeaseLost);
            }
            let Some(at) = self.running.iter().position(|(running, _)| *running == index) else { continue };
            let (_, cx) = self.running.swap_remove(at);
            self.position().complete(graph, index, cx.finish(), result);
            // What is finished is kept while siblings still run (R10).
            if !bodies.is_empty() && self.position().tasks[index].record.status == TaskStatus::Done {
                let cx = self.cx.clone();
                cx.commit_frame(self.position(), graph, None, &[index]).await?;
            }
        }
        // One attempt wakes what a resume-all names; what asks again, waits.
        self.position().end_resume_all();
        Ok(())
    }
}
