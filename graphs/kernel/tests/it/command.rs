//! Where bodies lead: goto, and hand-over to the graph around (rules 14 to 17,
//! 85).

use std::sync::Arc;

use countersign_kernel::graph::{CompiledGraph, END_NAME, GraphBuilder, START};
use countersign_kernel::machine::Rest;
use countersign_kernel::node::{NodeError, Outcome, SharedBody};
use countersign_kernel::state::{Reducer, Writes};
use futures_util::future::join;
use serde_json::json;

use crate::support::*;

fn goes(targets: &'static [&'static str]) -> SharedBody {
    leading(&(), move |_, ()| async move {
        let outcome = Outcome::from(Writes::none().with("log", &["n"]));
        Ok(targets.iter().fold(outcome, |outcome, target| outcome.goto(*target)))
    })
}

fn leads(targets: &'static [&'static str], runs: &Runs) -> CompiledGraph {
    graph(|g| {
        g.node("n", goes(targets)).edge(START, "n").edge("n", "x");
        g.node("x", counting("x", runs)).node("y", counting("y", runs));
    })
}

#[test]
fn a_goto_adds_to_the_edges_and_names_a_node_once() {
    for (targets, y) in [(&["y"] as &[_], 1), (&["y", "y", "x"], 1), (&[END_NAME], 0), (&[], 0)] {
        let runs = Runs::default();
        let run = start(leads(targets, &runs));
        assert_eq!((run.rest(), runs.of("x"), runs.of("y")), (Rest::Succeeded, 1, y), "{targets:?}");
    }
}

#[test]
fn a_goto_to_an_unknown_node_fails_the_node_and_writes_nothing() {
    let runs = Runs::default();
    let run = start(leads(&["y", "nowhere"], &runs));
    assert_eq!(
        (run.rest(), errors(&run)),
        (Rest::Failed, vec![("n", "the node `n` leads to `nowhere`, which is no node")])
    );
    assert_eq!((&run.state()["log"], runs.of("y")), (&json!([]), 0));
}

#[test]
fn a_goto_back_runs_the_node_once_more_in_a_superstep_of_its_own() {
    let runs = Runs::default();
    let run = start(single(leading(&runs, |_, runs| async move {
        let outcome = Outcome::from(Writes::none().with("log", &[runs.hit("n")]));
        Ok(if runs.of("n") < 3 { outcome.goto("n") } else { outcome })
    })));
    assert_eq!((run.rest(), &run.state()["log"], run.checkpoints()), (Rest::Succeeded, &json!([1, 2, 3]), 4));
}

#[test]
fn a_goto_follows_the_answer() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        let asks = leading(&(), |cx, ()| async move {
            let target = cx.interrupt("where?").await?;
            Ok(Outcome::default().goto(target.as_str().unwrap_or("x")))
        });
        g.node("n", asks).edge(START, "n").node("x", counting("x", &runs)).node("y", counting("y", &runs));
    }));
    answer(&mut run, "y");
    assert_eq!((run.rest(), runs.of("x"), runs.of("y")), (Rest::Succeeded, 0, 1));
}

/// A graph whose `g` hands over to `targets`, after `p`; beside it, `own`
/// writes what stays inside.
fn handing(targets: &'static [&'static str], runs: &Runs) -> Arc<CompiledGraph> {
    let mut inner = GraphBuilder::new("inner", 1);
    inner.key("last", Reducer::Last).key("got", Reducer::Merge);
    let hands = leading(runs, move |_, runs| async move {
        runs.hit("g");
        let outcome = Outcome::from(Writes::none().with("sum", &5).with("log", &["handed"])).to_parent();
        Ok(targets.iter().fold(outcome, |outcome, target| outcome.goto(*target)))
    });
    let own = |name: &'static str| with(runs, move |_, runs| async move { Ok(got(name, &json!(runs.hit(name)))) });
    inner.node("p", own("p")).node("g", hands).node("own", own("own")).node("never", own("never"));
    inner.edge(START, "p").edge("p", "g").edge("p", "own").edge("g", "never");
    Arc::new(inner.compile().expect("sound"))
}

