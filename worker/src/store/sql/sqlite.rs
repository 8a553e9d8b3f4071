//! Opening the store on embedded SQLite.
//!
//! WAL with `synchronous=FULL`: what is committed survives a power cut. One
//! write connection per process, shared with the queue's carrier.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

use super::super::StoreError;
use super::super::db::Pools;
use super::SqlStore;
use crate::queue;

/// The bookkeeping of our own migrations, apart from the carrier's.
const MIGRATIONS_TABLE: &str = "countersign_migrations";

impl SqlStore {
    /// Opens or creates the file and brings its tables to their present form.
    ///
    /// # Errors
    /// The file cannot be opened, or was written by a newer version.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(10))
            .statement_cache_capacity(256)
            // What a savepoint needs to undo goes to memory: as a temporary
            // file it was most of all that a group of commands wrote.
            .pragma("temp_store", "memory");
        let write = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            // 16 MiB, so that a group of commands fits and is written once, at
            // its commit.
            .connect_with(options.clone().pragma("cache_size", "-16384"))
            .await?;
        let read = SqlitePoolOptions::new()
            .max_connections(4)
            .min_connections(0)
            .idle_timeout(Some(Duration::from_secs(60)))
            .connect_lazy_with(options.read_only(true).create_if_missing(false));
        let pools = Pools::Sqlite { write: write.clone(), read };
        queue::migrate(&pools).await?;
        let ours = migrations();
        let before = applied(&write).await?;
        ours.run(&write).await.map_err(|error| StoreError::Database(error.to_string()))?;
        let migrated = ours
            .iter()
            .filter(|step| !before.contains(&step.version))
            .map(|step| format!("{:04} {}", step.version, step.description))
            .collect();
        Ok(Self::on(pools, migrated))
    }
}

/// Our migrations.
pub(super) fn migrations() -> sqlx::migrate::Migrator {
    let mut ours = sqlx::migrate!("../migrations/sqlite");
    ours.dangerous_set_table_name(MIGRATIONS_TABLE);
    ours
}

/// The versions of our migrations that the file has.
pub(super) async fn applied(pool: &SqlitePool) -> Result<Vec<i64>, StoreError> {
    let known: Option<i64> = sqlx::query_scalar("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1")
        .bind(MIGRATIONS_TABLE)
        .fetch_optional(pool)
        .await?;
    if known.is_none() {
        return Ok(Vec::new());
    }
    Ok(sqlx::query_scalar("SELECT version FROM countersign_migrations").fetch_all(pool).await?)
}
