//! What a node's policy and a run's limits do inside and outside of sub-graphs.

use std::time::Duration;

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::machine::Resume;
use countersign_kernel::node::{NodeError, NodePolicy, RetryPolicy};
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use super::graphs::{CONTINUE, NOTHING};
use super::nested::{answer, names, open, restarted, world};
use crate::support::flows::{fails, flow, got, hangs, part, with};
use crate::support::{Gate, Runs, operator};

engine!(
    a_node_is_tried_as_often_as_its_policy_says_and_steps_stay_done,
    a_node_that_uses_up_its_attempts_fails_and_a_retry_gives_it_all_of_them_again,
    a_sub_graph_that_is_tried_again_goes_on_where_it_failed,
    a_body_that_takes_too_long_is_dropped_and_its_node_fails,
    a_sub_graph_that_takes_too_long_goes_on_where_it_was_when_it_is_retried,
    a_limit_of_supersteps_holds_inside_and_each_continue_gives_them_anew,
    a_resume_may_bring_another_limit_for_its_run,
);

fn retried(attempts: u32) -> NodePolicy {
    NodePolicy { retry: Some(RetryPolicy::immediate(attempts)), ..NodePolicy::default() }
}

fn timed(millis: u64) -> NodePolicy {
    NodePolicy { timeout: Some(Duration::from_millis(millis)), ..NodePolicy::default() }
}

