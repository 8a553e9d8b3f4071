//! Fresh input: the first checkpoint of a thread, and of its next run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::plan::{decide, reduce_writes};
use super::settle::{StepChanges, new_checkpoint, plan_tasks};
use super::{Outside, Position, Source};
use crate::fault::Fault;
use crate::graph::{CompiledGraph, END_NAME, START};
use crate::limits;
use crate::state::{StateView, Values};

impl Position {
    /// Starts a thread with input: checks and applies it, and plans the first
    /// superstep.
    ///
    /// # Errors
    /// Everything that is wrong with the input: not an object, unknown keys,
    /// missing fields, values that do not fit.
    pub fn start(
        graph: &CompiledGraph,
        salt: [u8; 16],
        input: &Value,
        outside: Outside<'_>,
    ) -> Result<(Self, StepChanges), Vec<Fault>> {
        let mut values = Values::default();
        fill_neutral(graph, &mut values);
        let mut position = Self {
            salt,
            checkpoint: new_checkpoint(outside, None, Source::Input, 0),
            state: Arc::new(StateView::new(values)),
            tasks: Vec::new(),
            arrivals: BTreeMap::new(),
            border: Vec::new(),
            resume_all: false,
        };
        let changes = position.accept(graph, input, outside, None)?;
        Ok((position, changes))
    }

    /// Applies fresh input to a thread that has a state already: the state is
    /// kept, what waited is dropped, and the flow starts anew (K15).
    ///
    /// # Errors
    /// As [`start`](Self::start); the position is unchanged then.
    pub fn restart(
        &mut self,
        graph: &CompiledGraph,
        input: &Value,
        outside: Outside<'_>,
    ) -> Result<StepChanges, Vec<Fault>> {
        let parent = self.checkpoint.id.clone();
        self.accept(graph, input, outside, Some(parent))
    }

    fn accept(
        &mut self,
        graph: &CompiledGraph,
        input: &Value,
        outside: Outside<'_>,
        parent: Option<crate::ids::CheckpointId>,
    ) -> Result<StepChanges, Vec<Fault>> {
        let (writes, mut faults) = read_input(graph, input)?;
        let changes = reduce_writes(graph, &self.state, &writes).map_err(|message| vec![Fault::at("", message)])?;
        let mut values = self.state.values().clone();
        for (key, change) in &changes {
            values.apply(key, change);
        }
        let missing = graph.keys.values().filter(|key| key.required && values.get(&key.name).is_none());
        faults.extend(missing.map(|key| Fault::at_member(&key.name, "is missing")));
        if !faults.is_empty() {
            return Err(faults);
        }
        let state = StateView::new(values);
        state
            .typed(graph.codec.as_ref())
            .map_err(|fault| vec![Fault::at(format!("/{}", fault.key()), fault.to_string())])?;
        let mut targets: BTreeSet<String> =
            decide(graph, START, &state).map_err(|message| vec![Fault::at("", message)])?.into_iter().collect();
        targets.extend(graph.edges.get(START).into_iter().flatten().cloned());
        targets.remove(END_NAME);
        limits::check_tasks(targets.len(), graph.limits.tasks_per_superstep)
            .map_err(|message| vec![Fault::at("", message)])?;

        if let Some(parent) = parent {
            let superstep = self.checkpoint.superstep + 1;
            self.checkpoint = new_checkpoint(outside, Some(parent), Source::Input, superstep);
        }
        self.state = Arc::new(state);
        self.tasks = plan_tasks(graph, &self.checkpoint, targets);
        self.border = Vec::new();
        self.stop_at_breakpoints(graph, outside, &BTreeSet::new());
        Ok(changes)
    }
}

type Entries = Vec<(String, Value)>;

/// What the input writes to declared keys, and a fault for each other key.
fn read_input(graph: &CompiledGraph, input: &Value) -> Result<(Entries, Vec<Fault>), Vec<Fault>> {
    if let Some(read) = &graph.input {
        return read(input).map(|members| (members.into_iter().collect(), Vec::new()));
    }
    let Value::Object(members) = input else {
        let keys: Vec<&str> = graph.keys.keys().map(String::as_str).collect();
        return Err(vec![Fault::at("", format!("expected an object with the keys {}", keys.join(", ")))]);
    };
    let (known, unknown): (Entries, Entries) =
        members.clone().into_iter().partition(|(key, _)| graph.keys.contains_key(key));
    let faults = unknown.iter().map(|(key, _)| Fault::at_member(key, "is no key of this graph")).collect();
    Ok((known, faults))
}

/// Gives keys that nobody wrote their neutral value.
pub(super) fn fill_neutral(graph: &CompiledGraph, values: &mut Values) {
    for key in graph.keys.values() {
        if values.get(&key.name).is_none()
            && let Some(neutral) = key.reducer.neutral()
        {
            values.insert(key.name.clone(), neutral);
        }
    }
}
