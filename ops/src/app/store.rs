//! Measuring a store, and moving it to another database.

use std::collections::BTreeMap;
use std::path::Path;

use countersign_kernel::ports::Clock as _;
use countersign_worker::store::{Beside, Copied, Retention as _, SqlStore, Store as _, StoreError, StoreStats};
use countersign_worker::system::SystemClock;

use super::StartError;
use super::database::lock;
use crate::config::{Config, DATABASE_FILE, StorePlace};

/// What a store holds, and how much of it nobody needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// What it holds.
    pub stats: StoreStats,
    /// Checkpoints that the configured retention would compact, by graph.
    pub compactable: BTreeMap<String, u64>,
}

/// Measures the store that the configuration names, beside the processes that
/// work on it.
///
/// # Errors
/// There is none, or it cannot be read by this build.
pub async fn store_stats(config: &Config) -> Result<Measured, StartError> {
    let file = match &config.store.place {
        StorePlace::Postgres(url) => {
            let beside = SqlStore::connect_beside(url.expose()).await;
            return measured(config, beside.map_err(|source| super::database::unusable(config, source))?).await;
        }
        StorePlace::Folder => config.data_dir.join(DATABASE_FILE),
        StorePlace::File(file) => file.clone(),
    };
    if !file.exists() {
        return Err(StartError::NoDatabase { file: file.display().to_string() });
    }
    measured(config, SqlStore::open_beside(&file).await?).await
}

async fn measured(config: &Config, beside: Beside) -> Result<Measured, StartError> {
    match beside {
        Beside::Older { missing } => Err(StartError::OlderDatabase { missing }),
        Beside::Current(store) => {
            let stats = store.stats().await;
            let compactable = compactable(config, &store).await;
            store.close().await;
            Ok(Measured { stats: stats?, compactable: compactable? })
        }
    }
}

/// Goes through all threads, a page at a time.
async fn compactable(config: &Config, store: &SqlStore) -> Result<BTreeMap<String, u64>, StoreError> {
    const PAGE: u32 = 1_000;
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let mut after = None;
    loop {
        let page = store.histories(after.as_ref(), PAGE).await?;
        after = page.last().map(|last| last.thread.clone());
        let whole = page.len() == PAGE as usize;
        for history in page {
            let keep = config.retention.graphs.get(&history.graph).unwrap_or(&config.retention.checkpoints);
            if *keep > 0 {
                *sums.entry(history.graph).or_default() += history.checkpoints.saturating_sub(u64::from(*keep));
            }
        }
        if !whole {
            return Ok(sums);
        }
    }
}

/// Copies the store at one place to another, which must be empty. Both are
/// brought to the present form of this build; a file is locked meanwhile.
///
/// # Errors
/// One cannot be opened, is in use or not empty, or what was copied is not what
/// is there. The target is left empty then.
pub async fn copy_store(
    from: &StorePlace,
    to: &StorePlace,
    progress: &mut (dyn FnMut(&str, u64) + Send),
) -> Result<Copied, StartError> {
    if let StorePlace::File(file) = from
        && !file.exists()
    {
        return Err(StartError::NoDatabase { file: file.display().to_string() });
    }
    let (source, held) = open(from).await?;
    if held.is_some() {
        // The file is ours alone, so whoever held anything in it is dead.
        source.recover(SystemClock.now()).await?;
    }
    let (target, _taken) = open(to).await?;
    let copied = source.copy_to(&target, SystemClock.now(), progress).await;
    source.close().await;
    target.close().await;
    Ok(copied?)
}

/// A copy needs one connection that reads and one that writes, and the store
/// some of its own.
const CONNECTIONS: u32 = 4;

/// The store at a place, and the lock of its file.
async fn open(place: &StorePlace) -> Result<(SqlStore, Option<std::fs::File>), StartError> {
    match place {
        StorePlace::Postgres(url) => {
            let store = SqlStore::connect(url.expose(), CONNECTIONS).await;
            let failed = |source: StoreError| StartError::Database { database: url.to_string(), source };
            Ok((store.map_err(failed)?, None))
        }
        StorePlace::File(file) => {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            std::fs::create_dir_all(folder)
                .map_err(|source| StartError::File { file: file.display().to_string(), source })?;
            let lock = lock(file)?;
            Ok((SqlStore::open(file).await?, Some(lock)))
        }
        StorePlace::Folder => Err(StartError::NoDatabase { file: "a data folder: name its file".to_owned() }),
    }
}
