//! Metrics for Prometheus, which shows a token as a bearer.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::auth::{Caller, Scope};
use super::problem::Problem;
use crate::metrics;
use crate::overview::Fresh;
use crate::state::AppState;

/// How everything stands and what this process did, in Prometheus' text format.
/// For tokens that reach all graphs: the numbers are those of all of them.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics",
    responses(
        (status = 200, content_type = "text/plain", body = String), (status = 401, body = Problem),
        (status = 403, body = Problem)
    )
)]
pub(super) async fn show(State(state): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    if !caller.may(Scope::Operate) {
        caller.require(Scope::ThreadsRead)?;
    }
    caller.require_all_graphs()?;
    let look = state.lookout.look(&state.engine, Fresh::Recent).await?;
    match metrics::text(&state.engine, &look, &state.http_metrics) {
        Ok(text) => Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()),
        Err(error) => {
            tracing::error!(%error, "the metrics could not be written");
            let detail = "the fault is logged; trying again is safe";
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Something went wrong here", detail))
        }
    }
}
