//! Changing the course of a thread: new input, replays, edits of the state.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use countersign_kernel::ids::{CheckpointId, FrameId, ThreadId};
use countersign_kernel::machine::{Edit, Resume};
use countersign_worker::engine::{EditRequest, Edited, ReplayRequest, RequestError};
use countersign_worker::store::{Refusal, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::auth::{Caller, Scope};
use super::extract::{ApiJson, ApiPath};
use super::idempotency::{Key, replayed};
use super::problem::Problem;
use super::threads::{RunReply, started_reply, visible};
use crate::state::AppState;

/// What happens to points that wait.
#[derive(Deserialize, Serialize, Clone, Copy, PartialEq, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnWaiting {
    /// Refuse the input.
    Refuse,
    /// Drop what waits; it becomes superseded.
    Discard,
}

/// New input for a thread, or a run from an older checkpoint.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunBody {
    /// What the flow takes. With `checkpoint_id`, applied to the state there.
    #[schema(value_type = Option<Object>)]
    input: Option<Value>,
    /// What happens to points that wait; `refuse` when absent. A run from a
    /// checkpoint always discards them.
    on_waiting: Option<OnWaiting>,
    /// Start over from this checkpoint of the thread, or of a sub-graph in it:
    /// what was done before it is not done again.
    #[schema(value_type = Option<String>)]
    checkpoint_id: Option<CheckpointId>,
    /// With `checkpoint_id`: do steps again that were done.
    #[serde(default)]
    re_execute: bool,
    /// With `checkpoint_id`: release the breakpoints at that checkpoint.
    #[serde(default)]
    r#continue: bool,
    /// The most supersteps of this run before it pauses; at most the server's
    /// limit.
    recursion_limit: Option<u32>,
}

/// Gives a thread new input: the state is kept and the flow starts anew. With
/// `checkpoint_id`, starts over from an older checkpoint instead: what waits
/// now is superseded.
#[utoipa::path(
    post, path = "/threads/{id}/runs", params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)), request_body = RunBody,
    responses(
        (status = 202, body = RunReply), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 422, body = Problem)
    )
)]
pub(super) async fn run(
    State(state): State<AppState>,
    caller: Caller,
    key: Key,
    ApiPath(id): ApiPath<ThreadId>,
    ApiJson(body): ApiJson<RunBody>,
) -> Result<Response, Problem> {
    caller.require(if body.checkpoint_id.is_some() { Scope::Operate } else { Scope::ThreadsWrite })?;
    visible(&state, &caller, &id).await?;
    let (route, request) = (format!("POST /threads/{id}/runs"), json!(body));
    if let Some(earlier) = key.earlier(&state, &caller, &route, &request).await? {
        return Ok(earlier);
    }
    let supersteps = check_limit(&state, body.recursion_limit)?;
    let reply = |thread: &ThreadId, run: &_, status| {
        key.entry(&caller, &route, &request, StatusCode::ACCEPTED, &RunReply::of(thread, run, status))
    };
    let started = match (body.checkpoint_id, body.input) {
        (None, None) => {
            return Err(Problem::invalid("empty-run", "give `input`, or `checkpoint_id` to start over from"));
        }
        (None, Some(_)) if body.re_execute || body.r#continue => {
            let detail = "`re_execute` and `continue` are for a run from a `checkpoint_id`";
            return Err(Problem::invalid("no-checkpoint", detail));
        }
        (None, Some(input)) => {
            let discard = body.on_waiting == Some(OnWaiting::Discard);
            state.engine.restart_within(&id, &input, discard, supersteps, &caller.principal, &reply).await?
        }
        (Some(_), _) if body.on_waiting == Some(OnWaiting::Refuse) => {
            let detail = "a run from a checkpoint supersedes what waits; leave `on_waiting` out";
            return Err(Problem::invalid("always-discards", detail));
        }
        (Some(checkpoint), input) => {
            let resume = Resume { release: body.r#continue, supersteps, ..Resume::default() };
            let principal = caller.principal.clone();
            let of_thread = input.is_some().then(|| checkpoint.clone());
            let replay =
                ReplayRequest { thread: id.clone(), checkpoint, input, re_execute: body.re_execute, resume, principal };
            match state.engine.replay(&replay, &reply).await {
                Ok(started) => started,
                Err(error) => return Err(inner_checkpoint(&state, &id, of_thread.as_ref(), error).await),
            }
        }
    };
    Ok(started_reply(started))
}

