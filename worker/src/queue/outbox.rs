//! The statements on the outbox: messages that a Redis is to carry.
//!
//! A row is written in the transaction that made the work and deleted in the
//! one that did it, as a job row is. In between a [relay](super::redis) takes
//! it once and pushes it. What becomes of the message then, the outbox does not
//! know: a row whose work is done otherwise is tidied up.

use std::time::Duration;

use countersign_kernel::time::Timestamp;

use super::rows::QueueDepth;
use super::{JobId, JobKind, Message, QueueError};
use crate::store::db::{self, Arg, Conn, Insert, Kind, Sql};

static OUTBOX: Insert = Insert {
    table: "outbox",
    columns: &[
        ("id", Kind::Text),
        ("thread", Kind::Text),
        ("kind", Kind::Text),
        ("subject", Kind::Text),
        ("run_at", Kind::Int),
        ("created_at", Kind::Int),
    ],
    conflict: "",
};

/// Inserts messages, in the transaction that `conn` is in.
pub(super) async fn push(conn: &mut Conn<'_>, messages: &[(Message, Timestamp)]) -> Result<(), QueueError> {
    let row = |(message, now): &(Message, Timestamp)| {
        let run_at = now.after(message.run_after.unwrap_or(Duration::ZERO));
        vec![
            message.id.to_string().into(),
            message.thread.as_str().into(),
            message.kind.name().into(),
            message.subject.as_deref().into(),
            run_at.as_micros().into(),
            now.as_micros().into(),
        ]
    };
    Ok(OUTBOX.run(conn, messages.iter().map(row).collect()).await?)
}

/// Deletes the rows of messages that were dealt with, in the transaction that
/// `conn` is in. Tells how many there were.
pub(super) async fn delete(conn: &mut Conn<'_>, ids: &[JobId]) -> Result<u64, QueueError> {
    let done = db::query(db::either(
        "DELETE FROM outbox WHERE id IN (SELECT value FROM json_each($1))",
        // Nobody waits for anybody: what is locked is being deleted, or relayed,
        // and then goes when its message finds nothing to do.
        "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE id = ANY ($1) FOR UPDATE SKIP LOCKED)",
    ))
    .bind(texts(ids))
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Whether a message of `kind` is to be relayed that was due at `due`.
pub(super) async fn waits(conn: &mut Conn<'_>, kind: JobKind, due: Timestamp) -> Result<bool, QueueError> {
    let found: Option<i64> = db::scalar(db::either(
        "SELECT 1 FROM outbox WHERE relayed_at IS NULL AND kind = $1 AND run_at <= $2 LIMIT 1",
        "SELECT 1::bigint FROM outbox WHERE relayed_at IS NULL AND kind = $1 AND run_at <= $2 LIMIT 1",
    ))
    .bind(kind.name())
    .bind(due.as_micros())
    .fetch_optional(conn)
    .await?;
    Ok(found.is_some())
}

/// Takes messages of `kind` to be relayed that were due at `due`, the earliest
/// first, at most `limit`. Nobody else is given them: of two relays at once each
/// gets others.
pub(super) async fn take(
    conn: &mut Conn<'_>,
    kind: JobKind,
    due: Timestamp,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Message>, QueueError> {
    let rows = db::query(db::either(
        "UPDATE outbox SET relayed_at = $3 WHERE id IN (
             SELECT id FROM outbox WHERE relayed_at IS NULL AND kind = $1 AND run_at <= $2
             ORDER BY run_at, id LIMIT $4)
         RETURNING run_at, id, thread, subject",
        "UPDATE outbox SET relayed_at = $3 WHERE id IN (
             SELECT id FROM outbox WHERE relayed_at IS NULL AND kind = $1 AND run_at <= $2
             ORDER BY run_at, id LIMIT $4 FOR UPDATE SKIP LOCKED)
         RETURNING run_at, id, thread, subject",
    ))
    .bind(kind.name())
    .bind(due.as_micros())
    .bind(now.as_micros())
    .bind(limit)
    .fetch_all(conn)
    .await?;
    let mut taken = Vec::with_capacity(rows.len());
    for row in rows {
        let (run_at, id): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
        let thread = super::message::thread(row.try_get(2)?);
        let (Ok(job), Some(thread)) = (JobId::parse(&id), thread) else {
            tracing::error!(id, "a row of the outbox is no message; it is not relayed");
            continue;
        };
        let message = Message { id: job, kind, thread, subject: row.try_get(3)?, run_after: None };
        taken.push((run_at, message));
    }
    // What an UPDATE returns has no order.
    taken.sort_by_key(|(run_at, message)| (*run_at, message.id));
    Ok(taken.into_iter().map(|(_, message)| message).collect())
}

