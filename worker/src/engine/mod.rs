//! The engine: takes wake-ups, holds threads, runs bodies, commits.
//!
//! A wake-up says "look at this thread". The engine takes the lease
//! ([`Store::claim`]), drives the kernel until the thread rests, and commits
//! once per superstep. A parked thread leaves nothing behind here: no task, no
//! timer, no connection.

mod activation;
mod batch;
mod beat;
mod check;
mod controls;
mod dead_letters;
mod deliver;
mod dispatch;
mod effects;
mod gather;
mod leases;
mod moves;
mod requests;
mod restore;
mod retention;
mod schedules;
mod signals;
mod start;
mod sweep;
mod timers;
mod view;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::limits::Limits;
use countersign_kernel::ports::{Channel, ChannelName, Clock, Directory, Ids, StopSignal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::batch::{BatchOutcome, Together};
pub use self::beat::About;
pub use self::check::{Checked, Unfit};
pub use self::dead_letters::{RETRY_MAX, Retried};
pub use self::moves::{EditReply, EditRequest, Edited, ReplayRequest};
pub use self::requests::{Reply, RequestError, ResumeRequest, Started, VoteRequest};
pub use self::schedules::ScheduleError;
pub use self::start::StartRequest;
pub use self::view::{FrameState, ThreadView};
use crate::queue::{JobId, JobKind, Message, Wake};
use crate::store::Store;
use crate::store::commands::{Fence, Serves};

/// How an engine works. Durations and counts; the defaults suit a laptop.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// What this engine takes up; the rest is left to other processes of the
    /// database.
    pub serves: Serves,
    /// Threads that are run side by side.
    pub concurrency: usize,
    /// Deliveries that are attempted side by side.
    pub deliveries: usize,
    /// How long a lease holds without renewal.
    pub lease: Duration,
    /// How often the store is swept for work whose message was lost.
    pub sweep_every: Duration,
    /// How long queued work may wait before a sweep takes it up.
    pub sweep_grace: Duration,
    /// Claims without progress after which a thread is held.
    pub max_attempts: u32,
    /// Attempts after which a delivery fails.
    pub delivery_attempts: u32,
    /// Delay before the second attempt of a delivery; doubles, up to an hour.
    pub delivery_backoff: Duration,
    /// Supersteps in one activation before the thread pauses (R11, R30).
    pub supersteps_per_run: u32,
    /// What is refused for its size.
    pub limits: Limits,
    /// How many checkpoints of a thread are kept; about half as many more may be
    /// there for a while. 0 keeps all.
    pub keep_checkpoints: u32,
    /// Flows with a number of their own.
    pub keep_checkpoints_of: BTreeMap<String, u32>,
    /// How long bodies of a thread that is being cancelled may go on before they
    /// are dropped.
    pub cancel_grace: Duration,
    /// How long a shutdown waits for running supersteps.
    pub shutdown_within: Duration,
    /// Whether events are kept for watchers (K22).
    pub events: bool,
    /// How long events are kept.
    pub keep_events: Duration,
    /// What this process says of itself to others.
    pub about: About,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            serves: Serves::default(),
            concurrency: 64,
            deliveries: 16,
            lease: Duration::from_secs(15),
            sweep_every: Duration::from_secs(1),
            sweep_grace: Duration::from_secs(2),
            max_attempts: 5,
            // 5 s, doubling up to an hour: some ten hours in all, so that a mail
            // server may be down for a night.
            delivery_attempts: 20,
            delivery_backoff: Duration::from_secs(5),
            supersteps_per_run: 1000,
            limits: Limits::default(),
            keep_checkpoints: 0,
            keep_checkpoints_of: BTreeMap::new(),
            cancel_grace: Duration::from_secs(10),
            shutdown_within: Duration::from_secs(10),
            events: true,
            keep_events: Duration::from_hours(7 * 24),
            about: About::default(),
        }
    }
}

