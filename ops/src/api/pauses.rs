//! Pause switches of flows, nodes and channels, and what operators did.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::DateTime;
use countersign_kernel::ports::ChannelName;
use countersign_kernel::time::Timestamp;
use countersign_worker::store::commands::{Operation, PauseSwitch, SwitchOf};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::auth::{Caller, Scope};
use super::cursor;
use super::extract::{ApiJson, ApiPath, ApiPaths, ApiQuery};
use super::problem::Problem;
use super::shapes::rfc3339;
use crate::state::AppState;

/// The longest reason, in characters.
const REASON_MAX: usize = 500;

/// A pause to set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PauseBody {
    /// Why, for whoever wonders: 1 to 500 characters.
    reason: String,
    /// When it ends by itself (RFC 3339); when somebody resumes it if absent.
    until: Option<String>,
}

/// A pause that holds.
#[derive(Serialize, ToSchema)]
pub(super) struct Pause {
    /// graph, node or channel.
    kind: &'static str,
    /// The flow's or the channel's name.
    name: String,
    /// The node, of one.
    node: Option<String>,
    reason: String,
    by: String,
    since: String,
    /// When it ends by itself.
    until: Option<String>,
}

impl From<PauseSwitch> for Pause {
    fn from(switch: PauseSwitch) -> Self {
        Self {
            kind: switch.of.kind(),
            name: switch.of.name().to_owned(),
            node: switch.of.node().map(str::to_owned),
            reason: switch.reason,
            by: switch.by.into(),
            since: rfc3339(switch.since),
            until: switch.until.map(rfc3339),
        }
    }
}

/// Pauses that hold.
#[derive(Serialize, ToSchema)]
pub(super) struct Pauses {
    items: Vec<Pause>,
}

/// What is paused: flows, nodes of flows, channels.
#[utoipa::path(
    get, path = "/pauses", operation_id = "list_pauses",
    responses((status = 200, body = Pauses), (status = 401, body = Problem), (status = 403, body = Problem))
)]
pub(super) async fn list(State(state): State<AppState>, caller: Caller) -> Result<Json<Pauses>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    let switches = state.engine.store().switches(state.now()).await?.into_iter();
    let seen = switches.filter(|switch| matches!(switch.of, SwitchOf::Channel(_)) || caller.sees(switch.of.name()));
    Ok(Json(Pauses { items: seen.map(Into::into).collect() }))
}

/// Pauses a flow: its threads stay queued, starts and answers are accepted.
#[utoipa::path(
    put, path = "/pauses/graphs/{graph}", operation_id = "pause_graph", params(("graph" = String, Path)),
    request_body = PauseBody,
    responses(
        (status = 200, body = Pause), (status = 401, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 422, body = Problem)
    )
)]
pub(super) async fn pause_graph(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(graph): ApiPath<String>,
    ApiJson(body): ApiJson<PauseBody>,
) -> Result<Json<Pause>, Problem> {
    pause(&state, &caller, SwitchOf::Graph(graph), body).await
}

/// Ends the pause of a flow; what it held back is taken up at once.
#[utoipa::path(
    delete, path = "/pauses/graphs/{graph}", operation_id = "resume_graph", params(("graph" = String, Path)),
    responses(
        (status = 204), (status = 401, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem)
    )
)]
pub(super) async fn resume_graph(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(graph): ApiPath<String>,
) -> Result<StatusCode, Problem> {
    resume(&state, &caller, SwitchOf::Graph(graph)).await
}

/// Pauses a node of a flow: threads come up to it and stay queued there. Not
/// for nodes of sub-graphs.
#[utoipa::path(
    put, path = "/pauses/graphs/{graph}/nodes/{node}", operation_id = "pause_node",
    params(("graph" = String, Path), ("node" = String, Path)), request_body = PauseBody,
    responses(
        (status = 200, body = Pause), (status = 401, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 422, body = Problem)
    )
)]
pub(super) async fn pause_node(
    State(state): State<AppState>,
    caller: Caller,
    ApiPaths(graph, node): ApiPaths<String, String>,
    ApiJson(body): ApiJson<PauseBody>,
) -> Result<Json<Pause>, Problem> {
    pause(&state, &caller, SwitchOf::Node { graph, node }, body).await
}

/// Ends the pause of a node.
#[utoipa::path(
    delete, path = "/pauses/graphs/{graph}/nodes/{node}", operation_id = "resume_node",
    params(("graph" = String, Path), ("node" = String, Path)),
    responses(
        (status = 204), (status = 401, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem)
    )
)]
pub(super) async fn resume_node(
    State(state): State<AppState>,
    caller: Caller,
    ApiPaths(graph, node): ApiPaths<String, String>,
) -> Result<StatusCode, Problem> {
    resume(&state, &caller, SwitchOf::Node { graph, node }).await
}

/// Pauses a channel: its messages stay pending and use up no attempts.
#[utoipa::path(
    put, path = "/pauses/channels/{channel}", operation_id = "pause_channel", params(("channel" = String, Path)),
    request_body = PauseBody,
    responses(
        (status = 200, body = Pause), (status = 401, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 422, body = Problem)
    )
)]
pub(super) async fn pause_channel(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(channel): ApiPath<String>,
    ApiJson(body): ApiJson<PauseBody>,
) -> Result<Json<Pause>, Problem> {
    pause(&state, &caller, SwitchOf::Channel(channel), body).await
}