fn outer(node: impl FnOnce(&mut GraphBuilder), runs: &Runs) -> CompiledGraph {
    graph(|g| {
        node(g);
        g.edge(START, "sub").edge("sub", "y");
        g.node("y", counting("y", runs)).node("z", counting("z", runs));
    })
}

#[test]
fn a_hand_over_applies_to_the_graph_around_and_ends_the_one_inside() {
    let runs = Runs::default();
    let inner = handing(&["z"], &runs);
    let run = start(outer(|g| _ = g.subgraph("sub", inner), &runs));
    assert_eq!((run.rest(), runs.of("own"), runs.of("never")), (Rest::Succeeded, 1, 0));
    assert_eq!((&run.state()["sum"], &run.state()["got"]), (&json!(5), &json!({})), "its update alone counts");
    assert_eq!(run.state()["log"], json!(["handed", "y", "z"]), "the node's own edges apply as well");
}

#[test]
fn a_hand_over_waits_for_a_question_beside_it() {
    let runs = Runs::default();
    let inner = named("inner", |g| {
        g.node("g", leading(&(), |_, ()| async { Ok(Outcome::default().goto("z").to_parent()) }));
        g.node("ask", asking("ask", &runs)).edge(START, "g").edge(START, "ask");
    });
    let mut run = start(outer(|g| _ = g.subgraph("sub", inner), &runs));
    assert_eq!((run.rest(), open(&run)), (Rest::Parked, vec!["ask?".to_owned()]));
    answer(&mut run, "A");
    assert_eq!((run.rest(), runs.of("ask"), runs.of("z")), (Rest::Succeeded, 2, 1));
    assert_eq!(run.state()["got"], json!({}));
}

#[test]
fn a_hand_over_goes_to_the_closest_graph_around() {
    let runs = Runs::default();
    let inner = handing(&["z"], &runs);
    let mid = named("mid", |g| {
        g.subgraph("sub", inner).edge(START, "sub");
        g.node("z", with(&runs, |_, runs| async move { Ok(got("mid z", &json!(runs.hit("mid z")))) }));
    });
    let run = start(outer(|g| _ = g.subgraph("sub", mid), &runs));
    assert_eq!((run.rest(), runs.of("mid z"), runs.of("z")), (Rest::Succeeded, 1, 0));
    assert_eq!((&run.state()["sum"], &run.state()["got"]), (&json!(5), &json!({"mid z": 1})));
}

#[test]
fn a_graph_that_a_body_calls_hands_over_to_the_bodys_graph() {
    let runs = Runs::default();
    let inner = handing(&["z"], &runs);
    let calls = with(&(runs.clone(), inner), |cx, (runs, inner)| async move {
        runs.hit("body");
        cx.graph("called", &inner, json!({})).await?;
        runs.hit("after the call");
        Ok(Writes::none())
    });
    let run = start(outer(|g| _ = g.node("sub", calls), &runs));
    assert_eq!((run.rest(), runs.of("body"), runs.of("after the call")), (Rest::Succeeded, 1, 0));
    assert_eq!((&run.state()["log"], &run.state()["sum"]), (&json!(["handed", "y", "z"]), &json!(5)));
}

#[test]
fn a_hand_over_at_the_root_fails() {
    let run = start(single(leading(&(), |_, ()| async { Ok(Outcome::default().to_parent()) })));
    assert_eq!(errors(&run), [("n", "the node hands over to a parent, and this graph has none")]);
}

