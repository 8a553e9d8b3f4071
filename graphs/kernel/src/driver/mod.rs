//! Runs a graph in memory, for unit tests of flows: the same kernel, no
//! database, no queue. Keeps every checkpoint, so that history, edits, replays
//! and forks work as they do over a store.
//!
//! ```
//! # use countersign_kernel::prelude::*;
//! # use serde_json::json;
//! # #[derive(State)] struct Leave { days: u32, approved: Option<bool> }
//! # async fn manager(cx: &Context, _: &Leave) -> NodeResult<LeaveUpdate> {
//! #     let decision = cx.ask(approval("Off?")).await?;
//! #     Ok(Leave::update().approved(Some(decision.approved)))
//! # }
//! # fn leave() -> CompiledGraph {
//! #     let mut g = Graph::<Leave>::new("leave", 1);
//! #     let manager = g.node("manager", manager);
//! #     g.start(manager);
//! #     g.compile().expect("sound")
//! # }
//! # futures_util::future::FutureExt::now_or_never(async {
//! let mut run = Driver::start(leave(), json!({"days": 3})).await.expect("good input");
//! run.answer(json!({"approved": true})).await.expect("one question is open");
//! assert_eq!(run.state()["approved"], true);
//! # }).expect("nothing here waits for I/O");
//! ```

mod archive;
mod outside;
mod request;
mod upgrade;
mod waits;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Map, Value};

use self::archive::Archive;
pub use self::archive::HistoryEntry;
use self::outside::{Counter, Kept, NoTime};
pub use self::request::{Refused, RunRequest};
use crate::context::Context;
use crate::fault::Fault;
use crate::graph::CompiledGraph;
use crate::ids::InterruptId;
use crate::machine::{FrameView, Next, Point, Position, Rest, Resume, Settled, TaskStatus};
use crate::node::{NodeError, NodeResult, Outcome};
use crate::occurrence::PointKind;
use crate::ports::{Clock, Host, StopSignal};

/// A thread in memory.
pub struct Driver {
    graph: Arc<CompiledGraph>,
    salt: [u8; 16],
    position: Option<Position>,
    outside: Arc<Counter>,
    host: Arc<Host>,
    archive: Arc<Archive>,
    visits: BTreeMap<String, u32>,
    /// Signals that nothing waited for.
    signals: Vec<(String, Option<Value>)>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("graph", &self.graph).field("position", &self.position).finish_non_exhaustive()
    }
}

impl Driver {
    /// A thread that never ran.
    #[must_use]
    pub fn new(graph: impl Into<Arc<CompiledGraph>>) -> Self {
        let outside = Arc::new(Counter::default());
        let archive = Arc::new(Archive::default());
        let host = Host {
            effects: Arc::new(Kept(Arc::clone(&archive))),
            ids: outside.clone(),
            clock: outside.clone(),
            timers: Arc::new(NoTime),
            stop: StopSignal::default(),
        };
        Self {
            graph: graph.into(),
            salt: [0; 16],
            position: None,
            outside,
            host: Arc::new(host),
            archive,
            visits: BTreeMap::new(),
            signals: Vec::new(),
        }
    }

    /// With a salt of its own: threads with equal salts have equal interrupt ids.
    #[must_use]
    pub fn with_salt(mut self, salt: [u8; 16]) -> Self {
        self.salt = salt;
        self
    }

    /// Changes what bodies reach outside the kernel, before anything runs: a
    /// clock of the test's own, say.
    #[must_use]
    pub fn with_host(mut self, change: impl FnOnce(&mut Host)) -> Self {
        let mut host = Host::clone(&self.host);
        change(&mut host);
        self.host = Arc::new(host);
        self
    }

    /// Starts a thread and runs it until it rests.
    ///
    /// # Errors
    /// What is wrong with the input.
    pub async fn start(graph: impl Into<Arc<CompiledGraph>>, input: Value) -> Result<Self, Vec<Fault>> {
        let mut driver = Self::new(graph);
        match driver.run(RunRequest { input: Some(input), ..RunRequest::default() }).await {
            Ok(()) => Ok(driver),
            Err(Refused::Invalid(faults)) => Err(faults),
            Err(other) => Err(vec![Fault::at("", other.to_string())]),
        }
    }

    /// The same thread under the same program again: what a restart is. Nothing
    /// that a store would not keep survives. For another version of the flow see
    /// [`upgrade`](Self::upgrade).
    #[must_use]
    pub fn reopen(self, graph: impl Into<Arc<CompiledGraph>>) -> Self {
        let mut reopened = Self { graph: graph.into(), ..self };
        reopened.position = reopened.position.map(|position| archive::reload(&reopened.graph, &position));
        reopened
    }

    /// Answers the only open question, as nobody in particular.
    ///
    /// # Errors
    /// None or several are open, or the answer does not fit.
    pub async fn answer(&mut self, answer: Value) -> Result<(), Refused> {
        self.answer_as("tester@example.com", answer).await
    }

