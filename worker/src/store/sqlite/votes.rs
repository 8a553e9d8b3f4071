//! Answers are rows: one transaction records a vote, judges it, and, if it
//! decides, the answer and the job that wakes the point.

use countersign_kernel::canonical::canonical_text;
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::machine::Resume;
use countersign_kernel::policy::{Verdict, Vote};
use countersign_kernel::principal::Principal;
use countersign_kernel::question::{Answered, Request};
use serde_json::{Value, json};
use sqlx::{Row, SqliteConnection};

use super::super::codec::{PLAIN, decode, encode, parse};
use super::super::commands::{IdempotencyEntry, RecordVote, ResumeThread, Voted};
use super::super::events::What;
use super::super::{Accepted, Refusal, StoreError};
use super::events::Log;
use super::{audit, heads, points, threads};
use crate::queue::{self, Message};

/// The interrupt that a vote is about.
struct Asked {
    thread: ThreadId,
    status: String,
    kind: String,
    payload: Value,
    revision: u32,
    content_hash: Option<String>,
    answered: Option<Answered>,
}

pub(super) async fn record(conn: &mut SqliteConnection, vote: RecordVote, mut log: Log) -> Result<Voted, StoreError> {
    let voted = cast(conn, &vote, &mut log).await?;
    if !voted.decided || voted.repeated {
        return Ok(voted);
    }
    let message = Message::advance(vote.job, voted.thread.clone());
    wake(conn, &message, vote.now, log).await?;
    Ok(Voted { wake: Some(message), ..voted })
}

/// Puts a resting thread back in line and enqueues the message.
async fn wake(
    conn: &mut SqliteConnection,
    message: &Message,
    now: countersign_kernel::time::Timestamp,
    mut log: Log,
) -> Result<(), StoreError> {
    log.add(What::status("queued"));
    let woken: Option<i64> = sqlx::query_scalar(
        "UPDATE threads SET status = 'queued', updated_at = ?2, next_event = next_event + ?3
         WHERE thread = ?1 AND status IN ('parked', 'failed', 'succeeded') RETURNING next_event",
    )
    .bind(message.thread.as_str())
    .bind(now.as_micros())
    .bind(log.len())
    .fetch_optional(&mut *conn)
    .await?;
    match woken {
        Some(last) => log.insert(conn, &message.thread, last).await?,
        None => {
            // It runs, and takes this up before it rests.
            log.take_back();
            log.append(conn, &message.thread).await?;
        }
    }
    points::count_open(conn, &message.thread).await?;
    queue::push(conn, std::slice::from_ref(message), now).await?;
    Ok(())
}

async fn cast(conn: &mut SqliteConnection, vote: &RecordVote, log: &mut Log) -> Result<Voted, StoreError> {
    let id = &vote.interrupt;
    let asked = find(conn, id).await?;
    let request = Request::from_payload(&asked.payload).ok().filter(|_| asked.content_hash.is_some());
    // Authority first: who may not decide learns nothing about what others did.
    match &request {
        Some(request) => request
            .policy
            .admit(&vote.voter)
            .map_err(|refusal| Refusal::NotAllowed { principal: vote.voter.principal.clone(), refusal })?,
        None if vote.operator => {}
        None => return Err(Refusal::OperatorOnly { interrupt: id.clone() }.into()),
    }
    let value = match &request {
        Some(request) => request
            .question
            .validate(&vote.answer)
            .map_err(|faults| Refusal::InvalidAnswer { interrupt: id.clone(), faults })?,
        None => vote.answer.clone(),
    };
    if vote.replace && asked.answered.is_some() {
        return replace(conn, &asked, vote, value).await;
    }
    if let Some(repeated) = repeated(conn, &asked, vote, &value, request.as_ref()).await? {
        return Ok(repeated);
    }
    match asked.kind.as_str() {
        // The resume of the thread that amends takes the data out first.
        "break" | "pause" if !value.is_null() => {
            return Err(Refusal::CarriesUpdate { interrupt: id.clone(), thread: asked.thread }.into());
        }
        "container" if value.is_null() => return Err(Refusal::NotAnswerable { interrupt: id.clone() }.into()),
        _ => {}
    }
    let stale = vote.revision.is_some_and(|seen| seen != asked.revision)
        || vote.content_hash.as_ref().is_some_and(|seen| Some(seen) != asked.content_hash.as_ref());
    if stale {
        return Err(Refusal::RequestChanged { interrupt: id.clone(), revision: asked.revision }.into());
    }
    insert_vote(conn, &asked, vote, &value).await?;
    let verdict = judge(conn, &asked, vote, &value, request.as_ref()).await?;
    conclude(conn, &asked, vote, verdict, request.map_or(1, |request| request.policy.need), log).await
}

