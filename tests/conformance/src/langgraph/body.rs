//! Runs the operations of a body on the kernel's public API (section 3 of the
//! format).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersign_kernel::address::{Address, SegmentKind};
use countersign_kernel::context::Context;
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::node::{Goto, NodeError, NodeResult, Outcome};
use countersign_kernel::state::Writes;
use serde_json::{Map, Value};

use super::model::{Graph, Op};
use super::subject::{body_path, task_path};
use super::template::{Lookup, Scope};
use super::world::World;

/// The name of the root graph.
pub const ROOT: &str = "main";

/// A body from a scenario.
#[derive(Debug)]
pub struct Program {
    /// What it does.
    pub ops: Vec<Op>,
    /// The graphs of the scenario.
    pub graphs: Arc<BTreeMap<String, Graph>>,
    /// The graphs it calls.
    pub calls: BTreeMap<String, Arc<CompiledGraph>>,
    /// What is outside the kernel.
    pub world: Arc<World>,
}

/// A list of operations that is being worked through.
struct Level<'a> {
    ops: std::iter::Enumerate<std::slice::Iter<'a, Op>>,
    position: Vec<usize>,
}

impl<'a> Level<'a> {
    fn new(ops: &'a [Op], position: Vec<usize>) -> Self {
        Self { ops: ops.iter().enumerate(), position }
    }
}

impl Program {
    /// Runs the body from the top.
    ///
    /// # Errors
    /// A question that waits, a failure, or a hand-over of a called graph.
    pub async fn run(&self, cx: Context) -> NodeResult<Outcome> {
        let path = body_path(cx.address());
        let mut active = self.world.enter(&path);
        let nothing = Map::new();
        // A sent task sees its argument and nothing else.
        let sees: &dyn Lookup = match cx.argument() {
            Some(argument) => argument.as_object().unwrap_or(&nothing),
            None => cx.state().values(),
        };
        let mut scope = Scope { state: Some(sees), ..Scope::default() };
        let mut writes = Vec::new();
        let mut outcome = Outcome::default();
        let mut levels = vec![Level::new(&self.ops, Vec::new())];
        while let Some(level) = levels.last_mut() {
            let Some((index, op)) = level.ops.next() else {
                levels.pop();
                continue;
            };
            let mut position = level.position.clone();
            position.push(index);
            match op {
                Op::Write { key, value } => writes.push((key.clone(), value.fill(&scope))),
                Op::Let { name, value } => {
                    let value = value.fill(&scope);
                    scope.locals.insert(name.clone(), value);
                }
                Op::Interrupt { payload, into } => {
                    let answer = cx.interrupt(payload.fill(&scope)).await?;
                    scope.locals.extend(into.clone().map(|name| (name, answer)));
                }
                Op::Raise { message, times } => {
                    let reached = self.world.reach(&path, &position);
                    if times.is_none_or(|times| reached <= times) {
                        active.others_rest(&task_path(cx.address())).await;
                        return Err(NodeError::failed(message));
                    }
                }
                Op::If { test, then, otherwise } => {
                    let holds = test.holds(&scope).map_err(NodeError::failed)?;
                    position.push(usize::from(!holds));
                    levels.push(Level::new(if holds { then } else { otherwise }, position));
                }
                Op::Goto { to, graph } => {
                    outcome.goto.extend(to.iter().cloned().map(Goto::Node));
                    outcome.parent |= graph.is_some();
                }
                Op::Send { to, arg } => {
                    outcome.goto.push(Goto::Send { node: to.clone(), argument: arg.fill(&scope) });
                }
                Op::Call { graph, input, into } => {
                    let called = self.calls.get(graph);
                    let called = called.ok_or_else(|| NodeError::failed(format!("there is no graph `{graph}`")))?;
                    let input = declared(called, input.fill(&scope));
                    let end = {
                        let _inside = active.pause();
                        cx.graph(graph, called, input).await?
                    };
                    scope.locals.extend(into.clone().map(|name| (name, Value::Object(end))));
                }
            }
        }
        // A hand-over writes to the graph around this one.
        let around = usize::from(outcome.parent);
        let written_to = graphs_around(&self.graphs, cx.address()).into_iter().nth_back(around);
        writes.retain(|(key, _)| written_to.is_none_or(|graph| graph.keys.contains_key(key)));
        outcome.writes = writes.into_iter().collect::<Writes>();
        Ok(outcome)
    }
}

/// Input for a graph: what it does not declare is dropped.
#[must_use]
pub fn declared(graph: &CompiledGraph, input: Value) -> Value {
    let Value::Object(members) = input else { return input };
    let keys: BTreeSet<&str> = graph.keys().map(|key| key.name.as_str()).collect();
    Value::Object(members.into_iter().filter(|(key, _)| keys.contains(key.as_str())).collect())
}

/// The graphs around a task: the root first, the task's own last.
fn graphs_around<'a>(graphs: &'a BTreeMap<String, Graph>, address: &Address) -> Vec<&'a Graph> {
    let mut around: Vec<&Graph> = graphs.get(ROOT).into_iter().collect();
    for segment in address.segments().iter().skip(1) {
        let inner = match segment.kind {
            SegmentKind::Node => around.last().and_then(|graph| graph.nodes.get(&segment.name)?.graph.as_deref()),
            SegmentKind::Graph => Some(segment.name.as_str()),
            SegmentKind::Task | SegmentKind::Slot | SegmentKind::Child => None,
        };
        around.extend(inner.and_then(|name| graphs.get(name)));
    }
    around
}
