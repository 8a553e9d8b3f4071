//! The program on Postgres: one process, several on one database, and what is
//! said when the database is not there.

use std::sync::Arc;

use countersign_flows::InMemoryLedger;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::principal::Principal;
use countersign_worker::engine::{Engine, EngineConfig, Parts, Started};
use countersign_worker::store::{SqlStore, Store as _};
use countersign_worker::system::{SystemClock, SystemIds};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use super::crash::{free, hold};
use super::kit::{DEADLINE, Ended, Place, eventually, expense};
use crate::support::postgres::Database;

fn yes() -> Value {
    json!({"approved": true})
}

/// A folder whose program works on this database, and gives up on a dead
/// process soon.
pub(super) fn on(database: &Database) -> Place {
    Place::new().with("COUNTERSIGN_STORE_URL", database.url()).with("COUNTERSIGN_WORKER_LEASE_SECONDS", "2")
}

/// Starts `countersign worker` and waits until it works.
pub(super) async fn worker(place: &Place, words: &[&str]) -> Child {
    let mut child = place.start(&[&["worker"], words].concat());
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let line = tokio::time::timeout(DEADLINE, lines.next_line()).await.expect("in time").expect("readable");
    let shown: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
    assert!(shown["queues"].is_array(), "{shown}");
    child
}

/// A thread's status, whoever works on it.
async fn status(store: &SqlStore, thread: &str) -> String {
    let thread = ThreadId::parse(thread).expect("an id");
    store.look(&thread).await.expect("readable").0.summary.status
}

async fn reaches(store: &SqlStore, thread: &str, wanted: &str) {
    eventually(&format!("{thread} is {wanted}"), || async {
        let status = status(store, thread).await;
        if status == wanted { Ok(()) } else { Err(status) }
    })
    .await;
}

async fn execute(database: &Database, statement: &'static str) {
    let mut connection = PgConnection::connect(database.url()).await.expect("a connection");
    sqlx::raw_sql(statement).execute(&mut connection).await.expect(statement);
    connection.close().await.expect("closed");
}

#[tokio::test]
async fn an_expense_is_asked_answered_and_paid() {
    let database = Database::fresh().await;
    let place = on(&database);
    // Without a server a command works on the database itself.
    let started = place.run(&["run", "expense", "--input", &expense("420.00").to_string()]).await;
    assert_eq!((started.code, &started.line()["status"]), (Some(0), &json!("parked")), "{started:?}");
    let thread = started.line()["thread_id"].as_str().expect("an id").to_owned();
    let server = place.up().await;
    assert!(server.shown["store"].as_str().is_some_and(|store| store.starts_with("postgres://")), "{}", server.shown);
    let question = server.api.question(&thread).await;
    let delivered = server.api.delivered(&question).await;
    assert!(delivered.iter().all(|delivery| delivery["status"] == "sent"), "{delivered:?}");
    assert_eq!(place.mails().len(), 1);
    let checked = place.run(&["check"]).await;
    assert_eq!((checked.code, &checked.line()["threads"]), (Some(0), &json!(1)), "{checked:?}");
    server.api.answer(&question, yes()).await.is(202);
    let done = server.api.rested(&thread).await;
    assert_eq!((&done["status"], &done["state"]["outcome"]), (&json!("succeeded"), &json!("paid")));
    assert_eq!(place.ledger().await.len(), 1);
    server.api.audited(&thread).await;
    assert!(!place.data("countersign.db").exists(), "nothing is kept in the folder");
}

