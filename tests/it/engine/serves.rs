//! A process that takes up some of the work leaves the rest to others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use countersign_kernel::graph::{END_NAME, START};
use countersign_worker::store::commands::Serves;
use futures_util::future::join_all;
use serde_json::json;

use crate::support::flows::{flow, got, with};
use crate::support::{DEADLINE, On, Runs, World, eventually, operator};

/// Two flows that ask; what runs is counted as `<flow> <number of the process>`.
fn world(runs: &Runs) -> World {
    let (runs, processes) = (runs.clone(), Arc::new(AtomicU32::new(0)));
    World::new(move || {
        let process = processes.fetch_add(1, Ordering::AcqRel);
        let graph = |name: &'static str| {
            flow(name, |g| {
                let asks = with(&runs, move |cx, runs: Runs| async move {
                    runs.hit(format!("{name} {process}"));
                    let answer = cx.interrupt(format!("{name}?")).await?;
                    Ok(got(name, &answer))
                });
                g.node("asks", asks).edge(START, "asks").edge("asks", END_NAME);
            })
        };
        vec![graph("left"), graph("right")]
    })
    .carried()
    .without_sweep()
    .among_others(DEADLINE)
}

fn only(graph: &str) -> Serves {
    Serves::default().of(Some(vec![graph.to_owned()]))
}

#[tokio::test]
async fn what_a_process_does_not_serve_another_takes_up_without_waiting_for_a_sweep() {
    On::Postgres.run(another_takes_up()).await;
}

async fn another_takes_up() {
    let runs = Runs::default();
    let mut world = world(&runs);
    world.config.serves = only("left");
    let left = world.engine().await;
    world.config.serves = only("right");
    let right = world.engine().await;
    let graphs = ["left", "right"];
    // Each is asked for threads of both, and each carrier gets jobs of both.
    let starts = (0..20).map(|n| {
        let engine = if n < 10 { &left } else { &right };
        engine.start(graphs[n % 2], json!({}))
    });
    let threads = join_all(starts).await;
    for (n, thread) in threads.iter().enumerate() {
        let engine = if n < 10 { &left } else { &right };
        let open = engine.parked(thread).await;
        engine.vote(&open[0].id, &operator(), json!("yes")).await.expect("accepted");
    }
    for thread in &threads {
        left.rests(thread, "succeeded").await;
    }
    let counted = ["left 0", "left 1", "right 0", "right 1"].map(|name| runs.of(name));
    assert_eq!(counted, [20, 0, 0, 20], "asked and answered, by whoever serves it");
    eventually("no job is left", async || (world.jobs().await == 0).then_some(())).await;
}
