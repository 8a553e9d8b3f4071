//! Threads: start, look, resume, retry, pause, cancel.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_kernel::fault::Fault;
use countersign_kernel::ids::{InterruptId, RunId, ThreadId};
use countersign_kernel::machine::Resume;
use countersign_worker::engine::{ResumeRequest, Started};
use countersign_worker::store::views::ThreadFilter;
use countersign_worker::store::{Accepted, Cancelled, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::auth::{Caller, Scope};
use super::cursor;
use super::extract::{ApiJson, ApiPath, ApiQuery};
use super::idempotency::Key;
use super::interrupts::{check_size, known_status};
use super::problem::Problem;
use super::shapes::{AuditItem, FullThread, HistoryItem, Page, Thread};
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
    Ok(Json(Page { items: found.into_iter().map(Into::into).collect(), next_cursor }))
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
}

/// A request that was accepted.
#[derive(Serialize, ToSchema)]
pub(super) struct RunReply {
    thread_id: String,
    run_id: String,
    status: &'static str,
}

impl RunReply {
    fn of(thread: &ThreadId, run: &RunId, status: &'static str) -> Value {
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
    let started = state
        .engine
        .start_once(&body.graph, &body.input, body.thread_id, &caller.principal, &|thread, run, status| {
            key.entry(&caller, "POST /threads", &request, StatusCode::ACCEPTED, &RunReply::of(thread, run, status))
        })
        .await?;
    Ok(started_reply(started))
}

fn started_reply(started: Started) -> Response {
    match started {
        Started::New { thread, run, status } => {
            (StatusCode::ACCEPTED, Json(RunReply::of(&thread, &run, status))).into_response()
        }
        Started::Replayed { status, body } => replayed(status, body),
    }
}

fn replayed(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

async fn visible(state: &AppState, caller: &Caller, thread: &ThreadId) -> Result<(), Problem> {
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
    let detail = state.engine.store().thread(&id).await?;
    if !caller.sees(&detail.summary.graph) {
        return Err(Refusal::UnknownThread(id).into());
    }
    Ok(Json(detail.into()))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// At most 500; 50 when absent.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// The checkpoints of a thread, newest first.
#[utoipa::path(
    get, path = "/threads/{id}/history", params(("id" = String, Path), HistoryQuery),
    responses((status = 200, body = Page<HistoryItem>), (status = 401, body = Problem), (status = 404, body = Problem))
)]
pub(super) async fn history(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(id): ApiPath<ThreadId>,
    ApiQuery(query): ApiQuery<HistoryQuery>,
) -> Result<Json<Page<HistoryItem>>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    visible(&state, &caller, &id).await?;
    let limit = cursor::limit(query.limit)?;
    // Checkpoints are numbered, so the number serves as the key's time.
    let before = cursor::decode(&state, "history", query.cursor.as_deref())?.map(|keyset| keyset.at.as_micros());
    let found = state.engine.store().history(&id, before, limit).await?;
    let next_cursor = found.last().filter(|last| last.seq > 0).map(|last| {
        let number = countersign_kernel::time::Timestamp::from_micros(last.seq);
        cursor::encode(&state, "history", number, last.checkpoint.as_str())
    });
    Ok(Json(Page { items: found.into_iter().map(Into::into).collect(), next_cursor }))
}

/// What happens to points that wait.
#[derive(Deserialize, Serialize, Clone, Copy, Default, PartialEq, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnWaiting {
    /// Refuse the input.
    #[default]
    Refuse,
    /// Drop what waits; it becomes superseded.
    Discard,
}

/// New input for a thread.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunBody {
    /// What the flow takes.
    #[schema(value_type = Object)]
    input: Value,
    /// What happens to points that wait.
    #[serde(default)]
    on_waiting: OnWaiting,
}

