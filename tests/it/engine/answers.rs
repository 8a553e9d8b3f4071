//! Running, parking, answering.

use serde_json::json;

use super::graphs::{Does, in_a_row, side_by_side};
use crate::support::{Gate, Outbox, Runs, World, ann, bob, eventually, operator};

engine!(
    a_flow_runs_to_its_end,
    an_answer_resumes_exactly_its_point,
    answers_that_come_together_are_one_resume,
    an_answer_to_a_running_thread_is_taken_up_at_its_park,
    a_finished_sibling_of_a_question_is_not_run_again,
    parked_threads_hold_nothing,
    new_input_starts_a_finished_thread_anew,
);
with_redis!(
    a_flow_runs_to_its_end,
    an_answer_resumes_exactly_its_point,
    answers_that_come_together_are_one_resume,
    an_answer_to_a_running_thread_is_taken_up_at_its_park,
    a_finished_sibling_of_a_question_is_not_run_again,
    parked_threads_hold_nothing,
    new_input_starts_a_finished_thread_anew,
);

async fn a_flow_runs_to_its_end() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let flow = [("a", Does::Work), ("b", Does::Work), ("c", Does::Work)];
    let world = World::one({
        let (runs, gate) = (runs.clone(), gate.clone());
        move || in_a_row(&runs, &gate, &flow)
    })
    .carried();
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["log"], done.next.len()), (&json!(["a", "b", "c"]), 0));
    assert_eq!(runs.all(), [("a", 1), ("b", 1), ("c", 1)].map(|(name, count)| (name.to_owned(), count)).into());
    assert_eq!((done.runs.len(), done.runs[0].status.as_str()), (1, "succeeded"));
    let history = engine.history(&thread).await;
    assert_eq!(history.iter().map(|entry| entry.superstep).collect::<Vec<_>>(), [3, 2, 1, 0]);
}

/// Three questions side by side.
fn questions(runs: &Runs) -> World {
    let (runs, gate) = (runs.clone(), Gate::closed());
    World::one(move || side_by_side(&runs, &gate, &[("a", Does::Ask), ("b", Does::Ask), ("c", Does::Ask)]))
}

async fn an_answer_resumes_exactly_its_point() {
    let (runs, outbox) = (Runs::default(), Outbox::taking());
    let world = questions(&runs).carried().sending_through(&outbox);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let before = engine.parked(&thread).await;
    assert_eq!(before.len(), 3);
    eventually("two managers are told of three questions", async || (outbox.attempts().len() == 6).then_some(())).await;

    let voted = engine.vote(&before[1].id, &ann(), json!({"approved": true})).await.expect("accepted");
    assert!(voted.decided);
    let after = engine.parked(&thread).await;
    assert_eq!(after.iter().map(|view| &view.id).collect::<Vec<_>>(), [&before[0].id, &before[2].id]);
    assert_eq!(after.iter().map(|view| view.asked_at).collect::<Vec<_>>(), [before[0].asked_at, before[2].asked_at]);
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("c"), runs.of("last")), (1, 2, 1, 0));
    assert_eq!(engine.detail(&thread).await.state.get("got"), None, "nothing is applied before all have finished");

    for (view, yes) in [(&before[0], true), (&before[2], false)] {
        engine.vote(&view.id, &bob(), json!({"approved": yes})).await.expect("accepted");
    }
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"a": true, "b": true, "c": false, "last": "done"}));
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("c"), runs.of("last")), (2, 2, 2, 1));
    assert_eq!(outbox.attempts().len(), 6, "nobody is told again");
}

async fn answers_that_come_together_are_one_resume() {
    let runs = Runs::default();
    let world = questions(&runs);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    engine.idles().await;
    engine.crash().await;

    // Nothing runs while the answers come in.
    let idle = world.idle().await;
    for view in &open {
        idle.vote(&view.id, &ann(), json!({"approved": true})).await.expect("accepted");
    }
    assert_eq!(idle.detail(&thread).await.summary.status, "queued");
    idle.crash().await;

    let engine = world.engine().await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"a": true, "b": true, "c": true, "last": "done"}));
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("c"), runs.of("last")), (2, 2, 2, 1));
}

async fn an_answer_to_a_running_thread_is_taken_up_at_its_park() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let flow = [("asks", Does::Raw), ("busy", Does::AskThenGated)];
    let world = World::one({
        let (runs, gate) = (runs.clone(), gate.clone());
        move || side_by_side(&runs, &gate, &flow)
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    engine.vote(&open[1].id, &operator(), json!("go")).await.expect("accepted");
    gate.arrived(1).await;
    engine.vote(&open[0].id, &operator(), json!("meanwhile")).await.expect("accepted while it runs");
    assert_eq!(engine.detail(&thread).await.summary.status, "running");
    assert_eq!(runs.of("asks"), 1, "not before the attempt has ended");
    gate.open();
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"asks": "meanwhile", "busy": "passed", "last": "done"}));
    assert_eq!((runs.of("asks"), runs.of("busy")), (2, 2));
}

async fn a_finished_sibling_of_a_question_is_not_run_again() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let flow = [("asks", Does::Ask), ("works", Does::Work)];
    let world = World::one({
        let (runs, gate) = (runs.clone(), gate.clone());
        move || side_by_side(&runs, &gate, &flow)
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("asks"), runs.of("works")), (2, 1));
    assert_eq!(done.state["log"], json!(["asks", "works", "last"]));
}

async fn parked_threads_hold_nothing() {
    let runs = Runs::default();
    let world = questions(&runs);
    let engine = world.engine().await;
    let mut threads = Vec::new();
    for _ in 0..20 {
        threads.push(engine.start("flow", json!({})).await);
    }
    for thread in &threads {
        engine.parked(thread).await;
    }
    engine.idles().await;
    assert_eq!(engine.engine.busy(), 0);
    assert_eq!(world.sql("UPDATE threads SET thread = thread WHERE lease_owner IS NOT NULL").await, 0, "no lease");
    assert_eq!(runs.of("a"), 20);
}

async fn new_input_starts_a_finished_thread_anew() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = World::one({
        let (runs, gate) = (runs.clone(), gate.clone());
        move || in_a_row(&runs, &gate, &[("a", Does::Work)])
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.rests(&thread, "succeeded").await;
    engine.engine.restart(&thread, &json!({"n": 7}), false, &ann(), &|_, _, _| None).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["log"], &done.state["n"]), (&json!(["a", "a"]), &json!(7)), "the state is kept");
    assert_eq!((runs.of("a"), done.runs.len()), (2, 2));
}
