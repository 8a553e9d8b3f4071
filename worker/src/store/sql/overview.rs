//! Counting everything, flow by flow.
//!
//! Threads and points are many: they are counted in indexes that hold all that
//! the counts need. What else is counted is what is under way or went wrong.

use std::collections::BTreeMap;

use async_trait::async_trait;
use countersign_kernel::time::Timestamp;

use super::super::StoreError;
use super::super::codec::parse;
use super::super::db::{self, Builder, Conn, Row};
use super::super::overview::{
    AGES, DeadLetter, DeliveryFailure, DueWork, GraphOverview, NAMED, OpenPoints, Overview, Overviews, Trouble,
};
use super::{SqlStore, workers};
use crate::queue::{self, JobKind, Way};

#[async_trait]
impl Overviews for SqlStore {
    async fn overview(&self, now: Timestamp) -> Result<Overview, StoreError> {
        let mut link = self.pools.snapshot().await?;
        look(&mut link.conn(), self.transport.way(), now).await
    }
}

async fn look(conn: &mut Conn<'_>, way: Way, now: Timestamp) -> Result<Overview, StoreError> {
    let mut graphs = threads(conn).await?;
    due_threads(conn, now, &mut graphs).await?;
    due_timers(conn, now, &mut graphs).await?;
    points(conn, now, &mut graphs).await?;
    deliveries(conn, now, &mut graphs).await?;
    dead_letters(conn, &mut graphs).await?;
    for (name, graph) in &mut graphs {
        for (status, list) in [("held", &mut graph.held), ("failed", &mut graph.failed)] {
            if graph.threads.contains_key(status) {
                *list = troubles(conn, name, status).await?;
            }
        }
    }
    let by_status = db::query("SELECT status, count(*) FROM deliveries GROUP BY status").fetch_all(&mut *conn).await?;
    let deliveries = by_status.iter().map(|row| Ok((row.try_get(0)?, unsigned(row, 1)?)));
    Ok(Overview {
        graphs,
        deliveries: deliveries.collect::<Result<_, StoreError>>()?,
        queues: queue::depths(conn, way).await?,
        workers: workers::list(conn).await?,
    })
}

/// The names of the flows that have threads, each found by one step in an index.
async fn names(conn: &mut Conn<'_>) -> Result<Vec<String>, StoreError> {
    db::scalar(
        "WITH RECURSIVE names (name) AS (
             SELECT min(graph) FROM threads
             UNION ALL
             SELECT (SELECT min(graph) FROM threads WHERE graph > name) FROM names WHERE name IS NOT NULL
         )
         SELECT name FROM names WHERE name IS NOT NULL",
    )
    .fetch_all(conn)
    .await
}

/// Most flows that are counted beside each other.
const BESIDE: usize = 12;

/// Threads by flow and status. To group by status, in the order of the index,
/// and count each flow beside the others takes SQLite a quarter of what it takes
/// to group by both.
async fn threads(conn: &mut Conn<'_>) -> Result<BTreeMap<String, GraphOverview>, StoreError> {
    let names = names(conn).await?;
    let mut graphs: BTreeMap<String, GraphOverview> = BTreeMap::new();
    for names in names.chunks(BESIDE) {
        let mut query = Builder::new("SELECT status");
        for name in names {
            query.push(", count(*) FILTER (WHERE graph = ").push_bind(name).push(")");
        }
        query.push(" FROM threads GROUP BY status");
        for row in query.fetch_all(conn).await? {
            let status: String = row.try_get(0)?;
            for (name, column) in names.iter().zip(1..) {
                let graph = graphs.entry(name.clone()).or_default();
                let number = unsigned(&row, column)?;
                if number > 0 {
                    graph.threads.insert(status.clone(), number);
                }
            }
        }
    }
    Ok(graphs)
}

/// Threads that wait for a worker. The second condition on the status is that of
/// the index, which SQLite would not use without.
async fn due_threads(
    conn: &mut Conn<'_>,
    now: Timestamp,
    graphs: &mut BTreeMap<String, GraphOverview>,
) -> Result<(), StoreError> {
    let rows = db::query(
        "SELECT graph, count(*), min(updated_at) FROM threads
         WHERE status = 'queued' AND status IN ('queued', 'running') AND held_back IS NULL AND not_before <= $1
         GROUP BY graph",
    )
    .bind(now.as_micros())
    .fetch_all(&mut *conn)
    .await?;
    for row in rows {
        let due = DueWork { count: unsigned(&row, 1)?, since: at(&row, 2)? };
        graphs.entry(row.try_get(0)?).or_default().due.insert(JobKind::Advance, due);
    }
    let held_back =
        "SELECT graph, count(*) FROM threads WHERE held_back IS NOT NULL AND status = 'queued' GROUP BY graph";
    for row in db::query(held_back).fetch_all(&mut *conn).await? {
        graphs.entry(row.try_get(0)?).or_default().held_back = unsigned(&row, 1)?;
    }
    Ok(())
}

