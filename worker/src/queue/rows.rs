//! The statements on the carrier's tables.
//!
//! The tables are those of apalis-sqlite 1.0, `Jobs` and `Workers`, and of
//! apalis-postgres 1.0, `apalis.jobs` and `apalis.workers`; the jobs refer to
//! the workers by `lock_by`. The columns used here are checked by this module's
//! tests, which run on the migrated tables.

use apalis::prelude::{Task, TaskBuilder, TaskId};
use apalis_postgres::PostgresStorage;
use apalis_sqlite::SqliteStorage;
use countersign_kernel::time::Timestamp;

use super::{JobId, JobKind, Message, QueueError};
use crate::store::db::{self, Arg, Conn, Insert, Kind, Pools, Row};

/// The carrier's bookkeeping of its migrations on SQLite, apart from that of our own.
/// It must never change: under another name all of them would run again.
const MIGRATIONS_TABLE: &str = "apalis_migrations";

/// Brings the carrier's tables to their present form. Running it again does
/// nothing.
///
/// The migrations of apalis run under a bookkeeping table of their own,
/// because its default is the one of every user of sqlx, where the migrations
/// of the store would look like missing ones. The set-up that apalis offers is
/// not used: it switches `PRAGMA synchronous` off on the connection that it
/// happens to get.
///
/// # Errors
/// The database cannot be written, or a migration that ran there is unknown to
/// this version or differs from what it knows.
pub(crate) async fn migrate(pools: &Pools) -> Result<(), QueueError> {
    match pools {
        Pools::Sqlite { write, .. } => {
            let mut migrations = SqliteStorage::<()>::migrations();
            migrations.dangerous_set_table_name(MIGRATIONS_TABLE);
            migrations.run(write).await?;
        }
        // Keeps its own in the schema `apalis`.
        Pools::Postgres(pool) => PostgresStorage::<()>::migrations().run(pool).await?,
    }
    Ok(())
}

/// Inserts messages, in the transaction that `conn` is in.
pub(super) async fn push(conn: &mut Conn<'_>, messages: &[(Message, Timestamp)]) -> Result<(), QueueError> {
    for kind in JobKind::ALL {
        let tasks = messages
            .iter()
            .filter(|(message, _)| message.kind == kind)
            .map(|(message, now)| task(message, *now))
            .collect::<Result<Vec<_>, _>>()?;
        if tasks.is_empty() {
            continue;
        }
        match conn {
            Conn::Sqlite(_) => {
                let rows = tasks.into_iter().map(|task| sqlite_row(kind, task)).collect();
                JOBS.run(conn, rows).await?;
            }
            Conn::Postgres(conn) => {
                apalis_postgres::queries::push_tasks(&mut **conn, kind.name(), tasks).await.map_err(
                    |error| match error {
                        apalis_postgres::Error::Database(error) => QueueError::Database(error),
                        other => QueueError::Worker(other.to_string()),
                    },
                )?;
            }
        }
    }
    Ok(())
}

/// As apalis-sqlite's own `push_tasks` inserts them, but many by one statement.
static JOBS: Insert = Insert {
    table: "Jobs",
    columns: &[
        ("job", Kind::Bytes),
        ("id", Kind::Text),
        ("job_type", Kind::Text),
        ("status", Kind::Text),
        ("attempts", Kind::Int),
        ("max_attempts", Kind::Int),
        ("run_at", Kind::Int),
        ("priority", Kind::Int),
        ("metadata", Kind::Text),
    ],
    conflict: "",
};

/// The limit that apalis sets where none is asked for; unused (R22).
const ATTEMPTS: i64 = 25;

fn sqlite_row(kind: JobKind, task: Task<Vec<u8>>) -> Vec<Arg> {
    let id = task.task_id().map(ToString::to_string);
    let run_at = task.run_at().and_then(|at| i64::try_from(at).ok());
    vec![
        task.args.into(),
        id.into(),
        kind.name().into(),
        "Pending".into(),
        0_i64.into(),
        ATTEMPTS.into(),
        run_at.into(),
        0_i64.into(),
        "{}".into(),
    ]
}

fn task(message: &Message, now: Timestamp) -> Result<Task<Vec<u8>>, QueueError> {
    Ok(TaskBuilder::new(message.encode()?)
        .task_id(TaskId::from_string(message.id.to_string()))
        .run_at_timestamp(run_at(message, now))
        .build())
}

/// The second at which a message is due: this one, or the first one that does
/// not lie before `now` and the delay.
fn run_at(message: &Message, now: Timestamp) -> u64 {
    let micros = |at: Timestamp| u64::try_from(at.as_micros()).unwrap_or(0);
    match message.run_after {
        None => micros(now) / 1_000_000,
        Some(delay) => micros(now.after(delay)).div_ceil(1_000_000),
    }
}

