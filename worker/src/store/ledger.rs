//! The demo bank: an outside system that counts effects (R23).
//!
//! A separate database file, because it stands for something that is not
//! ours. Unique on the idempotency key, as a bank that honours such keys is;
//! attempts are counted beside the one effect.

use std::path::Path;

use countersign_kernel::time::Timestamp;
use sqlx::Row;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};

use super::StoreError;

/// One effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The idempotency key it was ordered under.
    pub key: String,
    /// What was ordered, as JSON text.
    pub order: String,
    /// How often it was ordered; the effect happened once.
    pub attempts: i64,
    /// When it was first ordered.
    pub at: Timestamp,
}

/// A durable list of effects, one per key.
#[derive(Debug, Clone)]
pub struct EffectLedger {
    pool: SqlitePool,
}

impl EffectLedger {
    /// Opens or creates the ledger.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(std::time::Duration::from_secs(10));
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
        sqlx::query(
            "CREATE TABLE IF NOT EXISTS effects (
                key TEXT NOT NULL PRIMARY KEY, \"order\" TEXT NOT NULL,
                attempts INTEGER NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID",
        )
        .execute(&pool)
        .await?;
        Ok(Self { pool })
    }

    /// Orders an effect: recorded on the first attempt, counted on later ones.
    /// Returns how often it has been ordered now.
    ///
    /// # Errors
    /// The ledger cannot be written.
    pub async fn order(&self, key: &str, order: &str, now: Timestamp) -> Result<i64, StoreError> {
        let row = sqlx::query(
            "INSERT INTO effects (key, \"order\", attempts, at) VALUES (?1, ?2, 1, ?3)
             ON CONFLICT (key) DO UPDATE SET attempts = attempts + 1 RETURNING attempts",
        )
        .bind(key)
        .bind(order)
        .bind(now.as_micros())
        .fetch_one(&self.pool)
        .await?;
        Ok(row.try_get(0)?)
    }

    /// All effects, by key.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub async fn entries(&self) -> Result<Vec<LedgerEntry>, StoreError> {
        sqlx::query("SELECT key, \"order\", attempts, at FROM effects ORDER BY key")
            .fetch_all(&self.pool)
            .await?
            .into_iter()
            .map(|row| {
                Ok(LedgerEntry {
                    key: row.try_get(0)?,
                    order: row.try_get(1)?,
                    attempts: row.try_get(2)?,
                    at: Timestamp::from_micros(row.try_get(3)?),
                })
            })
            .collect()
    }
}
