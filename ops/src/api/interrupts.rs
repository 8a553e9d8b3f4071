//! What waits for people, and their answers.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use countersign_kernel::ids::InterruptId;
use countersign_kernel::principal::Principal;
use countersign_worker::engine::{RequestError, VoteRequest};
use countersign_worker::store::commands::Via;
use countersign_worker::store::views::{InterruptFilter, InterruptView};
use countersign_worker::store::{Refusal, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::auth::{Caller, Scope};
use super::cursor;
use super::extract::{ApiJson, ApiPath, ApiQuery};
use super::problem::Problem;
use super::shapes::{Delivery, Interrupt, Page, rfc3339};
use crate::state::AppState;
use crate::succession::successor;

/// What an interrupt can be.
pub(crate) const STATUSES: [&str; 5] = ["open", "answered", "released", "superseded", "withdrawn"];

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// open, answered, released, superseded or withdrawn; all when absent.
    status: Option<String>,
    /// Only of this flow.
    graph: Option<String>,
    /// Only those that this `person:…`, `role:…` or `service:…` is asked.
    approver: Option<String>,
    /// At most 500; 50 when absent.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Interrupts, oldest first.
#[utoipa::path(
    get, path = "/interrupts", operation_id = "list_interrupts", params(ListQuery),
    responses((status = 200, body = Page<Interrupt>), (status = 400, body = Problem), (status = 401, body = Problem))
)]
pub(super) async fn list(
    State(state): State<AppState>,
    caller: Caller,
    ApiQuery(query): ApiQuery<ListQuery>,
) -> Result<Json<Page<Interrupt>>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    known_status(query.status.as_deref(), &STATUSES)?;
    let limit = cursor::limit(query.limit)?;
    let after = cursor::decode(&state, "interrupts", query.cursor.as_deref())?;
    let approvers = query.approver.map(|approver| approvers(&state, approver)).transpose()?;
    let filter = InterruptFilter {
        status: query.status,
        graph: caller.narrow(query.graph)?,
        approvers: approvers.flatten(),
        thread: None,
    };
    let found = state.engine.store().interrupts(&filter, after.as_ref(), limit).await?;
    let next_cursor = (found.len() == limit as usize)
        .then(|| found.last().map(|last| cursor::encode(&state, "interrupts", last.asked_at, last.id.as_str())))
        .flatten();
    Ok(Json(Page { items: found.into_iter().map(Into::into).collect(), next_cursor }))
}

/// A person means themselves and the roles they hold now; who holds every role
/// is asked everything.
fn approvers(state: &AppState, text: String) -> Result<Option<Vec<String>>, Problem> {
    let approver = countersign_kernel::principal::Approver::try_from(text).map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid-query", "The query is not valid", error.to_string())
    })?;
    let countersign_kernel::principal::Approver::Principal(principal) = &approver else {
        return Ok(Some(vec![approver.to_string()]));
    };
    let roles = state.engine.directory().roles(principal);
    if roles.iter().any(|role| role == countersign_kernel::policy::EVERY_ROLE) {
        return Ok(None);
    }
    Ok(Some(std::iter::once(principal.to_string()).chain(roles.iter().map(|role| format!("role:{role}"))).collect()))
}

pub(super) fn known_status(status: Option<&str>, known: &[&str]) -> Result<(), Problem> {
    match status {
        Some(status) if !known.contains(&status) => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid-query",
            "The query is not valid",
            format!("`status` must be one of {}", known.join(", ")),
        )),
        _ => Ok(()),
    }
}

async fn visible(state: &AppState, caller: &Caller, id: &InterruptId) -> Result<InterruptView, Problem> {
    let view = state.engine.store().interrupt(id).await?;
    if caller.sees(&view.graph) { Ok(view) } else { Err(Refusal::UnknownInterrupt(id.clone()).into()) }
}

/// The problem, with what is to be known of a point that no longer waits: what
/// dropped it, when, and what asks in its place.
pub(super) async fn explained(state: &AppState, error: RequestError) -> Problem {
    let superseded = match &error {
        RequestError::Store(StoreError::Refused(Refusal::Superseded { interrupt, .. })) => Some(interrupt.clone()),
        _ => None,
    };
    let problem = Problem::of_change(error);
    let Some(interrupt) = superseded else { return problem };
    let store = state.engine.store();
    let Ok(view) = store.interrupt(&interrupt).await else { return problem };
    let replaced_by = successor(store.as_ref(), &view).await.ok().flatten().map(|view| view.id.to_string());
    problem.with("at", view.closed_at.map(rfc3339)).with("closed_by", view.closed_by).with("replaced_by", replaced_by)
}

