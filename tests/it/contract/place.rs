//! A store to test, and the commands that tests give it.
//!
//! A store does not look into what it keeps, so the threads here are made by
//! hand: checkpoints with the key `n`, points with or without a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use countersign_kernel::address::Address;
use countersign_kernel::canonical::content_hash;
use countersign_kernel::ids::{CheckpointId, DeliveryId, InterruptId, RunId, ThreadId};
use countersign_kernel::machine::{Checkpoint, CheckpointBody, PlannedTask, Point, Resume, Source};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::policy::Voter;
use countersign_kernel::ports::{ChannelName, Recipient};
use countersign_kernel::principal::Principal;
use countersign_kernel::question::{Ask, Request};
use countersign_kernel::state::Change;
use countersign_kernel::time::Timestamp;
use countersign_worker::queue::JobId;
use countersign_worker::store::commands::{
    Activation, Claim, Claimed, Closing, Committed, CreateThread, Fence, HeadMove, KeyAt, MoveThread, NewCheckpoint,
    NewRun, OpenedPoint, RecordVote, RestAs, ResumeThread, StepCommit, Via,
};
use countersign_worker::store::{Accepted, Refusal, Store, StoreError};
use serde_json::{Value, json};

use crate::support::{ann, bob, operator};

/// What a backend offers a test beside its store.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    fn store(&self) -> Arc<dyn Store>;
    /// The ids of the job rows.
    async fn jobs(&self) -> Vec<String>;
    /// The statement that inserts a job row, due at a second of the epoch.
    fn inserts_job(&self, id: &str, due: i64) -> String;
    /// Changes rows behind the store's back; returns how many.
    async fn execute(&self, statement: &str) -> u64;
    /// Counts rows: `table [WHERE …]`.
    async fn count(&self, from: &str) -> i64;
}

pub(crate) struct Place {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) backend: Box<dyn Backend>,
    fresh: AtomicU64,
}

/// `seconds` after the epoch of the tests.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000 + seconds * 1_000_000)
}

/// The lease of the tests.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

pub(crate) fn thread(name: &str) -> ThreadId {
    ThreadId::parse(name).expect("a thread id")
}

/// A body of these tasks and nothing else.
pub(crate) fn body(tasks: Vec<PlannedTask>) -> CheckpointBody {
    CheckpointBody {
        tasks,
        arrivals: Default::default(),
        deferred: Default::default(),
        ran: Default::default(),
        border: Vec::new(),
        resume_all: false,
    }
}