#[tokio::test]
async fn what_one_process_asks_another_takes_the_answer_to() {
    let database = Database::fresh().await;
    let one = on(&database);
    let asking = one.up().await;
    let secret = one.data("secret.json");
    let two = on(&database).with("COUNTERSIGN_LINKS_SECRET_FILE", secret.to_str().expect("UTF-8"));
    let answering = two.up().await;
    assert_ne!(asking.token, answering.token, "each folder has its own");
    let thread = asking.api.expense("420.00").await;
    let question = asking.api.question(&thread).await;
    asking.api.delivered(&question).await;
    let mails: Vec<_> = one.mails().into_iter().chain(two.mails()).collect();
    assert_eq!(mails.len(), 1, "one of them told");
    let page = answering.api.with_token(None).get(&mails[0].path()).await;
    assert_eq!(page.status, 200, "a link works at both: {}", page.text);

    let watching = one.start(&["threads", "watch", &thread, "--follow"]);
    answering.api.answer(&question, yes()).await.is(202);
    let watched = Ended::of(watching).await;
    assert_eq!(watched.code, Some(0), "{watched:?}");
    assert!(watched.stdout.contains("succeeded"), "what the other process did is told here: {watched:?}");
    let done = asking.api.rested(&thread).await;
    assert_eq!((&done["status"], &done["state"]["outcome"]), (&json!("succeeded"), &json!("paid")));
    assert_eq!(one.ledger().await.len() + two.ledger().await.len(), 1, "one effect");
    asking.api.audited(&thread).await;

    // A folder that is gone takes its token with it only if somebody says so.
    let tokens = asking.api.get("tokens").await.is(200);
    assert_eq!(tokens.as_array().map(Vec::len), Some(2), "{tokens}");
    let revoked = format!("tokens/{}", tokens[0]["name"].as_str().expect("a name"));
    asking.api.send(reqwest::Method::DELETE, &revoked, &[], Vec::new()).await.is(204);
    let statuses = (asking.api.get("tokens").await.status, answering.api.get("tokens").await.status);
    assert!(matches!(statuses, (200, 401) | (401, 200)), "{statuses:?}");
}

#[tokio::test]
async fn killed_in_the_middle_of_a_node_another_process_goes_on() {
    let database = Database::fresh().await;
    let place = on(&database);
    let server = place.up().await;
    let ledger = hold(&place, "ledger.db").await;
    let thread = server.api.expense("48.20").await;
    let store = SqlStore::connect(database.url(), 2).await.expect("a store");
    reaches(&store, &thread, "running").await;
    let _worker = worker(&place, &[]).await;
    server.kill().await;
    free(ledger).await;
    reaches(&store, &thread, "succeeded").await;
    let booked = place.ledger().await;
    assert_eq!(booked.len(), 1, "one effect: {booked:?}");
    store.close().await;
    let server = place.up().await;
    assert_eq!(server.api.rested(&thread).await["state"]["outcome"], "paid");
    server.api.audited(&thread).await;
}

#[tokio::test]
async fn a_worker_does_the_jobs_of_its_queues_and_leaves_the_others() {
    let database = Database::fresh().await;
    let place = on(&database);
    let refused = place.run(&["worker"]).await;
    assert_eq!(refused.code, Some(6), "{refused:?}");
    assert!(refused.stderr.contains("links.secret_file"), "it makes no keys of its own: {refused:?}");
    assert_eq!(place.run(&["threads", "list"]).await.code, Some(0), "which makes them");

    // Starts threads, and runs none.
    let store = SqlStore::connect(database.url(), 4).await.expect("a store");
    let engine = Engine::new(Parts {
        store: Arc::new(store.clone()),
        graphs: countersign_flows::all(Arc::new(InMemoryLedger::default())).expect("sound"),
        directory: Arc::new(countersign::config::Config::default().directory()),
        channels: Vec::new(),
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        worker: "starts".to_owned(),
        config: EngineConfig::default(),
    });
    let start = async || {
        let by = Principal::service("test");
        match engine.start("expense", &expense("420.00"), None, &by).await.expect("started") {
            Started::New { thread, .. } => thread.as_str().to_owned(),
            Started::Replayed { .. } => panic!("there is no key"),
        }
    };
    let sent = async || {
        let deliveries = store.deliveries(None, Some("sent"), 10).await.expect("readable");
        deliveries.len()
    };
    let first = start().await;
    let advancing = worker(&place, &["--queues", "advance"]).await;
    reaches(&store, &first, "parked").await;
    Place::kill(advancing).await;
    assert_eq!((sent().await, place.mails().len()), (0, 0), "nobody was told yet");
    let _delivering = worker(&place, &["--queues", "deliver"]).await;
    let second = start().await;
    eventually("the mail is sent", || async {
        let sent = sent().await;
        if sent == 1 { Ok(()) } else { Err(format!("{sent} sent")) }
    })
    .await;
    assert_eq!(place.mails().len(), 1);
    assert_eq!(status(&store, &second).await, "queued", "nobody runs threads");
    let _advancing = worker(&place, &["--queues", "advance"]).await;
    reaches(&store, &second, "parked").await;
    store.close().await;
}

