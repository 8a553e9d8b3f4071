//! Two databases, one way to speak to them.
//!
//! The rules of the store are written once, in statements that SQLite and
//! Postgres both read; where their dialects differ, a statement has
//! [two texts](either). A [`Conn`] is a connection (or a transaction on one)
//! to either; a [`Query`] collects its arguments and runs on it; a [`Row`]
//! reads the same from both. Parameters are written `$1`, columns hold text,
//! `i64`, `bool` or bytes and nothing else.

mod arg;
mod build;
mod bulk;
mod pools;
mod row;
mod text;

use sqlx::SqlSafeStr as _;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;

pub(crate) use self::arg::Arg;
pub(crate) use self::build::Builder;
pub(crate) use self::bulk::{Insert, Kind};
pub(crate) use self::pools::Pools;
pub(crate) use self::row::Row;
pub(crate) use self::text::{Sql, either};
use crate::store::StoreError;

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Embedded SQLite.
    Sqlite,
    /// A Postgres server.
    Postgres,
}

/// A connection to either database.
#[derive(Debug)]
pub(crate) enum Conn<'c> {
    /// To SQLite.
    Sqlite(&'c mut SqliteConnection),
    /// To Postgres.
    Postgres(&'c mut PgConnection),
}

impl Conn<'_> {
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Runs statements without parameters, unprepared: for control of
    /// transactions.
    pub(crate) async fn control(&mut self, statements: &'static str) -> Result<(), StoreError> {
        let statements = statements.into_sql_str();
        match self {
            Self::Sqlite(conn) => _ = sqlx::raw_sql(statements).execute(&mut **conn).await?,
            Self::Postgres(conn) => _ = sqlx::raw_sql(statements).execute(&mut **conn).await?,
        }
        Ok(())
    }
}

/// How many rows a statement wrote.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done(u64);

impl Done {
    pub(crate) fn rows_affected(self) -> u64 {
        self.0
    }
}

/// A statement with its arguments.
#[must_use = "it does nothing until it is run"]
pub(crate) struct Query {
    sql: Sql,
    args: Vec<Arg>,
}

/// A statement that is prepared once on each connection.
pub(crate) fn query(sql: impl Into<Sql>) -> Query {
    Query { sql: sql.into(), args: Vec::new() }
}

/// As [`query`], of which the first column is read.
pub(crate) fn scalar(sql: impl Into<Sql>) -> Scalar {
    Scalar(query(sql))
}

/// Runs the query on whichever database it is.
macro_rules! run {
    ($query:expr, $conn:expr, $run:ident, |$done:ident| $map_sqlite:expr, $map_postgres:expr) => {{
        let Query { sql, args } = $query;
        match $conn {
            Conn::Sqlite(conn) => {
                let mut query = sqlx::query::<sqlx::Sqlite>(sql.sqlite());
                for arg in args {
                    query = arg.bind_sqlite(query)?;
                }
                let $done = query.$run(&mut **conn).await?;
                $map_sqlite
            }
            Conn::Postgres(conn) => {
                let mut query = sqlx::query::<sqlx::Postgres>(sql.postgres());
                for arg in args {
                    query = arg.bind_postgres(query);
                }
                let $done = query.$run(&mut **conn).await?;
                $map_postgres
            }
        }
    }};
}

impl Query {
    pub(crate) fn bind(mut self, arg: impl Into<Arg>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub(crate) async fn execute(self, conn: &mut Conn<'_>) -> Result<Done, StoreError> {
        Ok(run!(self, conn, execute, |done| Done(done.rows_affected()), Done(done.rows_affected())))
    }

    pub(crate) async fn fetch_one(self, conn: &mut Conn<'_>) -> Result<Row, StoreError> {
        Ok(run!(self, conn, fetch_one, |row| Row::Sqlite(row), Row::Postgres(row)))
    }

    pub(crate) async fn fetch_optional(self, conn: &mut Conn<'_>) -> Result<Option<Row>, StoreError> {
        Ok(run!(self, conn, fetch_optional, |row| row.map(Row::Sqlite), row.map(Row::Postgres)))
    }

    pub(crate) async fn fetch_all(self, conn: &mut Conn<'_>) -> Result<Vec<Row>, StoreError> {
        Ok(run!(
            self,
            conn,
            fetch_all,
            |rows| rows.into_iter().map(Row::Sqlite).collect(),
            rows.into_iter().map(Row::Postgres).collect()
        ))
    }
}

/// A statement of which the first column is read.
#[must_use = "it does nothing until it is run"]
pub(crate) struct Scalar(Query);

impl Scalar {
    pub(crate) fn bind(self, arg: impl Into<Arg>) -> Self {
        Self(self.0.bind(arg))
    }

    pub(crate) async fn fetch_one<T: for<'r> row::Column<'r>>(self, conn: &mut Conn<'_>) -> Result<T, StoreError> {
        self.0.fetch_one(conn).await?.try_get(0)
    }

    pub(crate) async fn fetch_optional<T: for<'r> row::Column<'r>>(
        self,
        conn: &mut Conn<'_>,
    ) -> Result<Option<T>, StoreError> {
        self.0.fetch_optional(conn).await?.map(|row| row.try_get(0)).transpose()
    }

    pub(crate) async fn fetch_all<T: for<'r> row::Column<'r>>(self, conn: &mut Conn<'_>) -> Result<Vec<T>, StoreError> {
        self.0.fetch_all(conn).await?.iter().map(|row| row.try_get(0)).collect()
    }
}
