//! Pauses, limits, priorities and dead letters through the API and the command
//! line of the real program.

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use super::kit::{Api, Place, eventually, expense};

async fn put(api: &Api, path: &str, body: &Value) -> super::kit::Reply {
    let headers = [("content-type", "application/json")];
    api.send(Method::PUT, path, &headers, body.to_string().into_bytes()).await
}

async fn delete(api: &Api, path: &str) -> super::kit::Reply {
    api.send(Method::DELETE, path, &[], Vec::new()).await
}

/// Waits until the thread says why it is held back.
async fn held_back(api: &Api, thread: &str) -> String {
    eventually("it is held back", async || {
        let shown = api.get(&format!("threads/{thread}")).await.is(200);
        shown["held_back"].as_str().map(str::to_owned).ok_or_else(|| shown.to_string())
    })
    .await
}

#[tokio::test]
async fn a_paused_graph_says_so_and_goes_on_when_it_is_resumed() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let reason = json!({"reason": "the books are closed"});
    let paused = put(api, "pauses/graphs/expense", &reason).await.is(200);
    assert_eq!(
        (&paused["kind"], &paused["name"], &paused["reason"]),
        (&json!("graph"), &json!("expense"), &reason["reason"])
    );
    assert_eq!((&paused["until"], &paused["node"]), (&Value::Null, &Value::Null));

    let thread = api.expense("20.00").await;
    assert_eq!(held_back(api, &thread).await, "the graph `expense` is paused: the books are closed");
    let listed = api.get("threads?status=queued").await.is(200);
    assert_eq!(listed["items"][0]["held_back"], "the graph `expense` is paused: the books are closed");
    let page = place.run_plain(&["threads", "show", &thread]).await;
    assert!(page.stdout.contains("held back: the graph `expense` is paused"), "{page:?}");

    assert_eq!(api.get("pauses").await.is(200)["items"][0]["reason"], reason["reason"]);
    assert_eq!(delete(api, "pauses/graphs/expense").await.status, 204);
    delete(api, "pauses/graphs/expense").await.problem(404, "not-paused");
    assert_eq!(api.rested(&thread).await["status"], "succeeded");
    let done: Vec<Value> = api.get("operations").await.is(200)["items"].as_array().expect("a list").clone();
    assert_eq!(done.iter().map(|done| &done["action"]).collect::<Vec<_>>(), ["resumed", "paused"]);
    assert_eq!(done[1]["detail"]["reason"], reason["reason"]);
}

