//! Timers: set and dropped with their points, fired once.

use async_trait::async_trait;
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::machine::Point;
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::principal::Principal;
use countersign_kernel::question::{Answered, Elapsed, Request};
use countersign_kernel::time::Timestamp;
use serde_json::json;

use super::super::codec::parse;
use super::super::commands::{DueTimer, DueTimers, FireTimer, Fired, TimerKind};
use super::super::db::{self, Arg, Conn};
use super::super::{StoreError, Timers};
use super::SqlStore;
use super::events::Log;
use super::later::Table;
use super::tx::Tx;
use super::votes::{self, Entry};
use super::writer::Locks;
use crate::queue::Message;

/// Sets the timer of a point that is opened, if it waits for an instant.
pub(super) fn set(tx: &mut Tx<'_>, thread: &ThreadId, point: &Point) {
    let Some(due) = point.due else { return };
    let kind = if point.kind == PointKind::Sleep { TimerKind::Sleep } else { TimerKind::Deadline };
    let row = vec![
        thread.as_str().into(),
        point.id.as_str().into(),
        kind.name().into(),
        due.as_micros().into(),
        "set".into(),
    ];
    tx.insert(Table::Timers, row);
}

/// Drops the timers of points that close.
pub(super) async fn drop_of<'i>(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    interrupts: impl IntoIterator<Item = &'i InterruptId>,
) -> Result<(), StoreError> {
    db::query(db::either(
        "UPDATE timers SET status = 'dropped'
         WHERE thread = $1 AND status = 'set' AND interrupt IN (SELECT value FROM json_each($2))",
        "UPDATE timers SET status = 'dropped' WHERE thread = $1 AND status = 'set' AND interrupt = ANY ($2)",
    ))
    .bind(thread.as_str())
    .bind(Arg::texts(interrupts.into_iter().map(InterruptId::as_str)))
    .execute(tx.now().await?)
    .await?;
    Ok(())
}

async fn due(conn: &mut Conn<'_>, now: Timestamp, limit: u32) -> Result<DueTimers, StoreError> {
    // Those that are due and the first that is not yet, both by the index.
    let rows = db::query(
        "SELECT * FROM (SELECT due_at, thread, interrupt, kind FROM timers
                        WHERE status = 'set' AND due_at <= $1 ORDER BY due_at LIMIT $2) AS due
         UNION ALL
         SELECT * FROM (SELECT due_at, thread, interrupt, kind FROM timers
                        WHERE status = 'set' AND due_at > $1 ORDER BY due_at LIMIT 1) AS next",
    )
    .bind(now.as_micros())
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await?;
    let mut found = DueTimers::default();
    for row in rows {
        let due_at = Timestamp::from_micros(row.try_get(0)?);
        if due_at > now {
            found.next = Some(due_at);
            continue;
        }
        let kind: String = row.try_get(3)?;
        // A kind of a newer build is for that one to fire.
        let Some(kind) = TimerKind::from_name(&kind) else { continue };
        found.due.push(DueTimer {
            thread: parse("thread id", row.try_get(1)?)?,
            interrupt: parse("interrupt id", row.try_get(2)?)?,
            kind,
            due_at,
        });
    }
    found.due.sort_by_key(|timer| timer.due_at);
    Ok(found)
}

async fn fire(tx: &mut Tx<'_>, fire: FireTimer, mut log: Log) -> Result<Fired, StoreError> {
    let FireTimer { thread, interrupt, kind, job, now } = fire;
    let due_at: Option<i64> = db::scalar(
        "UPDATE timers SET status = 'fired', fired = fired + 1
         WHERE thread = $1 AND interrupt = $2 AND kind = $3 AND status = 'set' AND due_at <= $4
         RETURNING due_at",
    )
    .bind(thread.as_str())
    .bind(interrupt.as_str())
    .bind(kind.name())
    .bind(now.as_micros())
    .fetch_optional(tx.own())
    .await?;
    let Some(due_at) = due_at.map(Timestamp::from_micros) else { return Ok(Fired::Nothing) };
    let asked = votes::find(tx.own(), &interrupt).await?;
    let (elapsed, by) = match kind {
        TimerKind::Sleep => (Elapsed::Answered(None), Principal::timer()),
        TimerKind::Deadline if asked.is_request() => {
            let request = Request::from_payload(&asked.payload);
            (request.map_or(Elapsed::Waits, |request| request.elapsed()), Principal::deadline())
        }
        TimerKind::Deadline => (Elapsed::Answered(None), Principal::deadline()),
    };
    let answered = match elapsed {
        Elapsed::Waits => None,
        Elapsed::Answered(value) => Some(Answered { value, by: vec![by.clone()], at: now }),
    };
    let detail = json!({
        "interrupt": interrupt.as_str(), "kind": asked.kind, "revision": asked.revision, "shown": asked.content_hash,
        "due_at": due_at.as_micros(), "answer": answered.as_ref().and_then(|answered| answered.value.clone()),
        "decides": answered.is_some(),
    });
    let action = match (kind, &answered) {
        (TimerKind::Sleep, _) => "woken",
        (TimerKind::Deadline, Some(_)) => "decided",
        (TimerKind::Deadline, None) => "deadline_passed",
    };
    let wakes = answered.is_some();
    let entry = Entry { action, actor: &by, detail: &detail };
    votes::settle(tx, asked, &interrupt, answered, entry, now, &mut log).await?;
    if !wakes {
        log.append(tx, &thread).await?;
        return Ok(Fired::Passed);
    }
    let message = Message::advance(job, thread);
    votes::wake(tx, &message, now, log).await?;
    Ok(Fired::Answered(message))
}

#[async_trait]
impl Timers for SqlStore {
    async fn due_timers(&self, now: Timestamp, limit: u32) -> Result<DueTimers, StoreError> {
        let mut link = self.pools.reading().await?;
        due(&mut link.conn(), now, limit).await
    }

    async fn fire_timer(&self, command: FireTimer) -> Result<Fired, StoreError> {
        let (thread, log) = (command.thread.clone(), Log::new(self.journal.is_on(), command.now));
        let fired = self.writer.run(Locks::on(&thread), move |tx| Box::pin(fire(tx, command.clone(), log.clone())));
        let fired = fired.await;
        if fired.is_ok() {
            self.journal.tell(&thread);
        }
        fired
    }
}
