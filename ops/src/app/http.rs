//! The HTTP server around API and pages.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::set_header::SetResponseHeaderLayer;
use tower_http::trace::TraceLayer;

use crate::api::{self, Problem};
use crate::metrics;
use crate::state::AppState;
use crate::web;

/// How long a shutdown waits for requests that are being answered.
const DRAIN: Duration = Duration::from_secs(5);

/// Everything that is served.
pub(super) fn router(state: AppState) -> Router {
    let nosniff = SetResponseHeaderLayer::if_not_present(
        HeaderName::from_static("x-content-type-options"),
        HeaderValue::from_static("nosniff"),
    );
    let metrics = state.http_metrics.clone();
    api::router(state.clone())
        .merge(web::router(state))
        .layer(from_fn_with_state(metrics, metrics::count))
        .layer(nosniff)
        .layer(TraceLayer::new_for_http().make_span_with(span))
        .layer(CatchPanicLayer::custom(panicked))
}

/// Metrics and probes, and nothing else.
pub(super) fn probes(state: AppState) -> Router {
    let metrics = state.http_metrics.clone();
    api::probes(state)
        .layer(from_fn_with_state(metrics, metrics::count))
        .layer(TraceLayer::new_for_http().make_span_with(span))
        .layer(CatchPanicLayer::custom(panicked))
}

/// The route, never the address: personal links are in addresses (R29).
fn span(request: &Request<Body>) -> tracing::Span {
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str);
    tracing::debug_span!("http", method = %request.method(), route)
}

fn panicked(_: Box<dyn std::any::Any + Send + 'static>) -> Response {
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal",
        "Something went wrong here",
        "the fault is logged; trying again is safe",
    )
    .into_response()
}

pub(super) async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    let stop = shutdown.clone();
    let server = axum::serve(listener, router).with_graceful_shutdown(async move { stop.cancelled().await });
    let late = async {
        shutdown.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        ended = server => {
            if let Err(error) = ended {
                tracing::error!(%error, "the HTTP server ended");
            }
        }
        () = late => tracing::warn!("some requests were cut off at shutdown"),
    }
}
