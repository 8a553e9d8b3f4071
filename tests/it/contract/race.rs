//! Several people at the same instant.

use countersign_kernel::principal::{Principal, role};
use countersign_kernel::question::approval;
use countersign_worker::store::commands::{RestAs, StepCommit};
use countersign_worker::store::{Refusal, StoreError};
use futures_util::future::join_all;
use serde_json::json;

use super::place::{Place, at};
use crate::support::{ann, bob};

contract!(
    of_two_different_answers_at_once_one_decides,
    twenty_equal_answers_of_one_person_are_one_vote,
    twenty_people_at_once_decide_once,
    answers_to_different_points_at_once_all_count,
    an_answer_at_the_instant_of_a_park_is_not_lost,
);

async fn of_two_different_answers_at_once_one_decides(place: &Place) {
    for round in 0..10 {
        let (thread, id) = place.asking(&format!("t-{round}"), approval("Pay?").to(role("manager"))).await;
        let votes = [(ann(), true), (bob(), false)]
            .map(|(who, yes)| place.store.record_vote(place.vote(&id, &who, &["manager"], json!({"approved": yes}))));
        let mut decided = 0;
        for voted in join_all(votes).await {
            match voted {
                Ok(voted) => decided += u32::from(voted.decided),
                Err(StoreError::Refused(Refusal::AlreadyAnswered { answered, .. })) => {
                    let record = place.store.interrupt(&id).await.expect("there").answered;
                    assert_eq!(record, Some(*answered), "the loser is told what was decided");
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(decided, 1);
        assert_eq!(place.held(&thread, at(11)).await.wake.answers.len(), 1);
    }
}

async fn twenty_equal_answers_of_one_person_are_one_vote(place: &Place) {
    let (thread, id) = place.asking("t", approval("Pay?").to(role("manager"))).await;
    let votes =
        (0..20).map(|_| place.store.record_vote(place.vote(&id, &ann(), &["manager"], json!({"approved": true}))));
    let voted: Vec<_> = join_all(votes).await.into_iter().collect::<Result<_, _>>().expect("none is refused");
    assert_eq!(voted.iter().filter(|voted| !voted.repeated).count(), 1);
    assert_eq!(voted.iter().filter(|voted| voted.wake.is_some()).count(), 1);
    assert!(voted.iter().all(|voted| voted.decided));
    assert_eq!((place.backend.count("votes").await, place.backend.count("answers").await), (1, 1));
    assert_eq!(place.actions(&thread).await, ["started", "decided"]);
}

async fn twenty_people_at_once_decide_once(place: &Place) {
    let (_, id) = place.asking("t", approval("Pay?").to(role("manager")).need(3)).await;
    let votes = (0..20).map(|number| {
        let who = Principal::person(&format!("p{number}@example.com"));
        place.store.record_vote(place.vote(&id, &who, &["manager"], json!({"approved": true})))
    });
    let voted = join_all(votes).await;
    assert_eq!(voted.iter().filter(|voted| voted.as_ref().is_ok_and(|voted| voted.decided)).count(), 1);
    assert_eq!(voted.iter().filter(|voted| voted.is_ok()).count(), 3, "later ones come too late");
    assert_eq!(place.store.interrupt(&id).await.expect("there").answered.expect("decided").by.len(), 3);
}

async fn answers_to_different_points_at_once_all_count(place: &Place) {
    let thread = place.queued("t").await;
    let request = approval("Pay?").to(role("manager")).request();
    let points: Vec<_> = (0..16).map(|number| place.question(&thread, number, &request)).collect();
    let ids: Vec<_> = points.iter().map(|opened| opened.point.id.clone()).collect();
    place.rest(&thread, points, RestAs::Parked).await;
    let votes =
        ids.iter().map(|id| place.store.record_vote(place.vote(id, &ann(), &["manager"], json!({"approved": true}))));
    assert!(join_all(votes).await.into_iter().all(|voted| voted.is_ok_and(|voted| voted.decided)));
    assert_eq!(place.held(&thread, at(11)).await.wake.answers.len(), 16, "one resume for all");
}

async fn an_answer_at_the_instant_of_a_park_is_not_lost(place: &Place) {
    for round in 0..20 {
        let thread = place.queued(&format!("t-{round}")).await;
        let fence = place.held(&thread, at(1)).await.fence;
        let point = place.question(&thread, 0, &approval("Pay?").to(role("manager")).request());
        let id = point.point.id.clone();
        let asked = StepCommit { opened: vec![point], ..place.commit(&thread, fence, at(2)) };
        place.store.commit(asked).await.expect("committed");
        let park = StepCommit { rest: Some(RestAs::Parked), ..place.commit(&thread, fence, at(10)) };
        let vote = place.vote(&id, &ann(), &["manager"], json!({"approved": true}));
        let (parked, voted) = if round % 2 == 0 {
            tokio::join!(place.store.commit(park), place.store.record_vote(vote))
        } else {
            let (voted, parked) = tokio::join!(place.store.record_vote(vote), place.store.commit(park));
            (parked, voted)
        };
        assert!(voted.expect("accepted").decided);
        // Either the holder was given it, or the thread is queued to be claimed.
        match parked.expect("committed") {
            countersign_worker::store::commands::Committed::Running(incoming) => assert_eq!(incoming.answers.len(), 1),
            countersign_worker::store::commands::Committed::Released => {
                assert_eq!(place.held(&thread, at(11)).await.wake.answers.len(), 1);
            }
        }
    }
}
