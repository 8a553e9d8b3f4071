//! Finding work whose message was lost.

use std::collections::BTreeSet;
use std::time::Duration;

use countersign_kernel::ids::ThreadId;
use countersign_kernel::question::approval;
use countersign_worker::queue::JobKind;
use countersign_worker::store::Due;
use countersign_worker::store::commands::{CreateThread, RestAs, Serves};
use serde_json::json;

use super::place::{Place, at};
use crate::support::{ann, bob};

contract!(
    a_queued_thread_is_found_after_the_grace,
    a_lapsed_lease_is_found_and_a_held_one_is_not,
    what_rests_is_not_found,
    an_answered_thread_is_found,
    due_deliveries_are_found,
    a_delivery_of_a_dead_process_is_found_after_recovery,
    finding_changes_nothing_and_pages_get_through_to_the_last,
    a_page_holds_the_oldest_of_both_kinds,
    only_what_is_served_is_found,
);

const GRACE: Duration = Duration::from_secs(2);

async fn found(place: &Place, seconds: i64) -> Vec<Due> {
    place.store.sweep(&Serves::default(), at(seconds), GRACE, 100).await.expect("swept")
}

async fn a_queued_thread_is_found_after_the_grace(place: &Place) {
    let thread = place.queued("t").await;
    assert_eq!(found(place, 1).await, []);
    assert_eq!(found(place, 2).await, [Due::Thread(thread)]);
}

async fn a_lapsed_lease_is_found_and_a_held_one_is_not(place: &Place) {
    let thread = place.queued("t").await;
    place.held(&thread, at(1)).await;
    assert_eq!(found(place, 16).await, []);
    assert_eq!(found(place, 17).await, [Due::Thread(thread)]);
}

async fn what_rests_is_not_found(place: &Place) {
    let rests = [
        RestAs::Parked,
        RestAs::Succeeded,
        RestAs::Cancelled,
        RestAs::Failed { error: "a: no".into(), tasks: 1 },
        RestAs::Held { reason: "no graph".into() },
    ];
    for (number, rest) in rests.into_iter().enumerate() {
        let thread = place.queued(&format!("t-{number}")).await;
        place.rest(&thread, Vec::new(), rest).await;
    }
    assert_eq!(found(place, 1_000_000).await, []);
}

async fn an_answered_thread_is_found(place: &Place) {
    let (thread, id) = place.asking("t", approval("Pay?")).await;
    assert_eq!(found(place, 100).await, []);
    let vote = place.vote(&id, &ann(), &["approver"], json!({"approved": true}));
    place.store.record_vote(vote).await.expect("accepted");
    assert_eq!(found(place, 12).await, [Due::Thread(thread)]);
}

async fn told(place: &Place) -> Due {
    let thread = place.queued("t").await;
    let mut point = place.question(&thread, 0, &approval("Pay?").request());
    let (delivery, _) = place.tell(&mut point, &bob());
    place.rest(&thread, vec![point], RestAs::Parked).await;
    Due::Delivery(thread, delivery)
}

async fn due_deliveries_are_found(place: &Place) {
    let due = told(place).await;
    let Due::Delivery(thread, delivery) = &due else { panic!("no delivery") };
    assert_eq!(found(place, 3).await, []);
    assert_eq!(found(place, 4).await, std::slice::from_ref(&due));
    place.store.take_delivery(thread, delivery, None, at(50), at(4)).await.expect("taken").expect("due");
    assert_eq!(found(place, 50).await, [], "somebody is at it");
    assert_eq!(found(place, 51).await, [due]);
}

async fn a_delivery_of_a_dead_process_is_found_after_recovery(place: &Place) {
    let due = told(place).await;
    let Due::Delivery(thread, delivery) = &due else { panic!("no delivery") };
    place.store.take_delivery(thread, delivery, None, at(500), at(4)).await.expect("taken").expect("due");
    place.store.recover(at(5)).await.expect("recovered");
    assert_eq!(found(place, 6).await, std::slice::from_ref(&due));
    let again = place.store.take_delivery(thread, delivery, None, at(500), at(6)).await.expect("taken");
    assert_eq!(again.expect("due").notice.attempt, 2);
    let views = place.store.deliveries(None, Some("sending"), 10).await.expect("listed");
    assert!(views[0].possibly_twice);
}

async fn finding_changes_nothing_and_pages_get_through_to_the_last(place: &Place) {
    for number in 0..25 {
        // The oldest are the last in the order of ids.
        let create = place.create(&format!("t-{:02}", 24 - number), at(number));
        place.store.create(CreateThread { now: at(number), ..create }).await.expect("created");
    }
    let sweep = async || place.store.sweep(&Serves::default(), at(1000), GRACE, 10).await.expect("swept");
    let first = sweep().await;
    assert_eq!(first.len(), 10);
    assert_eq!(first[0], Due::Thread(ThreadId::parse("t-24").expect("an id")), "oldest first");
    assert_eq!(sweep().await, first);
    let mut seen = BTreeSet::new();
    for seconds in 1000.. {
        let due = sweep().await;
        if due.is_empty() {
            break;
        }
        for due in due {
            let Due::Thread(thread) = due else { panic!("a delivery") };
            place.held(&thread, at(seconds)).await;
            assert!(seen.insert(thread));
        }
    }
    assert_eq!(seen.len(), 25);
}

async fn a_page_holds_the_oldest_of_both_kinds(place: &Place) {
    let due = told(place).await;
    for number in 0..5 {
        place.store.create(place.create(&format!("t-{number}"), at(10 + number))).await.expect("created");
    }
    let page = place.store.sweep(&Serves::default(), at(1000), GRACE, 3).await.expect("swept");
    let threads = ["t-0", "t-1"].map(|id| Due::Thread(ThreadId::parse(id).expect("an id")));
    assert_eq!(page, [vec![due], threads.into()].concat());
}

async fn only_what_is_served_is_found(place: &Place) {
    let mut threads = Vec::new();
    for (number, graph) in ["a", "b", "a"].into_iter().enumerate() {
        let command = place.create(&format!("t-{number}"), at(number.try_into().expect("few")));
        threads.push(Due::Thread(command.thread.clone()));
        place.store.create(CreateThread { graph: graph.to_owned(), ..command }).await.expect("created");
    }
    let of = |graphs: &[&str]| Serves::default().of(Some(graphs.iter().map(|graph| (*graph).to_owned()).collect()));
    let find = async |serves: &Serves| place.store.sweep(serves, at(100), GRACE, 100).await.expect("swept");
    assert_eq!(find(&Serves::default()).await, threads);
    assert_eq!(find(&of(&["a"])).await, [threads[0].clone(), threads[2].clone()]);
    assert_eq!(find(&of(&["b", "c"])).await, [threads[1].clone()]);
    assert_eq!(find(&of(&[])).await, []);
    assert_eq!(find(&Serves::kinds(&[JobKind::Deliver])).await, []);
}
