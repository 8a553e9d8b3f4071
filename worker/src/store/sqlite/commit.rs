//! One transaction per superstep.

use countersign_kernel::ids::ThreadId;
use countersign_kernel::machine::TaskRecord;
use countersign_kernel::principal::Principal;
use countersign_kernel::state::Change;
use serde_json::json;
use sqlx::{Row, SqliteConnection};

use super::super::StoreError;
use super::super::codec::{PLAIN, encode};
use super::super::commands::{Committed, Fence, Flush, Incoming, KeyAt, NewCheckpoint, RestAs, StepCommit, StepResult};
use super::{activate, audit, points, threads};
use crate::queue;

pub(super) async fn commit(conn: &mut SqliteConnection, commit: StepCommit) -> Result<Committed, StoreError> {
    let thread = &commit.thread;
    let progress = commit.checkpoint.is_some() || commit.rest.is_some();
    // The fence is checked by the first write: no row, no lease.
    let head = commit.checkpoint.as_ref();
    let row = sqlx::query(
        "UPDATE threads SET
             head = coalesce(?3, head), head_seq = coalesce(?4, head_seq), branch = coalesce(?5, branch),
             graph_version = coalesce(?6, graph_version), fingerprint = coalesce(?7, fingerprint),
             attempts = CASE WHEN ?8 THEN 0 ELSE attempts END,
             not_before = CASE WHEN ?8 THEN 0 ELSE not_before END,
             pause_requested = CASE WHEN ?9 THEN 0 ELSE pause_requested END,
             updated_at = ?10
         WHERE thread = ?1 AND fence = ?2 AND lease_owner IS NOT NULL
         RETURNING cancel_requested, pause_requested",
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
    .fetch_optional(&mut *conn)
    .await?
    .ok_or(StoreError::Fenced)?;
    let cancel = row.try_get::<i64, _>(0)? != 0;
    let pause = row.try_get::<i64, _>(1)? != 0;

    if let Some(new) = &commit.checkpoint {
        insert_checkpoint(conn, thread, new).await?;
    }
    if let Some(body) = &commit.body {
        sqlx::query("UPDATE checkpoints SET body = ?3 WHERE thread = ?1 AND frame = '' AND seq = ?2")
            .bind(thread.as_str())
            .bind(commit.seq)
            .bind(encode("checkpoint body", body)?)
            .execute(&mut *conn)
            .await?;
    }
    put_tasks(conn, thread, commit.seq, &commit.tasks).await?;
    points::close(conn, thread, &commit.closed, commit.now).await?;
    points::open(conn, thread, &commit.graph, commit.seq, &commit.opened, commit.now).await?;
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
        return Ok(Committed::Running(Incoming { cancel, pause, ..Incoming::default() }));
    };
    self::rest(conn, &commit, rest).await
}

async fn rest(conn: &mut SqliteConnection, commit: &StepCommit, rest: &RestAs) -> Result<Committed, StoreError> {
    let thread = &commit.thread;
    // Whoever holds the lease releases it only in a transaction that finds
    // nothing left to take up.
    let wake = activate::incoming(conn, thread).await?;
    let goes_on = !wake.is_empty() && !matches!(rest, RestAs::Cancelled | RestAs::Held { .. });
    if goes_on {
        return Ok(Committed::Running(wake));
    }
    let (error, failed_tasks, held_reason) = match rest {
        RestAs::Failed { error, tasks } => (Some(error.as_str()), *tasks, None),
        RestAs::Held { reason } => (None, 0, Some(reason.as_str())),
        RestAs::Parked | RestAs::Succeeded | RestAs::Cancelled => (None, 0, None),
    };
    if matches!(rest, RestAs::Cancelled) {
        points::supersede_all(conn, thread, commit.now).await?;
    }
    sqlx::query(
        "UPDATE threads SET status = ?2, error = ?3, failed_tasks = ?4, held_reason = ?5,
                open = (SELECT count(*) FROM interrupts WHERE thread = ?1 AND status = 'open'),
                lease_owner = NULL, lease_until = 0
         WHERE thread = ?1",
    )
    .bind(thread.as_str())
    .bind(rest.status())
    .bind(error)
    .bind(failed_tasks)
    .bind(held_reason)
    .execute(&mut *conn)
    .await?;
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

pub(super) async fn insert_checkpoint(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    new: &NewCheckpoint,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO checkpoints (thread, frame, seq, checkpoint, parent, branch, source, superstep,
                                  graph_version, fingerprint, body, keys, codec, created_at)
         VALUES (?1, '', ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )
    .bind(thread.as_str())
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
    insert_values(conn, thread, new).await?;
    for (key, change) in &new.changes {
        if let Change::Appended(items) = change {
            insert_items(conn, thread, new, key, items).await?;
        }
    }
    Ok(())
}

/// All replaced values in one statement: each statement costs a change of
/// threads, whatever it writes.
async fn insert_values(conn: &mut SqliteConnection, thread: &ThreadId, new: &NewCheckpoint) -> Result<(), StoreError> {
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
         SELECT ?1, '', key, ?2, CAST(value AS BLOB), ?3 FROM json_each(?4)",
    )
    .bind(thread.as_str())
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
         SELECT ?1, '', ?2, ?3, ?4 + key, CAST(value AS BLOB), ?5 FROM json_each(?6)",
    )
    .bind(thread.as_str())
    .bind(key)
    .bind(new.branch)
    .bind(i64::try_from(from).unwrap_or(i64::MAX))
    .bind(PLAIN)
    .bind(encode_text(&texts)?)
    .execute(conn)
    .await?;
    Ok(())
}

async fn put_tasks(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    seq: i64,
    tasks: &[(String, TaskRecord)],
) -> Result<(), StoreError> {
    for (task, record) in tasks {
        sqlx::query(
            "INSERT INTO tasks (thread, frame, seq, task, status, record, codec) VALUES (?1, '', ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (thread, frame, seq, task) DO UPDATE SET status = excluded.status, record = excluded.record",
        )
        .bind(thread.as_str())
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

async fn fenced(conn: &mut SqliteConnection, thread: &ThreadId, fence: Fence) -> Result<(), StoreError> {
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
         VALUES (?1, '', ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (thread, frame, seq, occurrence, name) DO NOTHING",
    )
    .bind(result.thread.as_str())
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

pub(super) async fn flush(conn: &mut SqliteConnection, flush: Flush) -> Result<(), StoreError> {
    fenced(conn, &flush.thread, flush.fence).await?;
    put_tasks(conn, &flush.thread, flush.seq, &flush.tasks).await
}

fn encode_text<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Database(error.to_string()))
}
