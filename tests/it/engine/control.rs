//! Cancelling, pausing, stopping at borders.

use countersign_kernel::machine::Resume;
use countersign_worker::store::Cancelled;
use serde_json::json;

use super::graphs::{CONTINUE, Does, counting, in_a_row, side_by_side, stopping_before_the_last};
use crate::support::{Gate, Runs, World, ann, operator};

engine!(
    a_cancel_of_a_running_thread_holds_at_the_next_border,
    a_cancel_of_a_parked_thread_drops_what_waits,
    a_pause_holds_at_the_next_border_until_somebody_says_go_on,
    an_answer_to_a_paused_thread_is_kept_until_somebody_says_go_on,
    a_retry_that_meets_a_pause_is_done_after_it,
    a_resume_all_wakes_what_is_open_then_and_nothing_later,
    answers_on_both_sides_of_a_pause_all_count,
    a_breakpoint_stops_before_its_node_and_tells_nobody,
    a_breakpoint_is_released_by_its_id,
    a_run_that_uses_up_its_supersteps_pauses_and_goes_on,
);

fn world(runs: &Runs, gate: &Gate, nodes: &'static [(&'static str, Does)]) -> World {
    let (runs, gate) = (runs.clone(), gate.clone());
    World::one(move || in_a_row(&runs, &gate, nodes))
}

async fn a_cancel_of_a_running_thread_holds_at_the_next_border() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("hangs", Does::Gated), ("next", Does::Work)]);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    assert_eq!(engine.engine.cancel(&thread, &operator()).await.expect("taken"), Cancelled::Requested);
    gate.open();
    let done = engine.rests(&thread, "cancelled").await;
    engine.idles().await;
    assert_eq!((runs.of("hangs"), runs.of("next")), (1, 0));
    assert!(done.runs.iter().all(|run| run.status == "cancelled"));
}

async fn a_cancel_of_a_parked_thread_drops_what_waits() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("asks", Does::Ask), ("next", Does::Work)]);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    engine.idles().await;
    assert_eq!(engine.engine.cancel(&thread, &operator()).await.expect("taken"), Cancelled::Now);
    assert!(engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.is_err());
    engine.idles().await;
    assert_eq!((engine.detail(&thread).await.summary.status.as_str(), runs.of("asks")), ("cancelled", 1));
}

async fn a_pause_holds_at_the_next_border_until_somebody_says_go_on() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("hangs", Does::Gated), ("next", Does::Work)]);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    engine.engine.pause(&thread, false, &operator()).await.expect("taken");
    gate.open();
    let open = engine.parked(&thread).await;
    assert_eq!((open.len(), open[0].kind.as_str()), (1, "pause"));
    assert_eq!((runs.of("hangs"), runs.of("next")), (1, 0));
    assert!(engine.vote(&open[0].id, &ann(), json!({})).await.is_err(), "for operators");
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("hangs"), runs.of("next")), (1, 1));
    assert_eq!(engine.engine.store().interrupt(&open[0].id).await.expect("there").status, "released");
}

async fn an_answer_to_a_paused_thread_is_kept_until_somebody_says_go_on() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("asks", Does::Ask), ("next", Does::Work)]);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    engine.engine.pause(&thread, false, &operator()).await.expect("taken");
    engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
    let open = engine.parked(&thread).await;
    assert_eq!(open.iter().map(|view| view.kind.as_str()).collect::<Vec<_>>(), ["pause"]);
    engine.idles().await;
    assert_eq!(runs.of("asks"), 1, "a waiting thread pauses when it wakes");
    engine.crash().await;

    let engine = world.engine().await;
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["log"], &done.state["got"]["asks"]), (&json!(["asks", "next"]), &json!(true)));
    assert_eq!((runs.of("asks"), runs.of("next")), (2, 1));
}

