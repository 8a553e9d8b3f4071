//! Votes that count: what decides, when, and what the thread gets.

use countersign_kernel::occurrence::PointKind;
use countersign_kernel::principal::{Principal, person, role};
use countersign_kernel::question::{Answered, approval, select};
use countersign_worker::queue::JobKind;
use countersign_worker::store::commands::{RecordVote, RestAs};
use serde_json::json;

use super::place::{Place, at};
use crate::support::{ann, bob, cy, operator};

contract!(
    one_vote_decides_and_wakes_the_thread,
    two_of_two_wait_for_the_second,
    a_rejection_decides_alone,
    differing_answers_do_not_count_together,
    a_role_means_who_holds_it_when_voting,
    a_bare_answer_reaches_the_thread_without_data,
    the_same_answer_again_changes_nothing_and_says_so,
    the_same_vote_again_says_how_many_count_with_it,
    a_decided_request_is_in_nobodys_inbox,
    an_answer_to_a_failed_thread_wakes_it,
);

async fn one_vote_decides_and_wakes_the_thread(place: &Place) {
    let (thread, id) = place.asking("t", approval("Pay?").to(role("manager"))).await;
    let command = RecordVote {
        revision: Some(1),
        content_hash: Some(place.store.interrupt(&id).await.expect("there").request.expect("asked").content_hash),
        ..place.vote(&id, &ann(), &["manager"], json!({"approved": true, "reason": "fine"}))
    };
    let job = command.job;
    let voted = place.store.record_vote(command).await.expect("accepted");
    assert_eq!((voted.decided, voted.have, voted.need, voted.repeated), (true, 1, 1, false));
    let wake = voted.wake.expect("it wakes");
    assert_eq!((wake.id, wake.kind, &wake.thread), (job, JobKind::Advance, &thread));
    assert!(place.backend.jobs().await.contains(&job.to_string()));

    let detail = place.store.thread(&thread).await.expect("there");
    assert_eq!((detail.summary.status.as_str(), detail.summary.open, detail.interrupts.len()), ("queued", 0, 0));
    let view = place.store.interrupt(&id).await.expect("there");
    let answered = Answered { value: Some(json!({"approved": true, "reason": "fine"})), by: vec![ann()], at: at(10) };
    assert_eq!(
        (view.status.as_str(), view.closed_at, view.answered.as_ref()),
        ("answered", Some(at(10)), Some(&answered))
    );
    assert_eq!(place.held(&thread, at(11)).await.wake.answers, [(id, answered)]);
    assert_eq!(place.actions(&thread).await, ["started", "decided"]);
}

async fn two_of_two_wait_for_the_second(place: &Place) {
    let (thread, id) = place.asking("t", approval("Pay?").to(role("manager")).need(2)).await;
    let jobs = place.backend.jobs().await;
    let first = place.vote(&id, &ann(), &["manager"], json!({"approved": true}));
    let first = place.store.record_vote(first).await.expect("accepted");
    assert_eq!((first.decided, first.have, first.need, first.wake), (false, 1, 2, None));
    assert_eq!((place.status(&thread).await.as_str(), place.backend.jobs().await), ("parked", jobs));
    let view = place.store.interrupt(&id).await.expect("there").request.expect("asked");
    assert_eq!((view.have, view.need, view.votes.len()), (1, 2, 1));

    let second = place.vote(&id, &bob(), &["manager"], json!({"approved": true, "reason": "me too"}));
    let second = place.store.record_vote(second).await.expect("accepted");
    assert_eq!((second.decided, second.have, second.need), (true, 2, 2));
    let answered = place.store.interrupt(&id).await.expect("there").answered.expect("decided");
    assert_eq!(answered.by, [ann(), bob()]);
    assert_eq!(place.actions(&thread).await, ["started", "voted", "decided"]);
}

async fn a_rejection_decides_alone(place: &Place) {
    let (_, id) = place.asking("t", approval("Pay?").to(role("manager")).need(2)).await;
    let yes = place.vote(&id, &ann(), &["manager"], json!({"approved": true}));
    assert!(!place.store.record_vote(yes).await.expect("accepted").decided);
    let no = place.vote(&id, &bob(), &["manager"], json!({"approved": false, "reason": "no"}));
    assert!(place.store.record_vote(no).await.expect("accepted").decided);
    let answered = place.store.interrupt(&id).await.expect("there").answered.expect("decided");
    assert_eq!((answered.value, answered.by), (Some(json!({"approved": false, "reason": "no"})), vec![bob()]));
}

