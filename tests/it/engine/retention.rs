//! Long histories stay short.

use countersign_worker::store::Store as _;
use serde_json::json;

use super::graphs::counting;
use crate::support::{Runs, World, eventually};

engine!(a_thousand_loops_leave_a_bounded_history, a_thread_at_rest_is_compacted_when_that_is_configured_later,);

async fn a_thousand_loops_leave_a_bounded_history() {
    let runs = Runs::default();
    let world = World::one({
        let runs = runs.clone();
        move || counting(&runs, 1_000)
    })
    .configured(|config| {
        config.keep_checkpoints_of.insert("flow".into(), 20);
        config.supersteps_per_run = 2_000;
        config.events = false;
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["n"], runs.of("count")), (&json!(1_000), 1_000));
    for table in ["checkpoints", "state_values", "tasks", "steps"] {
        eventually("it is compacted", async || {
            let rows = world.count(table).await;
            (rows <= 31).then_some(())
        })
        .await;
    }
    let history = engine.history(&thread).await;
    assert!((20..=31).contains(&history.len()), "{}", history.len());
    assert_eq!(history[0].state["n"], json!(1_000));
    assert_eq!(history.last().expect("some").state["n"], json!(1_000 - (history.len() as u64 - 1)));
    assert_eq!(engine.store.verify_audit(&thread).await.expect("verified"), None);
}

async fn a_thread_at_rest_is_compacted_when_that_is_configured_later() {
    let runs = Runs::default();
    let world = World::one({
        let runs = runs.clone();
        move || counting(&runs, 50)
    });
    let engine = world.engine().await;
    let threads = [engine.start("flow", json!({})).await, engine.start("flow", json!({})).await];
    for thread in &threads {
        engine.rests(thread, "succeeded").await;
    }
    assert!(world.count("checkpoints").await >= 100);
    engine.stop().await;
    let world = world.configured(|config| config.keep_checkpoints = 4);
    let engine = world.engine().await;
    eventually("they are compacted", async || (world.count("checkpoints").await == 8).then_some(())).await;
    for thread in &threads {
        assert_eq!(engine.detail(thread).await.state["n"], json!(50));
    }
}
