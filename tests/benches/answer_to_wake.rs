//! From an accepted answer to the start of the next node, over real HTTP and a
//! real SQLite file: `cargo bench -p countersign-tests --bench answer_to_wake`.
//!
//! Prints one JSON object: percentiles in milliseconds, of `sent_to_start`
//! (from just before the request is sent) and `accepted_to_start` (from the 202
//! being read by the client; zero when the node started before that).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use countersign::api;
use countersign::config::Config;
use countersign::state::AppState;
use countersign_kernel::ports::{Clock as _, Ids as _};
use countersign_kernel::prelude::*;
use countersign_notifier::{LinkKeys, Links};
use countersign_worker::engine::{Engine, EngineConfig, Parts};
use countersign_worker::queue::Carrier;
use countersign_worker::store::views::{InterruptFilter, TokenRecord};
use countersign_worker::store::{SqliteStore, Store};
use countersign_worker::system::{SystemClock, SystemIds};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const RUNS: usize = 500;

static STARTED: LazyLock<Mutex<HashMap<String, Instant>>> = LazyLock::new(Mutex::default);

#[derive(State)]
struct Case {
    name: String,
    approved: Option<bool>,
}

async fn ask(cx: &Context, case: &Case) -> NodeResult<CaseUpdate> {
    let decision = cx.ask(approval(format!("Go on with {}?", case.name)).to(role("approver"))).await?;
    Ok(Case::update().approved(Some(decision.approved)))
}

async fn next(_: &Context, case: &Case) -> NodeResult<CaseUpdate> {
    let now = Instant::now();
    STARTED.lock().expect("not poisoned").insert(case.name.clone(), now);
    Ok(Case::update())
}

fn flow() -> CompiledGraph {
    let mut g = Graph::<Case>::new("case", 1);
    let ask = g.node("ask", ask);
    let next = g.node("next", next);
    g.start(ask).edge(ask, next).end(next);
    g.compile().expect("sound")
}

#[tokio::main]
async fn main() {
    let _present = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(&folder.path().join("bench.db")).await.expect("opens");
    let token = TokenRecord { name: "admin".into(), scopes: vec!["admin".into()], graphs: None };
    store.put_token(&token, &api::hash_token("bench-token"), SystemClock.now()).await.expect("stored");
    let config = Config::parse("", "bench", &|_| None).expect("defaults");
    let directory = Arc::new(config.directory());
    let engine = Engine::new(Parts {
        store: Arc::new(store.clone()),
        graphs: vec![flow()],
        directory: directory.clone(),
        // Deliveries are not what is measured.
        channels: Vec::new(),
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        worker: format!("bench-{}", SystemIds.uuid()),
        config: EngineConfig::default(),
    });
    let keys = LinkKeys::new(("bench".into(), vec![7; 32]), Vec::new(), 1).expect("keys");
    let state = AppState {
        engine: engine.clone(),
        links: Arc::new(Links::new("http://localhost", keys, Duration::from_hours(1))),
        directory,
        mailbox: None,
        config: Arc::new(config),
        base_url: "http://localhost".into(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base = format!("http://{}/api/v1", listener.local_addr().expect("bound"));
    let shutdown = CancellationToken::new();
    let carrier = Carrier::new(store.write_pool(), "bench", Carrier::POLL_INTERVAL);
    let (wake, stop) = (engine.wake(), shutdown.clone());
    let receiver = Arc::new(engine.clone());
    tokio::spawn(async move { carrier.run(receiver, wake, stop).await });
    let (running, stop) = (engine.clone(), shutdown.clone());
    tokio::spawn(async move { running.run(stop).await });
    tokio::spawn(async move { axum::serve(listener, api::router(state)).await });

    let client = reqwest::Client::new();
    for run in 0..RUNS + 20 {
        let body = json!({"graph": "case", "input": {"name": format!("case-{run}")}});
        let reply = post(&client, &format!("{base}/threads"), &body).await;
        assert!(reply.get("thread_id").is_some(), "{reply}");
    }
    let open = InterruptFilter { status: Some("open".into()), ..InterruptFilter::default() };
    let mut waiting = Vec::new();
    while waiting.len() < RUNS + 20 {
        tokio::task::yield_now().await;
        waiting = store.interrupts(&open, None, 10_000).await.expect("listed");
    }
    let (mut sent_to_start, mut accepted_to_start) = (Vec::new(), Vec::new());
    for (i, view) in waiting.iter().enumerate() {
        let detail = store.thread(&view.thread).await.expect("there");
        let name = detail.state["name"].as_str().expect("a name").to_owned();
        let sent = Instant::now();
        post(&client, &format!("{base}/interrupts/{}/answer", view.id), &json!({"answer": {"approved": true}})).await;
        let accepted = Instant::now();
        let started = loop {
            if let Some(started) = STARTED.lock().expect("not poisoned").get(&name) {
                break *started;
            }
            tokio::task::yield_now().await;
        };
        // The first ones warm up.
        if i >= 20 {
            sent_to_start.push(started.duration_since(sent));
            accepted_to_start.push(started.saturating_duration_since(accepted));
        }
    }
    shutdown.cancel();
    let report = json!({
        "workload": "answer_to_wake", "backend": "sqlite", "runs": RUNS,
        "sent_to_start_ms": percentiles(&mut sent_to_start),
        "accepted_to_start_ms": percentiles(&mut accepted_to_start),
    });
    #[expect(clippy::print_stdout, reason = "the result of the program")]
    {
        println!("{report}");
    }
}

async fn post(client: &reqwest::Client, url: &str, body: &Value) -> Value {
    let reply = client.post(url).bearer_auth("bench-token").json(body).send().await.expect("answered");
    assert_eq!(reply.status().as_u16(), 202, "{url}");
    reply.json().await.expect("JSON")
}

fn percentiles(times: &mut [Duration]) -> Value {
    times.sort_unstable();
    let at = |p: usize| times[(times.len() - 1) * p / 100].as_secs_f64() * 1000.0;
    json!({"p50": at(50), "p99": at(99), "max": at(100)})
}
