//! The two ways to a request: a personal link, and a session.

use axum::extract::State;
use axum::extract::rejection::FormRejection;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::{Extension, Form};
use countersign_kernel::ids::InterruptId;
use countersign_notifier::LinkClaim;
use countersign_worker::store::commands::Via;

use super::answer::Posted;
use super::decide::{Visit, Visitor};
use super::origin;
use super::problem::{Problem, Segment};
use super::session::Session;
use super::site::Site;
use crate::state::AppState;

type Fields = Result<Form<Vec<(String, String)>>, FormRejection>;

/// `GET /d/{token}`.
pub(super) async fn show_link(
    State(state): State<AppState>,
    Extension(site): Extension<Site>,
    Segment(token): Segment,
) -> Result<Response, Problem> {
    by_link(&state, &site, &token)?.show().await
}

/// `POST /d/{token}`. The token is what authorises it: whoever can post to
/// this address holds the link, from whichever page they post.
pub(super) async fn decide_link(
    State(state): State<AppState>,
    Extension(site): Extension<Site>,
    Segment(token): Segment,
    fields: Fields,
) -> Result<Response, Problem> {
    let visit = by_link(&state, &site, &token)?;
    let Form(fields) = fields?;
    visit.decide(&Posted::new(fields), &format!("{}/d/{token}", site.prefix)).await
}

fn by_link(state: &AppState, site: &Site, token: &str) -> Result<Visit, Problem> {
    let claim = state.links.verify(token, state.now()).map_err(Problem::Link)?;
    let LinkClaim { thread, interrupt, principal, content_hash, .. } = claim;
    let via = Via { channel: "link", identified: "link" };
    let visitor = Visitor { principal, via, announced: Some((thread, content_hash)), administrator: false };
    Ok(Visit { state: state.clone(), site: site.for_link(), interrupt, visitor })
}

/// `GET /interrupts/{id}`.
pub(super) async fn show_page(
    session: Session,
    State(state): State<AppState>,
    Extension(site): Extension<Site>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    by_session(&state, &site, session, &id)?.show().await
}

/// `POST /interrupts/{id}`.
pub(super) async fn decide_page(
    session: Session,
    State(state): State<AppState>,
    Extension(site): Extension<Site>,
    Segment(id): Segment,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Problem> {
    if !origin::is_ours(&headers, &state.base_url) {
        return Err(Problem::FromElsewhere);
    }
    let visit = by_session(&state, &site, session, &id)?;
    let Form(fields) = fields?;
    let here = format!("{}/interrupts/{}", site.prefix, visit.interrupt);
    visit.decide(&Posted::new(fields), &here).await
}

fn by_session(state: &AppState, site: &Site, session: Session, id: &str) -> Result<Visit, Problem> {
    let interrupt = InterruptId::parse(id).map_err(|_| Problem::NoRequest)?;
    let via = Via { channel: "page", identified: "session" };
    let visitor = Visitor { principal: session.principal, via, announced: None, administrator: session.administrator };
    Ok(Visit { state: state.clone(), site: site.clone(), interrupt, visitor })
}