/// Deletes rows that were fetched before `before` and that nobody dealt with.
pub(super) async fn delete_fetched(conn: &mut Conn<'_>, before: Timestamp) -> Result<u64, QueueError> {
    let done = db::query(db::either(
        "DELETE FROM Jobs WHERE status = 'Queued' AND lock_at < $1",
        "DELETE FROM apalis.jobs WHERE status = 'Queued' AND lock_at < to_timestamp($1)",
    ))
    .bind(before.as_micros() / 1_000_000)
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Deletes rows that were due before `before`, whoever holds them.
pub(super) async fn delete_due(conn: &mut Conn<'_>, before: Timestamp) -> Result<u64, QueueError> {
    let done = db::query(db::either(
        "DELETE FROM Jobs WHERE run_at < $1",
        "DELETE FROM apalis.jobs WHERE run_at < to_timestamp($1)",
    ))
    .bind(before.as_micros() / 1_000_000)
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// Deletes the rows of messages that were dealt with. Tells how many there
/// were.
pub(super) async fn delete(conn: &mut Conn<'_>, ids: &[JobId]) -> Result<u64, QueueError> {
    let done = db::query(db::either(
        "DELETE FROM Jobs WHERE id IN (SELECT value FROM json_each($1))",
        "DELETE FROM apalis.jobs WHERE id = ANY ($1)",
    ))
    .bind(Arg::texts(ids.iter().map(ToString::to_string)))
    .execute(conn)
    .await?;
    Ok(done.rows_affected())
}

/// How full one queue is. Where a Redis carries the messages, this is the state
/// of the outbox: relayed stands for fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueDepth {
    /// The queue.
    pub kind: JobKind,
    /// Messages that nobody fetched (relayed) yet, those that are not due
    /// included.
    pub waiting: u64,
    /// Messages that were fetched (relayed) and whose rows are not deleted yet:
    /// their work is not known to be done.
    pub fetched: u64,
    /// When the earliest of all these was due or will be, to the second.
    pub oldest_run_at: Option<Timestamp>,
    /// When the earliest of those that wait was due or will be.
    pub oldest_waiting_run_at: Option<Timestamp>,
    /// When the first of those that were fetched (relayed) was.
    pub oldest_fetched_at: Option<Timestamp>,
}

impl QueueDepth {
    /// Of rows with these columns: kind, waiting, fetched, and the three times in
    /// order, so many microseconds a unit. One entry for each kind, in order.
    pub(super) fn of_rows(rows: &[Row], unit: i64) -> Result<Vec<Self>, QueueError> {
        let empty = |kind| Self {
            kind,
            waiting: 0,
            fetched: 0,
            oldest_run_at: None,
            oldest_waiting_run_at: None,
            oldest_fetched_at: None,
        };
        let mut depths = JobKind::ALL.map(empty);
        for row in rows {
            let Some(kind) = JobKind::from_name(&row.try_get::<String, _>(0)?) else {
                continue;
            };
            let count = |column: usize| row.try_get::<i64, _>(column).map(|count| u64::try_from(count).unwrap_or(0));
            let time = |column: usize| {
                let time = row.try_get::<Option<i64>, _>(column);
                time.map(|time| time.map(|time| Timestamp::from_micros(time.saturating_mul(unit))))
            };
            depths[kind.index()] = Self {
                kind,
                waiting: count(1)?,
                fetched: count(2)?,
                oldest_run_at: time(3)?,
                oldest_waiting_run_at: time(4)?,
                oldest_fetched_at: time(5)?,
            };
        }
        Ok(depths.to_vec())
    }
}

/// How full the queues are.
pub(super) async fn depths(conn: &mut Conn<'_>) -> Result<Vec<QueueDepth>, QueueError> {
    let rows = db::query(db::either(
        "SELECT job_type, sum(status = 'Pending'), sum(status <> 'Pending'), min(run_at),
                min(CASE WHEN status = 'Pending' THEN run_at END), min(CASE WHEN status <> 'Pending' THEN lock_at END)
         FROM Jobs WHERE status IN ('Pending', 'Queued', 'Running') GROUP BY job_type",
        "SELECT job_type, count(*) FILTER (WHERE status = 'Pending'), count(*) FILTER (WHERE status <> 'Pending'),
                extract(epoch FROM min(run_at))::bigint,
                extract(epoch FROM min(run_at) FILTER (WHERE status = 'Pending'))::bigint,
                extract(epoch FROM min(lock_at) FILTER (WHERE status <> 'Pending'))::bigint
         FROM apalis.jobs WHERE status IN ('Pending', 'Queued', 'Running') GROUP BY job_type",
    ))
    .fetch_all(conn)
    .await?;
    QueueDepth::of_rows(&rows, 1_000_000)
}

/// Gives back every row that a worker holds and forgets all workers. Tells how
/// many rows there were.
pub(super) async fn give_back_all(conn: &mut Conn<'_>) -> Result<u64, QueueError> {
    let given = db::query(db::either(
        "UPDATE Jobs SET status = 'Pending', lock_by = NULL, lock_at = NULL
         WHERE status IN ('Queued', 'Running') OR (status = 'Pending' AND lock_by IS NOT NULL)",
        "UPDATE apalis.jobs SET status = 'Pending', lock_by = NULL, lock_at = NULL
         WHERE status IN ('Queued', 'Running') OR (status = 'Pending' AND lock_by IS NOT NULL)",
    ))
    .execute(&mut *conn)
    .await?;
    db::query(db::either(
        "DELETE FROM Workers WHERE NOT EXISTS (SELECT 1 FROM Jobs WHERE lock_by = Workers.id)",
        "DELETE FROM apalis.workers WHERE NOT EXISTS (SELECT 1 FROM apalis.jobs WHERE lock_by = apalis.workers.id)",
    ))
    .execute(conn)
    .await?;
    Ok(given.rows_affected())
}

/// Gives back the rows that the worker `name` holds and forgets the worker.
/// Tells how many rows there were.
///
/// Each statement takes the connection for itself: a row that a fetch still
/// under way might take in between keeps the worker, because `lock_by` refers
/// to it, and is found by the next call.
pub(super) async fn give_back(conn: &mut Conn<'_>, name: &str) -> Result<u64, QueueError> {
    let given = db::query(db::either(
        "UPDATE Jobs SET status = 'Pending', lock_by = NULL, lock_at = NULL
         WHERE lock_by = $1 AND status IN ('Pending', 'Queued', 'Running')",
        "UPDATE apalis.jobs SET status = 'Pending', lock_by = NULL, lock_at = NULL
         WHERE lock_by = $1 AND status IN ('Pending', 'Queued', 'Running')",
    ))
    .bind(name)
    .execute(&mut *conn)
    .await?;
    db::query(db::either(
        "DELETE FROM Workers WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM Jobs WHERE lock_by = $1)",
        "DELETE FROM apalis.workers WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM apalis.jobs WHERE lock_by = $1)",
    ))
    .bind(name)
    .execute(conn)
    .await?;
    Ok(given.rows_affected())
}

/// Eight random bytes as hex digits, by SQLite's own generator.
pub(super) async fn random_hex(conn: &mut Conn<'_>) -> Result<String, QueueError> {
    Ok(db::scalar(db::either(
        "SELECT lower(hex(randomblob(8)))",
        "SELECT substr(replace(gen_random_uuid()::text, '-', ''), 17)",
    ))
    .fetch_one(conn)
    .await?)
}

/// A row that was removed because it is not a message: its id and the first
/// part of its content, as far as they are text.
#[derive(Debug)]
pub(super) struct Removed {
    pub(super) id: String,
    pub(super) content: String,
}

/// Removes the rows in the queue of `kind` whose id the carrier cannot read.
///
/// Such a row makes every fetch fail that meets it, and is put back by the
/// fetch's rollback: the queue would stand still for ever. The condition is
/// that of [`JobId::parse`]. (Both lengths: the one in characters ends at a
/// NUL, the one in bytes does not.)
pub(super) async fn remove_unreadable(conn: &mut Conn<'_>, kind: JobKind) -> Result<Vec<Removed>, QueueError> {
    let rows = db::query(db::either(
        "DELETE FROM Jobs
         WHERE job_type = $1
           AND (typeof(id) <> 'text' OR length(id) <> 26 OR length(CAST(id AS BLOB)) <> 26
                OR id GLOB '*[^0-9A-HJKMNP-TV-Z]*' OR id > '7ZZZZZZZZZZZZZZZZZZZZZZZZZ')
         RETURNING CAST(id AS BLOB), substr(CAST(job AS BLOB), 1, 400)",
        "DELETE FROM apalis.jobs
         WHERE job_type = $1 AND id !~ '^[0-7][0-9A-HJKMNP-TV-Z]{25}$'
         RETURNING convert_to(id, 'UTF8'), substr(job, 1, 400)",
    ))
    .bind(kind.name())
    .fetch_all(conn)
    .await?;
    rows.iter()
        .map(|row| {
            let text = |column: usize| -> Result<String, QueueError> {
                Ok(String::from_utf8_lossy(&row.try_get::<Vec<u8>, _>(column)?).into_owned())
            };
            Ok(Removed { id: text(0)?, content: text(1)? })
        })
        .collect()
}

/// Removes one row that was fetched and turned out to be no message.
pub(super) async fn remove(conn: &mut Conn<'_>, id: &str) -> Result<(), QueueError> {
    db::query(db::either("DELETE FROM Jobs WHERE id = $1", "DELETE FROM apalis.jobs WHERE id = $1"))
        .bind(id)
        .execute(conn)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use countersign_kernel::ids::ThreadId;

    use super::*;

    #[test]
    fn a_delay_is_never_shortened_by_the_whole_seconds() {
        let now = Timestamp::from_micros(10_400_000);
        let message = Message::advance(JobId::new(0, 0), ThreadId::parse("t").unwrap());
        assert_eq!(run_at(&message, now), 10);
        for (millis, second) in [(0, 11), (1, 11), (600, 11), (601, 12), (1_000, 12)] {
            let later = message.clone().after(Duration::from_millis(millis));
            assert_eq!(run_at(&later, now), second, "{millis} ms");
        }
        assert_eq!(run_at(&message, Timestamp::from_micros(-5)), 0);
    }
}