/// Puts messages back that were taken and could not be relayed.
pub(super) async fn put_back(conn: &mut Conn<'_>, ids: &[JobId]) -> Result<(), QueueError> {
    db::query(db::either(
        "UPDATE outbox SET relayed_at = NULL WHERE id IN (SELECT value FROM json_each($1))",
        // What is locked is being deleted.
        "UPDATE outbox SET relayed_at = NULL
         WHERE id IN (SELECT id FROM outbox WHERE id = ANY ($1) FOR UPDATE SKIP LOCKED)",
    ))
    .bind(texts(ids))
    .execute(conn)
    .await?;
    Ok(())
}

/// Has all messages relayed again: whoever got them is dead. Tells how many.
pub(super) async fn put_back_all(conn: &mut Conn<'_>) -> Result<u64, QueueError> {
    let put = db::query("UPDATE outbox SET relayed_at = NULL WHERE relayed_at IS NOT NULL").execute(conn).await?;
    Ok(put.rows_affected())
}

/// How long a relayed message may take until somebody looks whether its work
/// was done without it.
const RELAYED_KEPT: Duration = Duration::from_mins(1);

/// Deletes the rows of messages that were relayed a while ago and whose work is
/// done, and of all that were due before `before`: the sweep has long found
/// what there was to do.
pub(super) async fn tidy(conn: &mut Conn<'_>, before: Timestamp, now: Timestamp) -> Result<u64, QueueError> {
    let kept = i64::try_from(RELAYED_KEPT.as_micros()).unwrap_or(i64::MAX);
    // What is locked is being deleted or relayed.
    const OF_NO_USE: &str = "SELECT id FROM outbox
         WHERE run_at < $1
            OR (relayed_at < $2 AND kind = 'advance' AND NOT EXISTS
                   (SELECT 1 FROM threads WHERE threads.thread = outbox.thread AND status IN ('queued', 'running')))
            OR (relayed_at < $2 AND kind = 'deliver' AND NOT EXISTS
                   (SELECT 1 FROM deliveries WHERE deliveries.thread = outbox.thread AND delivery = outbox.subject
                    AND status IN ('pending', 'sending')))";
    let done = db::query(Sql::put_together(
        format!("DELETE FROM outbox WHERE id IN ({OF_NO_USE})"),
        format!("DELETE FROM outbox WHERE id IN ({OF_NO_USE} FOR UPDATE SKIP LOCKED)"),
    ))
    .bind(before.as_micros())
    .bind(now.as_micros().saturating_sub(kept))
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// How full the outbox is, by kind.
pub(super) async fn depths(conn: &mut Conn<'_>) -> Result<Vec<QueueDepth>, QueueError> {
    let rows = db::query(db::either(
        "SELECT kind, sum(relayed_at IS NULL), sum(relayed_at IS NOT NULL), min(run_at),
                min(CASE WHEN relayed_at IS NULL THEN run_at END), min(relayed_at)
         FROM outbox GROUP BY kind",
        "SELECT kind, count(*) FILTER (WHERE relayed_at IS NULL), count(relayed_at), min(run_at),
                min(run_at) FILTER (WHERE relayed_at IS NULL), min(relayed_at)
         FROM outbox GROUP BY kind",
    ))
    .fetch_all(conn)
    .await?;
    QueueDepth::of_rows(&rows, 1)
}

fn texts(ids: &[JobId]) -> Arg {
    Arg::texts(ids.iter().map(ToString::to_string))
}
