//! Moving a store to another database.
//!
//! Everything is copied in one transaction of the target, from one moment of
//! the source: a copy that breaks off leaves nothing behind and is started
//! again. Which tables and columns there are is read from the databases, so
//! that a migration needs no change here.

use std::collections::{BTreeMap, BTreeSet};

use countersign_kernel::ids::ThreadId;
use countersign_kernel::time::Timestamp;

use super::super::StoreError;
use super::super::codec::parse;
use super::super::db::{self, Arg, Conn, Dialect, Insert, Kind, Row};
use super::{SqlStore, audit};

/// What is made anew where it is needed: jobs by the sweep, processes by
/// themselves; and the bookkeeping of migrations, which the target has.
const LEFT: [&str; 3] = ["countersign_migrations", "outbox", "processes"];

/// Most bytes of a page that are looked for: pages grow and shrink towards it.
const PAGE_BYTES: usize = 4 << 20;
/// Most rows of a page.
const PAGE_ROWS: i64 = 512;

/// Why a store was not copied. The target is as it was.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CopyError {
    /// The target holds something.
    #[error("the target is not empty: its table `{table}` has rows; name a new database")]
    NotEmpty {
        /// Which table has rows.
        table: String,
    },
    /// Somebody works on the source.
    #[error("the source is in use: {0}; stop all its processes first")]
    InUse(String),
    /// The two have other tables.
    #[error("the table `{table}` differs between the two databases; bring both up to date with `countersign migrate`")]
    Differs {
        /// Which.
        table: String,
    },
    /// What was copied is not what is there.
    #[error("the copy of the table `{table}` has {copied} rows instead of {rows}")]
    Miscounted {
        /// Which.
        table: String,
        /// Rows in the source.
        rows: u64,
        /// Rows in the target.
        copied: u64,
    },
    /// An audit chain does not hold.
    #[error("the audit chain of the thread `{thread}` does not hold from entry {entry} on; it is broken in the source")]
    Broken {
        /// Of which thread.
        thread: ThreadId,
        /// The first entry that does not follow.
        entry: i64,
    },
    /// A database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Rows by table, in the order in which they were copied.
    pub tables: Vec<(String, u64)>,
    /// Threads whose audit chains were recomputed in the target, and hold.
    pub chains: u64,
}

/// A table, as the catalogue has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Table {
    columns: BTreeMap<String, Kind>,
    key: Vec<String>,
    refers_to: BTreeSet<String>,
}

