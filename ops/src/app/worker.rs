//! What works: engine and carrier, with a server around them or alone.

use std::net::SocketAddr;
use std::sync::Arc;

use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ports::{Clock, Directory, Ids};
use countersign_notifier::Links;
use countersign_worker::engine::{About, Engine, EngineConfig, Parts};
use countersign_worker::queue::Carrier;
use countersign_worker::store::EffectLedger;
use countersign_worker::store::commands::Serves;
use countersign_worker::system::{SystemClock, SystemIds};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::database::Database;
use super::{DataFolder, StartError, StoreLedger, channels, engine_config, http};
use crate::config::{Config, StorePlace};
use crate::state::AppState;

/// An engine and its carrier, at work in this process.
#[derive(Debug)]
pub struct Working {
    /// The engine.
    pub engine: Engine,
    pub(super) shutdown: CancellationToken,
    pub(super) tasks: Vec<JoinHandle<()>>,
    database: Database,
}

/// What an engine is made of, beside the configuration.
pub(super) struct Wiring<'a> {
    pub(super) folder: &'a DataFolder,
    pub(super) database: Database,
    pub(super) links: &'a Arc<Links>,
    pub(super) directory: Arc<dyn Directory>,
    pub(super) base_url: &'a str,
    pub(super) serves: &'a Serves,
    /// Whether it serves API and pages too.
    pub(super) pages: bool,
    pub(super) flows: Vec<CompiledGraph>,
}

impl Working {
    /// Wires the engine; nothing runs before [`begin`](Self::begin).
    pub(super) async fn prepare(config: &Config, wiring: Wiring<'_>) -> Result<Self, StartError> {
        let (clock, ids): (Arc<dyn Clock>, Arc<dyn Ids>) = (Arc::new(SystemClock), Arc::new(SystemIds));
        let ledger = wiring.folder.ledger();
        wiring.folder.make_database(&ledger)?;
        let ledger = StoreLedger::new(EffectLedger::open(&ledger).await?, clock.clone());
        let mut graphs = countersign_flows::all(Arc::new(ledger))?;
        graphs.extend(wiring.flows);
        let engine = Engine::new(Parts {
            store: Arc::new(wiring.database.store.clone()),
            graphs,
            directory: wiring.directory,
            channels: channels(config, wiring.links, clock.clone(), wiring.base_url)?,
            clock,
            worker: format!("worker-{}", hex::encode(&ids.salt()[..6])),
            ids,
            config: EngineConfig {
                serves: wiring.serves.clone(),
                about: About { host: host(), pages: wiring.pages, ..About::default() },
                ..engine_config(config)
            },
        });
        let lacks = |graph: &&String| !engine.graphs().any(|known| known.name() == **graph);
        if let Some(graph) = wiring.serves.graphs.iter().flatten().find(lacks) {
            let known = engine.graphs().map(|known| known.name().to_owned()).collect();
            return Err(StartError::UnknownGraph { graph: graph.clone(), known });
        }
        Ok(Self { engine, shutdown: CancellationToken::new(), tasks: Vec::new(), database: wiring.database })
    }

    /// Sets the engine and its carrier to work.
    pub(super) fn begin(&mut self, config: &Config, serves: &Serves) {
        let carrier = Carrier::new(&self.database.store, "countersign", config.worker.poll_interval).of(&serves.kinds);
        let (engine, wake, stop) = (self.engine.clone(), self.engine.wake(), self.shutdown.clone());
        let receiver = Arc::new(engine.clone());
        self.tasks.push(tokio::spawn({
            let stop = stop.clone();
            async move { engine.run(stop).await }
        }));
        self.tasks.push(tokio::spawn(async move {
            if let Err(error) = carrier.run(receiver, wake, stop).await {
                tracing::error!(%error, "the queue's carrier ended; the sweep still finds all work");
            }
        }));
    }

    /// Stops gracefully: takes no more work, lets running supersteps finish
    /// within their limit, gives leases and jobs back.
    pub async fn stop(self) {
        self.shutdown.cancel();
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a part of the process ended abnormally");
            }
        }
        self.database.store.close().await;
        // Only now may another process have the file.
        drop(self.database.lock);
    }
}

/// Works on a Postgres database without serving anything: takes up what it is
/// to serve, with the flows that ship and those given. May run beside the server
/// that has the data folder.
///
/// # Errors
/// The store is a file, which has one process; there are no keys to sign links
/// with; a flow is unknown; or a part cannot be set up. Nothing is left running.
pub async fn start_worker(config: &Config, serves: &Serves, flows: Vec<CompiledGraph>) -> Result<Working, StartError> {
    if !matches!(config.store.place, StorePlace::Postgres(_)) {
        return Err(StartError::OneProcess { file: config.store.place.shown(&config.data_dir) });
    }
    let folder = DataFolder::beside(&config.data_dir)?;
    let keys = folder.keys(config.links.secret_file.as_deref(), &SystemIds)?;
    let base_url = config.public_url(config.listen);
    let base_url = base_url.trim_end_matches('/');
    let listener = match config.metrics.listen {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let links = Arc::new(Links::new(base_url, keys, config.links.valid_for));
    let directory = Arc::new(config.directory());
    let wiring = Wiring {
        folder: &folder,
        database: Database::open(config, &folder, &SystemClock).await?,
        links: &links,
        directory: directory.clone(),
        base_url,
        serves,
        pages: false,
        flows,
    };
    let mut working = Working::prepare(config, wiring).await?;
    if let Some(listener) = listener {
        let state = AppState::new(working.engine.clone(), config, links, directory, base_url);
        let served = http::serve(listener, http::probes(state), working.shutdown.clone());
        working.tasks.push(tokio::spawn(served));
    }
    working.begin(config, serves);
    Ok(working)
}

/// A listener at exactly this address.
pub(super) async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

/// What the machine calls itself.
fn host() -> String {
    hostname::get().map_or_else(|_| "an unnamed host".to_owned(), |name| name.to_string_lossy().into_owned())
}
