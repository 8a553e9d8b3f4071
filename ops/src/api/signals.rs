//! Events from outside, for threads that wait for them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use countersign_kernel::context::{SIGNAL_NAME_BYTES, is_signal_name};
use countersign_kernel::ids::ThreadId;
use countersign_worker::store::Accepted;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::auth::{Caller, Scope};
use super::extract::{AnyJson, ApiPaths};
use super::idempotency::{Key, replayed};
use super::interrupts::check_size;
use super::problem::Problem;
use super::threads::visible;
use crate::state::AppState;

/// A signal's name, as it stands in the path.
pub(super) struct SignalName(String);

impl TryFrom<String> for SignalName {
    type Error = String;
    fn try_from(name: String) -> Result<Self, Self::Error> {
        if is_signal_name(&name) {
            return Ok(Self(name));
        }
        Err(format!("a signal's name has 1 to {SIGNAL_NAME_BYTES} letters, digits, `-`, `_`, `.` and `:`"))
    }
}

/// A signal that was accepted.
#[derive(Serialize, ToSchema)]
pub(super) struct SignalReply {
    thread_id: String,
    signal: String,
    /// accepted: on record, and taken once.
    status: &'static str,
}

/// Sends a thread a signal; the body is what it carries, any JSON, `null` when
/// absent. The point that has waited longest for the name gets it; without one
/// it is kept for the first that will wait. With an `Idempotency-Key`, a
/// repetition is no second signal.
#[utoipa::path(
    post, path = "/threads/{id}/signals/{name}", operation_id = "send_signal",
    params(("id" = String, Path), ("name" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = Option<Object>,
    responses(
        (status = 202, body = SignalReply), (status = 401, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem), (status = 413, body = Problem),
        (status = 422, body = Problem)
    )
)]
pub(super) async fn send(
    State(state): State<AppState>,
    caller: Caller,
    key: Key,
    ApiPaths(id, SignalName(name)): ApiPaths<ThreadId, SignalName>,
    AnyJson(payload): AnyJson,
) -> Result<Response, Problem> {
    caller.require(Scope::ThreadsWrite)?;
    visible(&state, &caller, &id).await?;
    check_size(&state, &payload)?;
    let route = format!("POST /threads/{id}/signals/{name}");
    if let Some(earlier) = key.earlier(&state, &caller, &route, &payload).await? {
        return Ok(earlier);
    }
    let reply = SignalReply { thread_id: id.to_string(), signal: name.clone(), status: "accepted" };
    let entry = key.entry(&caller, &route, &payload, StatusCode::ACCEPTED, &json!(reply));
    match state.engine.signal(&id, &name, payload, &caller.principal, entry).await? {
        Accepted::Committed(_) => Ok((StatusCode::ACCEPTED, Json(reply)).into_response()),
        Accepted::Replayed { status, body } => Ok(replayed(status, body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_waited_for_is_refused() {
        assert!(SignalName::try_from("payment.confirmed:42".to_owned()).is_ok());
        for bad in ["", "two words", "a/b", "ü", &"x".repeat(SIGNAL_NAME_BYTES + 1)] {
            assert!(SignalName::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
