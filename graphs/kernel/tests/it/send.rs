//! Fan-out: tasks with an argument of their own (rules 2, 17 to 21, R3).

use std::sync::Arc;

use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::machine::Rest;
use countersign_kernel::node::{NodeError, Outcome, SharedBody};
use countersign_kernel::prelude::{Context, Graph, NodeResult, State, Target};
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use crate::support::*;

/// Logs its argument.
fn worker(runs: &Runs) -> SharedBody {
    with(runs, |cx, runs| async move {
        let argument = cx.argument().cloned();
        runs.hit(json!(argument).to_string());
        Ok(Writes::none().with("log", &[argument]))
    })
}

/// The start sends each argument to `w`; `z` follows.
fn fan(arguments: &[Value], worker: SharedBody, runs: &Runs) -> CompiledGraph {
    let arguments = arguments.to_vec();
    graph(|g| {
        g.node("w", worker).node("z", counting("z", runs)).edge("w", "z");
        g.branch(START, move |_| Ok(arguments.iter().map(|argument| send("w", argument.clone())).collect()));
    })
}

#[test]
fn each_sent_task_sees_its_own_argument_and_what_follows_starts_once() {
    let runs = Runs::default();
    let run = start(fan(&[json!(1), json!({"x": 2}), json!("3")], worker(&runs), &runs));
    assert_eq!((run.rest(), run.visits("w"), runs.of("z")), (Rest::Succeeded, 3, 1));
    assert_eq!(run.state()["log"], json!([1, {"x": 2}, "3", "z"]));
}

#[test]
fn sent_tasks_are_numbered_in_address_and_key() {
    let ask = with(&(), |cx, ()| async move {
        let answer = cx.interrupt("?").await?;
        Ok(Writes::none().with("log", &[answer]))
    });
    let mut run = start(fan(&[json!(1), json!(1)], ask, &Runs::default()));
    assert_eq!(addresses(&run), ["g/w@0/w[0]", "g/w@0/w[1]"]);
    let points = run.points();
    assert_ne!(points[0].id, points[1].id);
    answer_ids(&mut run, &[(&points[1].id, json!("second"))]).expect("open");
    answer_ids(&mut run, &[(&points[0].id, json!("first"))]).expect("open");
    assert_eq!(run.state()["log"], json!(["first", "second", "z"]));
}

#[test]
fn writes_are_reduced_by_node_name_for_edges_and_then_in_the_order_of_sending() {
    let sends = |node: &'static str, arguments: &'static [i64]| {
        leading(&(), move |_, ()| async move {
            let outcome = Outcome::from(Writes::none().with("log", &[node]));
            Ok(arguments.iter().fold(outcome, |outcome, argument| outcome.send("w", json!(argument))))
        })
    };
    let runs = Runs::default();
    let run = start(graph(|g| {
        g.node("b", sends("b", &[1, 2])).node("a", sends("a", &[3])).edge(START, "b").edge(START, "a");
        g.node("w", worker(&runs)).node("z", counting("z", &runs)).node("c", counting("c", &runs));
        g.edge("a", "z").edge("b", "c");
    }));
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!(["a", "b", "c", "z", 3, 1, 2])));
}

#[test]
fn a_node_that_is_both_due_and_sent_to_is_as_many_tasks() {
    let runs = Runs::default();
    let run = start(graph(|g| {
        g.node("w", worker(&runs)).edge(START, "w").branch(START, |_| Ok(vec![send("w", json!(1)), "w".into()]));
    }));
    assert_eq!((run.visits("w"), &run.state()["log"]), (2, &json!([null, 1])));
}

#[test]
fn only_the_failed_task_of_a_fan_out_runs_again() {
    let runs = Runs::default();
    let fails_once = with(&runs, |cx, runs| async move {
        let argument: i64 = cx.argument_as()?;
        match (argument, runs.hit(argument.to_string())) {
            (2, 1) => Err(NodeError::failed("two is tired")),
            (_, attempt) => Ok(Writes::none().with("log", &[json!([argument, attempt])])),
        }
    });
    let mut run = start(fan(&[json!(1), json!(2), json!(3)], fails_once, &runs));
    assert_eq!((run.rest(), &run.state()["log"], runs.of("z")), (Rest::Failed, &json!([]), 0));
    assert_eq!(run.failures(), [(vec!["w#1".to_owned()], "two is tired".to_owned())]);
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!([[1, 1], [2, 2], [3, 1], "z"])));
}

#[test]
fn a_null_argument_survives_a_restart_and_is_an_argument() {
    let runs = Runs::default();
    let ask = || {
        with(&(), |cx, ()| async move {
            let argument: Option<i64> = cx.argument_as()?;
            cx.interrupt(json!({"argument": argument})).await?;
            Ok(Writes::none().with("log", &[cx.argument().cloned()]))
        })
    };
    let graph = || fan(&[Value::Null], ask(), &runs);
    let mut run = start(graph()).reopen(graph());
    assert_eq!(run.points()[0].payload, json!({"argument": null}));
    answer(&mut run, "go");
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!([null, "z"])));
}

#[test]
fn an_argument_that_is_missing_or_does_not_fit_fails_the_task() {
    let reads = || {
        with(&(), |cx, ()| async move {
            let n: i64 = cx.argument_as()?;
            Ok(Writes::none().with("sum", &n))
        })
    };
    let run = start(fan(&[json!("two")], reads(), &Runs::default()));
    assert!(errors(&run)[0].1.starts_with("the argument does not fit:"), "{:?}", errors(&run));
    let run = start(single(reads()));
    assert_eq!(errors(&run), [("n", "the task was started without an argument")]);
}

