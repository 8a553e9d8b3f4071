//! Going back inside of sub-graphs (R5, R13).

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::machine::EditRefused;
use countersign_worker::engine::RequestError;
use countersign_worker::store::Store;
use serde_json::{Value, json};

use super::graphs::CONTINUE;
use super::nested::{answer, at, inside, names, open, restarted, superseded, world};
use crate::support::flows::{asks, fails, flow, got, logs, part, with, works};
use crate::support::{Runs, TestEngine, World};

engine!(
    an_edit_of_a_sub_graph_drops_what_waits_there_and_nothing_else,
    an_edit_before_a_graph_inside_leaves_nothing_of_its_old_run,
    an_edit_gets_a_failed_graph_two_levels_deep_going_again,
    a_replay_from_inside_goes_on_from_there_and_keeps_the_state_of_then,
    a_replay_from_the_thread_runs_a_sub_graph_from_its_start,
    a_graph_that_only_a_body_knows_is_no_place_to_go_back_to,
);

/// A graph `sub` of `one`, `two` (asks) and `three` beside `plain` (asks).
fn beside(runs: &Runs) -> CompiledGraph {
    let sub = part("sub", |g| {
        g.node("one", logs("inside", "one", runs))
            .node("two", asks("two", runs))
            .node("three", logs("inside", "three", runs));
        g.node("four", asks("four", runs));
        g.edge(START, "one").edge("one", "two").edge("two", "three").edge("three", "four");
    });
    flow("flow", |g| {
        g.node("start", logs("log", "start", runs)).subgraph("sub", sub).node("plain", asks("plain", runs));
        g.node("end", works("end", runs));
        g.edge(START, "start").edge("start", "sub").edge("start", "plain").join(["sub", "plain"], "end");
    })
}

fn of_beside(runs: &Runs) -> World {
    let runs = runs.clone();
    world(move || beside(&runs))
}

async fn an_edit_of_a_sub_graph_drops_what_waits_there_and_nothing_else() {
    let runs = Runs::default();
    let world = of_beside(&runs);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let all = open(&engine, &thread, "parked").await;
    assert_eq!(names(&all), ["plain?", "two?"]);
    engine = restarted(&world, engine).await;
    let head = engine.store.head(&thread).await.expect("there");
    let frame = engine.view(&thread).await.frames[0].frame.clone();
    let values = json!({"inside": ["edited"], "got": {"two": "edited"}});
    engine.edit(&thread, Some(&frame), values, Some("two")).await.expect("edited");
    assert_eq!(engine.store.head(&thread).await.expect("there"), head, "the thread stays where it is");
    superseded(&engine, &all[1].1.id).await;
    let now = open(&engine, &thread, "parked").await;
    assert_eq!(names(&now), ["pause", "plain?"]);
    assert_eq!((&now[1].1, now[0].1.frame.as_ref()), (&all[0].1, Some(&frame)), "the question beside it is the same");

    engine = restarted(&world, engine).await;
    let view = engine.view(&thread).await;
    assert_eq!((view.frames.len(), &view.frames[0].values["inside"]), (1, &json!(["one", "edited"])));
    assert_eq!(view.frames[0].next, ["three"]);
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    engine.idles().await;
    let four = open(&engine, &thread, "parked").await;
    assert_eq!(names(&four), ["four?", "plain?"]);
    engine = restarted(&world, engine).await;
    for (_, view) in &four {
        answer(&engine, view, json!("yes")).await;
    }
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"two": "edited", "four": "yes", "plain": "yes", "end": "done"}));
    assert_eq!((runs.of("one"), runs.of("two"), runs.of("three"), runs.of("plain")), (1, 1, 1, 2));
}

async fn an_edit_before_a_graph_inside_leaves_nothing_of_its_old_run() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let inner = part("inner", |g| {
                g.node("ask", asks("ask", &runs)).edge(START, "ask");
            });
            let outer = part("outer", |g| {
                g.node("first", works("first", &runs))
                    .subgraph("inner", inner)
                    .edge(START, "first")
                    .edge("first", "inner");
            });
            flow("flow", |g| {
                g.subgraph("outer", outer).edge(START, "outer");
            })
        }
    });
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let asked = open(&engine, &thread, "parked").await;
    engine = restarted(&world, engine).await;
    let outer = engine.view(&thread).await.frames[0].frame.clone();
    // As `first`: the graph inside is due again, and it is another run of it.
    engine.edit(&thread, Some(&outer), json!({"got": {"first": "edited"}}), Some("first")).await.expect("edited");
    superseded(&engine, &asked[0].1.id).await;
    engine = restarted(&world, engine).await;
    let paths = async |engine: &TestEngine| {
        engine.view(&thread).await.frames.iter().map(|frame| frame.path.join("/")).collect::<Vec<_>>()
    };
    assert_eq!(paths(&engine).await, ["outer"], "the old run of the graph inside is gone");
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    engine.idles().await;
    let again = open(&engine, &thread, "parked").await;
    assert!(again[0].1.id != asked[0].1.id && again.len() == 1, "{again:?}");
    engine = restarted(&world, engine).await;
    assert_eq!(paths(&engine).await, ["outer", "outer/inner"]);
    answer(&engine, &again[0].1, json!("yes")).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"first": "edited", "ask": "yes"}));
    assert_eq!((runs.of("first"), runs.of("ask")), (1, 3));
}

