//! `Idempotency-Key` (R26).

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use countersign_kernel::canonical::content_hash;
use countersign_worker::store::commands::IdempotencyEntry;
use serde_json::Value;

use super::auth::Caller;
use super::problem::Problem;
use crate::state::AppState;

/// The caller's key, if they sent one.
pub(super) struct Key(Option<String>);

impl FromRequestParts<AppState> for Key {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Problem> {
        let Some(header) = parts.headers.get("idempotency-key") else { return Ok(Self(None)) };
        let key = header.to_str().ok().map(str::trim).filter(|key| (1..=255).contains(&key.len()));
        match key {
            Some(key) => Ok(Self(Some(key.to_owned()))),
            None => Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "invalid-idempotency-key",
                "The idempotency key is not valid",
                "use 1 to 255 visible ASCII characters",
            )),
        }
    }
}

impl Key {
    /// What to keep with the work, so that a repetition gets the same reply.
    pub(super) fn entry(
        &self,
        caller: &Caller,
        route: &str,
        request: &Value,
        status: StatusCode,
        body: &Value,
    ) -> Option<IdempotencyEntry> {
        self.0.as_ref().map(|key| IdempotencyEntry {
            scope: format!("{} {route}", caller.principal),
            key: key.clone(),
            request_hash: content_hash(request),
            status: status.as_u16(),
            body: body.to_string(),
        })
    }
}
