//! One transaction per superstep.

use countersign_kernel::ids::{CheckpointId, FrameId, ThreadId};
use countersign_kernel::machine::{CheckpointBody, TaskRecord};
use countersign_kernel::principal::Principal;
use countersign_kernel::state::Change;
use serde_json::json;

use super::super::StoreError;
use super::super::codec::{PLAIN, encode};
use super::super::commands::{Committed, Fence, Flush, Incoming, KeyAt, NewCheckpoint, RestAs, StepCommit, StepResult};
use super::super::db;
use super::super::events::What;
use super::events::{self, Log};
use super::later::Table;
use super::tx::Tx;
use super::{activate, audit, frames, points, threads};

pub(super) async fn commit(tx: &mut Tx<'_>, mut commit: StepCommit, mut log: Log) -> Result<Committed, StoreError> {
    log.extend(std::mem::take(&mut commit.events));
    let thread = &commit.thread;
    // What is read comes first: then little of this needs to be written at once.
    points::close(tx, thread, &commit.closed, None, commit.now, &mut log).await?;
    let opened = points::open(tx, thread, &commit.graph, commit.seq, &commit.opened, commit.now, &mut log).await?;
    let (rest, came_in) = match &commit.rest {
        Some(rest) => rests(tx, &commit, rest).await?,
        None => (None, None),
    };
    if matches!(rest, Some(RestAs::Cancelled)) {
        points::supersede_all(tx, thread, "cancelled", commit.now, &mut log).await?;
    }
    if let Some(rest) = rest {
        log.add(What::Status(rest.status().to_owned(), rest.reason().map(str::to_owned)));
    }
    let (cancel, pause, last) = guard(tx, &commit, rest, opened, log.len()).await?;
    if !commit.closed.is_empty() || rest == Some(&RestAs::Cancelled) {
        points::count_open(tx, thread).await?;
    }
    if let Some(new) = &commit.checkpoint {
        insert_checkpoint(tx, thread, ROOT, new)?;
    }
    if let Some(body) = &commit.body {
        put_body(tx, thread, ROOT, commit.seq, body).await?;
    }
    put_tasks(tx, thread, ROOT, commit.seq, &commit.tasks)?;
    for frame in &commit.frames {
        frames::commit(tx, thread, frame, commit.now).await?;
    }
    tx.consume(thread, &commit.consumed, commit.fence.0);
    tx.take(thread, &commit.runs);
    tx.delete(&commit.jobs);
    log.insert(tx, thread, last)?;
    if let Some(wake) = came_in {
        return Ok(Committed::Running(wake));
    }
    let Some(rest) = rest else {
        return Ok(Committed::Running(Incoming { cancel, pause, ..Incoming::default() }));
    };
    if matches!(rest, RestAs::Held { .. }) {
        // Not ended, only set aside: what was asked for is still to be done.
        threads::hold_runs(tx, thread).await?;
    } else {
        tx.finish_runs(thread, rest.status(), commit.now);
    }
    let operator_cares = match rest {
        RestAs::Held { reason } => Some(("held", json!({"reason": reason}))),
        RestAs::Cancelled => Some(("cancelled", json!({}))),
        RestAs::Parked | RestAs::Failed { .. } | RestAs::Succeeded => None,
    };
    if let Some((action, detail)) = operator_cares {
        audit::append(tx, thread, action, &Principal::service("worker"), &detail, commit.now).await?;
    }
    Ok(Committed::Released)
}

/// Whether the thread may rest, or goes on with what came in meanwhile: whoever
/// holds the lease releases it only in a transaction that finds nothing left to
/// take up.
async fn rests<'r>(
    tx: &mut Tx<'_>,
    commit: &StepCommit,
    rest: &'r RestAs,
) -> Result<(Option<&'r RestAs>, Option<Incoming>), StoreError> {
    let wake = activate::incoming_without(tx.own(), &commit.thread, &commit.runs, &commit.consumed).await?;
    let goes_on = !wake.is_empty() && !matches!(rest, RestAs::Cancelled | RestAs::Held { .. });
    Ok(if goes_on { (None, Some(wake)) } else { (Some(rest), None) })
}

