//! The HTTP client of the commands.
//!
//! Retries what may be repeated: a server that is being restarted is waited
//! for, with growing pauses.

mod course;
mod events;
mod flow;
#[cfg(test)]
mod tests;
mod types;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use countersign_notifier::Secret;
use reqwest::{Method, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

pub use self::events::Watch;
pub use self::types::{
    Answered, DeliveryCounts, Overview, Page, Problem, ProblemError, SignInLink, Started, ThreadCounts, ThreadSummary,
};

/// The pauses between attempts, in milliseconds: about 25 seconds in all, so
/// that a restart in between goes unnoticed.
const PAUSES_MS: [u64; 10] = [50, 100, 200, 400, 800, 1_500, 3_000, 5_000, 7_000, 7_000];

/// How many of them a server gets that has never answered: it may just be
/// starting, but more likely the address is wrong.
const FIRST_PAUSES: usize = 6;

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a request got no usable reply.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClientError {
    /// The address of the server or this process' TLS is unusable.
    #[error("the HTTP client cannot be set up: {0}")]
    Setup(String),
    /// No connection, also after several attempts.
    #[error("no server answers at {server} ({reason}); start one with `countersign up`, or correct --server")]
    Unreachable {
        /// Where.
        server: String,
        /// The last attempt's reason.
        reason: String,
    },
    /// The connection broke after the request was sent, and the request cannot
    /// be repeated without doing it twice.
    #[error("{server} did not answer ({reason}); the request may have been accepted: look before you repeat it")]
    Lost {
        /// Where.
        server: String,
        /// What happened.
        reason: String,
    },
    /// The server refused, and said why.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The reply is none that this program understands.
    #[error("the server answered {status}, and not as expected: {what}")]
    Unexpected {
        /// The HTTP status.
        status: u16,
        /// What is wrong with the reply.
        what: String,
    },
}

/// Whether a request may be sent again when nobody knows if it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    /// The second one changes nothing.
    Safe,
    /// Only if it certainly did not arrive.
    Unsent,
}

/// A successful reply.
struct Reply {
    status: StatusCode,
    body: Value,
}

/// Talks to one server with one token.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    server: Url,
    token: Option<Secret>,
    pauses: &'static [u64],
    /// Whether the server has ever answered.
    reached: Arc<AtomicBool>,
}

