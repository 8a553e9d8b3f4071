//! Pause switches, limits and the log of operations, as rows.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use serde_json::{Value, json};

use super::super::codec::{decode, parse};
use super::super::commands::controls::micros;
use super::super::commands::{Committed, FlowLimits, HoldBack, Operation, PauseSwitch, Rate, Serves, SwitchOf};
use super::super::db::{self, Conn, Row};
use super::super::events::What;
use super::super::{Controls, Due, StoreError};
use super::events::Log;
use super::tx::Tx;
use super::writer::Locks;
use super::{SqlStore, audit, points, threads, turns};
use crate::queue;

#[async_trait]
impl Controls for SqlStore {
    async fn set_switch(&self, switch: PauseSwitch, id: &str) -> Result<(), StoreError> {
        let id = id.to_owned();
        self.controlled.store(true, Ordering::Relaxed);
        let command = self.writer.run(Locks::default(), move |tx| {
            let (switch, id) = (switch.clone(), id.clone());
            Box::pin(set_switch(tx, switch, id))
        });
        command.await
    }

    async fn end_switch(&self, of: &SwitchOf, by: &Principal, id: &str, now: Timestamp) -> Result<bool, StoreError> {
        let (of, by, id) = (of.clone(), by.clone(), id.to_owned());
        let command = self.writer.run(Locks::default(), move |tx| {
            let (of, by, id) = (of.clone(), by.clone(), id.clone());
            Box::pin(end_switch(tx, of, by, id, now))
        });
        command.await
    }

    async fn switches(&self, now: Timestamp) -> Result<Vec<PauseSwitch>, StoreError> {
        let mut link = self.pools.reading().await?;
        switches(&mut link.conn(), now).await
    }

    async fn set_limits(
        &self,
        graph: &str,
        limits: FlowLimits,
        by: &Principal,
        id: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (graph, by, id) = (graph.to_owned(), by.clone(), id.to_owned());
        self.controlled.store(true, Ordering::Relaxed);
        let command = self.writer.run(Locks::default(), move |tx| {
            let (graph, by, id) = (graph.clone(), by.clone(), id.clone());
            Box::pin(set_limits(tx, graph, limits, by, id, now))
        });
        command.await
    }

    async fn limits(&self) -> Result<Vec<(String, FlowLimits)>, StoreError> {
        let mut link = self.pools.reading().await?;
        limits(&mut link.conn()).await
    }

    async fn hold_back(&self, hold: HoldBack) -> Result<Committed, StoreError> {
        let log = Log::new(self.journal.is_on(), hold.now);
        let thread = hold.thread.clone();
        let command = self.writer.run(Locks::on(&thread), move |tx| {
            let (hold, log) = (hold.clone(), log.clone());
            Box::pin(turns::hold_back(tx, hold, log))
        });
        let held = command.await?;
        self.journal.tell(&thread);
        Ok(held)
    }

