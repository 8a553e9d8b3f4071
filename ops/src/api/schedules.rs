//! Threads that are started by the clock: listed, paused, started by hand.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use countersign_worker::engine::ScheduleError;
use countersign_worker::store::ScheduleView;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::auth::{Caller, Scope};
use super::extract::ApiPath;
use super::problem::Problem;
use super::shapes::rfc3339;
use crate::state::AppState;

/// A schedule.
#[derive(Serialize, ToSchema)]
pub(super) struct Schedule {
    name: String,
    /// The flow.
    graph: String,
    /// What each thread takes.
    #[schema(value_type = Object)]
    input: Value,
    /// A cron expression: minute, hour, day, month, weekday.
    cron: String,
    /// The time zone that it is in.
    zone: String,
    /// Of ticks that nobody was there for, `newest` comes or `all` come.
    catch_up: &'static str,
    /// How late a tick may come.
    catch_up_minutes: u64,
    jitter_seconds: u64,
    paused: bool,
    /// The instant of the next tick; absent while it is paused.
    next_tick: Option<String>,
    /// When that comes: with its jitter.
    next_at: Option<String>,
    /// The instant of the last tick.
    last_tick: Option<String>,
    /// What the last tick started.
    last_thread: Option<String>,
    /// Why the last tick started nothing.
    last_error: Option<String>,
}

impl From<ScheduleView> for Schedule {
    fn from(view: ScheduleView) -> Self {
        let ScheduleView { spec, next, last_tick, last_thread, last_error } = view;
        Self {
            name: spec.name,
            graph: spec.graph,
            input: spec.input,
            cron: spec.expression,
            zone: spec.zone,
            catch_up: spec.catch_up.name(),
            catch_up_minutes: spec.catch_within.as_secs() / 60,
            jitter_seconds: spec.jitter.as_secs(),
            paused: spec.paused,
            next_tick: (!spec.paused).then(|| rfc3339(next.instant)),
            next_at: (!spec.paused).then(|| rfc3339(next.at)),
            last_tick: last_tick.map(rfc3339),
            last_thread: last_thread.map(Into::into),
            last_error,
        }
    }
}

impl From<ScheduleError> for Problem {
    fn from(error: ScheduleError) -> Self {
        let said = error.to_string();
        match error {
            ScheduleError::Unknown(name) => unknown(&name),
            ScheduleError::Rhythm { .. } => Self::invalid("invalid-schedule", said),
            ScheduleError::Request(error) => error.into(),
        }
    }
}

fn unknown(name: &str) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "unknown-schedule",
        "There is no such schedule",
        "schedules are defined in the configuration, as `[[schedules]]`",
    )
    .with("schedule", name)
}

/// What a token may not see does not exist for it.
async fn visible(state: &AppState, caller: &Caller, name: &str) -> Result<(), Problem> {
    let known = state.engine.store().schedules().await?;
    let there = known.iter().any(|view| view.spec.name == name && caller.sees(&view.spec.graph));
    if there { Ok(()) } else { Err(unknown(name)) }
}

/// All schedules, by name.
#[utoipa::path(
    get, path = "/schedules", operation_id = "list_schedules",
    responses((status = 200, body = [Schedule]), (status = 401, body = Problem), (status = 403, body = Problem))
)]
pub(super) async fn list(State(state): State<AppState>, caller: Caller) -> Result<Json<Vec<Schedule>>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    let known = state.engine.store().schedules().await?;
    Ok(Json(known.into_iter().filter(|view| caller.sees(&view.spec.graph)).map(Into::into).collect()))
}

/// Pauses a schedule: nothing ticks until it goes on.
#[utoipa::path(
    post, path = "/schedules/{name}/pause", operation_id = "pause_schedule", params(("name" = String, Path)),
    responses((status = 200), (status = 401, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem))
)]
pub(super) async fn pause(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(name): ApiPath<String>,
) -> Result<Response, Problem> {
    switch(&state, &caller, &name, true).await
}

/// Has a schedule go on, from its next tick: what would have come during the
/// pause does not.
#[utoipa::path(
    post, path = "/schedules/{name}/resume", operation_id = "resume_schedule", params(("name" = String, Path)),
    responses((status = 200), (status = 401, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem))
)]
pub(super) async fn resume(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(name): ApiPath<String>,
) -> Result<Response, Problem> {
    switch(&state, &caller, &name, false).await
}

async fn switch(state: &AppState, caller: &Caller, name: &str, paused: bool) -> Result<Response, Problem> {
    caller.require(Scope::Operate)?;
    visible(state, caller, name).await?;
    state.engine.pause_schedule(name, paused).await?;
    Ok(Json(json!({"name": name, "paused": paused})).into_response())
}

/// Starts a thread of a schedule now, beside its ticks.
#[utoipa::path(
    post, path = "/schedules/{name}/fire", operation_id = "fire_schedule", params(("name" = String, Path)),
    responses((status = 202), (status = 401, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem))
)]
pub(super) async fn fire(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(name): ApiPath<String>,
) -> Result<Response, Problem> {
    caller.require(Scope::Operate)?;
    visible(&state, &caller, &name).await?;
    let thread = state.engine.fire_schedule(&name, &caller.principal).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({"name": name, "thread_id": thread.as_str()}))).into_response())
}