impl Client {
    /// A client for the server at `server`, an `http(s)` URL. It connects
    /// later. Needs a TLS provider in the process.
    ///
    /// # Errors
    /// [`ClientError::Setup`].
    pub fn new(server: &str, token: Option<Secret>) -> Result<Self, ClientError> {
        let setup = |error: String| ClientError::Setup(format!("`{server}`: {error}"));
        let url = Url::parse(server).map_err(|error| setup(error.to_string()))?;
        let Some(host) = url.host_str().filter(|_| matches!(url.scheme(), "http" | "https")) else {
            return Err(setup("write http:// or https:// and a host".to_owned()));
        };
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(5))
            .timeout(REQUEST_TIMEOUT);
        if matches!(host, "localhost" | "127.0.0.1" | "[::1]") {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| setup(error.to_string()))?;
        Ok(Self { http, server: url, token, pauses: &PAUSES_MS, reached: Arc::default() })
    }

    /// Starts a thread; with a `thread_id`, once however often it is called.
    ///
    /// # Errors
    /// As [`ClientError`]; an existing thread is a refusal of type
    /// `thread-exists`.
    pub async fn start(&self, graph: &str, input: &Value, thread_id: Option<&str>) -> Result<Value, ClientError> {
        self.start_as(graph, input, thread_id, &Map::new()).await
    }

    /// As [`start`](Self::start), with more members of the request.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_as(
        &self,
        graph: &str,
        input: &Value,
        thread_id: Option<&str>,
        more: &Map<String, Value>,
    ) -> Result<Value, ClientError> {
        let mut body = more.clone();
        body.insert("graph".to_owned(), json!(graph));
        body.insert("input".to_owned(), input.clone());
        if let Some(id) = thread_id {
            body.insert("thread_id".to_owned(), json!(id));
        }
        let repeat = if thread_id.is_some() { Repeat::Safe } else { Repeat::Unsent };
        Ok(self.call(Method::POST, &["threads"], &[], Some(&Value::Object(body)), repeat).await?.body)
    }

    /// Answers a question. The flag says whether the same answer was on record
    /// before.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn answer(&self, interrupt: &str, answer: &Value) -> Result<(Value, bool), ClientError> {
        let body = json!({"answer": answer});
        let reply =
            self.call(Method::POST, &["interrupts", interrupt, "answer"], &[], Some(&body), Repeat::Safe).await?;
        Ok((reply.body, reply.status == StatusCode::OK))
    }

    /// Answers many questions, each by itself: `outcomes` of the reply says what
    /// became of each.
    ///
    /// # Errors
    /// As [`ClientError`]; what is refused is no error.
    pub async fn answer_many(&self, answers: &Map<String, Value>) -> Result<Value, ClientError> {
        let body = json!({"answers": answers, "validate": "each"});
        Ok(self.call(Method::POST, &["resume"], &[], Some(&body), Repeat::Safe).await?.body)
    }

    /// A thread with its state and open points.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn thread(&self, id: &str) -> Result<Value, ClientError> {
        Ok(self.call(Method::GET, &["threads", id], &[], None, Repeat::Safe).await?.body)
    }

    /// One page of threads.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn threads(
        &self,
        status: Option<&str>,
        graph: Option<&str>,
        limit: u64,
        cursor: Option<&str>,
    ) -> Result<Page, ClientError> {
        self.page("threads", &[("status", status), ("graph", graph)], limit, cursor).await
    }

    /// One page of interrupts.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn interrupts(
        &self,
        status: &str,
        graph: Option<&str>,
        approver: Option<&str>,
        limit: u64,
        cursor: Option<&str>,
    ) -> Result<Page, ClientError> {
        let filters = [("status", Some(status)), ("graph", graph), ("approver", approver)];
        self.page("interrupts", &filters, limit, cursor).await
    }

    async fn page(
        &self,
        list: &str,
        filters: &[(&str, Option<&str>)],
        limit: u64,
        cursor: Option<&str>,
    ) -> Result<Page, ClientError> {
        let limit = limit.min(500).to_string();
        let place = [("limit", Some(limit.as_str())), ("cursor", cursor)];
        let all = filters.iter().chain(&place);
        let query: Vec<(&str, &str)> = all.filter_map(|(name, value)| Some((*name, (*value)?))).collect();
        decode(self.call(Method::GET, &[list], &query, None, Repeat::Safe).await?)
    }

    /// An interrupt, in whatever state.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn interrupt(&self, id: &str) -> Result<Value, ClientError> {
        Ok(self.call(Method::GET, &["interrupts", id], &[], None, Repeat::Safe).await?.body)
    }

    /// A link that signs a person in.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn sign_in_link(&self, person: &str, hours: u64) -> Result<SignInLink, ClientError> {
        let body = json!({"person": person, "valid_hours": hours});
        decode(self.call(Method::POST, &["sign-in-links"], &[], Some(&body), Repeat::Safe).await?)
    }

    /// The counts over everything.
    ///
    /// # Errors
    /// As [`ClientError`].
    pub async fn overview(&self) -> Result<Overview, ClientError> {
        decode(self.call(Method::GET, &["overview"], &[("fresh", "true")], None, Repeat::Safe).await?)
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.server.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    async fn call(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&Value>,
        repeat: Repeat,
    ) -> Result<Reply, ClientError> {
        self.call_once(method, path, query, body, repeat, None).await
    }

    /// As `call`, with an idempotency key.
    async fn call_once(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&Value>,
        repeat: Repeat,
        key: Option<&str>,
    ) -> Result<Reply, ClientError> {
        let url = self.url(path, query);
        let mut pauses = self.pauses.iter().enumerate();
        loop {
            let mut request = self.http.request(method.clone(), url.clone());
            if let Some(token) = &self.token {
                request = request.bearer_auth(token.expose());
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            if let Some(key) = key {
                request = request.header("Idempotency-Key", key);
            }
            let sent = request.send().await;
            let again = match &sent {
                Ok(response) => {
                    self.reached.store(true, Ordering::Relaxed);
                    is_for_later(response.status(), repeat)
                }
                Err(error) => error.is_connect() || repeat == Repeat::Safe,
            };
            let reached = self.reached.load(Ordering::Relaxed);
            if again && let Some((_, pause)) = pauses.next().filter(|(used, _)| reached || *used < FIRST_PAUSES) {
                tokio::time::sleep(Duration::from_millis(*pause)).await;
                continue;
            }
            let response = sent.map_err(|error| self.failed(error, repeat))?;
            let status = response.status();
            match response.text().await {
                Ok(text) => return read_reply(status, &text),
                Err(error) => match pauses.next().filter(|_| repeat == Repeat::Safe) {
                    Some((_, pause)) => tokio::time::sleep(Duration::from_millis(*pause)).await,
                    None => return Err(self.failed(error, repeat)),
                },
            }
        }
    }

    fn failed(&self, error: reqwest::Error, repeat: Repeat) -> ClientError {
        let server = self.server.as_str().trim_end_matches('/').to_owned();
        let unsent = error.is_connect();
        // The innermost cause says most: "connection refused", say.
        let error = error.without_url();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let reason = if error.is_timeout() { "timeout".to_owned() } else { cause.to_string() };
        if unsent || repeat == Repeat::Safe {
            ClientError::Unreachable { server, reason }
        } else {
            ClientError::Lost { server, reason }
        }
    }
}

/// Whether the reply says to come back later.
fn is_for_later(status: StatusCode, repeat: Repeat) -> bool {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
        status => status.is_server_error() && repeat == Repeat::Safe,
    }
}

fn read_reply(status: StatusCode, text: &str) -> Result<Reply, ClientError> {
    if status == StatusCode::NO_CONTENT {
        return Ok(Reply { status, body: Value::Null });
    }
    let body: Option<Value> = serde_json::from_str(text).ok();
    if status.is_success() {
        let unreadable = || ClientError::Unexpected { status: status.as_u16(), what: "the body is no JSON".to_owned() };
        return Ok(Reply { status, body: body.ok_or_else(unreadable)? });
    }
    let problem = body.filter(Value::is_object).and_then(|body| serde_json::from_value::<Problem>(body).ok());
    match problem {
        Some(problem) => Err(ClientError::Refused(Box::new(Problem { status: status.as_u16(), ..problem }))),
        None => Err(ClientError::Unexpected {
            status: status.as_u16(),
            what: "no problem document; is this a Countersign server?".to_owned(),
        }),
    }
}

fn decode<T: DeserializeOwned>(reply: Reply) -> Result<T, ClientError> {
    serde_json::from_value(reply.body)
        .map_err(|error| ClientError::Unexpected { status: reply.status.as_u16(), what: error.to_string() })
}
