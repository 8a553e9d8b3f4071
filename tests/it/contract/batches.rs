//! Many answers at once.

use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::prelude::*;
use countersign_kernel::principal::Principal as Who;
use countersign_worker::store::Refusal;
use countersign_worker::store::commands::{IdempotencyEntry, RecordVote, RestAs, VoteBatch};
use serde_json::{Value, json};

use super::place::{Place, at};
use crate::support::{ann, bob, cy};

contract!(
    points_are_found_with_their_threads_and_flows,
    to_judge_records_nothing,
    a_batch_is_one_job_and_one_audit_row_for_each_answer,
    the_same_batch_again_changes_nothing_and_says_so,
    of_a_whole_that_holds_one_refusal_nothing_is_recorded,
    what_is_refused_by_itself_takes_nothing_else_down,
    votes_of_several_people_add_up_over_batches,
    two_batches_at_once_decide_each_point_once,
    a_kept_reply_stays_the_first,
);

/// A thread with so many questions to managers.
async fn asking(place: &Place, name: &str, count: u32) -> (ThreadId, Vec<InterruptId>) {
    let thread = place.queued(name).await;
    let request = approval("Pay?").to(role("manager")).request();
    let points: Vec<_> = (0..count).map(|number| place.question(&thread, number, &request)).collect();
    let ids = points.iter().map(|point| point.point.id.clone()).collect();
    place.rest(&thread, points, RestAs::Parked).await;
    (thread, ids)
}

fn yes() -> Value {
    json!({"approved": true})
}

fn votes(place: &Place, ids: &[InterruptId], who: &Who, roles: &[&str]) -> Vec<RecordVote> {
    ids.iter().map(|id| place.vote(id, who, roles, yes())).collect()
}

fn batch(place: &Place, thread: &ThreadId, votes: Vec<RecordVote>, whole: bool) -> VoteBatch {
    VoteBatch { thread: thread.clone(), votes, whole, job: place.job(), now: at(10) }
}

async fn points_are_found_with_their_threads_and_flows(place: &Place) {
    let (one, ids) = asking(place, "one", 2).await;
    let (two, more) = asking(place, "two", 1).await;
    let unknown = InterruptId::parse("0".repeat(32)).expect("an id");
    let all = [ids[0].clone(), more[0].clone(), unknown, ids[1].clone()];
    let places = place.store.places_of(&all).await.expect("found");
    assert_eq!(places.len(), 3);
    assert_eq!((&places[&ids[1]], &places[&more[0]]), (&(one, "g".to_owned()), &(two, "g".to_owned())));
    assert!(place.store.places_of(&[]).await.expect("found").is_empty());
}

async fn to_judge_records_nothing(place: &Place) {
    let (thread, ids) = asking(place, "t", 2).await;
    let mut asked = votes(place, &ids, &ann(), &["manager"]);
    asked.extend(votes(place, &ids[..1], &cy(), &["finance"]));
    asked.push(place.vote(&ids[1], &ann(), &["manager"], json!({"approved": "perhaps"})));
    let judged = place.store.judge_votes(&asked).await.expect("judged");
    assert!(judged[0].is_ok() && judged[1].is_ok());
    assert!(matches!(judged[2], Err(Refusal::NotAllowed { .. })), "{judged:?}");
    assert!(matches!(judged[3], Err(Refusal::InvalidAnswer { .. })), "{judged:?}");
    assert_eq!((place.backend.count("votes").await, place.backend.count("answers").await), (0, 0));
    assert_eq!(place.status(&thread).await, "parked");
}

async fn a_batch_is_one_job_and_one_audit_row_for_each_answer(place: &Place) {
    let (thread, ids) = asking(place, "t", 5).await;
    let before = place.backend.jobs().await.len();
    let command = batch(place, &thread, votes(place, &ids, &ann(), &["manager"]), true);
    let done = place.store.record_votes(command.clone()).await.expect("recorded");
    assert_eq!(done.wake.as_ref().map(|message| message.id), Some(command.job));
    let decided = |outcome: &Result<Option<_>, Refusal>| {
        matches!(outcome, Ok(Some(countersign_worker::store::commands::Voted { decided: true, repeated: false, .. })))
    };
    assert!(done.outcomes.len() == 5 && done.outcomes.iter().all(decided), "{done:?}");
    assert_eq!(place.backend.jobs().await.len(), before + 1);
    assert_eq!(place.status(&thread).await, "queued");
    let actions = place.actions(&thread).await;
    assert_eq!(actions.iter().filter(|action| *action == "decided").count(), 5, "{actions:?}");
    assert_eq!(place.store.verify_audit(&thread).await.expect("read"), None);
    // They are consumed in the order in which they were given.
    let held = place.held(&thread, at(11)).await;
    let consumed: Vec<_> = held.wake.answers.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(consumed, ids);
    assert_eq!(place.store.counts().await.expect("counted").requests_open, 0);
}

async fn the_same_batch_again_changes_nothing_and_says_so(place: &Place) {
    let (thread, ids) = asking(place, "t", 3).await;
    let command = || batch(place, &thread, votes(place, &ids, &ann(), &["manager"]), true);
    place.store.record_votes(command()).await.expect("recorded");
    let jobs = place.backend.jobs().await;
    let again = place.store.record_votes(command()).await.expect("recorded");
    assert!(again.outcomes.iter().all(|outcome| {
        outcome.as_ref().is_ok_and(|voted| voted.as_ref().is_some_and(|voted| voted.repeated && voted.decided))
    }));
    assert_eq!((again.wake, place.backend.jobs().await), (None, jobs));
    assert_eq!(place.backend.count("votes").await, 3);
}