impl SqlStore {
    /// Copies all of this store, which nobody may work on, into another, which
    /// must be empty. `progress` hears of each table as it is copied, and how
    /// many rows there are so far. Ids, salts and chains stay the same, so links
    /// stay valid under the same keys.
    ///
    /// # Errors
    /// As [`CopyError`]; nothing was written.
    pub async fn copy_to(
        &self,
        target: &Self,
        now: Timestamp,
        progress: &mut (dyn FnMut(&str, u64) + Send),
    ) -> Result<Copied, CopyError> {
        let mut source = self.pools.snapshot().await?;
        unused(&mut source.conn(), now).await?;
        let mut link = target.pools.writing().await?;
        let mut into = link.conn();
        into.control(match into.dialect() {
            Dialect::Sqlite => "BEGIN IMMEDIATE",
            // Nobody begins to work on it meanwhile.
            Dialect::Postgres => "BEGIN; LOCK TABLE threads IN ACCESS EXCLUSIVE MODE",
        })
        .await?;
        let copied = match copy(&mut source.conn(), &mut into, progress).await {
            // What wrote the source meanwhile is not in the copy.
            Ok(copied) => self.still_unused(now).await.map(|()| copied),
            Err(error) => Err(error),
        };
        into.control(if copied.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
        copied
    }

    async fn still_unused(&self, now: Timestamp) -> Result<(), CopyError> {
        let mut now_there = self.pools.reading().await?;
        unused(&mut now_there.conn(), now).await
    }
}

/// Refuses a source that somebody works on.
async fn unused(conn: &mut Conn<'_>, now: Timestamp) -> Result<(), CopyError> {
    let leased: i64 = db::scalar("SELECT count(*) FROM threads WHERE lease_owner IS NOT NULL AND lease_until >= $1")
        .bind(now.as_micros())
        .fetch_one(conn)
        .await?;
    if leased > 0 {
        return Err(CopyError::InUse(format!("{leased} of its threads are being run")));
    }
    // A process renews its row in time; one that has missed three is gone.
    let names: Vec<String> = db::scalar("SELECT name FROM processes WHERE seen_at + 3 * every >= $1 ORDER BY name")
        .bind(now.as_micros())
        .fetch_all(conn)
        .await?;
    if names.is_empty() { Ok(()) } else { Err(CopyError::InUse(format!("{} works on it", names.join(", ")))) }
}

async fn copy(
    source: &mut Conn<'_>,
    target: &mut Conn<'_>,
    progress: &mut (dyn FnMut(&str, u64) + Send),
) -> Result<Copied, CopyError> {
    let (from, to) = (tables(source).await?, tables(target).await?);
    for table in from.keys().chain(to.keys()) {
        let same = from
            .get(table)
            .zip(to.get(table))
            .is_some_and(|(from, to)| from.key == to.key && from.columns.keys().eq(to.columns.keys()));
        if !same {
            return Err(CopyError::Differs { table: table.clone() });
        }
    }
    for table in to.keys() {
        if count(target, table).await? > 0 {
            return Err(CopyError::NotEmpty { table: table.clone() });
        }
    }
    let mut done = Vec::new();
    for name in in_order(&to) {
        // SQLite keeps flags as numbers.
        let kinds = |column: &str| {
            let kinds = [from[&name].columns[column], to[&name].columns[column]];
            if kinds.contains(&Kind::Bool) { Kind::Bool } else { kinds[0] }
        };
        let columns: Vec<(String, Kind)> =
            from[&name].columns.keys().map(|column| (column.clone(), kinds(column))).collect();
        let rows = copy_table(source, target, &name, &columns, &from[&name].key, progress).await?;
        let (there, copied) = (count(source, &name).await?, count(target, &name).await?);
        if (there, rows) != (copied, copied) {
            return Err(CopyError::Miscounted { table: name, rows: there, copied });
        }
        done.push((name, rows));
    }
    // Each data folder has an administrator's token of its own, and puts it into
    // whatever database it starts on.
    db::query("DELETE FROM api_tokens WHERE name = 'admin' OR name LIKE 'admin:%'").execute(target).await?;
    let chains = verify(target).await?;
    Ok(Copied { tables: done, chains })
}

async fn copy_table(
    source: &mut Conn<'_>,
    target: &mut Conn<'_>,
    name: &str,
    columns: &[(String, Kind)],
    key: &[String],
    progress: &mut (dyn FnMut(&str, u64) + Send),
) -> Result<u64, StoreError> {
    let list = columns.iter().map(|(column, _)| column.as_str()).collect::<Vec<_>>().join(", ");
    let order = key.join(", ");
    let marks = (1..=key.len()).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ");
    let last = key.len() + 1;
    let first_page = format!("SELECT {list} FROM {name} ORDER BY {order} LIMIT $1");
    let next_page = format!("SELECT {list} FROM {name} WHERE ({order}) > ({marks}) ORDER BY {order} LIMIT ${last}");
    let places: Vec<usize> =
        key.iter().filter_map(|key| columns.iter().position(|(column, _)| column == key)).collect();
    let insert = insert(name, columns);
    let (mut rows, mut limit) = (0, 16);
    let mut after: Option<Vec<Arg>> = None;
    loop {
        let page = match &after {
            None => db::query(first_page.clone()),
            Some(after) => after.iter().cloned().fold(db::query(next_page.clone()), db::Query::bind),
        };
        let page = page.bind(limit).fetch_all(source).await?;
        let found = i64::try_from(page.len()).unwrap_or(i64::MAX);
        let page: Vec<Vec<Arg>> = page.iter().map(|row| values(row, columns)).collect::<Result<_, _>>()?;
        let Some(end) = page.last() else { break };
        after = Some(places.iter().map(|place| end[*place].clone()).collect());
        let bytes: usize = page.iter().flatten().map(size).sum();
        insert.run(target, page).await?;
        rows += found.unsigned_abs();
        progress(name, rows);
        if found < limit {
            break;
        }
        limit = if bytes > PAGE_BYTES { (limit / 4).max(1) } else { (limit * 2).min(PAGE_ROWS) };
    }
    Ok(rows)
}

/// The values of a row, as they are stored.
fn values(row: &Row, columns: &[(String, Kind)]) -> Result<Vec<Arg>, StoreError> {
    let value = |(at, (_, kind)): (usize, &(String, Kind))| {
        Ok(match kind {
            Kind::Text => Arg::Text(row.try_get(at)?),
            Kind::Int => Arg::Int(row.try_get(at)?),
            Kind::Bool => Arg::Bool(row.try_get(at)?),
            Kind::Bytes => Arg::Bytes(row.try_get(at)?),
        })
    };
    columns.iter().enumerate().map(value).collect()
}

fn size(arg: &Arg) -> usize {
    match arg {
        Arg::Text(Some(text)) => text.len(),
        Arg::Bytes(Some(bytes)) => bytes.len(),
        _ => 8,
    }
}

/// How rows go into a table. Its names live as long as the program: a copy is
/// made once in it.
fn insert(name: &str, columns: &[(String, Kind)]) -> &'static Insert {
    let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let columns: Vec<(&'static str, Kind)> = columns.iter().map(|(column, kind)| (leak(column), *kind)).collect();
    Box::leak(Box::new(Insert { table: leak(name), columns: Box::leak(columns.into_boxed_slice()), conflict: "" }))
}

async fn count(conn: &mut Conn<'_>, table: &str) -> Result<u64, StoreError> {
    let rows: i64 = db::scalar(format!("SELECT count(*) FROM {table}")).fetch_one(conn).await?;
    Ok(rows.unsigned_abs())
}

/// Recomputes every audit chain.
async fn verify(conn: &mut Conn<'_>) -> Result<u64, CopyError> {
    let (mut chains, mut after) = (0, String::new());
    loop {
        let threads: Vec<String> = db::scalar("SELECT thread FROM threads WHERE thread > $1 ORDER BY thread LIMIT $2")
            .bind(&after)
            .bind(PAGE_ROWS)
            .fetch_all(conn)
            .await?;
        let Some(last) = threads.last() else { return Ok(chains) };
        after.clone_from(last);
        for thread in threads {
            let thread: ThreadId = parse("thread id", thread)?;
            if let Some(entry) = audit::verify(conn, &thread).await? {
                return Err(CopyError::Broken { thread, entry });
            }
            chains += 1;
        }
    }
}

/// Whatever a table refers to comes before it.
fn in_order(tables: &BTreeMap<String, Table>) -> Vec<String> {
    let mut done: Vec<String> = Vec::with_capacity(tables.len());
    while done.len() < tables.len() {
        let before = done.len();
        for (name, table) in tables {
            let ready = table.refers_to.iter().all(|other| other == name || done.contains(other));
            if ready && !done.contains(name) {
                done.push(name.clone());
            }
        }
        if done.len() == before {
            // A circle: the databases will say so.
            let rest: Vec<String> = tables.keys().filter(|name| !done.contains(name)).cloned().collect();
            done.extend(rest);
        }
    }
    done
}

/// The tables of ours, by name.
async fn tables(conn: &mut Conn<'_>) -> Result<BTreeMap<String, Table>, StoreError> {
    // Table, column, type, place in the key from 1 or 0.
    let columns = db::query(db::either(
        "SELECT m.name, c.name, lower(c.type), c.pk FROM sqlite_master m JOIN pragma_table_info(m.name) c
         WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' AND m.name NOT IN ('Jobs', 'Workers', 'apalis_migrations')",
        "SELECT c.table_name::text, c.column_name::text, c.data_type::text,
                coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0)::bigint
         FROM information_schema.columns c
         JOIN pg_class t ON t.relname = c.table_name AND t.relnamespace = 'public'::regnamespace AND t.relkind = 'r'
         JOIN pg_attribute a ON a.attrelid = t.oid AND a.attname = c.column_name
         LEFT JOIN pg_index i ON i.indrelid = t.oid AND i.indisprimary
         WHERE c.table_schema = 'public'",
    ))
    .fetch_all(conn)
    .await?;
    let references = db::query(db::either(
        "SELECT m.name, f.\"table\" FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f WHERE m.type = 'table'",
        "SELECT here.relname::text, there.relname::text FROM pg_constraint k
         JOIN pg_class here ON here.oid = k.conrelid JOIN pg_class there ON there.oid = k.confrelid
         WHERE k.contype = 'f' AND k.connamespace = 'public'::regnamespace",
    ))
    .fetch_all(conn)
    .await?;
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    let mut keys: BTreeMap<String, BTreeMap<i64, String>> = BTreeMap::new();
    for row in columns {
        let (table, column, kind): (String, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if LEFT.contains(&table.as_str()) {
            continue;
        }
        let kind = match kind.as_str() {
            "text" => Kind::Text,
            "integer" | "bigint" => Kind::Int,
            "boolean" => Kind::Bool,
            "blob" | "bytea" => Kind::Bytes,
            other => return Err(StoreError::Database(format!("the column {table}.{column} is {other}"))),
        };
        let place: i64 = row.try_get(3)?;
        if place > 0 {
            keys.entry(table.clone()).or_default().insert(place, column.clone());
        }
        let empty = || Table { columns: BTreeMap::new(), key: Vec::new(), refers_to: BTreeSet::new() };
        tables.entry(table).or_insert_with(empty).columns.insert(column, kind);
    }
    for (table, key) in keys {
        if let Some(table) = tables.get_mut(&table) {
            table.key = key.into_values().collect();
        }
    }
    for row in references {
        let (from, to): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        if let Some(table) = tables.get_mut(&from) {
            table.refers_to.insert(to);
        }
    }
    Ok(tables)
}
