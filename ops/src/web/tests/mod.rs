//! Driving the pages, with a store and an engine behind them.

mod course;
mod links;
mod other_pages;
mod sessions;
mod templates;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use countersign_flows::InMemoryLedger;
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::ports::Person;
use countersign_kernel::prelude::*;
use countersign_kernel::question::Request as Question;
use countersign_notifier::{LinkClaim, LinkKeys, Links, Mailbox};
use countersign_worker::engine::{Engine, EngineConfig, Parts};
use countersign_worker::store::SqlStore;
use countersign_worker::store::views::{InterruptFilter, InterruptView};
use countersign_worker::system::{SystemClock, SystemIds};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt as _;

use super::{router, sign_in_link};
use crate::api::InFlight;
use crate::config::{ADMINISTRATOR, Config, ConfiguredDirectory};
use crate::metrics::HttpMetrics;
use crate::state::AppState;

const DAY: Duration = Duration::from_hours(24);

#[derive(State)]
struct Pair {
    decision: Option<Decision>,
}

async fn ask_two(cx: &Context, _: &Pair) -> NodeResult<PairUpdate> {
    let ask = approval("Open the vault?").to(role("manager")).need(2).on_yes("it opens").on_no("it stays shut");
    Ok(Pair::update().decision(Some(cx.ask(ask).await?)))
}

fn pair() -> CompiledGraph {
    let mut flow = Graph::<Pair>::new("pair", 1);
    let ask = flow.node("ask", ask_two);
    flow.start(ask);
    flow.end(ask);
    flow.compile().expect("sound")
}

fn someone(name: &str, roles: &[&str]) -> Person {
    let email = format!("{}@example.com", name.to_lowercase());
    Person {
        principal: Principal::person(&email),
        name: name.to_owned(),
        email,
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
    }
}

/// Pages with everything behind them.
struct Pages {
    state: AppState,
    router: Router,
    folder: tempfile::TempDir,
    _running: DropGuard,
}

/// What came back.
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    fn expect(self, status: StatusCode, parts: &[&str]) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        for part in parts {
            assert!(self.body.contains(part), "`{part}` is not in {}", self.body);
        }
        self
    }

    /// The hidden fields of the form, as they are posted.
    fn hidden(&self) -> String {
        let value = |name: &str| {
            let start = format!("name=\"{name}\" value=\"");
            let rest = self.body.split_once(&start).expect("a form").1;
            rest.split_once('"').expect("quoted").0.to_owned()
        };
        format!("revision={}&content_hash={}", value("revision"), value("content_hash"))
    }
}

impl Pages {
    /// Ann and Bob are managers, Bob also finance, Cy neither; Ann also
    /// answers what goes to nobody in particular.
    async fn new() -> Self {
        Self::at("http://127.0.0.1:8420", true).await
    }

    async fn at(base_url: &str, people: bool) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let store = SqlStore::open(&folder.path().join("test.db")).await.expect("store");
        let configured =
            vec![someone("Ann", &["manager", "approver"]), someone("Bob", &["manager", "finance"]), someone("Cy", &[])];
        let config = Config { people: if people { configured } else { Vec::new() }, ..Config::default() };
        let directory = Arc::new(ConfiguredDirectory::new(config.people.clone(), &[]));
        let engine = Engine::new(Parts {
            store: Arc::new(store),
            graphs: vec![
                pair(),
                countersign_flows::hitl_tour().expect("sound"),
                countersign_flows::expense(Arc::new(InMemoryLedger::new())).expect("sound"),
            ],
            directory: directory.clone(),
            channels: Vec::new(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
            worker: "test".to_owned(),
            config: EngineConfig::default(),
        });
        let stop = CancellationToken::new();
        let running = engine.clone();
        let stopped = stop.clone();
        tokio::spawn(async move { running.run(stopped).await });
        let state = AppState {
            engine,
            links: Arc::new(Links::new(base_url, keys("k1", 0), 30 * DAY)),
            directory,
            mailbox: Some(Arc::new(Mailbox::new(folder.path().join("mailbox")))),
            config: Arc::new(config),
            base_url: base_url.into(),
            lookout: Arc::default(),
            http_metrics: HttpMetrics::default(),
            in_flight: InFlight::default(),
        };
        Self { router: router(state.clone()), state, folder, _running: stop.drop_guard() }
    }

