//! The client against a server that answers as told.

use std::sync::Mutex;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;

/// Answers one connection per line of the script: `409 {…}`, or `` to hang up
/// without an answer. Returns the requests it saw.
async fn server(script: &'static [&'static str]) -> (Client, JoinHandle<Vec<String>>) {
    static PROVIDER: Mutex<()> = Mutex::new(());
    let once = PROVIDER.lock().expect("lock");
    let _present = rustls::crypto::ring::default_provider().install_default();
    drop(once);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let address = listener.local_addr().expect("address");
    let seen = tokio::spawn(async move {
        let mut seen = Vec::new();
        for line in script {
            let (mut stream, _) = listener.accept().await.expect("connection");
            let mut buffer = vec![0; 8_192];
            let read = stream.read(&mut buffer).await.expect("request");
            seen.push(String::from_utf8_lossy(&buffer[..read]).into_owned());
            if let Some((status, body)) = line.split_once(' ') {
                let length = body.len();
                let reply =
                    format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
                stream.write_all(reply.as_bytes()).await.expect("reply");
            }
        }
        seen
    });
    let token = Some(Secret::new("t0ken"));
    let client = Client { pauses: &[1, 1, 1], ..Client::new(&format!("http://{address}/"), token).expect("client") };
    (client, seen)
}

#[tokio::test]
async fn a_request_carries_the_token_and_escaped_names() {
    let (client, seen) = server(&["200 {\"thread_id\":\"x\"}"]).await;
    client.thread("a/b c").await.expect("thread");
    let request = &seen.await.expect("server")[0];
    assert!(request.starts_with("GET /api/v1/threads/a%2Fb%20c HTTP/1.1"), "{request}");
    assert!(request.to_lowercase().contains("authorization: bearer t0ken"), "{request}");
}

#[tokio::test]
async fn what_may_be_repeated_is_repeated() {
    let (client, seen) = server(&["", "503 busy", "500 {}", "202 {\"thread_id\":\"t-1\"}"]).await;
    assert_eq!(client.start("g", &json!({}), Some("t-1")).await.expect("started"), json!({"thread_id": "t-1"}));
    assert_eq!(seen.await.expect("server").len(), 4);
}

#[tokio::test]
async fn what_may_have_arrived_is_not_repeated_without_an_id() {
    let (client, seen) = server(&[""]).await;
    let error = client.start("g", &json!({}), None).await.expect_err("lost");
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
    assert_eq!(seen.await.expect("server").len(), 1);
}

#[tokio::test]
async fn the_same_answer_again_is_told_apart() {
    let body = "{\"status\":\"decided\",\"have\":1,\"need\":1}";
    let script: &[&str] = Box::leak(Box::new([
        &*Box::leak(format!("202 {body}").into_boxed_str()),
        &*Box::leak(format!("200 {body}").into_boxed_str()),
    ]));
    let (client, _) = server(script).await;
    assert!(!client.answer("i", &json!({"approved": true})).await.expect("first").1);
    assert!(client.answer("i", &json!({"approved": true})).await.expect("again").1);
}

#[tokio::test]
async fn a_refusal_says_what_is_wrong_and_where() {
    let (client, _) = server(&[concat!(
        "422 {\"type\":\"https://example.org/problems/invalid-input\",\"title\":\"Invalid input\",\"status\":422,",
        "\"errors\":[{\"pointer\":\"/amount\",\"message\":\"not a number\"}],\"extra\":1}"
    )])
    .await;
    let error = client.start("g", &json!({}), None).await.expect_err("refused");
    let ClientError::Refused(problem) = error else { panic!("{error}") };
    assert!(problem.is("invalid-input") && !problem.is("input"));
    assert_eq!(problem.reason(), "/amount: not a number");
    assert_eq!(problem.to_string(), "Invalid input (422): /amount: not a number");
    assert_eq!(problem.more["extra"], 1);
}

#[tokio::test]
async fn a_conflict_says_who_decided_what_and_when() {
    let (client, _) = server(&[concat!(
        "409 {\"type\":\"urn:countersign:problem:already-answered\",\"title\":\"Decided already\",\"detail\":\"d\",",
        "\"by\":[\"person:a@b.c\",\"person:d@e.f\"],\"at\":\"2026-01-02T03:04:05Z\",\"answer\":{\"approved\":true}}"
    )])
    .await;
    let error = client.answer("i", &json!({"approved": false})).await.expect_err("refused");
    let reason = "person:a@b.c and person:d@e.f decided {\"approved\":true} at 2026-01-02T03:04:05Z";
    assert_eq!(error.to_string(), format!("Decided already (409): {reason}"));
    let ClientError::Refused(mut problem) = error else { panic!("{error}") };
    assert_eq!(problem.reason(), reason);
    // A server of another version may say less.
    problem.more.clear();
    assert_eq!(problem.reason(), "d");
}

fn problem(document: Value) -> Problem {
    serde_json::from_value(document).expect("a problem")
}

#[test]
fn a_request_that_was_dropped_says_why_and_where_the_present_one_is() {
    let dropped = |became: &str, closed_by: Option<&str>, replaced_by: Option<&str>| {
        problem(json!({
            "type": "urn:countersign:problem:superseded", "title": "The request no longer waits", "status": 409,
            "detail": "the request no longer waits: it was superseded", "became": became, "closed_by": closed_by,
            "replaced_by": replaced_by, "at": "2026-01-02T03:04:05Z",
        }))
    };
    let edited = dropped("superseded", Some("edited"), Some("abc"));
    assert_eq!(
        edited.to_string(),
        "The request no longer waits (409): the state of its thread was edited at 2026-01-02T03:04:05Z; nothing was \
         recorded; asked in its place: abc (countersign interrupts show abc)"
    );
    assert!(edited.to_string().ends_with(&edited.reason()));
    let cancelled = dropped("superseded", Some("cancelled"), None).reason();
    assert!(cancelled.contains("was cancelled") && cancelled.ends_with("nothing is asked in its place now"));
    assert!(dropped("withdrawn", None, None).reason().starts_with("the flow withdrew it"));
}

#[test]
fn a_refusal_says_nothing_twice() {
    let said =
        |title: &str, detail: &str| problem(json!({"title": title, "status": 409, "detail": detail})).to_string();
    for (title, detail) in [
        ("The thread has changed", "the thread has changed meanwhile"),
        ("There is no such thread", "there is no thread `t-1`"),
        ("The thread is being run", "the thread is running"),
        ("There is no such graph", "there is no graph `x`; known: expense"),
    ] {
        assert_eq!(said(title, detail), format!("{detail} (409)"));
    }
    let other = said("Nothing to retry", "no task of the thread has failed");
    assert_eq!(other, "Nothing to retry (409): no task of the thread has failed");
    assert_eq!(said("Refused", ""), "Refused (409)");
    let faults = problem(json!({
        "title": "The values do not fit the state", "status": 422, "errors": [{"pointer": "/a", "message": "no number"}],
        "detail": "nothing was changed; mend what `errors` lists and send it again",
    }));
    assert_eq!(faults.to_string(), "The values do not fit the state (422): nothing was changed: /a: no number");
}

#[tokio::test]
async fn somebody_elses_server_is_recognised() {
    let (client, _) = server(&["404 <html>"]).await;
    let error = client.thread("t").await.expect_err("unexpected");
    assert!(matches!(error, ClientError::Unexpected { status: 404, .. }), "{error}");
}

#[tokio::test]
async fn nobody_there_is_said_after_some_attempts() {
    let (client, seen) = server(&[]).await;
    seen.await.expect("closed");
    let error = client.overview().await.expect_err("nobody");
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
}
