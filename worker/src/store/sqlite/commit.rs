//! One transaction per superstep.

use countersign_kernel::ids::{FrameId, ThreadId};
use countersign_kernel::machine::{CheckpointBody, TaskRecord};
use countersign_kernel::principal::Principal;
use countersign_kernel::state::Change;
use serde_json::json;
use sqlx::{Row, SqliteConnection};

use super::super::StoreError;
use super::super::codec::{PLAIN, encode};
use super::super::commands::{Committed, Fence, Flush, Incoming, KeyAt, NewCheckpoint, RestAs, StepCommit, StepResult};
use super::super::events::What;
use super::events::{self, Log};
use super::{activate, audit, frames, points, threads};
use crate::queue;

pub(super) async fn commit(
    conn: &mut SqliteConnection,
    mut commit: StepCommit,
    mut log: Log,
) -> Result<Committed, StoreError> {
    log.extend(std::mem::take(&mut commit.events));
    let thread = &commit.thread;
    let progress = commit.checkpoint.is_some() || commit.rest.is_some();
    // First, so that the thread's row learns how many events there are.
    points::close(conn, thread, &commit.closed, None, commit.now, &mut log).await?;
    points::open(conn, thread, &commit.graph, commit.seq, &commit.opened, commit.now, &mut log).await?;
    // The fence: no row, no lease, and nothing of this is written.
    let head = commit.checkpoint.as_ref();
    let row = sqlx::query(
        "UPDATE threads SET
             head = coalesce(?3, head), head_seq = coalesce(?4, head_seq), branch = coalesce(?5, branch),
             graph_version = coalesce(?6, graph_version), fingerprint = coalesce(?7, fingerprint),
             attempts = CASE WHEN ?8 THEN 0 ELSE attempts END,
             not_before = CASE WHEN ?8 THEN 0 ELSE not_before END,
             pause_requested = CASE WHEN ?9 THEN 0 ELSE pause_requested END,
             updated_at = ?10, next_event = next_event + ?11
         WHERE thread = ?1 AND fence = ?2 AND lease_owner IS NOT NULL
         RETURNING cancel_requested, pause_requested, next_event",
    )
    .bind(thread.as_str())
    .bind(commit.fence.0)
    .bind(head.map(|new| new.checkpoint.id.as_str()))
    .bind(head.map(|new| new.seq))
    .bind(head.map(|new| new.branch))
    .bind(head.map(|new| new.graph_version))
    .bind(head.map(|new| new.fingerprint.as_str()))
    .bind(progress)
    .bind(commit.paused)
    .bind(commit.now.as_micros())
    .bind(log.len())
    .fetch_optional(&mut *conn)
    .await?
    .ok_or(StoreError::Fenced)?;
    let cancel = row.try_get::<i64, _>(0)? != 0;
    let pause = row.try_get::<i64, _>(1)? != 0;
    let last: i64 = row.try_get(2)?;

    if let Some(new) = &commit.checkpoint {
        insert_checkpoint(conn, thread, ROOT, new).await?;
    }
    if let Some(body) = &commit.body {
        put_body(conn, thread, ROOT, commit.seq, body).await?;
    }
    put_tasks(conn, thread, ROOT, commit.seq, &commit.tasks).await?;
    for frame in &commit.frames {
        frames::commit(conn, thread, frame, commit.now).await?;
    }
    if !commit.consumed.is_empty() {
        sqlx::query(
            "UPDATE answers SET consumed_by = ?2
             WHERE thread = ?1 AND interrupt IN (SELECT value FROM json_each(?3))",
        )
        .bind(thread.as_str())
        .bind(commit.fence.0)
        .bind(encode_text(&commit.consumed)?)
        .execute(&mut *conn)
        .await?;
    }
    if !commit.runs.is_empty() {
        sqlx::query("UPDATE runs SET taken = 1 WHERE thread = ?1 AND run IN (SELECT value FROM json_each(?2))")
            .bind(thread.as_str())
            .bind(encode_text(&commit.runs)?)
            .execute(&mut *conn)
            .await?;
    }
    queue::delete(conn, &commit.jobs).await?;
    let Some(rest) = &commit.rest else {
        log.insert(conn, thread, last).await?;
        return Ok(Committed::Running(Incoming { cancel, pause, ..Incoming::default() }));
    };
    self::rest(conn, &commit, rest, log, last).await
}

