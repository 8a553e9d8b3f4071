//! Interrupts and requests: the projection of the checkpoints that people see.

use countersign_kernel::ids::{FrameId, InterruptId, ThreadId};
use countersign_kernel::ports::Occasion;
use countersign_kernel::question::Answered;
use countersign_kernel::time::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row, Sqlite, SqliteConnection};

use super::super::codec::{PLAIN, decode, encode, parse};
use super::super::commands::{OpenedPoint, PointEnd};
use super::super::events::What;
use super::super::views::{InterruptFilter, InterruptView, Keyset, RequestView};
use super::super::{Refusal, StoreError};
use super::commit::ROOT;
use super::events::Log;
use super::frames;
use crate::queue::{self, Message};

/// Records points that were raised, their requests, and who is told.
pub(super) async fn open(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    graph: &str,
    seq: i64,
    opened: &[OpenedPoint],
    now: Timestamp,
    log: &mut Log,
) -> Result<(), StoreError> {
    for OpenedPoint { point, recipients } in opened {
        let request = point.request();
        let kind = request.as_ref().map_or(point.kind.as_str(), |request| request.question.kind());
        let inserted = sqlx::query(
            "INSERT INTO interrupts (thread, id, frame, seq, graph, address, number, kind, status, payload, codec, asked_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'open', ?9, ?10, ?11)
             ON CONFLICT (thread, id) DO NOTHING",
        )
        .bind(thread.as_str())
        .bind(point.id.as_str())
        .bind(point.frame.as_ref().map_or(ROOT, FrameId::as_str))
        .bind(seq)
        .bind(graph)
        .bind(point.address.to_string())
        .bind(point.number)
        .bind(kind)
        .bind(encode("payload", &point.payload)?)
        .bind(PLAIN)
        .bind(point.asked_at.as_micros())
        .execute(&mut *conn)
        .await?;
        if inserted.rows_affected() > 0 {
            log.add(What::Opened(point.id.clone()));
        }
        let Some(request) = request else { continue };
        sqlx::query(
            "INSERT INTO requests (thread, interrupt, revision, content_hash, need, status)
             VALUES (?1, ?2, 1, ?3, ?4, 'open') ON CONFLICT (thread, interrupt) DO NOTHING",
        )
        .bind(thread.as_str())
        .bind(point.id.as_str())
        .bind(request.content_hash())
        .bind(request.policy.need)
        .execute(&mut *conn)
        .await?;
        for approver in &request.policy.approvers {
            sqlx::query(
                "INSERT INTO request_approvers (thread, interrupt, approver, asked_at)
                 VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
            )
            .bind(thread.as_str())
            .bind(point.id.as_str())
            .bind(approver.to_string())
            .bind(point.asked_at.as_micros())
            .execute(&mut *conn)
            .await?;
        }
        notify(conn, thread, &point.id, recipients, now).await?;
    }
    Ok(())
}

/// One delivery per recipient and occasion, each with the job that sends it.
async fn notify(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    interrupt: &InterruptId,
    recipients: &[(countersign_kernel::ids::DeliveryId, queue::JobId, countersign_kernel::ports::Recipient)],
    now: Timestamp,
) -> Result<(), StoreError> {
    let mut messages = Vec::with_capacity(recipients.len());
    for (delivery, job, recipient) in recipients {
        let made = sqlx::query(
            "INSERT INTO deliveries (thread, delivery, interrupt, channel, principal, name, address, occasion,
                                     status, next_attempt_at, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'pending', ?9, ?9)
             ON CONFLICT DO NOTHING",
        )
        .bind(thread.as_str())
        .bind(delivery.as_str())
        .bind(interrupt.as_str())
        .bind(recipient.channel.as_str())
        .bind(recipient.principal.as_str())
        .bind(&recipient.name)
        .bind(&recipient.address)
        .bind(Occasion::Asked.as_str())
        .bind(now.as_micros())
        .execute(&mut *conn)
        .await?
        .rows_affected()
            > 0;
        if made {
            messages.push(Message::deliver(*job, thread.clone(), delivery));
        }
    }
    if !messages.is_empty() {
        queue::push(conn, &messages, now).await?;
    }
    Ok(())
}

