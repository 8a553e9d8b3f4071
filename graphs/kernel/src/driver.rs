//! Runs a graph in memory, for unit tests of flows: the same kernel, no
//! database, no queue.
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

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::{Map, Value};

use crate::address::Address;
use crate::context::Context;
use crate::fault::Fault;
use crate::graph::CompiledGraph;
use crate::ids::InterruptId;
use crate::machine::{Next, Outside, Point, Position, Rest, Resume, Settled, TaskStatus};
use crate::occurrence::PointKind;
use crate::ports::{Clock, EffectError, Effects, Ids};
use crate::principal::Principal;
use crate::question::Answered;
use crate::time::Timestamp;

/// Why the driver took no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DriverError {
    /// A plain answer needs exactly one open point (K10).
    #[error("{0} points are open; answer by id")]
    NotOne(usize),
    /// No open point has the id.
    #[error("no open point has the id {0}")]
    NotOpen(InterruptId),
    /// The answer does not fit the question.
    #[error("the answer does not fit: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Fault>),
}

/// A thread in memory.
#[derive(Debug)]
pub struct Driver {
    graph: Arc<CompiledGraph>,
    position: Position,
    rest: Rest,
    outside: Arc<Counter>,
    visits: BTreeMap<String, u32>,
    checkpoints: u32,
}

impl Driver {
    /// Starts a thread and runs it until it rests.
    ///
    /// # Errors
    /// What is wrong with the input.
    pub async fn start(graph: impl Into<Arc<CompiledGraph>>, input: Value) -> Result<Self, Vec<Fault>> {
        let graph = graph.into();
        let outside = Arc::new(Counter::default());
        let (position, _) = Position::start(&graph, [0; 16], &input, outside.outside())?;
        let mut driver =
            Self { graph, position, rest: Rest::Succeeded, outside, visits: BTreeMap::new(), checkpoints: 1 };
        driver.run().await;
        Ok(driver)
    }

    /// Answers the only open point, as nobody in particular.
    ///
    /// # Errors
    /// None or several points are open, or the answer does not fit.
    pub async fn answer(&mut self, answer: Value) -> Result<(), DriverError> {
        self.answer_as("tester@example.com", answer).await
    }

    /// Answers the only open point as a person.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub async fn answer_as(&mut self, address: &str, answer: Value) -> Result<(), DriverError> {
        // A stop is no question: no plain value releases it (R11).
        let is_stop = |point: &Point| matches!(point.kind, PointKind::Break | PointKind::Pause);
        let points: Vec<Point> = self.points().into_iter().filter(|point| !is_stop(point)).collect();
        match points.as_slice() {
            [point] => self.answer_ids([(point.id.clone(), answer)], address).await,
            points => Err(DriverError::NotOne(points.len())),
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
    ) -> Result<(), DriverError> {
        let points = self.points();
        let mut valid = Vec::new();
        for (id, answer) in answers {
            let point = points.iter().find(|p| p.id == id && valid.iter().all(|(taken, _)| *taken != id));
            let point = point.ok_or_else(|| DriverError::NotOpen(id.clone()))?;
            let value = match point.request() {
                Some(request) => request.question.validate(&answer).map_err(DriverError::Invalid)?,
                None => answer,
            };
            valid.push((id, value));
        }
        for (id, value) in valid {
            let value = (!value.is_null()).then_some(value);
            let answered = Answered { value, by: vec![Principal::person(address)], at: self.outside.now() };
            self.position.answer(&id, answered).map_err(|_| DriverError::NotOpen(id))?;
        }
        self.run().await;
        Ok(())
    }

    /// Resumes without naming points.
    pub async fn resume(&mut self, resume: Resume) {
        self.position.resume(resume);
        self.run().await;
    }

    /// How the thread rests.
    #[must_use]
    pub fn rest(&self) -> Rest {
        self.rest
    }

    /// The open points.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        self.position.points(&self.graph)
    }

    /// The state, as of the newest checkpoint.
    #[must_use]
    pub fn state(&self) -> Map<String, Value> {
        self.position.state.values().to_object()
    }

    /// Why tasks failed, by node.
    #[must_use]
    pub fn errors(&self) -> BTreeMap<&str, &str> {
        let failed = self.position.tasks.iter().filter(|task| task.record.status == TaskStatus::Failed);
        failed.map(|task| (task.plan.node.as_str(), task.record.error.as_deref().unwrap_or(""))).collect()
    }

    /// How often each body has been entered.
    #[must_use]
    pub fn visits(&self, node: &str) -> u32 {
        self.visits.get(node).copied().unwrap_or(0)
    }

    /// How many checkpoints there are.
    #[must_use]
    pub fn checkpoints(&self) -> u32 {
        self.checkpoints
    }

    async fn run(&mut self) {
        loop {
            match self.position.next() {
                Next::Rest(rest) => {
                    self.rest = rest;
                    self.position.end_resume_all();
                    return;
                }
                Next::Settle => {
                    if let Settled::Advanced(_) = self.position.settle(&self.graph, self.outside.outside()) {
                        self.checkpoints += 1;
                    }
                }
                Next::Run(tasks) => self.run_tasks(tasks).await,
            }
        }
    }

    async fn run_tasks(&mut self, tasks: Vec<usize>) {
        let mut bodies = Vec::new();
        for index in tasks {
            let node = self.position.tasks[index].plan.node.clone();
            *self.visits.entry(node.clone()).or_insert(0) += 1;
            let cx = Context::new(self.position.scope(&self.graph, index, Arc::new(Kept), self.outside.now()));
            let Some(body) = self.graph.body(&node).cloned() else { continue };
            bodies.push(async move { (index, body.run(cx.clone()).await, cx.finish()) });
        }
        for (index, result, after) in join_all(bodies).await {
            self.position.complete(&self.graph, index, after, result);
        }
        // One attempt wakes what a resume-all names; what asks again, waits.
        self.position.end_resume_all();
    }
}

/// In memory, a result is kept by the record itself.
struct Kept;

#[async_trait]
impl Effects for Kept {
    async fn record(&self, _: &Address, _: &str, _: &Value) -> Result<(), EffectError> {
        Ok(())
    }
}

/// Ids and instants that count up, so that runs are repeatable.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    fn outside(&self) -> Outside<'_> {
        Outside { ids: self, clock: self }
    }
}

impl Ids for Counter {
    fn uuid(&self) -> String {
        format!("{:032x}", self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn salt(&self) -> [u8; 16] {
        [0; 16]
    }
}

impl Clock for Counter {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(i64::try_from(self.0.fetch_add(1, Ordering::Relaxed)).unwrap_or(i64::MAX))
    }
}
