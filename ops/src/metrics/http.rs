//! Requests over HTTP, by route.

use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds of the buckets, in seconds.
const BOUNDS: [f64; 10] = [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0];

type Labels = Vec<(&'static str, String)>;

/// Requests that were answered. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub(crate) struct HttpMetrics {
    requests: Family<Labels, Counter>,
    durations: Family<Labels, Histogram, fn() -> Histogram>,
}

impl Default for HttpMetrics {
    fn default() -> Self {
        Self { requests: Family::default(), durations: Family::new_with_constructor(|| Histogram::new(BOUNDS)) }
    }
}

impl HttpMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("http_requests", "Requests over HTTP by method, route and status", self.requests.clone());
        registry.register(
            "http_request_seconds",
            "From a request to the head of its response, by route",
            self.durations.clone(),
        );
    }

    fn note(&self, method: &'static str, route: &str, status: u16, took: Duration) {
        let labels = vec![("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
        self.requests.get_or_create(&labels).inc();
        self.durations.get_or_create(&vec![("route", route.to_owned())]).observe(took.as_secs_f64());
    }
}

/// The methods that are told apart: a client can make up others.
fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}

/// Counts what passes through. A route, never an address: those are without
/// bound, and personal links are among them (R29).
pub(crate) async fn count(State(metrics): State<HttpMetrics>, request: Request, next: Next) -> Response {
    let method = name(request.method());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let began = Instant::now();
    let response = next.run(request).await;
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    metrics.note(method, route, response.status().as_u16(), began.elapsed());
    response
}
