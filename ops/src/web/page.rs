//! From templates to responses, and the headers that protect pages.

use askama::Template;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};

use super::problem::Problem;
use super::session;
use super::site::Site;
use crate::state::AppState;

/// No script, nothing from elsewhere, in nobody's frame.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; frame-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// The page that `template` makes.
pub(super) fn render(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be rendered");
            let html = "<!doctype html><html lang=\"en\"><title>Error</title><p>This page cannot be shown.</p></html>";
            (StatusCode::INTERNAL_SERVER_ERROR, Html(html)).into_response()
        }
    }
}

/// A response without the headers of a page: a redirect to one of our pages.
pub(super) fn see_other(location: &str) -> Response {
    match HeaderValue::from_str(location) {
        Ok(location) => (StatusCode::SEE_OTHER, [(axum::http::header::LOCATION, location)]).into_response(),
        Err(_) => Problem::NoPage.into_response(),
    }
}

/// Finds out who looks, renders what went wrong, and adds the headers that
/// every page has unless it says otherwise.
pub(super) async fn finish(State(state): State<AppState>, mut request: Request<Body>, next: Next) -> Response {
    let site = Site::new(&state, session::current(&state, request.headers()));
    let secret_address = ["/d/", "/signin/"].iter().any(|path| request.uri().path().starts_with(path));
    let cross_site = super::origin::fetch_site(request.headers()) == Some("cross-site");
    request.extensions_mut().insert(site.clone());
    let mut response = next.run(request).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        response = problem.page(&site, cross_site);
    }
    // A form posted from a page that sends no referrer has the origin `null`:
    // pages of a session, whose address is no secret, name theirs to us.
    let referrer = if site.session.is_some() && !secret_address { "same-origin" } else { "no-referrer" };
    let headers = response.headers_mut();
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, referrer),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("x-robots-tag"), "noindex, nofollow"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
