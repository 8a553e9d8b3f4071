//! Which processes are there.

use std::time::Duration;

use countersign_kernel::time::Timestamp;
use countersign_worker::queue::JobKind;
use countersign_worker::store::commands::Serves;
use countersign_worker::store::workers::{Heartbeat, Numbers};
use countersign_worker::tally::Count;

use super::place::{Place, at};

contract!(
    who_says_so_is_listed_with_what_they_said_last,
    who_stops_is_listed_no_more,
    who_went_away_without_a_word_is_lost_and_forgotten_after_an_hour,
    what_a_newer_build_does_beyond_this_one_is_no_fault,
    a_process_that_has_the_file_alone_forgets_those_before,
);

fn beat(name: &str) -> Heartbeat {
    Heartbeat {
        name: name.into(),
        host: "alpha".into(),
        pid: 4711,
        version: "0.1.0".into(),
        pages: true,
        serves: Serves::default(),
        started_at: at(0),
        every: Duration::from_secs(5),
        running: 1,
        waiting: 0,
        done: Numbers::new(),
        last_minute: Numbers::new(),
    }
}

async fn listed(place: &Place) -> Vec<(String, Timestamp)> {
    let workers = place.store.workers().await.expect("listed");
    workers.into_iter().map(|worker| (worker.beat.name, worker.seen_at)).collect()
}

async fn who_says_so_is_listed_with_what_they_said_last(place: &Place) {
    place.store.beat(beat("one"), at(1)).await.expect("said");
    let some = Heartbeat {
        serves: Serves::kinds(&[JobKind::Deliver]).of(Some(vec!["expense".into()])),
        pages: false,
        running: 7,
        waiting: 20_000,
        done: [(Count::Answers.name().to_owned(), u64::from(u32::MAX) + 1)].into(),
        last_minute: [(Count::Answers.name().to_owned(), 3), ("of a later build".to_owned(), 4)].into(),
        ..beat("two")
    };
    place.store.beat(some.clone(), at(2)).await.expect("said");
    place.store.beat(beat("one"), at(6)).await.expect("said again");

    let workers = place.store.workers().await.expect("listed");
    assert_eq!(workers.iter().map(|worker| worker.seen_at).collect::<Vec<_>>(), [at(6), at(2)]);
    assert_eq!((&workers[0].beat, &workers[1].beat), (&beat("one"), &some));
    assert_eq!((workers[1].last_minute(Count::Answers), workers[1].last_minute(Count::Commits)), (3, 0));
    assert_eq!(place.store.overview(at(7)).await.expect("counted").workers, workers);
}

async fn who_stops_is_listed_no_more(place: &Place) {
    place.store.beat(beat("one"), at(1)).await.expect("said");
    place.store.beat(beat("two"), at(1)).await.expect("said");
    place.store.leave("one").await.expect("left");
    place.store.leave("nobody").await.expect("no fault");
    assert_eq!(listed(place).await, [("two".to_owned(), at(1))]);
}

async fn who_went_away_without_a_word_is_lost_and_forgotten_after_an_hour(place: &Place) {
    place.store.beat(beat("one"), at(0)).await.expect("said");
    let lost = place.store.workers().await.expect("listed").remove(0);
    assert!(!lost.is_lost(at(15)) && lost.is_lost(at(16)));
    place.store.beat(beat("two"), at(3_600)).await.expect("said");
    assert_eq!(listed(place).await.len(), 2);
    place.store.beat(beat("two"), at(3_601)).await.expect("said");
    assert_eq!(listed(place).await, [("two".to_owned(), at(3_601))]);
}

async fn what_a_newer_build_does_beyond_this_one_is_no_fault(place: &Place) {
    place.store.beat(beat("one"), at(0)).await.expect("said");
    assert_eq!(place.backend.execute(r#"UPDATE processes SET kinds = '["advance", "dream"]'"#).await, 1);
    let workers = place.store.workers().await.expect("listed");
    assert_eq!(workers[0].beat.serves.kinds, [JobKind::Advance]);
}

async fn a_process_that_has_the_file_alone_forgets_those_before(place: &Place) {
    place.store.beat(beat("one"), at(0)).await.expect("said");
    place.store.recover(at(1)).await.expect("recovered");
    assert_eq!(listed(place).await, []);
}
