//! Fresh databases, and how large they are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use countersign_kernel::ports::Ids as _;
use countersign_worker::system::SystemIds;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};
use tempfile::TempDir;

use crate::Fault;

const MIB: f64 = 1024.0 * 1024.0;

/// A database that the worker runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Backend {
    /// Embedded.
    Sqlite,
    /// A server beside us.
    Postgres,
}

impl Backend {
    /// As figures name it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// Where a database is.
#[derive(Debug, Clone)]
pub(crate) enum At {
    /// A file, which may not be there yet.
    Sqlite(PathBuf),
    /// The URL of a database, which is there.
    Postgres(String),
}

impl FromStr for At {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        match text.strip_prefix("sqlite:") {
            Some(path) => Ok(Self::Sqlite(PathBuf::from(path))),
            None if text.starts_with("postgres:") => Ok(Self::Postgres(text.to_owned())),
            None => Err(format!("`{text}` is no database").into()),
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => f.write_str(url),
        }
    }
}

impl At {
    /// How large the database is, in MiB: all tables and indexes. On SQLite it
    /// must be closed: its file after a checkpoint of the WAL.
    pub(crate) async fn size_mib(&self) -> Result<f64, Fault> {
        let bytes = match self {
            Self::Sqlite(path) => {
                let mut file = SqliteConnectOptions::new().filename(path).connect().await?;
                sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut file).await?;
                file.close().await?;
                std::fs::metadata(path)?.len()
            }
            Self::Postgres(url) => {
                let mut server = connect(url).await?;
                let bytes: i64 = sqlx::query_scalar(
                    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
                     FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                     WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'",
                )
                .fetch_one(&mut server)
                .await?;
                server.close().await?;
                u64::try_from(bytes)?
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "a size in MiB for people")]
        Ok(bytes as f64 / MIB)
    }
}

/// A connection to Postgres that logs no statements.
pub(crate) async fn connect(url: &str) -> Result<PgConnection, Fault> {
    Ok(PgConnectOptions::from_str(url)?.disable_statement_logging().connect().await?)
}

/// A fresh database of its own, deleted by [`Fresh::delete`].
pub(crate) struct Fresh {
    pub(crate) at: At,
    server: Option<(String, String)>,
    _folder: Option<TempDir>,
}

impl Fresh {
    /// A new file in a folder of its own.
    pub(crate) fn sqlite(data: Option<&Path>) -> Result<Self, Fault> {
        let folder = match data {
            Some(data) => {
                std::fs::create_dir_all(data)?;
                TempDir::new_in(data)?
            }
            None => TempDir::new()?,
        };
        Ok(Self { at: At::Sqlite(folder.path().join("countersign.db")), server: None, _folder: Some(folder) })
    }

    /// A new database of the server.
    pub(crate) async fn postgres(server: &str) -> Result<Self, Fault> {
        let name = format!("bench_{}", SystemIds.uuid());
        let mut admin = connect(server).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut admin).await?;
        // What the database before has left to be written is not this one's.
        sqlx::raw_sql("CHECKPOINT").execute(&mut admin).await?;
        admin.close().await?;
        let end = server.rfind('/').ok_or("the server's URL names no database")?;
        let url = format!("{}/{name}", &server[..end]);
        Ok(Self { at: At::Postgres(url), server: Some((server.to_owned(), name)), _folder: None })
    }

    /// Deletes it.
    pub(crate) async fn delete(self) -> Result<(), Fault> {
        if let Some((server, name)) = &self.server {
            let mut admin = connect(server).await?;
            let statement = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut admin).await?;
            admin.close().await?;
        }
        Ok(())
    }
}
