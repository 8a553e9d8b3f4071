//! Answers are rows: one transaction records a vote, judges it, and, if it
//! decides, the answer and the job that wakes the point.

use countersign_kernel::canonical::canonical_text;
use countersign_kernel::fault::Fault;
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::machine::Resume;
use countersign_kernel::policy::{Verdict, Vote};
use countersign_kernel::principal::Principal;
use countersign_kernel::question::{Answered, Request};
use countersign_kernel::time::Timestamp;
use serde_json::{Value, json};

use super::super::codec::{PLAIN, decode, encode, parse};
use super::super::commands::{IdempotencyEntry, RecordVote, ResumeThread, Voted};
use super::super::db::{self, Conn};
use super::super::events::What;
use super::super::{Accepted, Refusal, StoreError};
use super::audit::Chain;
use super::events::Log;
use super::later::{Change, Table};
use super::tx::Tx;
use super::{audit, heads, points, threads};
use crate::queue::Message;

/// Who voted, what, and when.
type Cast = (Principal, Value, Timestamp);

/// The interrupt that a vote is about.
pub(super) struct Asked {
    pub(super) thread: ThreadId,
    status: String,
    pub(super) kind: String,
    pub(super) payload: Value,
    pub(super) revision: u32,
    pub(super) content_hash: Option<String>,
    answered: Option<Answered>,
    /// Whether it waits for an instant.
    timed: bool,
    /// Whether somebody has asked to cancel the thread.
    cancelled: bool,
    /// The position of the thread's next answer.
    next_answer: i64,
    /// Where the thread's audit trail ends.
    trail: Chain,
}

impl Asked {
    /// Whether people decide on it.
    pub(super) fn is_request(&self) -> bool {
        self.content_hash.is_some()
    }
}

/// What the audit trail is told.
pub(super) struct Entry<'e> {
    pub(super) action: &'e str,
    pub(super) actor: &'e Principal,
    pub(super) detail: &'e Value,
}

pub(super) async fn record(tx: &mut Tx<'_>, vote: RecordVote, mut log: Log) -> Result<Voted, StoreError> {
    let voted = cast(tx, &vote, &mut log).await?;
    if !voted.decided || voted.repeated {
        return Ok(voted);
    }
    let message = Message::advance(vote.job, voted.thread.clone());
    let message = wake(tx, &message, vote.now, log).await?;
    Ok(Voted { wake: Some(message), ..voted })
}

/// Puts a resting thread back in line and enqueues the message, with the
/// thread's priority; gives that back.
pub(super) async fn wake(
    tx: &mut Tx<'_>,
    message: &Message,
    now: Timestamp,
    mut log: Log,
) -> Result<Message, StoreError> {
    log.add(What::status("queued"));
    let woken = db::query(
        "UPDATE threads SET status = 'queued', updated_at = $2, next_event = next_event + $3
         WHERE thread = $1 AND status IN ('parked', 'failed', 'succeeded') RETURNING next_event, priority",
    )
    .bind(message.thread.as_str())
    .bind(now.as_micros())
    .bind(log.len())
    .fetch_optional(tx.own())
    .await?;
    let mut message = message.clone();
    match woken {
        Some(row) => {
            log.insert(tx, &message.thread, row.try_get(0)?)?;
            message = message.with_priority(row.try_get(1)?);
        }
        None => {
            // It runs, and takes this up before it rests.
            log.take_back();
            log.append(tx, &message.thread).await?;
        }
    }
    tx.push(message.clone(), now);
    Ok(message)
}

/// A vote that may be put down, with what it is judged by.
pub(super) struct Weighed {
    asked: Asked,
    request: Option<Request>,
    value: Value,
    votes: Vec<Cast>,
    /// What it comes to if it is on record already.
    repeated: Option<Voted>,
}

