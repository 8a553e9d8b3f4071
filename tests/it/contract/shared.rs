//! Two processes on one Postgres database, at the same instant.

use std::sync::Arc;

use countersign_kernel::ids::ThreadId;
use countersign_kernel::machine::{Resume, TaskRecord};
use countersign_kernel::principal::{Principal, role};
use countersign_kernel::question::approval;
use countersign_worker::store::commands::{Claimed, Fence, Flush, IdempotencyEntry, RestAs};
use countersign_worker::store::{Accepted, Refusal, Store, StoreError};
use futures_util::future::{join_all, try_join_all};
use serde_json::json;

use super::place::{Place, at, thread};
use super::postgres;
use crate::support::DEADLINE;

/// Commands are made by the place; either store takes them.
async fn two() -> (Place, [Arc<dyn Store>; 2]) {
    let (backend, other) = postgres::open_twice().await;
    let place = Place::on(backend);
    let stores = [Arc::clone(&place.store), other];
    (place, stores)
}

/// What happens within reason: whoever waits in a circle does not.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.expect("nobody waits for ever")
}

/// Whether the server had to end a circle, which takes it a second each.
async fn deadlocks(place: &Place) -> i64 {
    place.backend.count("pg_stat_database WHERE datname = current_database() AND deadlocks > 0").await
}

fn entry(key: &str, body: &str) -> Option<IdempotencyEntry> {
    let word = |text: &str| text.to_owned();
    Some(IdempotencyEntry { scope: word("s"), key: word(key), request_hash: word("h"), status: 202, body: word(body) })
}

/// The bodies of the replies: of whoever did the work, and of those who were
/// told what had been done.
fn replies(accepted: &[Accepted]) -> (usize, Vec<&str>) {
    let told = accepted.iter().filter_map(|accepted| match accepted {
        Accepted::Replayed { body, .. } => Some(body.as_str()),
        Accepted::Committed(_) => None,
    });
    let told: Vec<_> = told.collect();
    (accepted.len() - told.len(), told)
}

#[tokio::test]
async fn of_claims_by_two_processes_one_holds() {
    let (place, stores) = two().await;
    for round in 0..20 {
        let thread = place.queued(&format!("t-{round}")).await;
        let claims = (0..10).map(|number| stores[number % 2].claim(place.claim(&thread, at(1))));
        let claimed = soon(try_join_all(claims)).await.expect("no failure");
        assert_eq!(claimed.iter().filter(|claimed| matches!(claimed, Claimed::Held(_))).count(), 1, "{claimed:?}");
        assert_eq!(place.store.load(&thread).await.expect("there").fence, Fence(1));
    }
}

