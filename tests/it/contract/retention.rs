//! Keeping less of the past, in pieces.

use countersign_kernel::question::approval;
use countersign_worker::store::Refusal;
use countersign_worker::store::commands::{RestAs, StepCommit};
use serde_json::json;

use super::archive::{advance, step};
use super::place::{Place, at, refused};
use crate::support::ann;

contract!(
    the_newest_checkpoints_stay_and_the_others_are_refused,
    it_goes_in_pieces_and_no_piece_leaves_a_checkpoint_without_its_state,
    a_value_that_never_changed_stays,
    what_people_decided_stays,
    nobody_goes_back_to_what_was_compacted_meanwhile,
);

async fn all(place: &Place, thread: &countersign_kernel::ids::ThreadId, keep: u32, limit: u32) -> u64 {
    let mut gone = 0;
    loop {
        match place.store.compact(thread, keep, limit).await.expect("compacted") {
            0 => return gone,
            rows => gone += rows,
        }
    }
}

async fn the_newest_checkpoints_stay_and_the_others_are_refused(place: &Place) {
    let thread = place.queued("t").await;
    let mut held = place.held(&thread, at(1)).await;
    let mut ids = vec![held.checkpoint.id.clone()];
    for _ in 0..30 {
        step(place, &held, "s").await;
        advance(place, &mut held).await;
        ids.push(held.checkpoint.id.clone());
    }
    let unknown = countersign_kernel::ids::CheckpointId::parse("nobody").expect("an id");
    assert_eq!(refused(place.store.archived(&thread, &unknown).await), Refusal::UnknownCheckpoint(unknown.clone()));
    assert_eq!(place.store.compact(&thread, 100, 10).await.expect("nothing"), 0);
    assert!(all(place, &thread, 5, 1_000).await > 50);
    for (table, rows) in [("checkpoints", 5), ("state_values", 5), ("steps", 4)] {
        assert_eq!(place.backend.count(table).await, rows, "{table}");
    }
    let history = place.store.history(&thread, None, None, 100).await.expect("there");
    assert_eq!(history.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [30, 29, 28, 27, 26]);
    assert!(history.iter().all(|entry| entry.state["n"] == json!(entry.seq)));
    for (seq, id) in ids.iter().enumerate() {
        let archived = place.store.archived(&thread, id).await;
        if seq < 26 {
            assert_eq!(refused(archived), Refusal::Compacted(id.clone()));
        } else {
            assert_eq!(archived.expect("kept")[0].archived.values.get("n"), Some(&json!(seq)));
        }
    }
    assert_eq!(refused(place.store.archived(&thread, &unknown).await), Refusal::Compacted(unknown));
    // It goes on as if nothing had been.
    advance(place, &mut held).await;
    assert_eq!(place.store.load(&thread).await.expect("there").values.get("n"), Some(&json!(31)));
}

async fn it_goes_in_pieces_and_no_piece_leaves_a_checkpoint_without_its_state(place: &Place) {
    let thread = place.queued("t").await;
    let mut held = place.held(&thread, at(1)).await;
    for _ in 0..20 {
        advance(place, &mut held).await;
    }
    let mut pieces = 0;
    loop {
        let rows = place.store.compact(&thread, 3, 4).await.expect("compacted");
        assert!(rows <= 4, "{rows}");
        let history = place.store.history(&thread, None, None, 100).await.expect("readable");
        assert!(history.iter().all(|entry| entry.state["n"] == json!(entry.seq)));
        if rows == 0 {
            break;
        }
        pieces += 1;
    }
    assert!(pieces >= 9, "{pieces}");
    assert_eq!((place.backend.count("checkpoints").await, place.backend.count("state_values").await), (3, 3));
}

async fn a_value_that_never_changed_stays(place: &Place) {
    let thread = place.queued("t").await;
    let mut held = place.held(&thread, at(1)).await;
    for seq in 1..=10 {
        let mut next = place.checkpoint(seq, at(2));
        next.changes = Vec::new();
        next.keys = [("n".to_owned(), countersign_worker::store::commands::KeyAt::Value(0))].into();
        let commit = StepCommit { checkpoint: Some(next), seq, ..place.commit(&thread, held.fence, at(2)) };
        place.store.commit(commit).await.expect("committed");
        held.seq = seq;
    }
    all(place, &thread, 2, 100).await;
    assert_eq!((place.backend.count("checkpoints").await, place.backend.count("state_values").await), (2, 1));
    assert_eq!(place.store.load(&thread).await.expect("there").values.get("n"), Some(&json!(0)));
}

async fn what_people_decided_stays(place: &Place) {
    let (thread, id) = place.asking("t", approval("Pay?")).await;
    let vote = place.vote(&id, &ann(), &["approver"], json!({"approved": true}));
    place.store.record_vote(vote).await.expect("accepted");
    let mut held = place.held(&thread, at(11)).await;
    for _ in 0..10 {
        advance(place, &mut held).await;
    }
    let open = place.question(&thread, 1, &approval("And this?").request());
    let open_id = open.point.id.clone();
    let rest = StepCommit {
        opened: vec![open],
        seq: held.seq,
        rest: Some(RestAs::Parked),
        consumed: vec![id.clone()],
        ..place.commit(&thread, held.fence, at(12))
    };
    place.store.commit(rest).await.expect("committed");
    let (before, trail) = (place.store.interrupt(&id).await.expect("there"), place.actions(&thread).await);
    all(place, &thread, 1, 100).await;
    assert_eq!(place.backend.count("checkpoints").await, 1);
    assert_eq!(place.store.interrupt(&id).await.expect("there"), before);
    assert_eq!(place.actions(&thread).await, trail);
    assert_eq!(place.store.verify_audit(&thread).await.expect("verified"), None);
    let vote = place.vote(&open_id, &ann(), &["approver"], json!({"approved": false}));
    assert!(place.store.record_vote(vote).await.expect("accepted").decided);
}

async fn nobody_goes_back_to_what_was_compacted_meanwhile(place: &Place) {
    let thread = place.queued("t").await;
    let mut held = place.held(&thread, at(1)).await;
    for _ in 0..10 {
        advance(place, &mut held).await;
    }
    let rest = StepCommit { rest: Some(RestAs::Parked), seq: held.seq, ..place.commit(&thread, held.fence, at(3)) };
    place.store.commit(rest).await.expect("committed");
    // Somebody has read checkpoint 2, and now it goes.
    let mut back = place.new_input(&thread, true).await;
    let next = back.head.next.as_mut().expect("a checkpoint");
    next.seq = 11;
    next.checkpoint.parent = None;
    next.changes = Vec::new();
    next.keys = [("n".to_owned(), countersign_worker::store::commands::KeyAt::Value(2))].into();
    all(place, &thread, 3, 100).await;
    assert_eq!(refused(place.store.move_thread(back.clone()).await), Refusal::ThreadChanged);
    assert_eq!(place.store.head(&thread).await.expect("there"), held.checkpoint.id, "nothing moved");
    let next = back.head.next.as_mut().expect("a checkpoint");
    next.keys = [("n".to_owned(), countersign_worker::store::commands::KeyAt::Value(9))].into();
    place.store.move_thread(back).await.expect("what is there can be gone back to");
    assert_eq!(place.store.load(&thread).await.expect("there").values.get("n"), Some(&json!(9)));
}