    fn mailbox(&self) -> std::path::PathBuf {
        let folder: &Path = self.folder.path();
        folder.join("mailbox")
    }

    async fn start(&self, graph: &str, thread: &str, input: Value) -> InterruptView {
        let id = ThreadId::parse(thread).expect("id");
        let by = Principal::person("starter@example.com");
        self.state.engine.start(graph, &input, Some(id), &by).await.expect("started");
        self.waiting(thread).await
    }

    /// The one open interrupt of a thread, once there is one.
    async fn waiting(&self, thread: &str) -> InterruptView {
        let filter = InterruptFilter {
            status: Some("open".to_owned()),
            thread: Some(ThreadId::parse(thread).expect("id")),
            ..InterruptFilter::default()
        };
        for _ in 0..2000 {
            let found = self.state.engine.store().interrupts(&filter, None, 10).await.expect("read");
            if let Some(view) = found.into_iter().next() {
                return view;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{thread} did not park");
    }

    async fn interrupt(&self, id: &InterruptId) -> InterruptView {
        self.state.engine.store().interrupt(id).await.expect("read")
    }

    fn claim(&self, who: &str, view: &InterruptView) -> LinkClaim {
        LinkClaim {
            thread: view.thread.clone(),
            interrupt: view.id.clone(),
            principal: Principal::person(&format!("{who}@example.com")),
            content_hash: Question::from_payload(&view.payload).expect("a request").content_hash(),
            expires_at: self.state.now().after(DAY),
        }
    }

    fn path_of(&self, claim: &LinkClaim) -> String {
        self.state.links.url(claim).strip_prefix(&*self.state.base_url).expect("below").to_owned()
    }

    /// The path of somebody's personal link.
    fn link(&self, who: &str, view: &InterruptView) -> String {
        self.path_of(&self.claim(who, view))
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).expect("request");
        let response = self.router.clone().oneshot(request).await.expect("infallible");
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body(), usize::MAX).await.expect("body");
        Reply { status, headers, body: String::from_utf8(body.to_vec()).expect("text") }
    }

    async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], "").await
    }

    async fn post(&self, path: &str, body: &str) -> Reply {
        self.send(Method::POST, path, &[("content-type", "application/x-www-form-urlencoded")], body).await
    }

    /// The cookie of somebody who signed in.
    async fn cookie(&self, principal: &Principal) -> String {
        let link = sign_in_link(&self.state, principal, DAY);
        let path = link.strip_prefix(&*self.state.base_url).expect("below");
        let reply = self.get(path).await.expect(StatusCode::SEE_OTHER, &[]);
        reply.header("set-cookie").split_once(';').expect("attributes").0.to_owned()
    }

    async fn administrator(&self) -> String {
        self.cookie(&Principal::person(ADMINISTRATOR)).await
    }

    async fn get_as(&self, cookie: &str, path: &str) -> Reply {
        self.send(Method::GET, path, &[("cookie", cookie)], "").await
    }

    async fn post_as(&self, cookie: &str, path: &str, body: &str) -> Reply {
        let headers = [
            ("cookie", cookie),
            ("content-type", "application/x-www-form-urlencoded"),
            ("sec-fetch-site", "same-origin"),
        ];
        self.send(Method::POST, path, &headers, body).await
    }
}

fn keys(kid: &str, epoch: u32) -> LinkKeys {
    let secret = format!("{kid:-<40}").into_bytes();
    LinkKeys::new((kid.to_owned(), secret), Vec::new(), epoch).expect("good keys")
}

fn expense(amount: &str) -> Value {
    json!({"amount": amount, "currency": "EUR", "requester": "<script>alert(1)</script>", "purpose": "Fair"})
}
