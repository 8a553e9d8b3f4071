//! Votes that are refused (K11). Each leaves no trace.

use countersign_kernel::ids::InterruptId;
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::policy;
use countersign_kernel::principal::role;
use countersign_kernel::question::{Answered, approval, form};
use countersign_worker::store::Refusal;
use countersign_worker::store::commands::{RecordVote, RestAs};
use serde_json::{Value, json};

use super::place::{Place, at, refused};
use crate::support::{ann, bob, cy, operator};

contract!(
    an_unknown_interrupt,
    an_answered_one_says_who_decided_what_when,
    a_second_and_different_vote_of_one_person,
    a_superseded_one,
    another_revision_or_content_than_was_shown,
    somebody_who_was_not_asked,
    somebody_who_is_excluded_whatever_their_roles,
    a_point_without_a_policy_needs_an_operator,
    an_operator_is_no_approver,
    an_answer_that_does_not_fit_names_every_fault,
    who_may_not_decide_learns_nothing_of_the_decision,
);

/// Refuses the vote, and checks that nothing was written.
async fn refuse(place: &Place, vote: RecordVote) -> Refusal {
    let tables = ["votes", "answers", "audit", "runs", "deliveries"];
    let counts = async || {
        let mut counts = Vec::new();
        for table in tables {
            counts.push(place.backend.count(table).await);
        }
        (counts, place.backend.jobs().await)
    };
    let before = counts().await;
    let refusal = refused(place.store.record_vote(vote).await);
    assert_eq!(counts().await, before, "{refusal:?} leaves no trace");
    refusal
}

fn yes() -> Value {
    json!({"approved": true})
}

async fn an_unknown_interrupt(place: &Place) {
    place.asking("t", approval("Pay?")).await;
    let id = InterruptId::parse("0".repeat(32)).expect("an id");
    let refusal = refuse(place, place.vote(&id, &ann(), &["approver"], yes())).await;
    assert_eq!(refusal, Refusal::UnknownInterrupt(id));
}

async fn an_answered_one_says_who_decided_what_when(place: &Place) {
    let (_, id) = place.asking("t", approval("Pay?").to(role("manager"))).await;
    place.store.record_vote(place.vote(&id, &ann(), &["manager"], yes())).await.expect("accepted");
    let answered = Box::new(Answered { value: Some(yes()), by: vec![ann()], at: at(10) });
    for (who, answer) in [(bob(), json!({"approved": false})), (bob(), yes()), (ann(), json!({"approved": false}))] {
        let refusal = refuse(place, place.vote(&id, &who, &["manager"], answer)).await;
        assert_eq!(refusal, Refusal::AlreadyAnswered { interrupt: id.clone(), answered: answered.clone() });
    }
}

async fn a_second_and_different_vote_of_one_person(place: &Place) {
    let (_, id) = place.asking("t", approval("Pay?").to(role("manager")).need(2)).await;
    place.store.record_vote(place.vote(&id, &ann(), &["manager"], yes())).await.expect("accepted");
    let refusal = refuse(place, place.vote(&id, &ann(), &["manager"], json!({"approved": false}))).await;
    assert_eq!(refusal, Refusal::AlreadyVoted { interrupt: id, principal: ann() });
}

async fn a_superseded_one(place: &Place) {
    let (thread, id) = place.asking("t", approval("Pay?").to(role("manager"))).await;
    place.store.cancel(&thread, &operator(), at(5)).await.expect("cancelled");
    let refusal = refuse(place, place.vote(&id, &ann(), &["manager"], yes())).await;
    assert_eq!(refusal, Refusal::Superseded { interrupt: id, status: "superseded".into() });
}

async fn another_revision_or_content_than_was_shown(place: &Place) {
    let (_, id) = place.asking("t", approval("Pay?").to(role("manager"))).await;
    let vote = || place.vote(&id, &ann(), &["manager"], yes());
    let changed = Refusal::RequestChanged { interrupt: id.clone(), revision: 1 };
    assert_eq!(refuse(place, RecordVote { revision: Some(2), ..vote() }).await, changed);
    assert_eq!(refuse(place, RecordVote { content_hash: Some("other".into()), ..vote() }).await, changed);
}

async fn somebody_who_was_not_asked(place: &Place) {
    let (_, id) = place.asking("t", approval("Pay?").to(role("manager"))).await;
    let refusal = refuse(place, place.vote(&id, &cy(), &["finance"], yes())).await;
    assert_eq!(refusal, Refusal::NotAllowed { principal: cy(), refusal: policy::Refusal::NotAnApprover });
}

async fn somebody_who_is_excluded_whatever_their_roles(place: &Place) {
    let (_, id) = place.asking("t", approval("Pay?").to(role("manager")).excluding([ann()])).await;
    let refusal = refuse(place, place.vote(&id, &ann(), &["manager", policy::EVERY_ROLE], yes())).await;
    assert_eq!(refusal, Refusal::NotAllowed { principal: ann(), refusal: policy::Refusal::Excluded });
}

async fn a_point_without_a_policy_needs_an_operator(place: &Place) {
    let thread = place.queued("t").await;
    let kinds = [PointKind::Interrupt, PointKind::Suspend, PointKind::Break, PointKind::Pause];
    let points: Vec<_> = (0..).zip(kinds).map(|(number, kind)| place.point(&thread, number, kind)).collect();
    let ids: Vec<_> = points.iter().map(|opened| opened.point.id.clone()).collect();
    place.rest(&thread, points, RestAs::Parked).await;
    for id in ids {
        let refusal = refuse(place, place.vote(&id, &ann(), &[policy::EVERY_ROLE], json!("go"))).await;
        assert_eq!(refusal, Refusal::OperatorOnly { interrupt: id });
    }
}

async fn an_operator_is_no_approver(place: &Place) {
    let (_, id) = place.asking("t", approval("Pay?").to(role("manager"))).await;
    let vote = RecordVote { operator: true, ..place.vote(&id, &operator(), &[], yes()) };
    let refusal = refuse(place, vote).await;
    assert_eq!(refusal, Refusal::NotAllowed { principal: operator(), refusal: policy::Refusal::NotAnApprover });
}

async fn an_answer_that_does_not_fit_names_every_fault(place: &Place) {
    let schema = json!({
        "type": "object", "required": ["iban", "amount"],
        "properties": {"iban": {"type": "string"}, "amount": {"type": "number"}, "urgent": {"type": "boolean"}},
    });
    let (_, id) = place.asking("t", form::<Value>("Where to?", schema).to(role("manager"))).await;
    let answer = json!({"amount": "12", "urgent": 1, "x": null});
    match refuse(place, place.vote(&id, &ann(), &["manager"], answer)).await {
        Refusal::InvalidAnswer { interrupt, faults } => {
            let mut at: Vec<_> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
            at.sort_unstable();
            assert_eq!((interrupt, at), (id, vec!["/amount", "/iban", "/urgent", "/x"]));
        }
        other => panic!("{other:?}"),
    }
}

async fn who_may_not_decide_learns_nothing_of_the_decision(place: &Place) {
    let (_, id) = place.asking("t", approval("Pay?").to(role("manager"))).await;
    place.store.record_vote(place.vote(&id, &ann(), &["manager"], yes())).await.expect("accepted");
    let refusal = refuse(place, place.vote(&id, &cy(), &["finance"], yes())).await;
    assert!(matches!(refusal, Refusal::NotAllowed { .. }), "{refusal:?}");
}
