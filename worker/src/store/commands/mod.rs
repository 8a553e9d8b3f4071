//! What a store is asked to do. Each command is atomic: all of it or nothing.

mod batch;
pub(crate) mod controls;
mod moves;
mod schedules;
mod serves;
mod signals;
mod timers;

use std::collections::BTreeMap;

use countersign_kernel::address::Address;
use countersign_kernel::ids::{CheckpointId, DeliveryId, FrameId, InterruptId, RunId, ThreadId};
use countersign_kernel::machine::{Checkpoint, CheckpointBody, Point, Resume, TaskRecord};
use countersign_kernel::policy::Voter;
use countersign_kernel::ports::Recipient;
use countersign_kernel::principal::Principal;
use countersign_kernel::question::Answered;
use countersign_kernel::state::{Change, Values};
use countersign_kernel::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::batch::VoteBatch;
pub use self::controls::{FlowLimits, HeldBack, HoldBack, Operation, PauseSwitch, Rate, SwitchOf};
pub use self::moves::{Closing, HeadMove, MoveThread, NewRun, StepGuard};
pub use self::schedules::{CatchUp, NextTick, ScheduleSpec, Tick};
pub use self::serves::Serves;
pub use self::signals::SendSignal;
pub use self::timers::{DueTimer, DueTimers, FireTimer, Fired, TimerKind};
pub use super::events::AppendEvents;
use super::events::Event;
use crate::queue::{JobId, Message};

/// Proof of holding a thread: rises with every claim (fencing token).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fence(pub i64);

/// Where the rows of a key's value lie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum KeyAt {
    /// One row of `state_values`, by the checkpoint that wrote it.
    Value(i64),
    /// Rows of `state_items`: up to which position each branch contributes.
    Items(Vec<(i64, u64)>),
}

/// Which rows hold the state at a checkpoint.
pub type KeyIndex = BTreeMap<String, KeyAt>;

/// A checkpoint to be written, with what changed on the way to it.
#[derive(Debug, Clone)]
pub struct NewCheckpoint {
    /// Its identity.
    pub checkpoint: Checkpoint,
    /// Its number in the thread; one more than the head's.
    pub seq: i64,
    /// The line of checkpoints it continues.
    pub branch: i64,
    /// The graph's version.
    pub graph_version: u32,
    /// The graph's fingerprint.
    pub fingerprint: String,
    /// Tasks, arrivals, border.
    pub body: CheckpointBody,
    /// Where all keys lie, the changed ones included.
    pub keys: KeyIndex,
    /// What changed.
    pub changes: Vec<(String, Change)>,
}

/// Who runs an inner frame (K17).
#[derive(Debug, Clone, PartialEq)]
pub struct FrameOwner {
    /// The frame around it; `None` is the root frame.
    pub parent: Option<FrameId>,
    /// The checkpoint of the root frame that it runs in.
    pub root_seq: i64,
    /// The task of the frame around it.
    pub task: String,
    /// The checkpoint of the frame around it at which it began.
    pub around: CheckpointId,
    /// Where it runs.
    pub address: Address,
    /// Its graph.
    pub graph: String,
}

/// What happened in an inner frame.
#[derive(Debug, Clone)]
pub struct FrameCommit {
    /// The frame.
    pub frame: FrameId,
    /// Who runs it, if it is new.
    pub owner: Option<FrameOwner>,
    /// Its new head, if it has one.
    pub checkpoint: Option<NewCheckpoint>,
    /// The checkpoint whose records go along with the new head (R5).
    pub carry_from: Option<i64>,
    /// Number of the checkpoint that `tasks` and `body` belong to.
    pub seq: i64,
    /// The body of that checkpoint, if it changed.
    pub body: Option<CheckpointBody>,
    /// Records of tasks to keep, by key.
    pub tasks: Vec<(String, TaskRecord)>,
}

/// A superstep of an inner frame, while its task runs (R10).
#[derive(Debug, Clone)]
pub struct FrameFlush {
    /// The thread.
    pub thread: ThreadId,
    /// The proof.
    pub fence: Fence,
    /// What happened.
    pub commit: FrameCommit,
    /// What watchers are told with it.
    pub events: Vec<Event>,
    /// Now.
    pub now: Timestamp,
}

