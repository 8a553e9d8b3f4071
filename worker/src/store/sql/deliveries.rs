//! Messages to people, one attempt at a time (R23).

use countersign_kernel::ids::{DeliveryId, InterruptId, ThreadId};
use countersign_kernel::ports::{ChannelName, Notice, Occasion, Recipient};
use countersign_kernel::principal::Principal;
use countersign_kernel::question::Request;
use countersign_kernel::time::Timestamp;
use serde_json::{Value, json};

use super::super::StoreError;
use super::super::codec::{decode, parse};
use super::super::commands::DeliveryEnd;
use super::super::db::{self, Builder, Conn};
use super::super::views::{DeliveryTask, DeliveryView};
use super::audit;
use super::tx::Tx;
use crate::queue::{JobId, Message};

pub(super) async fn take(
    tx: &mut Tx<'_>,
    thread: ThreadId,
    delivery: DeliveryId,
    job: Option<JobId>,
    taken_until: Timestamp,
    now: Timestamp,
) -> Result<Option<DeliveryTask>, StoreError> {
    // An attempt that was under way when the request closed is not repeated.
    db::query(
        "UPDATE deliveries SET status = 'skipped', taken_until = 0,
                detail = 'the request closed before it was known to be sent'
         WHERE thread = $1 AND delivery = $2 AND (status = 'pending' OR (status = 'sending' AND taken_until < $3))
           AND NOT EXISTS (SELECT 1 FROM requests r WHERE r.thread = deliveries.thread
                           AND r.interrupt = deliveries.interrupt AND r.status = 'open')",
    )
    .bind(thread.as_str())
    .bind(delivery.as_str())
    .bind(now.as_micros())
    .execute(tx.own())
    .await?;
    let taken = db::query(
        "UPDATE deliveries SET possibly_twice = (possibly_twice OR status = 'sending'), status = 'sending',
                attempts = attempts + 1, taken_until = $3
         WHERE thread = $1 AND delivery = $2
           AND ((status = 'pending' AND next_attempt_at <= $4) OR (status = 'sending' AND taken_until < $4))
           AND NOT EXISTS (SELECT 1 FROM pause_switches WHERE kind = 'channel' AND name = channel
                           AND (ends_at IS NULL OR ends_at > $4))
         RETURNING attempts",
    )
    .bind(thread.as_str())
    .bind(delivery.as_str())
    .bind(taken_until.as_micros())
    .bind(now.as_micros())
    .fetch_optional(tx.own())
    .await?;
    let Some(taken) = taken else {
        tx.delete(job.as_slice());
        return Ok(None);
    };
    let attempt = u32::try_from(taken.try_get::<i64, _>(0)?).unwrap_or(u32::MAX);
    let row = db::query(
        "SELECT d.channel, d.principal, d.name, d.address, i.id, i.graph, i.address, i.payload, i.asked_at, i.deadline,
                r.revision, r.content_hash
         FROM deliveries d
         JOIN interrupts i ON i.thread = d.thread AND i.id = d.interrupt
         JOIN requests r ON r.thread = d.thread AND r.interrupt = d.interrupt
         WHERE d.thread = $1 AND d.delivery = $2",
    )
    .bind(thread.as_str())
    .bind(delivery.as_str())
    .fetch_one(tx.own())
    .await?;
    let payload: Value = decode("payload", delivery.as_str(), row.try_get(7)?)?;
    let request = Request::from_payload(&payload).map_err(|problem| StoreError::Unreadable {
        what: "request",
        of: delivery.to_string(),
        problem: problem.to_string(),
    })?;
    let channel = channel(row.try_get(0)?);
    let deadline: Option<i64> = row.try_get(9)?;
    Ok(Some(DeliveryTask {
        channel,
        notice: Notice {
            delivery,
            occasion: Occasion::Asked,
            thread,
            graph: row.try_get(5)?,
            interrupt: parse("interrupt id", row.try_get(4)?)?,
            printed_address: row.try_get(6)?,
            recipient: Recipient {
                channel,
                principal: parse("principal", row.try_get(1)?)?,
                name: row.try_get(2)?,
                address: row.try_get(3)?,
            },
            request,
            revision: u32::try_from(row.try_get::<i64, _>(10)?).unwrap_or(u32::MAX),
            content_hash: row.try_get(11)?,
            asked_at: Timestamp::from_micros(row.try_get(8)?),
            deadline: deadline.map(Timestamp::from_micros),
            attempt,
        },
    }))
}