async fn a_retry_that_meets_a_pause_is_done_after_it() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("fails", Does::Flaky), ("next", Does::Work)]);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.rests(&thread, "failed").await;
    engine.engine.pause(&thread, false, &operator()).await.expect("taken");
    engine.engine.retry(&thread, &operator()).await.expect("accepted");
    engine.parked(&thread).await;
    engine.idles().await;
    assert_eq!(runs.of("fails"), 1, "the pause holds it up");
    engine.crash().await;

    let engine = world.engine().await;
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    engine.rests(&thread, "failed").await;
    engine.idles().await;
    assert_eq!(runs.of("fails"), 2, "the retry that was accepted is done, once");
}

async fn a_resume_all_wakes_what_is_open_then_and_nothing_later() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = {
        let (runs, gate) = (runs.clone(), gate.clone());
        World::one(move || side_by_side(&runs, &gate, &[("a", Does::Ask), ("b", Does::Ask)]))
    };
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    engine.resume(&thread, [], Resume { resume_all: true, ..Resume::default() }).await.expect("accepted");
    engine.idles().await;
    let still = engine.parked(&thread).await;
    assert_eq!(still, open, "what asks again keeps its id");
    assert_eq!((runs.of("a"), runs.of("b")), (2, 2));
    engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
    engine.idles().await;
    assert_eq!((runs.of("a"), runs.of("b")), (3, 2), "an answer wakes its own point alone");
}

async fn answers_on_both_sides_of_a_pause_all_count() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let flow = {
        let (runs, gate) = (runs.clone(), gate.clone());
        World::one(move || side_by_side(&runs, &gate, &[("a", Does::Ask), ("b", Does::Ask), ("c", Does::Ask)]))
    };
    let engine = flow.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    engine.engine.pause(&thread, false, &operator()).await.expect("taken");
    for (view, yes) in [(&open[0], true), (&open[1], false)] {
        engine.vote(&view.id, &ann(), json!({"approved": yes})).await.expect("accepted");
        let still = engine.parked(&thread).await;
        assert!(still.iter().any(|view| view.kind == "pause"));
    }
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("c")), (1, 1, 1));
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    let rest = engine.parked(&thread).await;
    assert_eq!(rest.iter().map(|view| &view.id).collect::<Vec<_>>(), [&open[2].id]);
    engine.vote(&open[2].id, &ann(), json!({"approved": true})).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"a": true, "b": false, "c": true, "last": "done"}));
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("c")), (2, 2, 2));
}

async fn a_breakpoint_stops_before_its_node_and_tells_nobody() {
    let runs = Runs::default();
    let world = World::one({
        let runs = runs.clone();
        move || stopping_before_the_last(&runs, &[("a", Does::Work), ("b", Does::Work)])
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    assert_eq!((open[0].kind.as_str(), &open[0].payload["before"]), ("break", &json!(["b"])));
    assert_eq!((runs.of("a"), runs.of("b"), world.outbox.attempts().len()), (1, 0, 0));
    engine.idles().await;
    engine.crash().await;
    let engine = world.engine().await;
    assert_eq!(engine.parked(&thread).await[0].id, open[0].id, "a restart raises nothing anew");
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("a"), runs.of("b")), (1, 1));
}

async fn a_breakpoint_is_released_by_its_id() {
    let runs = Runs::default();
    let world = World::one({
        let runs = runs.clone();
        // One node only: it stops before anything has run.
        move || stopping_before_the_last(&runs, &[("a", Does::Work)])
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    assert!(runs.all().is_empty());
    engine.vote(&open[0].id, &operator(), json!(null)).await.expect("accepted");
    engine.rests(&thread, "succeeded").await;
    assert_eq!(runs.of("a"), 1);
}

async fn a_run_that_uses_up_its_supersteps_pauses_and_goes_on() {
    let runs = Runs::default();
    let world = World::one({
        let runs = runs.clone();
        move || counting(&runs, 25)
    })
    .configured(|config| config.supersteps_per_run = 10);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    for reached in [10, 20] {
        let open = engine.parked(&thread).await;
        assert_eq!((open.len(), open[0].kind.as_str()), (1, "pause"));
        assert_eq!(
            (&open[0].payload["reason"], &open[0].payload["supersteps"]),
            (&json!("recursion_limit"), &json!(10))
        );
        assert_eq!(engine.detail(&thread).await.state["n"], reached);
        engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    }
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["n"], runs.of("count")), (&json!(25), 25));
}