/// Records what became of points that closed without an answer of their own,
/// and what a request did to close them, if one did.
pub(super) async fn close(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    closed: &[(InterruptId, PointEnd)],
    by: Option<&str>,
    now: Timestamp,
    log: &mut Log,
) -> Result<(), StoreError> {
    for (id, end) in closed {
        let updated = sqlx::query(
            "UPDATE interrupts SET status = ?3, closed_at = ?4, closed_by = ?5
             WHERE thread = ?1 AND id = ?2 AND status = 'open'",
        )
        .bind(thread.as_str())
        .bind(id.as_str())
        .bind(end.as_str())
        .bind(now.as_micros())
        .bind(by)
        .execute(&mut *conn)
        .await?;
        if updated.rows_affected() > 0 {
            log.add(What::Closed(id.clone(), end.as_str().to_owned()));
        }
        close_request(conn, thread, id, "closed").await?;
    }
    Ok(())
}

/// A request that is no longer open is in nobody's inbox, and nobody who was
/// not told yet is told.
pub(super) async fn close_request(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    id: &InterruptId,
    status: &str,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE requests SET status = ?3 WHERE thread = ?1 AND interrupt = ?2 AND status = 'open'")
        .bind(thread.as_str())
        .bind(id.as_str())
        .bind(status)
        .execute(&mut *conn)
        .await?;
    sqlx::query("UPDATE request_approvers SET open = 0 WHERE thread = ?1 AND interrupt = ?2")
        .bind(thread.as_str())
        .bind(id.as_str())
        .execute(&mut *conn)
        .await?;
    sqlx::query(
        "UPDATE deliveries SET status = 'skipped', detail = 'the request closed before it was sent'
         WHERE thread = ?1 AND interrupt = ?2 AND status = 'pending'",
    )
    .bind(thread.as_str())
    .bind(id.as_str())
    .execute(conn)
    .await?;
    Ok(())
}

/// Closes everything that is open in a thread.
pub(super) async fn supersede_all(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    by: &str,
    now: Timestamp,
    log: &mut Log,
) -> Result<(), StoreError> {
    let open: Vec<String> = sqlx::query_scalar("SELECT id FROM interrupts WHERE thread = ?1 AND status = 'open'")
        .bind(thread.as_str())
        .fetch_all(&mut *conn)
        .await?;
    for id in open {
        let id = parse("interrupt id", id)?;
        close(conn, thread, &[(id, PointEnd::Superseded)], Some(by), now, log).await?;
    }
    // Answers that nobody will run with any more stay on record, consumed.
    sqlx::query("UPDATE answers SET consumed_by = 0 WHERE thread = ?1 AND consumed_by IS NULL")
        .bind(thread.as_str())
        .execute(&mut *conn)
        .await?;
    sqlx::query("UPDATE threads SET open = 0 WHERE thread = ?1").bind(thread.as_str()).execute(conn).await?;
    Ok(())
}

/// Counts the points of a thread that wait. A container waits for nothing of
/// its own (K18).
pub(super) async fn count_open(conn: &mut SqliteConnection, thread: &ThreadId) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE threads SET open = (SELECT count(*) FROM interrupts
                                    WHERE thread = ?1 AND status = 'open' AND kind <> 'container')
         WHERE thread = ?1",
    )
    .bind(thread.as_str())
    .execute(conn)
    .await?;
    Ok(())
}

const COLUMNS: &str = "SELECT i.id, i.thread, i.graph, i.address, i.kind, i.status, i.payload, i.deadline, i.asked_at,
       i.closed_at, r.revision, r.content_hash, r.have, r.need, a.answered, i.frame, i.closed_by
FROM interrupts i
LEFT JOIN requests r ON r.thread = i.thread AND r.interrupt = i.id
LEFT JOIN answers a ON a.thread = i.thread AND a.interrupt = i.id";

pub(super) async fn interrupt(conn: &mut SqliteConnection, id: &InterruptId) -> Result<InterruptView, StoreError> {
    let mut query = QueryBuilder::<Sqlite>::new(COLUMNS);
    query.push(" WHERE i.id = ").push_bind(id.as_str());
    let row = query.build().fetch_optional(&mut *conn).await?.ok_or_else(|| Refusal::UnknownInterrupt(id.clone()))?;
    let mut view = view(&row)?;
    if let Some(request) = &mut view.request {
        request.votes = votes(conn, &view.thread, &view.id).await?;
    }
    Ok(view)
}

