//! Pause switches, limits and the order of turns, judged with the claim.

use std::collections::BTreeSet;
use std::time::Duration;

use countersign_kernel::ids::ThreadId;
use countersign_kernel::question::approval;
use countersign_kernel::time::Timestamp;
use countersign_worker::store::commands::{
    Claimed, Committed, CreateThread, FlowLimits, HeldBack, HoldBack, PauseSwitch, Rate, RestAs, Serves, StepCommit,
    SwitchOf,
};
use countersign_worker::store::{Due, Refusal, StoreError};
use futures_util::future::join_all;
use serde_json::json;

use super::place::{LEASE, Place, at, fenced, thread};
use crate::support::{ann, bob, operator};

contract!(
    of_a_paused_graph_nothing_is_claimed_until_it_is_resumed,
    a_pause_ends_by_itself_at_its_time,
    what_a_pause_holds_back_takes_no_room_of_a_sweep,
    starts_and_answers_of_a_paused_graph_are_accepted,
    a_thread_stands_back_at_a_paused_node_and_goes_on_when_one_is_resumed,
    an_answer_reaches_a_thread_that_stands_at_a_paused_node,
    a_held_back_thread_is_fenced_and_cancelled_at_once,
    deliveries_of_a_paused_channel_burn_no_attempt,
    no_more_run_than_the_limit_lets_and_in_order,
    a_lapsed_lease_frees_its_place,
    a_key_has_a_limit_of_its_own,
    of_many_claims_at_once_as_many_hold_as_may,
    a_rate_lets_so_many_begin_in_a_period,
    a_point_of_priority_is_worth_a_minute_and_no_more,
    what_operators_did_is_on_record,
    of_a_cancel_that_is_asked_for_no_answer_counts,
    a_worker_that_does_not_stop_is_cancelled_over_its_head,
    of_an_answer_and_a_cancel_at_once_the_first_is_the_only_one,
);

fn of_g() -> SwitchOf {
    SwitchOf::Graph("g".into())
}

async fn pause(place: &Place, of: SwitchOf, since: i64, until: Option<i64>) {
    let switch =
        PauseSwitch { of, reason: "the bank is closed".into(), by: operator(), since: at(since), until: until.map(at) };
    place.store.set_switch(switch, &format!("op-{since}")).await.expect("set");
}

async fn goes(place: &Place, thread: &ThreadId, now: Timestamp) -> bool {
    match place.store.claim(place.claim(thread, now)).await.expect("no failure") {
        Claimed::Held(_) => true,
        Claimed::Nothing => false,
        Claimed::Dead => panic!("dead"),
    }
}

async fn found(place: &Place, seconds: i64) -> Vec<ThreadId> {
    found_of(place, seconds, 100).await
}

async fn found_of(place: &Place, seconds: i64, limit: u32) -> Vec<ThreadId> {
    let due = place.store.sweep(&Serves::default(), at(seconds), Duration::ZERO, limit).await.expect("swept");
    due.into_iter()
        .map(|due| match due {
            Due::Thread(thread) => thread,
            other => panic!("{other:?}"),
        })
        .collect()
}

async fn limit(place: &Place, limits: FlowLimits) {
    let id = place.run();
    place.store.set_limits("g", limits, &operator(), id.as_str(), at(0)).await.expect("set");
}

async fn of_a_paused_graph_nothing_is_claimed_until_it_is_resumed(place: &Place) {
    pause(place, of_g(), 0, None).await;
    let (one, two) = (place.queued("one").await, place.queued("two").await);
    let other = place.store.create(CreateThread { graph: "h".into(), ..place.create("other", at(0)) }).await;
    other.expect("created");
    assert!(!goes(place, &one, at(1)).await);
    assert!(goes(place, &thread("other"), at(1)).await, "another flow goes on");
    assert_eq!(place.status(&one).await, "queued");
    let shown = place.store.thread(&one).await.expect("there").summary.held_back;
    assert_eq!(shown, Some(HeldBack::Graph("g".into())));
    assert!(!goes(place, &two, at(2)).await);
    assert_eq!(found(place, 10).await, [] as [ThreadId; 0]);

    assert!(place.store.end_switch(&of_g(), &operator(), "op-end", at(11)).await.expect("ended"));
    assert!(!place.store.end_switch(&of_g(), &operator(), "op-none", at(11)).await.expect("none"));
    // No job names them: they are found.
    assert_eq!(found(place, 11).await, [one.clone(), two]);
    assert!(goes(place, &one, at(11)).await);
    assert_eq!(place.store.thread(&one).await.expect("there").summary.held_back, None);
}