fn channel(text: &str) -> ChannelName {
    match text {
        "webhook" => ChannelName::Webhook,
        _ => ChannelName::Email,
    }
}

pub(super) async fn finish(
    tx: &mut Tx<'_>,
    thread: ThreadId,
    delivery: DeliveryId,
    end: DeliveryEnd,
    job: Option<JobId>,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.delete(job.as_slice());
    let (status, detail, next) = match &end {
        DeliveryEnd::Sent { detail } => ("sent", detail, None),
        DeliveryEnd::Retry { error, at, .. } => ("pending", error, Some(*at)),
        DeliveryEnd::Failed { error } => ("failed", error, None),
    };
    let row = db::query(
        "UPDATE deliveries SET status = $3, detail = $4, next_attempt_at = coalesce($5, next_attempt_at),
                taken_until = 0, finished_at = CASE WHEN $5 IS NULL THEN $6 END
         WHERE thread = $1 AND delivery = $2 AND status = 'sending'
         RETURNING attempts, interrupt, channel, principal",
    )
    .bind(thread.as_str())
    .bind(delivery.as_str())
    .bind(status)
    .bind(detail)
    .bind(next.map(Timestamp::as_micros))
    .bind(now.as_micros())
    .fetch_optional(tx.own())
    .await?;
    let Some(row) = row else {
        return Ok(());
    };
    let facts = json!({
        "delivery": delivery.as_str(), "interrupt": row.try_get::<String, _>(1)?,
        "channel": row.try_get::<String, _>(2)?, "to": row.try_get::<String, _>(3)?,
        "attempts": row.try_get::<i64, _>(0)?, "detail": detail,
    });
    let worker = Principal::service("worker");
    match end {
        DeliveryEnd::Sent { .. } => audit::append(tx, &thread, "delivered", &worker, &facts, now).await,
        DeliveryEnd::Retry { at, job, .. } => {
            let message = Message::deliver(job, thread, &delivery).after(at.since(now));
            tx.push(message, now);
            Ok(())
        }
        DeliveryEnd::Failed { error } => {
            db::query(
                "INSERT INTO dead_letters (thread, id, kind, subject, reason, attempts, died_at)
                 VALUES ($1, $2, 'deliver', $2, $3, $4, $5)
                 ON CONFLICT (thread, id) DO UPDATE SET reason = excluded.reason, attempts = excluded.attempts,
                         died_at = excluded.died_at",
            )
            .bind(thread.as_str())
            .bind(delivery.as_str())
            .bind(&error)
            .bind(row.try_get::<i64, _>(0)?)
            .bind(now.as_micros())
            .execute(tx.own())
            .await?;
            audit::append(tx, &thread, "delivery_failed", &worker, &facts, now).await
        }
    }
}

pub(super) async fn list(
    conn: &mut Conn<'_>,
    interrupt: Option<&InterruptId>,
    status: Option<&str>,
    limit: u32,
) -> Result<Vec<DeliveryView>, StoreError> {
    let mut query = Builder::new(
        "SELECT delivery, thread, interrupt, channel, principal, occasion, status, attempts, possibly_twice, detail,
                created_at, finished_at FROM deliveries WHERE true",
    );
    if let Some(interrupt) = interrupt {
        query
            .push(" AND thread = (SELECT thread FROM interrupts WHERE id = ")
            .push_bind(interrupt.as_str().to_owned())
            .push(") AND interrupt = ")
            .push_bind(interrupt.as_str().to_owned());
    }
    if let Some(status) = status {
        query.push(" AND status = ").push_bind(status.to_owned());
    }
    query.push(" ORDER BY created_at, delivery LIMIT ").push_bind(i64::from(limit));
    query
        .fetch_all(conn)
        .await?
        .into_iter()
        .map(|row| {
            let finished_at: Option<i64> = row.try_get(11)?;
            Ok(DeliveryView {
                delivery: parse("delivery id", row.try_get(0)?)?,
                thread: parse("thread id", row.try_get(1)?)?,
                interrupt: parse("interrupt id", row.try_get(2)?)?,
                channel: row.try_get(3)?,
                principal: parse("principal", row.try_get(4)?)?,
                occasion: row.try_get(5)?,
                status: row.try_get(6)?,
                attempts: u32::try_from(row.try_get::<i64, _>(7)?).unwrap_or(u32::MAX),
                possibly_twice: row.try_get(8)?,
                detail: row.try_get(9)?,
                created_at: Timestamp::from_micros(row.try_get(10)?),
                finished_at: finished_at.map(Timestamp::from_micros),
            })
        })
        .collect()
}
