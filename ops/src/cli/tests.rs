//! Commands against an API in memory that keeps its contract.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Map, Value, json};

use super::client::Client;
use super::*;

#[derive(Default)]
struct Server {
    threads: BTreeMap<String, Value>,
    answers: BTreeMap<String, Value>,
    /// How many starts are answered with 503 before one is taken.
    failures: u32,
}

type Shared = Arc<Mutex<Server>>;
type Reply = (StatusCode, Json<Value>);

fn problem(status: StatusCode, kind: &str, more: Value) -> Reply {
    let mut body = json!({"type": format!("https://example.org/problems/{kind}"), "title": kind, "detail": kind});
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    (status, Json(body))
}

async fn start(State(server): State<Shared>, Json(body): Json<Value>) -> Reply {
    let mut server = server.lock().expect("lock");
    if server.failures > 0 {
        server.failures -= 1;
        return problem(StatusCode::SERVICE_UNAVAILABLE, "busy", Value::Null);
    }
    if body["graph"] != "payment" {
        return problem(StatusCode::NOT_FOUND, "unknown-graph", Value::Null);
    }
    if body["input"]["amount"] == "x" {
        let errors = json!([{"pointer": "/amount", "message": "not a number"}]);
        return problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-input", json!({"errors": errors}));
    }
    let id = body["thread_id"].as_str().unwrap_or("t-1").to_owned();
    if let Some(known) = server.threads.get(&id) {
        let same = known == &body["input"];
        return problem(StatusCode::CONFLICT, "thread-exists", json!({"same_input": same}));
    }
    server.threads.insert(id.clone(), body["input"].clone());
    (StatusCode::ACCEPTED, Json(json!({"thread_id": id, "run_id": "r", "status": "queued"})))
}

async fn list(State(server): State<Shared>, Query(query): Query<BTreeMap<String, String>>) -> Json<Value> {
    let server = server.lock().expect("lock");
    let from: usize = query.get("cursor").map_or(0, |cursor| cursor.parse().expect("cursor"));
    let moving = query.get("status").is_some_and(|status| status != "parked");
    // Pages of two, whatever the limit: a client has to follow the cursor.
    let page = server.threads.keys().skip(from).take(2).filter(|_| !moving);
    let items: Vec<Value> =
        page.map(|id| json!({"thread_id": id, "graph": "payment", "status": "parked", "open": 1})).collect();
    let next = (from + 2 < server.threads.len() && !moving).then(|| (from + 2).to_string());
    Json(json!({"items": items, "next_cursor": next}))
}

async fn show(State(server): State<Shared>, Path(id): Path<String>) -> Reply {
    match server.lock().expect("lock").threads.get(&id) {
        Some(input) => (StatusCode::OK, Json(json!({"thread_id": id, "status": "parked", "state": input}))),
        None => problem(StatusCode::NOT_FOUND, "unknown-thread", Value::Null),
    }
}

async fn answer(State(server): State<Shared>, Path(id): Path<String>, Json(body): Json<Value>) -> Reply {
    let mut server = server.lock().expect("lock");
    let reply = json!({"status": "decided", "have": 1, "need": 1, "thread_id": "t-1"});
    match server.answers.get(&id) {
        None if id == "unknown" => problem(StatusCode::NOT_FOUND, "unknown-interrupt", Value::Null),
        None => {
            server.answers.insert(id, body["answer"].clone());
            (StatusCode::ACCEPTED, Json(reply))
        }
        Some(known) if *known == body["answer"] => (StatusCode::OK, Json(reply)),
        Some(_) => problem(StatusCode::CONFLICT, "already-decided", Value::Null),
    }
}

/// Many answers, each by itself, as [`answer`] judges them.
async fn answer_many(State(server): State<Shared>, Json(body): Json<Value>) -> Json<Value> {
    assert_eq!(body["validate"], "each");
    let mut outcomes = Map::new();
    for (id, value) in body["answers"].as_object().expect("answers") {
        let one = json!({"answer": value});
        let (status, Json(reply)) = answer(State(server.clone()), Path(id.clone()), Json(one)).await;
        let outcome = match status {
            StatusCode::ACCEPTED | StatusCode::OK => {
                let repeated = status == StatusCode::OK;
                json!({"status": reply["status"], "thread_id": reply["thread_id"], "repeated": repeated})
            }
            _ => json!({"status": "refused", "problem": reply}),
        };
        outcomes.insert(id.clone(), outcome);
    }
    Json(json!({"outcomes": outcomes}))
}

/// Starts the API and returns what it holds and a client for it.
async fn api() -> (Shared, Client) {
    let _present = rustls::crypto::ring::default_provider().install_default();
    let shared = Shared::default();
    let overview = || async { Json(json!({"threads": {"queued": 1, "parked": 3}, "deliveries": {"pending": 0}})) };
    let routes = Router::new()
        .route("/api/v1/threads", post(start).get(list))
        .route("/api/v1/threads/{id}", get(show))
        .route("/api/v1/interrupts/{id}/answer", post(answer))
        .route("/api/v1/resume", post(answer_many))
        .route("/api/v1/overview", get(overview))
        .with_state(Arc::clone(&shared));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (shared, Client::new(&format!("http://{address}"), None).expect("client"))
}

/// A file that is gone at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("countersign-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("written");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

async fn run_each(client: &Client, file: &Scratch, more: &[&str]) -> Result<Exit, CliError> {
    let path = file.0.to_str().expect("path");
    let words = ["countersign", "run", "payment", "--each", path].into_iter().chain(more.iter().copied());
    let Command::Run(args) = Cli::try_parse_from(words).expect("arguments").command else { panic!("run") };
    run::run(client, Output::new(true), &args).await
}

