//! Frames: graphs that run inside tasks of other graphs (K1, K17).

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Position, TaskStatus};
use crate::address::Address;
use crate::graph::CompiledGraph;
use crate::ids::FrameId;

/// Which frame a position is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FramePlace {
    /// The frame's id; the root frame has none.
    pub id: Option<FrameId>,
    /// Where it runs: the root graph, or the occurrence that runs the graph.
    pub address: Address,
}

impl FramePlace {
    /// The root frame of a thread of `graph`.
    #[must_use]
    pub fn root(graph: &CompiledGraph) -> Self {
        Self { id: None, address: Address::graph(graph.name()) }
    }
}

/// An unfinished frame as a client sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameView {
    /// Its id.
    pub id: FrameId,
    /// The keys of the tasks that lead to it, outermost first.
    pub path: Vec<String>,
    /// Its address.
    pub address: Address,
    /// Its state, with the writes of those tasks that have finished.
    pub values: Map<String, Value>,
    /// The nodes that have still to run there, one per task, sorted.
    pub next: Vec<String>,
}

impl Position {
    /// All unfinished frames inside, outer ones first.
    #[must_use]
    pub fn frames(&self, graph: &CompiledGraph) -> Vec<FrameView> {
        let mut views = Vec::new();
        self.collect_frames(graph, &mut Vec::new(), &mut views);
        views
    }

    fn collect_frames(&self, graph: &CompiledGraph, path: &mut Vec<String>, views: &mut Vec<FrameView>) {
        for task in self.tasks.iter().filter(|task| task.record.status != TaskStatus::Done) {
            let inner = graph.node(&task.plan.node).and_then(|node| node.subgraph());
            for frame in task.record.frames.values().filter(|frame| !frame.tasks.is_empty() || frame.has_open()) {
                path.push(task.plan.key.clone());
                // What a body calls has a graph that only the body knows: its
                // state is shown as of the superstep's start.
                let graph = inner.map(Arc::as_ref).filter(|_| frame.place.address == task.plan.address);
                if let Some(id) = &frame.place.id {
                    views.push(FrameView {
                        id: id.clone(),
                        path: path.clone(),
                        address: frame.place.address.clone(),
                        values: graph.map_or_else(|| frame.state.values().to_object(), |graph| frame.live_state(graph)),
                        next: frame.next_nodes().into_iter().map(str::to_owned).collect(),
                    });
                }
                if let Some(graph) = graph {
                    frame.collect_frames(graph, path, views);
                }
                path.pop();
            }
        }
    }

    /// The frame with this id and the graph that runs in it. `None` if it is
    /// not here, or if only a body knows its graph.
    pub fn frame_mut<'p, 'g>(
        &'p mut self,
        graph: &'g CompiledGraph,
        frame: &FrameId,
    ) -> Option<(&'p mut Self, &'g CompiledGraph)> {
        if self.place.id.as_ref() == Some(frame) {
            return Some((self, graph));
        }
        for task in &mut self.tasks {
            let Some(inner) = graph.nodes.get(&task.plan.node).and_then(|node| node.subgraph()) else { continue };
            if let Some(position) = task.record.frames.get_mut(&task.plan.address)
                && let Some(found) = position.frame_mut(inner, frame)
            {
                return Some(found);
            }
        }
        None
    }

    /// Puts a restored frame into the record of task `task` of the frame
    /// `parent` (`None`: this one). Says whether that task is there.
    pub fn insert_frame(&mut self, graph: &CompiledGraph, parent: Option<&FrameId>, task: &str, frame: Self) -> bool {
        let mut frame = Some(frame);
        self.insert_below(Some(graph), parent, task, &mut frame);
        frame.is_none()
    }

    fn insert_below(
        &mut self,
        graph: Option<&CompiledGraph>,
        parent: Option<&FrameId>,
        key: &str,
        frame: &mut Option<Self>,
    ) {
        let here = self.place.id.as_ref() == parent;
        for task in &mut self.tasks {
            let inner = graph.and_then(|graph| graph.node(&task.plan.node)).and_then(|node| node.subgraph());
            if here && task.plan.key == key {
                if let Some(frame) = frame.take() {
                    let address = frame.place.address.clone();
                    // What a body calls is adopted when the body enters it.
                    let frame = match inner.filter(|_| address == task.plan.address) {
                        Some(inner) => frame.adopt(inner),
                        None => frame,
                    };
                    task.record.frames.insert(address, frame);
                }
                return;
            }
            for (address, inside) in &mut task.record.frames {
                let graph = inner.filter(|_| *address == task.plan.address);
                inside.insert_below(graph.map(Arc::as_ref), parent, key, frame);
            }
            if frame.is_none() {
                return;
            }
        }
    }

    /// All frames inside, however deep, with the task that runs each.
    pub fn each_frame<'a>(&'a self, visit: &mut dyn FnMut(&'a Self, &'a str, &'a Self)) {
        for task in &self.tasks {
            for frame in task.record.frames.values() {
                visit(self, &task.plan.key, frame);
                frame.each_frame(visit);
            }
        }
    }

    /// This frame and all inside it, to change.
    pub fn each_mut(&mut self, change: &mut dyn FnMut(&mut Self)) {
        change(self);
        for task in &mut self.tasks {
            for frame in task.record.frames.values_mut() {
                frame.each_mut(change);
            }
        }
    }
}
