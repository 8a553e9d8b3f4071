//! Schedules and their ticks.

use std::time::Duration;

use async_trait::async_trait;
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;

use super::super::codec::{decode, encode, parse};
use super::super::commands::{CatchUp, NextTick, ScheduleSpec, Tick};
use super::super::db::{self, Arg, Builder, Conn, Row};
use super::super::schedules::{ScheduleView, Schedules};
use super::super::{Accepted, StoreError};
use super::SqlStore;
use super::events::Log;
use super::threads;
use super::tx::Tx;
use super::writer::Locks;

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

async fn put(conn: &mut Conn<'_>, spec: &ScheduleSpec, next: NextTick, now: Timestamp) -> Result<(), StoreError> {
    db::query(
        "INSERT INTO schedules (schedule, graph, input, expression, zone, catch_up, catch_within, jitter, paused,
                                next_tick, next_at, changed_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
         ON CONFLICT (schedule) DO UPDATE SET
             graph = excluded.graph, input = excluded.input, catch_up = excluded.catch_up,
             catch_within = excluded.catch_within, jitter = excluded.jitter, changed_at = excluded.changed_at,
             next_tick = CASE WHEN schedules.expression = excluded.expression AND schedules.zone = excluded.zone
                              THEN schedules.next_tick ELSE excluded.next_tick END,
             next_at = CASE WHEN schedules.expression = excluded.expression AND schedules.zone = excluded.zone
                            THEN schedules.next_at ELSE excluded.next_at END,
             expression = excluded.expression, zone = excluded.zone",
    )
    .bind(&spec.name)
    .bind(&spec.graph)
    .bind(encode("schedule input", &spec.input)?)
    .bind(&spec.expression)
    .bind(&spec.zone)
    .bind(spec.catch_up.name())
    .bind(micros(spec.catch_within))
    .bind(micros(spec.jitter))
    .bind(spec.paused)
    .bind(next.instant.as_micros())
    .bind(next.at.as_micros())
    .bind(now.as_micros())
    .execute(conn)
    .await?;
    Ok(())
}

const COLUMNS: &str = "SELECT schedule, graph, input, expression, zone, catch_up, catch_within, jitter, paused,
       next_tick, next_at, last_tick, last_thread, last_error FROM schedules";

fn view(row: &Row) -> Result<ScheduleView, StoreError> {
    let name: String = row.try_get(0)?;
    let time = |column: usize| -> Result<Duration, StoreError> {
        Ok(Duration::from_micros(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0)))
    };
    let last_tick: Option<i64> = row.try_get(11)?;
    let last_thread: Option<String> = row.try_get(12)?;
    Ok(ScheduleView {
        spec: ScheduleSpec {
            graph: row.try_get(1)?,
            input: decode("schedule input", &name, row.try_get(2)?)?,
            expression: row.try_get(3)?,
            zone: row.try_get(4)?,
            catch_up: CatchUp::from_name(&row.try_get::<String, _>(5)?).unwrap_or_default(),
            catch_within: time(6)?,
            jitter: time(7)?,
            paused: row.try_get(8)?,
            name,
        },
        next: NextTick {
            instant: Timestamp::from_micros(row.try_get(9)?),
            at: Timestamp::from_micros(row.try_get(10)?),
        },
        last_tick: last_tick.map(Timestamp::from_micros),
        last_thread: last_thread.map(|thread| parse("thread id", thread)).transpose()?,
        last_error: row.try_get(13)?,
    })
}

async fn tick(tx: &mut Tx<'_>, tick: Tick, log: Log) -> Result<Option<Accepted>, StoreError> {
    let now = tick.now;
    if let Some(expected) = tick.expected {
        let moved = db::query(
            "UPDATE schedules SET next_tick = $3, next_at = $4, last_error = $5
             WHERE schedule = $1 AND next_tick = $2 AND NOT paused",
        )
        .bind(&tick.schedule)
        .bind(expected.as_micros())
        .bind(tick.next.instant.as_micros())
        .bind(tick.next.at.as_micros())
        .bind(tick.error.as_deref())
        .execute(tx.now().await?)
        .await?;
        if moved.rows_affected() == 0 {
            return Ok(None);
        }
    }
    let Some(create) = tick.thread else { return Ok(Some(Accepted::Committed(None))) };
    let thread = create.thread.clone();
    let came = db::query(
        "INSERT INTO ticks (schedule, instant, thread, by_hand, came_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (schedule, instant) DO NOTHING",
    )
    .bind(&tick.schedule)
    .bind(tick.instant.as_micros())
    .bind(thread.as_str())
    .bind(tick.by_hand.as_ref().map(Principal::as_str))
    .bind(now.as_micros())
    .execute(tx.now().await?)
    .await?;
    if came.rows_affected() == 0 {
        // It came before: a schedule that was put back, say.
        return Ok(Some(Accepted::Committed(None)));
    }
    db::query("UPDATE schedules SET last_tick = $2, last_thread = $3 WHERE schedule = $1")
        .bind(&tick.schedule)
        .bind(tick.instant.as_micros())
        .bind(thread.as_str())
        .execute(tx.now().await?)
        .await?;
    let taken = db::query("SELECT 1 FROM threads WHERE thread = $1").bind(thread.as_str());
    if taken.fetch_optional(tx.own()).await?.is_some() {
        // Somebody has a thread of that name; the tick came all the same.
        return Ok(Some(Accepted::Committed(None)));
    }
    threads::create(tx, *create, log).await.map(Some)
}

