//! Many answers at once, over many threads.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use countersign_kernel::ids::InterruptId;
use countersign_kernel::principal::Principal;
use countersign_worker::engine::{BatchOutcome, Together, VoteRequest};
use countersign_worker::store::commands::Via;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::auth::{Caller, Scope};
use super::extract::BatchJson;
use super::idempotency::{InFlight, Key};
use super::interrupts::{check_size, explained, voter};
use super::problem::Problem;
use crate::state::AppState;

/// Most answers in one request.
pub(crate) const ANSWERS_MAX: usize = 10_000;

const ROUTE: &str = "POST /resume";

/// Answers to points of many threads.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchBody {
    /// Answers by interrupt id, at most 10,000; each in the shape that its
    /// interrupt's kind wants.
    #[schema(value_type = Object)]
    answers: BTreeMap<String, Value>,
    /// What stands or falls together: `all` (the default), the answers of one
    /// `thread`, or `each` by itself. With `all` every answer is judged first,
    /// and if one is refused, none is recorded. Recording then goes thread by
    /// thread: what has changed in between is refused, told in its outcome, and
    /// the others stand.
    #[serde(default)]
    validate: Validate,
    /// The person who decides, when the token's scope allows to name one.
    #[schema(value_type = Option<String>)]
    on_behalf_of: Option<Principal>,
}

/// What stands or falls together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Validate {
    /// All answers.
    #[default]
    All,
    /// The answers of one thread.
    Thread,
    /// Nothing.
    Each,
}

/// What became of the answers.
#[derive(Serialize, ToSchema)]
pub(super) struct BatchReply {
    /// Answers that decide their question, now or before.
    decided: usize,
    /// Answers that are on record, and whose question waits for more votes.
    waiting: usize,
    /// Of both, those that were on record before.
    repeated: usize,
    /// Answers that were refused.
    refused: usize,
    /// Answers that were not recorded because another was refused.
    left_out: usize,
    /// Threads with an answer that is on record.
    threads: usize,
    /// The same, one by one.
    #[schema(value_type = Object)]
    outcomes: BTreeMap<String, Outcome>,
}

/// What became of one answer.
#[derive(Serialize, ToSchema)]
struct Outcome {
    /// decided, waiting, refused or left_out.
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    /// Whether the same answer was on record before.
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<bool>,
    /// Equal votes so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    have: Option<u32>,
    /// Votes needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    need: Option<u32>,
    /// Why it was refused, as the answer alone would have been.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
}

impl BatchReply {
    /// Whether something failed that is not the caller's to correct.
    fn has_faults(&self) -> bool {
        self.outcomes.values().filter_map(|outcome| outcome.problem.as_ref()).any(Problem::is_fault)
    }
}

impl Outcome {
    fn bare(status: &'static str) -> Self {
        Self { status, thread_id: None, repeated: None, have: None, need: None, problem: None }
    }

    fn refused(problem: Problem) -> Self {
        Self { problem: Some(problem), ..Self::bare("refused") }
    }
}

/// Answers many interrupts over many threads, each judged as it would be alone
/// (`POST /interrupts/{id}/answer`); each thread is woken once. 202: something
/// was recorded; 200: nothing new was. The same request again changes nothing.
/// The body may have `limits.batch_body_bytes`.
#[utoipa::path(
    post, path = "/resume", operation_id = "answer_many", request_body = BatchBody,
    params(("Idempotency-Key" = Option<String>, Header)),
    responses(
        (status = 202, body = BatchReply), (status = 200, body = BatchReply, description = "nothing new"),
        (status = 400, body = Problem), (status = 401, body = Problem), (status = 403, body = Problem),
        (status = 409, body = Problem), (status = 413, body = Problem),
        (status = 422, body = Problem, description = "with `validate: all`, one is refused and nothing was recorded")
    )
)]
pub(super) async fn answer_many(
    State(state): State<AppState>,
    caller: Caller,
    key: Key,
    BatchJson(body): BatchJson<BatchBody>,
) -> Result<Response, Problem> {
    caller.require(Scope::Answer)?;
    let principal = voter(&caller, body.on_behalf_of.clone())?;
    if body.answers.is_empty() || body.answers.len() > ANSWERS_MAX {
        let detail = format!("give 1 to {ANSWERS_MAX} answers, not {}", body.answers.len());
        return Err(Problem::invalid("number-of-answers", detail));
    }
    let request = serde_json::to_value(&body).unwrap_or_default();
    let _one_at_a_time = InFlight::begin(&state.in_flight, &key, &caller, ROUTE)?;
    if let Some(reply) = key.earlier(&state, &caller, ROUTE, &request).await? {
        return Ok(reply);
    }
    let reply = answer(&state, &caller, principal, body).await?;
    let status = if reply.decided + reply.waiting > reply.repeated { StatusCode::ACCEPTED } else { StatusCode::OK };
    let shown = serde_json::to_value(&reply).unwrap_or_default();
    // What a fault here kept from being recorded may be recorded the next time.
    if let Some(entry) = key.entry(&caller, ROUTE, &request, status, &shown).filter(|_| !reply.has_faults()) {
        state.engine.remember(entry).await?;
    }
    Ok((status, Json(shown)).into_response())
}

