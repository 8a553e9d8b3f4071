//! Whether this build could go on with the threads of a database.

use std::path::Path;
use std::sync::Arc;

use countersign_flows::InMemoryLedger;
use countersign_kernel::graph::CompiledGraph;
use countersign_worker::engine::{Checked, Engine, Parts};
use countersign_worker::store::{Beside, SqlStore};
use countersign_worker::system::{SystemClock, SystemIds};

use super::database::unusable;
use super::{DataFolder, StartError, engine_config};
use crate::config::{Config, StorePlace};

/// What a check of a database found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The threads, and those that do not fit.
    pub checked: Checked,
    /// Migrations that the database does not have yet, by number and name. A
    /// copy that has them was looked at.
    pub missing: Vec<String>,
}

/// Looks at the threads of the database with the flows that ship and those
/// given (one of the same name replaces the shipped one), beside the server
/// that runs on it: takes no lock, migrates nothing, runs nothing.
///
/// # Errors
/// There is no database, it is of a newer version, or it cannot be read. On a
/// server also if it is of an older version.
pub async fn check(config: &Config, flows: Vec<CompiledGraph>) -> Result<Check, StartError> {
    // Nothing runs, so nothing is paid.
    let mut graphs = countersign_flows::all(Arc::new(InMemoryLedger::default()))?;
    graphs.extend(flows);
    let database = match &config.store.place {
        StorePlace::Postgres(url) => {
            return match SqlStore::connect_beside(url.expose()).await.map_err(|source| unusable(config, source))? {
                Beside::Current(store) => {
                    Ok(Check { checked: look(config, store, graphs).await?, missing: Vec::new() })
                }
                Beside::Older { missing } => Err(StartError::OlderDatabase { missing }),
            };
        }
        StorePlace::File(file) => file.clone(),
        StorePlace::Folder => DataFolder::database_of(&config.data_dir),
    };
    if !database.exists() {
        return Err(StartError::NoDatabase { file: database.display().to_string() });
    }
    match SqlStore::open_beside(&database).await? {
        Beside::Current(store) => {
            let checked = look(config, store, graphs).await?;
            Ok(Check { checked, missing: Vec::new() })
        }
        Beside::Older { missing } => {
            let checked = look_at_copy(config, &database, graphs).await?;
            Ok(Check { checked, missing })
        }
    }
}

/// The tables have to be those of this build, and those of the server that runs
/// must not change.
async fn look_at_copy(config: &Config, database: &Path, graphs: Vec<CompiledGraph>) -> Result<Checked, StartError> {
    let failed = |source| StartError::Folder { folder: std::env::temp_dir().display().to_string(), source };
    let folder = tempfile::tempdir().map_err(failed)?;
    let store = SqlStore::open_copy(database, &folder.path().join("copy.db")).await?;
    let checked = look(config, store, graphs).await;
    folder.close().map_err(failed)?;
    checked
}

async fn look(config: &Config, store: SqlStore, graphs: Vec<CompiledGraph>) -> Result<Checked, StartError> {
    let engine = Engine::new(Parts {
        store: Arc::new(store.clone()),
        graphs,
        directory: Arc::new(config.directory()),
        channels: Vec::new(),
        clock: Arc::new(SystemClock),
        ids: Arc::new(SystemIds),
        worker: "check".to_owned(),
        config: engine_config(config),
    });
    let checked = engine.check().await;
    store.close().await;
    Ok(checked?)
}
