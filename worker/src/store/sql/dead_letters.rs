//! Dead letters, as rows.

use async_trait::async_trait;
use countersign_kernel::ids::{DeliveryId, ThreadId};
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use serde_json::json;

use super::super::StoreError;
use super::super::codec::parse;
use super::super::db::{self, Builder, Conn};
use super::super::dead_letters::{DeadLetter, DeadLetterFilter, DeadLetters};
use super::super::views::Keyset;
use super::tx::Tx;
use super::writer::Locks;
use super::{SqlStore, audit};
use crate::queue::{JobId, JobKind, Message};

#[async_trait]
impl DeadLetters for SqlStore {
    async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        after: Option<&Keyset>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let mut link = self.pools.reading().await?;
        list(&mut link.conn(), filter, after, limit).await
    }

    async fn retry_delivery(
        &self,
        thread: &ThreadId,
        delivery: &DeliveryId,
        by: &Principal,
        job: JobId,
        now: Timestamp,
    ) -> Result<Option<Message>, StoreError> {
        let (thread, delivery, by) = (thread.clone(), delivery.clone(), by.clone());
        let command = self.writer.run(Locks::on(&thread), move |tx| {
            let (thread, delivery, by) = (thread.clone(), delivery.clone(), by.clone());
            Box::pin(retry_delivery(tx, thread, delivery, by, job, now))
        });
        command.await
    }
}

async fn list(
    conn: &mut Conn<'_>,
    filter: &DeadLetterFilter,
    after: Option<&Keyset>,
    limit: u32,
) -> Result<Vec<DeadLetter>, StoreError> {
    let mut query = Builder::new(
        "SELECT l.thread, l.id, l.kind, t.graph, d.channel, l.reason, l.attempts, l.died_at
         FROM dead_letters l JOIN threads t ON t.thread = l.thread
         LEFT JOIN deliveries d ON d.thread = l.thread AND d.delivery = l.subject WHERE true",
    );
    if let Some(kind) = filter.kind {
        query.push(" AND l.kind = ").push_bind(kind.name());
    }
    if let Some(graphs) = &filter.graphs {
        query.push(" AND t.graph IN ").push_list(graphs.iter().map(String::as_str));
    }
    if let Some(channel) = &filter.channel {
        query.push(" AND d.channel = ").push_bind(channel);
    }
    if let Some(before) = filter.before {
        query.push(" AND l.died_at < ").push_bind(before.as_micros());
    }
    if let Some(thread) = &filter.thread {
        query.push(" AND l.thread = ").push_bind(thread.as_str());
    }
    if let Some(id) = &filter.id {
        query.push(" AND l.id = ").push_bind(id);
    }
    if let Some(after) = after {
        query.push(" AND (l.died_at, l.thread || '/' || l.id) > (").push_bind(after.at.as_micros());
        query.push(", ").push_bind(&after.id).push(")");
    }
    query.push(" ORDER BY l.died_at, l.thread || '/' || l.id LIMIT ").push_bind(i64::from(limit));
    let rows = query.fetch_all(conn).await?;
    rows.iter()
        .map(|row| {
            let kind: String = row.try_get(2)?;
            Ok(DeadLetter {
                thread: parse("thread id", row.try_get(0)?)?,
                id: row.try_get(1)?,
                kind: JobKind::from_name(&kind).unwrap_or(JobKind::Advance),
                graph: row.try_get(3)?,
                channel: row.try_get(4)?,
                reason: row.try_get(5)?,
                attempts: u32::try_from(row.try_get::<i64, _>(6)?).unwrap_or(u32::MAX),
                died_at: Timestamp::from_micros(row.try_get(7)?),
            })
        })
        .collect()
}

async fn retry_delivery(
    tx: &mut Tx<'_>,
    thread: ThreadId,
    delivery: DeliveryId,
    by: Principal,
    job: JobId,
    now: Timestamp,
) -> Result<Option<Message>, StoreError> {
    db::query("DELETE FROM dead_letters WHERE thread = $1 AND id = $2 AND kind = 'deliver'")
        .bind(thread.as_str())
        .bind(delivery.as_str())
        .execute(tx.now().await?)
        .await?;
    let wanted = db::query(
        "UPDATE deliveries SET status = 'pending', attempts = 0, next_attempt_at = $3, taken_until = 0,
                finished_at = NULL
         WHERE thread = $1 AND delivery = $2 AND status = 'failed'
           AND EXISTS (SELECT 1 FROM requests r WHERE r.thread = deliveries.thread
                       AND r.interrupt = deliveries.interrupt AND r.status = 'open')",
    )
    .bind(thread.as_str())
    .bind(delivery.as_str())
    .bind(now.as_micros())
    .execute(tx.now().await?)
    .await?;
    if wanted.rows_affected() == 0 {
        return Ok(None);
    }
    audit::append(tx, &thread, "delivery_retried", &by, &json!({"delivery": delivery.as_str()}), now).await?;
    let message = Message::deliver(job, thread, &delivery);
    tx.push(message.clone(), now);
    Ok(Some(message))
}
