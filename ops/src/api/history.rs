//! Where a thread has been: its checkpoints, and one of them.

use axum::Json;
use axum::extract::State;
use countersign_kernel::ids::{CheckpointId, FrameId, ThreadId};
use countersign_kernel::time::Timestamp;
use countersign_worker::store::views::{ArchivedAt, DoneStep, HistoryEntry};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::auth::{Caller, Scope};
use super::cursor;
use super::extract::{ApiPath, ApiPaths, ApiQuery};
use super::problem::Problem;
use super::shapes::{Page, rfc3339};
use super::threads::visible;
use crate::line::Line;
use crate::state::AppState;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// The checkpoints of this sub-graph instead of the thread's own.
    #[param(value_type = Option<String>)]
    frame: Option<FrameId>,
    /// At most 500; 50 when absent.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// A checkpoint of a thread's history.
#[derive(Serialize, ToSchema)]
pub(super) struct HistoryItem {
    checkpoint_id: String,
    parent_id: Option<String>,
    /// input, loop, update, amend or fork.
    source: String,
    superstep: u64,
    /// Whether the thread's newest checkpoint descends from it; the others are
    /// on a line that an edit, a replay or a fork left.
    current: bool,
    /// The state at the start of that superstep.
    #[schema(value_type = Object)]
    state: Map<String, Value>,
    /// The nodes of that superstep.
    next: Vec<String>,
    created_at: String,
}

impl HistoryItem {
    fn new(entry: HistoryEntry, line: &mut Line) -> Self {
        Self {
            current: line.holds(&entry.checkpoint, entry.parent.as_ref()),
            checkpoint_id: entry.checkpoint.into(),
            parent_id: entry.parent.map(Into::into),
            source: entry.source,
            superstep: entry.superstep,
            state: entry.state,
            next: entry.next,
            created_at: rfc3339(entry.created_at),
        }
    }
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
    // Checkpoints are numbered, so the number serves as the key's time; the id
    // is where the present line goes on.
    let list = format!("history/{id}/{}", query.frame.as_ref().map_or("", FrameId::as_str));
    let place = cursor::decode(&state, &list, query.cursor.as_deref())?;
    let before = place.as_ref().map(|place| place.at.as_micros());
    let mut line = Line::from(place.and_then(|place| CheckpointId::parse(place.id).ok()));
    let found = state.engine.store().history(&id, query.frame.as_ref(), before, limit).await?;
    if let (Some(frame), None, []) = (&query.frame, before, found.as_slice()) {
        return Err(Problem::unknown_frame(frame));
    }
    let last = found.last().map(|last| last.seq).filter(|seq| *seq > 0);
    let items = found.into_iter().map(|entry| HistoryItem::new(entry, &mut line)).collect();
    let next_cursor = last.map(|seq| {
        cursor::encode(&state, &list, Timestamp::from_micros(seq), line.next().map_or("-", CheckpointId::as_str))
    });
    Ok(Json(Page { items, next_cursor }))
}

/// A step that was done.
#[derive(Serialize, ToSchema)]
pub(super) struct Step {
    /// Where, as people read it.
    address: String,
    /// Its name.
    name: String,
}

impl From<DoneStep> for Step {
    fn from(step: DoneStep) -> Self {
        Self { address: step.address, name: step.name }
    }
}

/// A checkpoint, with what a run from it would do again.
#[derive(Serialize, ToSchema)]
pub(super) struct FullCheckpoint {
    checkpoint_id: String,
    parent_id: Option<String>,
    /// input, loop, update, amend or fork.
    source: String,
    superstep: u64,
    /// The sub-graph that it belongs to, if any.
    frame: Option<String>,
    /// The checkpoints around it, outermost first, if it is of a sub-graph.
    around: Vec<String>,
    /// The state at the start of its superstep.
    #[schema(value_type = Object)]
    values: Map<String, Value>,
    /// The nodes of its superstep.
    next: Vec<String>,
    /// The steps that were done at it or after it: a run from here does them
    /// again, and wants `re_execute: true`.
    steps: Vec<Step>,
    created_at: String,
}

/// One checkpoint of a thread or of a sub-graph in it.
#[utoipa::path(
    get, path = "/threads/{id}/checkpoints/{checkpoint_id}",
    params(("id" = String, Path), ("checkpoint_id" = String, Path)),
    responses((status = 200, body = FullCheckpoint), (status = 401, body = Problem), (status = 404, body = Problem))
)]
pub(super) async fn checkpoint(
    State(state): State<AppState>,
    caller: Caller,
    ApiPaths(id, checkpoint): ApiPaths<ThreadId, CheckpointId>,
) -> Result<Json<FullCheckpoint>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    visible(&state, &caller, &id).await?;
    let mut around = state.engine.store().archived(&id, &checkpoint).await?;
    let Some(ArchivedAt { archived, .. }) = around.pop() else {
        return Err(countersign_worker::store::Refusal::UnknownCheckpoint(checkpoint).into());
    };
    let steps = state.engine.store().steps_since(&id, &checkpoint).await?;
    let mut next: Vec<String> = archived.body.tasks.into_iter().map(|task| task.node).collect();
    next.sort_unstable();
    Ok(Json(FullCheckpoint {
        checkpoint_id: archived.checkpoint.id.into(),
        parent_id: archived.checkpoint.parent.map(Into::into),
        source: archived.checkpoint.source.as_str().to_owned(),
        superstep: archived.checkpoint.superstep,
        frame: archived.frame.map(Into::into),
        around: around.into_iter().map(|outer| outer.archived.checkpoint.id.into()).collect(),
        values: archived.values.to_object(),
        next,
        steps: steps.into_iter().map(Into::into).collect(),
        created_at: rfc3339(archived.checkpoint.created_at),
    }))
}
