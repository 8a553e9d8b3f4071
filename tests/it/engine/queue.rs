//! The queue is disposable: what it loses costs time only.

use futures_util::future::join_all;
use serde_json::json;

use super::graphs::{Does, in_a_row};
use crate::support::{DEADLINE, Gate, On, Runs, World, ann, eventually};

engine!(
    the_carrier_brings_what_an_earlier_process_left,
    messages_that_come_twice_find_nothing_to_do,
    with_the_whole_queue_lost_in_the_middle_every_thread_finishes,
);
with_redis!(
    the_carrier_brings_what_an_earlier_process_left,
    messages_that_come_twice_find_nothing_to_do,
    with_the_whole_queue_lost_in_the_middle_every_thread_finishes,
);

fn world(runs: &Runs, gate: &Gate, nodes: &'static [(&'static str, Does)]) -> World {
    let (runs, gate) = (runs.clone(), gate.clone());
    World::one(move || in_a_row(&runs, &gate, nodes))
}

async fn the_carrier_brings_what_an_earlier_process_left() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("a", Does::Ask)]).carried().without_sweep();
    let idle = world.idle().await;
    let threads = join_all((0..10).map(|_| idle.start("flow", json!({})))).await;
    idle.crash().await;

    let engine = world.engine().await;
    for thread in &threads {
        engine.parked(thread).await;
    }
    eventually("all are told", async || (world.outbox.attempts().len() == 20).then_some(())).await;
    assert_eq!(runs.of("a"), 10);
    eventually("no job is left", async || (world.jobs().await == 0).then_some(())).await;
}

async fn messages_that_come_twice_find_nothing_to_do() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("a", Does::Work), ("hangs", Does::Gated)]);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    for _ in 0..50 {
        engine.receive_again(&thread);
    }
    gate.open();
    engine.rests(&thread, "succeeded").await;
    for _ in 0..50 {
        engine.receive_again(&thread);
    }
    engine.idles().await;
    assert_eq!((runs.of("a"), runs.of("hangs")), (1, 1));
}

async fn with_the_whole_queue_lost_in_the_middle_every_thread_finishes() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("asks", Does::Ask), ("hangs", Does::Gated), ("last", Does::Work)])
        .carried()
        .configured(|config| config.concurrency = 4);
    let engine = world.engine().await;
    let threads = join_all((0..40).map(|_| engine.start("flow", json!({})))).await;
    for thread in &threads {
        let open = engine.parked(thread).await;
        // Some are answered and run or queue now, the others wait.
        if engine.detail(thread).await.summary.thread.as_str() > threads[20].as_str() {
            engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
        }
    }
    gate.arrived(4).await;
    world.lose_jobs().await;
    engine.crash().await;

    gate.open();
    let engine = world.engine().await;
    for thread in &threads {
        for view in engine.detail(thread).await.interrupts {
            engine.vote(&view.id, &ann(), json!({"approved": true})).await.expect("accepted");
        }
    }
    world.lose_jobs().await;
    for thread in &threads {
        let done = engine.rests(thread, "succeeded").await;
        assert_eq!(done.state["log"], json!(["asks", "hangs", "last"]));
    }
    assert_eq!((runs.of("asks"), runs.of("last")), (80, 40));
}

#[tokio::test]
async fn a_process_that_runs_threads_is_told_what_another_was_asked() {
    for on in [On::Postgres, On::Redis] {
        on.run(is_told_what_another_was_asked()).await;
    }
}

async fn is_told_what_another_was_asked() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("a", Does::Ask)]).carried().without_sweep().among_others(DEADLINE);
    let (runner, asked) = (world.engine().await, world.idle().await);
    let threads = join_all((0..10).map(|_| asked.start("flow", json!({})))).await;
    for thread in &threads {
        let open = runner.parked(thread).await;
        asked.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
        asked.rests(thread, "succeeded").await;
    }
    runner.idles().await;
    assert_eq!(runs.of("a"), 20);
    eventually("no job is left", async || (world.jobs().await == 0).then_some(())).await;
}
