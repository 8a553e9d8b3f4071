//! Schedules and their ticks: each comes once, in the transaction that starts its
//! thread.

use std::time::Duration;

use countersign_kernel::time::Timestamp;
use countersign_worker::store::Accepted;
use countersign_worker::store::commands::{CatchUp, NextTick, ScheduleSpec, Tick};
use futures_util::future::join_all;
use serde_json::json;

use super::place::{Place, at};
use crate::support::operator;

contract!(
    of_many_who_find_a_tick_one_starts_its_thread,
    ticks_of_many_schedules_at_once_all_come,
    a_tick_that_starts_nothing_moves_the_schedule_on,
    a_paused_schedule_does_not_tick,
    a_tick_that_came_before_starts_nothing_again,
);

fn spec(name: &str) -> ScheduleSpec {
    ScheduleSpec {
        name: name.to_owned(),
        graph: "g".into(),
        input: json!({"n": 1}),
        expression: "* * * * *".into(),
        zone: "UTC".into(),
        catch_up: CatchUp::All,
        catch_within: Duration::from_secs(3600),
        jitter: Duration::from_secs(5),
        paused: false,
    }
}

fn next(seconds: i64) -> NextTick {
    NextTick { instant: at(seconds), at: at(seconds) }
}

async fn put(place: &Place, name: &str) {
    place.store.put_schedule(spec(name), next(60), at(0)).await.expect("put");
}

/// The tick at `at(60)`, as found with `expected`; the next is at `at(120)`.
fn tick(place: &Place, name: &str, expected: Timestamp) -> Tick {
    Tick {
        schedule: name.to_owned(),
        instant: at(60),
        expected: Some(expected),
        next: next(120),
        thread: Some(Box::new(place.create(&format!("{name}-60"), at(61)))),
        error: None,
        by_hand: None,
        now: at(61),
    }
}

async fn of_many_who_find_a_tick_one_starts_its_thread(place: &Place) {
    put(place, "s").await;
    let (due, later) = place.store.due_schedules(at(59)).await.expect("looked");
    assert_eq!((due.len(), later), (0, Some(at(60))));
    let (due, later) = place.store.due_schedules(at(60)).await.expect("looked");
    assert_eq!((due.len(), due[0].spec.clone(), later), (1, spec("s"), None));

    let ticks = (0..20).map(|_| place.store.tick(tick(place, "s", at(60))));
    let ticked: Vec<_> = join_all(ticks).await.into_iter().collect::<Result<_, _>>().expect("no fault");
    assert_eq!(ticked.iter().filter(|ticked| matches!(ticked, Some(Accepted::Committed(Some(_))))).count(), 1);
    assert_eq!(ticked.iter().filter(|ticked| ticked.is_none()).count(), 19);
    assert_eq!((place.backend.count("ticks").await, place.backend.count("threads").await), (1, 1));
    let view = place.store.schedules().await.expect("listed").remove(0);
    assert_eq!((view.next, view.last_tick), (next(120), Some(at(60))));
    assert_eq!(view.last_thread.as_ref().map(|thread| thread.as_str()), Some("s-60"));
    let job = place.held(&super::place::thread("s-60"), at(62)).await;
    assert_eq!(job.graph, "g");
}

async fn ticks_of_many_schedules_at_once_all_come(place: &Place) {
    let names: Vec<String> = (0..12).map(|number| format!("s{number:02}")).collect();
    for name in &names {
        put(place, name).await;
    }
    // Twice each, in opposite orders.
    let ticks = names.iter().chain(names.iter().rev()).map(|name| place.store.tick(tick(place, name, at(60))));
    let ticked: Vec<_> = join_all(ticks).await.into_iter().collect::<Result<_, _>>().expect("nobody waits in a circle");
    assert_eq!(ticked.iter().flatten().count(), 12);
    assert_eq!((place.backend.count("ticks").await, place.backend.count("threads").await), (12, 12));
}

async fn a_tick_that_starts_nothing_moves_the_schedule_on(place: &Place) {
    put(place, "s").await;
    let faulty = Tick { thread: None, error: Some("the input does not fit".into()), ..tick(place, "s", at(60)) };
    assert_eq!(place.store.tick(faulty).await.expect("no fault"), Some(Accepted::Committed(None)));
    let view = place.store.schedules().await.expect("listed").remove(0);
    assert_eq!(
        (view.next, view.last_tick, view.last_error.as_deref()),
        (next(120), None, Some("the input does not fit"))
    );
    let good = Tick { next: next(180), ..tick(place, "s", at(120)) };
    assert!(place.store.tick(good).await.expect("no fault").is_some());
    assert_eq!(place.store.schedules().await.expect("listed")[0].last_error, None);
}

async fn a_paused_schedule_does_not_tick(place: &Place) {
    put(place, "s").await;
    assert!(place.store.pause_schedule("s", true, next(999), at(1)).await.expect("paused"));
    assert!(!place.store.pause_schedule("unknown", true, next(999), at(1)).await.expect("no fault"));
    assert_eq!(place.store.due_schedules(at(99)).await.expect("looked"), (Vec::new(), None));
    assert_eq!(place.store.tick(tick(place, "s", at(60))).await.expect("no fault"), None);
    assert_eq!(place.backend.count("threads").await, 0);
    // By hand it starts all the same, and moves nothing.
    let by_hand = Tick { expected: None, by_hand: Some(operator()), ..tick(place, "s", at(60)) };
    assert!(place.store.tick(by_hand).await.expect("no fault").is_some());
    let view = place.store.schedules().await.expect("listed").remove(0);
    assert_eq!((view.spec.paused, view.next), (true, next(60)));
    assert!(place.store.pause_schedule("s", false, next(300), at(200)).await.expect("goes on"));
    assert_eq!(place.store.schedules().await.expect("listed")[0].next, next(300));
}

async fn a_tick_that_came_before_starts_nothing_again(place: &Place) {
    put(place, "s").await;
    place.store.tick(tick(place, "s", at(60))).await.expect("no fault");
    let other = ScheduleSpec { expression: "0 * * * *".into(), ..spec("s") };
    place.store.put_schedule(other, next(60), at(62)).await.expect("changed, and put back");
    let again = place.store.tick(tick(place, "s", at(60))).await.expect("no fault");
    assert_eq!(again, Some(Accepted::Committed(None)));
    assert_eq!((place.backend.count("ticks").await, place.backend.count("threads").await), (1, 1));
    assert_eq!(place.store.keep_schedules(&[]).await.expect("forgotten"), 1);
    assert_eq!(place.backend.count("ticks").await, 1, "what came stays on record");
}
