//! The definition of a flow: nodes, edges, conditional edges, breakpoints.
//!
//! Flows in Rust are written on [`Graph`], whose node handles and typed state
//! make a wrong name or key a compile error of the program. Graphs built from
//! data are written on [`GraphBuilder`]. Both compile to a [`CompiledGraph`],
//! which reports all its faults at once.

mod builder;
mod compile;
mod migration;
mod order;
mod typed;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

pub use builder::{Breakpoints, GraphBuilder};
pub use compile::{CompileError, GraphFault, GraphWarning};
pub use migration::Migration;
pub(crate) use migration::Migrations;
pub use order::LimitKeyFn;
pub(crate) use order::Order;
pub use typed::{Graph, NodeFn, NodeRef, Target};

use crate::fault::Fault;
use crate::limits::Limits;
use crate::node::{Goto, NodeSpec};
use crate::resources::Resources;
use crate::state::{KeySpec, StateCodec, StateView};

/// The name under which edges leave the start of a graph.
pub const START: &str = "START";
/// The name under which edges reach the end of a graph.
pub const END_NAME: &str = "END";

/// Decides where to go after a node, on the state it left behind.
pub type BranchFn = Arc<dyn Fn(&StateView) -> Result<Vec<Goto>, String> + Send + Sync>;
/// Turns a caller's input into writes, or says what is wrong with it.
pub type InputFn = Arc<dyn Fn(&Value) -> Result<Map<String, Value>, Vec<Fault>> + Send + Sync>;

/// A graph that is known to be sound.
pub struct CompiledGraph {
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) keys: BTreeMap<String, KeySpec>,
    pub(crate) nodes: BTreeMap<String, NodeSpec>,
    /// Plain edges by source; [`START`] is one.
    pub(crate) edges: BTreeMap<String, BTreeSet<String>>,
    /// Joins: a target that starts once all its sources have run.
    pub(crate) joins: Vec<(BTreeSet<String>, String)>,
    pub(crate) branches: BTreeMap<String, Vec<BranchFn>>,
    pub(crate) break_before: Breakpoints,
    pub(crate) break_after: Breakpoints,
    pub(crate) input: Option<InputFn>,
    pub(crate) codec: Arc<dyn StateCodec>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) limits: Limits,
    pub(crate) migrations: Migrations,
    pub(crate) order: Order,
    pub(crate) fingerprint: String,
    pub(crate) warnings: Vec<GraphWarning>,
}

impl CompiledGraph {
    /// The flow's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The graph with other limits than the default ones.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The version the author gave it.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// SHA-256 over the structure: keys with reducers and types, nodes, edges,
    /// joins, sources of branches, breakpoints. Bodies and conditions are
    /// code and not part of it.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// What is odd but can run.
    #[must_use]
    pub fn warnings(&self) -> &[GraphWarning] {
        &self.warnings
    }

    /// The declared keys.
    pub fn keys(&self) -> impl Iterator<Item = &KeySpec> {
        self.keys.values()
    }

    /// The names of the nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// A node: what runs as it, and how.
    #[must_use]
    pub fn node(&self, node: &str) -> Option<&NodeSpec> {
        self.nodes.get(node)
    }

    pub(crate) fn has_join(&self, key: &str) -> bool {
        self.joins.iter().any(|(sources, target)| crate::machine::join_key(sources, target) == key)
    }

    /// How urgent its threads are, unless who starts one says otherwise.
    #[must_use]
    pub fn priority(&self) -> i64 {
        self.order.priority
    }

    /// The name that a thread with this input shares with those that it is
    /// limited with, unless who starts it says otherwise.
    #[must_use]
    pub fn limit_key(&self, input: &Value) -> Option<String> {
        self.order.limit_key.as_ref().and_then(|key| key(input))
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}

impl fmt::Debug for CompiledGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledGraph")
            .field("name", &self.name)
            .field("version", &self.version)
            .field("nodes", &self.nodes.keys())
            .finish_non_exhaustive()
    }
}