/// Only checkpoints of the thread itself take input and edits; one of a
/// sub-graph is there, and says so.
async fn inner_checkpoint(
    state: &AppState,
    thread: &ThreadId,
    checkpoint: Option<&CheckpointId>,
    error: RequestError,
) -> Problem {
    let unknown = matches!(&error, RequestError::Store(StoreError::Refused(Refusal::UnknownCheckpoint(_))));
    if let Some(checkpoint) = checkpoint.filter(|_| unknown)
        && state.engine.store().archived(thread, checkpoint).await.is_ok()
    {
        let detail = "the checkpoint is one of a sub-graph: a run can start over from it, without input; \
                      an edit names the sub-graph as `frame` while it waits";
        return Problem::invalid("inner-checkpoint", detail).with("checkpoint_id", checkpoint.as_str());
    }
    Problem::of_change(error)
}

/// A limit of supersteps within the server's own (R30).
pub(super) fn check_limit(state: &AppState, asked: Option<u32>) -> Result<Option<u32>, Problem> {
    let most = state.config.limits.supersteps_per_run;
    match asked {
        Some(limit) if limit == 0 || u64::from(limit) > most => Err(Problem::invalid(
            "invalid-limit",
            format!("`recursion_limit` must lie between 1 and {most} (`limits.supersteps_per_run`)"),
        )),
        asked => Ok(asked),
    }
}

/// An edit of the state.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StateBody {
    /// What is written, by key, through the reducers. Nothing when absent,
    /// which as a waiting node skips it.
    #[schema(value_type = Option<Object>)]
    values: Option<Map<String, Value>>,
    /// The node that counts as having written it; what follows it is due next.
    /// `START` is the input, `END` ends the run. The node that ran last
    /// when absent.
    as_node: Option<String>,
    /// The newest checkpoint that the caller saw, of the sub-graph if `frame`
    /// names one: compare and set.
    #[schema(value_type = Option<String>)]
    checkpoint_id: Option<CheckpointId>,
    /// An older checkpoint to edit instead of the newest: a fork.
    #[schema(value_type = Option<String>)]
    at: Option<CheckpointId>,
    /// An unfinished sub-graph to edit instead of the thread's own graph.
    #[schema(value_type = Option<String>)]
    frame: Option<FrameId>,
    /// Steps that were done at the edited checkpoint or after it may be done
    /// again, as far as the flow comes to them.
    #[serde(default)]
    re_execute: bool,
}

/// An edit that was made.
#[derive(Serialize, ToSchema)]
pub(super) struct StateReply {
    thread_id: String,
    /// The checkpoint that it made.
    checkpoint_id: String,
    /// How the thread rests now.
    status: &'static str,
    /// The nodes that are due.
    next: Vec<String>,
}

impl StateReply {
    fn of(thread: &ThreadId, checkpoint: &CheckpointId, status: &'static str, next: &[String]) -> Self {
        let (thread_id, checkpoint_id) = (thread.to_string(), checkpoint.to_string());
        Self { thread_id, checkpoint_id, status, next: next.to_vec() }
    }
}

/// Edits the state of a thread at rest: makes a checkpoint and runs nothing.
/// What is due then waits behind a pause; what waited there is superseded.
#[utoipa::path(
    post, path = "/threads/{id}/state", operation_id = "edit_state",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)), request_body = StateBody,
    responses(
        (status = 200, body = StateReply), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 413, body = Problem), (status = 422, body = Problem)
    )
)]
pub(super) async fn edit(
    State(state): State<AppState>,
    caller: Caller,
    key: Key,
    ApiPath(id): ApiPath<ThreadId>,
    ApiJson(body): ApiJson<StateBody>,
) -> Result<Response, Problem> {
    caller.require(Scope::Operate)?;
    visible(&state, &caller, &id).await?;
    let (route, request) = (format!("POST /threads/{id}/state"), json!(body));
    if let Some(earlier) = key.earlier(&state, &caller, &route, &request).await? {
        return Ok(earlier);
    }
    if body.at.is_some() && body.frame.is_some() {
        let detail = "give `at`, a checkpoint of the thread, or `frame`, an unfinished sub-graph; not both";
        return Err(Problem::invalid("at-or-frame", detail));
    }
    let at = body.at.clone();
    let edit = EditRequest {
        thread: id.clone(),
        edit: Edit { values: body.values, as_node: body.as_node },
        expected_head: body.checkpoint_id,
        at: body.at,
        frame: body.frame,
        principal: caller.principal.clone(),
    };
    let reply = |checkpoint: &CheckpointId, status: &'static str, next: &[String]| {
        let reply = json!(StateReply::of(&id, checkpoint, status, next));
        key.entry(&caller, &route, &request, StatusCode::OK, &reply)
    };
    match state.engine.edit_once(edit, body.re_execute, &reply).await {
        Ok(Edited::New { checkpoint, status, next }) => {
            Ok(Json(StateReply::of(&id, &checkpoint, status, &next)).into_response())
        }
        Ok(Edited::Replayed { status, body }) => Ok(replayed(status, body)),
        Err(error) => Err(inner_checkpoint(&state, &id, at.as_ref(), error).await),
    }
}