    /// Answers the only open question as a person. Who may answer is the
    /// store's to enforce, not the driver's.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub async fn answer_as(&mut self, address: &str, answer: Value) -> Result<(), Refused> {
        // A stop is no question, nor is a sleep: no plain value releases it (R11).
        let is_stop = |point: &Point| matches!(point.kind, PointKind::Break | PointKind::Pause | PointKind::Sleep);
        let points: Vec<Point> = self.points().into_iter().filter(|point| !is_stop(point)).collect();
        match points.as_slice() {
            [point] => self.answer_ids([(point.id.clone(), answer)], address).await,
            points => Err(Refused::NotOne(points.len())),
        }
    }

    /// Answers points by id, all or none; only these wake.
    ///
    /// # Errors
    /// An id is not open, or an answer does not fit; nothing ran.
    pub async fn answer_ids(
        &mut self,
        answers: impl IntoIterator<Item = (InterruptId, Value)>,
        address: &str,
    ) -> Result<(), Refused> {
        let answers = answers.into_iter().collect();
        self.run_as(RunRequest { answers, ..RunRequest::default() }, address).await
    }

    /// Resumes without naming points. Nothing to do is no error here.
    pub async fn resume(&mut self, resume: Resume) {
        if let Some(position) = &mut self.position {
            position.resume(resume);
            self.drive().await;
        }
    }

    /// Asks a run of this thread to pause.
    #[must_use]
    pub fn stop_signal(&self) -> StopSignal {
        self.host.stop.clone()
    }

    /// How the thread rests. One that never ran has nothing left to do.
    #[must_use]
    pub fn rest(&self) -> Rest {
        match self.position.as_ref().map(Position::next) {
            Some(Next::Rest(rest)) => rest,
            Some(Next::Run(_) | Next::Settle) => Rest::Parked,
            None => Rest::Succeeded,
        }
    }

    /// Where the thread stands; `None` if it never ran.
    #[must_use]
    pub fn position(&self) -> Option<&Position> {
        self.position.as_ref()
    }

    /// The open points.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        self.position.as_ref().map(Position::points).unwrap_or_default()
    }

    /// The state, as of the newest checkpoint.
    #[must_use]
    pub fn state(&self) -> Map<String, Value> {
        self.position.as_ref().map(|position| position.state.values().to_object()).unwrap_or_default()
    }

    /// The state with the writes of tasks that have finished already.
    #[must_use]
    pub fn live_state(&self) -> Map<String, Value> {
        self.position.as_ref().map(|position| position.live_state(&self.graph)).unwrap_or_default()
    }

    /// The nodes that have still to run, one per task, sorted.
    #[must_use]
    pub fn next(&self) -> Vec<&str> {
        self.position.as_ref().map(Position::next_nodes).unwrap_or_default()
    }

    /// The unfinished sub-graphs.
    #[must_use]
    pub fn frames(&self) -> Vec<FrameView> {
        self.position.as_ref().map(|position| position.frames(&self.graph)).unwrap_or_default()
    }

    /// The failed tasks, each by the keys of the tasks that lead to it.
    #[must_use]
    pub fn failures(&self) -> Vec<(Vec<String>, String)> {
        self.position.as_ref().map(Position::failures).unwrap_or_default()
    }

    /// Why tasks of the root frame failed, by node.
    #[must_use]
    pub fn errors(&self) -> BTreeMap<&str, &str> {
        let tasks = self.position.iter().flat_map(|position| &position.tasks);
        let failed = tasks.filter(|task| task.record.status == TaskStatus::Failed);
        failed.map(|task| (task.plan.node.as_str(), task.record.error.as_deref().unwrap_or(""))).collect()
    }

    /// All checkpoints of the root frame, newest first.
    #[must_use]
    pub fn history(&self) -> Vec<HistoryEntry> {
        self.archive.history(&self.graph)
    }

    /// How often each node of the root frame has been entered.
    #[must_use]
    pub fn visits(&self, node: &str) -> u32 {
        self.visits.get(node).copied().unwrap_or(0)
    }

    /// How many checkpoints of the root frame there are.
    #[must_use]
    pub fn checkpoints(&self) -> usize {
        self.archive.len()
    }

    /// Runs until the thread rests.
    async fn drive(&mut self) {
        let Some(mut position) = self.position.take() else { return };
        loop {
            match position.next() {
                Next::Rest(_) => {
                    position.end_resume_all();
                    if !self.take_signals(&mut position, self.outside.now()) {
                        break;
                    }
                }
                Next::Settle => match position.settle(&self.graph, self.outside.outside()) {
                    Settled::Advanced(changes) => self.archive.keep(&position, Some(&changes)),
                    Settled::Refused => position.failed_tasks().for_each(|event| self.host.effects.note(event)),
                },
                Next::Run(tasks) => self.run_tasks(&mut position, tasks).await,
            }
            // What has finished is settled first: the stop is after it.
            if self.host.stop.is_requested() && position.next() != Next::Settle {
                position.pause(self.outside.now());
                self.host.stop.done();
            }
        }
        self.position = Some(position);
    }

    async fn run_tasks(&mut self, position: &mut Position, tasks: Vec<usize>) {
        let mut bodies = FuturesUnordered::new();
        let mut running = BTreeMap::new();
        for index in tasks {
            let name = &position.tasks[index].plan.node;
            *self.visits.entry(name.clone()).or_insert(0) += 1;
            let node = self.graph.node(name).cloned();
            let cx = Context::new(position.scope(&self.graph, index, Arc::clone(&self.host)));
            running.insert(index, cx.clone());
            bodies.push(async move {
                let result: NodeResult<Outcome> = match node {
                    Some(node) => node.run(cx).await,
                    None => Err(NodeError::failed("the graph has no such node any more")),
                };
                (index, result)
            });
        }
        let mut stopped = self.host.stop.stopped();
        loop {
            match select(bodies.next(), &mut stopped).await {
                Either::Left((Some((index, result)), _)) => {
                    if let Some(cx) = running.remove(&index) {
                        position.complete(&self.graph, index, cx.finish(), result);
                    }
                }
                Either::Left((None, _)) => break,
                Either::Right(((), _)) => {
                    // Dropped first, so that inner frames go back into the records.
                    drop(bodies);
                    for (index, cx) in running {
                        position.put_back(index, cx.finish());
                    }
                    break;
                }
            }
        }
        // One attempt wakes what a resume-all names; what asks again, waits.
        position.end_resume_all();
    }
}
