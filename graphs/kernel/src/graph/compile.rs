//! From a description to a sound graph: all faults at once (R8).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::json;

use super::builder::{Breakpoints, GraphBuilder};
use super::{CompiledGraph, END_NAME, START};
use crate::canonical::content_hash;
use crate::node::{NodeKind, NodePolicy, NodeSpec, SubgraphMapping};

/// What makes a graph unable to run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphFault {
    /// The name of a graph, node or key has characters that addresses cannot carry.
    #[error("`{0}` is not a name: use letters, digits, `_`, `-` and `.`")]
    BadName(String),
    /// `START`, `END` and `*` mean something else.
    #[error("`{0}` is reserved")]
    Reserved(String),
    /// Two nodes have one name.
    #[error("there are two nodes called `{0}`")]
    DuplicateNode(String),
    /// Two keys have one name.
    #[error("there are two keys called `{0}`")]
    DuplicateKey(String),
    /// An edge, join, branch or breakpoint names a node that is not there.
    #[error("{place} names `{node}`, which is no node of this graph")]
    UnknownNode {
        /// What names it.
        place: String,
        /// The name.
        node: String,
    },
    /// Nothing leads out of the start.
    #[error("no edge or condition leaves START, so nothing would ever run")]
    NoEntry,
    /// A join waits for nobody.
    #[error("the join to `{0}` has no sources")]
    EmptyJoin(String),
}

/// What is odd but can run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphWarning {
    /// No edge reaches the node (conditions may still name it).
    #[error("nothing leads to node `{0}`")]
    Unreachable(String),
    /// No edge reaches the end.
    #[error("nothing leads to END")]
    NoWayToEnd,
    /// A migration starts at the graph's own version or above it.
    #[error("the migration from version {0} is never applied: the graph is no newer")]
    IdleMigration(u32),
}

