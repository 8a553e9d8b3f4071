//! Signals: kept until something waits, each taken once, in the order in which
//! they came.

use countersign_kernel::canonical::content_hash;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use countersign_worker::queue::Message;
use countersign_worker::store::commands::{
    Committed, FireTimer, Fired, IdempotencyEntry, OpenedPoint, RestAs, SendSignal, StepCommit, TimerKind,
};
use countersign_worker::store::{Accepted, Refusal};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::place::{Place, at, refused};
use crate::support::operator;

contract!(
    a_signal_answers_the_point_that_waits_for_its_name,
    a_signal_that_comes_first_is_kept_and_taken_with_the_opening_of_the_point,
    kept_signals_are_taken_in_the_order_in_which_they_came,
    of_two_points_the_one_that_has_waited_longest_is_answered_first,
    a_signal_at_the_instant_of_a_park_is_not_lost,
    many_signals_at_once_are_each_taken_once,
    a_repeated_signal_under_one_key_is_one,
    a_thread_that_ended_takes_no_signal,
    a_signal_and_the_end_of_its_time_at_once_exactly_one_counts,
);

fn sender() -> Principal {
    Principal::service("bank")
}

fn signal(place: &Place, thread: &ThreadId, name: &str, payload: Value) -> SendSignal {
    let thread = thread.clone();
    let (job, now) = (place.job(), at(10));
    SendSignal { thread, name: name.to_owned(), payload, by: sender(), idempotency: None, job, now }
}

async fn sent(place: &Place, thread: &ThreadId, name: &str, payload: Value) -> Option<Message> {
    match place.store.send_signal(signal(place, thread, name, payload)).await.expect("accepted") {
        Accepted::Committed(message) => message,
        other => panic!("{other:?}"),
    }
}

/// Point `number`, which waits for `name` since `since`.
fn waits(place: &Place, thread: &ThreadId, number: u32, name: &str, since: Timestamp) -> OpenedPoint {
    let mut opened = place.point(thread, number, PointKind::Signal);
    opened.point.payload = json!({"signal": name});
    opened.point.asked_at = since;
    opened
}

/// The answers that a holder finds, by the points' numbers.
async fn taken(place: &Place, thread: &ThreadId) -> Vec<Value> {
    let held = place.held(thread, at(20)).await;
    held.wake.answers.into_iter().map(|(_, answered)| answered.value.unwrap_or(Value::Null)).collect()
}

async fn kept(place: &Place) -> i64 {
    place.backend.count("signals WHERE interrupt IS NULL").await
}

async fn a_signal_answers_the_point_that_waits_for_its_name(place: &Place) {
    let thread = place.queued("t").await;
    let (paid, other) = (waits(place, &thread, 0, "paid", at(2)), waits(place, &thread, 1, "refunded", at(2)));
    let (id, still) = (paid.point.id.clone(), other.point.id.clone());
    place.rest(&thread, vec![paid, other], RestAs::Parked).await;

    assert_eq!(sent(place, &thread, "unheard", json!(0)).await, None);
    assert_eq!((place.status(&thread).await.as_str(), kept(place).await), ("parked", 1));
    let message = sent(place, &thread, "paid", json!({"amount": "12.00"})).await.expect("it wakes the thread");
    assert!(place.backend.jobs().await.contains(&message.id.to_string()));
    assert_eq!((place.status(&thread).await.as_str(), kept(place).await), ("queued", 1));
    let held = place.held(&thread, at(20)).await;
    let [(answered_id, answered)] = held.wake.answers.as_slice() else { panic!("{:?}", held.wake) };
    assert_eq!((answered_id, answered.by.as_slice(), answered.at), (&id, &[sender()][..], at(10)));
    assert_eq!((answered.value.as_ref(), held.open), (Some(&json!({"amount": "12.00"})), vec![still]));
    assert_eq!(place.actions(&thread).await, ["started", "signalled", "signalled"]);
    assert_eq!(place.store.verify_audit(&thread).await.expect("verified"), None);
    assert_eq!(place.backend.count("threads WHERE open = 1").await, 1);
}

