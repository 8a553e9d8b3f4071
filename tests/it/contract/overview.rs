//! Counting everything.

use std::time::Duration;

use countersign_kernel::ids::ThreadId;
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::prelude::*;
use countersign_kernel::question::Ask;
use countersign_worker::queue::JobKind;
use countersign_worker::store::commands::{CreateThread, DeliveryEnd, RestAs, StepCommit};
use countersign_worker::store::overview::{DueWork, GraphOverview, NAMED, Overview, REQUEST_KINDS};
use serde_json::json;

use super::place::{Place, at, thread};
use crate::support::{ann, bob};

contract!(
    nothing_is_counted_where_nothing_is,
    threads_are_counted_by_flow_and_status,
    work_is_due_until_somebody_begins_it,
    requests_are_counted_by_age_and_other_points_apart,
    what_went_wrong_is_named_the_newest_first,
    messages_are_counted_by_channel_with_what_it_said_last,
    sums_over_some_flows_hold_nothing_of_others,
);

/// A thread of another flow than `g`, which the tests' threads are of.
async fn started(place: &Place, graph: &str, name: &str) -> ThreadId {
    let command = CreateThread { graph: graph.to_owned(), ..place.create(name, at(0)) };
    place.store.create(command).await.expect("created");
    thread(name)
}

async fn look(place: &Place, second: i64) -> Overview {
    place.store.overview(at(second)).await.expect("counted")
}

async fn of(place: &Place, graph: &str, second: i64) -> GraphOverview {
    look(place, second).await.graphs.remove(graph).expect("threads of it")
}

fn question() -> Ask<Decision> {
    approval("Pay?").to(role("manager"))
}

async fn nothing_is_counted_where_nothing_is(place: &Place) {
    let overview = look(place, 0).await;
    assert!(overview.graphs.is_empty() && overview.deliveries.is_empty() && overview.workers.is_empty());
    assert!(overview.queues.iter().all(|queue| queue.waiting + queue.fetched == 0));
    assert_eq!(overview.counts(None), Default::default());
}

async fn threads_are_counted_by_flow_and_status(place: &Place) {
    // More flows than are counted by one statement, the last of them twice.
    for number in 0..30 {
        started(place, &format!("flow-{number:02}"), &format!("t{number}")).await;
    }
    started(place, "flow-29", "more").await;
    place.held(&thread("more"), at(1)).await;
    let overview = look(place, 2).await;
    assert_eq!(overview.graphs.len(), 30);
    let threads = |graph: &str| overview.graphs[graph].threads.clone().into_iter().collect::<Vec<_>>();
    assert_eq!(threads("flow-00"), [("queued".to_owned(), 1)]);
    assert_eq!(threads("flow-29"), [("queued".to_owned(), 1), ("running".to_owned(), 1)]);
    let all = overview.counts(None).threads;
    assert_eq!(all, [("queued".to_owned(), 30), ("running".to_owned(), 1)]);
}

async fn work_is_due_until_somebody_begins_it(place: &Place) {
    let first = place.queued("first").await;
    place.store.create(place.create("second", at(5))).await.expect("created");
    let due = of(place, "g", 10).await.due;
    assert_eq!(due[&JobKind::Advance], DueWork { count: 2, since: at(0) });
    assert!(!due.contains_key(&JobKind::Deliver));
    place.held(&first, at(11)).await;
    assert_eq!(of(place, "g", 12).await.due[&JobKind::Advance], DueWork { count: 1, since: at(5) });
    let jobs = look(place, 12).await.queues;
    assert_eq!(jobs.iter().find(|queue| queue.kind == JobKind::Advance).expect("there").waiting, 2);
}

async fn requests_are_counted_by_age_and_other_points_apart(place: &Place) {
    assert!(REQUEST_KINDS.contains(&question().request().question.kind()));
    let hour = 3_600;
    place.asking("young", question()).await;
    place.asking("older", question()).await;
    // Asked at 2, as all that this place asks; one of them is two hours old then.
    place
        .backend
        .execute(&format!("UPDATE interrupts SET asked_at = {} WHERE thread = 'young'", at(2 * hour).as_micros()))
        .await;
    let thread = place.queued("paused").await;
    let pause = place.point(&thread, 0, PointKind::Pause);
    let container = place.point(&thread, 1, PointKind::Container);
    place.rest(&thread, vec![pause, container], RestAs::Parked).await;

    let graph = of(place, "g", 2 * hour + 60).await;
    let requests = graph.requests().expect("some wait");
    assert_eq!((requests.count, requests.oldest, requests.newest), (2, at(2), at(2 * hour)));
    assert_eq!(requests.younger, [1, 2, 2, 2]);
    let kinds: Vec<(&str, u64)> = graph.points.iter().map(|(kind, open)| (kind.as_str(), open.count)).collect();
    assert_eq!(kinds, [("approval", 2), ("pause", 1)]);
    let counts = place.store.counts().await.expect("counted");
    assert_eq!((counts.requests_open, counts.oldest_open_request), (2, Some(at(2))));
}