/// All faults of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// The graph.
    pub graph: String,
    /// Its faults, in the order of the description.
    pub faults: Vec<GraphFault>,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the graph `{}` cannot run:", self.graph)?;
        for fault in &self.faults {
            write!(f, "\n  - {fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CompileError {}

impl GraphBuilder {
    /// Checks the description.
    ///
    /// # Errors
    /// Every fault, by name.
    pub fn compile(self) -> Result<CompiledGraph, CompileError> {
        let faults = self.faults();
        if !faults.is_empty() {
            return Err(CompileError { graph: self.name, faults });
        }
        let fingerprint = self.fingerprint();
        let warnings = self.warnings();
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in self.edges {
            edges.entry(from).or_default().insert(to);
        }
        let own_keys: BTreeSet<String> = self.keys.iter().map(|key| key.name.clone()).collect();
        let mut policies: BTreeMap<String, NodePolicy> = self.policies.into_iter().collect();
        let nodes = self.nodes.into_iter().map(|(name, mut kind)| {
            if let NodeKind::Graph { mapping: SubgraphMapping::Shared(keys), .. } = &mut kind {
                keys.retain(|key| own_keys.contains(key));
            }
            let policy = policies.remove(&name).unwrap_or_default();
            (name, NodeSpec { kind, policy })
        });
        let nodes = nodes.collect();
        let mut branches: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for (from, branch) in self.branches {
            branches.entry(from).or_default().push(branch);
        }
        Ok(CompiledGraph {
            name: self.name,
            version: self.version,
            keys: self.keys.into_iter().map(|key| (key.name.clone(), key)).collect(),
            nodes,
            edges,
            joins: self.joins,
            branches,
            break_before: self.break_before,
            break_after: self.break_after,
            input: self.input,
            codec: self.codec,
            resources: std::sync::Arc::new(self.resources),
            limits: crate::limits::Limits::default(),
            migrations: self.migrations,
            order: self.order,
            fingerprint,
            warnings,
        })
    }

    fn faults(&self) -> Vec<GraphFault> {
        let mut faults = Vec::new();
        check_name(&self.name, &mut faults);
        let mut nodes = BTreeSet::new();
        for (name, _) in &self.nodes {
            check_name(name, &mut faults);
            if !nodes.insert(name.as_str()) {
                faults.push(GraphFault::DuplicateNode(name.clone()));
            }
        }
        let mut keys = BTreeSet::new();
        for key in &self.keys {
            check_name(&key.name, &mut faults);
            if !keys.insert(key.name.as_str()) {
                faults.push(GraphFault::DuplicateKey(key.name.clone()));
            }
        }
        let mut known = |place: String, node: &str, border: &str| {
            if node != border && !nodes.contains(node) {
                faults.push(GraphFault::UnknownNode { place, node: node.to_owned() });
            }
        };
        for (from, to) in &self.edges {
            known(format!("the edge {from} -> {to}"), from, START);
            known(format!("the edge {from} -> {to}"), to, END_NAME);
        }
        for (sources, to) in &self.joins {
            for source in sources {
                known(format!("the join to {to}"), source, "");
            }
            known(format!("the join to {to}"), to, END_NAME);
        }
        for (from, _) in &self.branches {
            known(format!("the condition after {from}"), from, START);
        }
        for (node, _) in &self.policies {
            known(format!("the policy of {node}"), node, "");
        }
        for (place, breakpoints) in [("break_before", &self.break_before), ("break_after", &self.break_after)] {
            if let Breakpoints::Nodes(names) = breakpoints {
                for name in names {
                    known(place.to_owned(), name, "");
                }
            }
        }
        for (sources, to) in &self.joins {
            if sources.is_empty() {
                faults.push(GraphFault::EmptyJoin(to.clone()));
            }
        }
        let entered =
            self.edges.iter().any(|(from, _)| from == START) || self.branches.iter().any(|(from, _)| from == START);
        if !entered {
            faults.push(GraphFault::NoEntry);
        }
        faults
    }

    fn warnings(&self) -> Vec<GraphWarning> {
        let idle = self.migrations.0.range(self.version..).map(|(from, _)| GraphWarning::IdleMigration(*from));
        let mut warnings: Vec<GraphWarning> = idle.collect();
        // A condition may lead anywhere, so with one nothing is certain.
        if !self.branches.is_empty() {
            return warnings;
        }
        let targets: BTreeSet<&str> =
            self.edges.iter().map(|(_, to)| to.as_str()).chain(self.joins.iter().map(|(_, to)| to.as_str())).collect();
        let unreached = self.nodes.iter().filter(|(name, _)| !targets.contains(name.as_str()));
        warnings.extend(unreached.map(|(name, _)| GraphWarning::Unreachable(name.clone())));
        let sources: BTreeSet<&str> = self
            .edges
            .iter()
            .map(|(from, _)| from.as_str())
            .chain(self.joins.iter().flat_map(|(from, _)| from.iter().map(String::as_str)))
            .collect();
        // A node without a way out ends the run just as END does.
        let ends = targets.contains(END_NAME) || self.nodes.iter().any(|(name, _)| !sources.contains(name.as_str()));
        if !ends {
            warnings.push(GraphWarning::NoWayToEnd);
        }
        warnings
    }

    fn fingerprint(&self) -> String {
        let breaks = |b: &Breakpoints| match b {
            Breakpoints::None => json!([]),
            Breakpoints::Nodes(nodes) => json!(nodes),
            Breakpoints::All => json!("*"),
        };
        let sorted = |mut list: Vec<String>| {
            list.sort_unstable();
            list
        };
        content_hash(&json!({
            "keys": sorted(self.keys.iter().map(|k| format!("{}:{:?}:{}", k.name, k.reducer, k.type_name)).collect()),
            "nodes": sorted(self.nodes.iter().map(|(name, kind)| match kind {
                NodeKind::Body(_) => name.clone(),
                NodeKind::Graph { graph, .. } => format!("{name}={}", graph.fingerprint),
            }).collect()),
            "edges": sorted(self.edges.iter().map(|(from, to)| format!("{from}>{to}")).collect()),
            "joins": sorted(self.joins.iter().map(|(from, to)| format!("{from:?}>{to}")).collect()),
            "branches": sorted(self.branches.iter().map(|(from, _)| from.clone()).collect()),
            "before": breaks(&self.break_before),
            "after": breaks(&self.break_after),
        }))
    }
}

fn check_name(name: &str, faults: &mut Vec<GraphFault>) {
    if matches!(name, START | END_NAME | "*") {
        faults.push(GraphFault::Reserved(name.to_owned()));
    } else if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')) {
        faults.push(GraphFault::BadName(name.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::body_fn;
    use crate::state::Reducer;

    #[test]
    fn all_faults_are_reported_at_once_and_by_name() {
        let noop = || body_fn(|_| async { Ok(()) });
        let mut graph = GraphBuilder::new("g", 1);
        graph.key("k", Reducer::Last).key("k", Reducer::Sum);
        graph.node("a", noop()).node("a", noop()).node("END", noop());
        graph.edge("a", "nowhere").join(["ghost"], "a").break_before("x");
        let faults = graph.compile().expect_err("faulty").faults;
        assert!(faults.contains(&GraphFault::DuplicateNode("a".into())));
        assert!(faults.contains(&GraphFault::DuplicateKey("k".into())));
        assert!(faults.contains(&GraphFault::Reserved("END".into())));
        assert!(faults.contains(&GraphFault::NoEntry));
        let unknown: Vec<_> = faults
            .iter()
            .filter_map(|f| if let GraphFault::UnknownNode { node, .. } = f { Some(node.as_str()) } else { None })
            .collect();
        assert_eq!(unknown, ["nowhere", "ghost", "x"]);
    }

    #[test]
    fn unreachable_nodes_and_endless_graphs_are_warnings() {
        let noop = || body_fn(|_| async { Ok(()) });
        let mut graph = GraphBuilder::new("g", 1);
        graph.node("a", noop()).node("b", noop()).node("c", noop());
        graph.edge(START, "a").edge("a", "b").edge("b", "a").edge("c", "a");
        let graph = graph.compile().expect("runs");
        assert_eq!(graph.warnings(), [GraphWarning::Unreachable("c".into()), GraphWarning::NoWayToEnd]);
    }

    #[test]
    fn the_fingerprint_follows_the_structure_not_the_order_of_words() {
        let build = |swap: bool, extra: bool| {
            let noop = || body_fn(|_| async { Ok(()) });
            let mut graph = GraphBuilder::new("g", 1);
            if swap {
                graph.node("b", noop()).node("a", noop()).edge("a", "b").edge(START, "a");
            } else {
                graph.node("a", noop()).node("b", noop()).edge(START, "a").edge("a", "b");
            }
            if extra {
                graph.break_before("b");
            }
            graph.compile().expect("runs").fingerprint().to_owned()
        };
        assert_eq!(build(false, false), build(true, false));
        assert_ne!(build(false, false), build(false, true));
    }
}
