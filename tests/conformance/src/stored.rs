//! The worker on a data file or a database of its own: a process that can be stopped, killed
//! and started again, and is used through its public API alone.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::policy::Policy;
use countersign_kernel::ports::{Clock as _, Directory, Ids as _, Person, Recipient};
use countersign_kernel::principal::Principal;
use countersign_worker::engine::{Engine, EngineConfig, Parts, RequestError, ThreadView};
use countersign_worker::queue::Carrier;
use countersign_worker::store::views::HistoryEntry;
use countersign_worker::store::{Refusal, SqlStore, Store, StoreError};
use countersign_worker::system::{SystemClock, SystemIds};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::data::Data;
pub use crate::data::On;

/// The flow of a scenario. Every process builds it anew, as every start of a
/// program does.
pub type Program = Arc<dyn Fn() -> Result<CompiledGraph, String> + Send + Sync>;

/// Puts something between the engine of the next process and its store.
pub type Between = Arc<dyn Fn(SqlStore) -> Arc<dyn Store> + Send + Sync>;

/// How long a process may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// Never, in a scenario.
const NEVER: Duration = Duration::from_secs(3600);
/// How often messages are looked for.
const CARRIED_EVERY: Duration = Duration::from_millis(10);
/// Threads of a process: requests can meet each other and an activation.
const THREADS: usize = 2;
/// Entries of a history that are read at once.
const PAGE: u32 = 200;

/// Nobody is known and nobody is told.
struct Nobody;

impl Directory for Nobody {
    fn person(&self, _: &Principal) -> Option<Person> {
        None
    }

    fn roles(&self, _: &Principal) -> Vec<String> {
        Vec::new()
    }

    fn recipients(&self, _: &Policy) -> Vec<Recipient> {
        Vec::new()
    }
}

/// A data file or a database, and the process that works on it.
pub struct Place {
    data: Data,
    program: Program,
    between: Between,
    process: Option<Process>,
    callers: AtomicU64,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}

impl Place {
    /// A place that was never used, with a process that runs.
    ///
    /// # Errors
    /// In the words of what failed.
    pub async fn open(on: On, program: Program) -> Result<Self, String> {
        let data = Data::fresh(on).await?;
        let between: Between = Arc::new(|store| Arc::new(store));
        let mut place = Self { data, program, between, process: None, callers: AtomicU64::new(0) };
        place.start().await?;
        Ok(place)
    }

    /// What stands between engine and store from the next process on.
    pub fn set_between(&mut self, between: Between) {
        self.between = between;
    }

    /// Shuts the engine down, closes the store, and opens it again.
    ///
    /// # Errors
    /// It does not end in time, or does not start.
    pub async fn restart(&mut self) -> Result<(), String> {
        if let Some(process) = self.process.take() {
            process.stop().await?;
        }
        self.start().await
    }

    /// Ends the process where it stands, nothing given back, and starts another.
    ///
    /// # Errors
    /// It does not start.
    pub async fn crash(&mut self) -> Result<(), String> {
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
        self.start().await
    }

    async fn start(&mut self) -> Result<(), String> {
        let process = Process::start(&self.data, (self.program)()?, &self.between).await?;
        let checked = process.engine.check().await.map_err(|problem| problem.to_string())?;
        self.process = Some(process);
        if checked.unfit.is_empty() { Ok(()) } else { Err(format!("a restart does not fit: {:?}", checked.unfit)) }
    }

    /// The engine that runs now.
    ///
    /// # Errors
    /// A restart has failed before.
    pub fn engine(&self) -> Result<&Engine, String> {
        Ok(&self.process()?.engine)
    }

    fn process(&self) -> Result<&Process, String> {
        self.process.as_ref().ok_or_else(|| "no process runs".to_owned())
    }

    /// Somebody who has asked for nothing before. An answer counts as a
    /// person's, and theirs only once: what a scenario asks for twice is asked
    /// for by two.
    pub fn caller(&self) -> Principal {
        Principal::service(&format!("caller-{}", self.callers.fetch_add(1, Ordering::Relaxed)))
    }

