//! The backend SQLite: a file in a folder of its own.

use std::sync::Arc;

use async_trait::async_trait;
use countersign_worker::store::{SqlStore, Store};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions};
use tempfile::TempDir;

use super::place::Backend;
use crate::support::{DEADLINE, redis};

struct Sqlite {
    dir: TempDir,
    name: &'static str,
    store: SqlStore,
}

pub(crate) async fn open() -> Box<dyn Backend> {
    opened(|store| store).await
}

/// A store whose messages go into the outbox.
pub(crate) async fn open_with_outbox() -> Box<dyn Backend> {
    opened(|store| store.through(redis::nowhere())).await
}

async fn opened(as_it_is: impl FnOnce(SqlStore) -> SqlStore) -> Box<dyn Backend> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let store = as_it_is(SqlStore::open(&dir.path().join("contract.db")).await.expect("the store opens"));
    over(dir, "contract.db", store)
}

/// A store on the file `name` of a folder.
pub(crate) fn over(dir: TempDir, name: &'static str, store: SqlStore) -> Box<dyn Backend> {
    Box::new(Sqlite { dir, name, store })
}

impl Sqlite {
    async fn raw(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.dir.path().join(self.name)).busy_timeout(DEADLINE);
        options.connect().await.expect("the file opens")
    }
}

#[async_trait]
impl Backend for Sqlite {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn jobs(&self) -> Vec<String> {
        sqlx::query_scalar("SELECT id FROM Jobs ORDER BY id")
            .fetch_all(&mut self.raw().await)
            .await
            .expect("the queue reads")
    }

    fn inserts_job(&self, id: &str, due: i64) -> String {
        format!("INSERT INTO Jobs (job, id, job_type, run_at) VALUES (x'00', '{id}', 'advance', {due})")
    }

    async fn execute(&self, statement: &str) -> u64 {
        let done = sqlx::query(AssertSqlSafe(statement)).execute(&mut self.raw().await).await;
        done.expect(statement).rows_affected()
    }

    async fn count(&self, from: &str) -> i64 {
        let statement = format!("SELECT count(*) FROM {from}");
        sqlx::query_scalar(AssertSqlSafe(statement)).fetch_one(&mut self.raw().await).await.expect(from)
    }
}