async fn rest(
    conn: &mut SqliteConnection,
    commit: &StepCommit,
    rest: &RestAs,
    mut log: Log,
    last: i64,
) -> Result<Committed, StoreError> {
    let thread = &commit.thread;
    // Whoever holds the lease releases it only in a transaction that finds
    // nothing left to take up.
    let wake = activate::incoming(conn, thread).await?;
    let goes_on = !wake.is_empty() && !matches!(rest, RestAs::Cancelled | RestAs::Held { .. });
    if goes_on {
        log.insert(conn, thread, last).await?;
        return Ok(Committed::Running(wake));
    }
    let (error, failed_tasks, held_reason) = match rest {
        RestAs::Failed { error, tasks } => (Some(error.as_str()), *tasks, None),
        RestAs::Held { reason } => (None, 0, Some(reason.as_str())),
        RestAs::Parked | RestAs::Succeeded | RestAs::Cancelled => (None, 0, None),
    };
    let told = log.len();
    if matches!(rest, RestAs::Cancelled) {
        points::supersede_all(conn, thread, "cancelled", commit.now, &mut log).await?;
    }
    log.add(What::Status(rest.status().to_owned(), error.or(held_reason).map(str::to_owned)));
    let last: i64 = sqlx::query_scalar(
        "UPDATE threads SET status = ?2, error = ?3, failed_tasks = ?4, held_reason = ?5,
                lease_owner = NULL, lease_until = 0, next_event = next_event + ?6
         WHERE thread = ?1 RETURNING next_event",
    )
    .bind(thread.as_str())
    .bind(rest.status())
    .bind(error)
    .bind(failed_tasks)
    .bind(held_reason)
    .bind(log.len() - told)
    .fetch_one(&mut *conn)
    .await?;
    log.insert(conn, thread, last).await?;
    points::count_open(conn, thread).await?;
    if matches!(rest, RestAs::Held { .. }) {
        // Not ended, only set aside: what was asked for is still to be done.
        threads::hold_runs(conn, thread).await?;
    } else {
        threads::finish_runs(conn, thread, rest.status(), commit.now).await?;
    }
    let operator_cares = match rest {
        RestAs::Held { reason } => Some(("held", json!({"reason": reason}))),
        RestAs::Cancelled => Some(("cancelled", json!({}))),
        RestAs::Parked | RestAs::Failed { .. } | RestAs::Succeeded => None,
    };
    if let Some((action, detail)) = operator_cares {
        audit::append(conn, thread, action, &Principal::service("worker"), &detail, commit.now).await?;
    }
    Ok(Committed::Released)
}

/// The frame column of the root frame.
pub(super) const ROOT: &str = "";

/// Writes a changed body of a checkpoint.
pub(super) async fn put_body(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    frame: &str,
    seq: i64,
    body: &CheckpointBody,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE checkpoints SET body = ?4 WHERE thread = ?1 AND frame = ?2 AND seq = ?3")
        .bind(thread.as_str())
        .bind(frame)
        .bind(seq)
        .bind(encode("checkpoint body", body)?)
        .execute(conn)
        .await?;
    Ok(())
}

pub(super) async fn insert_checkpoint(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    frame: &str,
    new: &NewCheckpoint,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO checkpoints (thread, frame, seq, checkpoint, parent, branch, source, superstep,
                                  graph_version, fingerprint, body, keys, codec, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )
    .bind(thread.as_str())
    .bind(frame)
    .bind(new.seq)
    .bind(new.checkpoint.id.as_str())
    .bind(new.checkpoint.parent.as_ref().map(countersign_kernel::ids::CheckpointId::as_str))
    .bind(new.branch)
    .bind(new.checkpoint.source.as_str())
    .bind(i64::try_from(new.checkpoint.superstep).unwrap_or(i64::MAX))
    .bind(new.graph_version)
    .bind(&new.fingerprint)
    .bind(encode("checkpoint body", &new.body)?)
    .bind(encode("key index", &new.keys)?)
    .bind(PLAIN)
    .bind(new.checkpoint.created_at.as_micros())
    .execute(&mut *conn)
    .await?;
    insert_values(conn, thread, frame, new).await?;
    for (key, change) in &new.changes {
        if let Change::Appended(items) = change {
            insert_items(conn, thread, frame, new, key, items).await?;
        }
    }
    Ok(())
}

