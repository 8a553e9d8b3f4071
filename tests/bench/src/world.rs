//! The worker, wired as the program wires it: store, engine and carrier in the
//! process of the driver.

use std::sync::Arc;
use std::time::Duration;

use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::policy::Policy;
use countersign_kernel::ports::{Clock as _, Directory, Ids as _, Person, Recipient};
use countersign_kernel::principal::Principal;
use countersign_worker::engine::{Engine, EngineConfig, Parts, Started, VoteRequest};
use countersign_worker::queue::Carrier;
use countersign_worker::store::commands::Via;
use countersign_worker::store::views::ThreadDetail;
use countersign_worker::store::{SqlStore, Store, Watching};
use countersign_worker::system::{SystemClock, SystemIds};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::Fault;
use crate::desk::{Desk, Moment};
use crate::place::At;

/// Nothing that is measured takes this long.
const GIVES_UP: Duration = Duration::from_secs(120);

/// What the worker works on, and how.
#[derive(Debug, Clone)]
pub(crate) struct Wiring {
    pub(crate) at: At,
    /// Whether it keeps events, as it does by default.
    pub(crate) events: bool,
    pub(crate) connections: u32,
}

/// Everybody may approve; nobody is told.
struct Approvers;

impl Directory for Approvers {
    fn person(&self, _: &Principal) -> Option<Person> {
        None
    }

    fn roles(&self, principal: &Principal) -> Vec<String> {
        if principal.is_person() { vec!["approver".to_owned()] } else { Vec::new() }
    }

    fn recipients(&self, _: &Policy) -> Vec<Recipient> {
        Vec::new()
    }
}

/// Who answers.
pub(crate) fn approver() -> Principal {
    Principal::person("ann@example.com")
}

/// Who starts.
fn caller() -> Principal {
    Principal::service("bench")
}

/// A worker that runs. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) desk: Arc<Desk>,
    store: SqlStore,
    shutdown: CancellationToken,
    tasks: Arc<std::sync::Mutex<Vec<JoinHandle<()>>>>,
}

impl World {
    /// Opens the database, which may be empty, and starts the worker.
    pub(crate) async fn start(wiring: &Wiring, desk: &Arc<Desk>, graphs: Vec<CompiledGraph>) -> Result<Self, Fault> {
        let store = match &wiring.at {
            At::Sqlite(path) => {
                let store = SqlStore::open(path).await?;
                store.recover(SystemClock.now()).await?;
                store
            }
            At::Postgres(url) => SqlStore::connect(url, wiring.connections).await?,
        };
        desk.open(store.journal());
        let engine = Engine::new(Parts {
            store: Arc::new(store.clone()),
            graphs,
            directory: Arc::new(Approvers),
            channels: Vec::new(),
            clock: Arc::new(SystemClock),
            ids: Arc::new(SystemIds),
            worker: format!("worker-{}", SystemIds.uuid()),
            config: EngineConfig { events: wiring.events, ..EngineConfig::default() },
        });
        let shutdown = CancellationToken::new();
        let carrier = Carrier::new(&store, "bench", Carrier::POLL_INTERVAL);
        let (receiver, wake, stop) = (Arc::new(engine.clone()), engine.wake(), shutdown.clone());
        let carried = tokio::spawn(async move {
            // Its end before the worker's is seen in the figures.
            let _ended = carrier.run(receiver, wake, stop).await;
        });
        let (running, stop) = (engine.clone(), shutdown.clone());
        let worked = tokio::spawn(async move { running.run(stop).await });
        let tasks = Arc::new(std::sync::Mutex::new(vec![carried, worked]));
        Ok(Self { engine, desk: Arc::clone(desk), store, shutdown, tasks })
    }

    /// Stops the worker and closes the database.
    pub(crate) async fn stop(self) -> Result<(), Fault> {
        self.shutdown.cancel();
        let tasks = std::mem::take(&mut *self.tasks.lock().map_err(|_| "a task of the worker panicked")?);
        for task in tasks {
            task.await?;
        }
        self.store.close().await;
        Ok(())
    }