/// Writes the thread's row under the fence: no row, no lease, and nothing of the
/// commit is written. Says whether somebody asked to cancel or to pause, and how
/// many events there are now.
async fn guard(
    tx: &mut Tx<'_>,
    commit: &StepCommit,
    rest: Option<&RestAs>,
    opened: i64,
    events: i64,
) -> Result<(bool, bool, i64), StoreError> {
    let head = commit.checkpoint.as_ref();
    let (failed_tasks, held_reason) = match rest {
        Some(RestAs::Failed { tasks, .. }) => (*tasks, None),
        Some(RestAs::Held { reason }) => (0, Some(reason.as_str())),
        _ => (0, None),
    };
    let error = if let Some(RestAs::Failed { error, .. }) = rest { Some(error.as_str()) } else { None };
    let row = db::query(
        "UPDATE threads SET
             head = coalesce($3, head), head_seq = coalesce($4, head_seq), branch = coalesce($5, branch),
             graph_version = coalesce($6, graph_version), fingerprint = coalesce($7, fingerprint),
             attempts = CASE WHEN $8 THEN 0 ELSE attempts END,
             not_before = CASE WHEN $8 THEN 0 ELSE not_before END,
             pause_requested = CASE WHEN $9 THEN false ELSE pause_requested END,
             updated_at = $10, next_event = next_event + $11, open = open + $12,
             status = coalesce($13, status),
             error = CASE WHEN $13 IS NULL THEN error ELSE $14 END,
             failed_tasks = CASE WHEN $13 IS NULL THEN failed_tasks ELSE $15 END,
             held_reason = CASE WHEN $13 IS NULL THEN held_reason ELSE $16 END,
             lease_owner = CASE WHEN $13 IS NULL THEN lease_owner END,
             lease_until = CASE WHEN $13 IS NULL THEN lease_until ELSE 0 END
         WHERE thread = $1 AND fence = $2 AND lease_owner IS NOT NULL
         RETURNING cancel_requested, pause_requested, next_event",
    )
    .bind(commit.thread.as_str())
    .bind(commit.fence.0)
    .bind(head.map(|new| new.checkpoint.id.as_str()))
    .bind(head.map(|new| new.seq))
    .bind(head.map(|new| new.branch))
    .bind(head.map(|new| new.graph_version))
    .bind(head.map(|new| new.fingerprint.as_str()))
    .bind(commit.checkpoint.is_some() || commit.rest.is_some())
    .bind(commit.paused)
    .bind(commit.now.as_micros())
    .bind(events)
    .bind(opened)
    .bind(rest.map(RestAs::status))
    .bind(error)
    .bind(failed_tasks)
    .bind(held_reason)
    .fetch_optional(tx.own())
    .await?
    .ok_or(StoreError::Fenced)?;
    Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
}

/// The frame column of the root frame.
pub(super) const ROOT: &str = "";

/// Writes a changed body of a checkpoint.
pub(super) async fn put_body(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    frame: &str,
    seq: i64,
    body: &CheckpointBody,
) -> Result<(), StoreError> {
    db::query("UPDATE checkpoints SET body = $4 WHERE thread = $1 AND frame = $2 AND seq = $3")
        .bind(thread.as_str())
        .bind(frame)
        .bind(seq)
        .bind(encode("checkpoint body", body)?)
        .execute(tx.now().await?)
        .await?;
    Ok(())
}

