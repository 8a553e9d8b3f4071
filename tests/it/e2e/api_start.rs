//! Starting threads over the API, and what is refused.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Api, Place, expense};

const JSON: (&str, &str) = ("content-type", "application/json");

async fn start_with_key(api: &Api, key: &str, body: &Value) -> super::kit::Reply {
    api.send(Method::POST, "threads", &[JSON, ("idempotency-key", key)], body.to_string().into_bytes()).await
}

#[tokio::test]
async fn a_start_is_accepted_and_runs_to_its_end() {
    let place = Place::new();
    let server = place.up().await;
    let reply = server.api.post("threads", &json!({"graph": "expense", "input": expense("48.20")})).await.is(202);
    for member in ["thread_id", "run_id", "status"] {
        assert!(reply[member].is_string(), "{reply}");
    }
    assert_eq!(reply["status"], "queued");
    let thread = server.api.rested(reply["thread_id"].as_str().expect("an id")).await;
    assert_eq!((&thread["status"], &thread["state"]["outcome"]), (&json!("succeeded"), &json!("paid")));
    assert_eq!((&thread["next"], &thread["interrupts"]), (&json!([]), &json!([])));
    assert_eq!(thread["runs"][0]["run_id"], reply["run_id"]);
    let booked = place.ledger().await;
    assert_eq!((booked.len(), booked[0].attempts), (1, 1));
    let last = server.api.audited(thread["thread_id"].as_str().expect("an id")).await;
    assert!(last.contains(&"started".to_owned()), "{last:?}");
}

#[tokio::test]
async fn a_repeated_key_gets_the_first_reply_and_another_body_none() {
    let place = Place::new();
    let server = place.up().await;
    let body = json!({"graph": "expense", "input": expense("420.00")});
    let first = start_with_key(&server.api, "key-1", &body).await.is(202);
    let second = start_with_key(&server.api, "key-1", &body).await.is(202);
    assert_eq!(first, second);
    // The order of members and spaces are not another body.
    let same = json!({"input": expense("420.00"), "graph": "expense"});
    assert_eq!(start_with_key(&server.api, "key-1", &same).await.is(202), first);
    assert_eq!(server.api.count().await, 1);
    let other = json!({"graph": "expense", "input": expense("421.00")});
    start_with_key(&server.api, "key-1", &other).await.problem(422, "idempotency-key-reused");
    assert_eq!(server.api.count().await, 1);
    let third = start_with_key(&server.api, "key-2", &body).await.is(202);
    assert_ne!(third["thread_id"], first["thread_id"]);
    start_with_key(&server.api, "", &body).await.problem(400, "invalid-idempotency-key");
    start_with_key(&server.api, &"k".repeat(256), &body).await.problem(400, "invalid-idempotency-key");
    assert_eq!(server.api.count().await, 2);
    // What was refused was not kept under the key.
    let bad = json!({"graph": "expense", "input": {}});
    start_with_key(&server.api, "key-3", &bad).await.problem(422, "invalid-input");
    start_with_key(&server.api, "key-3", &body).await.is(202);
}

#[tokio::test]
async fn a_key_still_holds_after_a_kill() {
    let place = Place::new();
    let server = place.up().await;
    let body = json!({"graph": "expense", "input": expense("420.00")});
    let first = start_with_key(&server.api, "key-1", &body).await.is(202);
    server.kill().await;
    let server = place.up().await;
    assert_eq!(start_with_key(&server.api, "key-1", &body).await.is(202), first);
    assert_eq!(server.api.count().await, 1);
}

#[tokio::test]
async fn a_known_thread_is_a_conflict_that_says_whether_it_is_the_same() {
    let place = Place::new();
    let server = place.up().await;
    let start = |amount: &str| json!({"graph": "expense", "input": expense(amount), "thread_id": "case-1"});
    server.api.post("threads", &start("420.00")).await.is(202);
    for (amount, same) in [("420.00", true), ("421.00", false)] {
        let problem = server.api.post("threads", &start(amount)).await.problem(409, "thread-exists");
        assert_eq!((&problem["thread_id"], &problem["same_input"]), (&json!("case-1"), &json!(same)));
    }
    assert_eq!(server.api.count().await, 1);
}

