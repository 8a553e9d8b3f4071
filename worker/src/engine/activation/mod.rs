//! One lease period of one thread: from the claim to the rest.

mod changes;

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use countersign_kernel::context::{Context, TaskRecordAfter};
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::{InterruptId, RunId, ThreadId};
use countersign_kernel::machine::{
    BorderReason, Next, Outside, Position, Rest, Settled, StepChanges, Task, TaskStatus,
};
use countersign_kernel::node::{NodeError, NodeResult, Outcome};
use countersign_kernel::occurrence::PointKind;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};

pub(super) use changes::index_changes;

use super::effects::StoreEffects;
use super::{Engine, lock};
use crate::queue::JobId;
use crate::store::StoreError;
use crate::store::commands::{self, Claim, Claimed, Committed, Fence, Flush, Incoming, KeyIndex, RestAs, StepCommit};

/// Why an activation ended without a rest.
enum Abort {
    /// Another worker has the thread; nothing is ours to say.
    Lost,
    /// The store failed; the lease lapses and a sweep tries again.
    Store(StoreError),
}

impl From<StoreError> for Abort {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Fenced => Self::Lost,
            other => Self::Store(other),
        }
    }
}

/// A delay that grows with lost workers; the first retry is immediate.
fn backoff(attempts: u32) -> Duration {
    match attempts {
        0..=2 => Duration::ZERO,
        n => Duration::from_secs(1 << (n - 3).min(6)),
    }
}

impl Engine {
    pub(super) async fn activate(&self, thread: ThreadId, jobs: Vec<JobId>) {
        let now = self.inner.clock.now();
        let claim = Claim {
            thread: thread.clone(),
            worker: self.inner.worker.clone(),
            lease_until: now.after(self.inner.config.lease),
            jobs: jobs.clone(),
            max_attempts: self.inner.config.max_attempts,
            backoff,
            now,
        };
        let held = match self.inner.store.claim(claim).await {
            Ok(Claimed::Held(held)) => held,
            Ok(Claimed::Nothing) => return,
            Ok(Claimed::Dead) => {
                tracing::error!(%thread, "held: it lost its worker too often");
                return;
            }
            Err(error) => {
                tracing::error!(%error, %thread, "a thread could not be claimed; the sweep tries again");
                return;
            }
        };
        self.set_fence(&thread, Some(held.fence));
        match self.hold(*held, jobs).await {
            Ok(()) | Err(Abort::Lost) => {}
            Err(Abort::Store(error)) => {
                tracing::error!(%error, %thread, "an activation broke off; its lease will lapse");
            }
        }
    }

    /// Which lease of a thread is to be renewed, if any.
    fn set_fence(&self, thread: &ThreadId, fence: Option<Fence>) {
        if let Some(active) = lock(&self.inner.active).get_mut(thread) {
            active.fence = fence;
        }
    }

    async fn hold(&self, held: commands::Activation, jobs: Vec<JobId>) -> Result<(), Abort> {
        let Some(graph) = self.inner.graphs.get(&held.graph).cloned() else {
            return self.set_aside(&held, jobs, format!("this build has no graph `{}`", held.graph)).await;
        };
        if let Some(task) = held.body.tasks.iter().find(|task| graph.body(&task.node).is_none()) {
            let reason = format!("graph `{}` version {} has no node `{}`", held.graph, graph.version(), task.node);
            return self.set_aside(&held, jobs, reason).await;
        }
        Activation::new(self.clone(), graph, held, jobs).run().await
    }

    async fn set_aside(&self, held: &commands::Activation, jobs: Vec<JobId>, reason: String) -> Result<(), Abort> {
        tracing::error!(thread = %held.thread, reason, "held");
        let commit = StepCommit {
            thread: held.thread.clone(),
            graph: held.graph.clone(),
            fence: held.fence,
            checkpoint: None,
            seq: held.seq,
            body: None,
            tasks: Vec::new(),
            opened: Vec::new(),
            closed: Vec::new(),
            consumed: Vec::new(),
            runs: Vec::new(),
            paused: false,
            jobs,
            rest: Some(RestAs::Held { reason }),
            now: self.inner.clock.now(),
        };
        self.inner.store.commit(commit).await?;
        Ok(())
    }
}

