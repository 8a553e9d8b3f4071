//! Pausing and cancelling.

use countersign_kernel::question::approval;
use countersign_worker::store::commands::{Committed, RestAs, StepCommit};
use countersign_worker::store::{Cancelled, Refusal};
use serde_json::json;

use super::place::{Place, at, fenced, refused, thread};
use crate::support::{ann, operator};

contract!(
    a_cancel_at_rest_holds_at_once_and_supersedes_what_waits,
    a_cancel_of_a_queued_thread_leaves_nothing_to_claim,
    a_cancel_under_a_lease_is_seen_by_the_next_commit,
    a_cancel_is_seen_by_the_commit_that_would_rest,
    a_cancel_under_a_lapsed_lease_holds_at_once,
    a_second_cancel_says_so_and_a_finished_thread_refuses,
    an_answer_that_nobody_took_up_dies_with_its_thread,
    a_pause_is_seen_by_the_next_commit_until_it_is_raised,
    an_ended_thread_is_not_paused,
);

async fn a_cancel_at_rest_holds_at_once_and_supersedes_what_waits(place: &Place) {
    let (thread, id) = place.asking("t", approval("Pay?")).await;
    assert_eq!(place.store.cancel(&thread, &operator(), at(5)).await.expect("taken"), Cancelled::Now);
    let detail = place.store.thread(&thread).await.expect("there");
    assert_eq!((detail.summary.status.as_str(), detail.summary.open, detail.interrupts.len()), ("cancelled", 0, 0));
    assert!(detail.runs.iter().all(|run| run.finished_at.is_some()));
    let view = place.store.interrupt(&id).await.expect("there");
    assert_eq!((view.status.as_str(), view.closed_at), ("superseded", Some(at(5))));
    assert_eq!(place.store.counts().await.expect("counts").requests_open, 0);
    let audit = place.store.audit(&thread).await.expect("there");
    assert_eq!(
        audit.last().map(|entry| (entry.action.as_str(), entry.actor.clone())),
        Some(("cancel_requested", Some(operator().to_string())))
    );
}

async fn a_cancel_of_a_queued_thread_leaves_nothing_to_claim(place: &Place) {
    let thread = place.queued("t").await;
    assert_eq!(place.store.cancel(&thread, &operator(), at(1)).await.expect("taken"), Cancelled::Now);
    let claimed = place.store.claim(place.claim(&thread, at(2))).await.expect("no failure");
    assert!(matches!(claimed, countersign_worker::store::commands::Claimed::Nothing));
}

async fn a_cancel_under_a_lease_is_seen_by_the_next_commit(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    assert_eq!(place.store.cancel(&thread, &operator(), at(2)).await.expect("taken"), Cancelled::Requested);
    assert_eq!(place.status(&thread).await, "running");
    let step = StepCommit { checkpoint: Some(place.checkpoint(1, at(3))), ..place.commit(&thread, fence, at(3)) };
    let Ok(Committed::Running(incoming)) = place.store.commit(step).await else { panic!("it rested") };
    assert!(incoming.cancel && !incoming.is_empty());
    let rest = StepCommit { rest: Some(RestAs::Cancelled), seq: 1, ..place.commit(&thread, fence, at(4)) };
    assert_eq!(place.store.commit(rest).await.expect("committed"), Committed::Released);
    assert_eq!(place.status(&thread).await, "cancelled");
}

async fn a_cancel_is_seen_by_the_commit_that_would_rest(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    place.store.cancel(&thread, &operator(), at(2)).await.expect("taken");
    let rest = StepCommit { rest: Some(RestAs::Parked), ..place.commit(&thread, fence, at(3)) };
    let Ok(Committed::Running(incoming)) = place.store.commit(rest).await else { panic!("it rested") };
    assert!(incoming.cancel);
    assert_eq!(place.status(&thread).await, "running");
}

async fn a_cancel_under_a_lapsed_lease_holds_at_once(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    assert_eq!(place.store.cancel(&thread, &operator(), at(100)).await.expect("taken"), Cancelled::Now);
    fenced(place.store.commit(place.commit(&thread, fence, at(101))).await);
    assert_eq!(place.status(&thread).await, "cancelled");
}

async fn a_second_cancel_says_so_and_a_finished_thread_refuses(place: &Place) {
    let cancelled = place.queued("cancelled").await;
    place.store.cancel(&cancelled, &operator(), at(1)).await.expect("taken");
    assert_eq!(place.store.cancel(&cancelled, &operator(), at(2)).await.expect("taken"), Cancelled::Already);
    let finished = place.queued("finished").await;
    place.rest(&finished, Vec::new(), RestAs::Succeeded).await;
    let refusal = refused(place.store.cancel(&finished, &operator(), at(3)).await);
    assert_eq!(refusal, Refusal::ThreadEnded("succeeded"));
    let unknown = refused(place.store.cancel(&thread("unknown"), &operator(), at(3)).await);
    assert_eq!(unknown, Refusal::UnknownThread(thread("unknown")));
}

async fn an_answer_that_nobody_took_up_dies_with_its_thread(place: &Place) {
    let (thread, id) = place.asking("t", approval("Pay?")).await;
    let vote = place.vote(&id, &ann(), &["approver"], json!({"approved": true}));
    place.store.record_vote(vote).await.expect("accepted");
    assert_eq!(place.store.cancel(&thread, &operator(), at(11)).await.expect("taken"), Cancelled::Now);
    assert!(place.store.load(&thread).await.expect("there").wake.answers.is_empty());
    let view = place.store.interrupt(&id).await.expect("there");
    assert_eq!((view.status.as_str(), view.answered.is_some()), ("answered", true), "it stays on record");
}

async fn a_pause_is_seen_by_the_next_commit_until_it_is_raised(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    place.store.pause(&thread, &operator(), place.job(), at(2)).await.expect("asked for");
    for seq in 1..=2 {
        let step = StepCommit { checkpoint: Some(place.checkpoint(seq, at(3))), ..place.commit(&thread, fence, at(3)) };
        let Ok(Committed::Running(incoming)) = place.store.commit(step).await else { panic!("it rested") };
        assert!(incoming.pause, "until somebody raises it");
    }
    let raised = StepCommit { paused: true, ..place.commit(&thread, fence, at(4)) };
    place.store.commit(raised).await.expect("committed");
    assert!(!place.store.load(&thread).await.expect("there").wake.pause);
    assert_eq!(place.actions(&thread).await, ["started", "pause_requested"]);
}

async fn an_ended_thread_is_not_paused(place: &Place) {
    let thread = place.queued("t").await;
    place.rest(&thread, Vec::new(), RestAs::Succeeded).await;
    let refusal = refused(place.store.pause(&thread, &operator(), place.job(), at(3)).await);
    assert_eq!(refusal, Refusal::ThreadEnded("succeeded"));
}
