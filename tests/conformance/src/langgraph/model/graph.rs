//! Graphs and bodies (sections 2 and 3 of the format).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::langgraph::template::{Template, Test};

/// A graph (section 2).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// Declared keys.
    pub keys: BTreeMap<String, Key>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Edges and joins.
    #[serde(default)]
    pub edges: Vec<Edge>,
    /// Conditions and fan-outs.
    #[serde(default)]
    pub branches: Vec<Branch>,
    /// Where to stop before.
    #[serde(default)]
    pub interrupt_before: Stops,
    /// Where to stop after.
    #[serde(default)]
    pub interrupt_after: Stops,
}

/// A state key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// How writes combine.
    pub reducer: KeyReducer,
}

/// How writes to a key combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyReducer {
    /// The write replaces the value.
    Last,
    /// A list, appended.
    Append,
    /// An integer, added.
    Sum,
    /// A map, merged.
    Merge,
}

/// A node: a body or a sub-graph.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The body's operations.
    #[serde(default)]
    pub ops: Option<Vec<Op>>,
    /// The graph that runs as this node.
    #[serde(default)]
    pub graph: Option<String>,
    /// How often a failing body is started.
    #[serde(default)]
    pub retry: Option<Retry>,
}

/// A retry policy.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// In all, the first one included.
    pub max_attempts: u32,
}

/// An edge or a join.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// Where it leaves.
    pub from: Sources,
    /// Where it leads.
    pub to: String,
}

/// One node, or the list of a join.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Sources {
    /// A plain edge.
    One(String),
    /// A join.
    All(Vec<String>),
}

/// A condition or a fan-out; both members together are refused when the graph
/// is built.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Branch {
    /// The node it leaves.
    pub from: String,
    /// The key a condition reads.
    #[serde(default)]
    pub key: Option<String>,
    /// A condition's cases.
    #[serde(default)]
    pub cases: Vec<Case>,
    /// Where to go when no case matches.
    #[serde(default)]
    pub default: Option<Vec<String>>,
    /// A fan-out.
    #[serde(default)]
    pub fanout: Option<Fanout>,
}

/// One case of a condition.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The value it takes.
    pub when: Value,
    /// Where it leads.
    pub to: Vec<String>,
}

/// One task per item of a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fanout {
    /// The key with the list.
    pub over: String,
    /// The node to start.
    pub to: String,
    /// The argument of each task.
    pub arg: Template,
}

/// Static stops: names, or `*` for every node.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Stops {
    /// `"*"`.
    All(Star),
    /// These.
    Nodes(Vec<String>),
}

impl Default for Stops {
    fn default() -> Self {
        Self::Nodes(Vec::new())
    }
}

/// The text `*`.
#[derive(Debug, Clone, Copy, Deserialize)]
pub enum Star {
    /// `*`.
    #[serde(rename = "*")]
    Star,
}

/// An operation of a body (section 3).
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// Writes to a key.
    Write {
        /// The key.
        key: String,
        /// What.
        value: Template,
    },
    /// Sets a local.
    Let {
        /// Its name.
        name: String,
        /// Its value.
        value: Template,
    },
    /// Asks the client.
    Interrupt {
        /// What it asks.
        payload: Template,
        /// The local that takes the answer.
        #[serde(default)]
        into: Option<String>,
    },
    /// Fails.
    Raise {
        /// The message.
        message: String,
        /// How often; always, without it.
        #[serde(default)]
        times: Option<u32>,
    },
    /// A condition.
    If {
        /// What decides.
        test: Test,
        /// If it holds.
        then: Vec<Op>,
        /// If not.
        #[serde(default, rename = "else")]
        otherwise: Vec<Op>,
    },
    /// Starts nodes after this body.
    Goto {
        /// Which.
        to: Vec<String>,
        /// Of which graph.
        #[serde(default)]
        graph: Option<Parent>,
    },
    /// Starts a task with an argument.
    Send {
        /// Of which node.
        to: String,
        /// The argument.
        arg: Template,
    },
    /// Runs a graph inside the body.
    Call {
        /// Which.
        graph: String,
        /// Its input.
        input: Template,
        /// The local that takes its final state.
        #[serde(default)]
        into: Option<String>,
    },
}

/// The text `parent`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parent {
    /// The graph around this one.
    Parent,
}