/// A thread in hand.
struct Activation {
    engine: Engine,
    graph: Arc<CompiledGraph>,
    thread: ThreadId,
    fence: Fence,
    position: Position,
    seq: i64,
    branch: i64,
    keys: KeyIndex,
    /// Open points as the store knows them, with their kind.
    known: HashMap<InterruptId, PointKind>,
    /// Points that closed by an answer; the store knows that already.
    answered: HashSet<InterruptId>,
    /// Taken up since the last commit.
    consumed: Vec<InterruptId>,
    runs: Vec<RunId>,
    jobs: Vec<JobId>,
    paused: bool,
    border_changed: bool,
    /// Tasks whose records changed since the last commit.
    touched: HashSet<usize>,
    cancel: bool,
    supersteps: u32,
}

impl Activation {
    fn new(engine: Engine, graph: Arc<CompiledGraph>, held: commands::Activation, jobs: Vec<JobId>) -> Self {
        let position = Position::restore(&graph, held.salt, held.checkpoint, held.body, held.values, held.records);
        // Also what closed in a record that was flushed before a crash: the
        // store has not heard of that yet.
        let recorded: HashMap<_, _> = position
            .tasks
            .iter()
            .flat_map(|task| task.record.occurrences.questions())
            .map(|(_, question)| (question.id.clone(), question.kind))
            .collect();
        let mut known: HashMap<_, _> =
            held.open.into_iter().filter_map(|id| recorded.get(&id).copied().map(|kind| (id, kind))).collect();
        known.extend(position.points(&graph).into_iter().map(|point| (point.id, point.kind)));
        let mut activation = Self {
            engine,
            graph,
            thread: held.thread,
            fence: held.fence,
            position,
            seq: held.seq,
            branch: held.branch,
            keys: held.keys,
            known,
            answered: HashSet::new(),
            consumed: Vec::new(),
            runs: Vec::new(),
            jobs,
            paused: false,
            border_changed: false,
            touched: HashSet::new(),
            cancel: false,
            supersteps: 0,
        };
        activation.take_up(held.wake);
        activation
    }

    /// Applies what came in.
    fn take_up(&mut self, wake: Incoming) {
        self.cancel |= wake.cancel;
        for (id, answered) in wake.answers {
            match self.position.answer(&id, answered) {
                Ok(()) => {
                    let border = self.known.get(&id).is_some_and(|k| matches!(k, PointKind::Break | PointKind::Pause));
                    self.border_changed |= border;
                    // Its record keeps the answer, also if a pause keeps the
                    // task from running before the thread rests.
                    let asked = |task: &Task| task.record.occurrences.questions().any(|(_, asked)| asked.id == id);
                    self.touched.extend(self.position.tasks.iter().position(asked));
                    self.answered.insert(id.clone());
                    self.supersteps = 0;
                }
                // The store only accepts answers to open points, so the
                // projection and the checkpoint disagree: say so, go on.
                Err(error) => tracing::error!(thread = %self.thread, %error, "an accepted answer has no open point"),
            }
            self.consumed.push(id);
        }
        if !wake.resume.is_empty() {
            self.border_changed |= wake.resume.release || wake.resume.resume_all;
            self.position.resume(wake.resume);
            let told = |(i, task): (usize, &Task)| task.record.retry.then_some(i);
            self.touched.extend(self.position.tasks.iter().enumerate().filter_map(told));
            self.supersteps = 0;
        }
        self.runs.extend(wake.runs);
        if wake.pause && !self.paused {
            self.pause(BorderReason::Requested);
            self.paused = true;
        }
    }

    fn pause(&mut self, reason: BorderReason) {
        let now = self.engine.inner.clock.now();
        self.position.pause(&self.graph, reason, now);
        self.border_changed = true;
    }

    async fn run(mut self) -> Result<(), Abort> {
        loop {
            if self.cancel {
                return self.commit(None, Some(RestAs::Cancelled)).await.map(|_| ());
            }
            let settled = match self.position.next() {
                Next::Run(tasks) => {
                    self.run_tasks(tasks).await?;
                    continue;
                }
                Next::Settle => self.settle(),
                Next::Rest(_) => {
                    self.border_changed |= self.position.end_resume_all();
                    None
                }
            };
            let rest = match self.position.next() {
                Next::Rest(rest) => Some(self.rest_as(rest)),
                Next::Run(_) | Next::Settle => None,
            };
            if settled.is_none() && rest.is_none() {
                // Refused: the tasks at fault have failed, so it rests next.
                continue;
            }
            match self.commit(settled, rest).await? {
                Committed::Released => return Ok(()),
                Committed::Running(wake) => self.take_up(wake),
            }
            if self.engine.inner.stop.is_cancelled() {
                let now = self.engine.inner.clock.now();
                self.engine.inner.store.release(&self.thread, self.fence, now).await?;
                return Ok(());
            }
        }
    }

