//! Builds the kernel's graphs from a scenario's (section 2 of the format).

use std::collections::BTreeMap;
use std::sync::Arc;

use countersign_kernel::graph::{CompiledGraph, GraphBuilder};
use countersign_kernel::node::{Goto, NodePolicy, RetryPolicy, body_fn};
use countersign_kernel::state::{Reducer, StateView};

use super::body::{Program, ROOT, declared};
use super::model::{Branch, Graph, KeyReducer, Node, Op, Scenario, Sources, Stops};
use super::template::{Lookup, Scope};
use super::world::World;

/// Builds all graphs; gives the root.
///
/// # Errors
/// What the kernel finds wrong, or a scenario that contradicts itself.
pub fn build(scenario: &Scenario, world: &Arc<World>) -> Result<CompiledGraph, String> {
    let mut builder =
        Builder { graphs: Arc::new(scenario.graphs.clone()), world, built: BTreeMap::new(), open: Vec::new() };
    for name in scenario.graphs.keys() {
        builder.graph(name)?;
    }
    let root = builder.built.remove(ROOT).ok_or_else(|| format!("there is no graph `{ROOT}`"))?;
    Arc::try_unwrap(root).map_err(|_| format!("the graph `{ROOT}` runs inside another one"))
}

struct Builder<'a> {
    graphs: Arc<BTreeMap<String, Graph>>,
    world: &'a Arc<World>,
    built: BTreeMap<String, Arc<CompiledGraph>>,
    /// Graphs that are being built, to find one that contains itself.
    open: Vec<String>,
}

impl Builder<'_> {
    fn graph(&mut self, name: &str) -> Result<Arc<CompiledGraph>, String> {
        if let Some(built) = self.built.get(name) {
            return Ok(Arc::clone(built));
        }
        if self.open.iter().any(|open| open == name) {
            return Err(format!("the graph `{name}` contains itself"));
        }
        let graphs = Arc::clone(&self.graphs);
        let graph = graphs.get(name).ok_or_else(|| format!("there is no graph `{name}`"))?;
        self.open.push(name.to_owned());
        let mut builder = GraphBuilder::new(name, 1);
        for (key, spec) in &graph.keys {
            builder.key(key, reducer(spec.reducer));
        }
        let mut inner = BTreeMap::new();
        for (node, spec) in &graph.nodes {
            inner.extend(self.node(&mut builder, node, spec)?.map(|graph| (node.clone(), graph)));
        }
        for edge in &graph.edges {
            match &edge.from {
                Sources::One(from) => builder.edge(from, &edge.to),
                Sources::All(from) => builder.join(from, &edge.to),
            };
        }
        for branch in &graph.branches {
            add_branch(&mut builder, branch, &inner)?;
        }
        each_stop(&graph.interrupt_before, |node| _ = builder.break_before(node));
        each_stop(&graph.interrupt_after, |node| _ = builder.break_after(node));
        let built = Arc::new(builder.compile().map_err(|faults| faults.to_string())?);
        self.open.pop();
        self.built.insert(name.to_owned(), Arc::clone(&built));
        Ok(built)
    }

    /// Adds a node; gives the graph that runs as it, if one does.
    fn node(
        &mut self,
        builder: &mut GraphBuilder,
        name: &str,
        node: &Node,
    ) -> Result<Option<Arc<CompiledGraph>>, String> {
        let inner = match (&node.ops, &node.graph) {
            (Some(ops), None) => {
                let program = Arc::new(Program {
                    ops: ops.clone(),
                    graphs: Arc::clone(&self.graphs),
                    calls: self.calls(ops)?,
                    world: Arc::clone(self.world),
                });
                let body = body_fn(move |cx| {
                    let program = Arc::clone(&program);
                    async move { program.run(cx).await }
                });
                builder.node(name, body);
                None
            }
            (None, Some(inner)) => {
                let inner = self.graph(inner)?;
                builder.subgraph(name, Arc::clone(&inner));
                Some(inner)
            }
            _ => return Err(format!("the node `{name}` needs either `ops` or `graph`")),
        };
        if let Some(retry) = node.retry {
            let retry = Some(RetryPolicy::immediate(retry.max_attempts));
            builder.policy(name, NodePolicy { retry, ..NodePolicy::default() });
        }
        Ok(inner)
    }

    fn calls(&mut self, ops: &[Op]) -> Result<BTreeMap<String, Arc<CompiledGraph>>, String> {
        let mut calls = BTreeMap::new();
        for op in ops {
            match op {
                Op::Call { graph, .. } => {
                    calls.insert(graph.clone(), self.graph(graph)?);
                }
                Op::If { then, otherwise, .. } => {
                    calls.extend(self.calls(then)?);
                    calls.extend(self.calls(otherwise)?);
                }
                _ => {}
            }
        }
        Ok(calls)
    }
}

fn reducer(reducer: KeyReducer) -> Reducer {
    match reducer {
        KeyReducer::Last => Reducer::Last,
        KeyReducer::Append => Reducer::Append,
        KeyReducer::Sum => Reducer::Sum,
        KeyReducer::Merge => Reducer::Merge,
    }
}

fn each_stop(stops: &Stops, mut add: impl FnMut(&str)) {
    match stops {
        Stops::All(_) => add("*"),
        Stops::Nodes(nodes) => nodes.iter().for_each(|node| add(node)),
    }
}

fn add_branch(
    builder: &mut GraphBuilder,
    branch: &Branch,
    inner: &BTreeMap<String, Arc<CompiledGraph>>,
) -> Result<(), String> {
    let Branch { from, key, cases, default, fanout } = branch.clone();
    match (key, fanout) {
        (Some(key), None) => {
            builder.branch(from, move |state: &StateView| {
                let value = state.values().get(&key).cloned().unwrap_or_default();
                let to = cases.iter().find(|case| case.when == value).map(|case| &case.to).or(default.as_ref());
                to.map(|to| to.iter().cloned().map(Goto::Node).collect()).ok_or_else(|| "no matching case".to_owned())
            });
        }
        (None, Some(fanout)) => {
            let target = inner.get(&fanout.to).cloned();
            builder.branch(from, move |state: &StateView| {
                let items = state.values().get(&fanout.over).and_then(|items| items.as_array()).cloned();
                let task = |(index, item)| {
                    let state: Option<&dyn Lookup> = Some(state.values());
                    let argument = fanout.arg.fill(&Scope { state, item: Some((index, item)), ..Scope::default() });
                    // A sent sub-graph task takes its argument as input.
                    let argument = target.as_ref().map_or(argument.clone(), |graph| declared(graph, argument));
                    Goto::Send { node: fanout.to.clone(), argument }
                };
                Ok(items.into_iter().flatten().enumerate().map(task).collect())
            });
        }
        _ => return Err(format!("a branch from `{from}` needs either `key` or `fanout`")),
    }
    Ok(())
}
