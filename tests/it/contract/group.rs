//! Many commands at once, whatever they are gathered into: each stands or
//! falls alone.

use countersign_kernel::ids::InterruptId;
use countersign_kernel::principal::role;
use countersign_kernel::question::approval;
use countersign_worker::store::commands::{Fence, RestAs, StepCommit};
use countersign_worker::store::{Refusal, StoreError};
use futures_util::future::{join, join_all};
use serde_json::json;

use super::place::{Place, at, refused};
use crate::support::{ann, cy};

contract!(
    fenced_commits_take_no_good_one_down,
    refused_votes_take_no_good_one_down,
    a_start_that_is_refused_among_many_leaves_only_itself_out,
    commits_of_many_threads_at_once_all_hold,
);

async fn fenced_commits_take_no_good_one_down(place: &Place) {
    let mut held = Vec::new();
    for number in 0..30 {
        let thread = place.queued(&format!("t-{number:02}")).await;
        held.push((thread.clone(), place.held(&thread, at(1)).await.fence));
    }
    let commits = held.iter().enumerate().map(|(number, (thread, fence))| {
        let fence = if number % 3 == 0 { Fence(fence.0 - 1) } else { *fence };
        let commit = StepCommit {
            checkpoint: Some(place.checkpoint(1, at(2))),
            opened: vec![place.question(thread, 0, &approval("Pay?").request())],
            rest: Some(RestAs::Parked),
            ..place.commit(thread, fence, at(2))
        };
        place.store.commit(commit)
    });
    for (number, (committed, (thread, _))) in join_all(commits).await.into_iter().zip(&held).enumerate() {
        let detail = place.store.thread(thread).await.expect("there");
        let history = place.store.history(thread, None, None, 10).await.expect("there").len();
        if number % 3 == 0 {
            assert!(matches!(committed, Err(StoreError::Fenced)), "{number}: {committed:?}");
            assert_eq!((detail.summary.status.as_str(), detail.interrupts.len(), history), ("running", 0, 1));
        } else {
            committed.expect("it held");
            assert_eq!((detail.summary.status.as_str(), detail.interrupts.len(), history), ("parked", 1, 2));
        }
    }
    assert_eq!(place.backend.count("interrupts").await, 20);
}

async fn refused_votes_take_no_good_one_down(place: &Place) {
    let mut asked = Vec::new();
    for number in 0..10 {
        asked.push(place.asking(&format!("t-{number:02}"), approval("Pay?").to(role("manager"))).await);
    }
    let unknown = InterruptId::parse("0".repeat(32)).expect("an id");
    let yes = || json!({"approved": true});
    let votes = asked.iter().flat_map(|(_, id)| {
        [
            place.vote(&unknown, &ann(), &["manager"], yes()),
            place.vote(id, &cy(), &["finance"], yes()),
            place.vote(id, &ann(), &["manager"], json!({"approved": "yes"})),
            place.vote(id, &ann(), &["manager"], yes()),
        ]
    });
    let voted = join_all(votes.map(|vote| place.store.record_vote(vote))).await;
    for four in voted.chunks(4) {
        assert!(matches!(four[0], Err(StoreError::Refused(Refusal::UnknownInterrupt(_)))));
        assert!(matches!(four[1], Err(StoreError::Refused(Refusal::NotAllowed { .. }))));
        assert!(matches!(four[2], Err(StoreError::Refused(Refusal::InvalidAnswer { .. }))));
        assert!(four[3].as_ref().is_ok_and(|voted| voted.decided));
    }
    assert_eq!((place.backend.count("votes").await, place.backend.count("answers").await), (10, 10));
    for (thread, _) in &asked {
        assert_eq!(place.store.verify_audit(thread).await.expect("verified"), None);
    }
}

async fn a_start_that_is_refused_among_many_leaves_only_itself_out(place: &Place) {
    place.queued("taken").await;
    let good = join_all((0..10).map(|number| place.store.create(place.create(&format!("t-{number}"), at(1)))));
    let bad = join_all((0..10).map(|_| place.store.create(place.create("taken", at(1)))));
    let (good, bad) = join(good, bad).await;
    assert!(good.into_iter().all(|created| created.is_ok()));
    for refusal in bad.into_iter().map(refused) {
        assert!(matches!(refusal, Refusal::ThreadExists { same_input: true, .. }));
    }
    assert_eq!((place.backend.count("threads").await, place.backend.jobs().await.len()), (11, 11));
}

async fn commits_of_many_threads_at_once_all_hold(place: &Place) {
    let mut held = Vec::new();
    for number in 0..40 {
        let thread = place.queued(&format!("t-{number:02}")).await;
        held.push((thread.clone(), place.held(&thread, at(1)).await.fence));
    }
    let steps = held.iter().map(|(thread, fence)| async move {
        for seq in 1..=5 {
            let next = place.checkpoint(seq, at(seq));
            let commit = StepCommit { checkpoint: Some(next), ..place.commit(thread, *fence, at(seq)) };
            place.store.commit(commit).await.expect("committed");
        }
    });
    join_all(steps).await;
    for (thread, _) in &held {
        assert_eq!(place.store.thread(thread).await.expect("there").state["n"], 5);
    }
    assert_eq!(place.backend.count("checkpoints").await, 40 * 6);
}