/// Timers that are due and have not acted.
async fn due_timers(
    conn: &mut Conn<'_>,
    now: Timestamp,
    graphs: &mut BTreeMap<String, GraphOverview>,
) -> Result<(), StoreError> {
    let rows = db::query(
        "SELECT h.graph, count(*), min(t.due_at) FROM timers t JOIN threads h ON h.thread = t.thread
         WHERE t.status = 'set' AND t.due_at <= $1 GROUP BY h.graph",
    )
    .bind(now.as_micros())
    .fetch_all(conn)
    .await?;
    for row in rows {
        let due = DueWork { count: unsigned(&row, 1)?, since: at(&row, 2)? };
        graphs.entry(row.try_get(0)?).or_default().due.insert(JobKind::Timer, due);
    }
    Ok(())
}

/// Open points by flow and kind, with how many are younger than each of the
/// ages. A container counts as no point that waits (K18). Left to itself SQLite
/// takes an index that does not hold all of this, and reads the points.
const POINTS: db::Sql = db::either(
    "SELECT graph, kind, count(*), min(asked_at), max(asked_at),
            count(*) FILTER (WHERE asked_at > $1), count(*) FILTER (WHERE asked_at > $2),
            count(*) FILTER (WHERE asked_at > $3), count(*) FILTER (WHERE asked_at > $4)
     FROM interrupts INDEXED BY interrupts_waiting
     WHERE status = 'open' AND kind <> 'container' GROUP BY graph, kind",
    "SELECT graph, kind, count(*), min(asked_at), max(asked_at),
            count(*) FILTER (WHERE asked_at > $1), count(*) FILTER (WHERE asked_at > $2),
            count(*) FILTER (WHERE asked_at > $3), count(*) FILTER (WHERE asked_at > $4)
     FROM interrupts WHERE status = 'open' AND kind <> 'container' GROUP BY graph, kind",
);

async fn points(
    conn: &mut Conn<'_>,
    now: Timestamp,
    graphs: &mut BTreeMap<String, GraphOverview>,
) -> Result<(), StoreError> {
    let mut query = db::query(POINTS);
    for age in AGES {
        let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
        query = query.bind(now.as_micros().saturating_sub(age));
    }
    for row in query.fetch_all(conn).await? {
        let mut points = OpenPoints {
            count: unsigned(&row, 2)?,
            younger: [0; AGES.len()],
            oldest: at(&row, 3)?,
            newest: at(&row, 4)?,
        };
        for (younger, column) in points.younger.iter_mut().zip(5..) {
            *younger = unsigned(&row, column)?;
        }
        graphs.entry(row.try_get(0)?).or_default().points.insert(row.try_get(1)?, points);
    }
    Ok(())
}

/// Messages that are not out, with the thread's flow.
const NOT_OUT: &str = " FROM deliveries d JOIN threads t ON t.thread = d.thread
                        WHERE d.status IN ('pending', 'sending', 'failed')";