/// A repeated request is answered with what the first one got (R26).
#[derive(Debug, Clone)]
pub struct IdempotencyEntry {
    /// Principal and route.
    pub scope: String,
    /// The caller's key.
    pub key: String,
    /// Hash of the request, so that another body under the key is refused.
    pub request_hash: String,
    /// The status that the first request gets.
    pub status: u16,
    /// The body that the first request gets.
    pub body: String,
}

/// Starts a thread.
#[derive(Debug, Clone)]
pub struct CreateThread {
    /// Its id.
    pub thread: ThreadId,
    /// The run that starts it.
    pub run: RunId,
    /// The flow.
    pub graph: String,
    /// Random, part of every interrupt id.
    pub salt: [u8; 16],
    /// Hash of the caller's input.
    pub input_hash: String,
    /// Who starts it.
    pub started_by: Principal,
    /// How urgent it is: see [`PRIORITIES`](super::controls::PRIORITIES).
    pub priority: i64,
    /// Which threads of the flow it is limited with.
    pub limit_key: Option<String>,
    /// The input's checkpoint.
    pub first: NewCheckpoint,
    /// What its first run is still to take up, a limit of supersteps say.
    pub resume: Resume,
    /// Breakpoints that stop it before anything ran.
    pub opened: Vec<OpenedPoint>,
    /// The wake-up.
    pub job: JobId,
    /// For a repeated request.
    pub idempotency: Option<IdempotencyEntry>,
    /// Now.
    pub now: Timestamp,
}

/// Takes the lease on a thread.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The thread.
    pub thread: ThreadId,
    /// Who takes it.
    pub worker: String,
    /// The flows whose threads it takes; `None` for all.
    pub graphs: Option<Vec<String>>,
    /// How long the lease holds unless renewed.
    pub lease_until: Timestamp,
    /// The jobs that said so; deleted if there is nothing to do.
    pub jobs: Vec<JobId>,
    /// Claims without progress after which the thread is held.
    pub max_attempts: u32,
    /// From when another claim may follow if this one makes no progress, by
    /// the number of attempts.
    pub backoff: fn(u32) -> std::time::Duration,
    /// Now.
    pub now: Timestamp,
}

/// What a claim led to.
#[derive(Debug)]
pub enum Claimed {
    /// The thread is held; here is all of it.
    Held(Box<Activation>),
    /// Nothing to do, or somebody else does it: whoever serves the thread's flow
    /// if this process does not.
    Nothing,
    /// The thread made no progress too often and was set aside.
    Dead,
}

/// Everything an executor needs to go on with a thread.
#[derive(Debug)]
pub struct Activation {
    /// The thread.
    pub thread: ThreadId,
    /// The flow.
    pub graph: String,
    /// The proof.
    pub fence: Fence,
    /// The thread's salt.
    pub salt: [u8; 16],
    /// The line of checkpoints.
    pub branch: i64,
    /// The newest checkpoint.
    pub checkpoint: Checkpoint,
    /// Its number.
    pub seq: i64,
    /// The version of the graph that made it.
    pub graph_version: u32,
    /// The fingerprint of that graph.
    pub fingerprint: String,
    /// Tasks, arrivals, border.
    pub body: CheckpointBody,
    /// Where the keys lie.
    pub keys: KeyIndex,
    /// The state.
    pub values: Values,
    /// Records of the superstep's tasks, results of steps included.
    pub records: BTreeMap<String, TaskRecord>,
    /// Inner frames of unfinished tasks, outer ones first.
    pub frames: Vec<LoadedFrame>,
    /// Open interrupts on record.
    pub open: Vec<InterruptId>,
    /// Those among them that are no questions: breaks, pauses, containers.
    pub stops: Vec<InterruptId>,
    /// What woke it.
    pub wake: Incoming,
}