    /// Does something on a thread of the process, so that several go on at the
    /// same time.
    ///
    /// # Errors
    /// No process runs.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<JoinHandle<T>, String> {
        Ok(self.process()?.threads.handle.spawn(work))
    }

    /// A thread as it stands; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, or the store lists other points as open than its
    /// checkpoint has.
    pub async fn look(&self, thread: &ThreadId) -> Result<Option<ThreadView>, String> {
        let view = match self.engine()?.view(thread).await {
            Ok(view) => view,
            Err(RequestError::Store(StoreError::Refused(Refusal::UnknownThread(_)))) => return Ok(None),
            Err(problem) => return Err(problem.to_string()),
        };
        let sorted = |ids: &mut dyn Iterator<Item = &str>| {
            let mut ids: Vec<_> = ids.map(str::to_owned).collect();
            ids.sort_unstable();
            ids
        };
        let open = sorted(&mut view.points.iter().map(|point| point.id.as_str()));
        let listed = sorted(&mut view.detail.interrupts.iter().map(|listed| listed.id.as_str()));
        if open != listed || view.detail.summary.open as usize != open.len() {
            let count = view.detail.summary.open;
            return Err(format!("{open:?} are open, the store lists {listed:?} and counts {count}"));
        }
        Ok(Some(view))
    }

    /// Waits until a thread rests.
    ///
    /// # Errors
    /// There is none, it is held, or it cannot be read.
    pub async fn rests(&self, thread: &ThreadId) -> Result<(), String> {
        let store = self.engine()?.store();
        let mut watching = store.journal().watch(thread);
        loop {
            // The status alone: no event has such a number.
            let page = store.events(thread, Some(i64::MAX), 1).await.map_err(|problem| problem.to_string())?;
            match page.status.as_str() {
                "parked" | "failed" | "succeeded" | "cancelled" => return Ok(()),
                "held" => {
                    let held = store.thread(thread).await.map_err(|problem| problem.to_string())?;
                    return Err(format!("held: {}", held.summary.held_reason.unwrap_or_default()));
                }
                _ => watching.news().await,
            }
        }
    }

    /// All checkpoints of a thread, newest first; none of one that never ran.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn history(&self, thread: &ThreadId) -> Result<Vec<HistoryEntry>, String> {
        let engine = self.engine()?;
        let mut entries: Vec<HistoryEntry> = Vec::new();
        loop {
            let before = entries.last().map(|last| last.seq);
            if before == Some(0) {
                return Ok(entries);
            }
            match engine.history(thread, None, before, PAGE).await {
                Ok(page) if page.is_empty() => return Ok(entries),
                Ok(page) => entries.extend(page),
                Err(StoreError::Refused(Refusal::UnknownThread(_))) => return Ok(entries),
                Err(problem) => return Err(problem.to_string()),
            }
        }
    }
}

/// One process: an engine, its store and its threads of execution.
struct Process {
    engine: Engine,
    store: SqlStore,
    threads: Threads,
    shutdown: CancellationToken,
    running: JoinHandle<()>,
}

/// Threads of execution that may be let go anywhere.
struct Threads {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Threads {
    fn new() -> std::io::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Drops every task where it stands, and waits until that is done.
    async fn end(mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A panic of a task was reported where it happened.
            let _ended = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(ENDS_WITHIN)).await;
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Process {
    async fn start(data: &Data, graph: CompiledGraph, between: &Between) -> Result<Self, String> {
        let threads = Threads::new().map_err(|problem| problem.to_string())?;
        let open = data.open().await;
        let opened = threads.handle.spawn(async move {
            let store = open.await?;
            store.recover(SystemClock.now()).await?;
            Ok::<_, StoreError>(store)
        });
        let store = opened.await.map_err(|problem| problem.to_string())?.map_err(|problem| problem.to_string())?;
        let engine = Engine::new(Parts {
            store: between(store.clone()),
            graphs: vec![graph],
            directory: Arc::new(Nobody),
            channels: Vec::new(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
            worker: SystemIds.uuid(),
            // One sweep, at the start: it finds what a dead process left. All
            // other work has to be handed over.
            config: EngineConfig { sweep_every: NEVER, sweep_grace: Duration::ZERO, ..EngineConfig::default() },
        });
        let shutdown = CancellationToken::new();
        let running = threads.handle.spawn({
            let (engine, shutdown) = (engine.clone(), shutdown.clone());
            async move { engine.run(shutdown).await }
        });
        if matches!(data, Data::Redis(..)) {
            // What was handed over comes once more as a message.
            let carrier = Carrier::new(&store, "conformance", CARRIED_EVERY);
            let (receiver, wake, shutdown) = (Arc::new(engine.clone()), engine.wake(), shutdown.clone());
            threads.handle.spawn(async move { carrier.run(receiver, wake, shutdown).await });
        }
        Ok(Self { engine, store, threads, shutdown, running })
    }

    async fn stop(self) -> Result<(), String> {
        self.shutdown.cancel();
        let ended = tokio::time::timeout(ENDS_WITHIN, self.running).await;
        ended.map_err(|_| "the engine does not stop".to_owned())?.map_err(|problem| problem.to_string())?;
        self.store.close().await;
        self.threads.end().await;
        Ok(())
    }

    async fn kill(self) {
        self.threads.end().await;
    }
}
