//! `Idempotency-Key` (R26).

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
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
    /// The reply that the same request got before, if there was one. Looked up
    /// before anything is judged: what a request changed is no reason to refuse
    /// its repetition.
    pub(super) async fn earlier(
        &self,
        state: &AppState,
        caller: &Caller,
        route: &str,
        request: &Value,
    ) -> Result<Option<Response>, Problem> {
        let Some(key) = &self.0 else { return Ok(None) };
        let scope = scope(caller, route);
        let found = state.engine.store().repeated(&scope, key, &content_hash(request)).await?;
        Ok(found.map(|(status, body)| replayed(status, body)))
    }

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
            scope: scope(caller, route),
            key: key.clone(),
            request_hash: content_hash(request),
            status: status.as_u16(),
            body: body.to_string(),
        })
    }
}

/// The requests under a key that this process is doing and that are no single
/// command of the store, which would have them wait for each other.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight(Arc<Mutex<HashSet<String>>>);

/// A request that is being done, until this is dropped.
pub(super) struct Doing {
    all: InFlight,
    key: Option<String>,
}

impl InFlight {
    /// Begins a request.
    ///
    /// # Errors
    /// 409 if one under its key is being done.
    pub(super) fn begin(all: &Self, key: &Key, caller: &Caller, route: &str) -> Result<Doing, Problem> {
        let key = key.0.as_ref().map(|key| format!("{}\n{key}", scope(caller, route)));
        if let Some(key) = &key
            && !all.lock().insert(key.clone())
        {
            return Err(Problem::new(
                StatusCode::CONFLICT,
                "request-in-flight",
                "The request is being done",
                "an earlier one under this idempotency key is not done yet; send it again in a moment",
            ));
        }
        Ok(Doing { all: all.clone(), key })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.all.lock().remove(key);
        }
    }
}

fn scope(caller: &Caller, route: &str) -> String {
    format!("{} {route}", caller.principal)
}

/// A reply that was kept.
pub(super) fn replayed(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