async fn a_pause_ends_by_itself_at_its_time(place: &Place) {
    pause(place, of_g(), 0, Some(60)).await;
    let thread = place.queued("t").await;
    assert!(!goes(place, &thread, at(59)).await);
    assert_eq!(found(place, 59).await, [] as [ThreadId; 0]);
    assert_eq!(place.store.switches(at(59)).await.expect("read").len(), 1);
    assert_eq!(place.store.switches(at(60)).await.expect("read"), []);
    assert_eq!(found(place, 60).await, std::slice::from_ref(&thread));
    assert!(goes(place, &thread, at(60)).await);
    place.store.tidy(at(61)).await.expect("tidied");
    assert_eq!(place.backend.count("pause_switches").await, 0);
}

async fn what_a_pause_holds_back_takes_no_room_of_a_sweep(place: &Place) {
    pause(place, of_g(), 0, None).await;
    for number in 0..12 {
        let held_back = place.queued(&format!("t-{number:02}")).await;
        assert!(!goes(place, &held_back, at(1)).await);
    }
    let later = CreateThread { graph: "h".into(), ..place.create("later", at(5)) };
    place.store.create(later).await.expect("created");
    assert_eq!(found_of(place, 10, 3).await, [thread("later")]);
    place.store.end_switch(&of_g(), &operator(), "op-end", at(11)).await.expect("ended");
    assert_eq!(found_of(place, 11, 3).await, ["t-00", "t-01", "t-02"].map(thread));
}

async fn starts_and_answers_of_a_paused_graph_are_accepted(place: &Place) {
    let (asked, id) = place.asking("asked", approval("Pay?")).await;
    pause(place, of_g(), 3, None).await;
    let vote = place.vote(&id, &ann(), &["approver"], json!({"approved": true}));
    assert!(place.store.record_vote(vote).await.expect("accepted").decided);
    let new = place.queued("new").await;
    for thread in [&asked, &new] {
        assert!(!goes(place, thread, at(12)).await);
    }
    place.store.end_switch(&of_g(), &operator(), "op-end", at(13)).await.expect("ended");
    let held = place.held(&asked, at(14)).await;
    assert_eq!(held.wake.answers.len(), 1, "the answer is there");
}

/// Has the thread, which is held, stand back at these nodes.
async fn stands_back(place: &Place, thread: &ThreadId, nodes: &[&str], seconds: i64) {
    let fence = place.held(thread, at(seconds)).await.fence;
    let by = HeldBack::Nodes("g".into(), nodes.iter().map(|node| (*node).to_owned()).collect());
    let hold = HoldBack { thread: thread.clone(), fence, by, now: at(seconds) };
    assert_eq!(place.store.hold_back(hold).await.expect("held back"), Committed::Released);
}

fn node(name: &str) -> SwitchOf {
    SwitchOf::Node { graph: "g".into(), node: name.into() }
}

async fn a_thread_stands_back_at_a_paused_node_and_goes_on_when_one_is_resumed(place: &Place) {
    pause(place, node("a"), 0, None).await;
    pause(place, node("b"), 1, None).await;
    let thread = place.queued("t").await;
    stands_back(place, &thread, &["a", "b"], 2).await;
    assert_eq!(place.status(&thread).await, "queued");
    assert!(!goes(place, &thread, at(3)).await);
    assert_eq!(found(place, 3).await, [] as [ThreadId; 0]);
    // The other one is enough to go on with.
    place.store.end_switch(&node("b"), &operator(), "op-end", at(4)).await.expect("ended");
    assert_eq!(found(place, 4).await, std::slice::from_ref(&thread));
    assert!(goes(place, &thread, at(4)).await);
}

async fn an_answer_reaches_a_thread_that_stands_at_a_paused_node(place: &Place) {
    pause(place, node("b"), 0, None).await;
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    let point = place.question(&thread, 0, &approval("Pay?").request());
    let id = point.point.id.clone();
    let step = StepCommit { opened: vec![point], ..place.commit(&thread, fence, at(2)) };
    place.store.commit(step).await.expect("committed");
    let hold = |by: &str| HoldBack {
        thread: thread.clone(),
        fence,
        by: HeldBack::Nodes("g".into(), vec![by.into()]),
        now: at(3),
    };
    assert_eq!(place.store.hold_back(hold("b")).await.expect("held back"), Committed::Released);
    assert_eq!(found(place, 4).await, [] as [ThreadId; 0]);
    let vote = place.vote(&id, &ann(), &["approver"], json!({"approved": true}));
    place.store.record_vote(vote).await.expect("accepted");
    // The job may be lost.
    assert_eq!(found(place, 11).await, std::slice::from_ref(&thread));
    let held = place.held(&thread, at(11)).await;
    assert_eq!(held.wake.answers.len(), 1);
    // What comes in between the look and the standing back is not passed by.
    let hold = HoldBack { fence: held.fence, ..hold("b") };
    assert!(matches!(place.store.hold_back(hold).await, Ok(Committed::Running(wake)) if wake.answers.len() == 1));
}

