//! The data flow of a graph: which nodes fired when, and what a node gets.
//!
//! All graphs of one runnable share one state key, in which every node leaves
//! what it returned and when (the supersteps of the frames around it, outermost
//! first). A graph that runs as a node gets the key with what fired before it
//! and hands back what fired inside; nothing else has to pass between them.

use std::collections::BTreeMap;

use countersign_kernel::graph::{END_NAME, START};
use countersign_kernel::state::Reducer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::model::{GraphModel, NodeKind};
use super::script::as_text;

/// The state key of the data flow.
pub(super) const FLOW: &str = "flow";

/// What arrives at a node, by who sent it.
pub(super) type Parts = Map<String, Value>;

/// What a node left when it fired.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Fired {
    /// The superstep in each frame, outermost first.
    at: Vec<u64>,
    /// What it hands on.
    parts: Parts,
}

/// What fired, by the node's path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Flow(BTreeMap<String, Fired>);

impl Flow {
    /// Reads the state key.
    pub(super) fn read(value: Option<&Value>) -> Result<Self, String> {
        let Some(value) = value else { return Ok(Self::default()) };
        Self::deserialize(value).map_err(|problem| format!("the key `{FLOW}`: {problem}"))
    }

    /// The write of the `run`-th fresh input: it starts the flow anew.
    pub(super) fn input(input: &Value, run: u32) -> Value {
        json!({START: {"at": [run], "parts": {START: input}}})
    }

    /// The write of a node that fired.
    pub(super) fn fired(path: &str, at: &[u64], parts: &Parts) -> Value {
        json!({path: {"at": at, "parts": parts}})
    }

    /// How writes combine: what fired later replaces what the node left before.
    pub(super) fn reducer() -> Reducer {
        Reducer::custom("flow", Some(json!({})), |current, write| {
            let (mut current, write) = (Self::read(Some(&current))?, Self::read(Some(&write))?);
            let anew = write.0.get(START).is_some_and(|start| current.0.get(START) != Some(start));
            if anew {
                current = write;
            } else {
                for (path, fired) in write.0 {
                    if current.0.get(&path).is_none_or(|known| known.at <= fired.at) {
                        current.0.insert(path, fired);
                    }
                }
            }
            serde_json::to_value(current).map_err(|problem| problem.to_string())
        })
    }
}

/// What a node or a caller gets of its parts.
pub(super) fn value_of(parts: Parts) -> Value {
    match parts.len() {
        0 => Value::Null,
        1 => parts.into_iter().next().map_or(Value::Null, |(_, value)| value),
        _ => Value::Object(parts),
    }
}

/// The graphs of one runnable: the root, and those that run as nodes.
#[derive(Debug)]
pub(super) struct Tree(Level);

#[derive(Debug)]
struct Level {
    model: GraphModel,
    /// The node that it runs as in the graph around it.
    name: String,
    /// What comes before its nodes' names in their paths: nothing, or `sg/`.
    prefix: String,
    inside: BTreeMap<String, Level>,
}

/// One frame of a runnable: the graphs on the way to it, and the superstep in
/// each frame around it.
struct Frame<'a> {
    route: &'a [&'a Level],
    at: &'a [u64],
}

impl Tree {
    /// The graphs of `model`.
    pub(super) fn new(model: &GraphModel) -> Self {
        Self(Level::new(model, "", ""))
    }

    /// What arrives at `target` of the graph at `path`, for a task that runs in
    /// the supersteps `at` (its own is the last).
    pub(super) fn input(&self, flow: &Flow, path: &[String], at: &[u64], target: &str) -> Result<Parts, String> {
        let route = self.route(path)?;
        let (own, around) = at.split_last().ok_or("a node outside every superstep")?;
        Frame { route: &route, at: around }.arriving(flow, target, *own)
    }

    /// What arrived at the end of the runnable.
    pub(super) fn output(&self, flow: &Flow) -> Result<Value, String> {
        Frame { route: &[&self.0], at: &[] }.arriving(flow, END_NAME, u64::MAX).map(value_of)
    }

    /// What `node` of the graph at `path` handed on when it fired last.
    pub(super) fn newest(&self, flow: &Flow, path: &[String], node: &str) -> Result<Value, String> {
        let route = self.route(path)?;
        let level = route.last().ok_or("a route without a graph")?;
        let newest = level.firings(flow, node).map(|fired| &fired.at[..route.len()]).max();
        let at = newest.ok_or_else(|| format!("`{}{node}` has not fired", level.prefix))?;
        let (own, around) = at.split_last().ok_or("a node outside every superstep")?;
        Frame { route: &route, at: around }.handed_on(flow, node, *own).map(value_of)
    }

    /// Whether a task of the graph at `path` runs because of what the graph
    /// `depth` graphs below the root was given, and of nothing that fired since.
    pub(super) fn is_entry(&self, flow: &Flow, path: &[String], at: &[u64], depth: usize) -> Result<bool, String> {
        let route = self.route(path)?;
        let first = |level: usize| Frame { route: &route[..=level], at: &at[..level] }.newest_nodes(flow, at[level]).0;
        Ok(at.len() == route.len() && (depth..route.len()).all(|level| first(level).is_none()))
    }