#[tokio::test]
async fn what_cannot_be_paused_or_limited_gets_a_clear_answer() {
    let place = Place::new();
    let limited = place.token("limited", &["operate", "threads:read"], Some(&["expense"])).await;
    let reader = place.token("reader", &["threads:read"], None).await;
    let server = place.up().await;
    let api = &server.api;
    let reason = json!({"reason": "x"});
    put(api, "pauses/graphs/nobody", &reason).await.problem(404, "unknown-graph");
    let problem = put(api, "pauses/graphs/expense/nodes/nobody", &reason).await.problem(404, "unknown-node");
    assert!(problem["known"].as_array().is_some_and(|nodes| nodes.contains(&json!("pay"))), "{problem}");
    put(api, "pauses/channels/pigeon", &reason).await.problem(404, "unknown-channel");
    put(api, "pauses/graphs/expense", &json!({"reason": " "})).await.problem(422, "invalid-reason");
    for until in ["tomorrow", "2001-01-01T00:00:00Z"] {
        let body = json!({"reason": "x", "until": until});
        put(api, "pauses/graphs/expense", &body).await.problem(422, "invalid-time");
    }
    for limits in [
        json!({"running": 0}),
        json!({"starts": {"count": 0, "per_seconds": 1}}),
        json!({"starts": {"count": 1, "per_seconds": 0}}),
    ] {
        put(api, "limits/expense", &limits).await.problem(422, "invalid-limit");
    }
    put(api, "limits/nobody", &json!({"running": 1})).await.problem(404, "unknown-graph");
    delete(api, "limits/expense").await.problem(404, "no-limits");
    for (priority, key) in [(json!("urgent"), json!("k")), (json!(101), json!("k")), (json!(-101), json!("k"))] {
        let body = json!({"graph": "expense", "input": expense("20.00"), "priority": priority, "limit_key": key});
        api.post("threads", &body).await.problem(422, "invalid-priority");
    }
    let body = json!({"graph": "expense", "input": expense("20.00"), "limit_key": ""});
    api.post("threads", &body).await.problem(422, "invalid-limit-key");
    api.post("dead-letters/retry", &json!({})).await.problem(422, "empty-filter");
    api.post("dead-letters/retry", &json!({"kind": "pigeon"})).await.problem(422, "unknown-kind");
    api.post("dead-letters/retry", &json!({"before": "x"})).await.problem(422, "invalid-time");

    // Who may do it: an operator, for the flows that the token reaches.
    let reader = api.with_token(Some(&reader));
    put(&reader, "pauses/graphs/expense", &reason).await.problem(403, "missing-scope");
    put(&reader, "limits/expense", &json!({"running": 1})).await.problem(403, "missing-scope");
    reader.post("dead-letters/retry", &json!({"all": true})).await.problem(403, "missing-scope");
    reader.get("operations").await.problem(403, "missing-scope");
    let limited = api.with_token(Some(&limited));
    put(&limited, "pauses/graphs/payment", &reason).await.problem(404, "unknown-graph");
    put(&limited, "limits/payment", &json!({"running": 1})).await.problem(404, "unknown-graph");
    put(&limited, "pauses/channels/email", &reason).await.problem(403, "beyond-own-graphs");
    limited.get("operations").await.problem(403, "beyond-own-graphs");
    put(&limited, "pauses/graphs/expense", &reason).await.is(200);
    put(api, "pauses/graphs/payment", &reason).await.is(200);
    assert_eq!(limited.get("pauses").await.is(200)["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(api.get("pauses").await.is(200)["items"].as_array().map(Vec::len), Some(2));
    for route in ["pauses", "limits", "operations", "dead-letters"] {
        api.with_token(None).get(route).await.problem(401, "unauthenticated");
    }
}

#[tokio::test]
async fn the_command_line_pauses_resumes_and_limits() {
    let place = Place::new();
    let server = place.up().await;
    let until = "2999-01-31T17:00:00Z";
    let words = ["pause", "node", "expense", "pay", "--reason", "no money", "--until", until];
    let paused = place.run(&words).await;
    assert_eq!((paused.code, &paused.line()["node"]), (Some(0), &json!("pay")));
    let thread = place.run(&["run", "expense", "--input", &expense("20.00").to_string(), "--detach"]).await;
    let thread = thread.line()["thread_id"].as_str().expect("an id").to_owned();
    assert_eq!(held_back(&server.api, &thread).await, "the node `pay` of the graph `expense` is paused: no money");
    let shown = place.run_plain(&["pauses"]).await;
    assert!(shown.stdout.contains("node expense pay") && shown.stdout.contains("2999-01-31T17:00:00"), "{shown:?}");
    assert_eq!(place.run(&["resume", "node", "expense", "pay"]).await.code, Some(0));
    let again = place.run(&["resume", "node", "expense", "pay"]).await;
    assert!(again.code != Some(0) && again.stderr.contains("not paused"), "{again:?}");
    assert_eq!(server.api.rested(&thread).await["status"], "succeeded");

    let words = ["limits", "set", "expense", "--running", "2", "--starts", "100/60"];
    assert_eq!(place.run(&words).await.line()["starts"], json!({"count": 100, "per_seconds": 60.0}));
    let words = ["run", "expense", "--input", &expense("20.00").to_string(), "--priority", "high", "--limit-key", "k"];
    let done = place.run(&words).await;
    assert_eq!((&done.line()["priority"], &done.line()["limit_key"]), (&json!(1), &json!("k")));
    let shown = place.run_plain(&["limits", "list"]).await;
    assert!(shown.stdout.contains("2 at a time, 100 taken up in 60"), "{shown:?}");
    assert_eq!(place.run(&["limits", "remove", "expense"]).await.code, Some(0));
    assert_eq!(place.run_plain(&["limits", "list"]).await.stdout.trim(), "nothing is limited");
}

#[tokio::test]
async fn dead_letters_are_listed_and_tried_again() {
    let place = Place::new();
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    server.api.delivered(&question).await;
    server.kill().await;
    // As after a night without the mail server.
    let mut store = SqliteConnectOptions::new().filename(place.data("countersign.db")).connect().await.expect("a file");
    let statements = "UPDATE deliveries SET status = 'failed', attempts = 20;
        INSERT INTO dead_letters (thread, id, kind, subject, reason, attempts, died_at)
        SELECT thread, delivery, 'deliver', delivery, 'no line', 20, created_at FROM deliveries";
    sqlx::raw_sql(statements).execute(&mut store).await.expect("written");
    store.close().await.expect("closed");
    let server = place.up().await;
    let listed = place.run(&["dead-letters", "list"]).await;
    assert_eq!(listed.lines.len(), 1);
    let letter = listed.line();
    assert_eq!(
        (&letter["kind"], &letter["channel"], &letter["graph"]),
        (&json!("deliver"), &json!("email"), &json!("expense"))
    );
    assert_eq!(
        (&letter["thread_id"], &letter["reason"], &letter["attempts"]),
        (&json!(thread), &json!("no line"), &json!(20))
    );
    let none = place.run(&["dead-letters", "retry", "--channel", "webhook"]).await;
    assert_eq!(none.line(), &json!({"retried": 0, "dropped": 0, "more": false}));
    let done = place.run(&["dead-letters", "retry", "--kind", "deliver", "--graph", "expense"]).await;
    assert_eq!(done.line(), &json!({"retried": 1, "dropped": 0, "more": false}));
    let delivered = server.api.delivered(&question).await;
    assert_eq!((&delivered[0]["status"], &delivered[0]["attempts"]), (&json!("sent"), &json!(1)));
    assert_eq!(place.run(&["dead-letters", "list"]).await.lines, [] as [Value; 0]);
}
