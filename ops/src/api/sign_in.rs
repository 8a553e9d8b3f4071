//! Links that sign people in.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_kernel::ports::Directory as _;
use countersign_kernel::principal::Principal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::auth::Caller;
use super::extract::ApiJson;
use super::problem::Problem;
use super::shapes::rfc3339;
use crate::state::AppState;
use crate::web;

const HOURS_DEFAULT: u64 = 24;
const HOURS_MAX: u64 = 168;

/// Whom to sign in.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SignInBody {
    /// Somebody configured, or the administrator: `person:ann@example.com`, or
    /// the address alone.
    person: String,
    /// How long the link works; 24 when absent.
    #[schema(minimum = 1, maximum = 168)]
    valid_hours: Option<u64>,
}

/// A link that signs a person in. Whoever opens it is that person.
#[derive(Serialize, ToSchema)]
pub(super) struct SignInLink {
    person: String,
    link: String,
    /// Until when it can be opened, as often as one likes.
    expires_at: String,
}

/// Makes a link that signs a person in to the pages.
#[utoipa::path(
    post, path = "/sign-in-links", operation_id = "create_sign_in_link", request_body = SignInBody,
    responses((status = 201, body = SignInLink), (status = 401, body = Problem), (status = 403, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn create(
    State(state): State<AppState>,
    caller: Caller,
    ApiJson(body): ApiJson<SignInBody>,
) -> Result<Response, Problem> {
    // Who is signed in sees every graph.
    caller.require_unlimited_admin()?;
    let hours = body.valid_hours.unwrap_or(HOURS_DEFAULT);
    if !(1..=HOURS_MAX).contains(&hours) {
        return Err(Problem::invalid("invalid-body", format!("`valid_hours` must lie between 1 and {HOURS_MAX}")));
    }
    let principal = Principal::person(body.person.strip_prefix("person:").unwrap_or(&body.person));
    if state.directory.person(&principal).is_none() {
        let detail = format!("`{}` is nobody this server knows; people are configured as [[people]]", principal.name());
        return Err(Problem::invalid("unknown-person", detail));
    }
    let valid_for = Duration::from_hours(hours);
    let expires_at = rfc3339(state.now().after(valid_for));
    let link = web::sign_in_link(&state, &principal, valid_for);
    tracing::info!(person = %principal, by = %caller.principal, "made a sign-in link");
    let reply = SignInLink { person: principal.into(), link, expires_at };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(reply)).into_response())
}
