//! Surroundings and callers that do not mean well.

use serde_json::json;

use super::kit::{Place, eventually, expense};

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
