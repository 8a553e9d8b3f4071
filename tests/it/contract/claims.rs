//! Leases: one holder at a time, and no write without its proof.

use std::time::Duration;

use countersign_kernel::machine::TaskRecord;
use countersign_worker::store::Due;
use countersign_worker::store::commands::{
    Claim, Claimed, Committed, Fence, Flush, RestAs, Serves, StepCommit, StepResult,
};
use serde_json::json;

use super::place::{LEASE, Place, at, fenced, thread};

contract!(
    a_second_claim_gets_nothing_until_the_lease_lapses,
    every_claim_raises_the_fence,
    an_unknown_or_resting_thread_is_nothing_and_its_jobs_go,
    a_thread_of_a_flow_that_is_not_served_stays_as_it_is,
    of_many_claims_at_once_one_holds,
    no_write_succeeds_with_an_old_fence,
    no_write_succeeds_after_a_rest,
    a_renewed_lease_does_not_lapse_and_a_lost_one_is_reported,
    a_renewal_never_shortens_a_lease,
    a_released_thread_is_queued_and_fenced,
    recovery_gives_up_the_leases_of_the_dead,
);

async fn nothing(place: &Place, claim: Claim) -> bool {
    matches!(place.store.claim(claim).await.expect("no failure"), Claimed::Nothing)
}

async fn a_second_claim_gets_nothing_until_the_lease_lapses(place: &Place) {
    let thread = place.queued("t").await;
    let first = place.held(&thread, at(1)).await.fence;
    assert!(nothing(place, place.claim(&thread, at(2))).await);
    assert!(nothing(place, place.claim(&thread, at(1).after(LEASE))).await, "up to its last instant it holds");
    let second = place.held(&thread, at(1).after(LEASE + Duration::from_micros(1))).await.fence;
    assert!(second > first);
}

async fn every_claim_raises_the_fence(place: &Place) {
    let thread = place.queued("t").await;
    let mut last = Fence(0);
    for round in 0..5 {
        let held = place.held(&thread, at(round)).await;
        assert!(held.fence > last, "{:?} after {last:?}", held.fence);
        last = held.fence;
        place.store.release(&thread, held.fence, at(round)).await.expect("released");
    }
}

async fn an_unknown_or_resting_thread_is_nothing_and_its_jobs_go(place: &Place) {
    let command = place.create("t", at(0));
    let job = command.job;
    place.store.create(command).await.expect("created");
    place.rest(&thread("t"), Vec::new(), RestAs::Succeeded).await;
    assert_eq!(place.backend.jobs().await, [job.to_string()], "nobody named the job yet");
    let claim = Claim { jobs: vec![job], ..place.claim(&thread("t"), at(3)) };
    assert!(nothing(place, claim).await);
    assert_eq!(place.backend.jobs().await, Vec::<String>::new());
    assert!(nothing(place, place.claim(&thread("unknown"), at(3))).await);
}

async fn a_thread_of_a_flow_that_is_not_served_stays_as_it_is(place: &Place) {
    let queued = place.queued("t").await;
    let of = |graphs: &[&str]| Some(graphs.iter().map(|graph| (*graph).to_owned()).collect());
    let before = place.store.load(&queued).await.expect("there");
    let claim = |graphs: &[&str]| Claim { graphs: of(graphs), ..place.claim(&queued, at(1)) };
    assert!(nothing(place, claim(&["other"])).await);
    assert!(nothing(place, claim(&[])).await);
    assert_eq!(place.store.load(&queued).await.expect("there").fence, before.fence);
    let found = place.store.sweep(&Serves::default(), at(100), Duration::ZERO, 10).await.expect("swept");
    assert_eq!(found, [Due::Thread(queued.clone())], "for whoever serves it");
    assert!(matches!(place.store.claim(claim(&["other", &before.graph])).await.expect("no failure"), Claimed::Held(_)));
}

async fn of_many_claims_at_once_one_holds(place: &Place) {
    let thread = place.queued("t").await;
    let claims = (0..20).map(|_| place.store.claim(place.claim(&thread, at(1))));
    let held = futures_util::future::join_all(claims).await;
    let held = held.into_iter().filter(|claimed| matches!(claimed, Ok(Claimed::Held(_)))).count();
    assert_eq!(held, 1);
}