/// The refusal that a store answered with.
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, StoreError>) -> Refusal {
    match result {
        Err(StoreError::Refused(refusal)) => refusal,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[track_caller]
pub(crate) fn fenced<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    match result {
        Err(StoreError::Fenced) => {}
        other => panic!("expected a fence, got {other:?}"),
    }
}

impl Place {
    pub(crate) fn on(backend: Box<dyn Backend>) -> Self {
        Self { store: backend.store(), backend, fresh: AtomicU64::new(1) }
    }

    fn next(&self) -> u64 {
        self.fresh.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn job(&self) -> JobId {
        JobId::new(1_800_000_000_000, u128::from(self.next()))
    }

    pub(crate) fn run(&self) -> RunId {
        RunId::parse(format!("run-{:04}", self.next())).expect("a run id")
    }

    /// Checkpoint `seq`, with one task `a` to run and `n` set to `seq`.
    pub(crate) fn checkpoint(&self, seq: i64, now: Timestamp) -> NewCheckpoint {
        let id = |number: u64| CheckpointId::parse(format!("checkpoint-{number:04}")).expect("a checkpoint id");
        let number = self.next();
        let superstep = u64::try_from(seq).expect("not negative");
        let task = PlannedTask {
            key: "a".into(),
            node: "a".into(),
            address: Address::graph("g").node("a", superstep),
            argument: None,
            planned_by: id(number),
        };
        NewCheckpoint {
            checkpoint: Checkpoint {
                id: id(number),
                parent: None,
                source: if seq == 0 { Source::Input } else { Source::Loop },
                superstep,
                created_at: now,
            },
            seq,
            branch: 0,
            graph_version: 1,
            fingerprint: "f".into(),
            body: body(vec![task]),
            keys: [("n".to_owned(), KeyAt::Value(seq))].into(),
            changes: vec![("n".to_owned(), Change::Set(json!(seq)))],
        }
    }

    /// The command that starts the thread `name` of the graph `g` at `now`.
    pub(crate) fn create(&self, name: &str, now: Timestamp) -> CreateThread {
        CreateThread {
            thread: thread(name),
            run: self.run(),
            graph: "g".into(),
            salt: [7; 16],
            input_hash: content_hash(&json!({})),
            started_by: ann(),
            priority: 0,
            limit_key: None,
            first: self.checkpoint(0, now),
            resume: Resume::default(),
            opened: Vec::new(),
            job: self.job(),
            idempotency: None,
            now,
        }
    }

    /// A thread that is queued at `at(0)`.
    pub(crate) async fn queued(&self, name: &str) -> ThreadId {
        let accepted = self.store.create(self.create(name, at(0))).await.expect("created");
        assert!(matches!(accepted, Accepted::Committed(Some(_))));
        thread(name)
    }

    pub(crate) fn claim(&self, thread: &ThreadId, now: Timestamp) -> Claim {
        Claim {
            thread: thread.clone(),
            worker: "w".into(),
            graphs: None,
            lease_until: now.after(LEASE),
            jobs: Vec::new(),
            max_attempts: 3,
            backoff: |_| Duration::ZERO,
            now,
        }
    }

    /// Takes the lease at `now`.
    pub(crate) async fn held(&self, thread: &ThreadId, now: Timestamp) -> Box<Activation> {
        match self.store.claim(self.claim(thread, now)).await.expect("claimed") {
            Claimed::Held(held) => held,
            other => panic!("expected the lease, got {other:?}"),
        }
    }

    /// A commit of nothing, at checkpoint 0.
    pub(crate) fn commit(&self, thread: &ThreadId, fence: Fence, now: Timestamp) -> StepCommit {
        StepCommit {
            thread: thread.clone(),
            graph: "g".into(),
            fence,
            checkpoint: None,
            seq: 0,
            body: None,
            tasks: Vec::new(),
            frames: Vec::new(),
            opened: Vec::new(),
            closed: Vec::new(),
            consumed: Vec::new(),
            runs: Vec::new(),
            paused: false,
            jobs: Vec::new(),
            rest: None,
            events: Vec::new(),
            now,
        }
    }

    /// Claims a queued thread at `at(1)` and rests it at `at(2)`.
    pub(crate) async fn rest(&self, thread: &ThreadId, opened: Vec<OpenedPoint>, rest: RestAs) {
        let fence = self.held(thread, at(1)).await.fence;
        let commit = StepCommit { opened, rest: Some(rest), ..self.commit(thread, fence, at(2)) };
        assert_eq!(self.store.commit(commit).await.expect("committed"), Committed::Released);
    }

    /// A thread that waits for `ask` since `at(2)`; nobody is told.
    pub(crate) async fn asking<A>(&self, name: &str, ask: Ask<A>) -> (ThreadId, InterruptId) {
        let thread = self.queued(name).await;
        let point = self.question(&thread, 0, &ask.request());
        let id = point.point.id.clone();
        self.rest(&thread, vec![point], RestAs::Parked).await;
        (thread, id)
    }

    pub(crate) fn question(&self, thread: &ThreadId, number: u32, request: &Request) -> OpenedPoint {
        let mut opened = self.point(thread, number, PointKind::Ask);
        opened.point.payload = request.to_payload();
        opened
    }

    /// A point without a request.
    pub(crate) fn point(&self, thread: &ThreadId, number: u32, kind: PointKind) -> OpenedPoint {
        let hash = content_hash(&json!([thread.as_str(), number]));
        let point = Point {
            id: InterruptId::parse(&hash[..32]).expect("an interrupt id"),
            address: Address::graph("g").node("a", 0),
            number,
            kind,
            payload: json!({"number": number}),
            asked_at: at(2),
            due: None,
            frame: None,
            parents: Vec::new(),
        };
        OpenedPoint { point, recipients: Vec::new() }
    }

    /// Has `opened` told to `who` by mail; returns the delivery.
    pub(crate) fn tell(&self, opened: &mut OpenedPoint, who: &Principal) -> (DeliveryId, JobId) {
        let delivery = DeliveryId::parse(format!("delivery-{:04}", self.next())).expect("a delivery id");
        let job = self.job();
        let recipient = Recipient {
            channel: ChannelName::Email,
            principal: who.clone(),
            name: who.name().to_owned(),
            address: who.name().to_owned(),
        };
        opened.recipients.push((delivery.clone(), job, recipient));
        (delivery, job)
    }

    /// A vote of `who`, holding `roles`, at `at(10)`.
    pub(crate) fn vote(&self, interrupt: &InterruptId, who: &Principal, roles: &[&str], answer: Value) -> RecordVote {
        RecordVote {
            interrupt: interrupt.clone(),
            voter: Voter { principal: who.clone(), roles: roles.iter().map(|role| (*role).to_owned()).collect() },
            operator: false,
            answer,
            revision: None,
            content_hash: None,
            replace: false,
            via: Via { channel: "api", identified: "token" },
            job: self.job(),
            now: at(10),
        }
    }

    /// A resume without answers at `at(10)`.
    pub(crate) fn resume(&self, thread: &ThreadId, resume: Resume) -> ResumeThread {
        ResumeThread {
            thread: thread.clone(),
            run: self.run(),
            votes: Vec::new(),
            resume,
            amended: None,
            guard: None,
            requested_by: operator(),
            job: self.job(),
            now: at(10),
        }
    }

    /// A head that moves to `next` at `at(20)` and drops what waits.
    pub(crate) async fn head(&self, thread: &ThreadId, next: NewCheckpoint) -> HeadMove {
        HeadMove {
            expected_head: self.store.head(thread).await.expect("there"),
            next: Some(next),
            carry: false,
            tasks: Vec::new(),
            frames: Vec::new(),
            closed: Closing::All,
            opened: Vec::new(),
        }
    }

    /// New input of Bob's at `at(20)`, with which the thread is queued.
    pub(crate) async fn new_input(&self, thread: &ThreadId, discard_waiting: bool) -> MoveThread {
        MoveThread {
            thread: thread.clone(),
            guard: None,
            head: self.head(thread, self.checkpoint(1, at(20))).await,
            run: Some(NewRun { run: self.run(), kind: "start", resume: Resume::default() }),
            discard_waiting,
            rest: None,
            requested_by: bob(),
            action: "restarted",
            detail: json!({"discarded": discard_waiting}),
            idempotency: None,
            job: self.job(),
            now: at(20),
        }
    }

    pub(crate) async fn status(&self, thread: &ThreadId) -> String {
        self.store.thread(thread).await.expect("the thread is there").summary.status
    }

    pub(crate) async fn actions(&self, thread: &ThreadId) -> Vec<String> {
        let audit = self.store.audit(thread).await.expect("the audit reads");
        audit.into_iter().map(|entry| entry.action).collect()
    }
}
