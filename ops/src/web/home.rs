//! The first page: what waits for me, and how things are.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use countersign_kernel::policy::Voter;
use countersign_kernel::ports::Directory as _;
use countersign_kernel::question::Request;
use countersign_worker::store::views::{InterruptFilter, InterruptView, Overview, ThreadFilter, ThreadSummary};

use super::decision::kind_word;
use super::page::render;
use super::problem::Problem;
use super::session::Session;
use super::site::Site;
use super::time::Moment;
use crate::config::EVERY_ROLE;
use crate::state::AppState;

/// Requests shown at once, the oldest first.
const REQUESTS_SHOWN: u32 = 100;
/// Threads shown, the newest first.
const THREADS_SHOWN: u32 = 25;

#[derive(Template)]
#[template(path = "home.html")]
pub(super) struct HomePage {
    pub(super) site: Site,
    pub(super) waiting: Vec<WaitingRow>,
    /// Whether there may be more than are shown.
    pub(super) more: bool,
    pub(super) counts: Vec<CountView>,
    pub(super) threads: Vec<ThreadRow>,
}

/// One request that waits.
#[derive(Debug, Clone)]
pub(super) struct WaitingRow {
    pub(super) id: String,
    pub(super) kind: &'static str,
    pub(super) title: String,
    pub(super) requested_by: Option<String>,
    pub(super) graph: String,
    pub(super) thread: String,
    pub(super) asked_at: Moment,
    pub(super) deadline: Option<Moment>,
    /// Such as `1 of 2 votes`, where one is not enough.
    pub(super) votes: Option<String>,
}

/// A number with what it counts.
#[derive(Debug, Clone)]
pub(super) struct CountView {
    pub(super) number: u64,
    pub(super) label: String,
    /// Whether somebody should look into it.
    pub(super) alarming: bool,
}

/// One thread in a list.
#[derive(Debug, Clone)]
pub(super) struct ThreadRow {
    pub(super) thread: String,
    pub(super) graph: String,
    pub(super) status: String,
    pub(super) open: u32,
    pub(super) updated_at: Moment,
}

impl ThreadRow {
    /// The line of a thread.
    pub(super) fn new(summary: &ThreadSummary) -> Self {
        Self {
            thread: summary.thread.to_string(),
            graph: summary.graph.clone(),
            status: summary.status.clone(),
            open: summary.open,
            updated_at: Moment::of(summary.updated_at),
        }
    }
}

/// `GET /`.
pub(super) async fn show(
    session: Session,
    State(state): State<AppState>,
    Extension(site): Extension<Site>,
) -> Result<Response, Problem> {
    let store = state.engine.store();
    let roles = state.directory.roles(&session.principal);
    let approvers = (!roles.iter().any(|role| role == EVERY_ROLE)).then(|| {
        let roles = roles.iter().map(|role| format!("role:{role}"));
        std::iter::once(session.principal.to_string()).chain(roles).collect()
    });
    let filter = InterruptFilter { status: Some("open".to_owned()), approvers, ..InterruptFilter::default() };
    let found = store.interrupts(&filter, None, REQUESTS_SHOWN).await?;
    let voter = Voter { principal: session.principal, roles };
    let overview = store.overview().await?;
    let threads = store.threads(&ThreadFilter::default(), None, THREADS_SHOWN).await?;
    let page = HomePage {
        more: u32::try_from(found.len()).is_ok_and(|found| found == REQUESTS_SHOWN),
        waiting: found.iter().filter_map(|view| waiting(view, &voter)).collect(),
        counts: counts(&overview),
        threads: threads.iter().map(ThreadRow::new).collect(),
        site,
    };
    Ok(render(StatusCode::OK, &page))
}

fn waiting(view: &InterruptView, voter: &Voter) -> Option<WaitingRow> {
    let standing = view.request.as_ref()?;
    let request = Request::from_payload(&view.payload).ok()?;
    request.policy.admit(voter).ok()?;
    let votes = (standing.need > 1).then(|| format!("{} of {} votes", standing.have, standing.need));
    Some(WaitingRow {
        id: view.id.to_string(),
        kind: kind_word(request.question.kind()),
        title: request.title,
        requested_by: request.requested_by,
        graph: view.graph.clone(),
        thread: view.thread.to_string(),
        asked_at: Moment::of(view.asked_at),
        deadline: view.deadline.map(Moment::of),
        votes,
    })
}

fn counts(overview: &Overview) -> Vec<CountView> {
    let count = |number: u64, label: String, alarming: bool| CountView { number, label, alarming };
    let mut counts = vec![count(overview.requests_open, "requests open".to_owned(), false)];
    for (status, number) in &overview.threads {
        let alarming = status == "failed" || status == "held";
        counts.push(count(*number, format!("threads {status}"), alarming && *number > 0));
    }
    for (status, number) in overview.deliveries.iter().filter(|(status, _)| status != "sent") {
        counts.push(count(*number, format!("deliveries {status}"), status == "failed" && *number > 0));
    }
    counts.push(count(overview.dead_letters, "dead letters".to_owned(), overview.dead_letters > 0));
    counts
}