async fn an_edit_gets_a_failed_graph_two_levels_deep_going_again() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let inner = part("inner", |g| {
                g.node("breaks", fails("breaks", 9, &runs)).node("next", works("next", &runs));
                g.edge(START, "breaks").edge("breaks", "next");
            });
            let outer = part("outer", |g| {
                g.subgraph("inner", inner).edge(START, "inner");
            });
            flow("flow", |g| {
                g.subgraph("outer", outer).edge(START, "outer");
            })
        }
    });
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.rests(&thread, "failed").await;
    engine = restarted(&world, engine).await;
    let inner = engine.view(&thread).await.frames[1].frame.clone();
    engine.edit(&thread, Some(&inner), json!({"got": {"breaks": "by hand"}}), Some("breaks")).await.expect("edited");
    engine = restarted(&world, engine).await;
    let view = engine.view(&thread).await;
    assert_eq!((view.detail.summary.status.as_str(), view.detail.summary.error.as_deref()), ("parked", None));
    assert_eq!((view.failures, view.detail.errors), (Vec::new(), Vec::new()), "what had failed is dropped");
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"], runs.of("breaks")), (&json!({"breaks": "by hand", "next": "done"}), 1));
}

async fn a_replay_from_inside_goes_on_from_there_and_keeps_the_state_of_then() {
    let runs = Runs::default();
    let world = of_beside(&runs);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let all = open(&engine, &thread, "parked").await;
    let frame = engine.view(&thread).await.frames[0].frame.clone();
    answer(&engine, &all[1].1, json!("first")).await;
    engine.idles().await;
    let later = open(&engine, &thread, "parked").await;
    assert_eq!(names(&later), ["four?", "plain?"]);
    engine = restarted(&world, engine).await;
    let from = inside(&engine, &thread, &frame, 1).await;
    engine.replay(&thread, &from).await.expect("replayed");
    engine.idles().await;
    // The thread is at the superstep around it again, so `plain` asks anew too.
    let asked = open(&engine, &thread, "parked").await;
    assert_eq!(names(&asked), ["plain?", "two?"]);
    assert!(asked.iter().all(|(_, view)| all.iter().all(|(_, old)| old.id != view.id)));
    for (_, view) in &later {
        superseded(&engine, &view.id).await;
    }
    assert_eq!((runs.of("start"), runs.of("one"), runs.of("two"), runs.of("plain")), (1, 1, 3, 2));

    engine = restarted(&world, engine).await;
    let frames = engine.view(&thread).await.frames;
    assert_eq!((frames.len(), &frames[0].values["inside"]), (1, &json!(["one"])), "the state of then");
    assert_ne!(frames[0].frame, frame);
    answer(&engine, &asked[1].1, json!("second")).await;
    engine.idles().await;
    engine = restarted(&world, engine).await;
    let frames = engine.view(&thread).await.frames;
    assert_eq!(frames[0].values["inside"], json!(["one", "three"]), "a list that a fork took along grows on");
    let four = open(&engine, &thread, "parked").await;
    for (_, view) in &four {
        answer(&engine, view, json!("yes")).await;
    }
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"two": "second", "four": "yes", "plain": "yes", "end": "done"}));
    assert_eq!((runs.of("one"), runs.of("three"), runs.of("end")), (1, 2, 1));
}

async fn a_replay_from_the_thread_runs_a_sub_graph_from_its_start() {
    let runs = Runs::default();
    let world = of_beside(&runs);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let all = open(&engine, &thread, "parked").await;
    engine = restarted(&world, engine).await;
    let from = at(&engine, &thread, 1).await;
    engine.replay(&thread, &from).await.expect("replayed");
    engine.idles().await;
    let asked = open(&engine, &thread, "parked").await;
    assert_eq!(names(&asked), ["plain?", "two?"]);
    assert_eq!((runs.of("start"), runs.of("one"), runs.of("two")), (1, 2, 2));
    superseded(&engine, &all[0].1.id).await;
    engine = restarted(&world, engine).await;
    let frames = engine.view(&thread).await.frames;
    assert_eq!((frames.len(), &frames[0].values["inside"]), (1, &json!(["one"])));
}

async fn a_graph_that_only_a_body_knows_is_no_place_to_go_back_to() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let child = part("child", |g| {
                g.node("ask", asks("ask", &runs)).edge(START, "ask");
            });
            let calls = with(&child, |cx, child| async move {
                let end = cx.graph("child", &child, json!({})).await?;
                Ok(got("calls", &Value::Object(end)))
            });
            flow("flow", |g| {
                g.node("calls", calls).edge(START, "calls");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let asked = open(&engine, &thread, "parked").await;
    engine.idles().await;
    let frame = asked[0].1.frame.clone().expect("inside");
    let refused = engine.edit(&thread, Some(&frame), json!({}), Some("ask")).await;
    assert!(matches!(refused, Err(RequestError::Edit(EditRefused::UnknownFrame(_)))), "{refused:?}");
    let refused = engine.replay(&thread, &inside(&engine, &thread, &frame, 0).await).await;
    assert!(matches!(refused, Err(RequestError::Edit(EditRefused::UnknownFrame(_)))), "{refused:?}");
    answer(&engine, &asked[0].1, json!("yes")).await;
    engine.rests(&thread, "succeeded").await;
}
