//! The backend Postgres: a database of its own on the tests' server.

use std::sync::Arc;

use async_trait::async_trait;
use countersign_worker::store::{SqlStore, Store};
use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPool;

use super::place::Backend;
use crate::support::postgres::Database;
use crate::support::redis;

struct Postgres {
    store: SqlStore,
    raw: PgPool,
    _database: Database,
}

pub(crate) async fn open() -> Box<dyn Backend> {
    opened(|store| store).await
}

/// A store whose messages go into the outbox.
pub(crate) async fn open_with_outbox() -> Box<dyn Backend> {
    opened(|store| store.through(redis::nowhere())).await
}

async fn opened(as_it_is: impl FnOnce(SqlStore) -> SqlStore) -> Box<dyn Backend> {
    let database = Database::fresh().await;
    let store = as_it_is(SqlStore::connect(database.url(), 8).await.expect("the store opens"));
    let raw = PgPool::connect(database.url()).await.expect("the database opens");
    Box::new(Postgres { store, raw, _database: database })
}

/// A store, and one of another process on the same database.
pub(crate) async fn open_twice() -> (Box<dyn Backend>, Arc<dyn Store>) {
    let database = Database::fresh().await;
    let store = SqlStore::connect(database.url(), 8).await.expect("the store opens");
    let other = SqlStore::connect(database.url(), 8).await.expect("the store opens");
    let raw = PgPool::connect(database.url()).await.expect("the database opens");
    (Box::new(Postgres { store, raw, _database: database }), Arc::new(other))
}

#[async_trait]
impl Backend for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn jobs(&self) -> Vec<String> {
        let jobs = sqlx::query_scalar("SELECT id FROM apalis.jobs ORDER BY id COLLATE \"C\"");
        jobs.fetch_all(&self.raw).await.expect("the queue reads")
    }

    fn inserts_job(&self, id: &str, due: i64) -> String {
        format!(
            "INSERT INTO apalis.jobs (job, id, job_type, status, run_at)
             VALUES ('x', '{id}', 'advance', 'Pending', to_timestamp({due}))"
        )
    }

    async fn execute(&self, statement: &str) -> u64 {
        let done = sqlx::query(AssertSqlSafe(statement)).execute(&self.raw).await;
        done.expect(statement).rows_affected()
    }

    async fn count(&self, from: &str) -> i64 {
        let statement = format!("SELECT count(*) FROM {from}");
        sqlx::query_scalar(AssertSqlSafe(statement)).fetch_one(&self.raw).await.expect(from)
    }
}