async fn answer(
    state: &AppState,
    caller: &Caller,
    principal: Principal,
    body: BatchBody,
) -> Result<BatchReply, Problem> {
    let mut outcomes = BTreeMap::new();
    let mut votes = Vec::with_capacity(body.answers.len());
    for (text, answer) in body.answers {
        let refused = match InterruptId::parse(text.clone()) {
            Err(error) => {
                Some(Problem::new(StatusCode::NOT_FOUND, "unknown-id", "There is no such thing", error.to_string()))
            }
            Ok(interrupt) => {
                let size = check_size(state, &answer).err();
                let (principal, via) = (principal.clone(), Via { channel: "api", identified: "token" });
                let operator = caller.may(Scope::Operate);
                let vote =
                    VoteRequest { interrupt, principal, operator, answer, revision: None, content_hash: None, via };
                votes.push(vote);
                size
            }
        };
        if let Some(problem) = refused {
            outcomes.insert(text, Outcome::refused(problem));
        }
    }
    let together = match body.validate {
        Validate::All => Together::All,
        Validate::Thread => Together::Thread,
        Validate::Each => Together::Each,
    };
    let sees = |graph: &str| caller.sees(graph);
    let all = together == Together::All;
    let became = if all && !outcomes.is_empty() {
        state.engine.judge_many(&votes, &sees).await?
    } else {
        votes.retain(|vote| !outcomes.contains_key(vote.interrupt.as_str()));
        state.engine.vote_many(votes, together, &sees).await?
    };
    let mut threads = BTreeSet::new();
    for (id, became) in became {
        let outcome = match became {
            BatchOutcome::Voted(voted) => {
                threads.insert(voted.thread.clone());
                Outcome {
                    thread_id: Some(voted.thread.into()),
                    repeated: Some(voted.repeated),
                    have: Some(voted.have),
                    need: Some(voted.need),
                    ..Outcome::bare(if voted.decided { "decided" } else { "waiting" })
                }
            }
            BatchOutcome::Refused(error) => Outcome::refused(explained(state, error).await),
            BatchOutcome::LeftOut => Outcome::bare("left_out"),
        };
        // What is wrong with an answer by itself was said.
        outcomes.entry(id.into()).or_insert(outcome);
    }
    let count = |status| outcomes.values().filter(|outcome| outcome.status == status).count();
    let reply = BatchReply {
        decided: count("decided"),
        waiting: count("waiting"),
        repeated: outcomes.values().filter(|outcome| outcome.repeated == Some(true)).count(),
        refused: count("refused"),
        left_out: count("left_out"),
        threads: threads.len(),
        outcomes,
    };
    if all && reply.left_out + reply.refused == reply.outcomes.len() && reply.refused > 0 {
        return Err(nothing_recorded(reply));
    }
    Ok(reply)
}

fn nothing_recorded(reply: BatchReply) -> Problem {
    let (refused, all) = (reply.refused, reply.outcomes.len());
    let refused_ones = reply.outcomes.into_iter().filter_map(|(id, outcome)| Some((id, json!(outcome.problem?))));
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "batch-refused",
        "Not every answer can be taken",
        format!(
            "{refused} of {all} answers are refused, and nothing was recorded; correct or leave out what `refused` \
             lists, or send it with `validate` set to `thread` or `each`"
        ),
    )
    .with("refused", Value::Object(refused_ones.collect()))
}