/// Puts another answer in the place of one that a failed task was given (R9).
/// The votes stay as they were cast; the audit trail has both answers.
async fn replace(
    conn: &mut SqliteConnection,
    asked: &Asked,
    vote: &RecordVote,
    value: Value,
) -> Result<Voted, StoreError> {
    let (thread, id) = (&asked.thread, &vote.interrupt);
    let by = vec![vote.voter.principal.clone()];
    let detail = json!({"interrupt": id.as_str(), "replaced": asked.answered, "answer": value});
    let answered = Answered { value: (!value.is_null()).then_some(value), by, at: vote.now };
    sqlx::query(
        "UPDATE answers SET answered = ?3, accepted_at = ?4, consumed_by = NULL,
                position = (SELECT next_answer FROM threads WHERE thread = ?1)
         WHERE thread = ?1 AND interrupt = ?2",
    )
    .bind(thread.as_str())
    .bind(id.as_str())
    .bind(encode("answer", &answered)?)
    .bind(vote.now.as_micros())
    .execute(&mut *conn)
    .await?;
    sqlx::query("UPDATE threads SET next_answer = next_answer + 1 WHERE thread = ?1")
        .bind(thread.as_str())
        .execute(&mut *conn)
        .await?;
    audit::append(conn, thread, "answer_replaced", &vote.voter.principal, &detail, vote.now).await?;
    Ok(Voted { thread: thread.clone(), decided: true, have: 1, need: 1, repeated: false, wake: None })
}

/// What a vote leads to, beside those of others.
async fn judge(
    conn: &mut SqliteConnection,
    asked: &Asked,
    vote: &RecordVote,
    value: &Value,
    request: Option<&Request>,
) -> Result<Verdict, StoreError> {
    let own = Vote { principal: vote.voter.principal.clone(), value: value.clone() };
    let Some(request) = request else {
        return Ok(Verdict::Decided { answer: own.value, by: vec![own.principal] });
    };
    let others: Vec<Vote> = points::votes(conn, &asked.thread, &vote.interrupt)
        .await?
        .into_iter()
        .filter(|(principal, _, _)| *principal != own.principal)
        .map(|(principal, value, _)| Vote { principal, value })
        .collect();
    Ok(request.policy.judge(&others, &own))
}

fn count(by: &[Principal]) -> u32 {
    u32::try_from(by.len()).unwrap_or(u32::MAX)
}

async fn find(conn: &mut SqliteConnection, id: &InterruptId) -> Result<Asked, StoreError> {
    let row = sqlx::query(
        "SELECT i.thread, i.status, i.kind, i.payload, coalesce(r.revision, 1), r.content_hash, a.answered
         FROM interrupts i
         LEFT JOIN requests r ON r.thread = i.thread AND r.interrupt = i.id
         LEFT JOIN answers a ON a.thread = i.thread AND a.interrupt = i.id
         WHERE i.id = ?1",
    )
    .bind(id.as_str())
    .fetch_optional(conn)
    .await?
    .ok_or_else(|| Refusal::UnknownInterrupt(id.clone()))?;
    let answered: Option<Vec<u8>> = row.try_get(6)?;
    Ok(Asked {
        thread: parse("thread id", row.try_get(0)?)?,
        status: row.try_get(1)?,
        kind: row.try_get(2)?,
        payload: decode("payload", id.as_str(), row.try_get(3)?)?,
        revision: u32::try_from(row.try_get::<i64, _>(4)?).unwrap_or(u32::MAX),
        content_hash: row.try_get(5)?,
        answered: answered.map(|bytes| decode("answer", id.as_str(), &bytes)).transpose()?,
    })
}

