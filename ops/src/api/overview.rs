//! Counts, and the flows this server knows.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::{Caller, Scope};
use super::problem::Problem;
use super::shapes::rfc3339;
use crate::state::AppState;

const THREAD_STATUSES: [&str; 7] = ["queued", "running", "parked", "held", "succeeded", "failed", "cancelled"];
const DELIVERY_STATUSES: [&str; 5] = ["pending", "sending", "sent", "failed", "skipped"];

/// Counts over everything.
#[derive(Serialize, ToSchema)]
pub(super) struct OverviewShape {
    /// Threads by status.
    threads: BTreeMap<String, u64>,
    /// Messages by status.
    deliveries: BTreeMap<String, u64>,
    /// Requests that wait for people.
    requests_open: u64,
    /// Work that gave up.
    dead_letters: u64,
    /// Since when the oldest open point waits.
    oldest_open: Option<String>,
}

/// What waits, what failed, how much.
#[utoipa::path(get, path = "/overview", operation_id = "overview", responses((status = 200, body = OverviewShape), (status = 401, body = Problem)))]
pub(super) async fn show(State(state): State<AppState>, caller: Caller) -> Result<Json<OverviewShape>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    let overview = state.engine.store().overview_of(caller.graphs()).await?;
    let counts = |names: &[&str], counted: Vec<(String, u64)>| {
        let mut all: BTreeMap<String, u64> = names.iter().map(|name| ((*name).to_owned(), 0)).collect();
        all.extend(counted);
        all
    };
    Ok(Json(OverviewShape {
        threads: counts(&THREAD_STATUSES, overview.threads),
        deliveries: counts(&DELIVERY_STATUSES, overview.deliveries),
        requests_open: overview.requests_open,
        dead_letters: overview.dead_letters,
        oldest_open: overview.oldest_open_request.map(rfc3339),
    }))
}

/// A flow.
#[derive(Serialize, ToSchema)]
pub(super) struct GraphShape {
    name: String,
    version: u32,
    fingerprint: String,
    nodes: Vec<String>,
    warnings: Vec<String>,
}

/// The flows that this server can run.
#[utoipa::path(get, path = "/graphs", responses((status = 200, body = [GraphShape]), (status = 401, body = Problem)))]
pub(super) async fn graphs(State(state): State<AppState>, caller: Caller) -> Result<Json<Vec<GraphShape>>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    let graphs = state
        .engine
        .graphs()
        .filter(|graph| caller.sees(graph.name()))
        .map(|graph| GraphShape {
            name: graph.name().to_owned(),
            version: graph.version(),
            fingerprint: graph.fingerprint().to_owned(),
            nodes: graph.nodes().map(str::to_owned).collect(),
            warnings: graph.warnings().iter().map(ToString::to_string).collect(),
        })
        .collect();
    Ok(Json(graphs))
}