async fn what_went_wrong_is_named_the_newest_first(place: &Place) {
    for number in 0..i64::from(NAMED) + 2 {
        let name = format!("held-{number:02}");
        place.store.create(place.create(&name, at(number))).await.expect("created");
        let fence = place.held(&thread(&name), at(20)).await.fence;
        let aside = RestAs::Held { reason: format!("reason {number}") };
        let rest = StepCommit { rest: Some(aside), ..place.commit(&thread(&name), fence, at(21)) };
        place.store.commit(rest).await.expect("held");
    }
    let failed = place.queued("failed").await;
    place.rest(&failed, Vec::new(), RestAs::Failed { error: "a: no".into(), tasks: 1 }).await;

    let graph = of(place, "g", 30).await;
    assert_eq!(graph.threads["held"], u64::from(NAMED) + 2);
    let held: Vec<&str> = graph.held.iter().map(|trouble| trouble.thread.as_str()).collect();
    assert_eq!((held.len(), held[0], held[9]), (10, "held-11", "held-02"));
    assert_eq!((graph.held[0].reason.as_str(), graph.held[0].since), ("reason 11", at(21)));
    assert_eq!((graph.failed.len(), graph.failed[0].reason.as_str()), (1, "a: no"));
    assert_eq!((graph.dead, graph.dead_letters.len()), (0, 0), "nothing gave up");
}

async fn messages_are_counted_by_channel_with_what_it_said_last(place: &Place) {
    let thread = place.queued("t").await;
    let mut point = place.question(&thread, 0, &question().request());
    let (retried, _) = place.tell(&mut point, &ann());
    let (failed, _) = place.tell(&mut point, &bob());
    place.tell(&mut point, &Principal::person("cy@example.com"));
    let id = point.point.id.clone();
    place.rest(&thread, vec![point], RestAs::Parked).await;
    let due = of(place, "g", 10).await.due[&JobKind::Deliver];
    assert_eq!(due, DueWork { count: 3, since: at(2) });

    for (delivery, end) in [
        (retried, DeliveryEnd::Retry { at: at(100), error: "451 later".into(), job: place.job() }),
        (failed, DeliveryEnd::Failed { error: "550 nobody".into() }),
    ] {
        let until = at(10).after(Duration::from_secs(60));
        place.store.take_delivery(&thread, &delivery, None, until, at(10)).await.expect("taken").expect("to do");
        // The first attempt is under way, which is no failure.
        assert_eq!(
            of(place, "g", 10).await.channels["email"].pending,
            3 - u64::from(matches!(end, DeliveryEnd::Failed { .. }))
        );
        place.store.finish_delivery(&thread, &delivery, end, None, at(11)).await.expect("ended");
    }
    let overview = look(place, 12).await;
    let email = &overview.graphs["g"].channels["email"];
    assert_eq!((email.pending, email.retrying, email.failed), (1, 1, 1));
    let last = email.last_failure.as_ref().expect("it failed");
    assert_eq!((&last.thread, &last.interrupt, last.error.as_str()), (&thread, &id, "451 later"));
    assert_eq!(overview.graphs["g"].due[&JobKind::Deliver].count, 1, "the retry is for later");
    assert_eq!((overview.deliveries["pending"], overview.deliveries["failed"]), (2, 1));
    let letter = &overview.graphs["g"].dead_letters[0];
    assert_eq!((overview.graphs["g"].dead, letter.kind.as_str(), letter.died_at), (1, "deliver", at(11)));
    assert_eq!((letter.reason.as_str(), letter.attempts, &letter.thread), ("550 nobody", 1, &thread));
}

async fn sums_over_some_flows_hold_nothing_of_others(place: &Place) {
    place.asking("mine", question()).await;
    started(place, "other", "theirs").await;
    let overview = look(place, 5).await;
    let mine = overview.counts(Some(&["g".to_owned(), "unknown".to_owned()]));
    assert_eq!((mine.threads, mine.requests_open), (vec![("parked".to_owned(), 1)], 1));
    let theirs = overview.counts(Some(&["other".to_owned()]));
    assert_eq!((theirs.threads, theirs.requests_open), (vec![("queued".to_owned(), 1)], 0));
    assert_eq!(theirs.oldest_open_request, None);
    assert_eq!(overview.counts(Some(&[])), Default::default());
    assert_eq!(json!(overview.of(None).map(|(name, _)| name).collect::<Vec<_>>()), json!(["g", "other"]));
}
