//! One lease period of one thread: from the claim to the rest.

mod changes;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use countersign_kernel::context::Context;
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::{InterruptId, RunId, ThreadId};
use countersign_kernel::machine::{Next, Outside, Position, Rest, Settled, StepChanges, Task, TaskStatus};
use countersign_kernel::node::{NodeError, NodeResult, Outcome};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::ports::{Host, StopSignal};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};

pub(super) use changes::{end_of, index_changes, unsaved_tasks};

use super::effects::{FrameRows, Rows, StoreEffects};
use super::gather::Gathered;
use super::restore::{Restored, restore};
use super::{Engine, lock};
use crate::queue::JobId;
use crate::store::commands::{
    self, Claim, Claimed, Committed, Fence, Flush, HeldBack, HoldBack, Incoming, RestAs, StepCommit,
};
use crate::store::{StoreError, What};
use crate::tally::{Count, Timed};

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
        let (now, began) = (self.inner.clock.now(), Instant::now());
        let claim = Claim {
            thread: thread.clone(),
            worker: self.inner.worker.clone(),
            graphs: self.inner.config.serves.graphs.clone(),
            lease_until: now.after(self.inner.config.lease),
            jobs: jobs.clone(),
            max_attempts: self.inner.config.max_attempts,
            backoff,
            now,
        };
        let asked = tokio::time::Instant::now();
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
        self.trust(&thread).given(asked, self.inner.config.lease);
        self.set_fence(&thread, Some(held.fence));
        let graph = held.graph.clone();
        match self.hold(*held, jobs, began).await {
            Ok(()) | Err(Abort::Lost) => {}
            Err(Abort::Store(error)) => {
                tracing::error!(%error, %thread, "an activation broke off; its lease will lapse");
            }
        }
        self.freed(&graph);
    }

    /// Which lease of a thread is to be renewed, if any.
    fn set_fence(&self, thread: &ThreadId, fence: Option<Fence>) {
        if let Some(active) = lock(&self.inner.active).get_mut(thread) {
            active.fence = fence;
        }
    }

    async fn hold(&self, held: commands::Activation, jobs: Vec<JobId>, began: Instant) -> Result<(), Abort> {
        let Some(graph) = self.inner.graphs.get(&held.graph).cloned() else {
            return self.set_aside(&held, jobs, format!("this build has no graph `{}`", held.graph)).await;
        };
        let mut held = held;
        let restored = match restore(&graph, &mut held) {
            Ok(restored) => restored,
            Err(misfit) => return self.set_aside(&held, jobs, misfit.to_string()).await,
        };
        let misfits = restored.misfits(&graph);
        if !misfits.is_empty() {
            let reasons: Vec<String> = misfits.iter().map(ToString::to_string).collect();
            return self.set_aside(&held, jobs, reasons.join("; ")).await;
        }
        Activation::new(self.clone(), graph, held, restored, jobs, began).run().await
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
            frames: Vec::new(),
            opened: Vec::new(),
            closed: Vec::new(),
            consumed: Vec::new(),
            runs: Vec::new(),
            paused: false,
            jobs,
            rest: Some(RestAs::Held { reason }),
            events: Vec::new(),
            now: self.inner.clock.now(),
        };
        self.inner.store.commit(commit).await?;
        self.inner.store.tally().add(Count::RunsHeld);
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
    /// Where the rows of the root frame stand.
    root: Rows,
    /// Open points as the store knows them, with their kind.
    known: HashMap<InterruptId, PointKind>,
    /// Points that closed by an answer; the store knows that already.
    answered: HashSet<InterruptId>,
    /// Taken up since the last commit.
    consumed: Vec<InterruptId>,
    runs: Vec<RunId>,
    jobs: Vec<JobId>,
    paused: bool,
    cancel: bool,
    /// Whether what was taken up woke whatever waited, without naming it.
    woke: bool,
    rows: FrameRows,
    gathered: Arc<Gathered>,
    stop: StopSignal,
    /// When the claim was tried, until the first commit.
    began: Option<Instant>,
}

