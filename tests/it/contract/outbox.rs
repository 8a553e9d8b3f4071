//! Messages that a Redis is to carry: what a store keeps of them.

use std::time::Duration;

use countersign_kernel::question::approval;
use countersign_worker::queue::{JobKind, QueueDepth};
use countersign_worker::store::commands::{Claim, DeliveryEnd, RestAs, Serves};
use countersign_worker::store::{Accepted, Due};
use serde_json::json;

use super::place::{Place, at, thread};
use crate::support::{ann, bob};

/// Runs each named function on each backend, with an outbox.
macro_rules! outbox {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&super::Place::on(crate::contract::sqlite::open_with_outbox().await)).await;
            })+
        }
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&super::Place::on(crate::contract::postgres::open_with_outbox().await)).await;
            })+
        }
    };
}

outbox!(
    a_commit_writes_its_message_into_the_outbox_and_a_refused_one_none,
    whoever_takes_the_work_up_deletes_the_message,
    a_message_for_later_says_when,
    recovery_has_everything_relayed_again,
    messages_whose_work_was_done_otherwise_are_tidied,
    messages_that_went_the_other_way_are_tidied_when_they_are_long_due,
    depths_tell_what_waits_from_what_was_relayed,
);

async fn rows(place: &Place, condition: &str) -> i64 {
    place.backend.count(&format!("outbox WHERE {condition}")).await
}

/// Has all messages relayed `seconds` after the epoch of the tests.
async fn relayed(place: &Place, seconds: i64) {
    let at = at(seconds).as_micros();
    place.backend.execute(&format!("UPDATE outbox SET relayed_at = {at} WHERE relayed_at IS NULL")).await;
}

async fn depth(place: &Place, kind: JobKind) -> QueueDepth {
    let depths = place.store.queues().await.expect("readable");
    assert_eq!(depths.len(), JobKind::ALL.len());
    depths.into_iter().find(|depth| depth.kind == kind).expect("each kind")
}

async fn a_commit_writes_its_message_into_the_outbox_and_a_refused_one_none(place: &Place) {
    let Ok(Accepted::Committed(Some(message))) = place.store.create(place.create("t", at(5))).await else {
        panic!("not created")
    };
    let now = at(5).as_micros();
    let row = format!(
        "id = '{}' AND thread = 't' AND kind = 'advance' AND subject IS NULL AND run_at = {now} AND created_at = {now}
         AND relayed_at IS NULL",
        message.id
    );
    assert_eq!(rows(place, &row).await, 1);
    place.store.create(place.create("t", at(6))).await.expect_err("it is there");
    assert_eq!(rows(place, "true").await, 1);
    assert_eq!(place.backend.jobs().await, Vec::<String>::new(), "the database's own queue is not used");
}

async fn whoever_takes_the_work_up_deletes_the_message(place: &Place) {
    for (name, relayed_before) in [("a", false), ("b", true)] {
        let Ok(Accepted::Committed(Some(message))) = place.store.create(place.create(name, at(0))).await else {
            panic!("not created")
        };
        if relayed_before {
            relayed(place, 1).await;
        }
        let thread = place.held(&thread(name), at(2)).await.thread;
        assert_eq!(rows(place, "true").await, 1, "taken up without its message");
        // It comes, and finds nothing to do.
        let claim = Claim { jobs: vec![message.id], ..place.claim(&thread, at(3)) };
        place.store.claim(claim).await.expect("looked");
        assert_eq!(rows(place, "true").await, 0);
    }
}

async fn a_message_for_later_says_when(place: &Place) {
    let thread = place.queued("t").await;
    let mut point = place.question(&thread, 0, &approval("Pay?").request());
    let (delivery, _) = place.tell(&mut point, &bob());
    place.rest(&thread, vec![point], RestAs::Parked).await;
    place.backend.execute("DELETE FROM outbox").await;
    place.store.take_delivery(&thread, &delivery, None, at(50), at(4)).await.expect("taken").expect("due");
    let end = DeliveryEnd::Retry { at: at(10), error: "busy".into(), job: place.job() };
    place.store.finish_delivery(&thread, &delivery, end, None, at(5)).await.expect("recorded");
    let later = format!("kind = 'deliver' AND subject = '{delivery}' AND run_at = {}", at(10).as_micros());
    assert_eq!(rows(place, &later).await, 1);
}

