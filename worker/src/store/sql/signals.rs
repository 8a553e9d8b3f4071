//! Signals: sent, kept, taken.

use async_trait::async_trait;
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::principal::Principal;
use countersign_kernel::question::Answered;
use countersign_kernel::time::Timestamp;
use serde_json::{Value, json};

use super::super::codec::{PLAIN, decode, encode, parse};
use super::super::commands::SendSignal;
use super::super::db::{self, Conn};
use super::super::{Accepted, Refusal, Signals, StoreError};
use super::SqlStore;
use super::events::Log;
use super::later::Table;
use super::tx::Tx;
use super::votes::{self, Entry};
use super::writer::Locks;
use super::{audit, threads};
use crate::queue::Message;

/// Most signals that are kept for a thread.
const KEPT_MAX: i64 = 10_000;

async fn send(tx: &mut Tx<'_>, command: SendSignal, mut log: Log) -> Result<Accepted, StoreError> {
    if let Some(replay) = threads::replay(tx, command.idempotency.as_ref()).await? {
        return Ok(replay);
    }
    let SendSignal { thread, name, payload, by, now, .. } = &command;
    let row = db::query(
        "SELECT status, (SELECT coalesce(max(position), 0) + 1 FROM signals WHERE thread = $1),
                (SELECT count(*) FROM signals WHERE thread = $1 AND interrupt IS NULL)
         FROM threads WHERE thread = $1",
    )
    .bind(thread.as_str())
    .fetch_optional(tx.own())
    .await?
    .ok_or_else(|| Refusal::UnknownThread(thread.clone()))?;
    if let Some(ended) = threads::ended(&row.try_get::<String, _>(0)?) {
        return Err(Refusal::ThreadEnded(ended).into());
    }
    let (position, kept): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
    let taker = waiting(tx.own(), thread, name).await?;
    if taker.is_none() && kept >= KEPT_MAX {
        return Err(Refusal::SignalsFull { most: KEPT_MAX }.into());
    }
    let row = vec![
        thread.as_str().into(),
        position.into(),
        name.as_str().into(),
        encode("signal", payload)?.into(),
        PLAIN.into(),
        by.as_str().into(),
        now.as_micros().into(),
        taker.as_ref().map(InterruptId::as_str).into(),
    ];
    tx.insert(Table::Signals, row);
    threads::remember(tx, command.idempotency.as_ref(), *now);
    let detail = json!({
        "signal": name, "position": position, "payload": payload,
        "interrupt": taker.as_ref().map(InterruptId::as_str),
    });
    let Some(taker) = taker else {
        audit::append(tx, thread, "signalled", by, &detail, *now).await?;
        return Ok(Accepted::Committed(None));
    };
    let asked = votes::find(tx.own(), &taker).await?;
    let answered = answered(payload.clone(), by.clone(), *now);
    let entry = Entry { action: "signalled", actor: by, detail: &detail };
    votes::settle(tx, asked, &taker, Some(answered), entry, *now, &mut log).await?;
    let message = Message::advance(command.job, thread.clone());
    votes::wake(tx, &message, *now, log).await?;
    Ok(Accepted::Committed(Some(message)))
}

fn answered(payload: Value, by: Principal, at: Timestamp) -> Answered {
    Answered { value: (!payload.is_null()).then_some(payload), by: vec![by], at }
}

/// The point that has waited longest for a signal of this name.
async fn waiting(conn: &mut Conn<'_>, thread: &ThreadId, name: &str) -> Result<Option<InterruptId>, StoreError> {
    let rows = db::query(
        "SELECT id, payload FROM interrupts WHERE thread = $1 AND status = 'open' AND kind = 'signal'
         ORDER BY asked_at, address, number",
    )
    .bind(thread.as_str())
    .fetch_all(conn)
    .await?;
    for row in rows {
        let id: String = row.try_get(0)?;
        let payload: Value = decode("payload", &id, row.try_get(1)?)?;
        if payload.get("signal").and_then(Value::as_str) == Some(name) {
            return parse("interrupt id", id).map(Some);
        }
    }
    Ok(None)
}

/// Gives a point that has just been opened the oldest signal that was kept for
/// it. Says whether there was one: the point is answered then.
pub(super) async fn take(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    name: &str,
    point: &InterruptId,
    now: Timestamp,
    log: &mut Log,
) -> Result<bool, StoreError> {
    let kept = db::query(
        "SELECT position, payload, sent_by FROM signals
         WHERE thread = $1 AND name = $2 AND interrupt IS NULL ORDER BY position LIMIT 1",
    )
    .bind(thread.as_str())
    .bind(name)
    .fetch_optional(tx.own())
    .await?;
    let Some(kept) = kept else { return Ok(false) };
    let position: i64 = kept.try_get(0)?;
    let payload: Value = decode("signal", thread.as_str(), kept.try_get(1)?)?;
    let by: Principal = parse("principal", kept.try_get(2)?)?;
    // With the point in its table.
    db::query("UPDATE signals SET interrupt = $3 WHERE thread = $1 AND position = $2")
        .bind(thread.as_str())
        .bind(position)
        .bind(point.as_str())
        .execute(tx.now().await?)
        .await?;
    let asked = votes::find(tx.own(), point).await?;
    let detail = json!({"signal": name, "position": position, "interrupt": point.as_str()});
    let entry = Entry { action: "signal_taken", actor: &by, detail: &detail };
    votes::settle(tx, asked, point, Some(answered(payload, by.clone(), now)), entry, now, log).await?;
    // What comes next reads the answer.
    tx.now().await?;
    Ok(true)
}

#[async_trait]
impl Signals for SqlStore {
    async fn send_signal(&self, command: SendSignal) -> Result<Accepted, StoreError> {
        let (thread, log) = (command.thread.clone(), Log::new(self.journal.is_on(), command.now));
        let locks = Locks::on(&thread).and_request(command.idempotency.as_ref());
        let sent = self.writer.run(locks, move |tx| Box::pin(send(tx, command.clone(), log.clone()))).await;
        if sent.is_ok() {
            self.journal.tell(&thread);
        }
        sent
    }
}
