//! Reducers of a flow's own (rules 2 to 6).

use std::sync::Arc;

use countersign_kernel::driver::Driver;
use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::machine::Rest;
use countersign_kernel::state::{Reducer, Writes};
use serde_json::{Value, json};

use crate::support::*;

/// The larger number; refuses what is none.
fn largest(neutral: Option<Value>) -> Reducer {
    Reducer::custom("largest", neutral, |current, write| {
        let write = write.as_i64().ok_or("takes a number")?;
        Ok(json!(current.as_i64().map_or(write, |current| current.max(write))))
    })
}

/// Writes in one list of pairs, so that the order is seen.
fn pairs() -> Reducer {
    Reducer::custom("pairs", Some(json!([])), |current, write| Ok(json!([current, write])))
}

fn writing(nodes: &[(&'static str, Writes)], reducer: Reducer) -> CompiledGraph {
    let mut g = GraphBuilder::new("g", 1);
    g.key("top", reducer).key("log", Reducer::Append);
    for (name, writes) in nodes {
        g.node(*name, with(writes, |_, writes| async move { Ok(writes) })).edge(START, *name);
    }
    g.compile().expect("sound")
}

fn top(n: impl serde::Serialize) -> Writes {
    Writes::none().with("top", &n)
}

#[test]
fn parallel_writes_input_and_edits_all_go_through_it() {
    let mut run = start_with(writing(&[("a", top(3)), ("b", top(9)), ("c", top(5))], largest(None)), json!({"top": 4}));
    assert_eq!((run.rest(), &run.state()["top"]), (Rest::Succeeded, &json!(9)));
    edit(&mut run, json!({"top": 7}), Some("a")).expect("a node");
    assert_eq!(run.state()["top"], 9);
    restart(&mut run, json!({"top": 11}));
    assert_eq!(run.state()["top"], 11);
}

#[test]
fn a_neutral_value_is_there_from_the_start_and_without_one_the_key_is_not() {
    let nobody = |neutral| start(writing(&[("a", Writes::none())], largest(neutral)));
    assert_eq!(nobody(Some(json!(0))).state()["top"], 0);
    assert!(!nobody(None).state().contains_key("top"));
    let unused: Driver = thread(writing(&[("a", Writes::none())], largest(Some(json!(0)))));
    assert!(unused.state().is_empty(), "an unused thread has no state");
}

#[test]
fn writes_are_combined_in_task_order_and_in_the_order_of_one_body() {
    let run = start(writing(&[("b", top(3)), ("a", top(1).with("top", &2))], pairs()));
    assert_eq!(run.state()["top"], json!([[[[], 1], 2], 3]));
}

#[test]
fn a_write_that_it_refuses_fails_its_node_and_an_input_is_refused() {
    let run = start(writing(&[("a", top(1)), ("b", top("one"))], largest(None)));
    assert_eq!((run.rest(), errors(&run)), (Rest::Failed, vec![("b", "key `top`: takes a number")]));
    assert!(!run.state().contains_key("top"));
    let graph = writing(&[("a", top(1))], largest(None));
    let faults = now(Driver::start(graph, json!({"top": "one"}))).expect_err("no number");
    assert!(faults[0].message.contains("takes a number"), "{faults:?}");
}

#[test]
fn what_only_fails_together_fails_those_who_wrote_the_key() {
    let once = Reducer::custom("once", None, |current, write| match current {
        Value::Null => Ok(write),
        other => Err(format!("is {other} already")),
    });
    let mut run = start(writing(&[("a", top(1)), ("b", Writes::none().with("log", &["b"])), ("c", top(3))], once));
    assert_eq!((run.rest(), run.errors().into_keys().collect::<Vec<_>>()), (Rest::Failed, vec!["a", "c"]));
    assert_eq!(errors(&run)[0].1, "key `top`: is 1 already");
    assert_eq!((run.state()["log"].clone(), run.state().contains_key("top")), (json!([]), false));
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), run.visits("a"), run.visits("b")), (Rest::Failed, 2, 1));
}

#[test]
fn it_reduces_across_the_border_of_a_graph_inside() {
    let inner = writing(&[("a", top(5))], largest(Some(json!(0))));
    let mut outer = GraphBuilder::new("outer", 1);
    outer.key("top", largest(Some(json!(0)))).subgraph("sub", Arc::new(inner)).edge(START, "sub");
    let run = start_with(outer.compile().expect("sound"), json!({"top": 8}));
    assert_eq!((run.rest(), &run.state()["top"]), (Rest::Succeeded, &json!(8)));
}

#[test]
fn the_fingerprint_knows_it_by_its_name() {
    let print = |name: &str| {
        let reducer = Reducer::custom(name, None, |_, write| Ok(write));
        writing(&[("a", Writes::none())], reducer).fingerprint().to_owned()
    };
    assert_eq!(print("one"), print("one"));
    assert_ne!(print("one"), print("two"));
}

#[test]
fn its_value_survives_a_restart_and_a_replay() {
    let runs = Runs::default();
    let build = || {
        let mut g = GraphBuilder::new("g", 1);
        g.key("top", largest(None)).key("got", Reducer::Merge);
        g.node("a", with(&(), |_, ()| async { Ok(top(5)) })).node("ask", asking("ask", &runs));
        g.edge(START, "a").edge("a", "ask");
        g.compile().expect("sound")
    };
    let mut run = start_with(build(), json!({"top": 2})).reopen(build());
    assert_eq!(run.state()["top"], 5);
    let tops: Vec<Value> = run.history().iter().map(|entry| entry.values["top"].clone()).collect();
    assert_eq!(tops, [json!(5), json!(2)]);
    let first = run.history()[1].checkpoint.id.clone();
    replay(&mut run, &first).expect("known");
    assert_eq!(run.state()["top"], 5);
}