async fn differing_answers_do_not_count_together(place: &Place) {
    let ask = select("Colour?", ["red", "blue"]).to(role("manager")).need(3);
    let (_, id) = place.asking("t", ask).await;
    let dan = Principal::person("dan@example.com");
    for (who, colour, decided, have, shown) in [
        (ann(), "red", false, 1, 1),
        (bob(), "red", false, 2, 2),
        (cy(), "blue", false, 1, 2),
        (dan.clone(), "red", true, 3, 3),
    ] {
        let vote = place.vote(&id, &who, &["manager"], json!({"value": colour}));
        let voted = place.store.record_vote(vote).await.expect("accepted");
        assert_eq!((voted.decided, voted.have), (decided, have), "{who} says {colour}");
        assert_eq!(place.store.interrupt(&id).await.expect("there").request.expect("asked").have, shown);
    }
    let answered = place.store.interrupt(&id).await.expect("there").answered.expect("decided");
    assert_eq!((answered.value, answered.by), (Some(json!({"value": "red"})), vec![ann(), bob(), dan]));
}

async fn a_role_means_who_holds_it_when_voting(place: &Place) {
    let (_, id) = place.asking("t", approval("Pay?").to(role("manager")).to(person("cy@example.com"))).await;
    let before = place.vote(&id, &bob(), &["sales"], json!({"approved": true}));
    super::place::refused(place.store.record_vote(before).await);
    let after = place.vote(&id, &bob(), &["sales", "manager"], json!({"approved": true}));
    assert!(place.store.record_vote(after).await.expect("promoted").decided);
}

async fn a_bare_answer_reaches_the_thread_without_data(place: &Place) {
    let thread = place.queued("t").await;
    let stop = place.point(&thread, 0, PointKind::Interrupt);
    let id = stop.point.id.clone();
    place.rest(&thread, vec![stop], RestAs::Parked).await;
    let vote = RecordVote { operator: true, ..place.vote(&id, &operator(), &[], json!(null)) };
    assert!(place.store.record_vote(vote).await.expect("accepted").decided);
    let (_, answered) = place.held(&thread, at(11)).await.wake.answers.remove(0);
    assert_eq!((answered.value, answered.by), (None, vec![operator()]));
}

async fn the_same_answer_again_changes_nothing_and_says_so(place: &Place) {
    let (thread, id) = place.asking("t", approval("Pay?").to(role("manager"))).await;
    let first = place.vote(&id, &ann(), &["manager"], json!({"approved": true, "reason": "a"}));
    place.store.record_vote(first).await.expect("accepted");
    let (before, jobs) = (place.store.interrupt(&id).await.expect("there"), place.backend.jobs().await);
    // Another order of members and another time are the same answer.
    let again = place.vote(&id, &ann(), &["manager"], json!({"reason": "a", "approved": true}));
    let again = place.store.record_vote(RecordVote { now: at(99), ..again }).await.expect("no refusal");
    assert_eq!((again.repeated, again.decided, again.wake), (true, true, None));
    assert_eq!((place.store.interrupt(&id).await.expect("there"), place.backend.jobs().await), (before, jobs));
    assert_eq!(place.actions(&thread).await, ["started", "decided"]);
}

async fn the_same_vote_again_says_how_many_count_with_it(place: &Place) {
    let ask = select("Colour?", ["red", "blue"]).to(role("manager")).need(2);
    let (_, id) = place.asking("t", ask).await;
    for (who, colour) in [(ann(), "red"), (bob(), "blue")] {
        let vote = place.vote(&id, &who, &["manager"], json!({"value": colour}));
        place.store.record_vote(vote).await.expect("accepted");
    }
    let again = place.vote(&id, &ann(), &["manager"], json!({"value": "red"}));
    let again = place.store.record_vote(again).await.expect("no refusal");
    assert_eq!((again.repeated, again.decided, again.have, again.need), (true, false, 1, 2));
}

async fn a_decided_request_is_in_nobodys_inbox(place: &Place) {
    let (_, id) = place.asking("t", approval("Pay?").to(role("manager"))).await;
    assert_eq!(place.store.counts().await.expect("counts").requests_open, 1);
    let vote = place.vote(&id, &ann(), &["manager"], json!({"approved": true}));
    place.store.record_vote(vote).await.expect("accepted");
    let overview = place.store.counts().await.expect("counts");
    assert_eq!((overview.requests_open, overview.oldest_open_request), (0, None));
}

async fn an_answer_to_a_failed_thread_wakes_it(place: &Place) {
    let thread = place.queued("t").await;
    let point = place.question(&thread, 0, &approval("Pay?").request());
    let id = point.point.id.clone();
    let failed = RestAs::Failed { error: "b: no line".into(), tasks: 1 };
    place.rest(&thread, vec![point], failed).await;
    assert_eq!(place.store.thread(&thread).await.expect("there").interrupts.len(), 1, "still listed");
    let vote = place.vote(&id, &ann(), &["approver"], json!({"approved": true}));
    assert!(place.store.record_vote(vote).await.expect("still answerable").wake.is_some());
    assert_eq!(place.held(&thread, at(11)).await.wake.answers.len(), 1);
}
