//! Both databases have the same tables, and on Postgres they can be distributed
//! by thread.

use std::collections::{BTreeMap, BTreeSet};

use countersign_worker::store::SqlStore;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, FromRow};

use super::upgrade;
use crate::support::postgres::Database;

/// What belongs to no thread.
const NO_THREAD_DATA: [&str; 11] = [
    "api_tokens",
    "countersign_migrations",
    "flow_limits",
    "flow_rates",
    "idempotency",
    "operations",
    "outbox",
    "pause_switches",
    "processes",
    "schedules",
    "ticks",
];

async fn postgres() -> (Database, PgConnection) {
    let database = Database::fresh().await;
    let conn = PgConnection::connect(database.url()).await.expect("the database opens");
    (database, conn)
}

async fn rows<T: for<'r> FromRow<'r, PgRow> + Send + Unpin>(conn: &mut PgConnection, query: &str) -> Vec<T> {
    sqlx::query_as(AssertSqlSafe(query)).fetch_all(conn).await.expect(query)
}

/// The columns of our tables, in alphabetical order.
async fn columns(conn: &mut PgConnection) -> BTreeMap<String, BTreeSet<String>> {
    let query = "SELECT table_name::text, column_name::text FROM information_schema.columns
                 WHERE table_schema = 'public' AND table_name <> 'countersign_migrations'";
    let mut columns: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (table, column) in rows::<(String, String)>(conn, query).await {
        columns.entry(table).or_default().insert(column);
    }
    columns
}

#[tokio::test]
async fn every_key_of_thread_data_begins_with_the_thread() {
    let (_database, mut conn) = postgres().await;
    // Keys and what they refer to: the first column here, and there.
    let keys: Vec<(String, String, String, Option<String>)> = rows(
        &mut conn,
        "SELECT key.conrelid::regclass::text, key.conname::text, here.attname::text, there.attname::text
         FROM pg_constraint key
         JOIN pg_namespace ON pg_namespace.oid = key.connamespace AND nspname = 'public'
         JOIN pg_attribute here ON here.attrelid = key.conrelid AND here.attnum = key.conkey[1]
         LEFT JOIN pg_attribute there ON there.attrelid = key.confrelid AND there.attnum = key.confkey[1]
         WHERE key.contype IN ('p', 'f', 'u', 'x')",
    )
    .await;
    let of_threads: Vec<_> = keys.iter().filter(|(table, ..)| !NO_THREAD_DATA.contains(&table.as_str())).collect();
    for (table, key, here, there) in &of_threads {
        assert_eq!((here.as_str(), there.as_deref().unwrap_or("thread")), ("thread", "thread"), "{table}: {key}");
    }
    let tables: BTreeSet<_> = of_threads.iter().map(|(table, ..)| table.clone()).collect();
    let mut all: BTreeSet<_> = columns(&mut conn).await.into_keys().collect();
    all.retain(|table| !NO_THREAD_DATA.contains(&table.as_str()));
    assert_eq!(tables, all, "every table has a key");
    assert!(of_threads.iter().filter(|(.., there)| there.is_some()).count() >= all.len() - 1, "and refers to a thread");

    // Indexes can be unique without being a key.
    let unique: Vec<(String, String, String)> = rows(
        &mut conn,
        "SELECT indrelid::regclass::text, indexrelid::regclass::text, coalesce(attname::text, '')
         FROM pg_index
         JOIN pg_class ON pg_class.oid = indrelid
         JOIN pg_namespace ON pg_namespace.oid = relnamespace AND nspname = 'public'
         LEFT JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
         WHERE indisunique",
    )
    .await;
    assert!(unique.len() >= all.len());
    for (table, index, first) in unique {
        assert!(NO_THREAD_DATA.contains(&table.as_str()) || first == "thread", "{index} begins with {first}");
    }
}

#[tokio::test]
async fn both_databases_have_the_same_tables_and_columns() {
    let (_database, mut conn) = postgres().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("schema.db");
    SqlStore::open(&path).await.expect("the store opens").close().await;
    let sqlite = upgrade::columns(&mut upgrade::raw(&path).await).await;
    let sqlite: BTreeMap<String, BTreeSet<String>> =
        sqlite.into_iter().map(|(table, columns)| (table, columns.into_iter().collect())).collect();
    assert!(sqlite.len() > 15, "{sqlite:?}");
    assert_eq!(columns(&mut conn).await, sqlite);
}

#[tokio::test]
async fn both_databases_have_the_same_migrations_by_number_and_name() {
    let (_database, mut conn) = postgres().await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("schema.db");
    SqlStore::open(&path).await.expect("the store opens").close().await;
    let query = "SELECT version, description FROM countersign_migrations ORDER BY version";
    let postgres: Vec<(i64, String)> = rows(&mut conn, query).await;
    let sqlite: Vec<(i64, String)> =
        sqlx::query_as(query).fetch_all(&mut upgrade::raw(&path).await).await.expect("it reads");
    assert!(postgres.len() >= 3, "{postgres:?}");
    assert_eq!(postgres, sqlite);
}