#[async_trait]
impl Schedules for SqlStore {
    async fn put_schedule(&self, spec: ScheduleSpec, next: NextTick, now: Timestamp) -> Result<(), StoreError> {
        let command = self.writer.run(Locks::default(), move |tx| {
            let spec = spec.clone();
            Box::pin(async move { put(tx.now().await?, &spec, next, now).await })
        });
        command.await
    }

    async fn keep_schedules(&self, names: &[String]) -> Result<u64, StoreError> {
        let names = names.to_vec();
        let command = self.writer.run(Locks::default(), move |tx| {
            let names = Arg::texts(&names);
            Box::pin(async move {
                let forgotten = db::query(db::either(
                    "DELETE FROM schedules WHERE schedule NOT IN (SELECT value FROM json_each($1))",
                    "DELETE FROM schedules WHERE NOT schedule = ANY ($1)",
                ))
                .bind(names)
                .execute(tx.now().await?)
                .await?;
                Ok(forgotten.rows_affected())
            })
        });
        command.await
    }

    async fn schedules(&self) -> Result<Vec<ScheduleView>, StoreError> {
        let mut link = self.pools.reading().await?;
        let mut query = Builder::new(COLUMNS);
        query.push(" ORDER BY schedule");
        query.fetch_all(&mut link.conn()).await?.iter().map(view).collect()
    }

    async fn due_schedules(&self, now: Timestamp) -> Result<(Vec<ScheduleView>, Option<Timestamp>), StoreError> {
        let mut link = self.pools.reading().await?;
        let mut conn = link.conn();
        let mut query = Builder::new(COLUMNS);
        query.push(" WHERE NOT paused AND next_at <= ").push_bind(now.as_micros()).push(" ORDER BY next_at, schedule");
        let due = query.fetch_all(&mut conn).await?.iter().map(view).collect::<Result<_, _>>()?;
        let next: Option<i64> = db::scalar("SELECT min(next_at) FROM schedules WHERE NOT paused AND next_at > $1")
            .bind(now.as_micros())
            .fetch_one(&mut conn)
            .await?;
        Ok((due, next.map(Timestamp::from_micros)))
    }

    async fn tick(&self, command: Tick) -> Result<Option<Accepted>, StoreError> {
        let thread = command.thread.as_ref().map(|create| create.thread.clone());
        let mut locks = Locks::on_all(&thread);
        // Whoever ticks has the schedule's row, in the order of all locks.
        locks.request = Some(format!("schedule\n{}", command.schedule));
        let log = Log::new(self.journal.is_on(), command.now);
        let ticked = self.writer.run(locks, move |tx| Box::pin(tick(tx, command.clone(), log.clone()))).await;
        if let (Ok(Some(_)), Some(thread)) = (&ticked, &thread) {
            self.journal.tell(thread);
        }
        ticked
    }

    async fn pause_schedule(
        &self,
        name: &str,
        paused: bool,
        next: NextTick,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let name = name.to_owned();
        let locks = Locks { request: Some(format!("schedule\n{name}")), ..Locks::default() };
        let command = self.writer.run(locks, move |tx| {
            let name = name.clone();
            Box::pin(async move {
                let changed = db::query(
                    "UPDATE schedules SET paused = $2, changed_at = $5,
                            next_tick = CASE WHEN paused AND NOT $2 THEN $3 ELSE next_tick END,
                            next_at = CASE WHEN paused AND NOT $2 THEN $4 ELSE next_at END
                     WHERE schedule = $1",
                )
                .bind(name)
                .bind(paused)
                .bind(next.instant.as_micros())
                .bind(next.at.as_micros())
                .bind(now.as_micros())
                .execute(tx.now().await?)
                .await?;
                Ok(changed.rows_affected() > 0)
            })
        });
        command.await
    }
}