/// Gives a thread new input: the state is kept and the flow starts anew.
#[utoipa::path(
    post, path = "/threads/{id}/runs", params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)), request_body = RunBody,
    responses((status = 202, body = RunReply), (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn run(
    State(state): State<AppState>,
    caller: Caller,
    key: Key,
    ApiPath(id): ApiPath<ThreadId>,
    ApiJson(body): ApiJson<RunBody>,
) -> Result<Response, Problem> {
    caller.require(Scope::ThreadsWrite)?;
    visible(&state, &caller, &id).await?;
    let discard = body.on_waiting == OnWaiting::Discard;
    let (route, request) = (format!("POST /threads/{id}/runs"), json!(body));
    let started = state
        .engine
        .restart(&id, &body.input, discard, &caller.principal, &|thread, run, status| {
            key.entry(&caller, &route, &request, StatusCode::ACCEPTED, &RunReply::of(thread, run, status))
        })
        .await?;
    Ok(started_reply(started))
}

/// A resume: answers and flags, all or nothing.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResumeBody {
    /// Answers by interrupt id; only these points run.
    #[serde(default)]
    #[schema(value_type = Object)]
    answers: BTreeMap<String, Value>,
    /// Releases breakpoints and pauses.
    #[serde(default)]
    r#continue: bool,
    /// Runs failed tasks again with their recorded answers.
    #[serde(default)]
    retry: bool,
    /// Runs every open point without an answer.
    #[serde(default)]
    resume_all: bool,
    /// Amends the state of the waiting superstep. Not served yet.
    #[schema(value_type = Option<Object>)]
    update: Option<Value>,
    /// Adds tasks to the waiting superstep. Not served yet.
    #[schema(value_type = Option<Object>)]
    goto: Option<Value>,
    /// Adds tasks with arguments. Not served yet.
    #[schema(value_type = Option<Object>)]
    send: Option<Value>,
}

/// Resumes a thread. Each flag does only its own; one refusal refuses all.
#[utoipa::path(
    post, path = "/threads/{id}/resume", params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = ResumeBody,
    responses(
        (status = 202, body = RunReply), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 422, body = Problem)
    )
)]
pub(super) async fn resume(
    State(state): State<AppState>,
    caller: Caller,
    key: Key,
    ApiPath(id): ApiPath<ThreadId>,
    ApiJson(body): ApiJson<ResumeBody>,
) -> Result<Response, Problem> {
    visible(&state, &caller, &id).await?;
    let flags = Resume { release: body.r#continue, retry: body.retry, resume_all: body.resume_all };
    if !flags.is_empty() {
        caller.require(Scope::Operate)?;
    }
    if !body.answers.is_empty() {
        caller.require(Scope::Answer)?;
    }
    if body.update.is_some() || body.goto.is_some() || body.send.is_some() {
        return Err(Problem::invalid(
            "unsupported-flag",
            "`update`, `goto` and `send` are not served yet; nothing was recorded",
        ));
    }
    if flags.is_empty() && body.answers.is_empty() {
        return Err(Problem::invalid("empty-resume", "give `answers`, or one of `continue`, `retry`, `resume_all`"));
    }
    let mut answers = BTreeMap::new();
    let mut faults = Vec::new();
    for (interrupt, answer) in &body.answers {
        check_size(&state, answer)?;
        match InterruptId::parse(interrupt.clone()) {
            Ok(interrupt) => {
                answers.insert(interrupt, answer.clone());
            }
            Err(error) => faults.push(Fault::at(format!("/answers/{interrupt}"), error.to_string())),
        }
    }
    if !faults.is_empty() {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "unknown-interrupt",
            "There is no such interrupt",
            "nothing was recorded",
        )
        .errors(faults));
    }
    let reply = json!({"thread_id": id.as_str(), "status": "accepted"});
    let request = ResumeRequest {
        thread: id.clone(),
        answers,
        resume: flags,
        operator: caller.may(Scope::Operate),
        idempotency: key.entry(
            &caller,
            &format!("POST /threads/{id}/resume"),
            &json!(body),
            StatusCode::ACCEPTED,
            &reply,
        ),
        principal: caller.principal,
    };
    match state.engine.resume(request).await? {
        Accepted::Committed(_) => Ok((StatusCode::ACCEPTED, Json(reply)).into_response()),
        Accepted::Replayed { status, body } => Ok(replayed(status, body)),
    }
}

/// Runs failed tasks again with their recorded answers; puts a held thread
/// back to work.
#[utoipa::path(
    post, path = "/threads/{id}/retry", params(("id" = String, Path)),
    responses((status = 202), (status = 404, body = Problem), (status = 409, body = Problem))
)]
pub(super) async fn retry(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(id): ApiPath<ThreadId>,
) -> Result<Response, Problem> {
    caller.require(Scope::Operate)?;
    visible(&state, &caller, &id).await?;
    state.engine.retry(&id, &caller.principal).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({"thread_id": id.as_str(), "status": "accepted"}))).into_response())
}

/// Pauses a thread at the end of the superstep it is in; a waiting thread
/// pauses when it next wakes. `continue` releases it.
#[utoipa::path(
    post, path = "/threads/{id}/pause", params(("id" = String, Path)),
    responses((status = 202), (status = 404, body = Problem), (status = 409, body = Problem))
)]
pub(super) async fn pause(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(id): ApiPath<ThreadId>,
) -> Result<Response, Problem> {
    caller.require(Scope::Operate)?;
    visible(&state, &caller, &id).await?;
    state.engine.pause(&id, &caller.principal).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({"thread_id": id.as_str(), "status": "pause_requested"}))).into_response())
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
