//! Processes that die, and those that come after.

use serde_json::json;

use super::graphs::{Does, RESUME_ALL, in_a_row, side_by_side};
use crate::support::{Gate, Runs, World, ann, operator};

engine!(
    an_answer_survives_a_crash_before_anybody_took_it_up,
    finished_siblings_survive_a_crash_of_the_superstep,
    a_step_is_not_repeated_after_a_crash_of_its_node,
    a_thread_that_kills_its_process_is_held_in_the_end,
    parking_again_and_again_costs_no_attempts,
    a_point_that_closed_before_a_crash_is_not_left_open,
    a_graceful_stop_lets_the_superstep_finish_and_gives_the_thread_back,
);
with_redis!(
    an_answer_survives_a_crash_before_anybody_took_it_up,
    finished_siblings_survive_a_crash_of_the_superstep,
    a_step_is_not_repeated_after_a_crash_of_its_node,
    a_thread_that_kills_its_process_is_held_in_the_end,
    parking_again_and_again_costs_no_attempts,
    a_point_that_closed_before_a_crash_is_not_left_open,
    a_graceful_stop_lets_the_superstep_finish_and_gives_the_thread_back,
);

fn world(runs: &Runs, gate: &Gate, nodes: &'static [(&'static str, Does)]) -> World {
    let (runs, gate) = (runs.clone(), gate.clone());
    World::one(move || side_by_side(&runs, &gate, nodes))
}

async fn an_answer_survives_a_crash_before_anybody_took_it_up() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    for carried in [true, false] {
        let world = world(&runs, &gate, &[("a", Does::Ask)]);
        // What the first process left is found by its message, or by the sweep.
        let world = if carried { world.carried().without_sweep() } else { world };
        let engine = world.engine().await;
        let thread = engine.start("flow", json!({})).await;
        let open = engine.parked(&thread).await;
        engine.crash().await;

        let idle = world.idle().await;
        idle.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
        idle.crash().await;

        let engine = world.engine().await;
        let done = engine.rests(&thread, "succeeded").await;
        assert_eq!(done.state["got"]["a"], true);
    }
    assert_eq!((runs.of("a"), runs.of("last")), (4, 2));
}

async fn finished_siblings_survive_a_crash_of_the_superstep() {
    const NODES: [(&str, Does); 9] = [
        ("w0", Does::Work),
        ("w1", Does::Work),
        ("w2", Does::Work),
        ("w3", Does::Work),
        ("w4", Does::Work),
        ("w5", Does::Work),
        ("w6", Does::Work),
        ("w7", Does::Work),
        ("hangs", Does::Gated),
    ];
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &NODES);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    engine.flushed(&thread, 8).await;
    engine.crash().await;
    gate.dropped(1).await;

    gate.open();
    let engine = world.engine().await;
    let done = engine.rests(&thread, "succeeded").await;
    for (node, _) in NODES {
        assert_eq!(runs.of(node), if node == "hangs" { 2 } else { 1 }, "{node}");
    }
    assert_eq!(done.state["log"].as_array().map(Vec::len), Some(10));
    assert_eq!(done.summary.failed_tasks, 0);
}

async fn a_step_is_not_repeated_after_a_crash_of_its_node() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = {
        let (runs, gate) = (runs.clone(), gate.clone());
        World::one(move || in_a_row(&runs, &gate, &[("pays", Does::Stepping)])).carried()
    };
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    engine.crash().await;

    gate.open();
    let engine = world.engine().await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("pays"), runs.of("before"), runs.of("after")), (2, 1, 1));
    assert_eq!(done.state["got"]["pays"], json!([1, 1]));
}

async fn a_thread_that_kills_its_process_is_held_in_the_end() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("hangs", Does::Gated)]).configured(|config| config.max_attempts = 2);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    engine.crash().await;
    let engine = world.engine().await;
    gate.arrived(2).await;
    engine.crash().await;

    let engine = world.engine().await;
    let held = engine.rests(&thread, "held").await;
    assert!(held.summary.held_reason.is_some_and(|reason| reason.contains("2 attempts")));
    assert_eq!(runs.of("hangs"), 2);
    gate.open();
    engine.engine.retry(&thread, &operator()).await.expect("released");
    engine.rests(&thread, "succeeded").await;
}

async fn parking_again_and_again_costs_no_attempts() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = {
        let (runs, gate) = (runs.clone(), gate.clone());
        World::one(move || in_a_row(&runs, &gate, &[("a", Does::Ask), ("b", Does::Ask), ("c", Does::Ask)]))
            .configured(|config| config.max_attempts = 1)
    };
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    for _ in 0..3 {
        let open = engine.parked(&thread).await;
        engine.idles().await;
        engine.crash().await;
        engine = world.engine().await;
        engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
    }
    engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("c")), (2, 2, 2));
}

async fn a_point_that_closed_before_a_crash_is_not_left_open() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("goes", Does::Raw), ("hangs", Does::AskThenGated)]);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    engine.resume(&thread, [], RESUME_ALL).await.expect("accepted");
    gate.arrived(1).await;
    // It went on without an answer; its sibling still runs.
    engine.flushed(&thread, 1).await;
    engine.crash().await;

    gate.open();
    let engine = world.engine().await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((done.summary.open, done.interrupts), (0, Vec::new()));
    let store = engine.engine.store();
    assert_ne!(store.interrupt(&open[0].id).await.expect("there").status, "open");
    assert_eq!(done.state["got"], json!({"goes": "let go", "hangs": "passed", "last": "done"}));
    assert_eq!(runs.of("goes"), 2);
}

async fn a_graceful_stop_lets_the_superstep_finish_and_gives_the_thread_back() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = {
        let (runs, gate) = (runs.clone(), gate.clone());
        World::one(move || in_a_row(&runs, &gate, &[("hangs", Does::Gated), ("next", Does::Work)]))
    };
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    let open = gate.clone();
    let (_, ()) = tokio::join!(engine.stop(), async move { open.open() });
    assert_eq!((runs.of("hangs"), runs.of("next")), (1, 0), "what runs finishes, nothing starts");

    let engine = world.engine().await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("hangs"), runs.of("next")), (1, 1));
    assert_eq!(done.state["log"], json!(["hangs", "next"]));
}
