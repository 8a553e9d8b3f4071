//! Values from outside: all that is wrong with them, at once.

use std::collections::BTreeSet;

use serde_json::Value;

use super::complete::reduce_writes;
use super::settle::StepChanges;
use crate::fault::Fault;
use crate::graph::CompiledGraph;
use crate::state::StateView;

/// Names a fault of a key that has none yet: what follows from the first would
/// only be noise.
pub(super) fn add_fault(faults: &mut Vec<Fault>, key: &str, message: impl Into<String>) {
    let fault = Fault::at_member(key, message);
    if faults.iter().all(|known| known.pointer != fault.pointer) {
        faults.push(fault);
    }
}

/// What writes change, key by key; keys whose writes do not fit are faults.
pub(super) fn reduce_each(
    graph: &CompiledGraph,
    state: &StateView,
    writes: &[(String, Value)],
    faults: &mut Vec<Fault>,
) -> StepChanges {
    if let Ok(changes) = reduce_writes(graph, state, writes) {
        return changes;
    }
    let mut changes = StepChanges::new();
    for key in writes.iter().map(|(key, _)| key).collect::<BTreeSet<_>>() {
        let own: Vec<_> = writes.iter().filter(|(written, _)| written == key).cloned().collect();
        match reduce_writes(graph, state, &own) {
            Ok(change) => changes.extend(change),
            Err(message) => add_fault(faults, key, message),
        }
    }
    changes
}

/// What of a state does not fit the graph's own type.
pub(super) fn check_types(graph: &CompiledGraph, state: &StateView, faults: &mut Vec<Fault>) {
    let Err(first) = state.typed(graph.codec.as_ref()) else { return };
    for fault in graph.codec.faults(state.values()).into_iter().chain([first]) {
        add_fault(faults, fault.key(), fault.to_string());
    }
}
