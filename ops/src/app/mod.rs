//! The whole server in one process: worker, notifier, API and pages, wired.

mod check;
mod database;
mod demo;
mod folder;
mod http;
mod ledger;
mod store;
mod worker;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use countersign_kernel::graph::{CompileError, CompiledGraph};
use countersign_kernel::limits::Limits;
use countersign_kernel::ports::{Channel, Clock};
use countersign_notifier::{EmailChannel, EmailFault, KeyFault, Links, WebhookChannel, WebhookConfig, WebhookFault};
use countersign_worker::engine::{Engine, EngineConfig, ScheduleError};
use countersign_worker::store::commands::Serves;
use countersign_worker::store::views::TokenRecord;
use countersign_worker::store::{CopyError, Store as _, StoreError};
use countersign_worker::system::{SystemClock, SystemIds};
use tokio::net::TcpListener;

pub use self::check::{Check, check};
use self::database::Database;
pub use self::folder::DataFolder;
pub use self::ledger::StoreLedger;
pub use self::store::{Measured, copy_store, store_stats};
use self::worker::Wiring;
pub use self::worker::{Working, start_worker};
use crate::api::{ADMIN_TOKEN, admin_token_of, hash_token};
use crate::config::{Config, StorePlace};
use crate::state::AppState;
use crate::web;

/// How long the printed sign-in link works.
const SIGN_IN_FOR: Duration = Duration::from_hours(24);

/// What to start.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether to start some sample threads.
    pub demo: bool,
    /// Where to listen.
    pub port: Port,
}

/// Makes the flows that a program has beside those that ship.
pub type Flows = fn() -> Result<Vec<CompiledGraph>, CompileError>;

