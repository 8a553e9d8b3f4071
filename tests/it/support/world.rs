//! Engines on data of their own, started, crashed and started again.

use std::sync::Arc;
use std::time::Duration;

use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::{CheckpointId, FrameId, InterruptId, ThreadId};
use countersign_kernel::machine::{Amend, Edit, Resume, TaskStatus};
use countersign_kernel::node::Goto;
use countersign_kernel::ports::{Channel, Clock, Ids};
use countersign_kernel::principal::Principal;
use countersign_worker::engine::{
    EditRequest, Edited, Engine, EngineConfig, Parts, ReplayRequest, RequestError, ResumeRequest, Started, ThreadView,
    VoteRequest,
};
use countersign_worker::queue::{Carrier, JobId, Message, Receiver};
use countersign_worker::store::commands::{Via, Voted};
use countersign_worker::store::views::{HistoryEntry, InterruptView, ThreadDetail};
use countersign_worker::store::{Accepted, SqlStore, Store};
use countersign_worker::system::{SystemClock, SystemIds};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::data::Data;
use super::faulty::Faulty;
use super::redis::RedisPlace;
use super::{Ahead, Fate, Outbox, People, ann, eventually, eventually_or};

/// Long enough never to come in a test.
const NEVER: Duration = Duration::from_secs(3600);

/// A file or a database, and what its engines are made of.
pub(crate) struct World {
    data: Data,
    graphs: Arc<dyn Fn() -> Vec<CompiledGraph> + Send + Sync>,
    pub(crate) config: EngineConfig,
    pub(crate) carrier: bool,
    pub(crate) outbox: Outbox,
    /// What its processes take for the time.
    pub(crate) clock: Ahead,
    recovers: bool,
    fate: Fate,
}

impl World {
    /// Engines that sweep often and have no carrier.
    pub(crate) fn new(graphs: impl Fn() -> Vec<CompiledGraph> + Send + Sync + 'static) -> Self {
        Self {
            data: Data::fresh(),
            graphs: Arc::new(graphs),
            config: EngineConfig {
                sweep_every: Duration::from_millis(20),
                sweep_grace: Duration::from_millis(20),
                delivery_backoff: Duration::from_millis(5),
                ..EngineConfig::default()
            },
            carrier: false,
            outbox: Outbox::taking(),
            clock: Ahead::default(),
            recovers: true,
            fate: Fate::kind(),
        }
    }

    pub(crate) fn one(graph: impl Fn() -> CompiledGraph + Send + Sync + 'static) -> Self {
        Self::new(move || vec![graph()])
    }

    /// With the carrier, as in production.
    pub(crate) fn carried(mut self) -> Self {
        self.carrier = true;
        self
    }

    /// Without a sweep: what is not handed over or carried is not found.
    pub(crate) fn without_sweep(mut self) -> Self {
        self.config.sweep_every = NEVER;
        self.config.sweep_grace = NEVER;
        self
    }

    pub(crate) fn sending_through(mut self, outbox: &Outbox) -> Self {
        self.outbox = outbox.clone();
        self
    }

    /// Its processes die as `fate` says.
    pub(crate) fn meeting(mut self, fate: &Fate) -> Self {
        self.fate = fate.clone();
        self
    }

    /// Its messages go through this Redis.
    pub(crate) fn over(self, redis: RedisPlace) -> Self {
        Self { data: self.data.over(redis), ..self }
    }

    /// What carries its messages.
    pub(crate) fn redis(&self) -> &RedisPlace {
        self.data.redis().expect("a world of `On::Redis`")
    }

    /// With the data file that the statements make.
    pub(crate) async fn holding(self, statements: &'static str) -> Self {
        self.data.made_by(statements).await;
        self
    }

    /// Its processes do not know that those before them are dead: there may be
    /// several at a time, and leases have to lapse.
    pub(crate) fn among_others(mut self, lease: Duration) -> Self {
        self.recovers = false;
        self.config.lease = lease;
        self
    }

