//! The API as a client sees it.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use super::eventually;

/// Talks to one server with one token.
#[derive(Clone)]
pub(crate) struct Api {
    base: String,
    token: Option<String>,
    http: reqwest::Client,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    /// The body as JSON, `null` if it is none.
    pub(crate) body: Value,
}

impl Reply {
    /// A header's value, empty if it is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body, after a look at the status.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    /// The body, which is a whole problem document of this kind.
    #[track_caller]
    pub(crate) fn problem(self, status: u16, name: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        assert_eq!(self.body["type"], format!("urn:countersign:problem:{name}"), "{}", self.text);
        assert_eq!(self.body["status"], status, "{}", self.text);
        for member in ["title", "detail"] {
            assert!(self.body[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {}", self.text);
        }
        self.body
    }
}

/// The values of a member over a list.
pub(crate) fn identities(items: &Value, member: &str) -> BTreeSet<String> {
    let items = items.as_array().expect("a list");
    items.iter().map(|item| item[member].as_str().expect("a text").to_owned()).collect()
}

impl Api {
    pub(crate) fn new(base: &str, token: Option<&str>) -> Self {
        // A second test of this process finds one installed.
        let _there = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(super::DEADLINE)
            .build()
            .expect("a client");
        Self { base: base.to_owned(), token: token.map(str::to_owned), http }
    }

    /// The same server with another token, or without one.
    pub(crate) fn with_token(&self, token: Option<&str>) -> Self {
        Self { token: token.map(str::to_owned), ..self.clone() }
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Sends a request. A path that begins with a slash is taken as it is,
    /// others are under `/api/v1/`.
    pub(crate) async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Reply {
        let url =
            if path.starts_with('/') { format!("{}{path}", self.base) } else { format!("{}/api/v1/{path}", self.base) };
        let mut request = self.http.request(method, url).body(body);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.expect("a response");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.expect("a body");
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Reply { status, headers, text, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], Vec::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(Method::POST, path, &[("content-type", "application/json")], body.to_string().into_bytes()).await
    }

    /// Posts under an idempotency key.
    pub(crate) async fn post_once(&self, key: &str, path: &str, body: &Value) -> Reply {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        self.send(Method::POST, path, &headers, body.to_string().into_bytes()).await
    }

    /// Starts a thread and returns its id.
    pub(crate) async fn start(&self, graph: &str, input: Value) -> String {
        let reply = self.post("threads", &json!({"graph": graph, "input": input})).await.is(202);
        reply["thread_id"].as_str().expect("an id").to_owned()
    }

    /// Starts an expense of this amount.
    pub(crate) async fn expense(&self, amount: &str) -> String {
        self.start("expense", expense(amount)).await
    }

    /// The thread, once it rests.
    pub(crate) async fn rested(&self, thread: &str) -> Value {
        let path = format!("threads/{thread}");
        eventually(&format!("{thread} rests"), || async {
            let thread = self.get(&path).await.is(200);
            match thread["status"].as_str() {
                Some("queued" | "running") => Err(thread.to_string()),
                _ => Ok(thread),
            }
        })
        .await
    }

    /// The ids of what a thread waits for, once it is parked.
    pub(crate) async fn asked(&self, thread: &str) -> Vec<String> {
        let thread = self.rested(thread).await;
        assert_eq!(thread["status"], "parked", "{thread}");
        let interrupts = thread["interrupts"].as_array().expect("a list");
        interrupts.iter().map(|interrupt| interrupt["id"].as_str().expect("an id").to_owned()).collect()
    }

    /// The one id that a thread waits for.
    pub(crate) async fn question(&self, thread: &str) -> String {
        let mut asked = self.asked(thread).await;
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.remove(0)
    }

    /// Answers a question.
    pub(crate) async fn answer(&self, interrupt: &str, answer: Value) -> Reply {
        self.post(&format!("interrupts/{interrupt}/answer"), &json!({"answer": answer})).await
    }

    /// The messages about a question, once all of them have ended.
    pub(crate) async fn delivered(&self, interrupt: &str) -> Vec<Value> {
        let path = format!("interrupts/{interrupt}/deliveries");
        eventually("all messages have ended", || async {
            let deliveries = self.get(&path).await.is(200);
            let list = deliveries.as_array().expect("a list");
            let ended = |delivery: &Value| matches!(delivery["status"].as_str(), Some("sent" | "failed"));
            if !list.is_empty() && list.iter().all(ended) { Ok(list.clone()) } else { Err(deliveries.to_string()) }
        })
        .await
    }

    /// The checkpoints of a thread, newest first.
    pub(crate) async fn history(&self, thread: &str) -> Vec<Value> {
        let page = self.get(&format!("threads/{thread}/history?limit=500")).await.is(200);
        page["items"].as_array().expect("a list").clone()
    }

    /// The newest checkpoint at which exactly these nodes are due.
    pub(crate) async fn checkpoint(&self, thread: &str, next: &[&str]) -> String {
        let history = self.history(thread).await;
        let found = history.iter().find(|entry| entry["next"] == json!(next));
        let found = found.unwrap_or_else(|| panic!("no checkpoint before {next:?}: {history:?}"));
        found["checkpoint_id"].as_str().expect("an id").to_owned()
    }

    /// How many threads there are.
    pub(crate) async fn count(&self) -> u64 {
        let overview = self.get("overview").await.is(200);
        overview["threads"].as_object().expect("counts").values().filter_map(Value::as_u64).sum()
    }

    /// Asserts that a thread's audit chain holds, and returns its actions.
    pub(crate) async fn audited(&self, thread: &str) -> Vec<String> {
        let audit = self.get(&format!("threads/{thread}/audit")).await.is(200);
        assert_eq!((&audit["intact"], &audit["broken_at"]), (&json!(true), &Value::Null), "{audit}");
        let items = audit["items"].as_array().expect("a list");
        items.iter().map(|item| item["action"].as_str().expect("a word").to_owned()).collect()
    }
}

/// The input of an expense of this amount.
pub(crate) fn expense(amount: &str) -> Value {
    json!({"amount": amount, "currency": "EUR", "requester": "Ines Moreau", "purpose": "Fair"})
}