/// An inner frame as the store has it.
#[derive(Debug)]
pub struct LoadedFrame {
    /// Its id.
    pub frame: FrameId,
    /// Who runs it.
    pub owner: FrameOwner,
    /// Its line of checkpoints.
    pub branch: i64,
    /// Its newest checkpoint.
    pub checkpoint: Checkpoint,
    /// The version of the graph that made it.
    pub graph_version: u32,
    /// Its number in the frame.
    pub seq: i64,
    /// Tasks, arrivals, border.
    pub body: CheckpointBody,
    /// Where the keys lie.
    pub keys: KeyIndex,
    /// The state.
    pub values: Values,
    /// Records of the superstep's tasks, results of steps included.
    pub records: BTreeMap<String, TaskRecord>,
}

/// What came in for a thread since somebody last looked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Incoming {
    /// Unconsumed answers, in the order they were accepted.
    pub answers: Vec<(InterruptId, Answered)>,
    /// Resumes that were not taken up yet, merged.
    pub resume: Resume,
    /// The runs that the resumes belong to.
    pub runs: Vec<RunId>,
    /// Somebody asked to cancel.
    pub cancel: bool,
    /// Somebody asked for a pause.
    pub pause: bool,
}

impl Incoming {
    /// Whether there is nothing to take up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.runs.is_empty() && !self.cancel
    }
}

/// A point that was raised, with who is told.
#[derive(Debug, Clone)]
pub struct OpenedPoint {
    /// The point.
    pub point: Point,
    /// Messages to send, frozen now.
    pub recipients: Vec<(DeliveryId, JobId, Recipient)>,
}

/// What became of a point that closed without an answer of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointEnd {
    /// A break or pause that was released.
    Released,
    /// Asked anew, or dropped with its superstep.
    Superseded,
    /// Its component went on without an answer (K20).
    Withdrawn,
}

impl PointEnd {
    /// The name as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Superseded => "superseded",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// How a thread rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestAs {
    /// Something is open.
    Parked,
    /// A task failed.
    Failed {
        /// Why, for people: node and message.
        error: String,
        /// How many tasks failed.
        tasks: u32,
    },
    /// Nothing is left.
    Succeeded,
    /// Cancelled on request; open points are superseded.
    Cancelled,
    /// Set aside until an operator or a new build helps.
    Held {
        /// Why.
        reason: String,
    },
}

impl RestAs {
    /// The thread's status.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Failed { .. } => "failed",
            Self::Succeeded => "succeeded",
            Self::Cancelled => "cancelled",
            Self::Held { .. } => "held",
        }
    }

    /// Why, for people, if it is no ordinary rest.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Failed { error, .. } => Some(error),
            Self::Held { reason } => Some(reason),
            Self::Parked | Self::Succeeded | Self::Cancelled => None,
        }
    }
}

/// Commits what an activation did: one superstep, or the end of an attempt.
#[derive(Debug, Clone)]
pub struct StepCommit {
    /// The thread.
    pub thread: ThreadId,
    /// The flow.
    pub graph: String,
    /// The proof.
    pub fence: Fence,
    /// The new head, if the superstep settled.
    pub checkpoint: Option<NewCheckpoint>,
    /// Number of the checkpoint that `tasks` and `body` belong to.
    pub seq: i64,
    /// The body of that checkpoint, if its border changed.
    pub body: Option<CheckpointBody>,
    /// Records of tasks to keep, by key.
    pub tasks: Vec<(String, TaskRecord)>,
    /// What has changed in inner frames.
    pub frames: Vec<FrameCommit>,
    /// Points that were raised.
    pub opened: Vec<OpenedPoint>,
    /// Points that closed.
    pub closed: Vec<(InterruptId, PointEnd)>,
    /// Answers that were run with.
    pub consumed: Vec<InterruptId>,
    /// Runs that were taken up.
    pub runs: Vec<RunId>,
    /// Whether the pause that was asked for has been raised.
    pub paused: bool,
    /// Jobs to delete.
    pub jobs: Vec<JobId>,
    /// How the thread rests, if it does.
    pub rest: Option<RestAs>,
    /// What watchers are told with it, beside points and status.
    pub events: Vec<Event>,
    /// Now.
    pub now: Timestamp,
}