#[test]
fn a_hand_over_that_the_graph_around_cannot_take_fails_its_node_once() {
    for targets in [&["nowhere"] as &[_], &["z", "p"]] {
        let runs = Runs::default();
        let inner = handing(targets, &runs);
        let mut run = start(outer(|g| _ = g.subgraph("sub", inner), &runs));
        let message = errors(&run)[0].1.to_owned();
        assert!(message.ends_with("which is no node"), "{message}");
        assert_eq!((run.rest(), run.visits("sub"), runs.of("g")), (Rest::Failed, 1, 1));
        resume(&mut run, RETRY);
        assert_eq!((run.rest(), run.visits("sub"), runs.of("g")), (Rest::Failed, 2, 1));
        edit(&mut run, json!({}), Some("sub")).expect("a node");
        resume(&mut run, CONTINUE);
        assert_eq!((run.rest(), runs.of("y")), (Rest::Succeeded, 1));
    }
    let runs = Runs::default();
    let inner = named("inner", |g| {
        g.key("theirs", Reducer::Last);
        let body = leading(&(), |_, ()| async { Ok(Outcome::from(Writes::none().with("theirs", &1)).to_parent()) });
        g.node("g", body).edge(START, "g");
    });
    let run = start(outer(|g| _ = g.subgraph("sub", inner), &runs));
    assert_eq!((run.rest(), run.visits("sub")), (Rest::Failed, 1));
    assert!(errors(&run)[0].1.contains("`theirs`"), "{:?}", errors(&run));
}

#[test]
fn a_body_that_is_handed_to_and_asks_beside_it_waits_and_does_not_run_in_circles() {
    let runs = Runs::default();
    let (hands, asks) = (
        handing(&["z"], &runs),
        Arc::new(named("asks", |g| {
            g.node("ask", asking("ask", &runs)).edge(START, "ask");
        })),
    );
    let calls = with(&(runs.clone(), hands, asks), |cx, (runs, hands, asks)| async move {
        runs.hit("body");
        let (handed, asked) = join(cx.graph("h", &hands, json!({})), cx.graph("a", &asks, json!({}))).await;
        handed?;
        asked?;
        Err::<Writes, _>(NodeError::failed("never comes this far"))
    });
    let mut run = start(outer(|g| _ = g.node("sub", calls), &runs));
    assert_eq!((run.rest(), open(&run), runs.of("body")), (Rest::Parked, vec!["ask?".to_owned()], 1));
    answer(&mut run, "A");
    assert_eq!((run.rest(), runs.of("body"), runs.of("g"), runs.of("z")), (Rest::Succeeded, 2, 1, 1));
}

#[test]
fn a_body_that_swallows_a_hand_over_and_fails_is_not_run_again_unasked() {
    let runs = Runs::default();
    let inner = handing(&["z"], &runs);
    let calls = with(&(runs.clone(), inner), |cx, (runs, inner)| async move {
        runs.hit("body");
        match cx.graph("called", &inner, json!({})).await {
            Err(NodeError::HandOver(_)) => Err(NodeError::failed("I do not listen")),
            other => Err::<Writes, _>(NodeError::failed(format!("{other:?}"))),
        }
    });
    let mut run = start(outer(|g| _ = g.node("sub", calls), &runs));
    assert_eq!((run.rest(), runs.of("body"), errors(&run)), (Rest::Failed, 1, vec![("sub", "I do not listen")]));
    resume(&mut run, CONTINUE);
    assert_eq!(runs.of("body"), 1);
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), runs.of("body"), runs.of("g")), (Rest::Failed, 2, 1));
}

#[test]
fn a_hand_over_that_clashes_with_a_sibling_fails_both_and_runs_nothing_inside_again() {
    let runs = Runs::default();
    let inner = named("inner", |g| {
        let hands = leading(&runs, |_, runs| async move {
            runs.hit("g");
            Ok(Outcome::from(Writes::none().with("last", &1)).to_parent())
        });
        g.node("g", hands).edge(START, "g");
    });
    let clashing = with(&(), |cx, ()| async move {
        cx.interrupt("ready?").await?;
        Ok(Writes::none().with("last", &2))
    });
    let mut run = start(outer(|g| _ = g.subgraph("sub", inner).node("other", clashing).edge(START, "other"), &runs));
    assert_eq!((run.rest(), run.next(), run.frames().len()), (Rest::Parked, vec!["other"], 0));
    answer(&mut run, 1);
    for _ in 0..2 {
        assert_eq!((run.rest(), run.errors().into_keys().collect::<Vec<_>>()), (Rest::Failed, vec!["other", "sub"]));
        assert_eq!(runs.of("g"), 1);
        resume(&mut run, RETRY);
    }
}
