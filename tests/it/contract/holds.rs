//! Threads that kill their workers, and threads that are set aside.

use std::time::Duration;

use countersign_kernel::ids::ThreadId;
use countersign_kernel::machine::Resume;
use countersign_kernel::occurrence::PointKind;
use countersign_worker::store::commands::{Claim, Claimed, RestAs, Serves, StepCommit};
use countersign_worker::store::{Due, Refusal};

use super::place::{Place, at, refused, thread};
use crate::support::operator;

contract!(
    a_thread_that_loses_its_workers_is_held_with_a_dead_letter,
    progress_sets_the_attempts_back,
    a_lost_worker_backs_the_next_claim_off,
    a_released_hold_is_queued_with_fresh_attempts,
    only_a_held_thread_is_released,
    a_resume_that_met_a_hold_is_still_there_after_it,
);

/// Claims and is lost, at `seconds`.
async fn lose(place: &Place, thread: &ThreadId, seconds: i64) -> Claimed {
    place.store.claim(place.claim(thread, at(seconds))).await.expect("no failure")
}

/// Three claims without progress, and the fourth that gives up.
async fn killer(place: &Place) -> ThreadId {
    let thread = place.queued("t").await;
    for round in 0..3 {
        assert!(matches!(lose(place, &thread, round * 20).await, Claimed::Held(_)), "attempt {round}");
    }
    assert!(matches!(lose(place, &thread, 60).await, Claimed::Dead));
    thread
}

async fn a_thread_that_loses_its_workers_is_held_with_a_dead_letter(place: &Place) {
    let thread = killer(place).await;
    let summary = place.store.thread(&thread).await.expect("there").summary;
    assert_eq!(summary.status, "held");
    assert!(summary.held_reason.is_some_and(|reason| reason.contains("3 attempts")));
    assert_eq!(place.store.counts().await.expect("counts").dead_letters, 1);
    assert_eq!(place.actions(&thread).await, ["started", "held"]);
    assert!(matches!(lose(place, &thread, 80).await, Claimed::Nothing), "it stays down");
    assert!(place.store.sweep(&Serves::default(), at(1000), Duration::ZERO, 10).await.expect("swept").is_empty());
}

async fn progress_sets_the_attempts_back(place: &Place) {
    let thread = place.queued("t").await;
    for seq in 1..=8 {
        let held = place.held(&thread, at(seq * 20)).await;
        let next = StepCommit {
            checkpoint: Some(place.checkpoint(seq, at(seq * 20))),
            ..place.commit(&thread, held.fence, at(seq * 20))
        };
        place.store.commit(next).await.expect("progress");
    }
    assert_eq!(place.status(&thread).await, "running");
}

async fn a_lost_worker_backs_the_next_claim_off(place: &Place) {
    let thread = place.queued("t").await;
    let claim = |seconds| Claim { backoff: |_| Duration::from_secs(100), ..place.claim(&thread, at(seconds)) };
    for seconds in [0, 20] {
        let claimed = place.store.claim(claim(seconds)).await.expect("no failure");
        assert!(matches!(claimed, Claimed::Held(_)), "the first retry is immediate: {seconds}");
    }
    assert!(
        matches!(place.store.claim(claim(119)).await, Ok(Claimed::Nothing)),
        "the lease lapsed, the backoff did not"
    );
    assert!(place.store.sweep(&Serves::default(), at(119), Duration::ZERO, 10).await.expect("swept").is_empty());
    assert_eq!(
        place.store.sweep(&Serves::default(), at(121), Duration::ZERO, 10).await.expect("swept"),
        [Due::Thread(thread.clone())]
    );
    assert!(matches!(place.store.claim(claim(121)).await, Ok(Claimed::Held(_))));
}

async fn a_released_hold_is_queued_with_fresh_attempts(place: &Place) {
    let thread = killer(place).await;
    let job = place.job();
    let message = place.store.release_hold(&thread, &operator(), job, at(70)).await.expect("released");
    assert_eq!((message.id, &message.thread), (job, &thread));
    assert!(place.backend.jobs().await.contains(&job.to_string()));
    let summary = place.store.thread(&thread).await.expect("there").summary;
    assert_eq!((summary.status.as_str(), summary.held_reason), ("queued", None));
    assert_eq!(place.store.counts().await.expect("counts").dead_letters, 0);
    for round in 0..3 {
        assert!(matches!(lose(place, &thread, 80 + round * 20).await, Claimed::Held(_)), "attempt {round}");
    }
    assert_eq!(place.actions(&thread).await, ["started", "held", "hold_released"]);
}

async fn only_a_held_thread_is_released(place: &Place) {
    let parked = place.queued("parked").await;
    place.rest(&parked, Vec::new(), RestAs::Parked).await;
    let release = place.store.release_hold(&parked, &operator(), place.job(), at(5)).await;
    assert_eq!(refused(release), Refusal::NothingPending);
    let unknown = place.store.release_hold(&thread("unknown"), &operator(), place.job(), at(5)).await;
    assert_eq!(refused(unknown), Refusal::UnknownThread(thread("unknown")));
    assert_eq!(place.status(&parked).await, "parked");
}

async fn a_resume_that_met_a_hold_is_still_there_after_it(place: &Place) {
    let thread = place.queued("t").await;
    let stop = place.point(&thread, 0, PointKind::Break);
    place.rest(&thread, vec![stop], RestAs::Parked).await;
    let go = Resume { release: true, ..Resume::default() };
    let command = place.resume(&thread, go);
    let run = command.run.clone();
    place.store.resume(command, None).await.expect("accepted");
    // The process that takes it up lacks the graph.
    let fence = place.held(&thread, at(11)).await.fence;
    let aside = RestAs::Held { reason: "this build has no graph `g`".into() };
    let commit = StepCommit { rest: Some(aside), ..place.commit(&thread, fence, at(12)) };
    place.store.commit(commit).await.expect("held");
    assert_eq!(place.status(&thread).await, "held");

    place.store.release_hold(&thread, &operator(), place.job(), at(13)).await.expect("released");
    let held = place.held(&thread, at(14)).await;
    assert_eq!((held.wake.resume, held.wake.runs), (go, vec![run]));
    assert_eq!(place.store.thread(&thread).await.expect("there").runs[0].status, "running");
}