/// The same answer of the same person changes nothing (promise 2); anything
/// else on a closed point or by somebody who voted is refused.
async fn repeated(
    conn: &mut SqliteConnection,
    asked: &Asked,
    vote: &RecordVote,
    value: &Value,
    request: Option<&Request>,
) -> Result<Option<Voted>, StoreError> {
    let id = &vote.interrupt;
    let own: Option<Vec<u8>> =
        sqlx::query_scalar("SELECT value FROM votes WHERE thread = ?1 AND interrupt = ?2 AND principal = ?3")
            .bind(asked.thread.as_str())
            .bind(id.as_str())
            .bind(vote.voter.principal.as_str())
            .fetch_optional(&mut *conn)
            .await?;
    let own: Option<Value> = own.map(|bytes| decode("vote", id.as_str(), &bytes)).transpose()?;
    let same = own.as_ref().is_some_and(|own| canonical_text(own) == canonical_text(value));
    if same {
        let have = match judge(conn, asked, vote, value, request).await? {
            Verdict::Waiting { have, .. } => have,
            Verdict::Decided { by, .. } => count(&by),
        };
        return Ok(Some(Voted {
            thread: asked.thread.clone(),
            decided: asked.answered.is_some(),
            have,
            need: request.map_or(1, |request| request.policy.need),
            repeated: true,
            wake: None,
        }));
    }
    if let Some(answered) = &asked.answered {
        let answered = Box::new(answered.clone());
        return Err(Refusal::AlreadyAnswered { interrupt: id.clone(), answered }.into());
    }
    if asked.status != "open" {
        return Err(Refusal::Superseded { interrupt: id.clone(), status: asked.status.clone() }.into());
    }
    if own.is_some() {
        let principal = vote.voter.principal.clone();
        return Err(Refusal::AlreadyVoted { interrupt: id.clone(), principal }.into());
    }
    Ok(None)
}

async fn insert_vote(
    conn: &mut SqliteConnection,
    asked: &Asked,
    vote: &RecordVote,
    value: &Value,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO votes (thread, interrupt, principal, revision, value, codec, channel, identified, voted_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )
    .bind(asked.thread.as_str())
    .bind(vote.interrupt.as_str())
    .bind(vote.voter.principal.as_str())
    .bind(asked.revision)
    .bind(encode("vote", value)?)
    .bind(PLAIN)
    .bind(vote.via.channel)
    .bind(vote.via.identified)
    .bind(vote.now.as_micros())
    .execute(conn)
    .await?;
    Ok(())
}

async fn conclude(
    conn: &mut SqliteConnection,
    asked: &Asked,
    vote: &RecordVote,
    verdict: Verdict,
    need: u32,
    log: &mut Log,
) -> Result<Voted, StoreError> {
    let (thread, id) = (&asked.thread, &vote.interrupt);
    let detail = |decided: bool| {
        json!({
            "interrupt": id.as_str(), "kind": asked.kind, "revision": asked.revision,
            "shown": asked.content_hash, "answer": vote.answer, "roles": vote.voter.roles,
            "channel": vote.via.channel, "identified": vote.via.identified, "decides": decided,
        })
    };
    let (have, answered) = match verdict {
        Verdict::Waiting { have, .. } => (have, None),
        Verdict::Decided { answer, by } => {
            let have = count(&by);
            let value = (!answer.is_null()).then_some(answer);
            (have, Some(Answered { value, by, at: vote.now }))
        }
    };
    sqlx::query("UPDATE requests SET have = max(have, ?3) WHERE thread = ?1 AND interrupt = ?2")
        .bind(thread.as_str())
        .bind(id.as_str())
        .bind(have)
        .execute(&mut *conn)
        .await?;
    let decided = answered.is_some();
    if let Some(answered) = answered {
        sqlx::query(
            "INSERT INTO answers (thread, interrupt, position, answered, codec, accepted_at)
             SELECT ?1, ?2, next_answer, ?3, ?4, ?5 FROM threads WHERE thread = ?1",
        )
        .bind(thread.as_str())
        .bind(id.as_str())
        .bind(encode("answer", &answered)?)
        .bind(PLAIN)
        .bind(vote.now.as_micros())
        .execute(&mut *conn)
        .await?;
        sqlx::query("UPDATE threads SET next_answer = next_answer + 1 WHERE thread = ?1")
            .bind(thread.as_str())
            .execute(&mut *conn)
            .await?;
        sqlx::query("UPDATE interrupts SET status = 'answered', closed_at = ?3 WHERE thread = ?1 AND id = ?2")
            .bind(thread.as_str())
            .bind(id.as_str())
            .bind(vote.now.as_micros())
            .execute(&mut *conn)
            .await?;
        log.add(What::Closed(id.clone(), "answered".to_owned()));
        points::close_request(conn, thread, id, "decided").await?;
    }
    let action = if decided { "decided" } else { "voted" };
    audit::append(conn, thread, action, &vote.voter.principal, &detail(decided), vote.now).await?;
    Ok(Voted { thread: thread.clone(), decided, have, need, repeated: false, wake: None })
}

