//! What cannot run is refused when a graph is built, all at once; what is odd
//! is a warning (rule 95, R8).

use std::sync::Arc;

use countersign_kernel::graph::{CompiledGraph, END_NAME, GraphBuilder, GraphFault, GraphWarning, START};
use countersign_kernel::machine::Rest;
use countersign_kernel::node::{NodePolicy, SharedBody, body_fn};
use countersign_kernel::state::Reducer;

use crate::support::start;

fn noop() -> SharedBody {
    body_fn(|_| async { Ok(()) })
}

/// `a` from the start, and whatever else.
fn build(more: impl FnOnce(&mut GraphBuilder)) -> Result<CompiledGraph, Vec<GraphFault>> {
    let mut g = GraphBuilder::new("g", 1);
    g.node("a", noop()).node("b", noop()).edge(START, "a").edge("a", "b");
    more(&mut g);
    g.compile().map_err(|error| error.faults)
}

fn faults(more: impl FnOnce(&mut GraphBuilder)) -> Vec<GraphFault> {
    build(more).expect_err("faults")
}

fn unknown(place: &str, node: &str) -> GraphFault {
    GraphFault::UnknownNode { place: place.to_owned(), node: node.to_owned() }
}

#[test]
fn every_place_that_names_an_unknown_node_is_named() {
    let found = faults(|g| {
        g.edge("a", "x").edge("y", "a").join(["a", "z"], "b").join(["a"], "w");
        g.branch("v", |_| Ok(vec![])).break_before("u").break_after("t").policy("s", NodePolicy::default());
    });
    let expected = [
        unknown("the edge a -> x", "x"),
        unknown("the edge y -> a", "y"),
        unknown("the join to b", "z"),
        unknown("the join to w", "w"),
        unknown("the condition after v", "v"),
        unknown("the policy of s", "s"),
        unknown("break_before", "u"),
        unknown("break_after", "t"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn nothing_leaves_the_end_or_reaches_the_start() {
    assert_eq!(faults(|g| _ = g.edge(END_NAME, "a")), [unknown("the edge END -> a", END_NAME)]);
    assert_eq!(faults(|g| _ = g.edge("a", START)), [unknown("the edge a -> START", START)]);
    assert_eq!(faults(|g| _ = g.branch(END_NAME, |_| Ok(vec![]))), [unknown("the condition after END", END_NAME)]);
    assert_eq!(faults(|g| _ = g.join([START, "a"], "b")), [unknown("the join to b", START)]);
    assert_eq!(faults(|g| _ = g.break_before(END_NAME)), [unknown("break_before", END_NAME)]);
}

#[test]
fn names_are_checked_and_unique() {
    let found = faults(|g| {
        g.node("a", noop()).node("b#0", noop()).node("", noop()).node("*", noop()).node(END_NAME, noop());
        g.key("k", Reducer::Last).key("k", Reducer::Sum).key("k k", Reducer::Last);
    });
    let expected = [
        GraphFault::DuplicateNode("a".into()),
        GraphFault::BadName("b#0".into()),
        GraphFault::BadName(String::new()),
        GraphFault::Reserved("*".into()),
        GraphFault::Reserved(END_NAME.into()),
        GraphFault::DuplicateKey("k".into()),
        GraphFault::BadName("k k".into()),
    ];
    assert_eq!(found, expected);
    let named = GraphBuilder::new("a/b", 1).compile().expect_err("faults");
    assert_eq!(named.faults, [GraphFault::BadName("a/b".into()), GraphFault::NoEntry]);
}

#[test]
fn a_graph_needs_an_entry_and_a_join_needs_sources() {
    let mut g = GraphBuilder::new("g", 1);
    g.node("a", noop()).edge("a", END_NAME);
    assert_eq!(g.compile().expect_err("faults").faults, [GraphFault::NoEntry]);
    assert_eq!(faults(|g| _ = g.join(Vec::<String>::new(), "b")), [GraphFault::EmptyJoin("b".into())]);
}

#[test]
fn the_message_lists_all_faults_with_the_graph() {
    let mut g = GraphBuilder::new("orders", 1);
    g.node("a", noop()).edge("a", "x");
    let text = g.compile().expect_err("faults").to_string();
    let expected = "the graph `orders` cannot run:\n  - the edge a -> x names `x`, which is no node of this graph\n  \
                    - no edge or condition leaves START, so nothing would ever run";
    assert_eq!(text, expected);
}

#[test]
fn what_nothing_leads_to_and_what_never_ends_are_warnings() {
    let graph = build(|g| _ = g.node("alone", noop())).expect("runs");
    assert_eq!(graph.warnings(), [GraphWarning::Unreachable("alone".into())]);
    assert_eq!(start(graph).rest(), Rest::Succeeded);

    let graph = build(|g| _ = g.edge("b", "a")).expect("runs");
    assert_eq!(graph.warnings(), [GraphWarning::NoWayToEnd]);

    let graph = build(|g| _ = g.node("c", noop()).branch("b", |_| Ok(vec!["c".into()]))).expect("runs");
    assert_eq!(graph.warnings(), [], "a condition may lead anywhere");
    assert_eq!(build(|_| ()).expect("runs").warnings(), []);
}

#[test]
fn the_fingerprint_knows_the_graph_inside_and_what_the_builder_was_told() {
    let plain = || build(|_| ()).expect("runs");
    let with_sub = |inner: CompiledGraph| {
        build(|g| _ = g.subgraph("sub", Arc::new(inner)).edge("b", "sub")).expect("runs").fingerprint().to_owned()
    };
    let other = build(|g| _ = g.edge("b", END_NAME)).expect("runs");
    assert_eq!(with_sub(plain()), with_sub(plain()));
    assert_ne!(with_sub(plain()), with_sub(other));
    assert_eq!(plain().fingerprint(), build(|_| ()).expect("runs").fingerprint());
}

#[test]
fn nodes_and_keys_can_be_listed() {
    let graph = build(|g| _ = g.key("k", Reducer::Sum).subgraph("sub", build(|_| ()).expect("runs"))).expect("runs");
    assert_eq!(graph.nodes().collect::<Vec<_>>(), ["a", "b", "sub"]);
    assert_eq!(graph.keys().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["k"]);
    assert_eq!(graph.node("sub").and_then(|node| node.subgraph()).map(|inner| inner.name()), Some("g"));
    assert!(graph.node("a").expect("a node").subgraph().is_none());
    assert!(graph.node("nowhere").is_none());
}
