//! Bodies that fail, graphs that are missing.

use countersign_kernel::machine::Resume;
use countersign_worker::engine::RequestError;
use countersign_worker::store::{Refusal, StoreError};
use serde_json::json;

use super::graphs::{CONTINUE, Does, in_a_row, side_by_side, stopping_before_the_last};
use crate::support::{Gate, Runs, TestEngine, World, ann, operator};

engine!(
    a_body_that_panics_fails_its_node_alone,
    a_retry_runs_what_failed_and_nothing_else,
    a_question_beside_a_failure_stays_answerable,
    a_thread_whose_graph_is_missing_is_held_until_it_is_there,
    a_thread_whose_node_is_missing_is_held_with_the_nodes_name,
    a_continue_that_met_a_hold_is_done_after_it,
    a_retry_of_what_did_not_fail_is_refused,
);

fn world(runs: &Runs, nodes: &'static [(&'static str, Does)]) -> World {
    let runs = runs.clone();
    World::one(move || side_by_side(&runs, &Gate::closed(), nodes))
}

async fn retry(engine: &TestEngine, thread: &countersign_kernel::ids::ThreadId) {
    engine.engine.retry(thread, &operator()).await.expect("accepted");
}

async fn a_body_that_panics_fails_its_node_alone() {
    let runs = Runs::default();
    let world = world(&runs, &[("breaks", Does::Panicking), ("works", Does::Work)]);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let failed = engine.rests(&thread, "failed").await;
    let said = failed.summary.error.expect("a reason");
    assert!(said.contains("breaks") && said.contains("panicked") && said.contains("out of paper"), "{said}");
    assert_eq!((failed.summary.failed_tasks, failed.errors.len()), (1, 1));
    engine.idles().await;

    retry(&engine, &thread).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("breaks"), runs.of("works"), done.summary.error), (2, 1, None));
}

async fn a_retry_runs_what_failed_and_nothing_else() {
    let runs = Runs::default();
    let world = world(&runs, &[("fails", Does::Flaky), ("works", Does::Work)]);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    for round in 1..=2 {
        let failed = engine.rests(&thread, "failed").await;
        assert_eq!(failed.summary.error.as_deref(), Some("fails: no line"));
        assert_eq!((runs.of("fails"), runs.of("works"), runs.of("last")), (round, 1, 0));
        retry(&engine, &thread).await;
    }
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("fails"), runs.of("works"), runs.of("last")), (3, 1, 1));
    assert_eq!(done.state["got"]["fails"], "at last");
    let again = engine.engine.retry(&thread, &operator()).await;
    assert!(matches!(again, Err(RequestError::Store(StoreError::Refused(Refusal::ThreadEnded("succeeded"))))));
}

async fn a_question_beside_a_failure_stays_answerable() {
    let runs = Runs::default();
    let world = world(&runs, &[("asks", Does::Ask), ("fails", Does::Flaky)]);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let failed = engine.rests(&thread, "failed").await;
    assert_eq!((failed.summary.open, failed.interrupts.len()), (1, 1));
    engine.vote(&failed.interrupts[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
    engine.rests(&thread, "failed").await;
    engine.idles().await;
    assert_eq!((runs.of("asks"), runs.of("fails")), (2, 1), "only that point ran");
    for _ in 0..2 {
        engine.rests(&thread, "failed").await;
        retry(&engine, &thread).await;
    }
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("asks"), runs.of("fails"), &done.state["got"]["asks"]), (2, 3, &json!(true)));
}

async fn a_thread_whose_graph_is_missing_is_held_until_it_is_there() {
    let runs = Runs::default();
    let with = world(&runs, &[("a", Does::Work)]);
    let idle = with.idle().await;
    let thread = idle.start("flow", json!({})).await;
    idle.crash().await;

    let without = with.with_graphs(Vec::new);
    let engine = without.engine().await;
    let held = engine.rests(&thread, "held").await;
    assert_eq!(held.summary.held_reason.as_deref(), Some("this build has no graph `flow`"));
    retry(&engine, &thread).await;
    engine.rests(&thread, "held").await;
    engine.idles().await;
    engine.crash().await;

    let with = without.with_graphs({
        let runs = runs.clone();
        move || vec![side_by_side(&runs, &Gate::closed(), &[("a", Does::Work)])]
    });
    let engine = with.engine().await;
    assert_eq!(engine.detail(&thread).await.summary.status, "held", "not before somebody says so");
    retry(&engine, &thread).await;
    engine.rests(&thread, "succeeded").await;
    assert_eq!(runs.of("a"), 1);
}

async fn a_thread_whose_node_is_missing_is_held_with_the_nodes_name() {
    let runs = Runs::default();
    let old = World::one({
        let runs = runs.clone();
        move || in_a_row(&runs, &Gate::closed(), &[("gone", Does::Work)])
    });
    let idle = old.idle().await;
    let thread = idle.start("flow", json!({})).await;
    idle.crash().await;
    let new = old.with_graphs({
        let runs = runs.clone();
        move || vec![in_a_row(&runs, &Gate::closed(), &[("other", Does::Work)])]
    });
    let engine = new.engine().await;
    let held = engine.rests(&thread, "held").await;
    assert!(held.summary.held_reason.is_some_and(|reason| reason.contains("no node `gone`")));
    assert!(runs.all().is_empty());
}

async fn a_continue_that_met_a_hold_is_done_after_it() {
    let runs = Runs::default();
    let graph = {
        let runs = runs.clone();
        move || vec![stopping_before_the_last(&runs, &[("a", Does::Work), ("b", Does::Work)])]
    };
    let world = World::new(graph.clone());
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    engine.idles().await;
    engine.crash().await;

    let world = world.with_graphs(Vec::new);
    let engine = world.engine().await;
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    engine.rests(&thread, "held").await;
    engine.crash().await;

    let world = world.with_graphs(graph);
    let engine = world.engine().await;
    retry(&engine, &thread).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["log"], json!(["a", "b"]));
    assert!(done.runs.iter().all(|run| run.finished_at.is_some()));
}

async fn a_retry_of_what_did_not_fail_is_refused() {
    let runs = Runs::default();
    let world = world(&runs, &[("asks", Does::Ask)]);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    let refused = engine.engine.retry(&thread, &operator()).await;
    assert!(matches!(refused, Err(RequestError::Store(StoreError::Refused(Refusal::NothingToRetry)))));
    let refused = engine.resume(&thread, [], Resume { retry: true, ..CONTINUE }).await;
    assert!(refused.is_err());
    engine.idles().await;
    assert_eq!(runs.of("asks"), 1);
}