/// What an engine is wired with.
pub struct Parts {
    /// Truth.
    pub store: Arc<dyn Store>,
    /// The flows that this build knows.
    pub graphs: Vec<CompiledGraph>,
    /// Who is who.
    pub directory: Arc<dyn Directory>,
    /// How to reach people.
    pub channels: Vec<Arc<dyn Channel>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Fresh ids.
    pub ids: Arc<dyn Ids>,
    /// The name of this process in leases; unique per start.
    pub worker: String,
    /// How to work.
    pub config: EngineConfig,
}

/// Runs threads. Cheap to clone; all clones are one engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    graphs: BTreeMap<String, Arc<CompiledGraph>>,
    directory: Arc<dyn Directory>,
    channels: BTreeMap<ChannelName, Arc<dyn Channel>>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    worker: String,
    config: EngineConfig,
    wake: Wake,
    waiting: Mutex<dispatch::Waiting>,
    news: Notify,
    /// Somebody left work to whoever looks for it.
    called: Notify,
    /// A point was opened that waits for an instant.
    timed: Notify,
    /// A place under a limit has become free.
    freed: Notify,
    standing: Mutex<Arc<controls::Standing>>,
    active: Mutex<HashMap<ThreadId, Active>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// A thread that this engine holds.
struct Active {
    fence: Option<Fence>,
    trust: leases::Trust,
    lost: CancellationToken,
    stop: StopSignal,
}

impl Engine {
    /// Puts an engine together; [`run`](Self::run) starts it.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        parts.store.journal().switch(parts.config.events);
        let limits = Limits { supersteps_per_run: parts.config.supersteps_per_run, ..parts.config.limits };
        let inner = Inner {
            store: parts.store,
            graphs: parts
                .graphs
                .into_iter()
                .map(|graph| (graph.name().to_owned(), Arc::new(graph.with_limits(limits))))
                .collect(),
            directory: parts.directory,
            channels: parts.channels.into_iter().map(|channel| (channel.name(), channel)).collect(),
            clock: parts.clock,
            ids: parts.ids,
            worker: parts.worker,
            config: parts.config,
            wake: Wake::new(),
            waiting: Mutex::default(),
            news: Notify::new(),
            called: Notify::new(),
            timed: Notify::new(),
            freed: Notify::new(),
            standing: Mutex::default(),
            active: Mutex::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The store behind the engine, for reading.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// The clock that the engine goes by.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// The directory that the engine goes by.
    #[must_use]
    pub fn directory(&self) -> &Arc<dyn Directory> {
        &self.inner.directory
    }

    /// The flows that this build knows.
    pub fn graphs(&self) -> impl Iterator<Item = &CompiledGraph> {
        self.inner.graphs.values().map(AsRef::as_ref)
    }

    /// The flag that wakes the carrier when a job is pushed that this engine
    /// has no room for.
    #[must_use]
    pub fn wake(&self) -> Wake {
        self.inner.wake.clone()
    }

    /// Ends when the engine is told to shut down.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + use<> {
        self.inner.stop.clone().cancelled_owned()
    }

    /// Threads that are being run or wait in memory right now.
    #[must_use]
    pub fn busy(&self) -> usize {
        lock(&self.inner.waiting).busy()
    }

    /// How to ask an activation of this process to pause.
    fn stop_signal(&self, thread: &ThreadId) -> StopSignal {
        lock(&self.inner.active).get(thread).map(|active| active.stop.clone()).unwrap_or_default()
    }

    /// A fresh job id.
    fn job(&self) -> JobId {
        let random = u128::from_be_bytes(self.inner.ids.salt());
        let millis = u64::try_from(self.inner.clock.now().as_micros() / 1000).unwrap_or(0);
        JobId::new(millis, random)
    }

    /// Hands work that was just committed to this process if it has room; its
    /// job row is the fallback.
    fn hand_over(&self, message: Message) {
        let kind: JobKind = message.kind;
        if !self.dispatch(message) {
            self.inner.wake.wake(kind);
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("worker", &self.inner.worker).finish_non_exhaustive()
    }
}

/// A lock whose data stays valid when a holder panicked: every change to it is
/// one insertion or removal.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
