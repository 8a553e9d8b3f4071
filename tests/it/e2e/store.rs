//! Moving a store from one database to another, and measuring it.

use serde_json::json;

use super::kit::{Ended, Place, Server, eventually};
use super::pages::{hidden, press};
use crate::support::postgres::Database;

/// Starts an expense that asks; returns thread, question and the path of the
/// newest mail's link.
async fn asking(place: &Place, server: &Server) -> (String, String, String) {
    let before: Vec<String> = place.mails().iter().map(super::kit::Letter::path).collect();
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    server.api.delivered(&question).await;
    let mut paths: Vec<String> = place.mails().iter().map(super::kit::Letter::path).collect();
    paths.retain(|path| !before.contains(path));
    assert_eq!(paths.len(), 1);
    (thread, question, paths.remove(0))
}

/// Approves through the link of a mail, as people do.
async fn approve(server: &Server, path: &str) {
    let stranger = server.api.with_token(None);
    let page = stranger.get(path).await;
    assert_eq!(page.status, 200, "{}", page.text);
    let pressed = press(&stranger, path, &format!("{}&approved=true", hidden(&page.text))).await;
    assert_eq!(pressed.status, 303, "{}", pressed.text);
}

async fn copy(place: &Place, from: &str, to: &str) -> Ended {
    place.run(&["store", "copy", "--from", from, "--to", to]).await
}

#[tokio::test]
async fn a_parked_thread_moves_to_postgres_and_back_and_its_link_works() {
    let database = Database::fresh().await;
    let mut place = Place::new();
    let file = "sqlite:data/countersign.db";
    let server = place.up().await;
    let (first, question, link) = asking(&place, &server).await;
    let (second, _, second_link) = asking(&place, &server).await;
    let taken = copy(&place, file, database.url()).await;
    assert!(taken.code == Some(1) && taken.stderr.contains("another process works on"), "{taken:?}");
    let before = server.api.get(&format!("interrupts/{question}")).await.is(200);
    let trail = server.api.get(&format!("threads/{first}/audit")).await.is(200);
    server.kill().await;

    let copied = copy(&place, file, database.url()).await;
    assert_eq!(copied.code, Some(0), "{copied:?}");
    let done = copied.line();
    assert_eq!((&done["tables"]["threads"], &done["audit_chains"]), (&json!(2), &json!(2)));
    assert!(done["tables"]["checkpoints"].as_u64() >= Some(2), "{done}");
    let again = copy(&place, file, database.url()).await;
    assert!(again.code == Some(1) && again.stderr.contains("the target is not empty"), "{again:?}");

    place.set("COUNTERSIGN_STORE_URL", database.url());
    place.set("COUNTERSIGN_WORKER_LEASE_SECONDS", "2");
    let server = place.up().await;
    assert!(server.shown["store"].as_str().is_some_and(|store| store.starts_with("postgres://")));
    assert_eq!(server.api.get(&format!("interrupts/{question}")).await.is(200), before, "the same, id and all");
    assert_eq!(server.api.get(&format!("threads/{first}/audit")).await.is(200), trail);
    approve(&server, &link).await;
    let done = server.api.rested(&first).await;
    assert_eq!((&done["status"], &done["state"]["outcome"]), (&json!("succeeded"), &json!("paid")));
    assert_eq!(place.ledger().await.len(), 1);
    // What ended there is there when it comes back.
    let back = "sqlite:data/back.db";
    let used = copy(&place, database.url(), back).await;
    assert!(used.code == Some(1) && used.stderr.contains("the source is in use"), "{used:?}");
    let state = server.api.get(&format!("threads/{first}")).await.is(200);
    server.kill().await;

    // A killed process counts until it has missed its beats.
    eventually("the source is free", async || {
        let copied = copy(&place, database.url(), back).await;
        if copied.code == Some(0) { Ok(()) } else { Err(copied.stderr) }
    })
    .await;
    place.set("COUNTERSIGN_STORE_URL", back);
    let server = place.up().await;
    assert_eq!(server.api.get(&format!("threads/{first}")).await.is(200), state);
    approve(&server, &second_link).await;
    assert_eq!(server.api.rested(&second).await["status"], "succeeded");
    assert_eq!(place.ledger().await.len(), 2);
    server.api.audited(&second).await;
}

#[tokio::test]
async fn a_store_says_how_large_it_is() {
    let place = Place::new();
    let none = place.run(&["store", "stats"]).await;
    assert!(none.code == Some(1) && none.stderr.contains("there is no database"), "{none:?}");
    let server = place.up().await;
    let thread = server.api.expense("20.00").await;
    server.api.rested(&thread).await;
    let (parked, ..) = asking(&place, &server).await;
    let stats = place.run(&["store", "stats"]).await;
    let stats = stats.line();
    let of = |list: &str, name: &str, value: &str| {
        let found = stats[list].as_array().expect("a list").iter().find(|item| item[name] == value);
        found.unwrap_or_else(|| panic!("no {value}: {stats}")).clone()
    };
    assert_eq!(of("tables", "table", "threads")["rows"], 2);
    assert!(of("tables", "table", "checkpoints")["bytes"].as_u64() > Some(0), "{stats}");
    assert_eq!(of("graphs", "status", "parked")["threads"], 1);
    assert!(of("threads", "thread_id", &parked)["state_bytes"].as_u64() > Some(0));
    assert!(stats["bytes"].as_u64() > Some(4_096));
    assert_eq!(stats["compactable_checkpoints"], json!({}), "nothing is configured");
    place.configure("[[retention.graphs]]\nname = \"expense\"\ncheckpoints = 1\n");
    let configured = place.run(&["store", "stats"]).await;
    assert!(configured.line()["compactable_checkpoints"]["expense"].as_u64() >= Some(1), "{configured:?}");
    let shown = place.run_plain(&["store", "stats"]).await;
    assert!(shown.stdout.contains("LONGEST HISTORIES") && shown.stdout.contains(&parked), "{shown:?}");
}
