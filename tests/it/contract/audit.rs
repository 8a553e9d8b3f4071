//! The chain of a thread's audit entries.

use countersign_kernel::ids::ThreadId;
use countersign_kernel::principal::role;
use countersign_kernel::question::approval;
use serde_json::json;

use super::place::{Place, at};
use crate::support::{ann, bob, operator};

contract!(
    the_chain_holds_and_says_who_did_what,
    a_changed_entry_is_found,
    a_removed_entry_is_found,
    a_cut_off_end_is_found,
    an_erased_person_does_not_break_the_chain,
    each_thread_has_a_chain_of_its_own,
);

/// A thread with four entries.
async fn eventful(place: &Place, name: &str) -> ThreadId {
    let (thread, id) = place.asking(name, approval("Pay?").to(role("manager")).need(2)).await;
    for who in [ann(), bob()] {
        let vote = place.vote(&id, &who, &["manager"], json!({"approved": true}));
        place.store.record_vote(vote).await.expect("accepted");
    }
    place.store.pause(&thread, &operator(), place.job(), at(12)).await.expect("asked for");
    thread
}

async fn broken_at(place: &Place, thread: &ThreadId) -> Option<i64> {
    place.store.verify_audit(thread).await.expect("verified")
}

async fn the_chain_holds_and_says_who_did_what(place: &Place) {
    let thread = eventful(place, "t").await;
    assert_eq!(broken_at(place, &thread).await, None);
    let audit = place.store.audit(&thread).await.expect("there");
    assert_eq!(audit.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let said: Vec<_> = audit.iter().map(|entry| (entry.action.as_str(), entry.actor.clone().expect("kept"))).collect();
    let [ann, bob, operator] = [ann(), bob(), operator()].map(|principal| principal.to_string());
    assert_eq!(said, [("started", ann.clone()), ("voted", ann), ("decided", bob), ("pause_requested", operator)]);
    let detail = audit[2].detail.clone().expect("kept");
    assert_eq!(
        (&detail["answer"], &detail["channel"], &detail["identified"], &detail["roles"]),
        (&json!({"approved": true}), &json!("api"), &json!("token"), &json!(["manager"]))
    );
    assert!(detail["shown"].is_string(), "what was shown is on record");
}

async fn a_changed_entry_is_found(place: &Place) {
    for (name, change) in [
        ("action", "action = 'decided'"),
        ("actor", "actor = 'person:eve@example.com'"),
        ("detail", "detail = '{}'"),
        ("time", "at = at + 1"),
        ("digest", "actor_digest = detail_digest"),
    ] {
        let thread = eventful(place, name).await;
        let statement = format!("UPDATE audit SET {change} WHERE thread = '{name}' AND seq = 2");
        assert_eq!(place.backend.execute(&statement).await, 1);
        assert_eq!(broken_at(place, &thread).await, Some(2), "{name}");
    }
}

async fn a_removed_entry_is_found(place: &Place) {
    for seq in [1, 2, 3] {
        let name = format!("t-{seq}");
        let thread = eventful(place, &name).await;
        place.backend.execute(&format!("DELETE FROM audit WHERE thread = '{name}' AND seq = {seq}")).await;
        assert_eq!(broken_at(place, &thread).await, Some(seq));
    }
}

async fn a_cut_off_end_is_found(place: &Place) {
    let thread = eventful(place, "t").await;
    assert_eq!(place.backend.execute("DELETE FROM audit WHERE thread = 't' AND seq >= 3").await, 2);
    assert_eq!(broken_at(place, &thread).await, Some(3));
    place.backend.execute("DELETE FROM audit WHERE thread = 't'").await;
    assert_eq!(broken_at(place, &thread).await, Some(1));
}

async fn an_erased_person_does_not_break_the_chain(place: &Place) {
    let thread = eventful(place, "t").await;
    place.backend.execute("UPDATE audit SET actor = NULL, detail = NULL WHERE seq = 2").await;
    assert_eq!(broken_at(place, &thread).await, None);
    let audit = place.store.audit(&thread).await.expect("there");
    assert_eq!((audit[1].actor.as_ref(), audit[1].detail.as_ref()), (None, None));
}

async fn each_thread_has_a_chain_of_its_own(place: &Place) {
    let (one, two) = (eventful(place, "one").await, eventful(place, "two").await);
    place.backend.execute("DELETE FROM audit WHERE thread = 'one' AND seq = 2").await;
    assert_eq!((broken_at(place, &one).await, broken_at(place, &two).await), (Some(2), None));
}
