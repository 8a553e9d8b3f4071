//! Why a queued thread does not run, for people.

use countersign_worker::store::commands::{HeldBack, PauseSwitch, SwitchOf};
use countersign_worker::store::views::ThreadSummary;

/// What the thread stands behind, with the reason that an operator gave.
pub(crate) fn why(thread: &ThreadSummary, switches: &[PauseSwitch]) -> Option<String> {
    if thread.status != "queued" {
        return None;
    }
    let of_graph = SwitchOf::Graph(thread.graph.clone());
    // A pause holds also those that nobody has tried to take up since.
    let by = match &thread.held_back {
        _ if switches.iter().any(|switch| switch.of == of_graph) => HeldBack::Graph(thread.graph.clone()),
        Some(by) => by.clone(),
        None => return None,
    };
    let holds = |switch: &&PauseSwitch| match (&by, &switch.of) {
        (HeldBack::Graph(_), of) => *of == of_graph,
        (HeldBack::Nodes(graph, nodes), SwitchOf::Node { graph: of, node }) => graph == of && nodes.contains(node),
        _ => false,
    };
    let reasons: Vec<&str> = switches.iter().filter(holds).map(|switch| switch.reason.as_str()).collect();
    Some(if reasons.is_empty() { by.to_string() } else { format!("{by}: {}", reasons.join("; ")) })
}