    pub(crate) fn configured(mut self, change: impl FnOnce(&mut EngineConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// The same data under another build.
    pub(crate) fn with_graphs(self, graphs: impl Fn() -> Vec<CompiledGraph> + Send + Sync + 'static) -> Self {
        Self { graphs: Arc::new(graphs), ..self }
    }

    /// The next process on this data, running.
    pub(crate) async fn engine(&self) -> TestEngine {
        let mut engine = self.idle().await;
        engine.run(self.carrier);
        engine
    }

    /// The next process on this data, which takes requests and runs nothing.
    pub(crate) async fn idle(&self) -> TestEngine {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        if self.recovers {
            self.data.left().await;
        }
        let (open, recovers) = (self.data.open().await, self.recovers);
        let open = async move {
            let store = open.await?;
            if recovers {
                store.recover(SystemClock.now()).await?;
            }
            Ok::<_, countersign_worker::store::StoreError>(store)
        };
        let store = runtime.spawn(open).await.expect("no panic").expect("the store opens");
        let engine = Engine::new(Parts {
            store: Arc::new(Faulty::new(store.clone(), self.fate.clone())),
            graphs: (self.graphs)(),
            directory: Arc::new(People),
            channels: vec![Arc::new(self.outbox.clone()) as Arc<dyn Channel>],
            clock: Arc::new(self.clock.clone()),
            ids: Arc::new(SystemIds),
            worker: SystemIds.uuid(),
            config: self.config.clone(),
        });
        TestEngine { engine, store, runtime: Some(runtime), shutdown: CancellationToken::new(), running: None }
    }

    /// How many job rows there are.
    pub(crate) async fn jobs(&self) -> i64 {
        self.count(self.data.jobs()).await
    }

    /// Has all job rows vanish.
    pub(crate) async fn lose_jobs(&self) {
        self.data.execute(&format!("DELETE FROM {}", self.data.jobs())).await;
    }

    /// Runs `meanwhile` while nobody can write to a thread.
    pub(crate) async fn while_blocked<T>(&self, meanwhile: impl Future<Output = T>) -> T {
        self.data.while_blocked(meanwhile).await
    }

    /// Counts rows: `table [WHERE …]`.
    pub(crate) async fn count(&self, from: &str) -> i64 {
        self.data.number(&format!("SELECT count(*) FROM {from}")).await
    }

    /// Executes a statement behind the engine's back; returns the rows changed.
    pub(crate) async fn sql(&self, statement: &str) -> u64 {
        self.data.execute(statement).await
    }

    /// The first column of what a query behind the engine's back finds.
    pub(crate) async fn texts(&self, query: &str) -> Vec<String> {
        self.data.texts(query).await
    }

    /// As [`texts`](Self::texts), of a column of payloads.
    pub(crate) async fn payloads(&self, query: &str) -> Vec<String> {
        self.data.payloads(query).await
    }
}

/// One process: an engine, its store and its threads of execution.
pub(crate) struct TestEngine {
    pub(crate) engine: Engine,
    pub(crate) store: SqlStore,
    runtime: Option<Runtime>,
    shutdown: CancellationToken,
    running: Option<JoinHandle<()>>,
}

impl TestEngine {
    fn run(&mut self, carrier: bool) {
        let runtime = self.runtime.as_ref().expect("not crashed");
        let (engine, shutdown) = (self.engine.clone(), self.shutdown.clone());
        self.running = Some(runtime.spawn(async move { engine.run(shutdown).await }));
        if carrier {
            let carrier = Carrier::new(&self.store, "test", Duration::from_millis(20));
            let (receiver, wake, shutdown) = (Arc::new(self.engine.clone()), self.engine.wake(), self.shutdown.clone());
            runtime.spawn(async move { carrier.run(receiver, wake, shutdown).await });
        }
    }

    /// Ends the process where it stands: every task is dropped, nothing is
    /// released or given back.
    pub(crate) async fn crash(mut self) {
        let runtime = self.runtime.take().expect("not crashed");
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(super::DEADLINE)).await.expect("no panic");
    }

    /// Asks the process to stop and waits until it has.
    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        let running = self.running.take().expect("it runs");
        tokio::time::timeout(super::DEADLINE, running).await.expect("it stops in time").expect("no panic");
        self.crash().await;
    }

    /// Gets one more message about the thread, whose row is long gone.
    pub(crate) fn receive_again(&self, thread: &ThreadId) {
        let job = JobId::new(1, u128::from_be_bytes(SystemIds.salt()));
        self.engine.receive(Message::advance(job, thread.clone()));
    }

    /// Starts a thread of `graph`, as Ann.
    pub(crate) async fn start(&self, graph: &str, input: Value) -> ThreadId {
        match self.engine.start(graph, &input, None, &ann()).await {
            Ok(Started::New { thread, .. }) => thread,
            other => panic!("not started: {other:?}"),
        }
    }