    async fn in_turn(&self, serves: &Serves, now: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError> {
        let mut link = self.pools.reading().await?;
        let due = turns::find(&mut link.conn(), serves, now, limit).await?;
        Ok(due.into_iter().map(|(_, due)| due).collect())
    }

    async fn cancelling(&self, worker: &str) -> Result<Vec<ThreadId>, StoreError> {
        let mut link = self.pools.reading().await?;
        cancelling(&mut link.conn(), worker).await
    }

    async fn abandon(&self, asked_before: Timestamp, limit: u32, now: Timestamp) -> Result<u64, StoreError> {
        let found = {
            let mut link = self.pools.reading().await?;
            overdue(&mut link.conn(), asked_before, limit).await?
        };
        let mut abandoned = 0;
        for thread in found {
            let log = Log::new(self.journal.is_on(), now);
            let of = thread.clone();
            let command = self.writer.run(Locks::on(&thread), move |tx| {
                let (thread, log) = (of.clone(), log.clone());
                Box::pin(abandon(tx, thread, asked_before, now, log))
            });
            if command.await? {
                self.journal.tell(&thread);
                abandoned += 1;
            }
        }
        Ok(abandoned)
    }

    async fn operations(&self, limit: u32) -> Result<Vec<Operation>, StoreError> {
        let mut link = self.pools.reading().await?;
        operations(&mut link.conn(), limit).await
    }
}

pub(super) async fn set_switch(tx: &mut Tx<'_>, switch: PauseSwitch, id: String) -> Result<(), StoreError> {
    let of = &switch.of;
    // One that has ended begins anew.
    db::query(
        "INSERT INTO pause_switches (kind, name, node, reason, paused_by, since, ends_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (kind, name, node) DO UPDATE SET reason = excluded.reason, paused_by = excluded.paused_by,
                 ends_at = excluded.ends_at,
                 since = CASE WHEN pause_switches.ends_at <= $6 THEN excluded.since ELSE pause_switches.since END",
    )
    .bind(of.kind())
    .bind(of.name())
    .bind(of.node().unwrap_or_default())
    .bind(&switch.reason)
    .bind(switch.by.as_str())
    .bind(switch.since.as_micros())
    .bind(switch.until.map(Timestamp::as_micros))
    .execute(tx.now().await?)
    .await?;
    let detail = json!({
        "kind": of.kind(), "name": of.name(), "node": of.node(), "reason": switch.reason,
        "until": switch.until.map(Timestamp::as_micros),
    });
    log(tx.now().await?, &id, &switch.by, "paused", &detail, switch.since).await?;
    // Of an end that has moved forward.
    queue::call(tx.now().await?).await
}

pub(super) async fn end_switch(
    tx: &mut Tx<'_>,
    of: SwitchOf,
    by: Principal,
    id: String,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let ends_at: Option<Option<i64>> =
        db::scalar("DELETE FROM pause_switches WHERE kind = $1 AND name = $2 AND node = $3 RETURNING ends_at")
            .bind(of.kind())
            .bind(of.name())
            .bind(of.node().unwrap_or_default())
            .fetch_optional(tx.now().await?)
            .await?;
    let held = ends_at.is_some_and(|ends_at| ends_at.is_none_or(|ends_at| now.as_micros() < ends_at));
    if held {
        let detail = json!({"kind": of.kind(), "name": of.name(), "node": of.node()});
        log(tx.now().await?, &id, &by, "resumed", &detail, now).await?;
        queue::call(tx.now().await?).await?;
    }
    Ok(held)
}

pub(super) async fn switches(conn: &mut Conn<'_>, now: Timestamp) -> Result<Vec<PauseSwitch>, StoreError> {
    let rows = db::query(
        "SELECT kind, name, node, reason, paused_by, since, ends_at FROM pause_switches
         WHERE ends_at IS NULL OR ends_at > $1 ORDER BY kind, name, node",
    )
    .bind(now.as_micros())
    .fetch_all(conn)
    .await?;
    rows.iter().map(switch).collect()
}

fn switch(row: &Row) -> Result<PauseSwitch, StoreError> {
    let (name, node): (String, String) = (row.try_get(1)?, row.try_get(2)?);
    let of = match row.try_get::<String, _>(0)?.as_str() {
        "graph" => SwitchOf::Graph(name),
        "node" => SwitchOf::Node { graph: name, node },
        _ => SwitchOf::Channel(name),
    };
    let until: Option<i64> = row.try_get(6)?;
    Ok(PauseSwitch {
        of,
        reason: row.try_get(3)?,
        by: parse("principal", row.try_get(4)?)?,
        since: Timestamp::from_micros(row.try_get(5)?),
        until: until.map(Timestamp::from_micros),
    })
}

/// Switches that ended by themselves.
pub(super) async fn forget_ended(conn: &mut Conn<'_>, now: Timestamp) -> Result<u64, StoreError> {
    let ended = db::query("DELETE FROM pause_switches WHERE ends_at <= $1").bind(now.as_micros());
    Ok(ended.execute(conn).await?.rows_affected())
}

pub(super) async fn set_limits(
    tx: &mut Tx<'_>,
    graph: String,
    limits: FlowLimits,
    by: Principal,
    id: String,
    now: Timestamp,
) -> Result<(), StoreError> {
    if limits.is_none() {
        db::query("DELETE FROM flow_limits WHERE graph = $1").bind(&graph).execute(tx.now().await?).await?;
        log(tx.now().await?, &id, &by, "unlimited", &json!({"graph": graph}), now).await?;
        return queue::call(tx.now().await?).await;
    }
    let count = |rate: Option<Rate>| rate.map(|rate| rate.count);
    let period = |rate: Option<Rate>| rate.map(|rate| micros(rate.per));
    db::query(
        "INSERT INTO flow_limits (graph, running, key_running, starts, period, key_starts, key_period, set_by, set_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (graph) DO UPDATE SET running = excluded.running, key_running = excluded.key_running,
                 starts = excluded.starts, period = excluded.period, key_starts = excluded.key_starts,
                 key_period = excluded.key_period, set_by = excluded.set_by, set_at = excluded.set_at",
    )
    .bind(&graph)
    .bind(limits.running)
    .bind(limits.key_running)
    .bind(count(limits.starts))
    .bind(period(limits.starts))
    .bind(count(limits.key_starts))
    .bind(period(limits.key_starts))
    .bind(by.as_str())
    .bind(now.as_micros())
    .execute(tx.now().await?)
    .await?;
    // What runs already counts from now on.
    db::query("UPDATE threads SET counted = true WHERE graph = $1 AND status = 'running' AND lease_owner IS NOT NULL")
        .bind(&graph)
        .execute(tx.now().await?)
        .await?;
    let rate =
        |rate: Option<Rate>| rate.map(|rate| json!({"count": rate.count, "per_seconds": rate.per.as_secs_f64()}));
    let detail = json!({
        "graph": graph, "running": limits.running, "key_running": limits.key_running,
        "starts": rate(limits.starts), "key_starts": rate(limits.key_starts),
    });
    log(tx.now().await?, &id, &by, "limited", &detail, now).await?;
    queue::call(tx.now().await?).await
}

/// The columns that [`flow_limits`] reads.
pub(super) const LIMITS: &str = "running, key_running, starts, period, key_starts, key_period";

/// The limits in a row, from this column on.
pub(super) fn flow_limits(row: &Row, at: usize) -> Result<FlowLimits, StoreError> {
    let number = |at: usize| -> Result<Option<u32>, StoreError> {
        Ok(row.try_get::<Option<i64>, _>(at)?.map(|number| u32::try_from(number).unwrap_or(u32::MAX)))
    };
    let rate = |count: usize, period: usize| -> Result<Option<Rate>, StoreError> {
        let period: Option<i64> = row.try_get(period)?;
        Ok(number(count)?.zip(period).map(|(count, period)| Rate {
            count: count.max(1),
            per: Duration::from_micros(u64::try_from(period).unwrap_or(1).max(1)),
        }))
    };
    Ok(FlowLimits {
        running: number(at)?,
        key_running: number(at + 1)?,
        starts: rate(at + 2, at + 3)?,
        key_starts: rate(at + 4, at + 5)?,
    })
}

pub(super) async fn limits(conn: &mut Conn<'_>) -> Result<Vec<(String, FlowLimits)>, StoreError> {
    let rows = db::query(format!("SELECT graph, {LIMITS} FROM flow_limits ORDER BY graph")).fetch_all(conn).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, flow_limits(row, 1)?))).collect()
}

