//! Moving the head of a thread.

use countersign_kernel::ids::{CheckpointId, InterruptId, RunId, ThreadId};
use countersign_kernel::machine::{Resume, TaskRecord};
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use serde_json::Value;

use super::{FrameCommit, IdempotencyEntry, NewCheckpoint, OpenedPoint, PointEnd, RestAs};
use crate::queue::JobId;

/// Points that a move of the head closes.
#[derive(Debug, Clone)]
pub enum Closing {
    /// All that are open: their superstep is abandoned.
    All,
    /// These.
    Some(Vec<(InterruptId, PointEnd)>),
}

/// Moves the head of a thread at rest, or something inside it, as a request
/// asked: new input, an edit, a replay, a fork, an amendment.
#[derive(Debug, Clone)]
pub struct HeadMove {
    /// The checkpoint that it was made from: compare and set.
    pub expected_head: CheckpointId,
    /// The new head, if the root frame moves.
    pub next: Option<NewCheckpoint>,
    /// Whether the records of the superstep go along (R5).
    pub carry: bool,
    /// Records of tasks of the root frame to keep, at its head.
    pub tasks: Vec<(String, TaskRecord)>,
    /// What moves inside.
    pub frames: Vec<FrameCommit>,
    /// Points that close.
    pub closed: Closing,
    /// Points that open.
    pub opened: Vec<OpenedPoint>,
}

/// A run that a request starts.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id.
    pub run: RunId,
    /// start, replay or fork.
    pub kind: &'static str,
    /// What is still to be taken up, a limit of supersteps say.
    pub resume: Resume,
}

/// Refuses a move that would have steps done again (R13).
#[derive(Debug, Clone)]
pub struct StepGuard {
    /// The checkpoint from which the thread goes on.
    pub from: CheckpointId,
    /// Whether it leaves the line that its head is on.
    pub leaves: bool,
    /// Nodes of the thread's own graph that run anew: what they did on the line
    /// before counts as done again too.
    pub anew: Vec<String>,
}

/// Moves a thread (K15, R5, R13).
#[derive(Debug, Clone)]
pub struct MoveThread {
    /// The thread.
    pub thread: ThreadId,
    /// Judged with the move, so that nothing is done in between.
    pub guard: Option<StepGuard>,
    /// How its head moves.
    pub head: HeadMove,
    /// The run, if something is to run.
    pub run: Option<NewRun>,
    /// Whether waiting points may be dropped.
    pub discard_waiting: bool,
    /// How the thread rests, if nothing is to run.
    pub rest: Option<RestAs>,
    /// Who asks.
    pub requested_by: Principal,
    /// For the audit trail: what was done.
    pub action: &'static str,
    /// For the audit trail: the facts.
    pub detail: Value,
    /// For a repeated request.
    pub idempotency: Option<IdempotencyEntry>,
    /// The wake-up.
    pub job: JobId,
    /// Now.
    pub now: Timestamp,
}