pub(super) async fn votes(
    conn: &mut SqliteConnection,
    thread: &ThreadId,
    id: &InterruptId,
) -> Result<Vec<(countersign_kernel::principal::Principal, serde_json::Value, Timestamp)>, StoreError> {
    sqlx::query("SELECT principal, value, voted_at FROM votes WHERE thread = ?1 AND interrupt = ?2 ORDER BY voted_at")
        .bind(thread.as_str())
        .bind(id.as_str())
        .fetch_all(conn)
        .await?
        .into_iter()
        .map(|row| {
            let principal: String = row.try_get(0)?;
            let value = decode("vote", &principal, row.try_get(1)?)?;
            Ok((parse("principal", principal)?, value, Timestamp::from_micros(row.try_get(2)?)))
        })
        .collect()
}

pub(super) async fn interrupts(
    conn: &mut SqliteConnection,
    filter: &InterruptFilter,
    after: Option<&Keyset>,
    limit: u32,
) -> Result<Vec<InterruptView>, StoreError> {
    let mut query = QueryBuilder::<Sqlite>::new(COLUMNS);
    query.push(" WHERE i.kind <> 'container'");
    if let Some(approvers) = &filter.approvers {
        let list = serde_json::to_string(approvers).map_err(|error| StoreError::Database(error.to_string()))?;
        query
            .push(" AND EXISTS (SELECT 1 FROM request_approvers p WHERE p.thread = i.thread AND p.interrupt = i.id")
            .push(" AND p.approver IN (SELECT value FROM json_each(")
            .push_bind(list)
            .push(")))");
    }
    if let Some(status) = &filter.status {
        query.push(" AND i.status = ").push_bind(status.clone());
    }
    if let Some(graph) = &filter.graph {
        query.push(" AND i.graph = ").push_bind(graph.clone());
    }
    if let Some(thread) = &filter.thread {
        query.push(" AND i.thread = ").push_bind(thread.as_str().to_owned());
    }
    if let Some(after) = after {
        query
            .push(" AND (i.asked_at, i.id) > (")
            .push_bind(after.at.as_micros())
            .push(", ")
            .push_bind(after.id.clone())
            .push(")");
    }
    query.push(" ORDER BY i.asked_at, i.id LIMIT ").push_bind(i64::from(limit));
    query.build().fetch_all(conn).await?.iter().map(view).collect()
}

fn view(row: &SqliteRow) -> Result<InterruptView, StoreError> {
    let id: String = row.try_get(0)?;
    let revision: Option<i64> = row.try_get(10)?;
    let number = |column: usize| -> Result<u32, StoreError> {
        Ok(u32::try_from(row.try_get::<i64, _>(column)?).unwrap_or(u32::MAX))
    };
    let request = match revision {
        Some(_) => Some(RequestView {
            revision: number(10)?,
            content_hash: row.try_get(11)?,
            have: number(12)?,
            need: number(13)?,
            votes: Vec::new(),
        }),
        None => None,
    };
    let answered: Option<Vec<u8>> = row.try_get(14)?;
    let deadline: Option<i64> = row.try_get(7)?;
    let closed_at: Option<i64> = row.try_get(9)?;
    Ok(InterruptView {
        payload: decode("payload", &id, row.try_get(6)?)?,
        answered: answered.map(|bytes| decode::<Answered>("answer", &id, &bytes)).transpose()?,
        id: parse("interrupt id", id)?,
        thread: parse("thread id", row.try_get(1)?)?,
        frame: frames::id(row.try_get(15)?)?,
        graph: row.try_get(2)?,
        address: row.try_get(3)?,
        kind: row.try_get(4)?,
        status: row.try_get(5)?,
        deadline: deadline.map(Timestamp::from_micros),
        asked_at: Timestamp::from_micros(row.try_get(8)?),
        closed_at: closed_at.map(Timestamp::from_micros),
        closed_by: row.try_get(16)?,
        request,
    })
}
