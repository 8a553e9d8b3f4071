//! The database that the configuration names.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use countersign_kernel::ports::Clock;
use countersign_worker::store::{SqlStore, Store as _, StoreError};

use super::{DataFolder, StartError};
use crate::config::{Config, StorePlace};

/// An open store.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) store: SqlStore,
    /// Of a file: another data folder may name it. Held until this is dropped.
    pub(super) lock: Option<File>,
    /// Whether other processes may be at work on it.
    pub(super) shared: bool,
}

impl Database {
    /// Opens the database and brings its tables to their present form. A file
    /// is this process's alone, so what an earlier one left in the middle is
    /// given back; on a server, where others may live, leases lapse instead.
    pub(super) async fn open(config: &Config, folder: &DataFolder, clock: &dyn Clock) -> Result<Self, StartError> {
        let database = Self::open_as_it_is(config, folder).await?;
        if !database.shared {
            let recovered = database.store.recover(clock.now()).await?;
            if recovered > 0 {
                tracing::info!(threads = recovered, "taking up threads that an earlier process left in the middle");
            }
        }
        Ok(database)
    }

    /// As [`open`](Self::open), and leaves all work where it is.
    pub(super) async fn open_as_it_is(config: &Config, folder: &DataFolder) -> Result<Self, StartError> {
        let database = Self::open_place(config, folder).await?;
        Ok(match config.queue.redis() {
            Some(redis) => Self { store: database.store.through(redis), ..database },
            None => database,
        })
    }

    async fn open_place(config: &Config, folder: &DataFolder) -> Result<Self, StartError> {
        match &config.store.place {
            StorePlace::Folder => Self::open_file(folder, &folder.database()).await,
            StorePlace::File(file) => Self::open_file(folder, file).await,
            StorePlace::Postgres(url) => {
                let store = SqlStore::connect(url.expose(), config.store.connections).await;
                Ok(Self { store: store.map_err(|source| unusable(config, source))?, lock: None, shared: true })
            }
        }
    }

    async fn open_file(folder: &DataFolder, file: &Path) -> Result<Self, StartError> {
        let lock = Some(lock(file)?);
        folder.make_database(file)?;
        Ok(Self { store: SqlStore::open(file).await?, lock, shared: false })
    }
}

/// The error of a server says where it is.
pub(super) fn unusable(config: &Config, source: StoreError) -> StartError {
    StartError::Database { database: config.store.place.shown(&config.data_dir), source }
}

/// Keeps other processes from a file that two data folders name.
pub(super) fn lock(database: &Path) -> Result<File, StartError> {
    let shown = || database.display().to_string();
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(name);
    let lock = lock.map_err(|source| StartError::File { file: shown(), source })?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StartError::FileTaken { file: shown() }),
        Err(TryLockError::Error(source)) => Err(StartError::File { file: shown(), source }),
    }
}