async fn a_node_is_tried_as_often_as_its_policy_says_and_steps_stay_done() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let body = with(&runs, |cx, runs| async move {
                let hits = runs.clone();
                let key = cx.step("pay", async move |key| {
                    hits.hit("pay");
                    Ok::<_, NodeError>(key.to_string())
                });
                key.await?;
                match runs.hit("flaky") {
                    1 | 2 => Err(NodeError::failed("no line")),
                    _ => Ok(got("attempt", &json!(cx.attempt()))),
                }
            });
            flow("flow", |g| {
                g.node("flaky", body).policy("flaky", retried(3)).edge(START, "flaky");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"], runs.of("flaky"), runs.of("pay")), (&json!({"attempt": 3}), 3, 1));
}

async fn a_node_that_uses_up_its_attempts_fails_and_a_retry_gives_it_all_of_them_again() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let sub = part("sub", |g| {
                g.node("flaky", fails("flaky", 3, &runs)).policy("flaky", retried(2)).edge(START, "flaky");
            });
            flow("flow", |g| {
                g.subgraph("sub", sub).edge(START, "sub");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let failed = engine.rests(&thread, "failed").await;
    assert_eq!((failed.summary.error.as_deref(), runs.of("flaky")), (Some("sub/flaky: flaky has no line"), 2));
    let engine = restarted(&world, engine).await;
    engine.engine.retry(&thread, &operator()).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"], runs.of("flaky")), (&json!({"flaky": "at last"}), 4));
}

async fn a_sub_graph_that_is_tried_again_goes_on_where_it_failed() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let sub = part("sub", |g| {
                let once = with(&runs, |_, runs| async move { Ok(got("once", &json!(runs.hit("once")))) });
                g.node("once", once).node("flaky", fails("flaky", 2, &runs)).edge(START, "once").edge("once", "flaky");
            });
            flow("flow", |g| {
                g.subgraph("sub", sub).policy("sub", retried(3)).edge(START, "sub");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(
        (&done.state["got"], runs.of("once"), runs.of("flaky")),
        (&json!({"once": 1, "flaky": "at last"}), 1, 3)
    );
}

async fn a_body_that_takes_too_long_is_dropped_and_its_node_fails() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    for nested in [false, true] {
        let world = world({
            let (runs, gate) = (runs.clone(), gate.clone());
            move || {
                let sub = part("sub", |g| {
                    g.node("slow", hangs("slow", &runs, &gate)).policy("slow", timed(50)).edge(START, "slow");
                });
                flow("flow", |g| {
                    if nested {
                        g.subgraph("sub", sub).edge(START, "sub");
                    } else {
                        g.node("slow", hangs("slow", &runs, &gate)).policy("slow", timed(50)).edge(START, "slow");
                    }
                })
            }
        });
        let engine = world.engine().await;
        let thread = engine.start("flow", json!({})).await;
        let failed = engine.rests(&thread, "failed").await;
        let way = if nested { "sub/slow" } else { "slow" };
        assert_eq!(failed.summary.error, Some(format!("{way}: timed out after 50ms")));
    }
    gate.dropped(2).await;
}

async fn a_sub_graph_that_takes_too_long_goes_on_where_it_was_when_it_is_retried() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world({
        let (runs, gate) = (runs.clone(), gate.clone());
        move || {
            let sub = part("sub", |g| {
                let once = with(&runs, |_, runs| async move { Ok(got("once", &json!(runs.hit("once")))) });
                g.node("once", once).node("slow", hangs("slow", &runs, &gate)).edge(START, "once").edge("once", "slow");
            });
            flow("flow", |g| {
                g.subgraph("sub", sub).policy("sub", timed(500)).edge(START, "sub");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let failed = engine.rests(&thread, "failed").await;
    assert_eq!(failed.summary.error.as_deref(), Some("sub: timed out after 500ms"));
    gate.dropped(1).await;
    let engine = restarted(&world, engine).await;
    gate.open();
    engine.engine.retry(&thread, &operator()).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"], runs.of("once"), runs.of("slow")), (&json!({"once": 1, "slow": "passed"}), 1, 2));
}

/// A graph inside that counts to `until`, a superstep each.
fn counting(runs: &Runs, until: u64) -> CompiledGraph {
    let sub = part("sub", |g| {
        let count = with(runs, |_, runs| async move { Ok(Writes::none().with("n", &runs.hit("count"))) });
        g.node("count", count).edge(START, "count");
        g.branch("count", move |state| {
            let again = state.values().get("n").and_then(Value::as_u64) < Some(until);
            Ok(if again { vec!["count".into()] } else { Vec::new() })
        });
    });
    flow("flow", |g| {
        g.subgraph("sub", sub).edge(START, "sub");
    })
}

async fn a_limit_of_supersteps_holds_inside_and_each_continue_gives_them_anew() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || counting(&runs, 25)
    })
    .configured(|config| config.supersteps_per_run = 10);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    for reached in [10, 20] {
        let stop = open(&engine, &thread, "parked").await;
        assert_eq!((names(&stop), stop[0].1.frame.is_some()), (vec!["pause"], true));
        assert_eq!(stop[0].1.payload, json!({"reason": "recursion_limit", "supersteps": 10}));
        engine = restarted(&world, engine).await;
        assert_eq!(engine.view(&thread).await.frames[0].values["n"], reached);
        engine.resume(&thread, [], CONTINUE).await.expect("accepted");
        engine.idles().await;
    }
    engine.rests(&thread, "succeeded").await;
    assert_eq!(runs.of("count"), 25);
}

async fn a_resume_may_bring_another_limit_for_its_run() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || counting(&runs, 40)
    })
    .configured(|config| config.supersteps_per_run = 10);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    for (limit, reached) in [(None, 10), (Some(3), 13), (Some(20), 33)] {
        if let Some(limit) = limit {
            engine.resume(&thread, [], Resume { supersteps: Some(limit), ..CONTINUE }).await.expect("accepted");
            engine.idles().await;
        }
        let stop = open(&engine, &thread, "parked").await;
        assert_eq!(stop[0].1.payload["supersteps"], limit.unwrap_or(10));
        engine = restarted(&world, engine).await;
        assert_eq!(engine.view(&thread).await.frames[0].values["n"], reached);
    }
    let stop = open(&engine, &thread, "parked").await;
    answer(&engine, &stop[0].1, Value::Null).await;
    engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("count"), NOTHING.supersteps), (40, None));
}