/// Whether claims have to be judged at all.
pub(super) async fn any(conn: &mut Conn<'_>) -> Result<bool, StoreError> {
    db::scalar("SELECT EXISTS (SELECT 1 FROM pause_switches) OR EXISTS (SELECT 1 FROM flow_limits)")
        .fetch_one(conn)
        .await
}

/// Writes down what an operator did.
pub(super) async fn log(
    conn: &mut Conn<'_>,
    id: &str,
    by: &Principal,
    action: &str,
    detail: &Value,
    now: Timestamp,
) -> Result<(), StoreError> {
    db::query("INSERT INTO operations (id, at, actor, action, detail) VALUES ($1, $2, $3, $4, $5)")
        .bind(id)
        .bind(now.as_micros())
        .bind(by.as_str())
        .bind(action)
        .bind(detail.to_string())
        .execute(conn)
        .await?;
    Ok(())
}

pub(super) async fn operations(conn: &mut Conn<'_>, limit: u32) -> Result<Vec<Operation>, StoreError> {
    let rows = db::query("SELECT id, at, actor, action, detail FROM operations ORDER BY at DESC, id DESC LIMIT $1")
        .bind(i64::from(limit))
        .fetch_all(conn)
        .await?;
    rows.iter()
        .map(|row| {
            let id: String = row.try_get(0)?;
            let detail: String = row.try_get(4)?;
            Ok(Operation {
                at: Timestamp::from_micros(row.try_get(1)?),
                actor: parse("principal", row.try_get(2)?)?,
                action: row.try_get(3)?,
                detail: decode("operation", &id, detail.as_bytes())?,
                id,
            })
        })
        .collect()
}

