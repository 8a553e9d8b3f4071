//! Looking at a database beside the processes that write it, without a change.

use std::path::Path;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

use super::SqlStore;
use super::{postgres, sqlite};
use crate::store::StoreError;
use crate::store::db::Pools;

/// A database, opened to be read.
#[derive(Debug)]
pub enum Beside {
    /// The tables are those of this build.
    Current(SqlStore),
    /// The tables are older, so that this build cannot read them as they are.
    Older {
        /// The migrations that are missing, by number and name.
        missing: Vec<String>,
    },
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(path).read_only(true).busy_timeout(Duration::from_secs(10))
}

/// The migrations of `ours` that are not among those `present`, by number and
/// name.
fn missing(ours: &Migrator, present: &[i64]) -> Result<Vec<String>, StoreError> {
    if let Some(unknown) = present.iter().find(|version| ours.iter().all(|step| step.version != **version)) {
        return Err(StoreError::Database(format!(
            "the tables are those of a newer version of the program (migration {unknown:04})"
        )));
    }
    if present.is_empty() {
        return Err(StoreError::Database("the database has no tables of this program".into()));
    }
    let missing = ours.iter().filter(|step| !present.contains(&step.version));
    Ok(missing.map(|step| format!("{:04} {}", step.version, step.description)).collect())
}

impl SqlStore {
    /// Opens an existing file to read, whoever else writes it: takes no lock
    /// that a writer would wait for, migrates nothing. Every write is refused.
    ///
    /// # Errors
    /// The file cannot be opened, is none of ours, or was written by a newer
    /// version.
    pub async fn open_beside(path: &Path) -> Result<Beside, StoreError> {
        let readers = SqlitePoolOptions::new().max_connections(2).connect_with(options(path)).await?;
        let missing = missing(&sqlite::migrations(), &sqlite::applied(&readers).await?)?;
        if !missing.is_empty() {
            readers.close().await;
            return Ok(Beside::Older { missing });
        }
        Ok(Beside::Current(Self::on(Pools::Sqlite { write: readers.clone(), read: readers }, Vec::new())))
    }

    /// As [`open_beside`](Self::open_beside), of a database on a Postgres
    /// server.
    ///
    /// # Errors
    /// As [`open_beside`](Self::open_beside), and those of
    /// [`connect`](Self::connect).
    pub async fn connect_beside(url: &str) -> Result<Beside, StoreError> {
        let readers = postgres::readers(url).await?;
        let missing = missing(&postgres::migrations(), &postgres::applied(&readers).await?)?;
        if !missing.is_empty() {
            readers.close().await;
            return Ok(Beside::Older { missing });
        }
        Ok(Beside::Current(Self::on(Pools::Postgres(readers), Vec::new())))
    }

    /// Copies the file as it is at this moment, whoever else writes it, and
    /// opens the copy, whose tables are brought to their present form. `copy`
    /// must not exist.
    ///
    /// # Errors
    /// The file cannot be read, or the copy cannot be written.
    pub async fn open_copy(path: &Path, copy: &Path) -> Result<Self, StoreError> {
        let reader = SqlitePoolOptions::new().max_connections(1).connect_with(options(path)).await?;
        sqlx::query("VACUUM INTO ?1").bind(copy.to_string_lossy().into_owned()).execute(&reader).await?;
        reader.close().await;
        Self::open(copy).await
    }
}
