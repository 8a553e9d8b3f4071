//! What engines keep their threads in: a file in a folder of its own, or a
//! database of its own on the tests' server.

use std::path::PathBuf;

use countersign_worker::store::{SqlStore, StoreError};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::postgres::Database;
use super::redis::RedisPlace;

/// Which database a test of the engine runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    Sqlite,
    Postgres,
    /// Postgres, and a Redis that carries the messages.
    Redis,
}

tokio::task_local! {
    static ON: On;
}

impl On {
    /// The databases. What carries messages makes no difference to most.
    pub(crate) const EACH: [Self; 2] = [Self::Sqlite, Self::Postgres];

    /// One of so many deaths is tried where a test goes through all: on Postgres
    /// a world takes ten times as long to make. Odd, so that both sides of a
    /// write come up.
    pub(crate) fn one_of() -> u32 {
        match Self::now() {
            Self::Sqlite => 1,
            Self::Postgres | Self::Redis => 7,
        }
    }

    fn now() -> Self {
        ON.try_with(|on| *on).expect("`engine!` or `On::run` says on which database")
    }

    /// Runs a test, or a case of one: the worlds that it makes lie on this
    /// database.
    pub(crate) async fn run<T>(self, test: impl Future<Output = T>) -> T {
        ON.scope(self, Box::pin(test)).await
    }
}

/// A file or a database, empty at first.
pub(crate) enum Data {
    Sqlite(TempDir),
    /// Made when it is first used.
    Postgres(OnceCell<Database>),
    /// Messages go through this Redis.
    Redis(OnceCell<Database>, RedisPlace),
}

/// Connections of each store: as few as let a request meet an activation.
const CONNECTIONS: u32 = 4;

/// Does the same on a connection to either.
macro_rules! raw {
    ($data:expr, |$conn:ident| $what:expr) => {
        match $data {
            Data::Sqlite(_) => {
                let mut $conn = $data.file_opened().await;
                $what
            }
            Data::Postgres(database) | Data::Redis(database, _) => {
                let url = database.get_or_init(Database::fresh).await.url();
                let mut $conn = PgConnection::connect(url).await.expect("the database opens");
                $what
            }
        }
    };
}

impl Data {
    /// Where the present test is to run.
    pub(crate) fn fresh() -> Self {
        match On::now() {
            On::Sqlite => Self::Sqlite(tempfile::tempdir().expect("a temporary folder")),
            On::Postgres => Self::Postgres(OnceCell::new()),
            On::Redis => Self::Redis(OnceCell::new(), RedisPlace::fresh()),
        }
    }

    /// Waits until no process is left that may still write.
    pub(crate) async fn left(&self) {
        if let Self::Postgres(database) | Self::Redis(database, _) = self
            && let Some(database) = database.get()
        {
            database.left().await;
        }
    }

    /// Opens the store, for a process of its own.
    pub(crate) async fn open(&self) -> impl Future<Output = Result<SqlStore, StoreError>> + Send + use<> {
        let place = match self {
            Self::Sqlite(_) => Ok(self.file()),
            Self::Postgres(database) | Self::Redis(database, _) => {
                Err(database.get_or_init(Database::fresh).await.url().to_owned())
            }
        };
        let redis = self.redis().map(RedisPlace::carrier);
        async move {
            let store = match place {
                Ok(file) => SqlStore::open(&file).await?,
                Err(url) => SqlStore::connect(&url, CONNECTIONS).await?,
            };
            Ok(match redis {
                Some(redis) => store.through(redis),
                None => store,
            })
        }
    }

    /// Has a file made by statements.
    pub(crate) async fn made_by(&self, statements: &'static str) {
        let mut file = self.file_opened().await;
        sqlx::raw_sql(statements).execute(&mut file).await.expect("sound statements");
        file.close().await.expect("written");
    }

    /// The name of the table of jobs.
    pub(crate) fn jobs(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "Jobs",
            Self::Postgres(_) => "apalis.jobs",
            Self::Redis(..) => "outbox",
        }
    }

    /// What carries messages, if it is not the database.
    pub(crate) fn redis(&self) -> Option<&RedisPlace> {
        match self {
            Self::Sqlite(_) | Self::Postgres(_) => None,
            Self::Redis(_, redis) => Some(redis),
        }
    }

    /// The same with another Redis.
    pub(crate) fn over(self, redis: RedisPlace) -> Self {
        match self {
            Self::Postgres(database) | Self::Redis(database, _) => Self::Redis(database, redis),
            Self::Sqlite(_) => panic!("a test says by `On::Redis` what it runs on"),
        }
    }

    /// Runs `meanwhile` while nobody can write to a thread.
    pub(crate) async fn while_blocked<T>(&self, meanwhile: impl Future<Output = T>) -> T {
        let block = match self {
            Self::Sqlite(_) => "BEGIN IMMEDIATE",
            Self::Postgres(_) | Self::Redis(..) => "BEGIN; LOCK TABLE threads IN SHARE ROW EXCLUSIVE MODE",
        };
        raw!(self, |conn| {
            sqlx::raw_sql(block).execute(&mut conn).await.expect("blocked");
            let result = meanwhile.await;
            sqlx::raw_sql("ROLLBACK").execute(&mut conn).await.expect("free again");
            result
        })
    }

    /// Executes a statement; returns the rows changed.
    pub(crate) async fn execute(&self, statement: &str) -> u64 {
        raw!(self, |conn| {
            let done = sqlx::query(AssertSqlSafe(statement)).execute(&mut conn).await;
            done.expect(statement).rows_affected()
        })
    }

    /// The number that a query finds.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        raw!(self, |conn| sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut conn).await.expect(query))
    }

    /// The first column of what a query finds.
    pub(crate) async fn texts(&self, query: &str) -> Vec<String> {
        raw!(self, |conn| sqlx::query_scalar(AssertSqlSafe(query)).fetch_all(&mut conn).await.expect(query))
    }

    /// As [`texts`](Self::texts), of a column of payloads.
    pub(crate) async fn payloads(&self, query: &str) -> Vec<String> {
        let found: Vec<Vec<u8>> =
            raw!(self, |conn| sqlx::query_scalar(AssertSqlSafe(query)).fetch_all(&mut conn).await.expect(query));
        found.into_iter().map(|bytes| String::from_utf8(bytes).expect(query)).collect()
    }

    fn file(&self) -> PathBuf {
        let Self::Sqlite(folder) = self else { panic!("a database is no file") };
        folder.path().join("countersign.db")
    }

    async fn file_opened(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.file()).create_if_missing(true);
        options.busy_timeout(super::DEADLINE).connect().await.expect("the file opens")
    }
}