    fn route(&self, path: &[String]) -> Result<Vec<&Level>, String> {
        let mut route = vec![&self.0];
        for name in path {
            let inner = route.last().and_then(|level| level.inside.get(name));
            route.push(inner.ok_or_else(|| format!("there is no graph at {}", path.join("/")))?);
        }
        Ok(route)
    }
}

impl Level {
    fn new(model: &GraphModel, name: &str, prefix: &str) -> Self {
        let inner = |(name, kind): (&String, &NodeKind)| match kind {
            NodeKind::Graph { graph } => Some((name.clone(), Self::new(graph, name, &format!("{prefix}{name}/")))),
            _ => None,
        };
        let inside = model.nodes.iter().map(|(name, node)| (name, &node.kind)).filter_map(inner).collect();
        Self { model: model.clone(), name: name.into(), prefix: prefix.into(), inside }
    }

    /// What a node left; for a graph, what its nodes left.
    fn firings<'a>(&'a self, flow: &'a Flow, node: &'a str) -> impl Iterator<Item = &'a Fired> {
        let (path, inner) = (format!("{}{node}", self.prefix), self.inside.get(node));
        let leaf = inner.is_none().then(|| flow.0.get(&path)).flatten();
        let inside = inner.map(|level| flow.0.iter().filter(|(path, _)| path.starts_with(&level.prefix)));
        leaf.into_iter().chain(inside.into_iter().flatten().map(|(_, fired)| fired))
    }

    /// Whether `to` starts when `from` has handed on `parts`.
    fn leads(&self, from: &str, to: &str, parts: &Parts) -> bool {
        let plain = self.model.edges.iter().any(|(source, target)| source == from && target == to);
        let mut branches = self.model.branches.iter().filter(|branch| branch.from == from);
        plain || branches.any(|branch| branch.target(&value_of(parts.clone())) == to)
    }
}

impl super::model::BranchModel {
    /// Where it leads for what `from` returned.
    pub(super) fn target(&self, value: &Value) -> &str {
        self.cases.get(&as_text(value)).unwrap_or(&self.otherwise)
    }
}

