//! Fresh input: the first checkpoint of a thread, and of its next run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::complete::decide;
use super::given::{add_fault, check_types, reduce_each};
use super::route::Due;
use super::settle::{StepChanges, new_checkpoint};
use super::{Budget, FramePlace, Outside, Position, Source};
use crate::fault::Fault;
use crate::graph::{CompiledGraph, START};
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
        Self::start_frame(graph, salt, FramePlace::root(graph), input, outside)
    }

    /// Starts a frame with input, as [`start`](Self::start) does the root one.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_frame(
        graph: &CompiledGraph,
        salt: [u8; 16],
        place: FramePlace,
        input: &Value,
        outside: Outside<'_>,
    ) -> Result<(Self, StepChanges), Vec<Fault>> {
        let mut position = Self::unused(graph, salt, place, outside);
        let changes = position.accept(graph, input, outside, false)?;
        Ok((position, changes))
    }

    /// A frame before its input: what an edit of a thread that never ran
    /// starts from.
    #[must_use]
    pub fn unused(graph: &CompiledGraph, salt: [u8; 16], place: FramePlace, outside: Outside<'_>) -> Self {
        let mut values = Values::default();
        fill_neutral(graph, &mut values);
        Self {
            salt,
            place,
            checkpoint: new_checkpoint(outside, None, Source::Input, 0),
            state: Arc::new(StateView::new(values)),
            tasks: Vec::new(),
            arrivals: BTreeMap::new(),
            deferred: BTreeSet::new(),
            ran: BTreeSet::new(),
            border: Vec::new(),
            resume_all: false,
            budget: Budget::new(graph.limits.supersteps_per_run),
            unsaved: super::Unsaved(false),
            left_under: None,
            migrated: super::Migrated::default(),
        }
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
        self.accept(graph, input, outside, true)
    }

    fn accept(
        &mut self,
        graph: &CompiledGraph,
        input: &Value,
        outside: Outside<'_>,
        follows: bool,
    ) -> Result<StepChanges, Vec<Fault>> {
        let (writes, mut faults) = read_input(graph, input)?;
        let changes = reduce_each(graph, &self.state, &writes, &mut faults);
        let mut values = self.state.values().clone();
        for (key, change) in &changes {
            values.apply(key, change);
        }
        for key in graph.keys.values().filter(|key| key.required && values.get(&key.name).is_none()) {
            add_fault(&mut faults, &key.name, "is missing");
        }
        let state = StateView::new(values);
        check_types(graph, &state, &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        let mut due = Due::default();
        for target in decide(graph, START, &state).map_err(|message| vec![Fault::at("", message)])? {
            due.add(target);
        }
        due.follow(graph, START);

        let before = (self.arrivals.clone(), std::mem::take(&mut self.deferred));
        // What waited is dropped for good (rules 10 and 38).
        self.forget_gone(graph);
        self.clear_joins(graph);
        let checkpoint = if follows { self.following(outside, Source::Input) } else { self.checkpoint.clone() };
        match self.plan(graph, &checkpoint, due) {
            Ok(tasks) => self.tasks = tasks,
            Err(message) => {
                (self.arrivals, self.deferred) = before;
                return Err(vec![Fault::at("", message)]);
            }
        }
        self.checkpoint = checkpoint;
        self.state = Arc::new(state);
        // The input is what ran last (rule 58).
        self.ran = BTreeSet::new();
        self.border = Vec::new();
        self.resume_all = false;
        self.budget.used = 0;
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
pub fn fill_neutral(graph: &CompiledGraph, values: &mut Values) {
    for key in graph.keys.values() {
        if values.get(&key.name).is_none()
            && let Some(neutral) = key.reducer.neutral()
        {
            values.insert(key.name.clone(), neutral);
        }
    }
}

/// Whether [`fill_neutral`] would change something.
pub(super) fn lacks_neutral(graph: &CompiledGraph, values: &Values) -> bool {
    graph.keys.values().any(|key| values.get(&key.name).is_none() && key.reducer.neutral().is_some())
}
