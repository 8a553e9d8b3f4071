//! What is left of a thread that was set aside, when somebody decides about it.

use countersign_kernel::ids::ThreadId;
use countersign_kernel::machine::Resume;
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::principal::role;
use countersign_kernel::question::approval;
use countersign_worker::store::commands::{Claimed, RestAs, ResumeThread, StepCommit};
use countersign_worker::store::{Cancelled, Refusal};
use serde_json::json;

use super::place::{Place, at, refused};
use crate::support::{ann, bob, operator};

contract!(
    new_input_does_not_silently_drop_an_accepted_answer,
    new_input_takes_up_nothing_that_a_hold_had_set_aside,
    a_cancelled_hold_leaves_no_dead_letter,
    what_became_of_another_threads_point_is_not_told,
);

async fn set_aside(place: &Place, thread: &ThreadId) {
    let fence = place.held(thread, at(11)).await.fence;
    let aside = RestAs::Held { reason: "this build has no graph `g`".into() };
    place.store.commit(StepCommit { rest: Some(aside), ..place.commit(thread, fence, at(12)) }).await.expect("held");
    assert_eq!(place.status(thread).await, "held");
}

async fn new_input_does_not_silently_drop_an_accepted_answer(place: &Place) {
    let (thread, id) = place.asking("t", approval("Pay?").to(role("manager"))).await;
    let vote = place.vote(&id, &ann(), &["manager"], json!({"approved": true}));
    assert!(place.store.record_vote(vote).await.expect("accepted").decided);
    set_aside(place, &thread).await;

    assert_eq!(
        refused(place.store.move_thread(place.new_input(&thread, false).await).await),
        Refusal::ThreadInterrupted
    );
    place.store.release_hold(&thread, &operator(), place.job(), at(21)).await.expect("released");
    assert_eq!(place.held(&thread, at(22)).await.wake.answers.len(), 1, "it is still to be taken up");
}

async fn new_input_takes_up_nothing_that_a_hold_had_set_aside(place: &Place) {
    let thread = place.queued("t").await;
    let stop = place.point(&thread, 0, PointKind::Break);
    place.rest(&thread, vec![stop], RestAs::Parked).await;
    let go = Resume { release: true, ..Resume::default() };
    place.store.resume(place.resume(&thread, go), None).await.expect("accepted");
    set_aside(place, &thread).await;

    place.store.move_thread(place.new_input(&thread, true).await).await.expect("discarded");
    let held = place.held(&thread, at(21)).await;
    assert_eq!((held.wake.resume, held.wake.runs), (Resume::default(), Vec::new()));
    let runs = place.store.thread(&thread).await.expect("there").runs;
    let statuses: Vec<_> = runs.iter().map(|run| (run.kind.as_str(), run.status.as_str())).collect();
    assert!(statuses.contains(&("resume", "cancelled")), "{statuses:?}");
    assert_eq!(statuses.iter().filter(|(_, status)| *status == "running").count(), 1, "{statuses:?}");
}

async fn a_cancelled_hold_leaves_no_dead_letter(place: &Place) {
    let thread = place.queued("t").await;
    for round in 0..=3 {
        let claimed = place.store.claim(place.claim(&thread, at(round * 20))).await.expect("no failure");
        assert_eq!(matches!(claimed, Claimed::Dead), round == 3);
    }
    assert_eq!(place.store.counts().await.expect("counts").dead_letters, 1);
    assert_eq!(place.store.cancel(&thread, &operator(), at(80)).await.expect("accepted"), Cancelled::Now);
    assert_eq!(place.store.counts().await.expect("counts").dead_letters, 0);
}

async fn what_became_of_another_threads_point_is_not_told(place: &Place) {
    let (thread, _) = place.asking("t", approval("Pay?").to(role("manager"))).await;
    let (_, foreign) = place.asking("other", approval("Pay?").to(role("manager"))).await;
    let decided = place.vote(&foreign, &bob(), &["manager"], json!({"approved": false}));
    place.store.record_vote(decided).await.expect("accepted");
    let votes = vec![place.vote(&foreign, &ann(), &["manager"], json!({"approved": true}))];
    let command = ResumeThread { votes, ..place.resume(&thread, Resume::default()) };
    assert_eq!(refused(place.store.resume(command, None).await), Refusal::UnknownInterrupt(foreign));
}
