//! Pauses of what runs, at once and at the next border, graphs inside included (R15).

use countersign_kernel::graph::{CompiledGraph, START};
use serde_json::json;

use super::graphs::{CONTINUE, Does, in_a_row};
use super::nested::{answer, names, open, restarted, world};
use crate::support::flows::{asks, fails, flow, hangs, logs, part, with, works};
use crate::support::{Gate, Runs, World, operator};

engine!(
    a_pause_at_once_drops_the_body_where_it_hangs_and_keeps_what_it_did,
    a_graceful_pause_while_a_body_hangs_can_be_made_one_at_once,
    a_pause_at_once_inside_drops_what_hangs_there_and_goes_on_there,
    a_graceful_pause_stops_at_the_next_border_inside,
    a_pause_of_a_thread_at_rest_is_made_there,
    pauses_do_not_stack,
    a_pause_of_a_failed_thread_hides_no_failure,
    what_a_called_graph_did_before_a_pause_at_once_stays_done,
);

fn row(runs: &Runs, gate: &Gate) -> World {
    let (runs, gate) = (runs.clone(), gate.clone());
    World::one(move || in_a_row(&runs, &gate, &[("hangs", Does::Stepping), ("next", Does::Work)]))
}

async fn a_pause_at_once_drops_the_body_where_it_hangs_and_keeps_what_it_did() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = row(&runs, &gate);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    engine.engine.pause(&thread, true, &operator()).await.expect("taken");
    gate.dropped(1).await;
    let paused = open(&engine, &thread, "parked").await;
    assert_eq!((names(&paused), engine.detail(&thread).await.next), (vec!["pause"], vec!["hangs".to_owned()]));
    engine.idles().await;
    assert_eq!((runs.of("hangs"), runs.of("before"), runs.of("after")), (1, 1, 0));

    let engine = restarted(&world, engine).await;
    gate.open();
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("hangs"), runs.of("before"), runs.of("after"), runs.of("next")), (2, 1, 1, 1));
    assert_eq!(done.state["got"]["hangs"], json!([1, 1]));
}

async fn a_graceful_pause_while_a_body_hangs_can_be_made_one_at_once() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = row(&runs, &gate);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    engine.engine.pause(&thread, false, &operator()).await.expect("taken");
    assert_eq!(engine.detail(&thread).await.summary.status, "running", "it waits for the body");
    engine.engine.pause(&thread, true, &operator()).await.expect("taken");
    gate.dropped(1).await;
    let paused = open(&engine, &thread, "parked").await;
    assert_eq!(names(&paused), ["pause"], "one, however often it was asked for");
}

/// A graph `sub` of `one`, `hangs` and `last`, beside `plain`, which asks.
fn nested(runs: &Runs, gate: &Gate) -> CompiledGraph {
    let sub = part("sub", |g| {
        g.node("one", logs("inside", "one", runs)).node("hangs", hangs("hangs", runs, gate));
        g.node("last", logs("inside", "last", runs));
        g.edge(START, "one").edge("one", "hangs").edge("hangs", "last");
    });
    flow("flow", |g| {
        g.subgraph("sub", sub).node("plain", asks("plain", runs)).node("end", works("end", runs));
        g.edge(START, "sub").edge(START, "plain").join(["sub", "plain"], "end");
    })
}

fn of_nested(runs: &Runs, gate: &Gate) -> World {
    let (runs, gate) = (runs.clone(), gate.clone());
    world(move || nested(&runs, &gate))
}

async fn a_pause_at_once_inside_drops_what_hangs_there_and_goes_on_there() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = of_nested(&runs, &gate);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    engine.engine.pause(&thread, true, &operator()).await.expect("taken");
    gate.dropped(1).await;
    let paused = open(&engine, &thread, "parked").await;
    assert_eq!(names(&paused), ["pause", "plain?"]);
    let engine = restarted(&world, engine).await;
    let frames = engine.view(&thread).await.frames;
    assert_eq!(
        (frames.len(), &frames[0].values["inside"], frames[0].next.as_slice()),
        (1, &json!(["one"]), ["hangs".to_owned()].as_slice())
    );
    answer(&engine, &paused[1].1, json!("yes")).await;
    engine.idles().await;
    assert_eq!((runs.of("plain"), runs.of("hangs")), (1, 1), "the pause holds up all of it");

    let engine = restarted(&world, engine).await;
    gate.open();
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"hangs": "passed", "plain": "yes", "end": "done"}));
    assert_eq!((runs.of("one"), runs.of("hangs"), runs.of("last"), runs.of("plain")), (1, 2, 1, 2));
}

async fn a_graceful_pause_stops_at_the_next_border_inside() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = of_nested(&runs, &gate);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    engine.engine.pause(&thread, false, &operator()).await.expect("taken");
    gate.open();
    let paused = open(&engine, &thread, "parked").await;
    assert_eq!((names(&paused), paused[0].1.frame.is_some()), (vec!["pause", "plain?"], true), "one stop, inside");
    assert_eq!((runs.of("hangs"), runs.of("last")), (1, 0));
    let engine = restarted(&world, engine).await;
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    engine.idles().await;
    assert_eq!(names(&open(&engine, &thread, "parked").await), ["plain?"]);
    answer(&engine, &paused[1].1, json!("yes")).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"hangs": "passed", "plain": "yes", "end": "done"}));
    assert_eq!((runs.of("one"), runs.of("hangs"), runs.of("last"), runs.of("plain")), (1, 1, 1, 2));
}

