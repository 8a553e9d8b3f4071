//! From an accepted answer to the start of the next node, over real HTTP and a
//! real SQLite file: `cargo bench -p countersign-tests --bench answer_to_wake`.
//!
//! Prints one JSON object: percentiles in milliseconds, of `sent_to_start`
//! (from just before the request is sent) and `accepted_to_start` (from the 202
//! being read by the client; zero when the node started before that).

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use countersign::app::{self, Options, Port};
use countersign::config::Config;
use countersign_kernel::prelude::*;
use countersign_worker::store::views::InterruptFilter;
use serde_json::{Value, json};

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
    let mut config = Config::parse("", "bench", &|_: &str| None).expect("defaults");
    config.data_dir = folder.path().to_owned();
    let options = Options { demo: false, port: Port::Ephemeral };
    let running = app::start_with(&config, options, vec![flow()]).await.expect("starts");
    let (base, store) = (format!("{}/api/v1", running.base_url), running.engine.store().clone());

    let client = Client { http: reqwest::Client::new(), token: running.token.clone() };
    for run in 0..RUNS + 20 {
        let body = json!({"graph": "case", "input": {"name": format!("case-{run}")}});
        let reply = client.post(&format!("{base}/threads"), &body).await;
        assert!(reply.get("thread_id").is_some(), "{reply}");
    }
    let open = InterruptFilter { status: Some("open".into()), ..InterruptFilter::default() };
    let mut waiting = Vec::new();
    while waiting.len() < RUNS + 20 {
        tokio::task::yield_now().await;
        waiting = store.interrupts(&open, None, 10_000).await.expect("listed");
    }
    while running.engine.busy() > 0 {
        tokio::task::yield_now().await;
    }
    let (mut sent_to_start, mut accepted_to_start) = (Vec::new(), Vec::new());
    for (i, view) in waiting.iter().enumerate() {
        let detail = store.thread(&view.thread).await.expect("there");
        let name = detail.state["name"].as_str().expect("a name").to_owned();
        let sent = Instant::now();
        client.post(&format!("{base}/interrupts/{}/answer", view.id), &json!({"answer": {"approved": true}})).await;
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
    running.stop().await;
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

struct Client {
    http: reqwest::Client,
    token: String,
}

impl Client {
    async fn post(&self, url: &str, body: &Value) -> Value {
        let reply = self.http.post(url).bearer_auth(&self.token).json(body).send().await.expect("answered");
        assert_eq!(reply.status().as_u16(), 202, "{url}");
        reply.json().await.expect("JSON")
    }
}

fn percentiles(times: &mut [Duration]) -> Value {
    times.sort_unstable();
    let at = |p: usize| times[(times.len() - 1) * p / 100].as_secs_f64() * 1000.0;
    json!({"p50": at(50), "p99": at(99), "max": at(100)})
}
