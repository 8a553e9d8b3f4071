//! From targets to the tasks of the next superstep.

use std::collections::BTreeSet;

use serde_json::Value;

use super::task::SENT;
use super::{Checkpoint, PlannedTask, Position, Task};
use crate::graph::{CompiledGraph, END_NAME};
use crate::limits;
use crate::node::Goto;

/// What is due next: nodes, each once however often it was named (rule 8),
/// then sent tasks in the order in which they were sent (rule 2).
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) nodes: BTreeSet<String>,
    pub(super) sends: Vec<(String, Value)>,
}

impl Due {
    pub(super) fn add(&mut self, target: Goto) {
        match target {
            Goto::Node(node) if node == END_NAME => {}
            Goto::Node(node) => {
                self.nodes.insert(node);
            }
            Goto::Send { node, argument } => self.sends.push((node, argument)),
        }
    }

    /// Everything that edges lead to from a node.
    pub(super) fn follow(&mut self, graph: &CompiledGraph, node: &str) {
        let targets = graph.edges.get(node).into_iter().flatten();
        self.nodes.extend(targets.filter(|target| *target != END_NAME).cloned());
    }
}

impl Position {
    /// The tasks that `due` and the full joins make at `checkpoint`. Deferred
    /// nodes wait until nothing else is due.
    pub(super) fn plan(
        &mut self,
        graph: &CompiledGraph,
        checkpoint: &Checkpoint,
        mut due: Due,
    ) -> Result<Vec<Task>, String> {
        due.nodes.extend(self.full_joins(graph));
        let is_deferred = |node: &String| graph.nodes.get(node).is_some_and(|spec| spec.policy.deferred);
        let (mut deferred, mut nodes): (BTreeSet<String>, BTreeSet<String>) =
            due.nodes.into_iter().partition(is_deferred);
        deferred.extend(self.deferred.iter().cloned());
        if nodes.is_empty() && due.sends.is_empty() {
            nodes = std::mem::take(&mut deferred);
        }
        limits::check_tasks(nodes.len() + due.sends.len(), graph.limits.tasks_per_superstep)?;
        self.deferred = deferred;
        let mut tasks: Vec<Task> = Vec::with_capacity(nodes.len() + due.sends.len());
        for node in nodes {
            tasks.push(self.edge_task(checkpoint, node));
        }
        self.append_sends(&mut tasks, checkpoint, due.sends);
        Ok(tasks)
    }

    /// A task that an edge, a join, a condition or a goto starts.
    pub(super) fn edge_task(&self, checkpoint: &Checkpoint, node: String) -> Task {
        let plan = PlannedTask {
            key: node.clone(),
            address: self.place.address.node(&node, checkpoint.superstep),
            node,
            argument: None,
            planned_by: checkpoint.id.clone(),
        };
        Task::new(plan)
    }

    /// Sent tasks, numbered by node after those that are there.
    pub(super) fn append_sends(&self, tasks: &mut Vec<Task>, checkpoint: &Checkpoint, sends: Vec<(String, Value)>) {
        let mut counts = std::collections::HashMap::new();
        // By the name that it was planned under, which keys and addresses carry.
        for (planned_as, _) in tasks.iter().filter_map(|task| task.plan.key.rsplit_once(SENT)) {
            *counts.entry(planned_as.to_owned()).or_insert(0u64) += 1;
        }
        for (node, argument) in sends {
            let count = counts.entry(node.clone()).or_insert(0u64);
            let plan = PlannedTask {
                key: format!("{node}{SENT}{count}"),
                address: self.place.address.sent(&node, checkpoint.superstep, *count),
                node,
                argument: Some(argument),
                planned_by: checkpoint.id.clone(),
            };
            *count += 1;
            tasks.push(Task::new(plan));
        }
    }

    /// Counts arrivals at joins.
    pub(super) fn arrive(&mut self, graph: &CompiledGraph, finished: &BTreeSet<String>) {
        for (sources, target) in &graph.joins {
            let mut new = finished.intersection(sources).peekable();
            if new.peek().is_some() {
                self.arrivals.entry(join_key(sources, target)).or_default().extend(new.cloned());
            }
        }
    }

    /// The targets of joins that all sources have reached.
    fn full_joins(&self, graph: &CompiledGraph) -> Vec<String> {
        let full = graph.joins.iter().filter(|(sources, target)| self.is_full(sources, target));
        full.map(|(_, target)| target.clone()).filter(|target| target != END_NAME).collect()
    }

    fn is_full(&self, sources: &BTreeSet<String>, target: &str) -> bool {
        self.arrivals.get(&join_key(sources, target)).is_some_and(|arrived| arrived.len() == sources.len())
    }

    /// Clears the full joins whose target is among this superstep's tasks: it
    /// has run, or is dropped for good (rule 10).
    pub(super) fn clear_joins(&mut self, graph: &CompiledGraph) {
        if self.arrivals.is_empty() {
            return;
        }
        for (sources, target) in &graph.joins {
            let planned = self.tasks.iter().any(|task| task.plan.node == *target && !task.plan.is_sent());
            if planned && self.is_full(sources, target) {
                self.arrivals.remove(&join_key(sources, target));
            }
        }
    }

    /// Forgets joins and waiting nodes that the graph does not have any more:
    /// what is planned anew is planned as the graph is now.
    pub(super) fn forget_gone(&mut self, graph: &CompiledGraph) {
        self.arrivals.retain(|join, _| graph.has_join(join));
        self.deferred.retain(|node| graph.nodes.contains_key(node));
    }

    /// Clears the full joins to `node`, which counts as having run (rule 56).
    pub(super) fn clear_joins_to(&mut self, graph: &CompiledGraph, node: &str) {
        for (sources, target) in graph.joins.iter().filter(|(_, target)| target == node) {
            if self.is_full(sources, target) {
                self.arrivals.remove(&join_key(sources, target));
            }
        }
    }
}

pub(crate) fn join_key(sources: &BTreeSet<String>, target: &str) -> String {
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    format!("{}>{target}", sources.join("+"))
}