    pub(crate) async fn vote(
        &self,
        interrupt: &InterruptId,
        by: &Principal,
        answer: Value,
    ) -> Result<Voted, RequestError> {
        let vote = VoteRequest {
            interrupt: interrupt.clone(),
            principal: by.clone(),
            operator: !by.is_person(),
            answer,
            revision: None,
            content_hash: None,
            via: Via { channel: "api", identified: "token" },
        };
        self.engine.vote(vote).await
    }

    pub(crate) async fn resume(
        &self,
        thread: &ThreadId,
        answers: impl IntoIterator<Item = (InterruptId, Value)>,
        resume: Resume,
    ) -> Result<Accepted, RequestError> {
        let request = ResumeRequest {
            answers: answers.into_iter().collect(),
            resume,
            principal: super::operator(),
            operator: true,
            ..ResumeRequest::new(thread.clone())
        };
        self.engine.resume(request).await
    }

    /// Resumes with more state and more tasks, by nobody's answer.
    pub(crate) async fn amend(
        &self,
        thread: &ThreadId,
        update: Value,
        goto: Vec<Goto>,
        resume: Resume,
    ) -> Result<Accepted, RequestError> {
        let request = ResumeRequest {
            amend: Amend { update: object(update), goto },
            resume,
            principal: super::operator(),
            operator: true,
            ..ResumeRequest::new(thread.clone())
        };
        self.engine.resume(request).await
    }

    /// Edits the newest checkpoint of the thread, or of an unfinished sub-graph.
    pub(crate) async fn edit(
        &self,
        thread: &ThreadId,
        frame: Option<&FrameId>,
        values: Value,
        as_node: Option<&str>,
    ) -> Result<Edited, RequestError> {
        let values = (!values.is_null()).then(|| object(values));
        let request = EditRequest {
            thread: thread.clone(),
            edit: Edit { values, as_node: as_node.map(str::to_owned) },
            expected_head: None,
            at: None,
            frame: frame.cloned(),
            principal: super::operator(),
        };
        self.engine.edit(request).await
    }

    /// Starts over from a checkpoint, doing steps again.
    pub(crate) async fn replay(&self, thread: &ThreadId, at: &CheckpointId) -> Result<Started, RequestError> {
        self.engine.replay(&self.replaying(thread, at), &|_, _, _| None).await
    }

    /// The request of [`replay`](Self::replay).
    pub(crate) fn replaying(&self, thread: &ThreadId, at: &CheckpointId) -> ReplayRequest {
        ReplayRequest {
            thread: thread.clone(),
            checkpoint: at.clone(),
            input: None,
            re_execute: true,
            resume: Resume::default(),
            principal: super::operator(),
        }
    }

    /// The thread as people see it, live.
    pub(crate) async fn view(&self, thread: &ThreadId) -> ThreadView {
        self.engine.view(thread).await.expect("the thread is there")
    }

    pub(crate) async fn detail(&self, thread: &ThreadId) -> ThreadDetail {
        self.store.thread(thread).await.expect("the thread is there")
    }

    pub(crate) async fn history(&self, thread: &ThreadId) -> Vec<HistoryEntry> {
        self.store.history(thread, None, None, 100).await.expect("the thread is there")
    }

    /// Waits until the thread has this status.
    pub(crate) async fn rests(&self, thread: &ThreadId, status: &str) -> ThreadDetail {
        let what = format!("{thread} is {status}");
        eventually_or(&what, || async {
            let detail = self.detail(thread).await;
            if detail.summary.status == status { Ok(detail) } else { Err(format!("but {:?}", detail.summary)) }
        })
        .await
    }

    /// The open points of a parked thread, by address.
    pub(crate) async fn parked(&self, thread: &ThreadId) -> Vec<InterruptView> {
        let mut open = self.rests(thread, "parked").await.interrupts;
        open.sort_by(|a, b| a.address.cmp(&b.address));
        open
    }

    /// Waits until `count` tasks of the thread's superstep are durably done.
    pub(crate) async fn flushed(&self, thread: &ThreadId, count: usize) {
        eventually("finished tasks are kept", || async {
            let held = self.store.load(thread).await.expect("the thread is there");
            let done = held.records.values().filter(|record| record.status == TaskStatus::Done).count();
            (done >= count).then_some(())
        })
        .await;
    }

    /// Waits until nothing runs or waits in memory.
    pub(crate) async fn idles(&self) {
        eventually("the engine idles", || async { (self.engine.busy() == 0).then_some(()) }).await;
    }
}

fn object(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other} is no object"),
    }
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
