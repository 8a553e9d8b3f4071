//! Threads: start, list, look, cancel, audit.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use countersign_kernel::ids::{RunId, ThreadId};
use countersign_worker::engine::{StartRequest, Started};
use countersign_worker::store::controls::PRIORITIES;
use countersign_worker::store::views::ThreadFilter;
use countersign_worker::store::{Cancelled, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::auth::{Caller, Scope};
use super::cursor;
use super::extract::{ApiJson, ApiPath, ApiQuery};
use super::idempotency::{Key, replayed};
use super::interrupts::known_status;
use super::problem::Problem;
use super::shapes::{AuditItem, FullThread, Page, Thread};
use crate::held_back::why;
use crate::state::AppState;

/// What a thread can be.
pub(crate) const STATUSES: [&str; 7] = ["queued", "running", "parked", "held", "succeeded", "failed", "cancelled"];

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// queued, running, parked, held, succeeded, failed or cancelled.
    status: Option<String>,
    /// Only of this flow.
    graph: Option<String>,
    /// At most 500; 50 when absent.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Threads, newest first.
#[utoipa::path(
    get, path = "/threads", operation_id = "list_threads", params(ListQuery),
    responses((status = 200, body = Page<Thread>), (status = 400, body = Problem), (status = 401, body = Problem))
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    ApiQuery(query): ApiQuery<ListQuery>,
) -> Result<Json<Page<Thread>>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    known_status(query.status.as_deref(), &STATUSES)?;
    let limit = cursor::limit(query.limit)?;
    let after = cursor::decode(&state, "threads", query.cursor.as_deref())?;
    let filter = ThreadFilter { status: query.status, graph: caller.narrow(query.graph)? };
    let found = state.engine.store().threads(&filter, after.as_ref(), limit).await?;
    let next_cursor = (found.len() == limit as usize)
        .then(|| found.last().map(|last| cursor::encode(&state, "threads", last.created_at, last.thread.as_str())))
        .flatten();
    let switches = state.engine.store().switches(state.now()).await?;
    let items = found.into_iter().map(|thread| Thread::of(thread, &switches)).collect();
    Ok(Json(Page { items, next_cursor }))
}

/// A thread to start.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateBody {
    /// The flow.
    graph: String,
    /// What the flow takes.
    #[schema(value_type = Object)]
    input: Value,
    /// The id to give it; a fresh one when absent.
    #[schema(value_type = Option<String>)]
    thread_id: Option<ThreadId>,
    /// How urgent it is: `low` (-1), `normal` (0), `high` (1), or a number from
    /// -100 to 100. A point is worth a minute of waiting. As the flow says when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<Priority>,
    /// Threads of the flow with the same key are limited together: a name of 1
    /// to 200 characters. As the flow says when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit_key: Option<String>,
}

/// How urgent a thread is.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Priority {
    /// By its name.
    Name(String),
    /// By its number.
    Number(i64),
}

impl Priority {
    fn read(self) -> Result<i64, Problem> {
        let number = match &self {
            Self::Name(name) => {
                ["low", "normal", "high"].iter().position(|known| known == name).map(|at| at as i64 - 1)
            }
            Self::Number(number) => Some(*number).filter(|number| PRIORITIES.contains(number)),
        };
        number.ok_or_else(|| {
            let detail = "`priority` must be `low`, `normal`, `high`, or a whole number from -100 to 100";
            Problem::invalid("invalid-priority", detail)
        })
    }
}

fn limit_key(key: String) -> Result<String, Problem> {
    if (1..=200).contains(&key.chars().count()) {
        return Ok(key);
    }
    Err(Problem::invalid("invalid-limit-key", "`limit_key` must have 1 to 200 characters"))
}

/// A request that was accepted.
#[derive(Serialize, ToSchema)]
pub(super) struct RunReply {
    thread_id: String,
    run_id: String,
    status: &'static str,
}

impl RunReply {
    pub(super) fn of(thread: &ThreadId, run: &RunId, status: &'static str) -> Value {
        json!({"thread_id": thread.as_str(), "run_id": run.as_str(), "status": status})
    }
}

