//! Why a request no longer waits, and what asks in its place, in words.

use countersign_kernel::policy::Voter;
use countersign_kernel::ports::Directory as _;
use countersign_kernel::question::Request;
use countersign_worker::store::views::InterruptView;

use super::decide::Visitor;
use crate::state::AppState;

/// What asks in the place of a request that was superseded.
#[derive(Debug, Clone)]
pub(super) struct Successor {
    pub(super) id: String,
    pub(super) title: String,
    /// Whether the visitor is among those who may decide it.
    pub(super) admitted: bool,
}

impl Successor {
    /// As the visitor sees it.
    pub(super) fn new(state: &AppState, visitor: &Visitor, view: &InterruptView) -> Self {
        let request = Request::from_payload(&view.payload).ok().filter(|_| view.request.is_some());
        let principal = visitor.principal.clone();
        let voter = Voter { roles: state.directory.roles(&principal), principal };
        Self {
            id: view.id.to_string(),
            admitted: request.as_ref().is_some_and(|request| request.policy.admit(&voter).is_ok()),
            title: request.map_or_else(|| view.address.clone(), |request| request.title),
        }
    }
}

/// Where to go from a request that was superseded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Again {
    /// What stands before the title.
    pub(super) lead: &'static str,
    /// The title of what asks now.
    pub(super) title: String,
    /// The path of its page, for who is signed in.
    pub(super) page: Option<String>,
    /// What stands behind the title.
    pub(super) tail: &'static str,
}

/// What happened to a request that ended without a decision: one sentence or
/// two, for people who know of no checkpoints.
pub(super) fn what_happened(view: &InterruptView) -> &'static str {
    match (view.status.as_str(), view.closed_by.as_deref()) {
        ("released", _) => "The flow went on without an answer.",
        ("withdrawn", _) => "The flow withdrew this request.",
        (_, Some("edited")) => {
            "Whoever runs this server has changed the data of the case, so this request no longer counts."
        }
        (_, Some("replayed")) => {
            "Whoever runs this server has made the flow start over from an earlier point, so this request no longer \
             counts."
        }
        (_, Some("restarted")) => {
            "The case was given new input and has started anew, so this request no longer counts."
        }
        (_, Some("cancelled")) => "The case was cancelled, so this request no longer counts.",
        _ => "The flow has asked something else in its place, so this request no longer counts.",
    }
}

/// What is on record of it, and what that means for the visitor, if it is asked
/// `again` or the case has `ended`.
pub(super) fn what_counts(view: &InterruptView, again: bool, ended: bool) -> String {
    let voted = view.request.as_ref().is_some_and(|request| !request.votes.is_empty());
    let recorded = if voted {
        "It was not decided; the votes that were in no longer count."
    } else {
        "No answer to it was recorded."
    };
    let rest = match view.status.as_str() {
        "released" | "withdrawn" => " Nothing is left to decide.",
        _ if again => "",
        _ if ended => " The case has ended: nothing is left to decide.",
        _ => " If an answer is still needed, you will be asked again.",
    };
    format!("{recorded}{rest}")
}

/// Where to go, in words for how the visitor came.
pub(super) fn where_to_go(successor: &Successor, by_link: bool, prefix: &str, administrator: bool) -> Again {
    let (lead, page, tail) = match (by_link, successor.admitted) {
        (true, true) => ("It is asked again: ", None, ". The new message to you has a link of its own."),
        (true, false) => ("It is asked again, and others decide it: ", None, "."),
        (false, admitted) => {
            let page = (admitted || administrator).then(|| format!("{prefix}/interrupts/{}", successor.id));
            let lead = if admitted { "It is asked again: " } else { "It is asked again, and others decide it: " };
            (lead, page, "")
        }
    };
    Again { lead, title: successor.title.clone(), page, tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_nowhere_else() {
        let successor = Successor { id: "abc".to_owned(), title: "Pay?".to_owned(), admitted: true };
        assert_eq!(where_to_go(&successor, true, "", false).page, None);
        assert_eq!(where_to_go(&successor, false, "/ops", false).page.as_deref(), Some("/ops/interrupts/abc"));
        let other = Successor { admitted: false, ..successor };
        assert_eq!(where_to_go(&other, false, "", false).page, None);
        assert!(where_to_go(&other, false, "", true).page.is_some());
        assert!(where_to_go(&other, true, "", true).lead.contains("others"));
    }
}