pub(super) async fn cancelling(conn: &mut Conn<'_>, worker: &str) -> Result<Vec<ThreadId>, StoreError> {
    let threads: Vec<String> = db::scalar("SELECT thread FROM threads WHERE cancel_requested AND lease_owner = $1")
        .bind(worker)
        .fetch_all(conn)
        .await?;
    threads.into_iter().map(|thread| parse("thread id", thread)).collect()
}

/// Running threads whose holder should have stopped by now.
pub(super) async fn overdue(
    conn: &mut Conn<'_>,
    asked_before: Timestamp,
    limit: u32,
) -> Result<Vec<ThreadId>, StoreError> {
    let threads: Vec<String> = db::scalar(
        "SELECT thread FROM threads
         WHERE cancel_requested AND lease_owner IS NOT NULL AND cancel_asked_at <= $1 LIMIT $2",
    )
    .bind(asked_before.as_micros())
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await?;
    threads.into_iter().map(|thread| parse("thread id", thread)).collect()
}

/// Cancels a thread over the head of its holder, which has had its time.
pub(super) async fn abandon(
    tx: &mut Tx<'_>,
    thread: ThreadId,
    asked_before: Timestamp,
    now: Timestamp,
    mut log: Log,
) -> Result<bool, StoreError> {
    let cancelled = db::query(
        "UPDATE threads SET status = 'cancelled', held_reason = NULL, failed_tasks = 0, held_back = NULL,
                fence = fence + 1, lease_owner = NULL, lease_until = 0, updated_at = $3
         WHERE thread = $1 AND cancel_requested AND lease_owner IS NOT NULL AND cancel_asked_at <= $2",
    )
    .bind(thread.as_str())
    .bind(asked_before.as_micros())
    .bind(now.as_micros())
    .execute(tx.now().await?)
    .await?;
    if cancelled.rows_affected() == 0 {
        return Ok(false);
    }
    points::supersede_all(tx, &thread, "cancelled", now, &mut log).await?;
    log.add(What::status("cancelled"));
    log.append(tx, &thread).await?;
    tx.finish_runs(&thread, "cancelled", now);
    threads::forget_dead_letter(tx, &thread).await?;
    let detail = json!({"abandoned": true});
    audit::append(tx, &thread, "cancelled", &Principal::service("worker"), &detail, now).await?;
    Ok(true)
}
