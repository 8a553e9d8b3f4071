//! Surroundings and callers that do not mean well.

use reqwest::Method;
use serde_json::json;

use super::kit::{Place, eventually, expense, identities};

/// A log that cannot be written loses lines, and nothing else.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_log_on_a_full_disk_stops_no_work() {
    let place = Place::new();
    std::os::unix::fs::symlink("/dev/full", place.path().join("up.log")).expect("a link");
    let server = place.up().await;
    // Delivering says so in the log; so does a refused request.
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let delivered = server.api.delivered(&question).await;
    assert_eq!((&delivered[0]["status"], &delivered[0]["attempts"]), (&json!("sent"), &json!(1)), "{delivered:?}");
    server.api.answer(&question, json!({"approved": true})).await.is(202);
    assert_eq!(server.api.rested(&thread).await["status"], "succeeded");
    server.api.get("/health/ready").await.is(200);
}

#[tokio::test]
async fn a_thread_is_not_named_by_dots() {
    let place = Place::new();
    let server = place.up().await;
    for dots in [".", ".."] {
        let body = json!({"graph": "expense", "input": expense("48.20"), "thread_id": dots});
        server.api.post("threads", &body).await.problem(422, "invalid-body");
    }
    assert_eq!(server.api.count().await, 0);
    // On the command line, the dots would lead to another address.
    for dots in [".", ".."] {
        let shown = place.run(&["threads", "show", dots]).await;
        assert_eq!(shown.code, Some(4), "{shown:?}");
    }
}

/// A list could be taken for the members of the object, in order; these would
/// all do something then.
#[tokio::test]
async fn a_body_that_is_no_object_does_nothing() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.expense("420.00").await;
    let question = api.question(&thread).await;
    api.delivered(&question).await;
    let (shown, actions) = (api.rested(&thread).await, api.audited(&thread).await);
    let of_thread = |what: &str| format!("threads/{thread}/{what}");
    let answers = json!({question.clone(): {"approved": true}});
    let lists = [
        (Method::POST, "threads".to_owned(), json!(["expense", expense("48.20"), null])),
        (Method::POST, of_thread("runs"), json!([expense("30"), "discard", null, false, false, null])),
        (Method::POST, of_thread("state"), json!([{"purpose": "x"}, null, null, null, null, false])),
        (Method::POST, of_thread("resume"), json!([answers, false, false, false, {}, [], [], null])),
        (Method::POST, of_thread("pause"), json!(["now"])),
        (Method::POST, format!("interrupts/{question}/answer"), json!([{"approved": true}, null, null])),
        (Method::POST, "sign-in-links".to_owned(), json!(["admin", null])),
        (Method::PUT, "tokens/other".to_owned(), json!([["threads:read"], null])),
    ];
    let json = [("content-type", "application/json")];
    for (method, path, list) in lists {
        for body in [list, json!([]), json!("now"), json!(7), json!(true)] {
            let bytes = body.to_string().into_bytes();
            let reply = api.send(method.clone(), &path, &json, bytes).await;
            assert_eq!(reply.status, 422, "{path} {body}: {}", reply.text);
            reply.problem(422, "invalid-body");
        }
    }
    assert_eq!((api.rested(&thread).await, api.audited(&thread).await), (shown, actions));
    assert_eq!((api.count().await, api.question(&thread).await), (1, question));
    assert!(!identities(&api.get("tokens").await.is(200), "name").contains("other"));
    assert!(place.ledger().await.is_empty());
}

#[tokio::test]
async fn nobody_answers_on_behalf_of_a_service() {
    let place = Place::new();
    let token = place.token("clerk", &["answer", "answer:on_behalf"], None).await;
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let clerk = server.api.with_token(Some(&token));
    let body = json!({"answer": {"approved": true}, "on_behalf_of": "service:other"});
    clerk.post(&format!("interrupts/{question}/answer"), &body).await.problem(422, "not-a-person");
    let body = json!({"answer": {"approved": true}, "on_behalf_of": "person:admin@localhost"});
    clerk.post(&format!("interrupts/{question}/answer"), &body).await.is(202);
    eventually("it goes on", || async {
        let thread = server.api.get(&format!("threads/{thread}")).await.is(200);
        if thread["status"] == "succeeded" { Ok(()) } else { Err(thread.to_string()) }
    })
    .await;
}