async fn a_held_back_thread_is_fenced_and_cancelled_at_once(place: &Place) {
    pause(place, node("a"), 0, None).await;
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    let by = HeldBack::Nodes("g".into(), vec!["a".into()]);
    let hold = HoldBack { thread: thread.clone(), fence, by, now: at(2) };
    place.store.hold_back(hold.clone()).await.expect("held back");
    fenced(place.store.hold_back(hold).await);
    fenced(place.store.commit(place.commit(&thread, fence, at(3))).await);
    place.store.cancel(&thread, &operator(), at(4)).await.expect("cancelled");
    assert_eq!(place.status(&thread).await, "cancelled");
    place.store.end_switch(&node("a"), &operator(), "op-end", at(5)).await.expect("ended");
    assert_eq!(found(place, 6).await, [] as [ThreadId; 0]);
}

async fn deliveries_of_a_paused_channel_burn_no_attempt(place: &Place) {
    let thread = place.queued("t").await;
    let mut point = place.question(&thread, 0, &approval("Pay?").request());
    let (delivery, job) = place.tell(&mut point, &bob());
    place.rest(&thread, vec![point], RestAs::Parked).await;
    let email = SwitchOf::Channel("email".into());
    pause(place, email.clone(), 3, None).await;
    let taken = place.store.take_delivery(&thread, &delivery, Some(job), at(60), at(4)).await.expect("looked");
    assert_eq!(taken, None);
    let view = &place.store.deliveries(None, None, 10).await.expect("listed")[0];
    assert_eq!((view.status.as_str(), view.attempts), ("pending", 0));
    let due =
        async |seconds| place.store.sweep(&Serves::default(), at(seconds), Duration::ZERO, 10).await.expect("swept");
    assert_eq!(due(10).await, []);
    place.store.end_switch(&email, &operator(), "op-end", at(11)).await.expect("ended");
    assert_eq!(due(11).await, [Due::Delivery(thread.clone(), delivery.clone())]);
    let taken = place.store.take_delivery(&thread, &delivery, None, at(60), at(11)).await.expect("looked");
    assert_eq!(taken.expect("due").notice.attempt, 1);
}

/// Threads that were queued one second after the other.
async fn queue(place: &Place, names: &[&str], key: Option<&str>) -> Vec<ThreadId> {
    let mut threads = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let now = at(i64::try_from(number).expect("few"));
        let create = CreateThread { limit_key: key.map(str::to_owned), now, ..place.create(name, now) };
        place.store.create(create).await.expect("created");
        threads.push(thread(name));
    }
    threads
}

async fn rest(place: &Place, thread: &ThreadId, seconds: i64) {
    let fence = place.store.load(thread).await.expect("there").fence;
    let commit = place.commit(thread, fence, at(seconds));
    let commit = StepCommit { rest: Some(RestAs::Succeeded), ..commit };
    assert_eq!(place.store.commit(commit).await.expect("committed"), Committed::Released);
}

async fn no_more_run_than_the_limit_lets_and_in_order(place: &Place) {
    limit(place, FlowLimits { running: Some(2), ..FlowLimits::default() }).await;
    let threads = queue(place, &["a", "b", "c", "d", "e"], None).await;
    let mut going = Vec::new();
    // Whoever asks first goes first; the others get their turns by age.
    for thread in [&threads[1], &threads[0], &threads[4], &threads[2], &threads[3]] {
        going.push(goes(place, thread, at(6)).await);
    }
    assert_eq!(going, [true, true, false, false, false]);
    assert_eq!(found(place, 7).await, [] as [ThreadId; 0]);
    rest(place, &threads[0], 8).await;
    assert_eq!(
        place.store.in_turn(&Serves::default(), at(8), 10).await.expect("read"),
        [Due::Thread(threads[2].clone())]
    );
    // Nobody overtakes: not one that is behind, not one that has just come.
    let late = place.store.create(place.create("late", at(8))).await.map(|_| thread("late")).expect("created");
    assert!(!goes(place, &threads[3], at(8)).await);
    assert!(!goes(place, &late, at(8)).await);
    assert!(goes(place, &threads[2], at(8)).await);
    assert!(!goes(place, &threads[3], at(8)).await);
    rest(place, &threads[1], 9).await;
    rest(place, &threads[2], 9).await;
    assert_eq!(found(place, 9).await, [threads[3].clone(), threads[4].clone()]);
    // Without the limit everybody goes.
    limit(place, FlowLimits::default()).await;
    assert_eq!(found(place, 9).await, [threads[3].clone(), threads[4].clone(), late]);
}

