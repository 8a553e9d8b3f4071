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
mod script;
mod text;

use futures_util::TryStreamExt as _;
use sqlx::SqlSafeStr as _;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;

pub(crate) use self::arg::Arg;
pub(crate) use self::build::Builder;
pub(crate) use self::bulk::{Insert, Kind};
pub(crate) use self::pools::{Link, Pools};
pub(crate) use self::row::Row;
use self::script::Waiting;
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
    Sqlite(Waiting<&'c mut SqliteConnection>),
    /// To Postgres.
    Postgres(&'c mut PgConnection),
}

impl<'c> From<&'c mut SqliteConnection> for Conn<'c> {
    fn from(conn: &'c mut SqliteConnection) -> Self {
        Self::Sqlite(Waiting::on(conn))
    }
}

impl<'c> From<&'c mut PgConnection> for Conn<'c> {
    fn from(conn: &'c mut PgConnection) -> Self {
        Self::Postgres(conn)
    }
}

impl Conn<'_> {
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Begins a transaction that writes, where that can be seen to fail: on
    /// Postgres, whose connections get lost.
    pub(crate) async fn begin(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(_) => self.control("BEGIN").await,
        }
    }

    /// The connection in a transaction that has [begun](Self::begin); on SQLite it
    /// begins with the first statement. Statements may wait [for
    /// later](Self::later), and are lost unless one that is waited for follows.
    pub(crate) fn in_transaction(mut self) -> Self {
        if let Self::Sqlite(waiting) = &mut self {
            waiting.gathers = true;
            waiting.add(query("BEGIN IMMEDIATE"));
        }
        self
    }

    /// Runs a statement whose result nobody waits for: at once, or, on a connection
    /// in a [transaction](Self::in_transaction), before the next one that is waited for; an
    /// error of it comes up there.
    pub(crate) async fn later(&mut self, query: Query) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(waiting) if waiting.gathers => {
                waiting.add(query);
                if waiting.is_full() {
                    self.settle().await?;
                }
            }
            Self::Sqlite(_) | Self::Postgres(_) => _ = query.execute(self).await?,
        }
        Ok(())
    }

    /// Drops statements that wait. Says whether any ran before.
    pub(crate) fn abandon(&mut self) -> bool {
        match self {
            Self::Sqlite(waiting) => waiting.abandon(),
            Self::Postgres(_) => true,
        }
    }

    /// Runs what waits.
    pub(super) async fn settle(&mut self) -> Result<(), StoreError> {
        if let Self::Sqlite(waiting) = self
            && let Some(query) = waiting.take()
        {
            query.execute(self).await?;
        }
        Ok(())
    }

    /// Runs statements without parameters that control a transaction. On SQLite
    /// they [wait](Self::later).
    pub(crate) async fn control(&mut self, statements: &'static str) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(_) => self.later(query(statements)).await?,
            Self::Postgres(conn) => _ = sqlx::raw_sql(statements.into_sql_str()).execute(&mut **conn).await?,
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
            Conn::Sqlite(waiting) => {
                let Query { sql, args } = waiting.with(Query { sql, args });
                let mut query = sqlx::query::<sqlx::Sqlite>(sql.sqlite());
                for arg in args {
                    query = arg.bind_sqlite(query)?;
                }
                let $done = query.$run(&mut *waiting.conn).await?;
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
        match conn {
            Conn::Sqlite(waiting) => {
                let Self { sql, args } = waiting.with(self);
                let mut query = sqlx::query::<sqlx::Sqlite>(sql.sqlite());
                for arg in args {
                    query = arg.bind_sqlite(query)?;
                }
                // Of statements that waited with it, what they wrote is not counted.
                let mut rows = 0;
                let mut ended = sqlx::Executor::fetch_many(&mut *waiting.conn, query);
                while let Some(step) = ended.try_next().await? {
                    if let sqlx::Either::Left(done) = step {
                        rows = done.rows_affected();
                    }
                }
                Ok(Done(rows))
            }
            Conn::Postgres(conn) => {
                let mut query = sqlx::query::<sqlx::Postgres>(self.sql.postgres());
                for arg in self.args {
                    query = arg.bind_postgres(query);
                }
                Ok(Done(query.execute(&mut **conn).await?.rows_affected()))
            }
        }
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

/// Runs statements that read, and gives the rows of each. They go to SQLite
/// together.
pub(crate) async fn fetch_each<const N: usize>(
    conn: &mut Conn<'_>,
    queries: [Query; N],
) -> Result<[Vec<Row>; N], StoreError> {
    let mut each = [const { Vec::new() }; N];
    match conn {
        Conn::Sqlite(waiting) => {
            let before = waiting.count();
            queries.into_iter().for_each(|query| waiting.add(query));
            let Some(Query { sql, args }) = waiting.take() else { return Ok(each) };
            let mut query = sqlx::query::<sqlx::Sqlite>(sql.sqlite());
            for arg in args {
                query = arg.bind_sqlite(query)?;
            }
            let (mut steps, mut ended) = (sqlx::Executor::fetch_many(&mut *waiting.conn, query), 0);
            while let Some(step) = steps.try_next().await? {
                match step {
                    sqlx::Either::Left(_) => ended += 1,
                    sqlx::Either::Right(row) => {
                        if let Some(rows) = usize::checked_sub(ended, before).and_then(|at| each.get_mut(at)) {
                            rows.push(Row::Sqlite(row));
                        }
                    }
                }
            }
        }
        Conn::Postgres(_) => {
            for (rows, query) in each.iter_mut().zip(queries) {
                *rows = query.fetch_all(conn).await?;
            }
        }
    }
    Ok(each)
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
