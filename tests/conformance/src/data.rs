//! What the worker keeps a scenario's threads in.

use std::path::PathBuf;

use countersign_kernel::ports::Ids as _;
use countersign_worker::queue::Redis;
use countersign_worker::store::{SqlStore, StoreError};
use countersign_worker::system::SystemIds;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use self::postgres::Database;

#[path = "../../it/support/postgres.rs"]
mod postgres;

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// A file in a folder of its own.
    Sqlite,
    /// A database of its own on the server of `COUNTERSIGN_TEST_POSTGRES`.
    Postgres,
    /// The same, and messages go through the Redis of `COUNTERSIGN_TEST_REDIS`.
    Redis,
}

/// Connections of each store: as few as let requests meet an activation.
const CONNECTIONS: u32 = 4;

/// A file or a database, for one process at a time.
pub(crate) enum Data {
    Sqlite(TempDir),
    Postgres(Database),
    /// With the names of keys that no other process uses.
    Redis(Database, String),
}

/// The Redis of the tests, with keys that begin with `prefix`.
#[expect(clippy::disallowed_methods, reason = "a server of the tests is no configuration")]
fn redis(prefix: &str) -> Result<Redis, String> {
    let url = std::env::var("COUNTERSIGN_TEST_REDIS").map_err(|_| "COUNTERSIGN_TEST_REDIS names no server")?;
    Redis::new(&url, prefix).map_err(|problem| problem.to_string())
}

impl Data {
    /// With all tables and no rows.
    pub(crate) async fn fresh(on: On) -> Result<Self, String> {
        match on {
            On::Postgres => Ok(Self::Postgres(Database::fresh().await)),
            On::Redis => {
                let prefix = format!("conformance-{}", SystemIds.uuid());
                redis(&prefix)?;
                Ok(Self::Redis(Database::fresh().await, prefix))
            }
            On::Sqlite => {
                let folder = tempfile::tempdir().map_err(|problem| problem.to_string())?;
                std::fs::write(file(&folder), empty().await?).map_err(|problem| problem.to_string())?;
                Ok(Self::Sqlite(folder))
            }
        }
    }

    /// Opens the store for the next process, once the one before is gone.
    pub(crate) async fn open(&self) -> impl Future<Output = Result<SqlStore, StoreError>> + Send + use<> {
        let place = match self {
            Self::Sqlite(folder) => Ok(file(folder)),
            Self::Postgres(database) | Self::Redis(database, _) => {
                database.left().await;
                Err(database.url().to_owned())
            }
        };
        let redis = match self {
            Self::Sqlite(_) | Self::Postgres(_) => None,
            Self::Redis(_, prefix) => redis(prefix).ok(),
        };
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
}

/// The data file of a folder.
fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("countersign.db")
}

/// A data file as a first start leaves it: all tables, no rows. Made once, so
/// that each scenario has its file without waiting for every migration.
async fn empty() -> Result<Vec<u8>, String> {
    static EMPTY: OnceCell<Vec<u8>> = OnceCell::const_new();
    let made = EMPTY.get_or_try_init(|| async {
        let folder = tempfile::tempdir().map_err(|problem| problem.to_string())?;
        let file = file(&folder);
        let store = SqlStore::open(&file).await.map_err(|problem| problem.to_string())?;
        store.close().await;
        std::fs::read(file).map_err(|problem| problem.to_string())
    });
    made.await.cloned()
}
