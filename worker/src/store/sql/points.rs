//! Interrupts and requests: the projection of the checkpoints that people see.

use std::collections::HashSet;

use countersign_kernel::ids::{FrameId, InterruptId, ThreadId};
use countersign_kernel::ports::Occasion;
use countersign_kernel::question::Answered;
use countersign_kernel::time::Timestamp;

use super::super::codec::{PLAIN, decode, encode, parse};
use super::super::commands::{OpenedPoint, PointEnd};
use super::super::db::{self, Arg, Builder, Conn, Row};
use super::super::events::What;
use super::super::views::{InterruptFilter, InterruptView, Keyset, RequestView};
use super::super::{Refusal, StoreError};
use super::commit::ROOT;
use super::events::Log;
use super::later::Table;
use super::tx::Tx;
use super::{frames, signals, timers};
use crate::queue::{self, Message};

/// Records points that were raised, their requests, and who is told. Says how
/// many of them wait for somebody: a container waits for nothing of its own
/// (K18).
pub(super) async fn open(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    graph: &str,
    seq: i64,
    opened: &[OpenedPoint],
    now: Timestamp,
    log: &mut Log,
) -> Result<i64, StoreError> {
    let known = known(tx, thread, opened).await?;
    let mut waiting = 0;
    let mut signalled = Vec::new();
    for OpenedPoint { point, recipients } in opened {
        if known.iter().any(|id| id == point.id.as_str()) {
            continue;
        }
        let request = point.request();
        let kind = request.as_ref().map_or(point.kind.as_str(), |request| request.question.kind());
        waiting += i64::from(kind != "container");
        let row = vec![
            thread.as_str().into(),
            point.id.as_str().into(),
            point.frame.as_ref().map_or(ROOT, FrameId::as_str).into(),
            seq.into(),
            graph.into(),
            point.address.to_string().into(),
            point.number.into(),
            kind.into(),
            "open".into(),
            encode("payload", &point.payload)?.into(),
            PLAIN.into(),
            point.asked_at.as_micros().into(),
            point.due.map(Timestamp::as_micros).into(),
        ];
        tx.insert(Table::Interrupts, row);
        timers::set(tx, thread, point);
        signalled.extend(point.signal().map(|name| (name, &point.id)));
        log.add(What::Opened(point.id.clone()));
        let Some(request) = request else { continue };
        let (thread_text, id) = (thread.as_str(), point.id.as_str());
        let (hash, need) = (request.content_hash(), request.policy.need);
        let row = vec![thread_text.into(), id.into(), 1_i64.into(), hash.into(), need.into(), "open".into()];
        tx.insert(Table::Requests, row);
        for approver in &request.policy.approvers {
            let asked_at = point.asked_at.as_micros();
            let row = vec![thread_text.into(), id.into(), approver.to_string().into(), asked_at.into()];
            tx.insert(Table::Approvers, row);
        }
        notify(tx, thread, &point.id, recipients, now);
    }
    for (name, id) in signalled {
        signals::take(tx, thread, name, id, now, log).await?;
    }
    Ok(waiting)
}

/// Those among the points that are on record already.
async fn known(tx: &mut Tx<'_>, thread: &ThreadId, opened: &[OpenedPoint]) -> Result<Vec<String>, StoreError> {
    if opened.is_empty() {
        return Ok(Vec::new());
    }
    db::scalar(db::either(
        "SELECT id FROM interrupts WHERE thread = $1 AND id IN (SELECT value FROM json_each($2))",
        "SELECT id FROM interrupts WHERE thread = $1 AND id = ANY ($2)",
    ))
    .bind(thread.as_str())
    .bind(Arg::texts(opened.iter().map(|opened| opened.point.id.as_str())))
    .fetch_all(tx.own())
    .await
}

/// One delivery per recipient and occasion, each with the job that sends it.
fn notify(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    interrupt: &InterruptId,
    recipients: &[(countersign_kernel::ids::DeliveryId, queue::JobId, countersign_kernel::ports::Recipient)],
    now: Timestamp,
) {
    let mut told = HashSet::new();
    for (delivery, job, recipient) in recipients {
        if !told.insert((recipient.channel, recipient.principal.as_str())) {
            continue;
        }
        let row = vec![
            thread.as_str().into(),
            delivery.as_str().into(),
            interrupt.as_str().into(),
            recipient.channel.as_str().into(),
            recipient.principal.as_str().into(),
            recipient.name.as_str().into(),
            recipient.address.as_str().into(),
            Occasion::Asked.as_str().into(),
            "pending".into(),
            now.as_micros().into(),
            now.as_micros().into(),
        ];
        tx.insert(Table::Deliveries, row);
        tx.push(Message::deliver(*job, thread.clone(), delivery), now);
    }
}

/// Records what became of points that closed without an answer of their own,
/// and what a request did to close them, if one did.
pub(super) async fn close(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    closed: &[(InterruptId, PointEnd)],
    by: Option<&str>,
    now: Timestamp,
    log: &mut Log,
) -> Result<(), StoreError> {
    for (id, end) in closed {
        let updated = db::query(
            "UPDATE interrupts SET status = $3, closed_at = $4, closed_by = $5
             WHERE thread = $1 AND id = $2 AND status = 'open'",
        )
        .bind(thread.as_str())
        .bind(id.as_str())
        .bind(end.as_str())
        .bind(now.as_micros())
        .bind(by)
        .execute(tx.now().await?)
        .await?;
        if updated.rows_affected() > 0 {
            log.add(What::Closed(id.clone(), end.as_str().to_owned()));
        }
        close_request(tx, thread, id, "closed").await?;
    }
    if !closed.is_empty() {
        timers::drop_of(tx, thread, closed.iter().map(|(id, _)| id)).await?;
    }
    Ok(())
}