async fn deliveries(
    conn: &mut Conn<'_>,
    now: Timestamp,
    graphs: &mut BTreeMap<String, GraphOverview>,
) -> Result<(), StoreError> {
    let mut query = Builder::new(
        "SELECT t.graph, d.channel,
                count(*) FILTER (WHERE d.attempts < CASE d.status WHEN 'pending' THEN 1 WHEN 'sending' THEN 2 ELSE 0 END),
                count(*) FILTER (WHERE d.attempts >= CASE d.status WHEN 'pending' THEN 1 WHEN 'sending' THEN 2 END),
                count(*) FILTER (WHERE d.status = 'failed'),
                count(*) FILTER (WHERE d.status = 'pending' AND d.next_attempt_at <= ",
    );
    query.push_bind(now.as_micros()).push("), min(d.next_attempt_at) FILTER (WHERE d.status = 'pending')");
    query.push(NOT_OUT).push(" GROUP BY t.graph, d.channel");
    for row in query.fetch_all(conn).await? {
        let (name, channel): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let graph = graphs.entry(name.clone()).or_default();
        let due = unsigned(&row, 5)?;
        if due > 0 {
            let more = DueWork { count: due, since: at(&row, 6)? };
            let sum = graph.due.entry(JobKind::Deliver).or_insert(DueWork { count: 0, ..more });
            *sum = DueWork { count: sum.count + more.count, since: sum.since.min(more.since) };
        }
        let failing = unsigned(&row, 3)? + unsigned(&row, 4)? > 0;
        let last_failure = if failing { last_failure(conn, &name, &channel).await? } else { None };
        let found = graph.channels.entry(channel).or_default();
        found.pending = unsigned(&row, 2)?;
        found.retrying = unsigned(&row, 3)?;
        found.failed = unsigned(&row, 4)?;
        found.last_failure = last_failure;
    }
    Ok(())
}

/// What a channel said last. When an attempt ended is not kept; when the next
/// one is due, or the last one was, is in the same order.
async fn last_failure(conn: &mut Conn<'_>, graph: &str, channel: &str) -> Result<Option<DeliveryFailure>, StoreError> {
    let mut query = Builder::new("SELECT d.thread, d.interrupt, d.detail");
    query.push(NOT_OUT).push(" AND d.detail IS NOT NULL AND t.graph = ").push_bind(graph);
    query.push(" AND d.channel = ").push_bind(channel).push(" ORDER BY d.next_attempt_at DESC LIMIT 1");
    let row = query.fetch_optional(conn).await?;
    row.map(|row| {
        Ok(DeliveryFailure {
            thread: parse("thread id", row.try_get(0)?)?,
            interrupt: parse("interrupt id", row.try_get(1)?)?,
            error: row.try_get(2)?,
        })
    })
    .transpose()
}

async fn dead_letters(conn: &mut Conn<'_>, graphs: &mut BTreeMap<String, GraphOverview>) -> Result<(), StoreError> {
    let rows = db::query(
        "SELECT t.graph, count(*) FROM dead_letters d JOIN threads t ON t.thread = d.thread GROUP BY t.graph",
    )
    .fetch_all(&mut *conn)
    .await?;
    for row in rows {
        let name: String = row.try_get(0)?;
        let newest = db::query(
            "SELECT d.thread, d.kind, d.subject, d.reason, d.attempts, d.died_at
             FROM dead_letters d JOIN threads t ON t.thread = d.thread
             WHERE t.graph = $1 ORDER BY d.died_at DESC, d.id LIMIT $2",
        )
        .bind(&name)
        .bind(NAMED)
        .fetch_all(&mut *conn)
        .await?;
        let letters = newest.iter().map(|row| {
            Ok(DeadLetter {
                thread: parse("thread id", row.try_get(0)?)?,
                kind: row.try_get(1)?,
                subject: row.try_get(2)?,
                reason: row.try_get(3)?,
                attempts: unsigned(row, 4)?,
                died_at: at(row, 5)?,
            })
        });
        let graph = graphs.entry(name).or_default();
        graph.dead_letters = letters.collect::<Result<_, StoreError>>()?;
        graph.dead = unsigned(&row, 1)?;
    }
    Ok(())
}

async fn troubles(conn: &mut Conn<'_>, graph: &str, status: &str) -> Result<Vec<Trouble>, StoreError> {
    let rows = db::query(db::either(
        "SELECT thread, coalesce(held_reason, error, ''), updated_at FROM threads INDEXED BY threads_status
         WHERE status = $1 AND graph = $2 ORDER BY created_at DESC, thread DESC LIMIT $3",
        "SELECT thread, coalesce(held_reason, error, ''), updated_at FROM threads
         WHERE status = $1 AND graph = $2 ORDER BY created_at DESC, thread DESC LIMIT $3",
    ))
    .bind(status)
    .bind(graph)
    .bind(NAMED)
    .fetch_all(conn)
    .await?;
    let troubles = rows.iter().map(|row| {
        Ok(Trouble { thread: parse("thread id", row.try_get(0)?)?, reason: row.try_get(1)?, since: at(row, 2)? })
    });
    troubles.collect()
}

fn unsigned(row: &Row, column: usize) -> Result<u64, StoreError> {
    Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0))
}

fn at(row: &Row, column: usize) -> Result<Timestamp, StoreError> {
    Ok(Timestamp::from_micros(row.try_get(column)?))
}
