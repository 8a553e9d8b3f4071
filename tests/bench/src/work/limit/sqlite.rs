//! Bare transactions on SQLite.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};

use super::{TASKS, gathered, one_by_one};
use crate::Fault;
use crate::work::Values;

/// As the store opens it: `worker/src/store/sql/sqlite.rs`.
async fn open(path: &Path) -> Result<SqliteConnection, Fault> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(10))
        .statement_cache_capacity(256)
        .pragma("temp_store", "memory")
        .pragma("cache_size", "-16384")
        .disable_statement_logging();
    let mut file = options.connect().await?;
    sqlx::raw_sql(
        "CREATE TABLE runs (run_id INTEGER PRIMARY KEY, seq INTEGER NOT NULL);
         CREATE TABLE rows (run_id INTEGER NOT NULL, seq INTEGER NOT NULL, payload TEXT NOT NULL,
                            PRIMARY KEY (run_id, seq)) WITHOUT ROWID;",
    )
    .execute(&mut file)
    .await?;
    for run in 0..TASKS {
        sqlx::query("INSERT INTO runs (run_id, seq) VALUES (?1, 0)").bind(run).execute(&mut file).await?;
    }
    Ok(file)
}

/// One connection, one transaction after another.
pub(in crate::work) async fn seq(path: &Path) -> Result<Values, Fault> {
    let mut file = open(path).await?;
    let commit = async |row: super::Row| {
        let mut transaction = file.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::query("INSERT INTO rows (run_id, seq, payload) VALUES (?1, ?2, ?3)")
            .bind(row.run)
            .bind(row.seq)
            .bind(row.payload.as_ref())
            .execute(&mut *transaction)
            .await?;
        sqlx::query("UPDATE runs SET seq = ?2 WHERE run_id = ?1")
            .bind(row.run)
            .bind(row.seq)
            .execute(&mut *transaction)
            .await?;
        Ok(transaction.commit().await?)
    };
    let rate = one_by_one(commit).await?;
    file.close().await?;
    Ok(vec![("seq_per_s", rate)])
}

/// One writer, all that wait in one transaction.
pub(in crate::work) async fn batch(path: &Path) -> Result<Values, Fault> {
    let mut file = open(path).await?;
    let commit = async |rows: &[super::Row]| {
        let rows: Vec<_> = rows.iter().map(|row| json!([row.run, row.seq, row.payload.as_ref()])).collect();
        let rows = serde_json::to_string(&rows)?;
        let mut transaction = file.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::query(
            "INSERT INTO rows (run_id, seq, payload)
             SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1)",
        )
        .bind(&rows)
        .execute(&mut *transaction)
        .await?;
        sqlx::query("UPDATE runs SET seq = new.value ->> 1 FROM json_each(?1) AS new WHERE run_id = new.value ->> 0")
            .bind(&rows)
            .execute(&mut *transaction)
            .await?;
        Ok(transaction.commit().await?)
    };
    let rate = gathered(commit).await?;
    file.close().await?;
    Ok(vec![("batch_per_s", rate)])
}
