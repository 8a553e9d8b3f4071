//! What a client sees of an unfinished superstep.

use serde_json::{Map, Value};

use super::complete::reduce_writes;
use super::{Position, StepChanges, TaskStatus};
use crate::graph::CompiledGraph;
use crate::state::{Change, Reducer};

impl Position {
    /// The live state: that of the checkpoint plus the writes of those tasks
    /// of the superstep that have finished (rule 12). Writes that cannot be
    /// applied together are left out (rule 6).
    #[must_use]
    pub fn live_state(&self, graph: &CompiledGraph) -> Map<String, Value> {
        let finished = self.tasks.iter().filter_map(|task| task.record.outcome.as_ref()).filter(|o| !o.parent);
        let writes: Vec<_> = finished.flat_map(|outcome| outcome.writes.iter().cloned()).collect();
        let mut values = self.state.values().clone();
        for (key, change) in reduce_writes(graph, &self.state, &writes).unwrap_or_default() {
            values.apply(&key, &change);
        }
        values.to_object()
    }

    /// What makes this state from none: the first checkpoint of a frame that a
    /// fork put into place has no earlier one.
    #[must_use]
    pub fn changes_from_none(&self, graph: &CompiledGraph) -> StepChanges {
        let keys = self.state.values().keys();
        keys.filter_map(|key| Some((key.to_owned(), self.whole(graph, key)?))).collect()
    }

    /// What makes a key's value from none; `None` if it has no value.
    #[must_use]
    pub fn whole(&self, graph: &CompiledGraph, key: &str) -> Option<Change> {
        let appends = graph.keys.get(key).is_some_and(|spec| spec.reducer == Reducer::Append);
        match self.state.values().get(key)?.clone() {
            Value::Array(items) if appends => Some(Change::Appended(items)),
            value => Some(Change::Set(value)),
        }
    }

    /// The nodes that have still to run, one entry per task, sorted.
    #[must_use]
    pub fn next_nodes(&self) -> Vec<&str> {
        let waiting = self.tasks.iter().filter(|task| task.record.status != TaskStatus::Done);
        let mut nodes: Vec<_> = waiting.map(|task| task.plan.node.as_str()).collect();
        nodes.sort_unstable();
        nodes
    }

    /// The failed tasks, innermost first named: the keys of the tasks that
    /// lead to each, and why it failed.
    #[must_use]
    pub fn failures(&self) -> Vec<(Vec<String>, String)> {
        let mut failures = Vec::new();
        self.collect_failures(&mut Vec::new(), &mut failures);
        failures
    }

    fn collect_failures(&self, path: &mut Vec<String>, failures: &mut Vec<(Vec<String>, String)>) {
        for task in self.tasks.iter().filter(|task| task.record.status == TaskStatus::Failed) {
            path.push(task.plan.key.clone());
            let before = failures.len();
            for frame in task.record.frames.values() {
                frame.collect_failures(path, failures);
            }
            // The failure of a task that only hands on an inner one is that one.
            if failures.len() == before {
                failures.push((path.clone(), task.record.error.clone().unwrap_or_default()));
            }
            path.pop();
        }
    }
}