/// Starts a thread. 202 is committed. With an `Idempotency-Key`, a repetition
/// gets the first reply again.
#[utoipa::path(
    post, path = "/threads", request_body = CreateBody,
    params(("Idempotency-Key" = Option<String>, Header)),
    responses(
        (status = 202, body = RunReply), (status = 400, body = Problem), (status = 401, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem), (status = 413, body = Problem),
        (status = 422, body = Problem)
    )
)]
pub(super) async fn create(
    State(state): State<AppState>,
    caller: Caller,
    key: Key,
    ApiJson(body): ApiJson<CreateBody>,
) -> Result<Response, Problem> {
    caller.require(Scope::ThreadsWrite)?;
    caller.require_graph(&body.graph)?;
    let request = json!(body);
    if let Some(earlier) = key.earlier(&state, &caller, "POST /threads", &request).await? {
        return Ok(earlier);
    }
    let priority = body.priority.map(Priority::read).transpose()?;
    let limit_key = body.limit_key.map(limit_key).transpose()?;
    let start = StartRequest {
        thread: body.thread_id,
        priority,
        limit_key,
        ..StartRequest::new(&body.graph, &body.input, &caller.principal)
    };
    let started = state
        .engine
        .start_as(start, &|thread, run, status| {
            key.entry(&caller, "POST /threads", &request, StatusCode::ACCEPTED, &RunReply::of(thread, run, status))
        })
        .await?;
    Ok(started_reply(started))
}

pub(super) fn started_reply(started: Started) -> Response {
    match started {
        Started::New { thread, run, status } => {
            (StatusCode::ACCEPTED, Json(RunReply::of(&thread, &run, status))).into_response()
        }
        Started::Replayed { status, body } => replayed(status, body),
    }
}

/// What a token may not see does not exist for it.
pub(super) async fn visible(state: &AppState, caller: &Caller, thread: &ThreadId) -> Result<(), Problem> {
    let detail = state.engine.store().thread(thread).await?;
    if caller.sees(&detail.summary.graph) { Ok(()) } else { Err(Refusal::UnknownThread(thread.clone()).into()) }
}

/// One thread: status, state, what comes next, what it waits for.
#[utoipa::path(
    get, path = "/threads/{id}", operation_id = "show_thread", params(("id" = String, Path)),
    responses((status = 200, body = FullThread), (status = 401, body = Problem), (status = 404, body = Problem))
)]
pub(super) async fn show(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(id): ApiPath<ThreadId>,
) -> Result<Json<FullThread>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    let view = state.engine.view(&id).await?;
    if !caller.sees(&view.detail.summary.graph) {
        return Err(Refusal::UnknownThread(id).into());
    }
    let held_back = why(&view.detail.summary, &state.engine.store().switches(state.now()).await?);
    Ok(Json(FullThread::from(view).held_back(held_back)))
}

/// Cancels a thread: at once when it rests, else at the end of the superstep.
#[utoipa::path(
    post, path = "/threads/{id}/cancel", params(("id" = String, Path)),
    responses((status = 200), (status = 202), (status = 404, body = Problem), (status = 409, body = Problem))
)]
pub(super) async fn cancel(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(id): ApiPath<ThreadId>,
) -> Result<Response, Problem> {
    caller.require(Scope::ThreadsWrite)?;
    visible(&state, &caller, &id).await?;
    let (status, word) = match state.engine.cancel(&id, &caller.principal).await? {
        Cancelled::Now | Cancelled::Already => (StatusCode::OK, "cancelled"),
        Cancelled::Requested => (StatusCode::ACCEPTED, "cancel_requested"),
    };
    Ok((status, Json(json!({"thread_id": id.as_str(), "status": word}))).into_response())
}

/// What was decided and done about a thread, and whether the chain holds.
#[derive(Serialize, ToSchema)]
pub(super) struct AuditReply {
    items: Vec<AuditItem>,
    /// Whether every hash follows from the one before.
    intact: bool,
    /// The first entry that does not hold.
    broken_at: Option<i64>,
}

/// The audit chain of a thread, verified.
#[utoipa::path(
    get, path = "/threads/{id}/audit", params(("id" = String, Path)),
    responses((status = 200, body = AuditReply), (status = 401, body = Problem), (status = 404, body = Problem))
)]
pub(super) async fn audit(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(id): ApiPath<ThreadId>,
) -> Result<Json<AuditReply>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    visible(&state, &caller, &id).await?;
    let items = state.engine.store().audit(&id).await?;
    let broken_at = state.engine.store().verify_audit(&id).await?;
    Ok(Json(AuditReply { items: items.into_iter().map(Into::into).collect(), intact: broken_at.is_none(), broken_at }))
}