/// All replaced values in one statement: each statement costs a change of
/// threads, whatever it writes.
async fn insert_values(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    frame: &str,
    new: &NewCheckpoint,
) -> Result<(), StoreError> {
    let mut values = serde_json::Map::new();
    for (key, change) in &new.changes {
        if let Change::Set(value) = change {
            values.insert(key.clone(), value.to_string().into());
        }
    }
    if values.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO state_values (thread, frame, key, seq, value, codec)
         SELECT ?1, ?2, key, ?3, CAST(value AS BLOB), ?4 FROM json_each(?5)",
    )
    .bind(thread.as_str())
    .bind(frame)
    .bind(new.seq)
    .bind(PLAIN)
    .bind(encode_text(&values)?)
    .execute(conn)
    .await?;
    Ok(())
}

/// All items appended to one key in one statement.
async fn insert_items(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    frame: &str,
    new: &NewCheckpoint,
    key: &str,
    items: &[serde_json::Value],
) -> Result<(), StoreError> {
    let until = match new.keys.get(key) {
        Some(KeyAt::Items(segments)) => segments.last().map_or(0, |(_, until)| *until),
        Some(KeyAt::Value(_)) | None => 0,
    };
    let from = until.saturating_sub(items.len() as u64);
    let texts: Vec<String> = items.iter().map(ToString::to_string).collect();
    sqlx::query(
        "INSERT INTO state_items (thread, frame, key, branch, position, value, codec)
         SELECT ?1, ?2, ?3, ?4, ?5 + key, CAST(value AS BLOB), ?6 FROM json_each(?7)",
    )
    .bind(thread.as_str())
    .bind(frame)
    .bind(key)
    .bind(new.branch)
    .bind(i64::try_from(from).unwrap_or(i64::MAX))
    .bind(PLAIN)
    .bind(encode_text(&texts)?)
    .execute(conn)
    .await?;
    Ok(())
}

pub(super) async fn put_tasks(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    frame: &str,
    seq: i64,
    tasks: &[(String, TaskRecord)],
) -> Result<(), StoreError> {
    for (task, record) in tasks {
        sqlx::query(
            "INSERT INTO tasks (thread, frame, seq, task, status, record, codec) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (thread, frame, seq, task) DO UPDATE SET status = excluded.status, record = excluded.record",
        )
        .bind(thread.as_str())
        .bind(frame)
        .bind(seq)
        .bind(task)
        .bind(record.status.as_str())
        .bind(encode("task record", record)?)
        .bind(PLAIN)
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

pub(super) async fn fenced(conn: &mut SqliteConnection, thread: &ThreadId, fence: Fence) -> Result<(), StoreError> {
    sqlx::query("SELECT 1 FROM threads WHERE thread = ?1 AND fence = ?2 AND lease_owner IS NOT NULL")
        .bind(thread.as_str())
        .bind(fence.0)
        .fetch_optional(conn)
        .await?
        .map(|_| ())
        .ok_or(StoreError::Fenced)
}

pub(super) async fn record_result(conn: &mut SqliteConnection, result: StepResult) -> Result<(), StoreError> {
    fenced(conn, &result.thread, result.fence).await?;
    sqlx::query(
        "INSERT INTO steps (thread, frame, seq, occurrence, name, result, codec, recorded_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (thread, frame, seq, occurrence, name) DO NOTHING",
    )
    .bind(result.thread.as_str())
    .bind(result.frame.as_ref().map_or(ROOT, FrameId::as_str))
    .bind(result.seq)
    .bind(encode_text(&result.occurrence)?)
    .bind(&result.name)
    .bind(encode("step result", &result.result)?)
    .bind(PLAIN)
    .bind(result.now.as_micros())
    .execute(conn)
    .await?;
    Ok(())
}

pub(super) async fn flush(conn: &mut SqliteConnection, flush: Flush, mut log: Log) -> Result<(), StoreError> {
    log.extend(flush.events);
    let last = events::fenced(conn, &flush.thread, flush.fence, &log, false).await?;
    put_tasks(conn, &flush.thread, ROOT, flush.seq, &flush.tasks).await?;
    log.insert(conn, &flush.thread, last).await
}

pub(super) fn encode_text<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Database(error.to_string()))
}
