//! Moving the head of a thread at rest: input, edits, replays, amendments.

use countersign_kernel::ids::{CheckpointId, ThreadId};
use countersign_kernel::time::Timestamp;

use super::super::commands::{Closing, HeadMove, MoveThread, NewCheckpoint, RestAs, StepGuard};
use super::super::db::{self, Conn};
use super::super::events::What;
use super::super::{Accepted, Refusal, StoreError};
use super::commit::{self, ROOT};
use super::events::Log;
use super::tx::Tx;
use super::{audit, frames, points, retention, since, threads};
use crate::queue::Message;

/// Refuses to move a thread that somebody runs, or that has moved.
pub(super) async fn check(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    expected: &CheckpointId,
    now: Timestamp,
) -> Result<(String, i64), StoreError> {
    let row = db::query(
        "SELECT status, head, open, (lease_owner IS NOT NULL AND lease_until >= $2) FROM threads WHERE thread = $1",
    )
    .bind(thread.as_str())
    .bind(now.as_micros())
    .fetch_optional(conn)
    .await?
    .ok_or_else(|| Refusal::UnknownThread(thread.clone()))?;
    let status: String = row.try_get(0)?;
    if row.try_get::<bool, _>(3)? || status == "queued" || status == "running" {
        return Err(Refusal::ThreadBusy.into());
    }
    if row.try_get::<String, _>(1)? != expected.as_str() {
        return Err(Refusal::ThreadChanged.into());
    }
    Ok((status, row.try_get(2)?))
}

/// Refuses to have steps done again unasked (R13).
pub(super) async fn judge(conn: &mut Conn<'_>, thread: &ThreadId, guard: Option<&StepGuard>) -> Result<(), StoreError> {
    let Some(guard) = guard else { return Ok(()) };
    let steps = since::steps(conn, thread, guard).await?;
    if steps.is_empty() { Ok(()) } else { Err(Refusal::ReExecutes(steps).into()) }
}

/// Writes what moves; `action` is what the request did.
pub(super) async fn apply(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    head: &HeadMove,
    action: &str,
    now: Timestamp,
    log: &mut Log,
) -> Result<(), StoreError> {
    match &head.closed {
        Closing::All => points::supersede_all(tx, thread, action, now, log).await?,
        Closing::Some(closed) => points::close(tx, thread, closed, Some(action), now, log).await?,
    }
    let row = db::query("SELECT graph, head_seq FROM threads WHERE thread = $1")
        .bind(thread.as_str())
        .fetch_one(tx.now().await?)
        .await?;
    let (graph, before): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
    if let Some(next) = &head.next {
        commit::insert_checkpoint(tx, thread, ROOT, next)?;
        if head.carry {
            carry(tx, thread, ROOT, before, next.seq).await?;
            db::query("UPDATE frames SET root_seq = $3 WHERE thread = $1 AND root_seq = $2")
                .bind(thread.as_str())
                .bind(before)
                .bind(next.seq)
                .execute(tx.now().await?)
                .await?;
        }
        move_head(tx, thread, next).await?;
        if !retention::holds(tx.now().await?, thread, &next.keys).await? {
            return Err(Refusal::ThreadChanged.into());
        }
        log.add(What::Values(next.seq, None));
    }
    let seq = head.next.as_ref().map_or(before, |next| next.seq);
    commit::put_tasks(tx, thread, ROOT, seq, &head.tasks)?;
    for frame in &head.frames {
        frames::check(tx.now().await?, thread, frame).await?;
        frames::commit(tx, thread, frame, now).await?;
        if let Some(next) = &frame.checkpoint {
            log.add(What::Values(next.seq, Some(frame.frame.clone())));
        }
    }
    points::open(tx, thread, &graph, seq, &head.opened, now, log).await?;
    points::count_open(tx, thread).await?;
    Ok(())
}