async fn a_signal_that_comes_first_is_kept_and_taken_with_the_opening_of_the_point(place: &Place) {
    let thread = place.queued("t").await;
    assert_eq!(sent(place, &thread, "paid", json!(7)).await, None);
    let fence = place.held(&thread, at(11)).await.fence;
    let point = waits(place, &thread, 0, "paid", at(12));
    let id = point.point.id.clone();
    let parks = StepCommit { opened: vec![point], rest: Some(RestAs::Parked), ..place.commit(&thread, fence, at(12)) };
    let Committed::Running(incoming) = place.store.commit(parks).await.expect("committed") else {
        panic!("it does not rest: there is an answer")
    };
    assert_eq!(incoming.answers.len(), 1);
    assert_eq!((&incoming.answers[0].0, &incoming.answers[0].1.value), (&id, &Some(json!(7))));
    assert_eq!((kept(place).await, place.status(&thread).await.as_str()), (0, "running"));
    assert_eq!(place.store.interrupt(&id).await.expect("there").status, "answered");
    assert_eq!(place.backend.count("threads WHERE open = 0").await, 1);
    assert_eq!(place.actions(&thread).await, ["started", "signalled", "signal_taken"]);
    assert_eq!(place.store.verify_audit(&thread).await.expect("verified"), None);
    // Whoever held it has died before running with it.
    assert_eq!(place.store.load(&thread).await.expect("there").wake.answers.len(), 1);
}

async fn kept_signals_are_taken_in_the_order_in_which_they_came(place: &Place) {
    let thread = place.queued("t").await;
    for n in 0..4 {
        sent(place, &thread, if n == 1 { "other" } else { "go" }, json!(n)).await;
    }
    let fence = place.held(&thread, at(11)).await.fence;
    let opened = (0..2).map(|number| waits(place, &thread, number, "go", at(12))).collect();
    let parks = StepCommit { opened, rest: Some(RestAs::Parked), ..place.commit(&thread, fence, at(12)) };
    let Committed::Running(incoming) = place.store.commit(parks).await.expect("committed") else { panic!("answers") };
    let values: Vec<_> = incoming.answers.into_iter().map(|(_, answered)| answered.value).collect();
    assert_eq!(values, [Some(json!(0)), Some(json!(2))]);
    let left = place.backend.count("signals WHERE interrupt IS NULL AND name = 'go' AND position = 4").await;
    assert_eq!((left, kept(place).await), (1, 2));
}

async fn of_two_points_the_one_that_has_waited_longest_is_answered_first(place: &Place) {
    let thread = place.queued("t").await;
    let points = vec![waits(place, &thread, 0, "go", at(3)), waits(place, &thread, 1, "go", at(2))];
    let ids: Vec<_> = points.iter().map(|opened| opened.point.id.clone()).collect();
    place.rest(&thread, points, RestAs::Parked).await;
    for n in 0..3 {
        sent(place, &thread, "go", json!(n)).await;
    }
    let held = place.held(&thread, at(20)).await;
    let answers: Vec<_> = held.wake.answers.into_iter().map(|(id, answered)| (id, answered.value)).collect();
    assert_eq!(answers, [(ids[1].clone(), Some(json!(0))), (ids[0].clone(), Some(json!(1)))]);
    assert_eq!(kept(place).await, 1);
}

async fn a_signal_at_the_instant_of_a_park_is_not_lost(place: &Place) {
    for round in 0..20 {
        let thread = place.queued(&format!("t-{round}")).await;
        let fence = place.held(&thread, at(1)).await.fence;
        let opened = vec![waits(place, &thread, 0, "go", at(2))];
        let park = StepCommit { opened, rest: Some(RestAs::Parked), ..place.commit(&thread, fence, at(2)) };
        let send = place.store.send_signal(signal(place, &thread, "go", json!(round)));
        let (parked, sent) = if round % 2 == 0 {
            tokio::join!(place.store.commit(park), send)
        } else {
            let (sent, parked) = tokio::join!(send, place.store.commit(park));
            (parked, sent)
        };
        sent.expect("accepted");
        let found = match parked.expect("committed") {
            Committed::Running(incoming) => {
                incoming.answers.into_iter().filter_map(|(_, answered)| answered.value).collect()
            }
            Committed::Released => taken(place, &thread).await,
        };
        assert_eq!(found, [json!(round)]);
    }
    assert_eq!(kept(place).await, 0);
}

