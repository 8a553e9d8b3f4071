//! How large a store is, and of what.

use countersign_kernel::ids::ThreadId;

use super::super::StoreError;
use super::super::codec::parse;
use super::super::db::{self, Conn, Dialect};
use super::SqlStore;

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSize {
    /// Its name.
    pub table: String,
    /// Its rows.
    pub rows: u64,
    /// With its indexes, if the database can say.
    pub bytes: Option<u64>,
}

/// The threads of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphSize {
    /// The flow.
    pub graph: String,
    /// As a thread's.
    pub status: String,
    /// How many.
    pub threads: u64,
    /// Checkpoints of the root frame in all.
    pub checkpoints: u64,
}

/// A thread with a long history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadSize {
    /// Its id.
    pub thread: ThreadId,
    /// The flow.
    pub graph: String,
    /// Checkpoints of the root frame.
    pub checkpoints: u64,
    /// Bytes of its values and items.
    pub state_bytes: u64,
}

/// What a store holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStats {
    /// The tables, largest first.
    pub tables: Vec<TableSize>,
    /// All of the database, with what is free in it.
    pub bytes: u64,
    /// By flow and status.
    pub graphs: Vec<GraphSize>,
    /// The longest histories, longest first.
    pub threads: Vec<ThreadSize>,
}

/// How many threads are named.
const THREADS: i64 = 10;

impl SqlStore {
    /// Measures the store. It reads whole tables: for a look now and then.
    ///
    /// # Errors
    /// Only of the database.
    pub async fn stats(&self) -> Result<StoreStats, StoreError> {
        let mut link = self.pools.snapshot().await?;
        let conn = &mut link.conn();
        Ok(StoreStats {
            tables: tables(conn).await?,
            bytes: bytes(conn).await?,
            graphs: graphs(conn).await?,
            threads: threads(conn).await?,
        })
    }
}

async fn tables(conn: &mut Conn<'_>) -> Result<Vec<TableSize>, StoreError> {
    let names: Vec<String> = db::scalar(db::either(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('public', 'apalis') ORDER BY 1",
    ))
    .fetch_all(conn)
    .await?;
    let mut sizes = Vec::with_capacity(names.len());
    for name in names {
        let bytes = match conn.dialect() {
            // With its indexes, if SQLite was built to tell.
            Dialect::Sqlite => {
                let pages = db::scalar(
                    "SELECT coalesce(sum(pgsize), 0) FROM dbstat
                     WHERE name IN (SELECT name FROM sqlite_master WHERE tbl_name = $1)",
                );
                pages.bind(&name).fetch_one::<i64>(conn).await.ok()
            }
            Dialect::Postgres => {
                let size = db::scalar("SELECT pg_total_relation_size($1::regclass)").bind(&name);
                Some(size.fetch_one::<i64>(conn).await?)
            }
        };
        let rows: i64 = db::scalar(format!("SELECT count(*) FROM {name}")).fetch_one(conn).await?;
        let table = name.rsplit('.').next().unwrap_or(&name).trim_matches('"').to_owned();
        sizes.push(TableSize { table, rows: rows.unsigned_abs(), bytes: bytes.map(i64::unsigned_abs) });
    }
    sizes.sort_by_key(|size| std::cmp::Reverse((size.bytes, size.rows)));
    Ok(sizes)
}

async fn bytes(conn: &mut Conn<'_>) -> Result<u64, StoreError> {
    let bytes: i64 = db::scalar(db::either(
        "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
        "SELECT pg_database_size(current_database())",
    ))
    .fetch_one(conn)
    .await?;
    Ok(bytes.unsigned_abs())
}

async fn graphs(conn: &mut Conn<'_>) -> Result<Vec<GraphSize>, StoreError> {
    let rows = db::query(
        "SELECT t.graph, t.status, count(DISTINCT t.thread), count(c.seq)
         FROM threads t LEFT JOIN checkpoints c ON c.thread = t.thread AND c.frame = ''
         GROUP BY t.graph, t.status ORDER BY t.graph, t.status",
    )
    .fetch_all(conn)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(GraphSize {
                graph: row.try_get(0)?,
                status: row.try_get(1)?,
                threads: row.try_get::<i64, _>(2)?.unsigned_abs(),
                checkpoints: row.try_get::<i64, _>(3)?.unsigned_abs(),
            })
        })
        .collect()
}

async fn threads(conn: &mut Conn<'_>) -> Result<Vec<ThreadSize>, StoreError> {
    let rows = db::query(db::either(
        "SELECT t.thread, t.graph, c.number,
                coalesce((SELECT sum(length(value)) FROM state_values v WHERE v.thread = t.thread), 0)
                + coalesce((SELECT sum(length(value)) FROM state_items i WHERE i.thread = t.thread), 0)
         FROM (SELECT thread, count(*) AS number FROM checkpoints WHERE frame = ''
               GROUP BY thread ORDER BY number DESC, thread LIMIT $1) AS c
         JOIN threads t ON t.thread = c.thread ORDER BY c.number DESC, t.thread",
        "SELECT t.thread, t.graph, c.number,
                (coalesce((SELECT sum(length(value)) FROM state_values v WHERE v.thread = t.thread), 0)
                 + coalesce((SELECT sum(length(value)) FROM state_items i WHERE i.thread = t.thread), 0))::bigint
         FROM (SELECT thread, count(*) AS number FROM checkpoints WHERE frame = ''
               GROUP BY thread ORDER BY number DESC, thread LIMIT $1) AS c
         JOIN threads t ON t.thread = c.thread ORDER BY c.number DESC, t.thread",
    ))
    .bind(THREADS)
    .fetch_all(conn)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(ThreadSize {
                thread: parse("thread id", row.try_get(0)?)?,
                graph: row.try_get(1)?,
                checkpoints: row.try_get::<i64, _>(2)?.unsigned_abs(),
                state_bytes: row.try_get::<i64, _>(3)?.unsigned_abs(),
            })
        })
        .collect()
}
