//! From messages to running tasks, each thread and delivery once at a time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use countersign_kernel::ids::{DeliveryId, ThreadId};
use countersign_kernel::ports::StopSignal;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::leases::Trust;
use super::{Active, Engine, lock};
use crate::queue::{JobId, JobKind, Message, Receiver};
use crate::store::controls::turn;

/// Most pieces of work that wait in memory; beyond that they wait in the
/// store, where the sweep finds them.
const WAITING_MAX: usize = 20_000;

/// A piece of work, by what it is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Work {
    Thread(ThreadId),
    Delivery(ThreadId, DeliveryId),
}

impl Work {
    fn kind(&self) -> JobKind {
        match self {
            Self::Thread(_) => JobKind::Advance,
            Self::Delivery(..) => JobKind::Deliver,
        }
    }
}

/// Work that waits in memory, with the jobs that asked for it.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// By their turn, and among equals by when they came.
    threads: BTreeMap<(i64, u64), ThreadId>,
    came: u64,
    deliveries: VecDeque<(ThreadId, DeliveryId)>,
    jobs: HashMap<Work, Vec<JobId>>,
    /// Being run now; work that comes in for it meanwhile runs once more after.
    running: HashMap<Work, Option<i64>>,
}

impl Waiting {
    fn len(&self) -> usize {
        self.threads.len() + self.deliveries.len()
    }

    /// What waits, and the threads that are run.
    pub(super) fn busy(&self) -> usize {
        self.len() + self.running.keys().filter(|work| matches!(work, Work::Thread(_))).count()
    }

    /// How much is run, and how much waits.
    pub(super) fn load(&self) -> (u64, u64) {
        (self.running.len() as u64, self.len() as u64)
    }

    fn add(&mut self, work: Work, turn: i64, job: Option<JobId>) {
        if let Some(jobs) = self.jobs.get_mut(&work) {
            jobs.extend(job);
            return;
        }
        self.jobs.insert(work.clone(), job.into_iter().collect());
        if let Some(again) = self.running.get_mut(&work) {
            *again = Some(turn);
            return;
        }
        self.enqueue(work, turn);
    }

    fn enqueue(&mut self, work: Work, turn: i64) {
        match work {
            Work::Thread(thread) => {
                self.came += 1;
                self.threads.insert((turn, self.came), thread);
            }
            Work::Delivery(thread, delivery) => self.deliveries.push_back((thread, delivery)),
        }
    }

    fn take(&mut self, kind: JobKind) -> Option<(Work, Vec<JobId>)> {
        let work = match kind {
            JobKind::Advance => Work::Thread(self.threads.pop_first()?.1),
            JobKind::Deliver => {
                let (thread, delivery) = self.deliveries.pop_front()?;
                Work::Delivery(thread, delivery)
            }
            JobKind::Timer => return None,
        };
        let jobs = self.jobs.remove(&work).unwrap_or_default();
        self.running.insert(work.clone(), None);
        Some((work, jobs))
    }

    /// Returns whether there is something to run now.
    fn done(&mut self, work: Work) -> bool {
        match self.running.remove(&work) {
            Some(Some(turn)) => {
                self.enqueue(work, turn);
                true
            }
            _ => false,
        }
    }
}

impl Engine {
    /// Takes a message. Never waits; `false` when there is no room in memory, or
    /// it is for other processes to do.
    pub(super) fn dispatch(&self, message: Message) -> bool {
        let turn = turn(self.inner.clock.now(), message.priority());
        let work = match (message.kind, message.subject) {
            (JobKind::Advance, _) => Work::Thread(message.thread),
            (JobKind::Deliver, Some(subject)) => match DeliveryId::parse(subject) {
                Ok(delivery) => Work::Delivery(message.thread, delivery),
                Err(error) => {
                    tracing::error!(%error, job = %message.id, "a deliver job names no delivery");
                    return true;
                }
            },
            (JobKind::Deliver, None) => {
                tracing::error!(job = %message.id, "a deliver job names no delivery");
                return true;
            }
            // Timers are looked for, not carried.
            (JobKind::Timer, _) => return true,
        };
        self.add_in_turn(work, turn, Some(message.id))
    }

