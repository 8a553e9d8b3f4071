//! Addresses as the format prints them, and the keys of bodies.

use countersign_kernel::address::{Address, Segment, SegmentKind};

/// The type of an agent's own segment.
pub(super) const AGENT: &str = "agent";

/// What of an address is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// Everything, in a graph app.
    All,
    /// Agent and tool segments, in an agent app (R7).
    Agents,
}

impl Sight {
    /// The segments of an address that are shown, one string each.
    pub(super) fn shown(self, address: &Address) -> Vec<String> {
        let segments = address.segments().iter().filter(|segment| self.shows(segment));
        segments.filter_map(print).collect()
    }

    /// Whether an address is a level of its own where addresses are shown.
    pub(super) fn is_level(self, address: &Address) -> bool {
        address.segments().last().is_some_and(|segment| self.shows(segment))
    }

    /// The key of the body at an address: ids without the root runnable; in an
    /// agent app the agent and tool segments and what follows the last of them.
    pub(super) fn body(self, address: &Address) -> String {
        let segments = address.segments();
        let kept: Vec<&Segment> = match self {
            Self::All => segments.iter().skip(1).collect(),
            Self::Agents => {
                let last = segments.iter().rposition(|segment| self.shows(segment)).unwrap_or(0);
                let (before, after) = segments.split_at(last);
                before.iter().filter(|segment| self.shows(segment)).chain(after).collect()
            }
        };
        kept.into_iter().filter_map(id).collect::<Vec<_>>().join("/")
    }

    fn shows(self, segment: &Segment) -> bool {
        match self {
            Self::All => true,
            Self::Agents => match segment.kind {
                SegmentKind::Slot => true,
                SegmentKind::Child => segment.name == AGENT,
                SegmentKind::Graph | SegmentKind::Node | SegmentKind::Task => false,
            },
        }
    }
}

/// `type:id` or `type:id:sub`. Visits are not part of it; the number of a sent
/// task is nothing but a visit.
fn print(segment: &Segment) -> Option<String> {
    let kind = match segment.kind {
        SegmentKind::Graph => "runnable",
        SegmentKind::Node => "node",
        SegmentKind::Slot => "tool",
        SegmentKind::Child => segment.name.as_str(),
        SegmentKind::Task => return None,
    };
    Some(format!("{kind}:{}", id(segment)?))
}

fn id(segment: &Segment) -> Option<String> {
    let sub = segment.sub.as_deref();
    match segment.kind {
        SegmentKind::Graph | SegmentKind::Node => Some(segment.name.clone()),
        SegmentKind::Slot => {
            let tool = tool(&segment.name);
            Some(sub.map_or_else(|| tool.to_owned(), |sub| format!("{tool}:{sub}")))
        }
        SegmentKind::Child => sub.map(str::to_owned),
        SegmentKind::Task => None,
    }
}

/// The tool's name in that of a slot: the batches of a run after the first
/// have their number behind it.
fn tool(name: &str) -> &str {
    match name.rsplit_once('#') {
        Some((tool, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => tool,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(address: &Address, name: &str, sub: &str) -> Address {
        address.child(Segment { kind: SegmentKind::Child, name: name.into(), sub: Some(sub.into()), visit: 1 })
    }

    #[test]
    fn graph_apps_show_every_segment_without_visits() {
        let tool = Address::graph("root").node("ga", 0).node("tools", 3).slot("pay", 0, Some("c1"));
        assert_eq!(Sight::All.shown(&tool), ["runnable:root", "node:ga", "node:tools", "tool:pay:c1"]);
        assert_eq!(Sight::All.body(&tool), "ga/tools/pay:c1");
        let later = Address::graph("root").node("tools", 0).slot("pay#2", 0, Some("c1"));
        assert_eq!(Sight::All.body(&later), "tools/pay:c1");
        let inner = child(&Address::graph("root").node("host", 0), "process", "p0");
        assert_eq!(Sight::All.shown(&inner), ["runnable:root", "node:host", "process:p0"]);
        assert_eq!(Sight::All.body(&inner), "host/p0");
        assert_eq!(
            Sight::All.body(&Address::graph("root").node("a", 2).child(Address::graph("inner").segments()[0].clone())),
            "a/inner"
        );
    }

    #[test]
    fn agent_apps_show_agents_and_tools() {
        let boss = child(&Address::graph("root").node("app", 0), AGENT, "boss");
        let tool = boss.slot("wire", 0, Some("c1"));
        let inside = child(&tool, "own", "x").node("risk", 0);
        assert_eq!(Sight::Agents.shown(&inside), ["agent:boss", "tool:wire:c1"]);
        assert_eq!(Sight::Agents.body(&inside), "boss/wire:c1/x/risk");
        assert_eq!(Sight::Agents.body(&boss), "boss");
        let levels = [&boss, &tool, &inside].map(|address| Sight::Agents.is_level(address));
        assert_eq!(levels, [true, true, false]);
        assert!(Sight::All.is_level(&inside));
    }
}