/// Judges a vote by all rules; writes nothing.
pub(super) async fn weigh(conn: &mut Conn<'_>, vote: &RecordVote) -> Result<Weighed, StoreError> {
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
        return Ok(Weighed { asked, request, value, votes: Vec::new(), repeated: None });
    }
    let votes = points::votes(conn, &asked.thread, id).await?;
    let repeated = repeated(&asked, vote, &value, request.as_ref(), &votes)?;
    if repeated.is_some() {
        return Ok(Weighed { asked, request, value, votes, repeated });
    }
    match asked.kind.as_str() {
        // The resume of the thread that amends takes the data out first.
        "break" | "pause" if !value.is_null() => {
            return Err(Refusal::CarriesUpdate { interrupt: id.clone(), thread: asked.thread }.into());
        }
        "container" if value.is_null() => return Err(Refusal::NotAnswerable { interrupt: id.clone() }.into()),
        "sleep" if !value.is_null() => {
            let faults = vec![Fault::at("", "a sleep takes no data: `null` ends it early")];
            return Err(Refusal::InvalidAnswer { interrupt: id.clone(), faults }.into());
        }
        _ => {}
    }
    let stale = vote.revision.is_some_and(|seen| seen != asked.revision)
        || vote.content_hash.as_ref().is_some_and(|seen| Some(seen) != asked.content_hash.as_ref());
    if stale {
        return Err(Refusal::RequestChanged { interrupt: id.clone(), revision: asked.revision }.into());
    }
    Ok(Weighed { asked, request, value, votes, repeated })
}

/// Judges a vote and puts it down. If it is refused, nothing was written.
pub(super) async fn cast(tx: &mut Tx<'_>, vote: &RecordVote, log: &mut Log) -> Result<Voted, StoreError> {
    let Weighed { asked, request, value, votes, repeated } = weigh(tx.own(), vote).await?;
    if vote.replace && asked.answered.is_some() {
        return replace(tx, &asked, vote, value).await;
    }
    if let Some(repeated) = repeated {
        return Ok(repeated);
    }
    insert_vote(tx, &asked, vote, &value)?;
    let verdict = judge(vote, &value, request.as_ref(), &votes);
    conclude(tx, asked, vote, verdict, request.map_or(1, |request| request.policy.need), log).await
}

/// Puts another answer in the place of one that a failed task was given (R9).
/// The votes stay as they were cast; the audit trail has both answers.
async fn replace(tx: &mut Tx<'_>, asked: &Asked, vote: &RecordVote, value: Value) -> Result<Voted, StoreError> {
    let (thread, id) = (&asked.thread, &vote.interrupt);
    let by = vec![vote.voter.principal.clone()];
    let detail = json!({"interrupt": id.as_str(), "replaced": asked.answered, "answer": value});
    let answered = Answered { value: (!value.is_null()).then_some(value), by, at: vote.now };
    db::query(
        "UPDATE answers SET answered = $3, accepted_at = $4, consumed_by = NULL,
                position = (SELECT next_answer FROM threads WHERE thread = $1)
         WHERE thread = $1 AND interrupt = $2",
    )
    .bind(thread.as_str())
    .bind(id.as_str())
    .bind(encode("answer", &answered)?)
    .bind(vote.now.as_micros())
    .execute(tx.now().await?)
    .await?;
    db::query("UPDATE threads SET next_answer = next_answer + 1 WHERE thread = $1")
        .bind(thread.as_str())
        .execute(tx.now().await?)
        .await?;
    audit::append(tx, thread, "answer_replaced", &vote.voter.principal, &detail, vote.now).await?;
    Ok(Voted { thread: thread.clone(), decided: true, have: 1, need: 1, repeated: false, wake: None })
}

/// What a vote leads to, beside those of others.
fn judge(vote: &RecordVote, value: &Value, request: Option<&Request>, votes: &[Cast]) -> Verdict {
    let own = Vote { principal: vote.voter.principal.clone(), value: value.clone() };
    let Some(request) = request else {
        return Verdict::Decided { answer: own.value, by: vec![own.principal] };
    };
    let others: Vec<Vote> = votes
        .iter()
        .filter(|(principal, _, _)| *principal != own.principal)
        .map(|(principal, value, _)| Vote { principal: principal.clone(), value: value.clone() })
        .collect();
    request.policy.judge(&others, &own)
}

