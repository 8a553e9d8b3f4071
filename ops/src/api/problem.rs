//! One mapping from errors to HTTP (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use countersign_kernel::fault::Fault;
use countersign_kernel::ids::FrameId;
use countersign_kernel::machine::EditRefused;
use countersign_kernel::policy;
use countersign_worker::engine::RequestError;
use countersign_worker::store::{Refusal, StoreError};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::shapes::rfc3339;

/// A refusal, as a problem document.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Problem {
    /// The kind: `urn:countersign:problem:<name>`.
    r#type: String,
    /// The kind, for people.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is wrong this time, and what to do.
    detail: String,
    /// Every fault in an input or an answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<ProblemError>,
    /// What else the kind carries.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    more: Box<Map<String, Value>>,
}

/// One fault, with where it is.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct ProblemError {
    /// A JSON pointer (RFC 6901); empty for the whole.
    pointer: String,
    /// What is wrong.
    message: String,
}

impl Problem {
    /// A problem of a kind.
    pub fn new(status: StatusCode, name: &str, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            r#type: format!("urn:countersign:problem:{name}"),
            title,
            status: status.as_u16(),
            detail: detail.into(),
            errors: Vec::new(),
            more: Box::default(),
        }
    }

    /// With the faults of an input or an answer.
    #[must_use]
    pub fn errors(mut self, faults: Vec<Fault>) -> Self {
        self.errors =
            faults.into_iter().map(|fault| ProblemError { pointer: fault.pointer, message: fault.message }).collect();
        self
    }

    /// With one more member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    /// Values for the state that do not fit it, every fault.
    pub(super) fn invalid_values(faults: Vec<Fault>) -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid-values",
            "The values do not fit the state",
            "nothing was changed; mend what `errors` lists and send it again",
        )
        .errors(faults)
    }

    /// A sub-graph that the thread does not have.
    pub(super) fn unknown_frame(frame: &FrameId) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "unknown-frame",
            "There is no such sub-graph",
            "the thread shows its unfinished sub-graphs as `frames`",
        )
        .with("frame", frame.as_str())
    }

    /// Why an edit or an amendment was not done: what does not fit are values,
    /// no input.
    pub(super) fn of_change(error: RequestError) -> Self {
        match error {
            RequestError::InvalidInput(faults) => Self::invalid_values(faults),
            other => other.into(),
        }
    }

    /// Whether it is a fault here, not the caller's.
    pub(super) fn is_fault(&self) -> bool {
        self.status >= 500
    }

    /// Something in the caller's request that is well-formed but not right.
    pub fn invalid(name: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, name, "The request is not valid", detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"countersign\""));
        }
        response
    }
}

pub(super) async fn no_route() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "no-such-route",
        "There is nothing here",
        "the API is described at /api/v1/openapi.json",
    )
}

pub(super) async fn no_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "no-such-method",
        "The method is not allowed here",
        "the API is described at /api/v1/openapi.json",
    )
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::UnknownGraph { ref graph, ref known } => {
                let (graph, known) = (graph.clone(), known.clone());
                Self::new(StatusCode::NOT_FOUND, "unknown-graph", "There is no such graph", error.to_string())
                    .with("graph", graph)
                    .with("known", known)
            }
            RequestError::InvalidInput(faults) => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "invalid-input",
                "The input does not fit the graph",
                "nothing was started; mend what `errors` lists and send it again",
            )
            .errors(faults),
            RequestError::Edit(refused) => edit_problem(refused),
            RequestError::Misfit(misfit) => Self::new(
                StatusCode::CONFLICT,
                "graph-mismatch",
                "The thread does not fit this build",
                format!("{misfit}; run the build that it comes from, or one whose migrations take it up"),
            ),
            RequestError::Store(error) => error.into(),
        }
    }
}

/// An edit, an amendment or a replay that cannot be done (R5, R13).
fn edit_problem(refused: EditRefused) -> Problem {
    let detail = refused.to_string();
    match refused {
        EditRefused::UnknownNode { node, known } => {
            Problem::invalid("unknown-node", detail).with("node", node).with("known", known)
        }
        EditRefused::Ambiguous(nodes) => Problem::invalid("ambiguous-node", detail).with("nodes", nodes),
        EditRefused::Invalid(faults) => Problem::invalid_values(faults),
        EditRefused::NothingPending => {
            Problem::new(StatusCode::CONFLICT, "nothing-pending", "Nothing is pending", detail)
        }
        EditRefused::UnknownFrame(frame) => Problem::unknown_frame(&frame),
    }
}