impl Activation {
    fn new(
        engine: Engine,
        graph: Arc<CompiledGraph>,
        held: commands::Activation,
        restored: Restored,
        jobs: Vec<JobId>,
        began: Instant,
    ) -> Self {
        let mut position = restored.position;
        position.begin_run(Some(graph.limits().supersteps_per_run));
        // What the store lists, and nothing else: it has yet to hear of points
        // that opened or closed in what was kept before a crash.
        let mut recorded: HashMap<InterruptId, PointKind> = HashMap::new();
        position.each_mut(&mut |frame| {
            let questions = frame.tasks.iter().flat_map(|task| task.record.occurrences.questions());
            recorded.extend(questions.map(|(_, question)| (question.id.clone(), question.kind)));
        });
        recorded.extend(held.stops.iter().map(|id| (id.clone(), PointKind::Break)));
        let kind = |id| recorded.get(id).copied().unwrap_or(PointKind::Interrupt);
        let known = held.open.iter().map(|id| (id.clone(), kind(id))).collect();
        let stop = engine.stop_signal(&held.thread);
        let gathered = Gathered::new(engine.inner.config.events, Arc::clone(&engine.inner.clock));
        gathered.add(What::status("running"));
        let mut activation = Self {
            engine,
            graph,
            thread: held.thread,
            fence: held.fence,
            position,
            root: restored.root,
            known,
            answered: HashSet::new(),
            consumed: Vec::new(),
            runs: Vec::new(),
            jobs,
            paused: false,
            cancel: false,
            woke: false,
            rows: Arc::new(Mutex::new(restored.frames)),
            gathered: Arc::new(gathered),
            stop,
            began: Some(began),
        };
        activation.take_up(held.wake);
        activation
    }

    /// Applies what came in.
    fn take_up(&mut self, wake: Incoming) {
        self.cancel |= wake.cancel;
        let now = self.engine.inner.clock.now();
        for (id, answered) in wake.answers {
            self.engine.inner.store.tally().took(Timed::AnswerToResume, now.since(answered.at));
            let taken = match self.position.decided(&id) {
                Some(_) => self.position.answer_again(&id, answered),
                None => self.position.answer(&id, answered).map(|_| ()),
            };
            match taken {
                Ok(()) => {
                    self.answered.insert(id.clone());
                }
                // The store only accepts answers to open points, so the
                // projection and the checkpoint disagree: say so, go on.
                Err(error) => tracing::error!(thread = %self.thread, %error, "an accepted answer has no open point"),
            }
            self.consumed.push(id);
        }
        if !wake.resume.is_empty() {
            self.position.resume(wake.resume);
            self.woke |= wake.resume.release || wake.resume.retry || wake.resume.resume_all;
        }
        self.runs.extend(wake.runs);
        if wake.pause && !self.paused {
            self.pause();
        }
    }

    /// Makes the pause that was asked for.
    fn pause(&mut self) {
        self.position.pause(self.engine.inner.clock.now());
        self.paused = true;
        self.stop.done();
    }

    async fn run(mut self) -> Result<(), Abort> {
        loop {
            self.cancel |= self.stop.is_cancelled();
            if self.cancel {
                return self.commit(None, Some(RestAs::Cancelled)).await.map(|_| ());
            }
            if std::mem::take(&mut self.woke)
                && let Committed::Running(wake) = self.commit(None, None).await?
            {
                // Durable before anything runs: taken up once more after a crash
                // it would also wake what has come up since in kept sub-graphs.
                self.take_up(wake);
            }
            let settled = match self.position.next() {
                Next::Run(tasks) => {
                    let (tasks, held_back) = self.engine.may_run(&self.graph, &self.position, tasks);
                    if let Some(by) = held_back.filter(|_| tasks.is_empty()) {
                        if self.stands_back(by).await? {
                            return Ok(());
                        }
                        continue;
                    }
                    self.run_tasks(tasks).await?;
                    // What has finished is settled first: a stop is after it.
                    if !self.stop.is_requested() || self.position.next() == Next::Settle {
                        continue;
                    }
                    None
                }
                Next::Settle => self.settle(),
                Next::Rest(_) => {
                    self.position.end_resume_all();
                    None
                }
            };
            if self.stop.is_requested() {
                self.pause();
            }
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
            Settled::Advanced(changes) => Some(changes),
            Settled::Refused => {
                self.position.failed_tasks().for_each(|event| self.gathered.note(event));
                None
            }
        }
    }

    async fn run_tasks(&mut self, tasks: Vec<usize>) -> Result<(), Abort> {
        let host = self.host();
        let mut bodies = FuturesUnordered::new();
        let mut running = HashMap::new();
        for index in tasks {
            let cx = Context::new(self.position.scope(&self.graph, index, Arc::clone(&host)));
            let node = self.graph.node(&self.position.tasks[index].plan.node).cloned();
            running.insert(index, cx.clone());
            bodies.push(async move {
                match node {
                    Some(node) => (index, node.run(cx).await),
                    None => (index, Err(NodeError::failed("this build has no such node"))),
                }
            });
        }
        let mut finished = Vec::new();
        let mut stopped = self.stop.stopped();
        let (cancelled, grace) = (self.stop.cancelled(), self.engine.inner.config.cancel_grace);
        let mut abandoned = std::pin::pin!(async move {
            cancelled.await;
            tokio::time::sleep(grace).await;
        });
        loop {
            let ended = tokio::select! {
                ended = bodies.next() => ended,
                () = &mut stopped => {
                    // Dropped first, so that inner frames go back into the records.
                    drop(bodies);
                    running.into_iter().for_each(|(index, cx)| self.position.put_back(index, cx.finish()));
                    break;
                }
                () = &mut abandoned => {
                    drop(bodies);
                    running.into_iter().for_each(|(index, cx)| self.position.put_back(index, cx.finish()));
                    break;
                }
            };
            let Some(ended) = ended else { break };
            finished.extend(self.complete(&mut running, ended)?);
            // What is finished is kept while siblings still run (R10).
            while !finished.is_empty() && !bodies.is_empty() {
                let flush = self.flush_of(&mut finished);
                let store = Arc::clone(&self.engine.inner.store);
                // Siblings go on while it is written.
                let mut write = std::pin::pin!(store.flush(flush).fuse());
                loop {
                    tokio::select! {
                        written = &mut write => { written?; break; }
                        Some(ended) = bodies.next(), if !bodies.is_empty() => {
                            finished.extend(self.complete(&mut running, ended)?);
                        }
                    }
                }
            }
        }
        self.position.end_resume_all();
        Ok(())
    }