#[tokio::test]
async fn an_empty_database_is_migrated_and_an_older_one_is_not_read() {
    let database = Database::fresh().await;
    let place = on(&database);
    execute(&database, "DELETE FROM countersign_migrations WHERE version = 3").await;
    let older = place.run(&["check"]).await;
    assert_eq!(older.code, Some(1), "{older:?}");
    assert!(older.stderr.contains("0003 events"), "it says what is missing: {older:?}");
    execute(&database, "DROP SCHEMA public CASCADE; DROP SCHEMA apalis CASCADE; CREATE SCHEMA public").await;
    let empty = place.run(&["check"]).await;
    assert!(empty.code == Some(1) && empty.stderr.contains("no tables of this program"), "{empty:?}");
    let migrated = place.run(&["migrate"]).await;
    assert_eq!(migrated.code, Some(0), "{migrated:?}");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/postgres");
    let all = std::fs::read_dir(folder).expect("the migrations").count();
    assert_eq!(migrated.line()["applied"].as_array().map(Vec::len), Some(all), "{migrated:?}");
    assert_eq!(place.run(&["migrate"]).await.line(), &json!({"applied": []}));
    assert_eq!(place.run(&["check"]).await.code, Some(0));
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named_without_its_password() {
    let database = Database::fresh().await;
    let nowhere = "postgres://ann:hunter2@127.0.0.1:1/cases";
    let unknown = format!("{}_of_nobody?password=hunter2", database.url());
    for (url, says) in [(nowhere, "postgres://ann@127.0.0.1:1/cases"), (&unknown, "does not exist")] {
        let place = Place::new().with("COUNTERSIGN_STORE_URL", url).with("COUNTERSIGN_LOG_FILTER", "debug");
        for (words, code) in
            [(&["up"][..], 6), (&["threads", "list"], 6), (&["worker"], 6), (&["migrate"], 1), (&["check"], 1)]
        {
            let ended = place.run(words).await;
            assert_eq!(ended.code, Some(code), "{words:?}: {ended:?}");
            assert!(ended.stderr.contains(says), "{words:?}: {ended:?}");
            assert!(!format!("{ended:?}").contains("hunter2"), "{words:?}: {ended:?}");
        }
    }
    let place = Place::new().with("COUNTERSIGN_STORE_URL", "mysql://ann:hunter2@db/cases");
    let ended = place.run(&["up"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("`mysql:`") && !format!("{ended:?}").contains("hunter2"), "{ended:?}");
}

#[tokio::test]
async fn a_file_has_one_process() {
    let place = Place::new();
    let ended = place.run(&["worker"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("a SQLite file has one process"), "{ended:?}");
    assert!(!place.path().join("data").exists(), "nothing was made");

    // Two folders, one file.
    let file = place.path().join("shared.db");
    let url = format!("sqlite:{}", file.display());
    let (one, two) = (Place::new(), Place::new());
    let (one, two) = (one.with("COUNTERSIGN_STORE_URL", url.clone()), two.with("COUNTERSIGN_STORE_URL", url));
    let server = one.up().await;
    let thread = server.api.expense("48.20").await;
    assert_eq!(server.api.rested(&thread).await["status"], "succeeded");
    let refused = two.run(&["up"]).await;
    assert!(refused.code == Some(6) && refused.stderr.contains("another process works on"), "{refused:?}");
    server.kill().await;
    let shown = two.run(&["threads", "show", &thread]).await;
    assert_eq!((shown.code, &shown.line()["status"]), (Some(0), &json!("succeeded")), "{shown:?}");
}