/// How many steps would be done again, and how to say that they may be.
fn again(steps: usize) -> String {
    let (which, them) = match steps {
        1 => ("one step that was done".to_owned(), "it"),
        steps => (format!("{steps} steps that were done"), "them"),
    };
    format!("{which} would be done again; say `re_execute: true` to do {them} again; nothing was changed")
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(refusal) => refusal.into(),
            StoreError::Fenced => Self::new(
                StatusCode::CONFLICT,
                "thread-busy",
                "The thread is being run",
                "another worker holds the thread; try again",
            ),
            StoreError::Unreadable { .. } | StoreError::Database(_) => {
                // The details are for the log, not for the caller.
                tracing::error!(%error, "the store failed under a request");
                Self::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "store-unavailable",
                    "The store does not answer",
                    "nothing was accepted; try again",
                )
            }
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        let conflict = |name, title| Self::new(StatusCode::CONFLICT, name, title, detail.clone());
        match refusal {
            Refusal::ReExecutes(steps) => Self::new(
                StatusCode::CONFLICT,
                "re-executes",
                "Steps that were done would be done again",
                again(steps.len()),
            )
            .with("steps", steps.iter().map(|s| json!({"address": s.address, "name": s.name})).collect::<Vec<_>>()),
            Refusal::UnknownThread(thread) => {
                Self::new(StatusCode::NOT_FOUND, "unknown-thread", "There is no such thread", detail)
                    .with("thread_id", thread.as_str())
            }
            Refusal::UnknownInterrupt(id) => {
                Self::new(StatusCode::NOT_FOUND, "unknown-interrupt", "There is no such interrupt", detail)
                    .with("interrupt_id", id.as_str())
            }
            Refusal::ThreadExists { thread, same_input } => conflict("thread-exists", "The thread exists already")
                .with("thread_id", thread.as_str())
                .with("same_input", same_input),
            Refusal::AlreadyAnswered { interrupt, answered } => {
                conflict("already-answered", "The request is decided already")
                    .with("interrupt_id", interrupt.as_str())
                    .with("by", json!(answered.by))
                    .with("at", rfc3339(answered.at))
                    .with("answer", answered.value.unwrap_or(Value::Null))
            }
            Refusal::AlreadyVoted { interrupt, principal } => {
                conflict("already-voted", "This person has voted already")
                    .with("interrupt_id", interrupt.as_str())
                    .with("principal", principal.as_str())
            }
            Refusal::Superseded { interrupt, status } => conflict("superseded", "The request no longer waits")
                .with("interrupt_id", interrupt.as_str())
                .with("became", status),
            Refusal::RequestChanged { interrupt, revision } => conflict("request-changed", "The request has changed")
                .with("interrupt_id", interrupt.as_str())
                .with("revision", revision),
            Refusal::NotAllowed { principal, refusal } => {
                let name = match refusal {
                    policy::Refusal::NotAnApprover => "not-an-approver",
                    policy::Refusal::Excluded => "excluded",
                };
                Self::new(StatusCode::FORBIDDEN, name, "Not allowed to decide this", detail)
                    .with("principal", principal.as_str())
            }
            Refusal::OperatorOnly { interrupt } => {
                Self::new(StatusCode::FORBIDDEN, "operator-only", "Only an operator may answer this", detail)
                    .with("interrupt_id", interrupt.as_str())
            }
            Refusal::InvalidAnswer { interrupt, faults } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "invalid-answer",
                "The answer does not fit the question",
                "nothing was recorded; mend what `errors` lists and send it again",
            )
            .errors(faults)
            .with("interrupt_id", interrupt.as_str()),
            Refusal::UnknownCheckpoint(checkpoint) => {
                Self::new(StatusCode::NOT_FOUND, "unknown-checkpoint", "There is no such checkpoint", detail)
                    .with("checkpoint_id", checkpoint.as_str())
            }
            Refusal::Compacted(checkpoint) => {
                Self::new(StatusCode::GONE, "compacted", "The checkpoint was compacted", detail)
                    .with("checkpoint_id", checkpoint.as_str())
            }
            Refusal::CarriesUpdate { interrupt, thread } => Self::invalid("carries-update", detail)
                .with("interrupt_id", interrupt.as_str())
                .with("thread_id", thread.as_str()),
            Refusal::NotAnswerable { interrupt } => {
                conflict("not-answerable", "This point takes no answer without data")
                    .with("interrupt_id", interrupt.as_str())
            }
            Refusal::ThreadInterrupted => conflict("thread-interrupted", "The thread is waiting"),
            Refusal::ThreadBusy => conflict("thread-busy", "The thread is being run"),
            Refusal::ThreadChanged => conflict("thread-changed", "The thread has changed"),
            Refusal::ThreadEnded(_) => conflict("thread-ended", "The thread has ended"),
            Refusal::NothingToContinue => conflict("nothing-to-continue", "Nothing to continue"),
            Refusal::NothingToRetry => conflict("nothing-to-retry", "Nothing to retry"),
            Refusal::NothingPending => conflict("nothing-pending", "Nothing is pending"),
            Refusal::SignalsFull { most } => conflict("signals-full", "Too many signals are kept").with("most", most),
            Refusal::KeyReused => Self::invalid("idempotency-key-reused", detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_and_several_are_counted_in_words() {
        assert!(again(1).starts_with("one step that was done would be done again; say `re_execute: true` to do it"));
        assert!(again(2).starts_with("2 steps that were done would be done again; say `re_execute: true` to do them"));
    }
}
