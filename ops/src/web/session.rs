//! Signing in: a signed link becomes a signed cookie.

use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::{FromRequestParts, State};
use axum::http::header::{COOKIE, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use countersign_kernel::ports::Directory as _;
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use countersign_notifier::LinkFault;
use serde::{Deserialize, Serialize};

use super::origin;
use super::page::{render, see_other};
use super::problem::{Problem, Segment};
use super::site::{Site, prefix};
use crate::state::AppState;

const COOKIE_NAME: &str = "countersign_session";
const SIGN_IN: &str = "signin";
const SESSION: &str = "session";
const SESSION_VALID_FOR: Duration = Duration::from_hours(12);

/// What sign-in links and cookies say.
#[derive(Serialize, Deserialize)]
struct Claim {
    principal: Principal,
    expires_at: Timestamp,
}

/// Who is signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session {
    /// The person.
    pub(super) principal: Principal,
    /// Their name.
    pub(super) name: String,
    /// Whether they are the local administrator.
    pub(super) administrator: bool,
}

/// A link, `{base_url}/signin/{token}`, that signs `principal` in for twelve
/// hours whenever it is opened within `valid_for`. Whoever opens it is that
/// person, so it is shown to nobody else and never logged.
#[must_use]
pub fn sign_in_link(state: &AppState, principal: &Principal, valid_for: Duration) -> String {
    let token = sign(state, SIGN_IN, principal, valid_for);
    format!("{}/signin/{token}", state.base_url)
}

fn sign(state: &AppState, purpose: &str, principal: &Principal, valid_for: Duration) -> String {
    let claim = Claim { principal: principal.clone(), expires_at: state.now().after(valid_for) };
    // A struct of a text and a number always encodes.
    let content = serde_json::to_vec(&claim).unwrap_or_default();
    state.links.signer().sign(purpose, &content)
}

fn verify(state: &AppState, purpose: &str, token: &str) -> Result<Principal, LinkFault> {
    let content = state.links.signer().verify(purpose, token)?;
    let claim: Claim = serde_json::from_slice(&content).map_err(|_| LinkFault::Malformed)?;
    if state.now() > claim.expires_at {
        return Err(LinkFault::Expired { at: claim.expires_at });
    }
    Ok(claim.principal)
}

/// Whom the cookie stands for, as long as the directory knows them.
pub(super) fn current(state: &AppState, headers: &HeaderMap) -> Option<Session> {
    let principal = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == COOKIE_NAME)
        .find_map(|(_, token)| verify(state, SESSION, token).ok())?;
    let person = state.directory.person(&principal)?;
    Some(Session { administrator: principal == state.administrator(), name: person.name, principal })
}

fn cookie(state: &AppState, token: &str, valid_for: Duration) -> HeaderValue {
    let path = match prefix(&state.base_url) {
        "" => "/",
        path => path,
    };
    let secure = if state.base_url.starts_with("https://") { "; Secure" } else { "" };
    let seconds = valid_for.as_secs();
    let text = format!("{COOKIE_NAME}={token}; Max-Age={seconds}; Path={path}; HttpOnly; SameSite=Strict{secure}");
    // URL-safe base64 and a path of a parsed URL are header text.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

#[derive(Template)]
#[template(path = "signed.html")]
pub(super) struct SignedPage {
    pub(super) site: Site,
    /// Who was signed in; `None` once signed out.
    pub(super) name: Option<String>,
}

/// `GET /signin/{token}`.
pub(super) async fn sign_in(
    State(state): State<AppState>,
    Extension(site): Extension<Site>,
    Segment(token): Segment,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let principal = verify(&state, SIGN_IN, &token).map_err(Problem::SignInLink)?;
    let Some(person) = state.directory.person(&principal) else { return Err(Problem::Nobody) };
    let cookie = cookie(&state, &sign(&state, SESSION, &principal, SESSION_VALID_FOR), SESSION_VALID_FOR);
    // A strict cookie does not travel along a redirect that another site set
    // off; a link on a page of ours takes it along.
    let mut response = if origin::fetch_site(&headers) == Some("cross-site") {
        render(StatusCode::OK, &SignedPage { site: site.for_link(), name: Some(person.name) })
    } else {
        see_other(&format!("{}/", site.prefix))
    };
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

/// `POST /signout`.
pub(super) async fn sign_out(
    State(state): State<AppState>,
    Extension(site): Extension<Site>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if !origin::is_ours(&headers, &state.base_url) {
        return Err(Problem::FromElsewhere);
    }
    let mut response = render(StatusCode::OK, &SignedPage { site: site.for_link(), name: None });
    response.headers_mut().insert(SET_COOKIE, cookie(&state, "", Duration::ZERO));
    Ok(response)
}

impl<S: Sync> FromRequestParts<S> for Session {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let site = parts.extensions.get::<Site>();
        site.and_then(|site| site.session.clone()).ok_or(Problem::SignedOut)
    }
}

/// The session of the administrator.
pub(super) struct Administrator;

impl<S: Sync> FromRequestParts<S> for Administrator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let session = Session::from_request_parts(parts, state).await?;
        if session.administrator { Ok(Self) } else { Err(Problem::NotAdministrator) }
    }
}