#[tokio::test]
async fn of_twenty_people_who_answer_two_processes_one_decides() {
    let (place, stores) = two().await;
    for round in 0..5 {
        let (thread, id) = place.asking(&format!("t-{round}"), approval("Pay?").to(role("manager"))).await;
        let votes = (0..20).map(|number| {
            let who = Principal::person(&format!("p{number}@example.com"));
            let vote = place.vote(&id, &who, &["manager"], json!({"approved": number % 3 == 0}));
            stores[number % 2].record_vote(vote)
        });
        let mut decided = 0;
        for voted in soon(join_all(votes)).await {
            match voted {
                Ok(voted) => decided += u32::from(voted.decided),
                Err(StoreError::Refused(Refusal::AlreadyAnswered { .. })) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(decided, 1);
        assert_eq!(place.held(&thread, at(11)).await.wake.answers.len(), 1);
        assert_eq!(place.actions(&thread).await, ["started", "decided"]);
        assert_eq!(place.store.verify_audit(&thread).await.expect("verified"), None);
    }
    assert_eq!(place.backend.count("answers").await, 5);
}

#[tokio::test]
async fn a_request_that_comes_to_two_processes_is_done_once() {
    let (place, stores) = two().await;
    for round in 0..10 {
        let key = format!("k-{round}");
        // Each process has made up an id of its own for the thread.
        let creates = (0..6).map(|number| {
            let name = format!("t-{round}-{number}");
            let create = place.create(&name, at(1));
            stores[number % 2]
                .create(countersign_worker::store::commands::CreateThread { idempotency: entry(&key, &name), ..create })
        });
        let accepted = soon(try_join_all(creates)).await.expect("none is refused");
        let (done, told) = replies(&accepted);
        assert_eq!((done, told.len()), (1, 5), "{accepted:?}");
        assert!(place.store.thread(&thread(told[0])).await.is_ok() && told.iter().all(|body| *body == told[0]));
    }
    assert_eq!((place.backend.count("threads").await, place.backend.jobs().await.len()), (10, 10));

    for round in 0..10 {
        let thread = thread(&format!("failed-{round}"));
        place.queued(thread.as_str()).await;
        place.rest(&thread, Vec::new(), RestAs::Failed { error: "a: no".into(), tasks: 1 }).await;
        let resumes = (0..6).map(|number| {
            let retry = Resume { retry: true, ..Resume::default() };
            let resume = place.resume(&thread, retry);
            stores[number % 2].resume(resume, entry(&format!("r-{round}"), "resumed"))
        });
        let accepted = soon(try_join_all(resumes)).await.expect("none is refused");
        assert_eq!(replies(&accepted).0, 1, "{accepted:?}");
        assert_eq!(place.store.thread(&thread).await.expect("there").runs.len(), 2);
    }
}

#[tokio::test]
async fn of_starts_under_one_id_in_two_processes_one_is_accepted() {
    let (place, stores) = two().await;
    for round in 0..20 {
        let creates = (0..6).map(|number| stores[number % 2].create(place.create(&format!("t-{round}"), at(1))));
        let mut accepted = 0;
        for created in soon(join_all(creates)).await {
            match created {
                Ok(_) => accepted += 1,
                Err(StoreError::Refused(Refusal::ThreadExists { same_input: true, .. })) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(accepted, 1);
    }
    let counts = (place.backend.count("threads").await, place.backend.count("runs").await);
    assert_eq!((counts, place.backend.jobs().await.len()), ((20, 20), 20));
}

/// Groups of starts in opposite orders: there is no row yet to be locked.
#[tokio::test]
async fn starts_under_the_same_ids_in_opposite_orders_do_not_wait_in_a_circle() {
    let (place, stores) = two().await;
    for round in 0..5 {
        let creates = (0..100).flat_map(|number| {
            [(0, number), (1, 99 - number)]
                .map(|(store, number)| stores[store].create(place.create(&format!("t-{round}-{number:02}"), at(1))))
        });
        let created = soon(join_all(creates)).await;
        let refused = |created: &Result<_, _>| {
            matches!(created, Err(StoreError::Refused(Refusal::ThreadExists { same_input: true, .. })))
        };
        assert_eq!(created.iter().filter(|created| created.is_ok()).count(), 100);
        assert_eq!(created.iter().filter(|created| refused(created)).count(), 100, "{created:?}");
    }
    assert_eq!(place.backend.count("threads").await, 500);
    assert_eq!(deadlocks(&place).await, 0);
}

async fn held(place: &Place, count: usize) -> Vec<(ThreadId, Fence)> {
    let mut held = Vec::new();
    for number in 0..count {
        let thread = place.queued(&format!("t-{number:03}")).await;
        let fence = place.held(&thread, at(1)).await.fence;
        held.push((thread, fence));
    }
    held
}

#[tokio::test]
async fn groups_of_many_threads_in_opposite_orders_do_not_wait_in_a_circle() {
    let (place, stores) = two().await;
    let there = held(&place, 40).await;
    let back: Vec<_> = there.iter().rev().cloned().collect();
    let work = (0..200).flat_map(|number| {
        let orders = [&there, &back];
        [0, 1].map(|side| {
            let (store, order) = (Arc::clone(&stores[side]), orders[side]);
            let (leases, (thread, fence)) = (order.clone(), order[number % order.len()].clone());
            async move {
                if number % 5 == 0 {
                    let lost = store.renew(leases, at(100)).await?;
                    assert_eq!(lost, []);
                    return Ok(());
                }
                let tasks = vec![(format!("{side}-{number}"), TaskRecord::default())];
                store.flush(Flush { thread, fence, seq: 0, tasks, events: Vec::new(), now: at(2) }).await
            }
        })
    });
    let tidying = async {
        for second in 0..20 {
            stores[0].forget_events(at(-1), 10).await?;
            stores[1].tidy(at(second)).await?;
        }
        Ok::<_, StoreError>(())
    };
    let (worked, tidied) = soon(async { tokio::join!(join_all(work), tidying) }).await;
    tidied.expect("no failure");
    worked.into_iter().collect::<Result<Vec<()>, StoreError>>().expect("no failure");
    assert_eq!(place.backend.count("tasks").await, 320, "every write is there");
    assert_eq!(deadlocks(&place).await, 0);
}
