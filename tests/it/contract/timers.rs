//! Instants that points wait for: set and dropped with their points, fired once
//! (K21).

use std::time::Duration;

use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::principal::{Principal, role};
use countersign_kernel::question::{Ask, Decision, OnDeadline, approval};
use countersign_kernel::time::Timestamp;
use countersign_worker::store::commands::{
    DueTimer, FireTimer, Fired, OpenedPoint, PointEnd, RestAs, StepCommit, TimerKind,
};
use countersign_worker::store::{Refusal, StoreError};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::place::{Place, at, refused};
use crate::support::{ann, operator};

contract!(
    a_timer_is_found_when_it_is_due_the_earliest_first,
    a_timer_is_fired_once_and_not_before_its_time,
    of_many_who_fire_a_timer_at_once_one_does,
    of_an_answer_and_the_deadline_at_once_exactly_one_counts,
    a_deadline_that_waits_is_on_record_and_answers_nothing,
    a_deadline_does_what_the_request_says,
    a_point_that_closes_drops_its_timer,
    a_sleep_is_ended_early_by_an_operator_alone,
    a_timer_of_a_running_thread_is_taken_up_at_its_rest,
);

/// A request that waits until `at(7)`.
fn in_time(then: OnDeadline) -> Ask<Decision> {
    approval("Pay?").to(role("manager")).until(at(7), then)
}

async fn waits_for(place: &Place, name: &str, then: OnDeadline) -> (ThreadId, InterruptId) {
    let thread = place.queued(name).await;
    let point = due(place.question(&thread, 0, &in_time(then).request()), at(7));
    let id = point.point.id.clone();
    place.rest(&thread, vec![point], RestAs::Parked).await;
    (thread, id)
}

fn due(mut opened: OpenedPoint, due: Timestamp) -> OpenedPoint {
    opened.point.due = Some(due);
    opened
}

fn fire(place: &Place, thread: &ThreadId, id: &InterruptId, kind: TimerKind, now: Timestamp) -> FireTimer {
    FireTimer { thread: thread.clone(), interrupt: id.clone(), kind, job: place.job(), now }
}

async fn fired(place: &Place, thread: &ThreadId, id: &InterruptId, kind: TimerKind, now: Timestamp) -> Fired {
    place.store.fire_timer(fire(place, thread, id, kind, now)).await.expect("no fault")
}

async fn a_timer_is_found_when_it_is_due_the_earliest_first(place: &Place) {
    let thread = place.queued("t").await;
    let times = [30, 10, 20, 40];
    let points: Vec<OpenedPoint> =
        (0..4).zip(times).map(|(number, time)| due(place.point(&thread, number, PointKind::Sleep), at(time))).collect();
    let ids: Vec<InterruptId> = points.iter().map(|opened| opened.point.id.clone()).collect();
    place.rest(&thread, points, RestAs::Parked).await;
    let look = async |now, limit| {
        let found = place.store.due_timers(now, limit).await.expect("looked");
        (found.due.into_iter().map(|timer| (timer.interrupt, timer.due_at)).collect::<Vec<_>>(), found.next)
    };
    assert_eq!(look(at(9), 10).await, (Vec::new(), Some(at(10))));
    assert_eq!(look(at(30), 10).await.0, [1, 2, 0].map(|i| (ids[i].clone(), at(times[i]))));
    assert_eq!(look(at(30), 2).await, ([1, 2].map(|i| (ids[i].clone(), at(times[i]))).to_vec(), Some(at(40))));
    assert_eq!(look(at(50), 10).await.1, None);
    let first = place.store.due_timers(at(10), 10).await.expect("looked").due.remove(0);
    assert_eq!(first, DueTimer { thread, interrupt: ids[1].clone(), kind: TimerKind::Sleep, due_at: at(10) });
    assert_eq!(place.store.interrupt(&ids[1]).await.expect("there").deadline, Some(at(10)));
}

async fn a_timer_is_fired_once_and_not_before_its_time(place: &Place) {
    let thread = place.queued("t").await;
    let sleep = due(place.point(&thread, 0, PointKind::Sleep), at(7));
    let id = sleep.point.id.clone();
    place.rest(&thread, vec![sleep], RestAs::Parked).await;
    assert_eq!(fired(place, &thread, &id, TimerKind::Sleep, at(6)).await, Fired::Nothing);
    assert_eq!(place.status(&thread).await, "parked");

    let Fired::Answered(message) = fired(place, &thread, &id, TimerKind::Sleep, at(8)).await else {
        panic!("it is due")
    };
    assert!(place.backend.jobs().await.contains(&message.id.to_string()));
    assert_eq!((place.status(&thread).await.as_str(), message.thread.as_str()), ("queued", "t"));
    assert_eq!(fired(place, &thread, &id, TimerKind::Sleep, at(9)).await, Fired::Nothing);
    assert_eq!(place.store.due_timers(at(99), 10).await.expect("looked").due, []);
    let held = place.held(&thread, at(10)).await;
    let [(answered_id, answered)] = held.wake.answers.as_slice() else { panic!("{:?}", held.wake) };
    assert_eq!((answered_id, &answered.value, answered.by.as_slice()), (&id, &None, &[Principal::timer()][..]));
    assert_eq!(place.actions(&thread).await, ["started", "woken"]);
    assert_eq!(place.store.verify_audit(&thread).await.expect("verified"), None);
    let view = place.store.interrupt(&id).await.expect("there");
    assert_eq!((view.status.as_str(), view.closed_at), ("answered", Some(at(8))));
}

