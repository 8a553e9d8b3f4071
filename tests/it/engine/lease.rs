//! Two workers, one thread.

use std::time::Duration;

use countersign_kernel::ids::ThreadId;
use countersign_kernel::time::Timestamp;
use countersign_worker::store::Store;
use countersign_worker::store::commands::{Activation, Claim, Claimed};
use serde_json::json;

use super::graphs::{Does, in_a_row};
use crate::support::{Gate, Runs, TestEngine, World};

fn world(runs: &Runs, gate: &Gate, does: Does) -> World {
    let (runs, gate) = (runs.clone(), gate.clone());
    World::one(move || in_a_row(&runs, &gate, &[("hangs", does), ("next", Does::Work)]))
}

/// Takes the thread as another worker whose clock says that the lease lapsed.
async fn steal(engine: &TestEngine, thread: &ThreadId) -> Box<Activation> {
    let now: Timestamp = engine.engine.clock().now().after(Duration::from_secs(24 * 3600));
    let claim = Claim {
        thread: thread.clone(),
        worker: "thief".into(),
        lease_until: now.after(Duration::from_secs(24 * 3600)),
        jobs: Vec::new(),
        max_attempts: 5,
        backoff: |_| Duration::ZERO,
        now,
    };
    match engine.store.claim(claim).await.expect("no failure") {
        Claimed::Held(held) => held,
        other => panic!("not stolen: {other:?}"),
    }
}

#[tokio::test]
async fn a_worker_that_lost_its_lease_commits_nothing() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    // It never renews, so it does not hear of the loss before it writes.
    let world = world(&runs, &gate, Does::Gated).configured(|config| config.lease = Duration::from_secs(3600));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    let stolen = steal(&engine, &thread).await;
    gate.open();
    engine.idles().await;
    let now = engine.store.load(&thread).await.expect("there");
    assert_eq!((now.fence, now.seq, now.records.len()), (stolen.fence, stolen.seq, 0));
    assert_eq!((runs.of("hangs"), runs.of("next")), (1, 0));
    assert_eq!(engine.detail(&thread).await.summary.status, "running", "the thief has it");

    // The thief gives it back; the work is done again, and once.
    engine.store.release(&thread, stolen.fence, engine.engine.clock().now()).await.expect("released");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["log"], json!(["hangs", "next"]));
    assert_eq!((runs.of("hangs"), runs.of("next")), (2, 1));
}

#[tokio::test]
async fn a_body_whose_worker_lost_the_lease_gets_no_further_than_its_next_step() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, Does::Stepping).configured(|config| config.lease = Duration::from_secs(3600));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    let stolen = steal(&engine, &thread).await;
    gate.open();
    engine.idles().await;
    let address = stolen.body.tasks[0].address.clone();
    let record = &engine.store.load(&thread).await.expect("there").records["hangs"];
    let steps = &record.occurrences.get(&address).expect("before the theft").steps;
    assert_eq!(steps.keys().collect::<Vec<_>>(), ["before"], "the result of the other step is void");
    assert_eq!((runs.of("hangs"), runs.of("next")), (1, 0));
}

#[tokio::test]
async fn a_lost_lease_stops_the_body_where_it_stands() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, Does::Gated).configured(|config| config.lease = Duration::from_millis(150));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    let stolen = steal(&engine, &thread).await;
    gate.dropped(1).await;
    engine.idles().await;
    assert_eq!(engine.store.load(&thread).await.expect("there").fence, stolen.fence);
    assert_eq!(runs.of("next"), 0);
}

#[tokio::test]
async fn a_long_body_keeps_its_lease() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, Does::Gated).configured(|config| config.lease = Duration::from_millis(120));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    // Three times the lease, by the clock that leases go by.
    let until = engine.engine.clock().now().after(Duration::from_millis(360));
    crate::support::eventually("the lease would have lapsed", async || {
        (engine.engine.clock().now() > until).then_some(())
    })
    .await;
    gate.open();
    engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("hangs"), runs.of("next")), (1, 1));
}
