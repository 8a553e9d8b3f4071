//! Waking a thread and stopping it: resume, retry, pause.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use countersign_kernel::fault::Fault;
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::machine::{Amend, Resume};
use countersign_kernel::node::Goto;
use countersign_worker::engine::ResumeRequest;
use countersign_worker::store::Accepted;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::auth::{Caller, Scope};
use super::course::check_limit;
use super::extract::{ApiJson, ApiPath, OptionalJson};
use super::idempotency::{Key, replayed};
use super::interrupts::{check_size, explained};
use super::problem::Problem;
use super::threads::visible;
use crate::state::AppState;

/// A task with an argument of its own.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SendBody {
    /// The node.
    to: String,
    /// What it finds as its argument; `null` when absent.
    #[serde(default)]
    #[schema(value_type = Object)]
    argument: Value,
}

/// A resume: answers, amendments and flags, all or nothing.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResumeBody {
    /// Answers by interrupt id; only these points run. A breakpoint or pause
    /// may be named too, with `null` or with an object that updates the state
    /// of its graph; so may a container around a point that takes data.
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
    /// Amends the state of the waiting superstep, by key, through the reducers:
    /// the tasks that run next see it.
    #[serde(default)]
    #[schema(value_type = Object)]
    update: Map<String, Value>,
    /// Nodes to run beside those that wait.
    #[serde(default)]
    goto: Vec<String>,
    /// Tasks with arguments to run beside those that wait.
    #[serde(default)]
    send: Vec<SendBody>,
    /// In a thread that has ended, `goto` and `send` begin again at their nodes;
    /// this lets them do again what they did before.
    #[serde(default)]
    re_execute: bool,
    /// The most supersteps of this run before it pauses; at most the server's
    /// limit.
    recursion_limit: Option<u32>,
}

/// A resume that was accepted.
#[derive(Serialize, ToSchema)]
pub(super) struct ResumeReply {
    thread_id: String,
    /// accepted.
    status: &'static str,
}

/// Resumes a thread. Each part does only its own; one refusal refuses all.
#[utoipa::path(
    post, path = "/threads/{id}/resume", params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = ResumeBody,
    responses(
        (status = 202, body = ResumeReply), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 413, body = Problem), (status = 422, body = Problem)
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
    let (route, request) = (format!("POST /threads/{id}/resume"), json!(body));
    let flags = Resume { release: body.r#continue, retry: body.retry, resume_all: body.resume_all, supersteps: None };
    let answers = answers(&state, body.answers)?;
    let sends = body.send.into_iter().map(|send| Goto::Send { node: send.to, argument: send.argument });
    let goto = body.goto.into_iter().map(Goto::Node).chain(sends).collect();
    let amend = Amend { update: body.update, goto };
    if !flags.is_empty() || !amend.is_empty() {
        caller.require(Scope::Operate)?;
    }
    if !answers.is_empty() {
        caller.require(Scope::Answer)?;
    }
    if flags.is_empty() && amend.is_empty() && answers.is_empty() {
        return Err(Problem::invalid(
            "empty-resume",
            "give `answers`, an amendment (`update`, `goto`, `send`), or one of `continue`, `retry`, `resume_all`",
        ));
    }
    if let Some(earlier) = key.earlier(&state, &caller, &route, &request).await? {
        return Ok(earlier);
    }
    let supersteps = check_limit(&state, body.recursion_limit)?;
    let reply = ResumeReply { thread_id: id.to_string(), status: "accepted" };
    let request = ResumeRequest {
        thread: id,
        answers,
        amend,
        re_execute: body.re_execute,
        resume: Resume { supersteps, ..flags },
        operator: caller.may(Scope::Operate),
        idempotency: key.entry(&caller, &route, &request, StatusCode::ACCEPTED, &json!(reply)),
        principal: caller.principal,
    };
    match state.engine.resume(request).await {
        Ok(Accepted::Committed(_)) => Ok((StatusCode::ACCEPTED, Json(reply)).into_response()),
        Ok(Accepted::Replayed { status, body }) => Ok(replayed(status, body)),
        Err(error) => Err(explained(&state, error).await),
    }
}

fn answers(state: &AppState, named: BTreeMap<String, Value>) -> Result<BTreeMap<InterruptId, Value>, Problem> {
    let mut answers = BTreeMap::new();
    let mut faults = Vec::new();
    for (interrupt, answer) in named {
        check_size(state, &answer)?;
        match InterruptId::parse(interrupt.clone()) {
            Ok(interrupt) => {
                answers.insert(interrupt, answer);
            }
            Err(error) => faults.push(Fault::at(format!("/answers/{interrupt}"), error.to_string())),
        }
    }
    if faults.is_empty() {
        return Ok(answers);
    }
    let title = "There is no such interrupt";
    Err(Problem::new(StatusCode::NOT_FOUND, "unknown-interrupt", title, "nothing was recorded").errors(faults))
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

/// How soon to pause.
#[derive(Deserialize, Clone, Copy, Default, PartialEq, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum PauseMode {
    /// At the end of the superstep.
    #[default]
    Graceful,
    /// At once: bodies that wait are dropped, and run again later with the same
    /// input.
    Now,
}

/// A pause.
#[derive(Deserialize, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PauseBody {
    /// How soon; `graceful` when absent.
    #[serde(default)]
    mode: PauseMode,
}

/// Pauses a thread, at the end of the superstep it is in or at once; a thread
/// at rest pauses there. `continue` releases it.
#[utoipa::path(
    post, path = "/threads/{id}/pause", params(("id" = String, Path)), request_body = Option<PauseBody>,
    responses(
        (status = 202), (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem)
    )
)]
pub(super) async fn pause(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(id): ApiPath<ThreadId>,
    OptionalJson(body): OptionalJson<PauseBody>,
) -> Result<Response, Problem> {
    caller.require(Scope::Operate)?;
    visible(&state, &caller, &id).await?;
    state.engine.pause(&id, body.mode == PauseMode::Now, &caller.principal).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({"thread_id": id.as_str(), "status": "pause_requested"}))).into_response())
}