    /// Gives the thread back where it may not go on; `false` if something came
    /// in that it takes up first.
    async fn stands_back(&mut self, by: HeldBack) -> Result<bool, Abort> {
        if let Committed::Running(wake) = self.commit(None, None).await? {
            self.take_up(wake);
        }
        if self.cancel {
            return Ok(false);
        }
        self.engine.set_fence(&self.thread, None);
        let now = self.engine.inner.clock.now();
        let hold = HoldBack { thread: self.thread.clone(), fence: self.fence, by, now };
        match self.engine.inner.store.hold_back(hold).await? {
            Committed::Released => Ok(true),
            Committed::Running(wake) => {
                self.engine.set_fence(&self.thread, Some(self.fence));
                self.take_up(wake);
                Ok(false)
            }
        }
    }

    /// What the bodies of this activation reach.
    fn host(&self) -> Arc<Host> {
        let inner = &self.engine.inner;
        let effects = StoreEffects {
            store: Arc::clone(&inner.store),
            clock: Arc::clone(&inner.clock),
            thread: self.thread.clone(),
            fence: self.fence,
            trust: self.engine.trust(&self.thread),
            seq: self.root.seq,
            head: self.position.checkpoint.id.clone(),
            rows: Arc::clone(&self.rows),
            gathered: Arc::clone(&self.gathered),
        };
        Arc::new(Host {
            effects: Arc::new(effects),
            ids: Arc::clone(&inner.ids),
            clock: Arc::clone(&inner.clock),
            timers: Arc::new(crate::system::TokioTimers),
            stop: self.stop.clone(),
        })
    }

    fn flush_of(&mut self, finished: &mut Vec<usize>) -> Flush {
        let tasks = finished.drain(..).map(|index| {
            let task = &mut self.position.tasks[index];
            task.unsaved.0 = false;
            (task.plan.key.clone(), task.record.to_store())
        });
        let tasks: Vec<_> = tasks.collect();
        let kept: HashSet<&str> = tasks.iter().map(|(task, _)| task.as_str()).collect();
        let events = self.gathered.take(|frame, task| frame.is_none() && kept.contains(task), None);
        let now = self.engine.inner.clock.now();
        Flush { thread: self.thread.clone(), fence: self.fence, seq: self.root.seq, tasks, events, now }
    }

    /// Records how a body ended; says which task it was if it has finished.
    fn complete(
        &mut self,
        running: &mut HashMap<usize, Context>,
        (index, result): (usize, NodeResult<Outcome>),
    ) -> Result<Option<usize>, Abort> {
        if matches!(result, Err(NodeError::LeaseLost)) {
            return Err(Abort::Lost);
        }
        let Some(cx) = running.remove(&index) else { return Ok(None) };
        self.position.complete(&self.graph, index, cx.finish(), result);
        Ok((self.position.tasks[index].record.status == TaskStatus::Done).then_some(index))
    }

    /// A stop hides no failure (R12): what failed can be retried in front of it.
    fn rest_as(&self, rest: Rest) -> RestAs {
        let failure = |task: &Task| task.record.status == TaskStatus::Failed && !task.record.retry;
        match rest {
            Rest::Parked if self.position.tasks.iter().any(failure) => failed(&self.position),
            Rest::Parked => RestAs::Parked,
            Rest::Succeeded => RestAs::Succeeded,
            Rest::Failed => failed(&self.position),
        }
    }
}

/// How a thread rests that has failed, for people: which nodes, and why.
pub(in crate::engine) fn failed(position: &Position) -> RestAs {
    let messages: Vec<String> =
        position.failures().into_iter().map(|(path, message)| format!("{}: {message}", path.join("/"))).collect();
    let tasks = position.tasks.iter().filter(|task| task.record.status == TaskStatus::Failed).count();
    RestAs::Failed { error: messages.join("; "), tasks: u32::try_from(tasks).unwrap_or(u32::MAX) }
}
