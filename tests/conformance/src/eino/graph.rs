//! Compiles a graph of the format to a graph of ours.

use std::sync::Arc;

use countersign_kernel::address::{Address, SegmentKind};
use countersign_kernel::context::Context;
use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::node::{Goto, NodeError, NodeResult, SharedBody, body_fn};
use countersign_kernel::state::{StateView, Writes};
use serde_json::{Map, Value};

use super::body::{Given, World, play_value};
use super::flow::{FLOW, Flow, Parts, Tree, value_of};
use super::model::{BranchModel, CompositeModel, GraphModel, NodeKind, NodeModel};
use super::script::Script;
use super::tools::{self, Tools};
use super::{composite, model, shared};

/// A graph that is invoked: the app's own, or one that a body runs.
#[derive(Clone)]
pub(super) struct Runnable {
    name: String,
    /// The compiled graph.
    pub(super) graph: Arc<CompiledGraph>,
    /// Its data flow.
    pub(super) tree: Arc<Tree>,
    info: Option<Value>,
}

impl Runnable {
    /// Compiles `model`. `info` is what a body that runs it says about itself.
    ///
    /// # Errors
    /// What cannot run.
    pub(super) fn build(world: &World, model: &GraphModel, info: Option<Value>) -> Result<Self, String> {
        let name = model.name.clone().unwrap_or_default();
        let tree = Arc::new(Tree::new(model));
        let graph = Arc::new(Compiler { world, tree: &tree }.compile(model, &name, &[], &[])?);
        Ok(Self { name, graph, tree, info })
    }

    /// Compiles `model` for somebody who runs it otherwise.
    ///
    /// # Errors
    /// What cannot run.
    pub(super) fn compile(world: &World, model: &GraphModel) -> Result<CompiledGraph, String> {
        let tree = Arc::new(Tree::new(model));
        Compiler { world, tree: &tree }.compile(model, model.name.as_deref().unwrap_or_default(), &[], &[])
    }

    /// Runs it inside a body, as a frame of the same checkpoint (K17).
    pub(super) async fn run(&self, cx: &Context, input: &Value) -> NodeResult<Value> {
        if let Some(info) = &self.info {
            cx.container(info.clone())?;
        }
        let end = cx.graph(&self.name, &self.graph, input.clone()).await?;
        self.output(&end).map_err(NodeError::Failed)
    }

    /// What it returned, from its last state.
    pub(super) fn output(&self, state: &Map<String, Value>) -> Result<Value, String> {
        self.tree.output(&Flow::read(state.get(FLOW))?)
    }
}

struct Compiler<'a> {
    world: &'a World,
    tree: &'a Arc<Tree>,
}

impl Compiler<'_> {
    /// `handlers` are those of the nodes around that this graph runs as.
    fn compile(
        &self,
        model: &GraphModel,
        name: &str,
        path: &[String],
        handlers: &[Handler],
    ) -> Result<CompiledGraph, String> {
        let mut graph = GraphBuilder::new(name, 1);
        graph.key(FLOW, Flow::reducer());
        graph.key(shared::key(path), shared::reducer(model.state.as_ref()));
        for handler in handlers {
            graph.key(&handler.key, shared::reducer(None));
        }
        if path.is_empty() {
            let (ledger, state) = (Arc::clone(&self.world.ledger), model.state.clone());
            graph.input(move |input| {
                let run = ledger.count("input".to_owned());
                let mut writes = Map::from_iter([(FLOW.to_owned(), Flow::input(input, run))]);
                writes.extend(state.iter().map(|state| (shared::key(&[]), shared::set(state))));
                Ok(writes)
            });
        }
        let mut first = model.edges.iter().filter(|(from, _)| from == START).map(|(_, to)| to).collect::<Vec<_>>();
        first.sort();
        for (node, model) in &model.nodes {
            // What is around is handled by one of the nodes that start.
            let mut handlers = if first.first() == Some(&node) { handlers.to_vec() } else { Vec::new() };
            if let NodeKind::Graph { graph: inner } = &model.kind {
                let inside: Vec<String> = path.iter().chain([node]).cloned().collect();
                let own =
                    model.pre.clone().map(|counter| Handler { key: shared::key(path), counter, depth: inside.len() });
                handlers.extend(own);
                graph.subgraph(node, self.compile(inner, node, &inside, &handlers)?);
            } else {
                graph.node(node, self.body(node, model, path, handlers)?);
            }
        }
        for (from, to) in &model.edges {
            graph.edge(from, to);
        }
        for branch in &model.branches {
            graph.branch(&branch.from, self.branch(branch, path));
        }
        for node in &model.break_before {
            graph.break_before(node);
        }
        for node in &model.break_after {
            graph.break_after(node);
        }
        graph.compile().map_err(|problem| format!("the graph `{name}`: {problem}"))
    }

    fn branch(
        &self,
        branch: &BranchModel,
        path: &[String],
    ) -> impl Fn(&StateView) -> Result<Vec<Goto>, String> + use<> {
        let (tree, branch, path) = (Arc::clone(self.tree), branch.clone(), path.to_vec());
        move |state| {
            let flow = Flow::read(state.values().get(FLOW))?;
            let value = tree.newest(&flow, &path, &branch.from)?;
            Ok(vec![Goto::Node(branch.target(&value).to_owned())])
        }
    }

    fn body(
        &self,
        name: &str,
        model: &NodeModel,
        path: &[String],
        mut handlers: Vec<Handler>,
    ) -> Result<SharedBody, String> {
        let work = match &model.kind {
            NodeKind::Body { script } => Work::Script(script.clone()),
            NodeKind::Tools(tools) => {
                Work::Tools { tools: tools::build(self.world, &tools.tools)?, batches: tools.batches.clone() }
            }
            NodeKind::Composite { composite } => Work::Composite(Arc::new(composite.clone())),
            NodeKind::Embedded(embedded) => {
                Work::Embedded(Runnable::build(self.world, &embedded.graph, embedded.info.clone())?)
            }
            NodeKind::Graph { .. } => return Err(format!("`{name}` is a graph and has no body")),
        };
        let own = |counter| Handler { key: shared::key(path), counter, depth: usize::MAX };
        handlers.extend(model.pre.clone().map(own));
        let node = Arc::new(Node {
            world: self.world.clone(),
            tree: Arc::clone(self.tree),
            path: path.to_vec(),
            name: name.to_owned(),
            handlers,
            work,
        });
        Ok(body_fn(move |cx| {
            let node = Arc::clone(&node);
            async move { node.run(cx).await }
        }))
    }
}