#[tokio::test]
async fn what_is_refused_leaves_nothing_behind() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let whole = json!({"graph": "expense", "input": expense("48.20")});
    let with = |member: &str, value: Value| {
        let mut body = whole.clone();
        body[member] = value;
        body
    };
    let text = whole.to_string();
    for broken in ["", "{", "nonsense", &text[..text.len() - 1], "{\"graph\": \"expense\",}"] {
        api.send(Method::POST, "threads", &[JSON], broken.into()).await.problem(400, "malformed-json");
        assert_eq!(api.count().await, 0, "{broken}");
    }
    let utf8 = [b"{\"graph\": \"", &b"\xff\xfe"[..], b"\"}"].concat();
    let reply = api.send(Method::POST, "threads", &[JSON], utf8).await;
    assert_eq!(reply.status, 400, "{}", reply.text);
    let twice = br#"{"graph": "expense", "input": {"amount": "50", "amount": "99999"}}"#;
    let problem = api.send(Method::POST, "threads", &[JSON], twice.to_vec()).await.problem(422, "invalid-body");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("`amount` is there twice")), "{problem}");
    let unfit = [
        with("surprise", json!(1)),
        json!({"graph": "expense"}),
        json!({"input": {}}),
        json!([]),
        json!("expense"),
        json!(null),
        with("graph", json!(7)),
        with("thread_id", json!("")),
        with("thread_id", json!("a/b")),
        with("thread_id", json!("x".repeat(5_000))),
    ];
    for body in &unfit {
        api.post("threads", body).await.problem(422, "invalid-body");
        assert_eq!(api.count().await, 0, "{body}");
    }
    let problem = api.post("threads", &with("graph", json!("nope"))).await.problem(404, "unknown-graph");
    assert_eq!(problem["known"], json!(["expense", "hitl_tour", "payment", "wire_batch"]));
    let problem = api.post("threads", &with("input", json!({"amount": "x"}))).await.problem(422, "invalid-input");
    let pointers: Vec<_> = problem["errors"].as_array().expect("a list").iter().map(|e| &e["pointer"]).collect();
    assert_eq!(pointers, ["/amount", "/currency", "/requester", "/purpose"]);
    assert!(problem["errors"].as_array().expect("a list").iter().all(|error| error["message"].is_string()));
    for kind in ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let headers: &[(&str, &str)] = if kind.is_empty() { &[] } else { &[("content-type", kind)] };
        api.send(Method::POST, "threads", headers, text.clone().into()).await.problem(415, "not-json");
    }
    let large = with("input", json!({"purpose": "x".repeat(1 << 20)}));
    let problem = api.post("threads", &large).await.problem(413, "body-too-large");
    assert!(problem["detail"].as_str().is_some_and(|text| text.contains("1048576")), "{problem}");
    api.send(Method::DELETE, "threads", &[], Vec::new()).await.problem(405, "no-such-method");
    api.get("nothing").await.problem(404, "no-such-route");
    assert_eq!(api.count().await, 0);
    assert!(place.ledger().await.is_empty());
    api.send(Method::POST, "threads", &[("content-type", "application/json; charset=utf-8")], text.into())
        .await
        .is(202);
    assert_eq!(api.count().await, 1);
}

#[tokio::test]
async fn the_limit_of_a_body_is_a_setting() {
    let place =
        Place::new().with("COUNTERSIGN_LIMITS_BODY_BYTES", "2048").with("COUNTERSIGN_LIMITS_ANSWER_BYTES", "256");
    let server = place.up().await;
    let purpose = |length: usize| {
        let mut input = expense("420.00");
        input["purpose"] = json!("x".repeat(length));
        json!({"graph": "expense", "input": input})
    };
    server.api.post("threads", &purpose(2048)).await.problem(413, "body-too-large");
    let started = server.api.post("threads", &purpose(200)).await.is(202);
    let question = server.api.question(started["thread_id"].as_str().expect("an id")).await;
    let long = json!({"approved": true, "reason": "x".repeat(300)});
    server.api.answer(&question, long.clone()).await.problem(413, "answer-too-large");
    let thread = started["thread_id"].as_str().expect("an id");
    let resume = json!({"answers": {question.clone(): long}});
    server.api.post(&format!("threads/{thread}/resume"), &resume).await.problem(413, "answer-too-large");
    assert_eq!(server.api.question(thread).await, question);
}
