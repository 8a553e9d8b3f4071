//! Deadlines and signals with the real program: over HTTP, on the command line,
//! and through a kill.

use serde_json::{Value, json};

use super::kit::{Api, Place, eventually};

/// The thread's one open point, once it is of this kind.
async fn waits(api: &Api, thread: &str, kind: &str) -> Value {
    eventually("it waits", async || {
        let shown = api.get(&format!("threads/{thread}")).await.is(200);
        let open = &shown["interrupts"][0];
        let waits = shown["status"] == "parked" && open["kind"] == kind;
        if waits { Ok(open.clone()) } else { Err(shown.to_string()) }
    })
    .await
}

#[tokio::test]
async fn a_deadline_decides_in_time_and_everybody_is_told_so() {
    let place = Place::with_flows();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.start("patient", json!({"seconds": 2})).await;
    let asked = waits(api, &thread, "approval").await;
    let id = asked["id"].as_str().expect("an id");
    assert!(asked["deadline"].as_str().is_some_and(|at| at.ends_with('Z')), "{asked}");
    assert_eq!(asked["payload"]["outcomes"]["silence"], "it counts as rejected");
    waits(api, &thread, "signal").await;
    let problem = api.answer(id, json!({"approved": true})).await.problem(409, "already-answered");
    assert_eq!((&problem["by"], &problem["answer"]["approved"]), (&json!(["service:the deadline"]), &json!(false)));
    let shown = api.get(&format!("interrupts/{id}")).await.is(200);
    assert_eq!((&shown["status"], &shown["deadline"]), (&json!("answered"), &asked["deadline"]));
    let audit = api.get(&format!("threads/{thread}/audit")).await.is(200);
    assert_eq!(audit["intact"], true);
    let decided = audit["items"].as_array().expect("a list").iter().find(|item| item["action"] == "decided");
    assert_eq!(decided.expect("on record")["actor"], "service:the deadline");
}

#[tokio::test]
async fn a_signal_is_sent_once_by_its_key_and_outlives_a_kill() {
    let place = Place::with_flows();
    let server = place.up().await;
    let thread = server.api.start("patient", json!({"seconds": 3600})).await;
    waits(&server.api, &thread, "approval").await;
    let path = format!("threads/{thread}/signals/paid");
    // Before anything waits for it; any JSON; the same key is the same signal.
    let reply = server.api.post_once("p-1", &path, &json!(["any", "JSON"])).await.is(202);
    assert_eq!(reply, json!({"thread_id": thread, "signal": "paid", "status": "accepted"}));
    assert_eq!(server.api.post_once("p-1", &path, &json!(["any", "JSON"])).await.is(202), reply);
    server.api.post_once("p-1", &path, &json!("other")).await.problem(422, "idempotency-key-reused");
    server.kill().await;

    let server = place.up_again().await;
    let api = &server.api;
    let asked = waits(api, &thread, "approval").await;
    api.answer(asked["id"].as_str().expect("an id"), json!({"approved": true})).await.is(202);
    let done = api.rested(&thread).await;
    assert_eq!((&done["status"], &done["state"]["paid"]), (&json!("succeeded"), &json!(["any", "JSON"])));
    api.post(&path, &Value::Null).await.problem(409, "thread-ended");
}

#[tokio::test]
async fn who_may_send_a_signal_and_what_can_be_one() {
    let place = Place::with_flows();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.start("patient", json!({"seconds": 3600})).await;
    let path = format!("threads/{thread}/signals/paid");
    api.with_token(None).post(&path, &Value::Null).await.problem(401, "unauthenticated");
    let reads = place.token("reads", &["threads:read"], None).await;
    api.with_token(Some(&reads)).post(&path, &Value::Null).await.problem(403, "missing-scope");
    let others = place.token("others", &["threads:write"], Some(&["expense"])).await;
    api.with_token(Some(&others)).post(&path, &Value::Null).await.problem(404, "unknown-thread");
    let writes = place.token("bank", &["threads:write"], None).await;
    api.with_token(Some(&writes)).post(&path, &json!({"n": 1})).await.is(202);
    api.post("threads/nobody/signals/paid", &Value::Null).await.problem(404, "unknown-thread");
    api.post(&format!("threads/{thread}/signals/two%20words"), &Value::Null).await.problem(404, "unknown-id");
    api.post(&path, &json!("x".repeat(70_000))).await.problem(413, "answer-too-large");

    // The command line says the same.
    let sent = place.run(&["signal", &thread, "paid", r#"{"n": 2}"#, "--key", "k"]).await;
    assert_eq!((sent.code, &sent.line()["status"]), (Some(0), &json!("accepted")), "{sent:?}");
    assert_eq!(place.run(&["signal", &thread, "two words"]).await.code, Some(2));
    assert_eq!(place.run(&["signal", "nobody", "paid"]).await.code, Some(4));
    let asked = waits(api, &thread, "approval").await;
    api.answer(asked["id"].as_str().expect("an id"), json!({"approved": false})).await.is(202);
    let done = api.rested(&thread).await;
    assert_eq!(done["state"]["paid"], json!({"n": 1}), "the first that came");
    let audit = api.get(&format!("threads/{thread}/audit")).await.is(200);
    let by = audit["items"].as_array().expect("a list").iter().find(|item| item["action"] == "signal_taken");
    assert_eq!(by.expect("on record")["actor"], "service:bank");
}