/// A state pre-handler: it adds one to a member of a shared state. That of a
/// nested graph is run by the first of its nodes, since a graph that runs as a
/// node has no body that could.
#[derive(Clone)]
struct Handler {
    /// The state key of the shared state.
    key: String,
    /// The member.
    counter: String,
    /// How many graphs below the root the graph is whose start it handles;
    /// beyond all of them for that of the node itself.
    depth: usize,
}

/// A node with a body.
struct Node {
    world: World,
    tree: Arc<Tree>,
    path: Vec<String>,
    name: String,
    handlers: Vec<Handler>,
    work: Work,
}

enum Work {
    Script(Script),
    Tools { tools: Tools, batches: Vec<Vec<model::Call>> },
    Composite(Arc<CompositeModel>),
    Embedded(Runnable),
}

impl Node {
    async fn run(&self, cx: Context) -> NodeResult<Writes> {
        let at = supersteps(cx.address());
        let flow = Flow::read(cx.state().values().get(FLOW)).map_err(NodeError::Failed)?;
        let parts = self.tree.input(&flow, &self.path, &at, &self.name).map_err(NodeError::Failed)?;
        let mut writes = Writes::none();
        let mut added = Vec::new();
        for (number, handler) in self.handlers.iter().enumerate() {
            let due = self.tree.is_entry(&flow, &self.path, &at, handler.depth).map_err(NodeError::Failed)?;
            if handler.depth != usize::MAX && !due {
                continue;
            }
            // Counted outside as well, so that a second run would show (K9).
            let occurrence = format!("pre {number} {}", cx.address());
            let count = |_| async { Ok::<u32, NodeError>(self.world.ledger.count(occurrence.clone())) };
            let by: u32 = cx.step("pre", count).await?;
            let write = shared::add(&occurrence, &handler.counter, by);
            writes = writes.with(&handler.key, &write);
            added.push((handler, write));
        }
        let key = shared::key(&self.path);
        let own = added.into_iter().filter(|(handler, _)| handler.key == key).map(|(_, write)| write);
        let shared = shared::view(cx.state().values().get(&key), own).map_err(NodeError::Failed)?;
        let given = Given { input: value_of(parts), shared };
        let value = self.work.run(&self.world, &cx, given).await?;
        let handed_on = Parts::from_iter([(self.name.clone(), value)]);
        let path = self.path.iter().chain([&self.name]).map(String::as_str).collect::<Vec<_>>().join("/");
        Ok(writes.with(FLOW, &Flow::fired(&path, &at, &handed_on)))
    }
}

impl Work {
    async fn run(&self, world: &World, cx: &Context, given: Given) -> NodeResult<Value> {
        match self {
            Self::Script(script) => play_value(world, cx, script, &given).await,
            Self::Tools { tools, batches } => {
                let visits = format!("batch {}", world.sight.body(cx.address()));
                let visit = |_| async { Ok::<u32, NodeError>(world.ledger.count(visits) - 1) };
                let visit: u32 = cx.step("batch", visit).await?;
                let batch = usize::try_from(visit).ok().and_then(|visit| batches.get(visit)).or(batches.last());
                let calls = batch.ok_or_else(|| NodeError::failed("a tool node without a batch"))?;
                let results = tools::run(world, cx, tools, calls, &given.shared).await?;
                Ok(tools::gathered(calls, results))
            }
            Self::Composite(model) => composite::run(world.clone(), cx.clone(), Arc::clone(model), given).await,
            Self::Embedded(runnable) => runnable.run(cx, &given.input).await,
        }
    }
}

/// The superstep in each frame of the runnable around a node, outermost first.
fn supersteps(address: &Address) -> Vec<u64> {
    let segments = address.segments();
    let root = segments.iter().rposition(|segment| segment.kind == SegmentKind::Graph).map_or(0, |root| root + 1);
    let nodes = segments[root..].iter().filter(|segment| segment.kind == SegmentKind::Node);
    nodes.map(|segment| segment.visit).collect()
}

/// The path of the graph whose frame is at `address`, within its runnable.
pub(super) fn frame_path(address: &Address) -> Vec<String> {
    let segments = address.segments();
    let root = segments.iter().rposition(|segment| segment.kind == SegmentKind::Graph).map_or(0, |root| root + 1);
    let nodes = segments[root..].iter().filter(|segment| segment.kind == SegmentKind::Node);
    nodes.map(|segment| segment.name.clone()).collect()
}