#[tokio::test]
async fn rows_are_started_once_however_often_the_file_is_given() {
    let (shared, client) = api().await;
    shared.lock().expect("lock").failures = 2;
    let file = Scratch::new("once.csv", "no,amount\n1,5\n1,5\n2,6\n");
    assert_eq!(run_each(&client, &file, &[]).await, Ok(Exit::Ok));
    let first: Vec<String> = shared.lock().expect("lock").threads.keys().cloned().collect();
    assert_eq!(first.len(), 3, "two equal rows are two threads");
    assert_eq!(run_each(&client, &file, &[]).await, Ok(Exit::Ok));
    let longer = Scratch::new("longer.csv", "no,amount\n1,5\n1,5\n2,6\n3,7\n");
    assert_eq!(run_each(&client, &longer, &["--detach"]).await, Ok(Exit::Ok));
    let threads = &shared.lock().expect("lock").threads;
    assert_eq!(threads.len(), 4);
    assert!(first.iter().all(|id| threads.contains_key(id)));
}

#[tokio::test]
async fn rows_that_fail_leave_the_others_alone() {
    let (shared, client) = api().await;
    let file = Scratch::new("fail.csv", "no,amount\n1,5\n2,x\n3\n4,6\n");
    assert_eq!(run_each(&client, &file, &[]).await, Ok(Exit::SomeRowsFailed));
    assert_eq!(shared.lock().expect("lock").threads.len(), 2);
}

#[tokio::test]
async fn other_content_under_a_known_key_is_a_conflict() {
    let (shared, client) = api().await;
    let file = Scratch::new("key.csv", "no,amount\n1,5\n");
    assert_eq!(run_each(&client, &file, &["--key", "no"]).await, Ok(Exit::Ok));
    let changed = Scratch::new("changed.csv", "no,amount\n1,6\n2,7\n");
    assert_eq!(run_each(&client, &changed, &["--key", "no"]).await, Ok(Exit::SomeRowsFailed));
    assert_eq!(shared.lock().expect("lock").threads.len(), 2);
    let error = run_each(&client, &file, &["--key", "nr"]).await.expect_err("no such column");
    assert_eq!(error.exit, Exit::Usage);
}

#[tokio::test]
async fn what_fails_for_every_row_stops_at_once() {
    let (_, client) = api().await;
    let Command::Run(mut args) =
        Cli::try_parse_from(["countersign", "run", "nope", "--each", "x"]).expect("arguments").command
    else {
        panic!("run")
    };
    let file = Scratch::new("graph.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
    args.each = Some(file.0.clone());
    let error = run::run(&client, Output::new(true), &args).await.expect_err("unknown graph");
    assert_eq!(error.exit, Exit::NotFound);
}

#[tokio::test]
async fn answers_count_once_and_failures_are_counted() {
    let (shared, client) = api().await;
    let lines = "{\"interrupt\": \"a\", \"answer\": {\"approved\": true}}\n{\"interrupt\": \"b\", \"answer\": {}}\n";
    let file = Scratch::new("answers.jsonl", lines);
    let args = |file: &Scratch| Answer {
        interrupt: None,
        answer: None,
        each: Some(file.0.clone()),
        wait: Wait { detach: true, timeout: None },
    };
    for _ in 0..2 {
        assert_eq!(answer::run(&client, Output::new(true), &args(&file)).await, Ok(Exit::Ok));
    }
    assert_eq!(shared.lock().expect("lock").answers.len(), 2);
    let mixed = "interrupt,answer\na,\"{\"\"approved\"\": false}\"\nunknown,{}\nc,{}\n";
    let mixed = Scratch::new("answers.csv", mixed);
    assert_eq!(answer::run(&client, Output::new(true), &args(&mixed)).await, Ok(Exit::SomeRowsFailed));
    assert_eq!(shared.lock().expect("lock").answers.len(), 3);
}

#[tokio::test]
async fn the_list_follows_the_cursor_and_unknown_threads_are_not_found() {
    let (_, client) = api().await;
    let file = Scratch::new("list.csv", "no\n1\n2\n3\n4\n5\n");
    run_each(&client, &file, &["--detach"]).await.expect("started");
    let list = Threads::List(ListThreads { status: None, graph: None, limit: 5 });
    assert_eq!(threads::run(&client, Output::new(true), &list).await, Ok(Exit::Ok));
    let show = Threads::Show { thread: "nobody".to_owned() };
    let error = threads::run(&client, Output::new(false), &show).await.expect_err("unknown");
    assert_eq!(error.exit, Exit::NotFound);
    assert!(error.problem.is_some());
}

#[tokio::test]
async fn waiting_ends_at_its_limit() {
    let (_, client) = api().await;
    let progress = each::Progress::waiting(Output::new(true));
    let limit = Some(std::time::Duration::from_millis(30));
    let error = wait::until_rest(&client, wait::Scope::Everything, limit, &progress).await.expect_err("one is queued");
    assert_eq!(error.exit, Exit::TimedOut);
}

#[test]
fn the_program_ends_with_the_documented_codes() {
    let run = |words: &[&str], env: &dyn crate::config::Variables| {
        main(std::iter::once("countersign").chain(words.iter().copied()).map(Into::into), env)
    };
    let nothing = |_: &str| None;
    assert_eq!(run(&["--help"], &nothing), Exit::Ok);
    assert_eq!(run(&["nonsense"], &nothing), Exit::Usage);
    assert_eq!(run(&["config"], &nothing), Exit::Ok);
    assert_eq!(run(&["config", "--check"], &nothing), Exit::Ok);
    let wrong = |name: &str| (name == "COUNTERSIGN_LISTEN").then(|| "x".to_owned());
    assert_eq!(run(&["config", "--check"], &wrong), Exit::Usage);
}