fn writes(place: &Place, fence: Fence) -> (StepCommit, Flush, StepResult) {
    let thread = thread("t");
    let commit = StepCommit {
        checkpoint: Some(place.checkpoint(1, at(30))),
        rest: Some(RestAs::Succeeded),
        ..place.commit(&thread, fence, at(30))
    };
    let flush = Flush {
        thread: thread.clone(),
        fence,
        seq: 0,
        tasks: vec![("a".into(), TaskRecord { error: Some("old".into()), ..TaskRecord::default() })],
        events: Vec::new(),
        now: at(30),
    };
    let result = StepResult {
        thread,
        fence,
        frame: None,
        seq: 0,
        occurrence: place.checkpoint(0, at(0)).body.tasks[0].address.clone(),
        name: "pay".into(),
        result: json!("twice"),
        now: at(30),
    };
    (commit, flush, result)
}

async fn assert_fenced(place: &Place, fence: Fence) {
    let before = place.store.load(&thread("t")).await.expect("there");
    let (commit, flush, result) = writes(place, fence);
    fenced(place.store.commit(commit).await);
    fenced(place.store.flush(flush).await);
    fenced(place.store.record_result(result).await);
    fenced(place.store.release(&thread("t"), fence, at(30)).await);
    let after = place.store.load(&thread("t")).await.expect("there");
    assert_eq!((after.seq, after.fence, &after.records), (before.seq, before.fence, &before.records));
    assert!(after.records.is_empty());
    assert_eq!(place.backend.count("steps").await, 0);
    assert_eq!(place.store.history(&thread("t"), None, None, 10).await.expect("there").len(), 1);
}

async fn no_write_succeeds_with_an_old_fence(place: &Place) {
    let thread = place.queued("t").await;
    let old = place.held(&thread, at(1)).await.fence;
    let new = place.held(&thread, at(20)).await.fence;
    assert_fenced(place, old).await;
    assert_eq!(place.status(&thread).await, "running");
    let (commit, flush, result) = writes(place, new);
    place.store.flush(flush).await.expect("the holder writes");
    place.store.record_result(result).await.expect("the holder writes");
    assert_eq!(place.store.commit(commit).await.expect("the holder writes"), Committed::Released);
}

async fn no_write_succeeds_after_a_rest(place: &Place) {
    let thread = place.queued("t").await;
    place.rest(&thread, Vec::new(), RestAs::Parked).await;
    let fence = place.store.load(&thread).await.expect("there").fence;
    assert_fenced(place, fence).await;
    assert_eq!(place.status(&thread).await, "parked");
}

async fn a_renewed_lease_does_not_lapse_and_a_lost_one_is_reported(place: &Place) {
    let (kept, lost) = (place.queued("kept").await, place.queued("lost").await);
    let (kept_by, lost_by) = (place.held(&kept, at(0)).await.fence, place.held(&lost, at(0)).await.fence);
    place.held(&lost, at(20)).await;
    let leases = vec![(kept.clone(), kept_by), (lost.clone(), lost_by), (thread("unknown"), Fence(1))];
    let gone = place.store.renew(leases, at(100)).await.expect("renewed");
    assert_eq!(gone, [lost, thread("unknown")]);
    assert!(nothing(place, place.claim(&kept, at(99))).await);
    place.held(&kept, at(101)).await;
}

async fn a_renewal_never_shortens_a_lease(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(0)).await.fence;
    assert!(place.store.renew(vec![(thread.clone(), fence)], at(1)).await.expect("renewed").is_empty());
    assert!(nothing(place, place.claim(&thread, at(2))).await);
}

async fn a_released_thread_is_queued_and_fenced(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    place.store.release(&thread, fence, at(2)).await.expect("released");
    assert_eq!(place.status(&thread).await, "queued");
    assert_fenced(place, fence).await;
    place.held(&thread, at(2)).await;
}

async fn recovery_gives_up_the_leases_of_the_dead(place: &Place) {
    let (running, resting) = (place.queued("running").await, place.queued("resting").await);
    place.rest(&resting, Vec::new(), RestAs::Parked).await;
    let old = place.held(&running, at(1)).await.fence;
    assert_eq!(place.store.recover(at(2)).await.expect("recovered"), 1);
    assert_eq!((place.status(&running).await, place.status(&resting).await), ("queued".into(), "parked".into()));
    assert!(place.held(&running, at(2)).await.fence > old);
    fenced(place.store.commit(place.commit(&running, old, at(3))).await);
}