impl Frame<'_> {
    /// The graph of the frame.
    fn level(&self) -> Result<&Level, String> {
        self.route.last().copied().ok_or_else(|| "a route without a graph".to_owned())
    }

    /// The last superstep before `before` in which something fired, and what.
    fn newest_nodes(&self, flow: &Flow, before: u64) -> (Option<u64>, Vec<String>) {
        let Some(level) = self.route.last() else { return (None, Vec::new()) };
        let depth = self.at.len();
        let when = |node: &String| {
            let here =
                level.firings(flow, node).filter(|fired| fired.at.len() > depth && fired.at.starts_with(self.at));
            here.map(|fired| fired.at[depth]).filter(|step| *step < before).max()
        };
        let nodes: Vec<_> = level.model.nodes.keys().filter_map(|node| Some((node, when(node)?))).collect();
        let newest = nodes.iter().map(|(_, step)| *step).max();
        let newest_nodes = nodes.into_iter().filter(|(_, step)| Some(*step) == newest);
        (newest, newest_nodes.map(|(node, _)| node.clone()).collect())
    }

    /// What arrives at `target` in superstep `before`: from those nodes of the
    /// superstep before that lead there; from the start if none has fired yet.
    fn arriving(&self, flow: &Flow, target: &str, before: u64) -> Result<Parts, String> {
        let level = self.level()?;
        let (Some(step), nodes) = self.newest_nodes(flow, before) else { return self.given(flow) };
        let mut parts = Parts::new();
        for node in nodes {
            let handed_on = self.handed_on(flow, &node, step)?;
            if level.leads(&node, target, &handed_on) {
                parts.extend(handed_on);
            }
        }
        Ok(parts)
    }

    /// What the graph itself was given.
    fn given(&self, flow: &Flow) -> Result<Parts, String> {
        match (self.route, self.at) {
            ([outer @ .., level], [at @ .., step]) => Frame { route: outer, at }.arriving(flow, &level.name, *step),
            _ => Ok(flow.0.get(START).map(|start| start.parts.clone()).unwrap_or_default()),
        }
    }

    /// What `node` handed on in superstep `step`; a graph, what arrived at its end.
    fn handed_on(&self, flow: &Flow, node: &str, step: u64) -> Result<Parts, String> {
        let level = self.level()?;
        if let Some(inner) = level.inside.get(node) {
            let route: Vec<&Level> = self.route.iter().copied().chain([inner]).collect();
            let at: Vec<u64> = self.at.iter().copied().chain([step]).collect();
            return Frame { route: &route, at: &at }.arriving(flow, END_NAME, u64::MAX);
        }
        let fired = flow.0.get(&format!("{}{node}", level.prefix));
        fired.map(|fired| fired.parts.clone()).ok_or_else(|| format!("`{}{node}` has not fired", level.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(graph: Value) -> Tree {
        Tree::new(&serde_json::from_value(graph).expect("a graph"))
    }

    fn nodes(names: &[&str]) -> Value {
        let body = json!({"kind": "body", "script": {"fresh": []}});
        Value::Object(names.iter().map(|name| ((*name).to_owned(), body.clone())).collect())
    }

    fn flow(writes: &[Value]) -> Flow {
        let reducer = Flow::reducer();
        let mut current = Flow::input(&json!("in"), 1);
        for write in writes {
            let change = reducer.reduce(FLOW, Some(&current), write.clone()).expect("a flow");
            let countersign_kernel::state::Change::Set(next) = change else { panic!("{change:?}") };
            current = next;
        }
        Flow::read(Some(&current)).expect("a flow")
    }

    fn left(path: &str, at: &[u64], value: &str) -> Value {
        let name = path.rsplit('/').next().unwrap_or(path);
        Flow::fired(path, at, &Parts::from_iter([(name.to_owned(), json!(value))]))
    }

    fn path(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn one_value_comes_alone_and_several_by_name() {
        let tree = tree(json!({"nodes": nodes(&["a", "b", "j"]),
            "edges": [["START", "a"], ["START", "b"], ["a", "j"], ["b", "j"], ["j", "END"]]}));
        let input = |flow: &Flow, step, node| value_of(tree.input(flow, &[], &[step], node).expect("an input"));
        assert_eq!(input(&flow(&[]), 0, "a"), json!("in"));
        let both = flow(&[left("a", &[0], "A"), left("b", &[0], "B")]);
        assert_eq!(input(&both, 1, "j"), json!({"a": "A", "b": "B"}));
        assert_eq!(input(&flow(&[left("a", &[0], "A")]), 1, "j"), json!("A"));
        let done = flow(&[left("a", &[0], "A"), left("j", &[1], "J")]);
        assert_eq!(tree.output(&done), Ok(json!("J")));
    }

    #[test]
    fn a_branch_only_sends_where_it_leads() {
        let tree = tree(json!({"nodes": nodes(&["w"]), "edges": [["START", "w"]],
            "branches": [{"from": "w", "cases": {"again": "w"}, "else": "END"}]}));
        let again = flow(&[left("w", &[0], "again")]);
        assert_eq!(tree.input(&again, &[], &[1], "w").map(value_of), Ok(json!("again")));
        assert_eq!(tree.output(&again), Ok(Value::Null));
        let done = flow(&[left("w", &[0], "again"), left("w", &[1], "enough")]);
        assert_eq!(tree.output(&done), Ok(json!("enough")));
        assert_eq!(tree.newest(&done, &[], "w"), Ok(json!("enough")));
    }

    #[test]
    fn a_nested_graph_takes_and_hands_on_under_the_names_of_its_last_nodes() {
        let inner = json!({"kind": "graph", "graph": {"nodes": nodes(&["x", "y"]),
            "edges": [["START", "x"], ["x", "y"], ["y", "END"]]}});
        let tree = tree(json!({"nodes": {"one": nodes(&["one"])["one"], "sg": inner, "last": inner},
            "edges": [["START", "one"], ["one", "sg"], ["sg", "last"], ["last", "END"]]}));
        let begun = flow(&[left("one", &[0], "1")]);
        assert_eq!(tree.input(&begun, &path(&["sg"]), &[1, 0], "x").map(value_of), Ok(json!("1")));
        let through = flow(&[left("one", &[0], "1"), left("sg/x", &[1, 0], "X"), left("sg/y", &[1, 1], "Y")]);
        assert_eq!(tree.input(&through, &path(&["sg"]), &[1, 1], "y").map(value_of), Ok(json!("X")));
        let next = tree.input(&through, &path(&["last"]), &[2, 0], "x").expect("an input");
        assert_eq!(Value::Object(next), json!({"y": "Y"}));
        assert_eq!(tree.newest(&through, &[], "sg"), Ok(json!("Y")));
        let unknown = tree.input(&through, &path(&["what"]), &[2, 0], "x");
        assert_eq!(unknown, Err("there is no graph at what".into()));
    }

    #[test]
    fn fresh_input_starts_anew_and_what_is_older_changes_nothing() {
        let old = flow(&[left("a", &[3], "new"), left("a", &[2], "old")]);
        assert_eq!(old.0["a"].parts["a"], "new");
        let again = flow(&[left("a", &[3], "x"), Flow::input(&json!("again"), 2)]);
        assert_eq!(again.0.keys().collect::<Vec<_>>(), [START]);
        let same = flow(&[left("a", &[3], "x"), Flow::input(&json!("in"), 1)]);
        assert_eq!(same.0.len(), 2, "what a nested graph hands back starts nothing anew");
    }
}