    /// The thread of a run.
    pub(crate) fn thread(run: u64) -> Result<ThreadId, Fault> {
        Ok(ThreadId::parse(format!("run-{run}"))?)
    }

    /// Says when the commit after a moment of a run is known to be durable.
    pub(crate) fn await_rest(&self, run: u64, moment: Moment) -> Result<Resting, Fault> {
        Ok(Resting(self.desk.await_moment(run, Self::thread(run)?, moment)))
    }

    /// Starts a run: one job.
    pub(crate) async fn begin(&self, graph: &str, run: u64, supersteps: Option<u32>) -> Result<(), Fault> {
        let (input, thread) = (json!({"run": run}), Some(Self::thread(run)?));
        match self.engine.start_within(graph, &input, thread, supersteps, &caller(), &|_, _, _| None).await? {
            Started::New { .. } => Ok(()),
            Started::Replayed { .. } => Err("a thread was there before its start".into()),
        }
    }

    /// Starts a run and waits until the commit after its moment is durable.
    pub(crate) async fn drive(&self, graph: &str, run: u64, moment: Moment) -> Result<(), Fault> {
        let resting = self.await_rest(run, moment)?;
        self.begin(graph, run, None).await?;
        resting.durable().await
    }

    /// Approves, as the API does: one function call.
    pub(crate) async fn approve(&self, interrupt: &InterruptId) -> Result<(), Fault> {
        let vote = VoteRequest {
            interrupt: interrupt.clone(),
            principal: approver(),
            operator: false,
            answer: yes(),
            revision: None,
            content_hash: None,
            via: Via { channel: "api", identified: "token" },
        };
        let voted = self.engine.vote(vote).await?;
        if voted.decided { Ok(()) } else { Err("a vote decided nothing".into()) }
    }

    /// A thread as it rests. It is a fault if it does not rest so: a figure
    /// would be of something else.
    pub(crate) async fn rested(&self, run: u64, status: &str) -> Result<ThreadDetail, Fault> {
        let detail = self.engine.store().thread(&Self::thread(run)?).await?;
        if detail.summary.status == status {
            return Ok(detail);
        }
        Err(format!("run {run} should be {status} and is {:?}", detail.summary).into())
    }

    /// Waits for a thread's rest by looking at every news of it.
    pub(crate) async fn await_status(
        &self,
        run: u64,
        news: &mut Watching,
        status: &str,
    ) -> Result<ThreadDetail, Fault> {
        let looking = async {
            loop {
                let detail = self.engine.store().thread(&Self::thread(run)?).await?;
                if detail.summary.status == status {
                    return Ok(detail);
                }
                news.news().await;
            }
        };
        tokio::time::timeout(GIVES_UP, looking).await?
    }

    /// Watches the thread of a run from now on.
    pub(crate) fn watch(&self, run: u64) -> Result<Watching, Fault> {
        Ok(self.engine.store().journal().watch(&Self::thread(run)?))
    }

    /// Waits until nothing runs, so that what follows begins on a quiet worker.
    pub(crate) async fn quiet(&self) -> Result<(), Fault> {
        let idle = async {
            while self.engine.busy() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        Ok(tokio::time::timeout(GIVES_UP, idle).await?)
    }
}

/// The answer that everybody gives.
pub(crate) fn yes() -> Value {
    json!({"approved": true})
}

/// A rest that is to come.
pub(crate) struct Resting(oneshot::Receiver<Watching>);

impl Resting {
    /// Ends when the commit after the moment is durable.
    pub(crate) async fn durable(self) -> Result<(), Fault> {
        let waiting = async {
            let mut watching = self.0.await?;
            watching.news().await;
            Ok(())
        };
        tokio::time::timeout(GIVES_UP, waiting).await?
    }
}