/// One interrupt, in whatever state.
#[utoipa::path(
    get, path = "/interrupts/{id}", operation_id = "show_interrupt", params(("id" = String, Path)),
    responses((status = 200, body = Interrupt), (status = 401, body = Problem), (status = 404, body = Problem))
)]
pub(super) async fn show(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(id): ApiPath<InterruptId>,
) -> Result<Json<Interrupt>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    let view = visible(&state, &caller, &id).await?;
    let successor = successor(state.engine.store().as_ref(), &view).await?;
    Ok(Json(Interrupt::from(view).replaced_by(successor.map(|view| view.id))))
}

/// The messages about an interrupt.
#[utoipa::path(
    get, path = "/interrupts/{id}/deliveries", params(("id" = String, Path)),
    responses((status = 200, body = [Delivery]), (status = 401, body = Problem), (status = 404, body = Problem))
)]
pub(super) async fn deliveries(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(id): ApiPath<InterruptId>,
) -> Result<Json<Vec<Delivery>>, Problem> {
    caller.require(Scope::ThreadsRead)?;
    visible(&state, &caller, &id).await?;
    let found = state.engine.store().deliveries(Some(&id), None, cursor::LIMIT_MAX).await?;
    Ok(Json(found.into_iter().map(Into::into).collect()))
}

/// An answer.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerBody {
    /// In the shape that the interrupt's kind wants: `{"approved": true}`,
    /// `{"value": "…"}`, `{"values": […]}`, `{"action": "…"}`, `{}`, a form.
    #[schema(value_type = Object)]
    answer: Value,
    /// The person who decides, when the token's scope allows to name one.
    #[schema(value_type = Option<String>)]
    on_behalf_of: Option<Principal>,
    /// The revision that was looked at; refused if the request has changed.
    revision: Option<u32>,
}

/// What an answer led to.
#[derive(Serialize, ToSchema)]
pub(super) struct AnswerReply {
    interrupt_id: String,
    thread_id: String,
    /// decided, or waiting for more votes.
    status: &'static str,
    /// Equal votes so far.
    have: u32,
    /// Votes needed.
    need: u32,
}

/// Answers an interrupt. 202 is committed and counts once; the same answer
/// again is 200.
#[utoipa::path(
    post, path = "/interrupts/{id}/answer", params(("id" = String, Path)), request_body = AnswerBody,
    responses(
        (status = 202, body = AnswerReply), (status = 200, body = AnswerReply, description = "on record already"),
        (status = 401, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem), (status = 413, body = Problem), (status = 422, body = Problem)
    )
)]
pub(super) async fn answer(
    State(state): State<AppState>,
    caller: Caller,
    ApiPath(id): ApiPath<InterruptId>,
    ApiJson(body): ApiJson<AnswerBody>,
) -> Result<Response, Problem> {
    caller.require(Scope::Answer)?;
    visible(&state, &caller, &id).await?;
    check_size(&state, &body.answer)?;
    let principal = voter(&caller, body.on_behalf_of)?;
    let vote = VoteRequest {
        interrupt: id.clone(),
        principal,
        operator: caller.may(Scope::Operate),
        answer: body.answer,
        revision: body.revision,
        content_hash: None,
        via: Via { channel: "api", identified: "token" },
    };
    let voted = match state.engine.vote(vote).await {
        Ok(voted) => voted,
        Err(error) => return Err(explained(&state, error).await),
    };
    let status = if voted.repeated { StatusCode::OK } else { StatusCode::ACCEPTED };
    let reply = AnswerReply {
        interrupt_id: id.into(),
        thread_id: voted.thread.into(),
        status: if voted.decided { "decided" } else { "waiting" },
        have: voted.have,
        need: voted.need,
    };
    Ok((status, Json(reply)).into_response())
}

/// Who answers: the caller, or the person whom they name and may name (R18).
pub(super) fn voter(caller: &Caller, on_behalf_of: Option<Principal>) -> Result<Principal, Problem> {
    let Some(person) = on_behalf_of else { return Ok(caller.principal.clone()) };
    caller.require(Scope::AnswerOnBehalf)?;
    if !person.is_person() {
        return Err(Problem::invalid("not-a-person", format!("`{person}` answers with a token of its own")));
    }
    Ok(person)
}

/// Refuses an answer above the configured size.
pub(super) fn check_size(state: &AppState, answer: &Value) -> Result<(), Problem> {
    let limit = state.config.limits.answer_bytes;
    if answer.to_string().len() as u64 <= limit {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "answer-too-large",
        "The answer is too large",
        format!("at most {limit} bytes are taken (`limits.answer_bytes`)"),
    ))
}
