//! Two workers, one thread.

use std::time::Duration;

use countersign_kernel::ids::ThreadId;
use countersign_kernel::time::Timestamp;
use countersign_worker::store::Store;
use countersign_worker::store::commands::{Activation, Claim, Claimed};
use futures_util::future::join_all;
use serde_json::json;

use super::graphs::{Does, in_a_row};
use crate::support::{Gate, On, Runs, TestEngine, World, ann};

engine!(
    a_worker_that_lost_its_lease_commits_nothing,
    a_body_whose_worker_lost_the_lease_gets_no_further_than_its_next_step,
    a_lost_lease_stops_the_body_where_it_stands,
    a_long_body_keeps_its_lease,
    a_body_stops_before_a_lease_lapses_that_cannot_be_renewed,
    whom_nobody_knows_to_be_dead_keeps_its_threads_until_their_leases_lapse,
);
with_redis!(a_long_body_keeps_its_lease, whom_nobody_knows_to_be_dead_keeps_its_threads_until_their_leases_lapse,);

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
        graphs: None,
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

async fn a_long_body_keeps_its_lease() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, Does::Gated).configured(|config| config.lease = Duration::from_millis(600));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    // Three times the lease, by the clock that leases go by.
    let until = engine.engine.clock().now().after(Duration::from_millis(1800));
    crate::support::eventually("the lease would have lapsed", async || {
        (engine.engine.clock().now() > until).then_some(())
    })
    .await;
    gate.open();
    engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("hangs"), runs.of("next")), (1, 1));
}

async fn a_body_stops_before_a_lease_lapses_that_cannot_be_renewed() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let lease = Duration::from_secs(2);
    let world = world(&runs, &gate, Does::Gated).among_others(lease);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    world
        .while_blocked(async {
            let blocked = engine.engine.clock().now();
            gate.dropped(1).await;
            // The last renewal was before, and was to hold for the whole lease.
            let stopped = engine.engine.clock().now();
            assert!(stopped.since(blocked) < lease, "{:?}", stopped.since(blocked));
        })
        .await;
    gate.open();
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["log"], json!(["hangs", "next"]));
    assert_eq!((runs.of("hangs"), runs.of("next")), (2, 1));
}

async fn whom_nobody_knows_to_be_dead_keeps_its_threads_until_their_leases_lapse() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, Does::Gated).among_others(Duration::from_millis(500));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    engine.crash().await;

    gate.open();
    let engine = world.engine().await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["log"], json!(["hangs", "next"]));
    assert_eq!((runs.of("hangs"), runs.of("next")), (2, 1));
}

/// One process has a data folder to itself; a database is shared.
#[tokio::test]
async fn of_two_processes_each_runs_what_the_other_does_not() {
    On::Postgres.run(each_runs_what_the_other_does_not()).await;
}

async fn each_runs_what_the_other_does_not() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, Does::Ask).carried().among_others(Duration::from_secs(60));
    let both = [world.engine().await, world.engine().await];
    let threads = join_all((0..30).map(|number| both[number % 2].start("flow", json!({})))).await;
    for (number, thread) in threads.iter().enumerate() {
        let other = &both[(number + 1) % 2];
        let open = other.parked(thread).await;
        other.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
    }
    for thread in &threads {
        assert_eq!(both[0].rests(thread, "succeeded").await.state["log"], json!(["hangs", "next"]));
        assert_eq!(both[1].store.verify_audit(thread).await.expect("verified"), None);
    }
    assert_eq!((runs.of("hangs"), runs.of("next")), (60, 30), "nothing ran in both");
}

#[tokio::test]
async fn of_two_processes_one_takes_over_what_the_other_ran_when_it_died() {
    On::Postgres.run(takes_over_what_the_other_ran()).await;
}

async fn takes_over_what_the_other_ran() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, Does::Gated).among_others(Duration::from_secs(1));
    let dies = world.engine().await;
    let threads = join_all((0..8).map(|_| dies.start("flow", json!({})))).await;
    gate.arrived(8).await;
    let lives = world.engine().await;
    let more = join_all((0..8).map(|_| lives.start("flow", json!({})))).await;
    gate.arrived(16).await;
    dies.crash().await;
    gate.dropped(8).await;

    gate.open();
    for thread in threads.iter().chain(&more) {
        assert_eq!(lives.rests(thread, "succeeded").await.state["log"], json!(["hangs", "next"]));
    }
    assert_eq!(runs.of("next"), 16);
}