/// Ends the pause of a channel.
#[utoipa::path(
    delete, path = "/pauses/channels/{channel}", operation_id = "resume_channel", params(("channel" = String, Path)),
    responses(
        (status = 204), (status = 401, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem)
    )
)]
pub(super) async fn resume_channel(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(channel): ApiPath<String>,
) -> Result<StatusCode, Problem> {
    resume(&state, &caller, SwitchOf::Channel(channel)).await
}

async fn pause(state: &AppState, caller: &Caller, of: SwitchOf, body: PauseBody) -> Result<Json<Pause>, Problem> {
    allowed(caller, &of)?;
    known(state, &of)?;
    let reason = body.reason.trim();
    if reason.is_empty() || reason.chars().count() > REASON_MAX {
        let detail = format!("`reason` must have 1 to {REASON_MAX} characters: people who wait will read it");
        return Err(Problem::invalid("invalid-reason", detail));
    }
    let until = body.until.as_deref().map(|until| instant(state, until)).transpose()?;
    let switch = state.engine.set_switch(of, reason.to_owned(), until, &caller.principal).await?;
    Ok(Json(switch.into()))
}

async fn resume(state: &AppState, caller: &Caller, of: SwitchOf) -> Result<StatusCode, Problem> {
    allowed(caller, &of)?;
    if state.engine.end_switch(&of, &caller.principal).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::new(StatusCode::NOT_FOUND, "not-paused", "This is not paused", format!("{of} is not paused")))
}

/// Who may switch: an operator, of a flow that the token reaches; of a channel,
/// which all flows share, one who reaches them all.
fn allowed(caller: &Caller, of: &SwitchOf) -> Result<(), Problem> {
    caller.require(Scope::Operate)?;
    match of {
        SwitchOf::Graph(graph) | SwitchOf::Node { graph, .. } => caller.require_graph(graph),
        SwitchOf::Channel(_) => caller.require_all_graphs(),
    }
}

/// A switch of what is not there would hold nothing back, and nobody would
/// notice.
fn known(state: &AppState, of: &SwitchOf) -> Result<(), Problem> {
    match of {
        SwitchOf::Channel(name) => {
            let known = [ChannelName::Email, ChannelName::Webhook].map(ChannelName::as_str);
            if known.contains(&name.as_str()) {
                return Ok(());
            }
            let detail = format!("there is no channel `{name}`; known: {}", known.join(", "));
            Err(Problem::new(StatusCode::NOT_FOUND, "unknown-channel", "There is no such channel", detail))
        }
        SwitchOf::Graph(name) => known_graph(state, name).map(|_| ()),
        SwitchOf::Node { graph, node } => {
            let nodes = known_graph(state, graph)?;
            if nodes.contains(node) {
                return Ok(());
            }
            let detail = format!("the graph `{graph}` has no node `{node}`; known: {}", nodes.join(", "));
            Err(Problem::new(StatusCode::NOT_FOUND, "unknown-node", "There is no such node", detail)
                .with("node", node.as_str())
                .with("known", nodes))
        }
    }
}

/// The nodes of a flow of this build.
pub(super) fn known_graph(state: &AppState, name: &str) -> Result<Vec<String>, Problem> {
    let graph = state.engine.graphs().find(|graph| graph.name() == name);
    graph.map(|graph| graph.nodes().map(str::to_owned).collect()).ok_or_else(|| {
        let known: Vec<&str> = state.engine.graphs().map(|graph| graph.name()).collect();
        let detail = format!("there is no graph `{name}`; known: {}", known.join(", "));
        Problem::new(StatusCode::NOT_FOUND, "unknown-graph", "There is no such graph", detail).with("graph", name)
    })
}

/// An instant to come.
fn instant(state: &AppState, text: &str) -> Result<Timestamp, Problem> {
    let at = DateTime::parse_from_rfc3339(text).map_err(|error| {
        Problem::invalid("invalid-time", format!("`until` must be a time as in 2027-01-31T17:00:00Z: {error}"))
    })?;
    let at = Timestamp::from_micros(at.timestamp_micros());
    if at <= state.now() {
        return Err(Problem::invalid("invalid-time", format!("`until` is over already: {}", rfc3339(at))));
    }
    Ok(at)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct OperationsQuery {
    /// At most 500; 50 when absent.
    limit: Option<u32>,
}

/// Something that an operator did that is about no single thread.
#[derive(Serialize, ToSchema)]
pub(super) struct OperationShape {
    id: String,
    at: String,
    actor: String,
    /// paused, resumed, limited or unlimited.
    action: String,
    #[schema(value_type = Object)]
    detail: Value,
}

impl From<Operation> for OperationShape {
    fn from(done: Operation) -> Self {
        Self { id: done.id, at: rfc3339(done.at), actor: done.actor.into(), action: done.action, detail: done.detail }
    }
}

/// What operators did.
#[derive(Serialize, ToSchema)]
pub(super) struct Operations {
    items: Vec<OperationShape>,
}

/// What operators did that is about no single thread, newest first. For tokens
/// that reach all flows.
#[utoipa::path(
    get, path = "/operations", operation_id = "list_operations", params(OperationsQuery),
    responses((status = 200, body = Operations), (status = 401, body = Problem), (status = 403, body = Problem))
)]
pub(super) async fn operations(
    State(state): State<AppState>,
    caller: Caller,
    ApiQuery(query): ApiQuery<OperationsQuery>,
) -> Result<Json<Operations>, Problem> {
    caller.require(Scope::Operate)?;
    caller.require_all_graphs()?;
    let done = state.engine.store().operations(cursor::limit(query.limit)?).await?;
    Ok(Json(Operations { items: done.into_iter().map(Into::into).collect() }))
}
