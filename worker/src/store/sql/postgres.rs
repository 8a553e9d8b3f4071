//! Opening the store on a Postgres server.

use std::str::FromStr;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

use super::super::StoreError;
use super::super::db::Pools;
use super::SqlStore;
use crate::queue;

/// The bookkeeping of our own migrations, apart from the carrier's.
const MIGRATIONS_TABLE: &str = "countersign_migrations";
/// How long the server may take to answer for the first time.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// One at a time brings the tables of a database to their present form.
const MIGRATING: i64 = 0x636f_756e_7465_7273;

impl SqlStore {
    /// Connects to the database, which must exist, and brings its tables to
    /// their present form. `connections` is how many this store may have open
    /// at most.
    ///
    /// # Errors
    /// The URL cannot be read, the server cannot be reached or refuses, or the
    /// tables are those of a newer version.
    pub async fn connect(url: &str, connections: u32) -> Result<Self, StoreError> {
        // The least that a commit must be before anybody is told of it.
        let pool = pool(options(url)?.options([("synchronous_commit", "on")]), connections).await?;
        let migrated = migrate(&pool).await?;
        Ok(Self::on(Pools::Postgres(pool), migrated))
    }
}

fn options(url: &str) -> Result<PgConnectOptions, StoreError> {
    Ok(PgConnectOptions::from_str(url)?.application_name("countersign").statement_cache_capacity(512))
}

/// A pool of a server that has answered. A pool would try for as long as one
/// may wait for a connection, and then not say what was in the way.
async fn pool(options: PgConnectOptions, connections: u32) -> Result<PgPool, StoreError> {
    let first = tokio::time::timeout(CONNECT_WITHIN, options.connect()).await;
    let first = first.map_err(|_| StoreError::Database(format!("no answer within {CONNECT_WITHIN:?}")))??;
    sqlx::Connection::close(first).await?;
    Ok(PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(Duration::from_secs(30))
        .connect_with(options)
        .await?)
}

/// A pool of sessions that write nothing.
pub(super) async fn readers(url: &str) -> Result<PgPool, StoreError> {
    pool(options(url)?.options([("default_transaction_read_only", "on")]), 2).await
}

async fn migrate(pool: &PgPool) -> Result<Vec<String>, StoreError> {
    // Held until this connection is closed, whatever happens.
    let mut guard = pool.acquire().await?.detach();
    sqlx::query("SELECT pg_advisory_lock($1)").bind(MIGRATING).execute(&mut guard).await?;
    let pools = Pools::Postgres(pool.clone());
    queue::migrate(&pools).await?;
    let ours = migrations();
    let before = applied(pool).await?;
    ours.run(pool).await.map_err(|error| StoreError::Database(error.to_string()))?;
    sqlx::Connection::close(guard).await?;
    let new = ours.iter().filter(|step| !before.contains(&step.version));
    Ok(new.map(|step| format!("{:04} {}", step.version, step.description)).collect())
}

/// Our migrations.
pub(super) fn migrations() -> sqlx::migrate::Migrator {
    let mut ours = sqlx::migrate!("../migrations/postgres");
    ours.dangerous_set_table_name(MIGRATIONS_TABLE);
    ours
}

/// The versions of our migrations that the database has.
pub(super) async fn applied(pool: &PgPool) -> Result<Vec<i64>, StoreError> {
    let known: Option<String> =
        sqlx::query_scalar("SELECT to_regclass($1)::text").bind(MIGRATIONS_TABLE).fetch_one(pool).await?;
    if known.is_none() {
        return Ok(Vec::new());
    }
    Ok(sqlx::query_scalar("SELECT version FROM countersign_migrations").fetch_all(pool).await?)
}
