//! Which processes work on the database.

use std::sync::Arc;

use async_trait::async_trait;
use countersign_kernel::time::Timestamp;
use serde::Serialize;

use super::super::StoreError;
use super::super::codec::decode;
use super::super::commands::Serves;
use super::super::db::{self, Conn, Row};
use super::super::workers::{Heartbeat, LOST_SHOWN, WorkerView, Workers};
use super::SqlStore;
use super::writer::Locks;
use crate::queue::JobKind;
use crate::tally::Tally;

#[async_trait]
impl Workers for SqlStore {
    fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    async fn beat(&self, said: Heartbeat, now: Timestamp) -> Result<(), StoreError> {
        let command = self.writer.run(Locks::default(), move |tx| {
            let said = said.clone();
            Box::pin(async move { beat(tx.now().await?, &said, now).await })
        });
        command.await
    }

    async fn leave(&self, name: &str) -> Result<(), StoreError> {
        let name = name.to_owned();
        let command = self.writer.run(Locks::default(), move |tx| {
            let name = name.clone();
            Box::pin(async move {
                let leave = db::query("DELETE FROM processes WHERE name = $1").bind(name);
                leave.execute(tx.now().await?).await.map(|_| ())
            })
        });
        command.await
    }

    async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        let mut link = self.pools.reading().await?;
        list(&mut link.conn()).await
    }
}

async fn beat(conn: &mut Conn<'_>, said: &Heartbeat, now: Timestamp) -> Result<(), StoreError> {
    let kinds: Vec<&str> = said.serves.kinds.iter().map(|kind| kind.name()).collect();
    db::query(
        "INSERT INTO processes (name, host, pid, version, pages, kinds, graphs, started_at, every, seen_at, running,
                              waiting, done, last_minute)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
         ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, running = excluded.running,
             waiting = excluded.waiting, done = excluded.done, last_minute = excluded.last_minute",
    )
    .bind(&said.name)
    .bind(&said.host)
    .bind(said.pid)
    .bind(&said.version)
    .bind(said.pages)
    .bind(text(&kinds)?)
    .bind(said.serves.graphs.as_ref().map(text).transpose()?)
    .bind(said.started_at.as_micros())
    .bind(i64::try_from(said.every.as_micros()).unwrap_or(i64::MAX))
    .bind(now.as_micros())
    .bind(number(said.running))
    .bind(number(said.waiting))
    .bind(text(&said.done)?)
    .bind(text(&said.last_minute)?)
    .execute(&mut *conn)
    .await?;
    let shown = i64::try_from(LOST_SHOWN.as_micros()).unwrap_or(i64::MAX);
    db::query("DELETE FROM processes WHERE seen_at < $1")
        .bind(now.as_micros().saturating_sub(shown))
        .execute(conn)
        .await?;
    Ok(())
}

pub(super) async fn list(conn: &mut Conn<'_>) -> Result<Vec<WorkerView>, StoreError> {
    let rows = db::query(
        "SELECT name, host, pid, version, pages, kinds, graphs, started_at, every, seen_at, running, waiting, done,
                last_minute FROM processes ORDER BY name",
    )
    .fetch_all(conn)
    .await?;
    rows.iter().map(view).collect()
}

fn view(row: &Row) -> Result<WorkerView, StoreError> {
    let name: String = row.try_get(0)?;
    let kinds: Vec<String> = decode("worker", &name, row.try_get::<String, _>(5)?.as_bytes())?;
    let graphs: Option<String> = row.try_get(6)?;
    let serves = Serves {
        // A newer build may do kinds that this one does not know.
        kinds: kinds.iter().filter_map(|kind| JobKind::from_name(kind)).collect(),
        graphs: graphs.map(|list| decode("worker", &name, list.as_bytes())).transpose()?,
    };
    let unsigned =
        |column: usize| -> Result<u64, StoreError> { Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0)) };
    let beat = Heartbeat {
        host: row.try_get(1)?,
        pid: u32::try_from(row.try_get::<i64, _>(2)?).unwrap_or(0),
        version: row.try_get(3)?,
        pages: row.try_get(4)?,
        serves,
        started_at: Timestamp::from_micros(row.try_get(7)?),
        every: std::time::Duration::from_micros(unsigned(8)?),
        running: unsigned(10)?,
        waiting: unsigned(11)?,
        done: decode("worker", &name, row.try_get::<String, _>(12)?.as_bytes())?,
        last_minute: decode("worker", &name, row.try_get::<String, _>(13)?.as_bytes())?,
        name,
    };
    Ok(WorkerView { beat, seen_at: Timestamp::from_micros(row.try_get(9)?) })
}

fn text(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Database(error.to_string()))
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
