//! The program with a Redis that carries jobs: there, away, emptied, and set up
//! badly.

use serde_json::{Value, json};

use super::kit::{Place, eventually};
use super::postgres::worker;
use crate::support::postgres::Database;
use crate::support::redis::{RedisPlace, RedisServer};

fn yes() -> Value {
    json!({"approved": true})
}

/// A folder whose program works on this database and sends jobs through this
/// Redis.
fn on(database: &Database, redis: &RedisPlace) -> Place {
    Place::new()
        .with("COUNTERSIGN_STORE_URL", database.url())
        .with("COUNTERSIGN_QUEUE_URL", &redis.url)
        .with("COUNTERSIGN_QUEUE_PREFIX", &redis.prefix)
        .with("COUNTERSIGN_WORKER_LEASE_SECONDS", "2")
}

/// Waits until the program has said this.
async fn says(place: &Place, what: &str) {
    eventually(&format!("it says `{what}`"), || async {
        let log = place.log();
        if log.contains(what) { Ok(()) } else { Err(log) }
    })
    .await;
}

#[tokio::test]
async fn an_expense_is_asked_answered_and_paid_by_processes_of_their_own() {
    let (database, redis) = (Database::fresh().await, RedisPlace::fresh());
    let place = on(&database, &redis);
    let server = place.up().await;
    let queue = server.shown["queue"].as_str().expect("where jobs are");
    assert!(queue.starts_with("redis://127.0.0.1:"), "{queue}");
    let (advancing, delivering) =
        (worker(&place, &["--queues", "advance"]).await, worker(&place, &["--queues", "deliver"]).await);
    for _ in 0..3 {
        let thread = server.api.expense("420.00").await;
        let question = server.api.question(&thread).await;
        let delivered = server.api.delivered(&question).await;
        assert!(delivered.iter().all(|delivery| delivery["status"] == "sent"), "{delivered:?}");
        server.api.answer(&question, yes()).await.is(202);
        let done = server.api.rested(&thread).await;
        assert_eq!((&done["status"], &done["state"]["outcome"]), (&json!("succeeded"), &json!("paid")));
        server.api.audited(&thread).await;
    }
    assert_eq!(place.ledger().await.len(), 3, "one effect each");
    Place::kill(advancing).await;
    Place::kill(delivering).await;
    let thread = server.api.expense("48.20").await;
    assert_eq!(server.api.rested(&thread).await["status"], "succeeded", "whoever is left does it");
}

#[tokio::test]
async fn without_redis_it_serves_and_says_so_and_goes_over_to_it_by_itself() {
    let database = Database::fresh().await;
    let mut redis = RedisServer::start().await;
    redis.kill().await;
    let place = on(&database, &redis.place());
    let server = place.up().await;
    says(&place, "Redis does not do its part").await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    redis.start_again().await;
    says(&place, "Redis answers again").await;
    server.api.answer(&question, yes()).await.is(202);
    assert_eq!(server.api.rested(&thread).await["state"]["outcome"], "paid");
    redis.flush().await;
    let thread = server.api.expense("48.20").await;
    assert_eq!(server.api.rested(&thread).await["status"], "succeeded");
    let log = place.log();
    assert_eq!(log.matches("Redis does not do its part").count(), 1, "it is said once: {log}");
}

#[tokio::test]
async fn a_redis_that_throws_keys_away_is_warned_of_and_its_password_is_not_shown() {
    let database = Database::fresh().await;
    let redis = RedisServer::with(&["--maxmemory-policy", "allkeys-lru", "--requirepass", "hunter2"]).await;
    let place = on(&database, &redis.place());
    let server = place.up().await;
    says(&place, "set maxmemory-policy to noeviction").await;
    let thread = server.api.expense("48.20").await;
    assert_eq!(server.api.rested(&thread).await["status"], "succeeded");
    assert!(!place.log().contains("hunter2") && !server.shown.to_string().contains("hunter2"));
    server.kill().await;

    // The wrong password.
    let place = on(&database, &RedisPlace { url: redis.url().replace("hunter2", "hunter3"), ..redis.place() });
    let server = place.up().await;
    says(&place, "Redis does not do its part").await;
    assert!(!place.log().contains("hunter"), "{}", place.log());
    let thread = server.api.expense("48.20").await;
    assert_eq!(server.api.rested(&thread).await["status"], "succeeded");
}

#[tokio::test]
async fn a_queue_that_is_neither_the_stores_nor_a_redis_is_refused() {
    for (url, says) in [
        ("postgres://ann:hunter2@db/others", "jobs that are in a database are in that of `store.url`"),
        ("amqp://ann:hunter2@mq", "no queue of this kind is known"),
        ("redis://ann:hunter2@cache/x", "this is no URL of a Redis"),
    ] {
        let place = Place::new().with("COUNTERSIGN_QUEUE_URL", url);
        let ended = place.run(&["up"]).await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(says) && !format!("{ended:?}").contains("hunter2"), "{ended:?}");
    }
}