pub(super) async fn resume(
    conn: &mut SqliteConnection,
    command: ResumeThread,
    idempotency: Option<IdempotencyEntry>,
    mut log: Log,
) -> Result<Accepted, StoreError> {
    if let Some(replay) = threads::replay(conn, idempotency.as_ref()).await? {
        return Ok(replay);
    }
    let thread = &command.thread;
    let amended = command.amended.is_some();
    let row = sqlx::query("SELECT status, failed_tasks FROM threads WHERE thread = ?1")
        .bind(thread.as_str())
        .fetch_optional(&mut *conn)
        .await?
        .ok_or_else(|| Refusal::UnknownThread(thread.clone()))?;
    let status: String = row.try_get(0)?;
    let ended = match status.as_str() {
        "succeeded" if !amended => Some("succeeded"),
        "cancelled" => Some("cancelled"),
        _ => None,
    };
    // What was answered says more than that the thread has ended, and the same
    // answer again is no fault (K11).
    if let Some(ended) = ended.filter(|_| command.votes.is_empty() || amended) {
        return Err(Refusal::ThreadEnded(ended).into());
    }
    let busy = status == "queued" || status == "running";
    let open: Vec<String> = sqlx::query_scalar("SELECT kind FROM interrupts WHERE thread = ?1 AND status = 'open'")
        .bind(thread.as_str())
        .fetch_all(&mut *conn)
        .await?;
    let borders = open.iter().any(|kind| kind == "break" || kind == "pause");
    let named = amended || !command.votes.is_empty();
    let failed = row.try_get::<i64, _>(1)? > 0;
    let flags = command.resume;
    // Of several flags one that finds something is enough (R1).
    let wakes = (flags.resume_all && !open.is_empty()) || (flags.release && borders) || (flags.retry && failed) || busy;
    if !wakes && !named {
        match flags {
            Resume { release: true, .. } => return Err(Refusal::NothingToContinue.into()),
            Resume { retry: true, .. } => return Err(Refusal::NothingToRetry.into()),
            Resume { resume_all: true, .. } => return Err(Refusal::NothingPending.into()),
            Resume { .. } => {}
        }
    }
    if let Some(head) = &command.amended {
        heads::check(conn, thread, &head.expected_head, command.now).await?;
        heads::judge(conn, thread, command.guard.as_ref()).await?;
        heads::apply(conn, thread, head, "resumed", command.now, &mut log).await?;
    }
    let mut anything = !command.resume.is_empty() || amended;
    for vote in &command.votes {
        // Before it is judged: what became of another thread's point is told
        // to those who reach that thread.
        if find(conn, &vote.interrupt).await?.thread != *thread {
            return Err(Refusal::UnknownInterrupt(vote.interrupt.clone()).into());
        }
        let voted = cast(conn, vote, &mut log).await?;
        anything |= voted.decided && !voted.repeated;
    }
    if let Some(ended) = ended.filter(|_| anything) {
        return Err(Refusal::ThreadEnded(ended).into());
    }
    threads::remember(conn, idempotency.as_ref(), command.now).await?;
    if !anything {
        return Ok(Accepted::Committed(None));
    }
    let flags = serde_json::to_string(&command.resume).map_err(|error| StoreError::Database(error.to_string()))?;
    threads::insert_run(conn, thread, &command.run, "resume", &flags, false, &command.requested_by, command.now)
        .await?;
    if !command.resume.is_empty() || amended {
        let detail = json!({"run": command.run.as_str(), "resume": command.resume, "amends": amended});
        audit::append(conn, thread, "resumed", &command.requested_by, &detail, command.now).await?;
    }
    let message = Message::advance(command.job, thread.clone());
    wake(conn, &message, command.now, log).await?;
    Ok(Accepted::Committed(Some(message)))
}