    pub(super) fn add(&self, work: Work, job: Option<JobId>) -> bool {
        self.add_in_turn(work, self.inner.clock.now().as_micros(), job)
    }

    fn add_in_turn(&self, work: Work, turn: i64, job: Option<JobId>) -> bool {
        if self.inner.stop.is_cancelled() || !self.inner.config.serves.kinds.contains(&work.kind()) {
            return false;
        }
        {
            let mut waiting = lock(&self.inner.waiting);
            if waiting.len() >= WAITING_MAX {
                return false;
            }
            waiting.add(work, turn, job);
        }
        self.inner.news.notify_waiters();
        true
    }

    /// Runs the engine until `shutdown`: takes work as it comes, sweeps, renews
    /// leases; then lets running supersteps finish within the limit and gives
    /// their threads back.
    pub async fn run(&self, shutdown: CancellationToken) {
        let stop = self.inner.stop.clone();
        if let Err(error) = self.learn(self.inner.clock.now()).await {
            tracing::error!(%error, "this process knows of no pauses yet; it asks again with each sweep");
        }
        let loops = [
            tokio::spawn(self.clone().work(JobKind::Advance, self.inner.config.concurrency)),
            tokio::spawn(self.clone().work(JobKind::Deliver, self.inner.config.deliveries)),
            tokio::spawn(self.clone().sweep()),
            tokio::spawn(self.clone().watch_timers()),
            tokio::spawn(self.clone().take_turns()),
            tokio::spawn(self.clone().renew()),
            tokio::spawn(self.clone().distrust()),
            tokio::spawn(self.clone().tidy()),
            tokio::spawn(self.clone().beat()),
        ];
        shutdown.cancelled().await;
        stop.cancel();
        self.inner.tasks.close();
        if tokio::time::timeout(self.inner.config.shutdown_within, self.inner.tasks.wait()).await.is_err() {
            tracing::warn!("supersteps still ran at the end of the shutdown limit; their leases will lapse");
        }
        for task in loops {
            task.abort();
        }
        self.leave().await;
    }

    async fn work(self, kind: JobKind, room: usize) {
        let room = Arc::new(Semaphore::new(room.max(1)));
        loop {
            let news = self.inner.news.notified();
            tokio::pin!(news);
            // Registered before the look, so that nothing slips in between.
            news.as_mut().enable();
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            if self.inner.stop.is_cancelled() {
                return;
            }
            let taken = lock(&self.inner.waiting).take(kind);
            let Some((work, jobs)) = taken else {
                drop(permit);
                tokio::select! {
                    () = news => continue,
                    () = self.inner.stop.cancelled() => return,
                }
            };
            let engine = self.clone();
            self.inner.tasks.spawn(async move {
                // In a task of its own, so that a panic ends only this work.
                let run = tokio::spawn(engine.clone().execute(work.clone(), jobs));
                if let Err(error) = run.await {
                    tracing::error!(%error, ?work, "work ended abnormally; its lease will lapse");
                }
                if let Work::Thread(thread) = &work {
                    lock(&engine.inner.active).remove(thread);
                }
                let again = lock(&engine.inner.waiting).done(work);
                drop(permit);
                if again {
                    engine.inner.news.notify_waiters();
                }
            });
        }
    }

    async fn execute(self, work: Work, jobs: Vec<JobId>) {
        match work {
            Work::Thread(thread) => {
                let lost = CancellationToken::new();
                let active =
                    Active { fence: None, trust: Trust::none(), lost: lost.clone(), stop: StopSignal::default() };
                lock(&self.inner.active).insert(thread.clone(), active);
                tokio::select! {
                    () = self.activate(thread.clone(), jobs) => {}
                    () = lost.cancelled() => {
                        tracing::warn!(%thread, "the lease was lost; another worker may have the thread");
                    }
                }
            }
            Work::Delivery(thread, delivery) => self.deliver(thread, delivery, jobs).await,
        }
    }
}

impl Receiver for Engine {
    fn receive(&self, message: Message) {
        // Without room the row stays as it is; the sweep finds the work.
        let _ = self.dispatch(message);
    }

    fn look(&self) {
        self.inner.called.notify_one();
    }
}