async fn a_lapsed_lease_frees_its_place(place: &Place) {
    limit(place, FlowLimits { running: Some(1), ..FlowLimits::default() }).await;
    let threads = queue(place, &["a", "b"], None).await;
    assert!(goes(place, &threads[0], at(2)).await);
    assert!(!goes(place, &threads[1], at(2)).await);
    assert!(!goes(place, &threads[1], at(2).after(LEASE)).await);
    let lapsed = at(2).after(LEASE + Duration::from_micros(1));
    assert!(goes(place, &threads[1], lapsed).await);
    assert!(!goes(place, &threads[0], lapsed).await, "the place is taken now");
}

async fn a_key_has_a_limit_of_its_own(place: &Place) {
    limit(place, FlowLimits { running: Some(3), key_running: Some(1), ..FlowLimits::default() }).await;
    let ours = queue(place, &["a", "b"], Some("acme")).await;
    let theirs = queue(place, &["c", "d"], Some("bolt")).await;
    let free = queue(place, &["e", "f"], None).await;
    let mut going = Vec::new();
    for thread in ours.iter().chain(&theirs).chain(&free) {
        going.push(goes(place, thread, at(6)).await);
    }
    assert_eq!(going, [true, false, true, false, true, false]);
    let why = async |thread| place.store.thread(thread).await.expect("there").summary.held_back;
    assert_eq!(why(&ours[1]).await, Some(HeldBack::Running("g".into(), Some("acme".into()))));
    assert_eq!(why(&free[1]).await, Some(HeldBack::Running("g".into(), None)));
    rest(place, &theirs[0], 7).await;
    let next: BTreeSet<_> = found(place, 7).await.into_iter().collect();
    assert_eq!(next, [theirs[1].clone(), free[1].clone()].into());
}

async fn of_many_claims_at_once_as_many_hold_as_may(place: &Place) {
    limit(place, FlowLimits { running: Some(4), ..FlowLimits::default() }).await;
    let names: Vec<String> = (0..30).map(|number| format!("t-{number:02}")).collect();
    let threads = queue(place, &names.iter().map(String::as_str).collect::<Vec<_>>(), None).await;
    let going = join_all(threads.iter().map(|thread| goes(place, thread, at(40)))).await;
    assert_eq!(going.iter().filter(|goes| **goes).count(), 4);
}

async fn a_rate_lets_so_many_begin_in_a_period(place: &Place) {
    let starts = Rate { count: 2, per: Duration::from_secs(10) };
    limit(place, FlowLimits { starts: Some(starts), ..FlowLimits::default() }).await;
    let threads = queue(place, &["a", "b", "c", "d", "e"], None).await;
    let mut going = Vec::new();
    for thread in &threads {
        going.push(goes(place, thread, at(100)).await);
    }
    assert_eq!(going, [true, true, false, false, false]);
    // Two in ten seconds: one every five.
    assert_eq!(found(place, 104).await, [] as [ThreadId; 0]);
    assert_eq!(found(place, 105).await, std::slice::from_ref(&threads[2]));
    assert!(!goes(place, &threads[3], at(105)).await, "it is not its turn");
    assert!(goes(place, &threads[2], at(105)).await);
    assert!(!goes(place, &threads[3], at(105)).await);
    assert_eq!(found(place, 115).await, threads[3..5], "and no more than two at once");
}

async fn a_point_of_priority_is_worth_a_minute_and_no_more(place: &Place) {
    let create = |name: &str, seconds: i64, priority| CreateThread {
        priority,
        now: at(seconds),
        ..place.create(name, at(seconds))
    };
    for command in [create("low", 0, -1), create("normal", 59, 0), create("high", 118, 1), create("late", 121, 1)] {
        place.store.create(command).await.expect("created");
    }
    assert_eq!(found(place, 200).await, ["high", "normal", "low", "late"].map(thread));
    assert_eq!(found_of(place, 200, 2).await, ["high", "normal"].map(thread));

    limit(place, FlowLimits { running: Some(1), ..FlowLimits::default() }).await;
    for name in ["low", "normal", "high", "late"] {
        goes(place, &thread(name), at(200)).await;
    }
    // `low` came first and runs; behind it they stand in the same order.
    let mut order = Vec::new();
    for (round, name) in (0..).zip(["low", "high", "normal", "late"]) {
        rest(place, &thread(name), 201 + round).await;
        let next = found(place, 201 + round).await;
        order.extend(next.clone());
        for next in &next {
            assert!(goes(place, next, at(201 + round)).await);
        }
    }
    assert_eq!(order, ["high", "normal", "late"].map(thread));
}