fn count(by: &[Principal]) -> u32 {
    u32::try_from(by.len()).unwrap_or(u32::MAX)
}

pub(super) async fn find(conn: &mut Conn<'_>, id: &InterruptId) -> Result<Asked, StoreError> {
    let row = db::query(
        "SELECT i.thread, i.status, i.kind, i.payload, coalesce(r.revision, 1), r.content_hash, a.answered,
                t.next_answer, t.salt, t.audit_seq, t.audit_head, i.deadline IS NOT NULL,
                t.cancel_requested
         FROM interrupts i JOIN threads t ON t.thread = i.thread
         LEFT JOIN requests r ON r.thread = i.thread AND r.interrupt = i.id
         LEFT JOIN answers a ON a.thread = i.thread AND a.interrupt = i.id
         WHERE i.id = $1",
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
        timed: row.try_get(11)?,
        cancelled: row.try_get(12)?,
        next_answer: row.try_get(7)?,
        trail: Chain { salt: row.try_get(8)?, seq: row.try_get(9)?, head: row.try_get(10)? },
    })
}

/// The same answer of the same person changes nothing (promise 2); anything
/// else on a closed point or by somebody who voted is refused.
fn repeated(
    asked: &Asked,
    vote: &RecordVote,
    value: &Value,
    request: Option<&Request>,
    votes: &[Cast],
) -> Result<Option<Voted>, StoreError> {
    let id = &vote.interrupt;
    let own = votes.iter().find(|(principal, _, _)| *principal == vote.voter.principal).map(|(_, value, _)| value);
    if own.is_some_and(|own| canonical_text(own) == canonical_text(value)) {
        let have = match judge(vote, value, request, votes) {
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
    if asked.cancelled {
        // Whoever runs the thread drops the point with it.
        return Err(Refusal::Superseded { interrupt: id.clone(), status: "superseded".to_owned() }.into());
    }
    if own.is_some() {
        let principal = vote.voter.principal.clone();
        return Err(Refusal::AlreadyVoted { interrupt: id.clone(), principal }.into());
    }
    Ok(None)
}

fn insert_vote(tx: &mut Tx<'_>, asked: &Asked, vote: &RecordVote, value: &Value) -> Result<(), StoreError> {
    let row = vec![
        asked.thread.as_str().into(),
        vote.interrupt.as_str().into(),
        vote.voter.principal.as_str().into(),
        asked.revision.into(),
        encode("vote", value)?.into(),
        PLAIN.into(),
        vote.via.channel.into(),
        vote.via.identified.into(),
        vote.now.as_micros().into(),
    ];
    tx.insert(Table::Votes, row);
    Ok(())
}

async fn conclude(
    tx: &mut Tx<'_>,
    asked: Asked,
    vote: &RecordVote,
    verdict: Verdict,
    need: u32,
    log: &mut Log,
) -> Result<Voted, StoreError> {
    let (thread, id) = (&asked.thread, &vote.interrupt);
    let (have, answered) = match verdict {
        Verdict::Waiting { have, .. } => (have, None),
        Verdict::Decided { answer, by } => {
            let have = count(&by);
            let value = (!answer.is_null()).then_some(answer);
            (have, Some(Answered { value, by, at: vote.now }))
        }
    };
    tx.change(Change::RequestCounted, thread, id, Some(have.into()));
    let decided = answered.is_some();
    let detail = json!({
        "interrupt": id.as_str(), "kind": asked.kind, "revision": asked.revision,
        "shown": asked.content_hash, "answer": vote.answer, "roles": vote.voter.roles,
        "channel": vote.via.channel, "identified": vote.via.identified, "decides": decided,
    });
    let action = if decided { "decided" } else { "voted" };
    let thread = thread.clone();
    let entry = Entry { action, actor: &vote.voter.principal, detail: &detail };
    settle(tx, asked, id, answered, entry, vote.now, log).await?;
    Ok(Voted { thread, decided, have, need, repeated: false, wake: None })
}

/// Puts the answer of a point down, if there is one now, and what is on record
/// of it.
pub(super) async fn settle(
    tx: &mut Tx<'_>,
    asked: Asked,
    id: &InterruptId,
    answered: Option<Answered>,
    entry: Entry<'_>,
    now: Timestamp,
    log: &mut Log,
) -> Result<(), StoreError> {
    let thread = &asked.thread;
    let decided = answered.is_some();
    if let Some(answered) = answered {
        let row = vec![
            thread.as_str().into(),
            id.as_str().into(),
            asked.next_answer.into(),
            encode("answer", &answered)?.into(),
            PLAIN.into(),
            now.as_micros().into(),
        ];
        tx.insert(Table::Answers, row);
        tx.change(Change::PointAnswered, thread, id, Some(now.as_micros()));
        if asked.content_hash.is_some() {
            for change in [Change::RequestDecided, Change::ApproversClosed, Change::DeliveriesSkipped] {
                tx.change(change, thread, id, None);
            }
        }
        if asked.timed {
            tx.change(Change::TimersDropped, thread, id, None);
        }
        log.add(What::Closed(id.clone(), "answered".to_owned()));
    }
    let mut trail = asked.trail;
    trail.extend(tx, thread, entry.action, entry.actor, entry.detail, now);
    // A container counts as no point that waits (K18).
    let closed = decided && asked.kind != "container";
    db::query(
        "UPDATE threads SET next_answer = next_answer + $2, open = open - $3, audit_seq = $4, audit_head = $5
         WHERE thread = $1",
    )
    .bind(thread.as_str())
    .bind(i64::from(decided))
    .bind(i64::from(closed))
    .bind(trail.seq)
    .bind(trail.head)
    .execute(tx.own())
    .await?;
    Ok(())
}

pub(super) async fn resume(
    tx: &mut Tx<'_>,
    command: ResumeThread,
    idempotency: Option<IdempotencyEntry>,
    mut log: Log,
) -> Result<Accepted, StoreError> {
    if let Some(replay) = threads::replay(tx, idempotency.as_ref()).await? {
        return Ok(replay);
    }
    let thread = &command.thread;
    let amended = command.amended.is_some();
    let row = db::query("SELECT status, failed_tasks FROM threads WHERE thread = $1")
        .bind(thread.as_str())
        .fetch_optional(tx.now().await?)
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
    let open: Vec<String> = db::scalar("SELECT kind FROM interrupts WHERE thread = $1 AND status = 'open'")
        .bind(thread.as_str())
        .fetch_all(tx.now().await?)
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
        heads::check(tx.now().await?, thread, &head.expected_head, command.now).await?;
        heads::judge(tx.now().await?, thread, command.guard.as_ref()).await?;
        heads::apply(tx, thread, head, "resumed", command.now, &mut log).await?;
    }
    let mut anything = !command.resume.is_empty() || amended;
    for vote in &command.votes {
        // Before it is judged: what became of another thread's point is told
        // to those who reach that thread.
        if find(tx.own(), &vote.interrupt).await?.thread != *thread {
            return Err(Refusal::UnknownInterrupt(vote.interrupt.clone()).into());
        }
        let voted = cast(tx, vote, &mut log).await?;
        anything |= voted.decided && !voted.repeated;
    }
    if let Some(ended) = ended.filter(|_| anything) {
        return Err(Refusal::ThreadEnded(ended).into());
    }
    threads::remember(tx, idempotency.as_ref(), command.now);
    if !anything {
        return Ok(Accepted::Committed(None));
    }
    let flags = serde_json::to_string(&command.resume).map_err(|error| StoreError::Database(error.to_string()))?;
    threads::insert_run(tx, thread, &command.run, "resume", &flags, false, &command.requested_by, command.now);
    if !command.resume.is_empty() || amended {
        let detail = json!({"run": command.run.as_str(), "resume": command.resume, "amends": amended});
        audit::append(tx, thread, "resumed", &command.requested_by, &detail, command.now).await?;
    }
    let message = Message::advance(command.job, thread.clone());
    let message = wake(tx, &message, command.now, log).await?;
    Ok(Accepted::Committed(Some(message)))
}
