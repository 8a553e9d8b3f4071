//! Where connections come from.

use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres, Sqlite, SqlitePool, Transaction};

use super::{Conn, Dialect};
use crate::store::StoreError;

/// The pools of a store.
#[derive(Debug, Clone)]
pub(crate) enum Pools {
    /// One connection that writes, and those that read beside it.
    Sqlite {
        /// Has a single connection.
        write: SqlitePool,
        /// Read only.
        read: SqlitePool,
    },
    /// All connections are alike.
    Postgres(PgPool),
}

/// A connection taken out of a pool, until it is dropped.
pub(crate) enum Link {
    Sqlite(PoolConnection<Sqlite>),
    SqliteSnapshot(Transaction<'static, Sqlite>),
    Postgres(PoolConnection<Postgres>),
    PostgresSnapshot(Transaction<'static, Postgres>),
}

impl Link {
    pub(crate) fn conn(&mut self) -> Conn<'_> {
        match self {
            Self::Sqlite(conn) => Conn::from(&mut **conn),
            Self::SqliteSnapshot(conn) => Conn::from(&mut **conn),
            Self::Postgres(conn) => Conn::from(&mut **conn),
            Self::PostgresSnapshot(conn) => Conn::from(&mut **conn),
        }
    }

    /// Has the connection closed when it is dropped, instead of given back.
    pub(crate) fn close_on_drop(&mut self) {
        match self {
            Self::Sqlite(conn) => conn.close_on_drop(),
            Self::Postgres(conn) => conn.close_on_drop(),
            // Rolled back when dropped.
            Self::SqliteSnapshot(_) | Self::PostgresSnapshot(_) => {}
        }
    }

    /// Closes the connection. The pool opens another.
    pub(crate) async fn close(self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(conn) => conn.close().await?,
            Self::Postgres(conn) => conn.close().await?,
            Self::SqliteSnapshot(conn) => conn.rollback().await?,
            Self::PostgresSnapshot(conn) => conn.rollback().await?,
        }
        Ok(())
    }
}

impl Pools {
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite { .. } => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// For one statement that reads.
    pub(crate) async fn reading(&self) -> Result<Link, StoreError> {
        Ok(match self {
            Self::Sqlite { read, .. } => Link::Sqlite(read.acquire().await?),
            Self::Postgres(pool) => Link::Postgres(pool.acquire().await?),
        })
    }

    /// For statements that read what there was at one moment.
    pub(crate) async fn snapshot(&self) -> Result<Link, StoreError> {
        Ok(match self {
            Self::Sqlite { read, .. } => Link::SqliteSnapshot(read.begin().await?),
            Self::Postgres(pool) => {
                Link::PostgresSnapshot(pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?)
            }
        })
    }

    /// For statements that write, each a transaction of its own.
    pub(crate) async fn writing(&self) -> Result<Link, StoreError> {
        Ok(match self {
            Self::Sqlite { write, .. } => Link::Sqlite(write.acquire().await?),
            Self::Postgres(pool) => Link::Postgres(pool.acquire().await?),
        })
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite { write, read } => {
                read.close().await;
                write.close().await;
            }
            Self::Postgres(pool) => pool.close().await,
        }
    }
}
