//! What operators ask of the flow of work: pause switches and limits.

use std::fmt;
use std::time::Duration;

use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What a switch pauses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SwitchOf {
    /// All threads of a flow: none of them is taken up.
    Graph(String),
    /// A node of a flow: threads come up to it and stand there.
    Node {
        /// The flow.
        graph: String,
        /// Its node; not one of a sub-graph.
        node: String,
    },
    /// A channel: its deliveries stay pending.
    Channel(String),
}

impl SwitchOf {
    /// `graph`, `node` or `channel`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Graph(_) => "graph",
            Self::Node { .. } => "node",
            Self::Channel(_) => "channel",
        }
    }

    /// The flow's or the channel's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Graph(name) | Self::Channel(name) | Self::Node { graph: name, .. } => name,
        }
    }

    /// The node, if it is one.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Node { node, .. } => Some(node),
            Self::Graph(_) | Self::Channel(_) => None,
        }
    }
}

impl fmt::Display for SwitchOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Graph(name) => write!(f, "the graph `{name}`"),
            Self::Node { graph, node } => write!(f, "the node `{node}` of the graph `{graph}`"),
            Self::Channel(name) => write!(f, "the channel `{name}`"),
        }
    }
}

/// A pause switch that an operator has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseSwitch {
    /// What it pauses.
    pub of: SwitchOf,
    /// Why, for people.
    pub reason: String,
    /// Who set it.
    pub by: Principal,
    /// Since when.
    pub since: Timestamp,
    /// When it ends by itself; `None` is when somebody resumes it.
    pub until: Option<Timestamp>,
}

impl PauseSwitch {
    /// Whether it still holds.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// So many in a period: all at once, and then again as the period passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many; at least 1.
    pub count: u32,
    /// In which time; not zero.
    pub per: Duration,
}

impl Rate {
    /// What one of them costs, in microseconds.
    pub(crate) fn interval(self) -> i64 {
        (micros(self.per) / i64::from(self.count.max(1))).max(1)
    }
}

pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// How many threads of a flow run at a time and begin to run in a period, over
/// all processes. `None` is as many as there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowLimits {
    /// Of all threads of the flow: how many run at a time.
    pub running: Option<u32>,
    /// Of those with the same key: how many run at a time.
    pub key_running: Option<u32>,
    /// Of all threads of the flow: how often one is taken up.
    pub starts: Option<Rate>,
    /// Of those with the same key: how often one is taken up.
    pub key_starts: Option<Rate>,
}

impl FlowLimits {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Something that an operator did that is about no single thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Names it.
    pub id: String,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: Principal,
    /// `paused`, `resumed`, `limited`, `unlimited`, `dead_letters_retried`.
    pub action: String,
    /// The facts.
    pub detail: serde_json::Value,
}

/// What holds a queued thread back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldBack {
    /// Its flow is paused.
    Graph(String),
    /// It came to nodes of this flow that are paused.
    Nodes(String, Vec<String>),
    /// As many threads of the flow, with its key if there is one, run as may.
    Running(String, Option<String>),
    /// As many threads of the flow, with its key if there is one, were taken up
    /// as may be for now.
    Starts(String, Option<String>),
}

impl HeldBack {
    /// The flow.
    #[must_use]
    pub fn graph(&self) -> &str {
        match self {
            Self::Graph(graph) | Self::Nodes(graph, _) | Self::Running(graph, _) | Self::Starts(graph, _) => graph,
        }
    }
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with = |key: &Option<String>| key.as_ref().map(|key| format!(" with the key `{key}`")).unwrap_or_default();
        match self {
            Self::Graph(graph) => write!(f, "the graph `{graph}` is paused"),
            Self::Nodes(graph, nodes) => {
                let (word, verb) = if nodes.len() == 1 { ("node", "is") } else { ("nodes", "are") };
                write!(f, "the {word} `{}` of the graph `{graph}` {verb} paused", nodes.join("`, `"))
            }
            Self::Running(graph, key) => {
                write!(f, "as many threads of the graph `{graph}`{} run as its limit lets", with(key))
            }
            Self::Starts(graph, key) => {
                write!(f, "threads of the graph `{graph}`{} are taken up at a limited rate", with(key))
            }
        }
    }
}

/// Puts a held thread's place behind what holds it back, under its fence.
#[derive(Debug, Clone)]
pub struct HoldBack {
    /// The thread.
    pub thread: countersign_kernel::ids::ThreadId,
    /// The proof.
    pub fence: super::Fence,
    /// What holds it back.
    pub by: HeldBack,
    /// Now.
    pub now: Timestamp,
}