/// A request that is no longer open is in nobody's inbox, and nobody who was
/// not told yet is told.
pub(super) async fn close_request(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    id: &InterruptId,
    status: &str,
) -> Result<(), StoreError> {
    db::query("UPDATE requests SET status = $3 WHERE thread = $1 AND interrupt = $2 AND status = 'open'")
        .bind(thread.as_str())
        .bind(id.as_str())
        .bind(status)
        .execute(tx.now().await?)
        .await?;
    db::query("UPDATE request_approvers SET open = false WHERE thread = $1 AND interrupt = $2")
        .bind(thread.as_str())
        .bind(id.as_str())
        .execute(tx.now().await?)
        .await?;
    db::query(
        "UPDATE deliveries SET status = 'skipped', detail = 'the request closed before it was sent'
         WHERE thread = $1 AND interrupt = $2 AND status = 'pending'",
    )
    .bind(thread.as_str())
    .bind(id.as_str())
    .execute(tx.now().await?)
    .await?;
    Ok(())
}

/// Closes everything that is open in a thread.
pub(super) async fn supersede_all(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    by: &str,
    now: Timestamp,
    log: &mut Log,
) -> Result<(), StoreError> {
    let open: Vec<String> = db::scalar("SELECT id FROM interrupts WHERE thread = $1 AND status = 'open'")
        .bind(thread.as_str())
        .fetch_all(tx.now().await?)
        .await?;
    for id in open {
        let id = parse("interrupt id", id)?;
        close(tx, thread, &[(id, PointEnd::Superseded)], Some(by), now, log).await?;
    }
    // Answers that nobody will run with any more stay on record, consumed.
    db::query("UPDATE answers SET consumed_by = 0 WHERE thread = $1 AND consumed_by IS NULL")
        .bind(thread.as_str())
        .execute(tx.now().await?)
        .await?;
    db::query("UPDATE threads SET open = 0 WHERE thread = $1").bind(thread.as_str()).execute(tx.now().await?).await?;
    Ok(())
}

/// Counts the points of a thread that wait. A container waits for nothing of
/// its own (K18).
pub(super) async fn count_open(tx: &mut Tx<'_>, thread: &ThreadId) -> Result<(), StoreError> {
    db::query(
        "UPDATE threads SET open = (SELECT count(*) FROM interrupts
                                    WHERE thread = $1 AND status = 'open' AND kind <> 'container')
         WHERE thread = $1",
    )
    .bind(thread.as_str())
    .execute(tx.now().await?)
    .await?;
    Ok(())
}

const COLUMNS: &str = "SELECT i.id, i.thread, i.graph, i.address, i.kind, i.status, i.payload, i.deadline, i.asked_at,
       i.closed_at, r.revision, r.content_hash, r.have, r.need, a.answered, i.frame, i.closed_by
FROM interrupts i
LEFT JOIN requests r ON r.thread = i.thread AND r.interrupt = i.id
LEFT JOIN answers a ON a.thread = i.thread AND a.interrupt = i.id";

pub(super) async fn interrupt(conn: &mut Conn<'_>, id: &InterruptId) -> Result<InterruptView, StoreError> {
    let mut query = Builder::new(COLUMNS);
    query.push(" WHERE i.id = ").push_bind(id.as_str());
    let row = query.fetch_optional(&mut *conn).await?.ok_or_else(|| Refusal::UnknownInterrupt(id.clone()))?;
    let mut view = view(&row)?;
    if let Some(request) = &mut view.request {
        request.votes = votes(conn, &view.thread, &view.id).await?;
    }
    Ok(view)
}

pub(super) async fn thread_of(conn: &mut Conn<'_>, id: &InterruptId) -> Result<ThreadId, StoreError> {
    let thread: String = db::scalar("SELECT thread FROM interrupts WHERE id = $1")
        .bind(id.as_str())
        .fetch_optional(conn)
        .await?
        .ok_or_else(|| Refusal::UnknownInterrupt(id.clone()))?;
    parse("thread id", thread)
}

pub(super) async fn votes(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    id: &InterruptId,
) -> Result<Vec<(countersign_kernel::principal::Principal, serde_json::Value, Timestamp)>, StoreError> {
    db::query("SELECT principal, value, voted_at FROM votes WHERE thread = $1 AND interrupt = $2 ORDER BY voted_at")
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
    conn: &mut Conn<'_>,
    filter: &InterruptFilter,
    after: Option<&Keyset>,
    limit: u32,
) -> Result<Vec<InterruptView>, StoreError> {
    let mut query = Builder::new(COLUMNS);
    query.push(" WHERE i.kind <> 'container'");
    if let Some(approvers) = &filter.approvers {
        query
            .push(" AND EXISTS (SELECT 1 FROM request_approvers p WHERE p.thread = i.thread AND p.interrupt = i.id")
            .push(" AND p.approver IN ")
            .push_list(approvers.iter().map(ToString::to_string))
            .push(")");
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
    query.fetch_all(conn).await?.iter().map(view).collect()
}

fn view(row: &Row) -> Result<InterruptView, StoreError> {
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