/// Where to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// At the configured address.
    Configured,
    /// On loopback, at a port that the system chooses.
    Ephemeral,
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another server owns the data folder.
    #[error("a server runs on this folder already, at {address}")]
    AlreadyRunning {
        /// Where it listens, as a URL.
        address: String,
    },
    /// The data folder cannot be used.
    #[error("the data folder `{folder}` cannot be used")]
    Folder {
        /// Which.
        folder: String,
        /// Why.
        source: std::io::Error,
    },
    /// There is nothing to look at.
    #[error("there is no database at `{file}`; name the data folder with --data")]
    NoDatabase {
        /// Where it would be.
        file: String,
    },
    /// A schedule of the configuration cannot be.
    #[error("the schedules of the configuration cannot be taken over")]
    Schedules(#[from] ScheduleError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}; choose another with COUNTERSIGN_LISTEN or --listen")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A database on a server cannot be opened.
    #[error("the database {database} cannot be opened")]
    Database {
        /// Which, without a password.
        database: String,
        /// Why.
        source: StoreError,
    },
    /// The file of a database cannot be locked.
    #[error("the database file `{file}` cannot be used")]
    File {
        /// Which.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// Another process has the file of the database.
    #[error("another process works on the database file `{file}`, which has one process at a time")]
    FileTaken {
        /// Which.
        file: String,
    },
    /// A flow was named that this build has not.
    #[error("there is no graph `{graph}` in this build; there are: {}", known.join(", "))]
    UnknownGraph {
        /// The name.
        graph: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A worker without a server needs a database that it can share.
    #[error(
        "the store is {file}, and a SQLite file has one process: `countersign up`, which works too. More processes \
         share a Postgres database: set `store.url`"
    )]
    OneProcess {
        /// Which.
        file: String,
    },
    /// The tables are older than this build, and cannot be copied.
    #[error(
        "the database is that of an earlier version; without the migrations {} a check cannot read it. Check a \
         restored copy to which `countersign migrate` was done",
        .missing.join(", ")
    )]
    OlderDatabase {
        /// The migrations that are missing, by number and name.
        missing: Vec<String>,
    },
    /// A store was not copied.
    #[error("nothing was copied")]
    NotCopied(#[from] CopyError),
    /// There are no keys to sign links with.
    #[error(
        "the keys that links are signed with cannot be read from `{file}`; processes that share a database need the \
         same ones: copy `secret.json` from the data folder of the one that serves the pages, and name it with \
         `links.secret_file`"
    )]
    NoSecret {
        /// Where they would be.
        file: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The store cannot be opened.
    #[error("the store cannot be opened")]
    Store(#[from] StoreError),
    /// The secret file is damaged.
    #[error("the secret in the data folder is not usable")]
    Keys(#[from] KeyFault),
    /// A flow does not compile.
    #[error(transparent)]
    Graph(#[from] CompileError),
    /// The mail settings are not usable.
    #[error("mail cannot be set up")]
    Email(#[from] EmailFault),
    /// The webhook settings are not usable.
    #[error("webhooks cannot be set up")]
    Webhook(#[from] WebhookFault),
}

/// A server of this process.
#[derive(Debug)]
pub struct Running {
    /// Where it listens, as a URL.
    pub base_url: String,
    /// An API token of the local administrator.
    pub token: String,
    /// Signs the local administrator in.
    pub sign_in_link: String,
    /// The engine, for programs that embed the server.
    pub engine: Engine,
    working: Working,
    // Dropped last: as long as it is held, the folder is ours.
    folder: DataFolder,
}

impl Running {
    /// Stops gracefully: takes no more work, lets running supersteps and
    /// requests finish within their limits, gives leases and jobs back.
    pub async fn stop(self) {
        self.working.stop().await;
        self.folder.release();
    }
}

/// Starts everything on the database that the configuration names, by default
/// a SQLite file in the data folder, with the flows that ship.
///
/// # Errors
/// The folder is another server's, or a part cannot be set up. Nothing is left
/// running.
pub async fn start(config: &Config, options: Options) -> Result<Running, StartError> {
    Box::pin(start_with(config, options, Vec::new())).await
}

/// Starts everything with flows of one's own beside those that ship. A flow
/// of the same name replaces the shipped one. See `ops/examples/own_flow.rs`.
///
/// # Errors
/// As [`start`].
pub async fn start_with(config: &Config, options: Options, flows: Vec<CompiledGraph>) -> Result<Running, StartError> {
    // A folder is not made for a server that cannot listen; one that is there
    // may be another server's, which says more.
    let early = if config.data_dir.exists() { None } else { Some(listen(config, options.port).await?) };
    let folder = DataFolder::open(&config.data_dir)?;
    let keys = folder.keys(config.links.secret_file.as_deref(), &SystemIds)?;
    let token = folder.token(&config.token_file(), &SystemIds)?;
    let database = Database::open(config, &folder, &SystemClock).await?;
    let hash = hash_token(&token);
    // Several folders may have a token each in one database.
    let name = if database.shared { admin_token_of(&hash) } else { ADMIN_TOKEN.to_owned() };
    let admin = TokenRecord { name, scopes: vec!["admin".into()], graphs: None };
    database.store.put_token(&admin, &hash, SystemClock.now()).await?;

    let listener = match early {
        Some(listener) => listener,
        None => listen(config, options.port).await?,
    };
    let bound = listener.local_addr().map_err(|source| StartError::Listen { address: config.listen, source })?;
    let base_url: Arc<str> = config.public_url(bound).trim_end_matches('/').into();
    let links = Arc::new(Links::new(base_url.as_ref(), keys, config.links.valid_for));
    let directory = Arc::new(if options.demo { demo::directory(config) } else { config.directory() });
    let serves = Serves::default();
    let apart = match config.metrics.listen {
        Some(address) => Some(worker::bind(address).await?),
        None => None,
    };
    let wiring = Wiring {
        folder: &folder,
        database,
        links: &links,
        directory: directory.clone(),
        base_url: &base_url,
        serves: &serves,
        pages: true,
        flows,
    };
    let mut working = Working::prepare(config, wiring).await?;
    let state = AppState::new(working.engine.clone(), config, links, directory, &base_url);
    if let Some(apart) = apart {
        let served = http::serve(apart, http::probes(state.clone()), working.shutdown.clone());
        working.tasks.push(tokio::spawn(served));
    }
    let served = http::serve(listener, http::router(state.clone()), working.shutdown.clone());
    working.tasks.push(tokio::spawn(served));
    working.engine.set_schedules(config.schedules.clone()).await?;
    working.begin(config, &serves);
    let base = format!("http://{bound}");
    folder.announce(&base)?;
    let running = Running {
        sign_in_link: web::sign_in_link(&state, &state.administrator(), SIGN_IN_FOR),
        base_url: base,
        token,
        engine: working.engine.clone(),
        working,
        folder,
    };
    if options.demo {
        demo::start(&running.engine, &state.administrator()).await;
    }
    Ok(running)
}

/// Brings the database up to date; says which migrations that took.
///
/// # Errors
/// Another server owns the folder that the database is in, or the database
/// cannot be opened.
pub async fn migrate(config: &Config) -> Result<Vec<String>, StartError> {
    let alone = !matches!(config.store.place, StorePlace::Postgres(_));
    let folder = if alone { DataFolder::open(&config.data_dir) } else { DataFolder::beside(&config.data_dir) }?;
    let database = Database::open_as_it_is(config, &folder).await?;
    let migrated = database.store.migrated().to_vec();
    database.store.close().await;
    drop(database.lock);
    folder.release();
    Ok(migrated)
}

async fn listen(config: &Config, port: Port) -> Result<TcpListener, StartError> {
    let address = match port {
        Port::Configured => config.listen,
        Port::Ephemeral => SocketAddr::from(([127, 0, 0, 1], 0)),
    };
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

fn channels(
    config: &Config,
    links: &Arc<Links>,
    clock: Arc<dyn Clock>,
    base_url: &str,
) -> Result<Vec<Arc<dyn Channel>>, StartError> {
    let email = EmailChannel::new(config.email.channel(&config.mailbox_dir()), links.clone(), clock.clone())?;
    let mut channels: Vec<Arc<dyn Channel>> = vec![Arc::new(email)];
    if !config.webhooks.is_empty() {
        let endpoints = config.webhooks.iter().map(crate::config::Webhook::endpoint).collect::<Result<_, _>>()?;
        let webhook = WebhookConfig { endpoints, ..WebhookConfig::new(base_url) };
        channels.push(Arc::new(WebhookChannel::new(webhook, clock)?));
    }
    Ok(channels)
}

fn engine_config(config: &Config) -> EngineConfig {
    EngineConfig {
        concurrency: config.worker.concurrency,
        lease: config.worker.lease,
        max_attempts: config.worker.max_attempts,
        events: config.worker.events,
        keep_events: config.worker.keep_events,
        keep_checkpoints: config.retention.checkpoints,
        keep_checkpoints_of: config.retention.graphs.clone(),
        limits: Limits {
            payload_bytes: usize::try_from(config.limits.payload_bytes).unwrap_or(usize::MAX),
            state_key_bytes: usize::try_from(config.limits.state_key_bytes).unwrap_or(usize::MAX),
            tasks_per_superstep: usize::try_from(config.limits.tasks_per_superstep).unwrap_or(usize::MAX),
            ..Limits::default()
        },
        supersteps_per_run: u32::try_from(config.limits.supersteps_per_run).unwrap_or(u32::MAX),
        ..EngineConfig::default()
    }
}