async fn many_signals_at_once_are_each_taken_once(place: &Place) {
    let thread = place.queued("t").await;
    let points = (0..8).map(|number| waits(place, &thread, number, "go", at(2))).collect();
    place.rest(&thread, points, RestAs::Parked).await;
    let sends = (0..12).map(|n| place.store.send_signal(signal(place, &thread, "go", json!(n))));
    for sent in join_all(sends).await {
        sent.expect("accepted");
    }
    let mut found = taken(place, &thread).await;
    found.sort_by_key(Value::as_i64);
    found.dedup();
    assert_eq!((found.len(), kept(place).await, place.backend.count("signals").await), (8, 4, 12));
}

async fn a_repeated_signal_under_one_key_is_one(place: &Place) {
    let thread = place.queued("t").await;
    let keyed = |payload: Value| {
        let entry = IdempotencyEntry {
            scope: "bank".into(),
            key: "k".into(),
            request_hash: content_hash(&payload),
            status: 202,
            body: "{}".into(),
        };
        SendSignal { idempotency: Some(entry), ..signal(place, &thread, "paid", payload) }
    };
    let sends = (0..5).map(|_| place.store.send_signal(keyed(json!(1))));
    let sent: Vec<_> = join_all(sends).await.into_iter().collect::<Result<_, _>>().expect("none is refused");
    let first = sent.iter().filter(|sent| matches!(sent, Accepted::Committed(_))).count();
    assert_eq!((first, place.backend.count("signals").await), (1, 1));
    assert_eq!(refused(place.store.send_signal(keyed(json!(2))).await), Refusal::KeyReused);
}

async fn a_thread_that_ended_takes_no_signal(place: &Place) {
    let (done, cancelled) = (place.queued("done").await, place.queued("cancelled").await);
    place.rest(&done, Vec::new(), RestAs::Succeeded).await;
    place.store.cancel(&cancelled, &operator(), at(5)).await.expect("cancelled");
    for (thread, ended) in [(&done, "succeeded"), (&cancelled, "cancelled")] {
        let send = place.store.send_signal(signal(place, thread, "go", Value::Null));
        assert_eq!(refused(send.await), Refusal::ThreadEnded(ended));
    }
    let nobody = ThreadId::parse("nobody").expect("an id");
    let send = place.store.send_signal(signal(place, &nobody, "go", Value::Null));
    assert_eq!(refused(send.await), Refusal::UnknownThread(nobody.clone()));
    assert_eq!(place.backend.count("signals").await, 0);
}

async fn a_signal_and_the_end_of_its_time_at_once_exactly_one_counts(place: &Place) {
    let mut late = 0;
    for round in 0..20 {
        let thread = place.queued(&format!("t-{round}")).await;
        let mut point = waits(place, &thread, 0, "go", at(2));
        point.point.due = Some(at(7));
        let id = point.point.id.clone();
        place.rest(&thread, vec![point], RestAs::Parked).await;
        let (job, now) = (place.job(), at(10));
        let fire = FireTimer { thread: thread.clone(), interrupt: id.clone(), kind: TimerKind::Deadline, job, now };
        let (send, fire) =
            (place.store.send_signal(signal(place, &thread, "go", json!(round))), place.store.fire_timer(fire));
        let (sent, fired) = if round % 2 == 0 {
            tokio::join!(send, fire)
        } else {
            let (fired, sent) = tokio::join!(fire, send);
            (sent, fired)
        };
        let took = matches!(sent.expect("accepted"), Accepted::Committed(Some(_)));
        assert_eq!(took, fired.expect("no fault") == Fired::Nothing);
        late += i64::from(!took);
        let by = place.store.interrupt(&id).await.expect("there").answered.expect("answered").by;
        assert_eq!(by, [if took { sender() } else { Principal::deadline() }]);
    }
    assert_eq!(kept(place).await, late, "what came too late is kept");
}