async fn move_head(tx: &mut Tx<'_>, thread: &ThreadId, next: &NewCheckpoint) -> Result<(), StoreError> {
    db::query(
        "UPDATE threads SET head = $2, head_seq = $3, branch = $4, graph_version = $5, fingerprint = $6
         WHERE thread = $1",
    )
    .bind(thread.as_str())
    .bind(next.checkpoint.id.as_str())
    .bind(next.seq)
    .bind(next.branch)
    .bind(next.graph_version)
    .bind(&next.fingerprint)
    .execute(tx.now().await?)
    .await?;
    Ok(())
}

/// The records of a superstep go along with its amended checkpoint (R5).
pub(super) async fn carry(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    frame: &str,
    from: i64,
    to: i64,
) -> Result<(), StoreError> {
    for statement in [
        "UPDATE tasks SET seq = $4 WHERE thread = $1 AND frame = $2 AND seq = $3",
        "UPDATE steps SET seq = $4 WHERE thread = $1 AND frame = $2 AND seq = $3",
    ] {
        db::query(statement).bind(thread.as_str()).bind(frame).bind(from).bind(to).execute(tx.now().await?).await?;
    }
    Ok(())
}

pub(super) async fn move_thread(tx: &mut Tx<'_>, command: MoveThread, mut log: Log) -> Result<Accepted, StoreError> {
    if let Some(replay) = threads::replay(tx, command.idempotency.as_ref()).await? {
        return Ok(replay);
    }
    let thread = &command.thread;
    let (status, open) = check(tx.now().await?, thread, &command.head.expected_head, command.now).await?;
    judge(tx.now().await?, thread, command.guard.as_ref()).await?;
    // What is held has work left, answers among it that were accepted.
    let waiting = open > 0 || status == "failed" || status == "held";
    if waiting && !command.discard_waiting {
        return Err(Refusal::ThreadInterrupted.into());
    }
    if matches!(command.head.closed, Closing::All) {
        // Also what a hold had set aside, so that the new run takes up none of it.
        tx.finish_runs(thread, "cancelled", command.now);
        threads::forget_dead_letter(tx, thread).await?;
    }
    apply(tx, thread, &command.head, command.action, command.now, &mut log).await?;
    let (status, error, failed) = match &command.rest {
        None => ("queued", None, 0),
        Some(RestAs::Failed { error, tasks }) => ("failed", Some(error.as_str()), *tasks),
        Some(rest) => (rest.status(), None, 0),
    };
    log.add(What::Status(status.to_owned(), error.map(str::to_owned)));
    let row = db::query(
        "UPDATE threads SET status = $2, error = $3, failed_tasks = $4, held_reason = NULL, cancel_requested = false, cancel_asked_at = NULL,
                pause_requested = false, attempts = 0, not_before = 0, fence = fence + 1, lease_owner = NULL, updated_at = $5,
                next_event = next_event + $6
         WHERE thread = $1 RETURNING next_event, priority",
    )
    .bind(thread.as_str())
    .bind(status)
    .bind(error)
    .bind(failed)
    .bind(command.now.as_micros())
    .bind(log.len())
    .fetch_one(tx.now().await?)
    .await?;
    log.insert(tx, thread, row.try_get(0)?)?;
    if let Some(run) = &command.run {
        let flags = serde_json::to_string(&run.resume).map_err(|error| StoreError::Database(error.to_string()))?;
        let taken = run.resume.is_empty();
        let (by, now) = (&command.requested_by, command.now);
        threads::insert_run(tx, thread, &run.run, run.kind, &flags, taken, by, now);
        if let Some(rest) = &command.rest {
            // With the run in its table, so that it ends too.
            tx.now().await?;
            tx.finish_runs(thread, rest.status(), command.now);
        }
    }
    audit::append(tx, thread, command.action, &command.requested_by, &command.detail, command.now).await?;
    threads::remember(tx, command.idempotency.as_ref(), command.now);
    if command.rest.is_some() {
        return Ok(Accepted::Committed(None));
    }
    let message = Message::advance(command.job, command.thread).with_priority(row.try_get(1)?);
    tx.push(message.clone(), command.now);
    Ok(Accepted::Committed(Some(message)))
}
