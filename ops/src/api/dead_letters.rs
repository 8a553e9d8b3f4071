//! Work that gave up: looked at, and tried again.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::DateTime;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::time::Timestamp;
use countersign_worker::queue::JobKind;
use countersign_worker::store::dead_letters::{DeadLetter, DeadLetterFilter};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::auth::{Caller, Scope};
use super::cursor;
use super::extract::{ApiJson, ApiQuery};
use super::problem::Problem;
use super::shapes::{Page, rfc3339};
use crate::state::AppState;

/// Work that gave up.
#[derive(Serialize, ToSchema)]
pub(super) struct DeadLetterShape {
    thread_id: String,
    /// Names it within the thread.
    id: String,
    /// advance (a thread lost its worker too often) or deliver (a message could
    /// not be delivered).
    kind: &'static str,
    graph: String,
    /// Of a message.
    channel: Option<String>,
    reason: String,
    attempts: u32,
    died_at: String,
}

impl From<DeadLetter> for DeadLetterShape {
    fn from(letter: DeadLetter) -> Self {
        Self {
            thread_id: letter.thread.into(),
            id: letter.id,
            kind: letter.kind.name(),
            graph: letter.graph,
            channel: letter.channel,
            reason: letter.reason,
            attempts: letter.attempts,
            died_at: rfc3339(letter.died_at),
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeadLettersQuery {
    /// advance or deliver.
    kind: Option<String>,
    /// Only of this flow.
    graph: Option<String>,
    /// Only messages through this channel.
    channel: Option<String>,
    /// Only those that gave up before (RFC 3339).
    before: Option<String>,
    /// At most 500; 50 when absent.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Work that gave up, oldest first.
#[utoipa::path(
    get, path = "/dead-letters", operation_id = "list_dead_letters", params(DeadLettersQuery),
    responses(
        (status = 200, body = Page<DeadLetterShape>), (status = 400, body = Problem), (status = 401, body = Problem),
        (status = 403, body = Problem), (status = 422, body = Problem)
    )
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    ApiQuery(query): ApiQuery<DeadLettersQuery>,
) -> Result<Json<Page<DeadLetterShape>>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    let limit = cursor::limit(query.limit)?;
    let after = cursor::decode(&state, "dead-letters", query.cursor.as_deref())?;
    let which = Which {
        kind: query.kind,
        graph: query.graph,
        channel: query.channel,
        before: query.before,
        ..Which::default()
    };
    let found = state.engine.store().dead_letters(&which.filter(&caller)?, after.as_ref(), limit).await?;
    let next_cursor = (found.len() == limit as usize)
        .then(|| {
            let last = found.last()?;
            let id = format!("{}/{}", last.thread, last.id);
            Some(cursor::encode(&state, "dead-letters", last.died_at, &id))
        })
        .flatten();
    Ok(Json(Page { items: found.into_iter().map(Into::into).collect(), next_cursor }))
}

/// Which dead letters to try again; at least one member, or `all`.
#[derive(Deserialize, Default, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// advance or deliver.
    kind: Option<String>,
    /// Only of this flow.
    graph: Option<String>,
    /// Only messages through this channel.
    channel: Option<String>,
    /// Only those that gave up before (RFC 3339).
    before: Option<String>,
    /// Only of this thread.
    #[schema(value_type = Option<String>)]
    thread_id: Option<ThreadId>,
    /// Only the one of this id, as the list gives it; with `thread_id`.
    id: Option<String>,
    /// All of them.
    #[serde(default)]
    all: bool,
}

impl Which {
    fn is_empty(&self) -> bool {
        let Self { kind, graph, channel, before, thread_id, id, all } = self;
        !all && [kind, graph, channel, before, id].into_iter().all(Option::is_none) && thread_id.is_none()
    }

    fn filter(self, caller: &Caller) -> Result<DeadLetterFilter, Problem> {
        let kind = self.kind.as_deref().map(|kind| match JobKind::from_name(kind) {
            Some(kind @ (JobKind::Advance | JobKind::Deliver)) => Ok(kind),
            _ => Err(Problem::invalid("unknown-kind", format!("there is no kind `{kind}`; known: advance, deliver"))),
        });
        let before = self.before.as_deref().map(|before| {
            DateTime::parse_from_rfc3339(before).map(|at| Timestamp::from_micros(at.timestamp_micros())).map_err(
                |error| {
                    Problem::invalid(
                        "invalid-time",
                        format!("`before` must be a time as in 2027-01-31T17:00:00Z: {error}"),
                    )
                },
            )
        });
        if let Some(graph) = &self.graph {
            caller.require_graph(graph)?;
        }
        let graphs = self.graph.map(|graph| vec![graph]).or_else(|| caller.graphs().map(<[String]>::to_vec));
        Ok(DeadLetterFilter {
            kind: kind.transpose()?,
            graphs,
            channel: self.channel,
            before: before.transpose()?,
            thread: self.thread_id,
            id: self.id,
        })
    }
}

/// What became of dead letters.
#[derive(Serialize, ToSchema)]
pub(super) struct RetriedShape {
    /// Have fresh attempts.
    retried: u32,
    /// Nobody waits for them any more; their dead letters are gone.
    dropped: u32,
    /// Whether there are more that fit: send it again.
    more: bool,
}

/// Gives dead letters fresh attempts, the oldest first, at most 1000 at a time.
#[utoipa::path(
    post, path = "/dead-letters/retry", operation_id = "retry_dead_letters", request_body = Which,
    responses(
        (status = 202, body = RetriedShape), (status = 401, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 422, body = Problem)
    )
)]
pub(super) async fn retry(
    State(state): State<AppState>,
    caller: Caller,
    ApiJson(which): ApiJson<Which>,
) -> Result<(StatusCode, Json<RetriedShape>), Problem> {
    caller.require(Scope::Operate)?;
    if which.is_empty() {
        return Err(Problem::invalid("empty-filter", "say which, or `all: true` for all of them"));
    }
    let done = state.engine.retry_dead_letters(&which.filter(&caller)?, &caller.principal).await?;
    let shape = RetriedShape { retried: done.retried, dropped: done.dropped, more: done.more };
    Ok((StatusCode::ACCEPTED, Json(shape)))
}