async fn recovery_has_everything_relayed_again(place: &Place) {
    place.queued("a").await;
    relayed(place, 1).await;
    place.queued("b").await;
    place.store.recover(at(2)).await.expect("recovered");
    assert_eq!(rows(place, "relayed_at IS NULL").await, 2);
}

async fn messages_whose_work_was_done_otherwise_are_tidied(place: &Place) {
    let (waits, done) = (place.queued("waits").await, place.queued("done").await);
    let mut point = place.question(&done, 0, &approval("Pay?").request());
    let (delivery, _) = place.tell(&mut point, &bob());
    place.rest(&done, vec![point], RestAs::Parked).await;
    let delivers = rows(place, "kind = 'deliver'").await;
    relayed(place, 10).await;
    place.store.tidy(at(69)).await.expect("tidied");
    assert_eq!(rows(place, "true").await, 2 + delivers, "not for a minute");
    place.store.tidy(at(71)).await.expect("tidied");
    assert_eq!(rows(place, &format!("thread = '{waits}'")).await, 1, "its work waits");
    assert_eq!(rows(place, &format!("thread = '{done}' AND kind = 'advance'")).await, 0);
    assert_eq!(rows(place, "kind = 'deliver'").await, delivers, "nobody was told yet");
    place.store.take_delivery(&done, &delivery, None, at(100), at(72)).await.expect("taken").expect("due");
    let end = DeliveryEnd::Sent { detail: "ok".into() };
    place.store.finish_delivery(&done, &delivery, end, None, at(73)).await.expect("recorded");
    place.store.tidy(at(80)).await.expect("tidied");
    assert_eq!(rows(place, "kind = 'deliver'").await, 0);
    // By now the sweep has long found it.
    place.store.tidy(at(601)).await.expect("tidied");
    assert_eq!(rows(place, "true").await, 0);
    let due = place.store.sweep(&Serves::default(), at(700), Duration::ZERO, 10).await.expect("swept");
    assert_eq!(due, [Due::Thread(waits)]);
}

async fn messages_that_went_the_other_way_are_tidied_when_they_are_long_due(place: &Place) {
    let due = at(0).as_micros() / 1_000_000;
    for (id, due) in [("01ARZ3NDEKTSV4RRFFQ69G5FAV", due), ("01ARZ3NDEKTSV4RRFFQ69G5FAW", due + 3600)] {
        place.backend.execute(&place.backend.inserts_job(id, due)).await;
    }
    place.store.tidy(at(599)).await.expect("tidied");
    assert_eq!(place.backend.jobs().await.len(), 2);
    place.store.tidy(at(601)).await.expect("tidied");
    assert_eq!(place.backend.jobs().await, ["01ARZ3NDEKTSV4RRFFQ69G5FAW"]);
}

async fn depths_tell_what_waits_from_what_was_relayed(place: &Place) {
    let empty = depth(place, JobKind::Advance).await;
    assert_eq!((empty.waiting, empty.fetched, empty.oldest_run_at), (0, 0, None));
    place.store.create(place.create("a", at(1))).await.expect("created");
    place.store.create(place.create("b", at(2))).await.expect("created");
    relayed(place, 5).await;
    place.store.create(place.create("c", at(7))).await.expect("created");
    let advance = depth(place, JobKind::Advance).await;
    assert_eq!((advance.waiting, advance.fetched), (1, 2));
    assert_eq!(advance.oldest_run_at, Some(at(1)));
    assert_eq!((advance.oldest_waiting_run_at, advance.oldest_fetched_at), (Some(at(7)), Some(at(5))));
    assert_eq!(depth(place, JobKind::Deliver).await.waiting, 0);
    let (_, id) = place.asking("d", approval("Pay?")).await;
    place.store.record_vote(place.vote(&id, &ann(), &["approver"], json!({"approved": true}))).await.expect("accepted");
    assert!(depth(place, JobKind::Advance).await.waiting >= 2);
}
