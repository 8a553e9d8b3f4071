//! Building a graph by names, for graphs that come from data.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{BranchFn, CompiledGraph, InputFn, Migration, Migrations, Order};
use crate::fault::Fault;
use crate::node::{Goto, NodeKind, NodePolicy, SharedBody, SubgraphMapping};
use crate::resources::Resources;
use crate::state::{KeySpec, Reducer, StateCodec, StateView, UntypedCodec};

/// Where a run stops by static configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Breakpoints {
    /// Nowhere.
    #[default]
    None,
    /// At these nodes.
    Nodes(BTreeSet<String>),
    /// At every node (`*`).
    All,
}

impl Breakpoints {
    /// Whether there is one at `node`.
    #[must_use]
    pub fn has(&self, node: &str) -> bool {
        match self {
            Self::None => false,
            Self::Nodes(nodes) => nodes.contains(node),
            Self::All => true,
        }
    }

    pub(super) fn add(&mut self, node: &str) {
        match self {
            Self::None => *self = Self::Nodes([node.to_owned()].into()),
            Self::Nodes(nodes) => {
                nodes.insert(node.to_owned());
            }
            Self::All => {}
        }
    }
}

/// A graph under construction, everything by name. Faults wait for
/// [`compile`](Self::compile), which reports all of them.
pub struct GraphBuilder {
    pub(super) name: String,
    pub(super) version: u32,
    pub(super) keys: Vec<KeySpec>,
    pub(super) nodes: Vec<(String, NodeKind)>,
    pub(super) policies: Vec<(String, NodePolicy)>,
    pub(super) edges: Vec<(String, String)>,
    pub(super) joins: Vec<(BTreeSet<String>, String)>,
    pub(super) branches: Vec<(String, BranchFn)>,
    pub(super) break_before: Breakpoints,
    pub(super) break_after: Breakpoints,
    pub(super) input: Option<InputFn>,
    pub(super) codec: Arc<dyn StateCodec>,
    pub(super) resources: Resources,
    pub(super) migrations: Migrations,
    pub(super) order: Order,
}

impl GraphBuilder {
    /// An empty graph.
    #[must_use]
    pub fn new(name: impl Into<String>, version: u32) -> Self {
        Self {
            name: name.into(),
            version,
            keys: Vec::new(),
            nodes: Vec::new(),
            policies: Vec::new(),
            edges: Vec::new(),
            joins: Vec::new(),
            branches: Vec::new(),
            break_before: Breakpoints::None,
            break_after: Breakpoints::None,
            input: None,
            codec: Arc::new(UntypedCodec),
            resources: Resources::default(),
            migrations: Migrations::default(),
            order: Order::default(),
        }
    }

    /// Declares a key.
    pub fn key(&mut self, name: impl Into<String>, reducer: Reducer) -> &mut Self {
        self.keys.push(KeySpec { name: name.into(), reducer, required: false, type_name: "json".into() });
        self
    }

    /// Adds a node.
    pub fn node(&mut self, name: impl Into<String>, body: SharedBody) -> &mut Self {
        self.nodes.push((name.into(), NodeKind::Body(body)));
        self
    }

    /// Adds a graph as a node: a sub-graph. It gets the values of the keys that
    /// both graphs declare (a sent task: its argument) and hands back its final
    /// values of them as writes, so an append or sum key that both declare
    /// counts the parent's part twice: give it a merge key or keys of its own.
    pub fn subgraph(&mut self, name: impl Into<String>, graph: impl Into<Arc<CompiledGraph>>) -> &mut Self {
        let graph = graph.into();
        let keys = graph.keys.keys().cloned().collect();
        self.nodes.push((name.into(), NodeKind::Graph { graph, mapping: SubgraphMapping::Shared(keys) }));
        self
    }

    /// What the kernel does with a node beyond running it once: retries, a
    /// time limit, waiting for the others. A later call replaces an earlier one.
    pub fn policy(&mut self, node: impl Into<String>, policy: NodePolicy) -> &mut Self {
        self.policies.push((node.into(), policy));
        self
    }

    /// `to` starts whenever `from` has finished. [`START`](super::START) and
    /// [`END_NAME`](super::END_NAME) are the borders.
    pub fn edge(&mut self, from: impl Into<String>, to: impl Into<String>) -> &mut Self {
        self.edges.push((from.into(), to.into()));
        self
    }

    /// `to` starts once all of `from` have finished, in whichever supersteps.
    pub fn join<N: Into<String>>(&mut self, from: impl IntoIterator<Item = N>, to: impl Into<String>) -> &mut Self {
        self.joins.push((from.into_iter().map(Into::into).collect(), to.into()));
        self
    }

    /// Asks `branch` where to go when `from` has finished. It sees the state
    /// at the start of the superstep plus `from`'s own writes.
    pub fn branch<F>(&mut self, from: impl Into<String>, branch: F) -> &mut Self
    where
        F: Fn(&StateView) -> Result<Vec<Goto>, String> + Send + Sync + 'static,
    {
        self.branches.push((from.into(), Arc::new(branch)));
        self
    }

    /// Stops before `node` (`*` for every node).
    pub fn break_before(&mut self, node: &str) -> &mut Self {
        if node == "*" {
            self.break_before = Breakpoints::All;
        } else {
            self.break_before.add(node);
        }
        self
    }

    /// Stops after `node` (`*` for every node).
    pub fn break_after(&mut self, node: &str) -> &mut Self {
        if node == "*" {
            self.break_after = Breakpoints::All;
        } else {
            self.break_after.add(node);
        }
        self
    }

    /// Says what changed from version `from` to the next one, for threads that
    /// were started under it. Versions that changed nothing of the kind need none.
    pub fn migrate(&mut self, from: u32, describe: impl FnOnce(&mut Migration)) -> &mut Self {
        describe(self.migrations.0.entry(from).or_default());
        self
    }

    /// How urgent threads of the flow are, from -100 to 100; 0 without it. A
    /// point is worth a minute of waiting: a thread goes before those that have
    /// waited at most so much longer. Who starts a thread may say otherwise.
    pub fn priority(&mut self, priority: i64) -> &mut Self {
        self.order.priority = priority.clamp(-100, 100);
        self
    }

    /// Names the threads that are limited together, by their input: those of
    /// one customer, say. Operators set how many of them run at a time.
    pub fn limit_key(&mut self, key: impl Fn(&Value) -> Option<String> + Send + Sync + 'static) -> &mut Self {
        self.order.limit_key = Some(Arc::new(key));
        self
    }

    /// Gives the bodies something from outside; see
    /// [`Context::resource`](crate::context::Context::resource).
    pub fn provide<T: Send + Sync + 'static>(&mut self, thing: T) -> &mut Self {
        self.resources.insert(thing);
        self
    }

    /// Checks and converts the caller's input. Without it, the input is an
    /// object of keys.
    pub fn input<F>(&mut self, input: F) -> &mut Self
    where
        F: Fn(&Value) -> Result<Map<String, Value>, Vec<Fault>> + Send + Sync + 'static,
    {
        self.input = Some(Arc::new(input));
        self
    }
}
