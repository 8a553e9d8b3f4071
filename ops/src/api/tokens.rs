//! API tokens: made, listed, revoked, by who reaches every graph. A token's
//! text is shown once.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use countersign_kernel::ports::Ids;
use countersign_worker::store::views::TokenRecord;
use countersign_worker::system::SystemIds;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::auth::{ADMIN_TOKEN, Caller, Scope, hash_token, is_admin_token};
use super::extract::{ApiJson, ApiPath};
use super::problem::Problem;
use crate::state::AppState;

/// A token to make.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TokenBody {
    /// `threads:read`, `threads:write`, `answer`, `answer:on_behalf`,
    /// `operate`, `admin`.
    #[schema(value_type = Vec<String>)]
    scopes: Vec<Scope>,
    /// The flows it reaches; all when absent.
    graphs: Option<Vec<String>>,
}

/// A token as it is listed; never its text.
#[derive(Serialize, ToSchema)]
pub(super) struct TokenShape {
    /// Its principal is `service:<name>`.
    name: String,
    scopes: Vec<String>,
    graphs: Option<Vec<String>>,
    /// The text, the one time that it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl TokenShape {
    fn of(record: TokenRecord, token: Option<String>) -> Self {
        Self { name: record.name, scopes: record.scopes, graphs: record.graphs, token }
    }
}

/// A token's name: what a principal can carry.
pub(super) struct TokenName(String);

impl TryFrom<String> for TokenName {
    type Error = &'static str;
    fn try_from(name: String) -> Result<Self, Self::Error> {
        let fits = (1..=64).contains(&name.len())
            && (is_admin_token(&name)
                || name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')));
        if fits { Ok(Self(name)) } else { Err("a token's name has 1 to 64 letters, digits, `-`, `_` and `.`") }
    }
}

/// The tokens that are not revoked.
#[utoipa::path(get, path = "/tokens", responses((status = 200, body = [TokenShape]), (status = 401, body = Problem), (status = 403, body = Problem)))]
pub(super) async fn list(State(state): State<AppState>, caller: Caller) -> Result<Json<Vec<TokenShape>>, Problem> {
    caller.require_unlimited_admin()?;
    let tokens = state.engine.store().tokens().await?;
    Ok(Json(tokens.into_iter().map(|record| TokenShape::of(record, None)).collect()))
}

/// Makes a token, or replaces the text and scopes of one: the old text stops
/// working.
#[utoipa::path(
    put, path = "/tokens/{name}", params(("name" = String, Path)), request_body = TokenBody,
    responses((status = 201, body = TokenShape), (status = 401, body = Problem), (status = 403, body = Problem), (status = 422, body = Problem))
)]
pub(super) async fn put(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(TokenName(name)): ApiPath<TokenName>,
    ApiJson(body): ApiJson<TokenBody>,
) -> Result<Response, Problem> {
    caller.require_unlimited_admin()?;
    not_of_a_folder(&name)?;
    if let Some(unknown) = body.graphs.iter().flatten().find(|graph| !state.engine.graphs().any(|g| g.name() == *graph))
    {
        return Err(Problem::invalid("unknown-graph", format!("there is no graph `{unknown}`")));
    }
    let token = format!("cs_{}", hex::encode([SystemIds.salt(), SystemIds.salt()].concat()));
    let record = TokenRecord {
        name,
        scopes: body.scopes.into_iter().map(|scope| scope.name().to_owned()).collect(),
        graphs: body.graphs,
    };
    state.engine.store().put_token(&record, &hash_token(&token), state.now()).await?;
    Ok((StatusCode::CREATED, Json(TokenShape::of(record, Some(token)))).into_response())
}

/// Revokes a token, at once.
#[utoipa::path(
    delete, path = "/tokens/{name}", params(("name" = String, Path)),
    responses((status = 204), (status = 401, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem))
)]
pub(super) async fn revoke(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(TokenName(name)): ApiPath<TokenName>,
) -> Result<StatusCode, Problem> {
    caller.require_unlimited_admin()?;
    if name == ADMIN_TOKEN {
        not_of_a_folder(&name)?;
    }
    if state.engine.store().revoke_token(&name, state.now()).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::new(StatusCode::NOT_FOUND, "unknown-token", "There is no such token", "it may be revoked already"))
}

/// The administrator's token is the file's: remove the file and start again
/// for a new one. Where several folders have theirs in one database, the one
/// of a folder that is gone can be revoked.
fn not_of_a_folder(name: &str) -> Result<(), Problem> {
    if is_admin_token(name) {
        return Err(Problem::invalid("reserved-name", format!("`{name}` is the token in the data folder")));
    }
    Ok(())
}
