//! How many threads of a flow run at a time, and begin to in a period.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use countersign_worker::store::commands::{FlowLimits, Rate};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::auth::{Caller, Scope};
use super::extract::{ApiJson, ApiPath};
use super::pauses::known_graph;
use super::problem::Problem;
use crate::state::AppState;

/// The longest period, a week.
const PERIOD_MAX: f64 = 604_800.0;

/// So many in a period: all at once, and then again as the period passes.
#[derive(Deserialize, Serialize, Clone, Copy, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RateShape {
    /// How many.
    count: u32,
    /// In how many seconds.
    per_seconds: f64,
}

/// Limits of a flow, over all processes. What is absent is not limited.
#[derive(Deserialize, Serialize, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsShape {
    /// How many threads run at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    running: Option<u32>,
    /// How many threads with the same limit key run at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_running: Option<u32>,
    /// How often a thread is taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    starts: Option<RateShape>,
    /// How often a thread with the same limit key is taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_starts: Option<RateShape>,
}

impl LimitsShape {
    fn read(self) -> Result<FlowLimits, Problem> {
        let count = |name: &str, count: Option<u32>| match count {
            Some(0) => Err(Problem::invalid(
                "invalid-limit",
                format!("`{name}` must be at least 1; to let nothing run, pause the graph"),
            )),
            count => Ok(count),
        };
        let rate = |name: &str, rate: Option<RateShape>| {
            rate.map(|rate| {
                let fits = rate.count > 0 && rate.per_seconds >= 0.001 && rate.per_seconds <= PERIOD_MAX;
                fits.then(|| Rate { count: rate.count, per: Duration::from_secs_f64(rate.per_seconds) }).ok_or_else(
                    || {
                        let detail =
                            format!("`{name}` needs a `count` of at least 1 and `per_seconds` from 0.001 to 604800");
                        Problem::invalid("invalid-limit", detail)
                    },
                )
            })
            .transpose()
        };
        Ok(FlowLimits {
            running: count("running", self.running)?,
            key_running: count("key_running", self.key_running)?,
            starts: rate("starts", self.starts)?,
            key_starts: rate("key_starts", self.key_starts)?,
        })
    }
}

impl From<FlowLimits> for LimitsShape {
    fn from(limits: FlowLimits) -> Self {
        let rate = |rate: Rate| RateShape { count: rate.count, per_seconds: rate.per.as_secs_f64() };
        Self {
            running: limits.running,
            key_running: limits.key_running,
            starts: limits.starts.map(rate),
            key_starts: limits.key_starts.map(rate),
        }
    }
}

/// A flow with its limits.
#[derive(Serialize, ToSchema)]
pub(super) struct LimitedGraph {
    graph: String,
    #[serde(flatten)]
    limits: LimitsShape,
}

/// Flows with limits.
#[derive(Serialize, ToSchema)]
pub(super) struct LimitedGraphs {
    items: Vec<LimitedGraph>,
}

/// The flows that have limits.
#[utoipa::path(
    get, path = "/limits", operation_id = "list_limits",
    responses((status = 200, body = LimitedGraphs), (status = 401, body = Problem), (status = 403, body = Problem))
)]
pub(super) async fn list(State(state): State<AppState>, caller: Caller) -> Result<Json<LimitedGraphs>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    let limits = state.engine.store().limits().await?.into_iter().filter(|(graph, _)| caller.sees(graph));
    let items = limits.map(|(graph, limits)| LimitedGraph { graph, limits: limits.into() }).collect();
    Ok(Json(LimitedGraphs { items }))
}

/// Sets the limits of a flow, all of them: what is absent is not limited. What
/// runs already goes on, and counts.
#[utoipa::path(
    put, path = "/limits/{graph}", operation_id = "set_limits", params(("graph" = String, Path)),
    request_body = LimitsShape,
    responses(
        (status = 200, body = LimitedGraph), (status = 401, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 422, body = Problem)
    )
)]
pub(super) async fn set(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(graph): ApiPath<String>,
    ApiJson(body): ApiJson<LimitsShape>,
) -> Result<Json<LimitedGraph>, Problem> {
    caller.require(Scope::Operate)?;
    caller.require_graph(&graph)?;
    known_graph(&state, &graph)?;
    let limits = body.read()?;
    state.engine.set_limits(&graph, limits, &caller.principal).await?;
    Ok(Json(LimitedGraph { graph, limits: limits.into() }))
}

/// Takes the limits of a flow away.
#[utoipa::path(
    delete, path = "/limits/{graph}", operation_id = "remove_limits", params(("graph" = String, Path)),
    responses(
        (status = 204), (status = 401, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem)
    )
)]
pub(super) async fn remove(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(graph): ApiPath<String>,
) -> Result<StatusCode, Problem> {
    caller.require(Scope::Operate)?;
    caller.require_graph(&graph)?;
    if !state.engine.store().limits().await?.iter().any(|(limited, _)| *limited == graph) {
        let detail = format!("the graph `{graph}` has no limits");
        return Err(Problem::new(StatusCode::NOT_FOUND, "no-limits", "There are no limits", detail));
    }
    state.engine.set_limits(&graph, FlowLimits::default(), &caller.principal).await?;
    Ok(StatusCode::NO_CONTENT)
}
