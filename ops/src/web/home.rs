//! The first page: what waits for me, and how everything stands.
//!
//! The page is made of regions, each of which is rendered alone too, so that
//! the [stream](super::live) that keeps an open page fresh sends the same.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::header::CONTENT_SECURITY_POLICY;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use countersign_kernel::policy::Voter;
use countersign_kernel::ports::Directory as _;
use countersign_kernel::question::Request;
use countersign_worker::store::StoreError;
use countersign_worker::store::views::{InterruptFilter, InterruptView, ThreadSummary};

use super::assets;
use super::decision::kind_word;
use super::page::render;
use super::problem::Problem;
use super::session::Session;
use super::site::Site;
use super::standing::{Standing, Trouble};
use super::time::Moment;
use crate::config::EVERY_ROLE;
use crate::overview::{Fresh, Look};
use crate::state::AppState;

/// Requests shown at once, the oldest first.
const REQUESTS_SHOWN: u32 = 100;

/// The script of this page and its stream, and nothing else than other pages may.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

#[derive(Template)]
#[template(path = "home.html")]
pub(super) struct HomePage {
    pub(super) site: Site,
    /// When it was so.
    pub(super) at: Moment,
    /// Names this build's script.
    pub(super) script: &'static str,
    pub(super) regions: Regions,
}

/// The parts of the page, by name, in their order.
pub(super) type Regions = Vec<(&'static str, String)>;

/// What waits for one person.
#[derive(Template)]
#[template(path = "waiting.html")]
pub(super) struct Waiting {
    pub(super) prefix: Arc<str>,
    pub(super) waiting: Vec<WaitingRow>,
    /// Whether there may be more than are shown.
    pub(super) more: bool,
}

/// The newest threads.
#[derive(Template)]
#[template(path = "latest.html")]
pub(super) struct Latest<'a> {
    pub(super) prefix: &'a str,
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
    let look = state.lookout.look(&state.engine, Fresh::Recent).await?;
    let waiting = waiting_for(&state, &site, &session).await?;
    let regions = regions(&site, &session, &look, &waiting);
    let page = HomePage { at: Moment::of(look.at), script: assets::script_version(), regions, site };
    let mut response = render(StatusCode::OK, &page);
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    Ok(response)
}

/// The page's parts for whoever looks at it. What is wrong comes first for the
/// administrator, and what one is asked for everybody else.
pub(super) fn regions(site: &Site, session: &Session, look: &Look, waiting: &Waiting) -> Regions {
    let prefix = &site.prefix;
    let trouble = ("trouble", text(&Trouble::new(prefix, look)));
    let waiting = ("waiting", text(waiting));
    let latest = Latest { prefix, threads: look.latest.iter().map(ThreadRow::new).collect() };
    let first = if session.administrator { [trouble, waiting] } else { [waiting, trouble] };
    let rest = [("standing", text(&Standing::new(prefix, look))), ("latest", text(&latest))];
    first.into_iter().chain(rest).collect()
}

fn text(template: &impl Template) -> String {
    template.render().unwrap_or_else(|error| {
        tracing::error!(%error, "a part of a page could not be rendered");
        "<p class=\"card empty\">This part cannot be shown.</p>".to_owned()
    })
}

/// What waits for whoever looks.
pub(super) async fn waiting_for(state: &AppState, site: &Site, session: &Session) -> Result<Waiting, StoreError> {
    let roles = state.directory.roles(&session.principal);
    let approvers = (!roles.iter().any(|role| role == EVERY_ROLE)).then(|| {
        let roles = roles.iter().map(|role| format!("role:{role}"));
        std::iter::once(session.principal.to_string()).chain(roles).collect()
    });
    let filter = InterruptFilter { status: Some("open".to_owned()), approvers, ..InterruptFilter::default() };
    let found = state.engine.store().interrupts(&filter, None, REQUESTS_SHOWN).await?;
    let voter = Voter { principal: session.principal.clone(), roles };
    Ok(Waiting {
        prefix: site.prefix.clone(),
        more: u32::try_from(found.len()).is_ok_and(|found| found == REQUESTS_SHOWN),
        waiting: found.iter().filter_map(|view| waiting(view, &voter)).collect(),
    })
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