/// What a commit led to.
#[derive(Debug, Clone, PartialEq)]
pub enum Committed {
    /// The lease is kept: go on. Carries requests to stop, and at a rest what
    /// came in meanwhile.
    Running(Incoming),
    /// The thread rests and the lease is released.
    Released,
}

/// A result that must be durable before the body goes on (R10).
#[derive(Debug, Clone)]
pub struct StepResult {
    /// The thread.
    pub thread: ThreadId,
    /// The proof.
    pub fence: Fence,
    /// The frame whose task runs; `None` is the root frame.
    pub frame: Option<FrameId>,
    /// The checkpoint whose task runs.
    pub seq: i64,
    /// Where in the task.
    pub occurrence: Address,
    /// The step's name.
    pub name: String,
    /// Its result.
    pub result: Value,
    /// Now.
    pub now: Timestamp,
}

/// Records of tasks that finished while their siblings still run (R10).
#[derive(Debug, Clone)]
pub struct Flush {
    /// The thread.
    pub thread: ThreadId,
    /// The proof.
    pub fence: Fence,
    /// The checkpoint.
    pub seq: i64,
    /// The records, by task key.
    pub tasks: Vec<(String, TaskRecord)>,
    /// What watchers are told with it.
    pub events: Vec<Event>,
    /// Now.
    pub now: Timestamp,
}

/// How somebody gave an answer; kept in the audit trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Via {
    /// Through what: `api`, `link`, `page`.
    pub channel: &'static str,
    /// How identified: `token`, `link`, `session`.
    pub identified: &'static str,
}

/// One person's answer to one interrupt.
#[derive(Debug, Clone)]
pub struct RecordVote {
    /// The interrupt.
    pub interrupt: InterruptId,
    /// Who, with their roles now.
    pub voter: Voter,
    /// Whether they may answer points that carry no policy.
    pub operator: bool,
    /// The answer as it came in.
    pub answer: Value,
    /// The revision that the voter saw, if the channel says.
    pub revision: Option<u32>,
    /// The content that the voter saw, if the channel says.
    pub content_hash: Option<String>,
    /// Whether it replaces the answer that a failed task was given (R9).
    pub replace: bool,
    /// How it came.
    pub via: Via,
    /// The wake-up, if it decides.
    pub job: JobId,
    /// Now.
    pub now: Timestamp,
}

/// What a vote led to.
#[derive(Debug, Clone, PartialEq)]
pub struct Voted {
    /// The thread.
    pub thread: ThreadId,
    /// Whether the request is decided.
    pub decided: bool,
    /// Equal votes so far.
    pub have: u32,
    /// Votes needed.
    pub need: u32,
    /// Whether this was on record already.
    pub repeated: bool,
    /// The wake-up that was enqueued, for the local executor.
    pub wake: Option<Message>,
}

/// A resume: answers and flags, all or nothing (R1).
#[derive(Debug, Clone)]
pub struct ResumeThread {
    /// The thread.
    pub thread: ThreadId,
    /// The new run.
    pub run: RunId,
    /// Answers, each a vote.
    pub votes: Vec<RecordVote>,
    /// The parts that name no point.
    pub resume: Resume,
    /// More state and more tasks for the superstep (R5).
    pub amended: Option<HeadMove>,
    /// Judged with the amendment, so that nothing is done in between.
    pub guard: Option<StepGuard>,
    /// Who asks.
    pub requested_by: Principal,
    /// The wake-up.
    pub job: JobId,
    /// Now.
    pub now: Timestamp,
}

/// How an attempt to deliver ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryEnd {
    /// Handed over.
    Sent {
        /// The other side's word.
        detail: String,
    },
    /// To be tried again.
    Retry {
        /// What went wrong.
        error: String,
        /// When.
        at: Timestamp,
        /// The wake-up.
        job: JobId,
    },
    /// Given up.
    Failed {
        /// What went wrong last.
        error: String,
    },
}