    fn settle(&mut self) -> Option<StepChanges> {
        let (ids, clock) = (&self.engine.inner.ids, &self.engine.inner.clock);
        let outside = Outside { ids: ids.as_ref(), clock: clock.as_ref() };
        match self.position.settle(&self.graph, outside) {
            Settled::Advanced(changes) => {
                self.touched.clear();
                self.supersteps += 1;
                let limit = self.engine.inner.config.supersteps_per_run;
                if self.supersteps >= limit {
                    self.pause(BorderReason::RecursionLimit { supersteps: limit });
                }
                Some(changes)
            }
            Settled::Refused => {
                self.touched = (0..self.position.tasks.len()).collect();
                None
            }
        }
    }

    async fn run_tasks(&mut self, tasks: Vec<usize>) -> Result<(), Abort> {
        let effects = Arc::new(StoreEffects {
            store: Arc::clone(&self.engine.inner.store),
            clock: Arc::clone(&self.engine.inner.clock),
            thread: self.thread.clone(),
            fence: self.fence,
            seq: self.seq,
        });
        let now = self.engine.inner.clock.now();
        let mut running = FuturesUnordered::new();
        for index in tasks {
            let scope = self.position.scope(&self.graph, index, effects.clone(), now);
            let body = self.graph.body(&self.position.tasks[index].plan.node).cloned();
            running.push(run_body(index, body, Context::new(scope)));
        }
        let mut finished = Vec::new();
        while let Some(ended) = running.next().await {
            finished.extend(self.complete(ended)?);
            // What is finished is kept while siblings still run (R10).
            while !finished.is_empty() && !running.is_empty() {
                let tasks = finished.drain(..).map(|index: usize| &self.position.tasks[index]);
                let flush = Flush {
                    thread: self.thread.clone(),
                    fence: self.fence,
                    seq: self.seq,
                    tasks: tasks.map(|task| (task.plan.key.clone(), task.record.clone())).collect(),
                };
                let store = Arc::clone(&self.engine.inner.store);
                // Siblings go on while it is written.
                let mut write = std::pin::pin!(store.flush(flush).fuse());
                loop {
                    tokio::select! {
                        written = &mut write => { written?; break; }
                        Some(ended) = running.next(), if !running.is_empty() => finished.extend(self.complete(ended)?),
                    }
                }
            }
        }
        self.border_changed |= self.position.end_resume_all();
        Ok(())
    }

    /// Records how a body ended; says which task it was if it has finished.
    fn complete(&mut self, (index, after, result): Ended) -> Result<Option<usize>, Abort> {
        if matches!(result, Err(NodeError::LeaseLost)) {
            return Err(Abort::Lost);
        }
        self.position.complete(&self.graph, index, after, result);
        self.touched.insert(index);
        Ok((self.position.tasks[index].record.status == TaskStatus::Done).then_some(index))
    }

    fn rest_as(&self, rest: Rest) -> RestAs {
        match rest {
            Rest::Parked => RestAs::Parked,
            Rest::Succeeded => RestAs::Succeeded,
            Rest::Failed => {
                let failed: Vec<_> =
                    self.position.tasks.iter().filter(|task| task.record.status == TaskStatus::Failed).collect();
                let messages: Vec<String> = failed
                    .iter()
                    .map(|task| format!("{}: {}", task.plan.node, task.record.error.as_deref().unwrap_or("failed")))
                    .collect();
                RestAs::Failed { error: messages.join("; "), tasks: u32::try_from(failed.len()).unwrap_or(u32::MAX) }
            }
        }
    }
}

/// A task by its index, its record, and how its body ended.
type Ended = (usize, TaskRecordAfter, NodeResult<Outcome>);

async fn run_body(index: usize, body: Option<countersign_kernel::node::SharedBody>, cx: Context) -> Ended {
    let result = match body {
        Some(body) => match AssertUnwindSafe(body.run(cx.clone())).catch_unwind().await {
            Ok(result) => result,
            Err(panic) => {
                let text = panic
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_else(|| "without a message".into());
                Err(NodeError::Failed(format!("the body panicked: {text}")))
            }
        },
        None => Err(NodeError::Failed("this build has no such node".into())),
    };
    let after = cx.finish();
    (index, after, result)
}