#[test]
fn a_fan_out_over_nothing_starts_nothing_not_even_what_would_follow() {
    let runs = Runs::default();
    let run = start(fan(&[], worker(&runs), &runs));
    assert_eq!((run.rest(), runs.of("z"), run.checkpoints()), (Rest::Succeeded, 0, 1));
}

#[test]
fn a_send_to_an_unknown_node_fails_the_sender() {
    let body = leading(&(), |_, ()| async { Ok(Outcome::default().send("nowhere", json!(1))) });
    let run = start(single(body));
    assert_eq!(
        (run.rest(), errors(&run)),
        (Rest::Failed, vec![("n", "the node `n` leads to `nowhere`, which is no node")])
    );
    let end = leading(&(), |_, ()| async { Ok(Outcome::default().send("END", json!(1))) });
    assert_eq!(start(single(end)).rest(), Rest::Failed, "nothing can be sent to the end");
}

#[test]
fn a_sent_task_sees_the_state_before_its_superstep_and_writes_to_it() {
    let looks = with(&(), |cx, ()| async move {
        let log = cx.state().values().get("log").cloned().unwrap_or_default();
        Ok(Writes::none().with("log", &["w"]).with("got", &json!({"seen": log})))
    });
    let run = start(graph(|g| {
        let sender = leading(&(), |_, ()| async {
            Ok(Outcome::from(Writes::none().with("log", &["sender"])).send("w", json!(1)).send("w", json!(2)))
        });
        g.node("sender", sender).node("w", looks).edge(START, "sender");
    }));
    assert_eq!(run.state()["log"], json!(["sender", "w", "w"]));
    assert_eq!(run.state()["got"], json!({"seen": ["sender"]}));
}

#[test]
fn a_send_to_a_graph_makes_its_input() {
    let runs = Runs::default();
    let inner = Arc::new(named("inner", |g: &mut GraphBuilder| {
        let squares = with(&runs, |cx, _| async move {
            let n = cx.state().values().get("last").and_then(Value::as_i64).unwrap_or(0);
            Ok(got(&n.to_string(), &json!(n * n)))
        });
        g.node("square", squares).edge(START, "square");
    }));
    let run = start_with(
        graph(|g| {
            let mut outer = GraphBuilder::new("unused", 1);
            outer.subgraph("w", Arc::clone(&inner));
            g.subgraph("w", Arc::clone(&inner));
            g.branch(START, |_| Ok(vec![send("w", json!({"last": 3})), send("w", json!({"got": {"given": 1}}))]));
        }),
        json!({"last": 9, "got": {"mine": 1}}),
    );
    // Both hand `last` back, which two tasks cannot both write.
    assert_eq!((run.rest(), errors(&run).len()), (Rest::Succeeded, 0));
    assert_eq!(run.state()["got"], json!({"mine": 1, "3": 9, "given": 1, "0": 0}));
    assert_eq!(run.state()["last"], 3);
}

#[derive(State)]
struct Order {
    lines: Vec<u32>,
    #[reduce(sum)]
    total: i64,
    #[reduce(append)]
    notes: Vec<String>,
}

async fn line(cx: &Context, _: &Order) -> NodeResult<OrderUpdate> {
    let amount: u32 = cx.argument_as()?;
    Ok(Order::update().total(i64::from(amount)))
}

async fn note(_: &Context, order: &Order) -> NodeResult<OrderUpdate> {
    Ok(Order::update().notes(format!("{} lines, {} so far", order.lines.len(), order.total)))
}

#[test]
fn a_typed_condition_fans_out_beside_other_targets() {
    let mut flow = Graph::<Order>::new("order", 1);
    let line = flow.node("line", line);
    let note = flow.node("note", note);
    flow.start_with(move |order| Target::send_each(line, order.lines.clone()).and(note));
    flow.edge(line, note).end(note);
    let run = start_with(flow.compile().expect("sound"), json!({"lines": [1, 2, 39]}));
    assert_eq!((run.rest(), run.visits("line"), run.visits("note")), (Rest::Succeeded, 3, 2));
    assert_eq!(
        (&run.state()["total"], &run.state()["notes"]),
        (&json!(42), &json!(["3 lines, 0 so far", "3 lines, 42 so far"]))
    );
}

#[test]
fn an_argument_that_json_cannot_hold_fails_whoever_sends_it() {
    let build = |from_start: bool| {
        let mut flow = Graph::<Order>::new("order", 1);
        let line = flow.node("line", line);
        let note = flow.node("note", note);
        let bad = move |_: &Order| Target::send_each(line, [std::collections::BTreeMap::from([(vec![1], 1)])]);
        if from_start {
            flow.start_with(bad)
        } else {
            flow.start(note).after(note, bad)
        };
        flow.compile().expect("sound")
    };
    let run = start_with(build(false), json!({"lines": []}));
    assert_eq!(run.rest(), Rest::Failed);
    assert!(errors(&run)[0].1.starts_with("an argument for `line` cannot be encoded"), "{:?}", errors(&run));
    let refused = now(countersign_kernel::driver::Driver::start(build(true), json!({"lines": []}))).expect_err("bad");
    assert!(refused[0].message.contains("cannot be encoded"), "{refused:?}");
}