async fn what_operators_did_is_on_record(place: &Place) {
    pause(place, of_g(), 1, Some(100)).await;
    place.store.end_switch(&of_g(), &ann(), "op-2", at(2)).await.expect("ended");
    let limits = FlowLimits { running: Some(3), ..FlowLimits::default() };
    place.store.set_limits("g", limits, &operator(), "op-3", at(3)).await.expect("set");
    assert_eq!(place.store.limits().await.expect("read"), [("g".to_owned(), limits)]);
    let log = place.store.operations(10).await.expect("read");
    let said: Vec<_> = log.iter().map(|entry| (entry.action.as_str(), entry.actor.clone(), entry.at)).collect();
    assert_eq!(said, [("limited", operator(), at(3)), ("resumed", ann(), at(2)), ("paused", operator(), at(1))]);
    assert_eq!((&log[2].detail["name"], &log[2].detail["reason"]), (&json!("g"), &json!("the bank is closed")));
}

async fn of_a_cancel_that_is_asked_for_no_answer_counts(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    let point = place.question(&thread, 0, &approval("Pay?").request());
    let id = point.point.id.clone();
    let step = place.commit(&thread, fence, at(2));
    let step = StepCommit { opened: vec![point], ..step };
    place.store.commit(step).await.expect("committed");
    place.store.cancel(&thread, &operator(), at(3)).await.expect("asked");
    let vote = place.vote(&id, &ann(), &["approver"], json!({"approved": true}));
    let refusal = super::place::refused(place.store.record_vote(vote).await);
    assert!(matches!(refusal, Refusal::Superseded { .. }), "{refusal:?}");
    assert_eq!(place.store.cancelling("w").await.expect("read"), std::slice::from_ref(&thread));
    assert_eq!(place.store.cancelling("other").await.expect("read"), []);
}

async fn a_worker_that_does_not_stop_is_cancelled_over_its_head(place: &Place) {
    let thread = place.queued("t").await;
    let fence = place.held(&thread, at(1)).await.fence;
    place.store.cancel(&thread, &operator(), at(2)).await.expect("asked");
    assert_eq!(place.store.abandon(at(1), 10, at(3)).await.expect("looked"), 0, "it has its time");
    assert_eq!(place.status(&thread).await, "running");
    assert_eq!(place.store.abandon(at(2), 10, at(12)).await.expect("looked"), 1);
    assert_eq!(place.status(&thread).await, "cancelled");
    fenced(place.store.commit(place.commit(&thread, fence, at(13))).await);
    assert_eq!(place.actions(&thread).await, ["started", "cancel_requested", "cancelled"]);
    assert_eq!(place.store.verify_audit(&thread).await.expect("verified"), None);
}

async fn of_an_answer_and_a_cancel_at_once_the_first_is_the_only_one(place: &Place) {
    for round in 0..20 {
        let thread = place.queued(&format!("t-{round:02}")).await;
        let fence = place.held(&thread, at(1)).await.fence;
        let point = place.question(&thread, 0, &approval("Pay?").request());
        let id = point.point.id.clone();
        let step = place.commit(&thread, fence, at(2));
        let step = StepCommit { opened: vec![point], ..step };
        place.store.commit(step).await.expect("committed");
        let vote = place.vote(&id, &ann(), &["approver"], json!({"approved": true}));
        let operator = operator();
        let (voted, cancelled) =
            tokio::join!(place.store.record_vote(vote), place.store.cancel(&thread, &operator, at(3)));
        cancelled.expect("taken");
        let actions = place.actions(&thread).await;
        match voted {
            Ok(voted) => {
                assert!(voted.decided);
                assert_eq!(actions, ["started", "decided", "cancel_requested"], "it was there before");
            }
            Err(error) => {
                assert!(matches!(error, StoreError::Refused(Refusal::Superseded { .. })), "{error:?}");
                assert_eq!(actions, ["started", "cancel_requested"], "nothing of it is on record");
            }
        }
        let rest = place.commit(&thread, fence, at(4));
        let rest = StepCommit { rest: Some(RestAs::Cancelled), ..rest };
        assert_eq!(place.store.commit(rest).await.expect("committed"), Committed::Released);
        assert_eq!(place.status(&thread).await, "cancelled");
        assert_eq!(place.store.verify_audit(&thread).await.expect("verified"), None);
    }
}