pub(super) fn insert_checkpoint(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    frame: &str,
    new: &NewCheckpoint,
) -> Result<(), StoreError> {
    let row = vec![
        thread.as_str().into(),
        frame.into(),
        new.seq.into(),
        new.checkpoint.id.as_str().into(),
        new.checkpoint.parent.as_ref().map(CheckpointId::as_str).into(),
        new.branch.into(),
        new.checkpoint.source.as_str().into(),
        i64::try_from(new.checkpoint.superstep).unwrap_or(i64::MAX).into(),
        new.graph_version.into(),
        new.fingerprint.as_str().into(),
        encode("checkpoint body", &new.body)?.into(),
        encode("key index", &new.keys)?.into(),
        PLAIN.into(),
        new.checkpoint.created_at.as_micros().into(),
    ];
    tx.insert(Table::Checkpoints, row);
    for (key, change) in &new.changes {
        match change {
            Change::Set(value) => {
                let (key, bytes) = (key.as_str().into(), value.to_string().into_bytes().into());
                let row = vec![thread.as_str().into(), frame.into(), key, new.seq.into(), bytes, PLAIN.into()];
                tx.insert(Table::Values, row);
            }
            Change::Appended(items) => insert_items(tx, thread, frame, new, key, items),
        }
    }
    Ok(())
}

/// A row for each item appended to a key.
fn insert_items(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    frame: &str,
    new: &NewCheckpoint,
    key: &str,
    items: &[serde_json::Value],
) {
    let until = match new.keys.get(key) {
        Some(KeyAt::Items(segments)) => segments.last().map_or(0, |(_, until)| *until),
        Some(KeyAt::Value(_)) | None => 0,
    };
    let from = until.saturating_sub(items.len() as u64);
    for (position, item) in (from..).zip(items) {
        let row = vec![
            thread.as_str().into(),
            frame.into(),
            key.into(),
            new.branch.into(),
            i64::try_from(position).unwrap_or(i64::MAX).into(),
            item.to_string().into_bytes().into(),
            PLAIN.into(),
        ];
        tx.insert(Table::Items, row);
    }
}

pub(super) fn put_tasks(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    frame: &str,
    seq: i64,
    tasks: &[(String, TaskRecord)],
) -> Result<(), StoreError> {
    for (task, record) in tasks {
        let row = vec![
            thread.as_str().into(),
            frame.into(),
            seq.into(),
            task.into(),
            record.status.as_str().into(),
            encode("task record", record)?.into(),
            PLAIN.into(),
        ];
        tx.insert(Table::Tasks, row);
    }
    Ok(())
}

pub(super) async fn fenced(tx: &mut Tx<'_>, thread: &ThreadId, fence: Fence) -> Result<(), StoreError> {
    db::query("SELECT 1 FROM threads WHERE thread = $1 AND fence = $2 AND lease_owner IS NOT NULL")
        .bind(thread.as_str())
        .bind(fence.0)
        .fetch_optional(tx.own())
        .await?
        .map(|_| ())
        .ok_or(StoreError::Fenced)
}

pub(super) async fn record_result(tx: &mut Tx<'_>, result: StepResult) -> Result<(), StoreError> {
    fenced(tx, &result.thread, result.fence).await?;
    let row = vec![
        result.thread.as_str().into(),
        result.frame.as_ref().map_or(ROOT, FrameId::as_str).into(),
        result.seq.into(),
        encode_text(&result.occurrence)?.into(),
        result.name.into(),
        encode("step result", &result.result)?.into(),
        PLAIN.into(),
        result.now.as_micros().into(),
    ];
    tx.insert(Table::Steps, row);
    Ok(())
}

pub(super) async fn flush(tx: &mut Tx<'_>, flush: Flush, mut log: Log) -> Result<(), StoreError> {
    log.extend(flush.events);
    let last = events::fenced(tx, &flush.thread, flush.fence, &log, false).await?;
    put_tasks(tx, &flush.thread, ROOT, flush.seq, &flush.tasks)?;
    log.insert(tx, &flush.thread, last)
}

pub(super) fn encode_text<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Database(error.to_string()))
}