async fn of_a_whole_that_holds_one_refusal_nothing_is_recorded(place: &Place) {
    let (thread, ids) = asking(place, "t", 3).await;
    let mut mixed = votes(place, &ids, &ann(), &["manager"]);
    mixed[1] = place.vote(&ids[1], &cy(), &["finance"], yes());
    let done = place.store.record_votes(batch(place, &thread, mixed, true)).await.expect("judged");
    assert!(matches!(done.outcomes.as_slice(), [Ok(None), Err(Refusal::NotAllowed { .. }), Ok(None)]), "{done:?}");
    assert_eq!((done.wake, place.backend.count("votes").await), (None, 0));
    assert_eq!((place.status(&thread).await.as_str(), place.actions(&thread).await.len()), ("parked", 1));
}

async fn what_is_refused_by_itself_takes_nothing_else_down(place: &Place) {
    let (thread, ids) = asking(place, "t", 3).await;
    let mut mixed = votes(place, &ids, &ann(), &["manager"]);
    mixed[0] = place.vote(&ids[0], &ann(), &["manager"], json!({}));
    mixed.push(place.vote(&InterruptId::parse("0".repeat(32)).expect("an id"), &ann(), &["manager"], yes()));
    let done = place.store.record_votes(batch(place, &thread, mixed, false)).await.expect("recorded");
    assert!(matches!(done.outcomes[0], Err(Refusal::InvalidAnswer { .. })), "{done:?}");
    assert!(matches!(done.outcomes[3], Err(Refusal::UnknownInterrupt(_))), "{done:?}");
    assert!(done.outcomes[1..3].iter().all(|outcome| matches!(outcome, Ok(Some(_)))) && done.wake.is_some());
    assert_eq!((place.backend.count("answers").await, place.backend.count("votes").await), (2, 2));
    assert_eq!(place.store.verify_audit(&thread).await.expect("read"), None);
    assert_eq!(place.store.thread(&thread).await.expect("there").summary.open, 1);
}

async fn votes_of_several_people_add_up_over_batches(place: &Place) {
    let thread = place.queued("t").await;
    let request = approval("Pay?").to(role("manager")).need(2).request();
    let points: Vec<_> = (0..2).map(|number| place.question(&thread, number, &request)).collect();
    let ids: Vec<InterruptId> = points.iter().map(|point| point.point.id.clone()).collect();
    let stop = place.point(&thread, 7, PointKind::Pause);
    place.rest(&thread, points.into_iter().chain([stop]).collect(), RestAs::Parked).await;
    let first = batch(place, &thread, votes(place, &ids, &ann(), &["manager"]), true);
    let first = place.store.record_votes(first).await.expect("recorded");
    let waits = |outcome: &Result<Option<_>, Refusal>| {
        matches!(outcome, Ok(Some(countersign_worker::store::commands::Voted { decided: false, have: 1, need: 2, .. })))
    };
    assert!(first.outcomes.iter().all(waits) && first.wake.is_none(), "{first:?}");
    let second = batch(place, &thread, votes(place, &ids, &bob(), &["manager"]), true);
    let second = place.store.record_votes(second).await.expect("recorded");
    assert!(second.wake.is_some(), "{second:?}");
    assert_eq!(place.store.interrupt(&ids[1]).await.expect("there").status, "answered");
}

async fn two_batches_at_once_decide_each_point_once(place: &Place) {
    let mut threads = Vec::new();
    for number in 0..10 {
        threads.push(asking(place, &format!("t{number}"), 4).await);
    }
    let no = |id: &InterruptId| place.vote(id, &bob(), &["manager"], json!({"approved": false}));
    let both = threads.iter().map(|(thread, ids)| {
        let one = batch(place, thread, votes(place, ids, &ann(), &["manager"]), false);
        let other = batch(place, thread, ids.iter().map(no).collect(), false);
        let (store, more) = (place.store.clone(), place.store.clone());
        async move { tokio::join!(store.record_votes(one), more.record_votes(other)) }
    });
    for (one, other) in futures_util::future::join_all(both).await {
        let (one, other) = (one.expect("recorded"), other.expect("recorded"));
        for (one, other) in one.outcomes.iter().zip(&other.outcomes) {
            let lost = |outcome: &Result<_, Refusal>| matches!(outcome, Err(Refusal::AlreadyAnswered { .. }));
            assert!(one.is_ok() && lost(other) || lost(one) && other.is_ok(), "{one:?} {other:?}");
        }
    }
    assert_eq!(place.backend.count("answers").await, 40);
    for (thread, _) in &threads {
        assert_eq!(place.store.verify_audit(thread).await.expect("read"), None);
    }
}

async fn a_kept_reply_stays_the_first(place: &Place) {
    let entry = |body: &str| IdempotencyEntry {
        scope: "service:desk POST /resume".into(),
        key: "k".into(),
        request_hash: "h".into(),
        status: 202,
        body: body.into(),
    };
    place.store.remember(entry("first"), at(1)).await.expect("kept");
    place.store.remember(entry("second"), at(2)).await.expect("no fault");
    let kept = place.store.repeated("service:desk POST /resume", "k", "h").await.expect("found");
    assert_eq!(kept, Some((202, "first".to_owned())));
}
