//! One checkpoint of a thread: what it holds, and running again from it.

use askama::Template;
use axum::extract::rejection::FormRejection;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::{Extension, Form};
use countersign_kernel::ids::{CheckpointId, ThreadId};
use countersign_kernel::machine::{EditRefused, Resume};
use countersign_worker::engine::{ReplayRequest, RequestError};
use countersign_worker::store::views::{ArchivedAt, DoneStep};
use countersign_worker::store::{Refusal, StoreError};

use super::origin;
use super::page::{render, see_other};
use super::problem::Problem;
use super::session::{Administrator, Session};
use super::site::Site;
use super::thread::{StateRow, source_word, state_rows};
use super::time::Moment;
use crate::state::AppState;

/// The thread and the checkpoint in the address.
pub(super) struct Place {
    thread: ThreadId,
    checkpoint: CheckpointId,
}

impl<S: Send + Sync> FromRequestParts<S> for Place {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((thread, checkpoint)) = path.map_err(|_| Problem::NoPage)?;
        Ok(Self {
            thread: ThreadId::parse(thread).map_err(|_| Problem::NoThread)?,
            checkpoint: CheckpointId::parse(checkpoint).map_err(|_| Problem::NoCheckpoint)?,
        })
    }
}

/// Why it was not run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotRun {
    /// Steps would be done again, and nobody said that they may.
    Unconfirmed,
    /// The thread is being run, or has moved in between.
    Moved,
    /// Nothing is planned there.
    Nothing,
}

impl NotRun {
    fn text(self) -> &'static str {
        match self {
            Self::Unconfirmed => {
                "Steps were done at this checkpoint or after it. Look at the list below and confirm that they may be \
                 done again."
            }
            Self::Moved => "The thread is at work just now, or has moved on meanwhile. Look again once it rests.",
            Self::Nothing => "Nothing is left to run at this checkpoint.",
        }
    }
}

/// A checkpoint, and what running again from it means.
#[derive(Template)]
#[template(path = "checkpoint.html")]
pub(super) struct CheckpointPage {
    pub(super) site: Site,
    pub(super) thread: String,
    pub(super) graph: String,
    pub(super) checkpoint: String,
    pub(super) seq: i64,
    pub(super) superstep: u64,
    pub(super) source: &'static str,
    pub(super) made: Moment,
    /// Whether it is of a sub-graph.
    pub(super) inner: bool,
    pub(super) next: Vec<String>,
    pub(super) state: Vec<StateRow>,
    /// What the operator is to know; `None` for everybody else.
    pub(super) again: Option<AgainForm>,
    pub(super) refused: Option<&'static str>,
}

/// What running again from a checkpoint means now.
#[derive(Debug, Clone)]
pub(super) struct AgainForm {
    /// Whether the thread is at work.
    pub(super) busy: bool,
    /// How many points wait and would be superseded.
    pub(super) open: u32,
    /// Steps that would be done again: name and place.
    pub(super) steps: Vec<(String, String)>,
}

/// `GET /threads/{id}/checkpoints/{checkpoint}`.
pub(super) async fn show(
    session: Session,
    State(state): State<AppState>,
    Extension(site): Extension<Site>,
    place: Place,
) -> Result<Response, Problem> {
    let page = page(&state, site, &place, session.administrator, None).await?;
    Ok(render(StatusCode::OK, &page))
}

/// `POST /threads/{id}/checkpoints/{checkpoint}`: runs again from there.
pub(super) async fn run_again(
    _: Administrator,
    session: Session,
    State(state): State<AppState>,
    Extension(site): Extension<Site>,
    place: Place,
    headers: HeaderMap,
    fields: Result<Form<Vec<(String, String)>>, FormRejection>,
) -> Result<Response, Problem> {
    if !origin::is_ours(&headers, &state.base_url) {
        return Err(Problem::FromElsewhere);
    }
    let Form(fields) = fields?;
    let request = ReplayRequest {
        thread: place.thread.clone(),
        checkpoint: place.checkpoint.clone(),
        input: None,
        re_execute: fields.iter().any(|(name, value)| name == "re_execute" && value == "true"),
        resume: Resume::default(),
        principal: session.principal,
    };
    let not_run = match state.engine.replay(&request, &|_, _, _| None).await {
        Ok(_) => return Ok(see_other(&format!("{}/threads/{}", site.prefix, place.thread))),
        Err(RequestError::Store(StoreError::Refused(Refusal::ReExecutes(_)))) => NotRun::Unconfirmed,
        Err(RequestError::Edit(EditRefused::NothingPending)) => NotRun::Nothing,
        Err(RequestError::Store(StoreError::Refused(Refusal::ThreadBusy | Refusal::ThreadChanged))) => NotRun::Moved,
        Err(error) => return Err(error.into()),
    };
    let page = page(&state, site, &place, true, Some(not_run)).await?;
    Ok(render(StatusCode::CONFLICT, &page))
}

/// Steps by name and place, each once: one that was done on several lines of
/// the history says how often.
fn counted(steps: Vec<DoneStep>) -> Vec<(String, String)> {
    let mut counted: Vec<(DoneStep, usize)> = Vec::new();
    for step in steps {
        match counted.iter_mut().find(|(known, _)| *known == step) {
            Some((_, times)) => *times += 1,
            None => counted.push((step, 1)),
        }
    }
    let say = |(DoneStep { address, name }, times)| match times {
        1 => (name, address),
        times => (name, format!("{address}, done {times} times")),
    };
    counted.into_iter().map(say).collect()
}

async fn page(
    state: &AppState,
    site: Site,
    place: &Place,
    operator: bool,
    not_run: Option<NotRun>,
) -> Result<CheckpointPage, Problem> {
    let store = state.engine.store();
    let summary = store.thread(&place.thread).await?.summary;
    let chain = store.archived(&place.thread, &place.checkpoint).await?;
    let Some(ArchivedAt { archived, seq, .. }) = chain.into_iter().next_back() else {
        return Err(Problem::NoCheckpoint);
    };
    let again = if operator {
        let steps = store.steps_since(&place.thread, &place.checkpoint).await?;
        let busy = matches!(summary.status.as_str(), "queued" | "running");
        Some(AgainForm { busy, open: summary.open, steps: counted(steps) })
    } else {
        None
    };
    let mut next: Vec<String> = archived.body.tasks.into_iter().map(|task| task.node).collect();
    next.sort_unstable();
    Ok(CheckpointPage {
        site,
        thread: place.thread.to_string(),
        graph: summary.graph,
        checkpoint: place.checkpoint.to_string(),
        seq,
        superstep: archived.checkpoint.superstep,
        source: source_word(archived.checkpoint.source.as_str()),
        made: Moment::of(archived.checkpoint.created_at),
        inner: archived.frame.is_some(),
        next,
        state: state_rows(archived.values.to_object()),
        again,
        refused: not_run.map(NotRun::text),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_several_lines_says_how_often_it_was_done() {
        let step = |name: &str| DoneStep { address: "g/pay@1".to_owned(), name: name.to_owned() };
        let row = |name: &str, place: &str| (name.to_owned(), place.to_owned());
        let rows = counted(vec![step("a"), step("b"), step("a")]);
        assert_eq!(rows, [row("a", "g/pay@1, done 2 times"), row("b", "g/pay@1")]);
    }
}