async fn a_pause_of_a_thread_at_rest_is_made_there() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    for at_once in [true, false] {
        let world = of_nested(&runs, &gate);
        gate.open();
        let engine = world.engine().await;
        let thread = engine.start("flow", json!({})).await;
        let asked = open(&engine, &thread, "parked").await;
        assert_eq!(names(&asked), ["plain?"]);
        let engine = restarted(&world, engine).await;
        engine.engine.pause(&thread, at_once, &operator()).await.expect("taken");
        engine.idles().await;
        let paused = open(&engine, &thread, "parked").await;
        assert_eq!((names(&paused), &paused[1].1), (vec!["pause", "plain?"], &asked[0].1));
        let plain = runs.of("plain");
        answer(&engine, &asked[0].1, json!("yes")).await;
        engine.idles().await;
        assert_eq!((names(&open(&engine, &thread, "parked").await), runs.of("plain")), (vec!["pause"], plain));
        let engine = restarted(&world, engine).await;
        engine.resume(&thread, [], CONTINUE).await.expect("accepted");
        engine.rests(&thread, "succeeded").await;
        assert_eq!(runs.of("plain"), plain + 1);
    }
}

/// One `continue` releases what was paused twice, and so does an answer to the
/// stop that is listed.
async fn pauses_do_not_stack() {
    for by_id in [false, true] {
        let runs = Runs::default();
        let world = world({
            let runs = runs.clone();
            move || {
                flow("flow", |g| {
                    g.node("plain", asks("plain", &runs)).edge(START, "plain");
                })
            }
        });
        let engine = world.engine().await;
        let thread = engine.start("flow", json!({})).await;
        open(&engine, &thread, "parked").await;
        let mut stops = Vec::new();
        for now in [false, true, false] {
            engine.engine.pause(&thread, now, &operator()).await.expect("taken");
            engine.idles().await;
            let paused = open(&engine, &thread, "parked").await;
            assert_eq!(names(&paused), ["pause", "plain?"], "one stop, however often it was asked for");
            stops.push(paused[0].1.id.clone());
        }
        assert!(stops.iter().all(|stop| *stop == stops[0]), "{stops:?}");
        let engine = restarted(&world, engine).await;
        if by_id {
            engine.vote(&stops[0], &operator(), json!(null)).await.expect("accepted");
        } else {
            engine.resume(&thread, [], CONTINUE).await.expect("accepted");
        }
        engine.idles().await;
        let asked = open(&engine, &thread, "parked").await;
        assert_eq!((names(&asked), runs.of("plain")), (vec!["plain?"], 1));
        answer(&engine, &asked[0].1, json!("yes")).await;
        assert_eq!(engine.rests(&thread, "succeeded").await.state["got"], json!({"plain": "yes"}));
    }
}

async fn a_pause_of_a_failed_thread_hides_no_failure() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            flow("flow", |g| {
                g.node("breaks", fails("breaks", 1, &runs)).edge(START, "breaks");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.rests(&thread, "failed").await;
    let engine = restarted(&world, engine).await;
    engine.engine.pause(&thread, false, &operator()).await.expect("taken");
    engine.idles().await;
    let failed = engine.rests(&thread, "failed").await;
    assert_eq!((failed.summary.open, failed.summary.failed_tasks), (1, 1), "paused, and failed all the same (R12)");
    assert_eq!(failed.summary.error.as_deref(), Some("breaks: breaks has no line"));
    engine.engine.retry(&thread, &operator()).await.expect("accepted");
    engine.idles().await;
    assert_eq!((names(&open(&engine, &thread, "parked").await), runs.of("breaks")), (vec!["pause"], 1));
    let engine = restarted(&world, engine).await;
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    engine.rests(&thread, "succeeded").await;
    assert_eq!(runs.of("breaks"), 2, "the retry that was accepted is done");
}

async fn what_a_called_graph_did_before_a_pause_at_once_stays_done() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world({
        let (runs, gate) = (runs.clone(), gate.clone());
        move || {
            let child = part("child", |g| {
                g.node("one", logs("inside", "one", &runs)).node("two", hangs("two", &runs, &gate));
                g.edge(START, "one").edge("one", "two");
            });
            let calls = with(&(runs.clone(), child), |cx, (runs, child)| async move {
                runs.hit("calls");
                let end = cx.graph("child", &child, json!({})).await?;
                Ok(crate::support::flows::got("calls", &json!([end["inside"], end["got"]])))
            });
            flow("flow", |g| {
                g.node("calls", calls).edge(START, "calls");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    engine.engine.pause(&thread, true, &operator()).await.expect("taken");
    gate.dropped(1).await;
    assert_eq!(names(&open(&engine, &thread, "parked").await), ["pause"]);
    let engine = restarted(&world, engine).await;
    gate.open();
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"]["calls"], json!([["one"], {"two": "passed"}]));
    assert_eq!((runs.of("one"), runs.of("two"), runs.of("calls")), (1, 2, 2));
}