async fn of_many_who_fire_a_timer_at_once_one_does(place: &Place) {
    let (thread, id) = waits_for(place, "t", OnDeadline::Reject).await;
    let fires = (0..20).map(|_| place.store.fire_timer(fire(place, &thread, &id, TimerKind::Deadline, at(8))));
    let fired: Vec<Fired> = join_all(fires).await.into_iter().collect::<Result<_, _>>().expect("no fault");
    assert_eq!(fired.iter().filter(|fired| matches!(fired, Fired::Answered(_))).count(), 1);
    assert_eq!(fired.iter().filter(|fired| **fired == Fired::Nothing).count(), 19);
    assert_eq!(place.backend.count("answers").await, 1);
    assert_eq!(place.actions(&thread).await, ["started", "decided"]);
}

async fn of_an_answer_and_the_deadline_at_once_exactly_one_counts(place: &Place) {
    let (mut people, mut deadlines) = (0, 0);
    for round in 0..20 {
        let (thread, id) = waits_for(place, &format!("t-{round}"), OnDeadline::Reject).await;
        let vote = place.store.record_vote(place.vote(&id, &ann(), &["manager"], json!({"approved": true})));
        let timer = place.store.fire_timer(fire(place, &thread, &id, TimerKind::Deadline, at(8)));
        let (voted, fired) = if round % 2 == 0 {
            tokio::join!(vote, timer)
        } else {
            let (fired, voted) = tokio::join!(timer, vote);
            (voted, fired)
        };
        let record = place.store.interrupt(&id).await.expect("there").answered.expect("decided");
        match (voted, fired.expect("no fault")) {
            (Ok(voted), Fired::Nothing) => {
                people += 1;
                assert!(voted.decided);
                assert_eq!((record.by.as_slice(), &record.value), (&[ann()][..], &Some(json!({"approved": true}))));
            }
            (Err(StoreError::Refused(Refusal::AlreadyAnswered { answered, .. })), Fired::Answered(_)) => {
                deadlines += 1;
                assert_eq!((answered.by.as_slice(), *answered == record), (&[Principal::deadline()][..], true));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(place.held(&thread, at(11)).await.wake.answers.len(), 1);
        assert_eq!(place.actions(&thread).await, ["started", "decided"]);
    }
    assert_eq!(people + deadlines, 20);
}

async fn a_deadline_that_waits_is_on_record_and_answers_nothing(place: &Place) {
    let (thread, id) = waits_for(place, "t", OnDeadline::Wait).await;
    assert_eq!(fired(place, &thread, &id, TimerKind::Deadline, at(8)).await, Fired::Passed);
    assert_eq!(fired(place, &thread, &id, TimerKind::Deadline, at(9)).await, Fired::Nothing);
    assert_eq!(place.actions(&thread).await, ["started", "deadline_passed"]);
    assert_eq!((place.status(&thread).await.as_str(), place.backend.count("answers").await), ("parked", 0));
    let voted = place.store.record_vote(place.vote(&id, &ann(), &["manager"], json!({"approved": true}))).await;
    assert!(voted.expect("it waits on").decided);
}

async fn a_deadline_does_what_the_request_says(place: &Place) {
    let cases = [
        ("reject", OnDeadline::Reject, Some(json!({"approved": false, "reason": "nobody decided in time"}))),
        ("answer", OnDeadline::Answer(json!({"approved": true})), Some(json!({"approved": true}))),
        ("fail", OnDeadline::Fail, None),
    ];
    for (name, then, value) in cases {
        let (thread, id) = waits_for(place, name, then).await;
        assert!(matches!(fired(place, &thread, &id, TimerKind::Deadline, at(8)).await, Fired::Answered(_)), "{name}");
        let held = place.held(&thread, at(10)).await;
        assert_eq!((&held.wake.answers[0].1.value, held.wake.answers.len()), (&value, 1), "{name}");
        let late = place.vote(&id, &ann(), &["manager"], json!({"approved": true}));
        match refused(place.store.record_vote(late).await) {
            Refusal::AlreadyAnswered { answered, .. } => assert_eq!(answered.by, [Principal::deadline()], "{name}"),
            other => panic!("{other:?}"),
        }
        let entry = place.store.audit(&thread).await.expect("it reads").pop().expect("there");
        assert_eq!((entry.action.as_str(), entry.actor.as_deref()), ("decided", Some("service:the deadline")));
        assert_eq!(entry.detail.expect("there")["due_at"], json!(at(7).as_micros()));
    }
}

async fn a_point_that_closes_drops_its_timer(place: &Place) {
    let voted = waits_for(place, "voted", OnDeadline::Reject).await;
    let vote = place.vote(&voted.1, &ann(), &["manager"], json!({"approved": true}));
    place.store.record_vote(vote).await.expect("accepted");
    let cancelled = waits_for(place, "cancelled", OnDeadline::Reject).await;
    place.store.cancel(&cancelled.0, &ann(), at(5)).await.expect("cancelled");
    let restarted = waits_for(place, "restarted", OnDeadline::Reject).await;
    let restart = place.new_input(&restarted.0, true).await;
    place.store.move_thread(restart).await.expect("restarted");
    let withdrawn = waits_for(place, "withdrawn", OnDeadline::Reject).await;
    let other = place.point(&withdrawn.0, 5, PointKind::Interrupt);
    let vote = waits_beside(place, &withdrawn, other).await;
    assert!(vote);
    for (thread, id) in [voted, cancelled, restarted, withdrawn] {
        assert_eq!(fired(place, &thread, &id, TimerKind::Deadline, at(99)).await, Fired::Nothing, "{thread}");
    }
    assert_eq!(place.backend.count("timers WHERE status = 'dropped'").await, 4);
    assert_eq!(place.store.due_timers(at(99), 10).await.expect("looked").due, []);
}

/// Closes the point of a parked thread in an activation that goes on without it.
async fn waits_beside(place: &Place, (thread, id): &(ThreadId, InterruptId), other: OpenedPoint) -> bool {
    let resume = countersign_kernel::machine::Resume { resume_all: true, ..Default::default() };
    place.store.resume(place.resume(thread, resume), None).await.expect("resumed");
    let fence = place.held(thread, at(11)).await.fence;
    let closed = vec![(id.clone(), PointEnd::Withdrawn)];
    let commit = StepCommit { opened: vec![other], closed, ..place.commit(thread, fence, at(12)) };
    place.store.commit(commit).await.is_ok()
}

async fn a_sleep_is_ended_early_by_an_operator_alone(place: &Place) {
    let thread = place.queued("t").await;
    let sleep = due(place.point(&thread, 0, PointKind::Sleep), at(700));
    let id = sleep.point.id.clone();
    place.rest(&thread, vec![sleep], RestAs::Parked).await;
    let vote = |who: &Principal, operator, answer| {
        let vote = place.vote(&id, who, &["manager"], answer);
        place.store.record_vote(countersign_worker::store::commands::RecordVote { operator, ..vote })
    };
    assert!(matches!(refused(vote(&ann(), false, Value::Null).await), Refusal::OperatorOnly { .. }));
    match refused(vote(&operator(), true, json!({"value": 1})).await) {
        Refusal::InvalidAnswer { faults, .. } => assert!(faults[0].message.contains("takes no data"), "{faults:?}"),
        other => panic!("{other:?}"),
    }
    assert!(vote(&operator(), true, Value::Null).await.expect("accepted").decided);
    assert_eq!(fired(place, &thread, &id, TimerKind::Sleep, at(701)).await, Fired::Nothing);
    assert_eq!(place.held(&thread, at(702)).await.wake.answers[0].1.by, [operator()]);
}

async fn a_timer_of_a_running_thread_is_taken_up_at_its_rest(place: &Place) {
    let thread = place.queued("t").await;
    let (slept, asks) =
        (due(place.point(&thread, 0, PointKind::Sleep), at(7)), place.point(&thread, 1, PointKind::Interrupt));
    let (id, asked) = (slept.point.id.clone(), asks.point.id.clone());
    place.rest(&thread, vec![slept, asks], RestAs::Parked).await;
    let vote = place.vote(&asked, &operator(), &[], json!("go"));
    place
        .store
        .record_vote(countersign_worker::store::commands::RecordVote { operator: true, ..vote })
        .await
        .expect("ok");
    let fence = place.held(&thread, at(11)).await.fence;
    // While it is held, the time comes.
    assert!(matches!(fired(place, &thread, &id, TimerKind::Sleep, at(12)).await, Fired::Answered(_)));
    let rest = StepCommit {
        rest: Some(RestAs::Parked),
        consumed: vec![asked],
        ..place.commit(&thread, fence, at(12).after(Duration::from_millis(1)))
    };
    match place.store.commit(rest).await.expect("committed") {
        countersign_worker::store::commands::Committed::Running(incoming) => {
            assert_eq!(incoming.answers.into_iter().map(|(id, _)| id).collect::<Vec<_>>(), [id]);
        }
        other => panic!("{other:?}"),
    }
}
