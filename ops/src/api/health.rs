//! Probes for whoever runs the process.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::Problem;
use crate::state::AppState;

/// The answer of a probe.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    status: &'static str,
}

/// Whether the process runs.
#[utoipa::path(get, path = "/health/live", responses((status = 200, body = Health)), security(()))]
pub(super) async fn live() -> Json<Health> {
    Json(Health { status: "live" })
}

/// Whether the process can serve: the store answers.
#[utoipa::path(
    get, path = "/health/ready",
    responses((status = 200, body = Health), (status = 503, body = Problem)),
    security(())
)]
pub(super) async fn ready(State(state): State<AppState>) -> Result<Json<Health>, Problem> {
    state.engine.store().ping().await.map_err(|error| {
        tracing::error!(%error, "not ready");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-ready", "Not ready", "the store does not answer")
    })?;
    Ok(Json(Health { status: "ready" }))
}
