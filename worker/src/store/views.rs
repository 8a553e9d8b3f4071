//! What a store answers to questions.

use countersign_kernel::ids::{CheckpointId, DeliveryId, FrameId, InterruptId, RunId, ThreadId};
use countersign_kernel::machine::Archived;
use countersign_kernel::ports::{ChannelName, Notice};
use countersign_kernel::principal::Principal;
use countersign_kernel::question::Answered;
use countersign_kernel::time::Timestamp;
use serde_json::{Map, Value};

use super::commands::{HeldBack, KeyIndex};

/// One line about a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadSummary {
    /// Its id.
    pub thread: ThreadId,
    /// The flow.
    pub graph: String,
    /// The version of the flow that it is on.
    pub graph_version: u32,
    /// queued, running, parked, held, succeeded, failed or cancelled.
    pub status: String,
    /// Open points.
    pub open: u32,
    /// Failed tasks of the superstep.
    pub failed_tasks: u32,
    /// Why it failed.
    pub error: Option<String>,
    /// Why it is held.
    pub held_reason: Option<String>,
    /// How urgent it is.
    pub priority: i64,
    /// Which threads of its flow it is limited with.
    pub limit_key: Option<String>,
    /// What it stands behind, if it is queued and may not run for now.
    pub held_back: Option<HeldBack>,
    /// Who started it.
    pub started_by: Principal,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// A thread with its state and what it waits for.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadDetail {
    /// The summary.
    pub summary: ThreadSummary,
    /// The newest checkpoint.
    pub head: CheckpointId,
    /// The state at it.
    pub state: Map<String, Value>,
    /// Nodes that have still to run.
    pub next: Vec<String>,
    /// Failed tasks: key and message.
    pub errors: Vec<(String, String)>,
    /// Open interrupts.
    pub interrupts: Vec<InterruptView>,
    /// Its runs, newest first, at most 20.
    pub runs: Vec<RunView>,
}

/// One run of a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct RunView {
    /// Its id.
    pub run: RunId,
    /// start, resume, replay or fork.
    pub kind: String,
    /// As a thread's.
    pub status: String,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When the thread came to rest.
    pub finished_at: Option<Timestamp>,
}

/// One checkpoint of a thread's history.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryEntry {
    /// Its id.
    pub checkpoint: CheckpointId,
    /// The one before.
    pub parent: Option<CheckpointId>,
    /// Its number in the thread.
    pub seq: i64,
    /// Where it came from.
    pub source: String,
    /// Its superstep.
    pub superstep: u64,
    /// The state at the start of that superstep.
    pub state: Map<String, Value>,
    /// The nodes of that superstep.
    pub next: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A checkpoint to go back to, with where its rows lie.
#[derive(Debug, Clone)]
pub struct ArchivedAt {
    /// The checkpoint.
    pub archived: Archived,
    /// Its number in its frame.
    pub seq: i64,
    /// The version of the graph that made it.
    pub graph_version: u32,
    /// Where its keys lie.
    pub keys: KeyIndex,
}

/// A step that was done once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneStep {
    /// Where, as people read it.
    pub address: String,
    /// Its name.
    pub name: String,
}

/// An interrupt as everybody outside sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct InterruptView {
    /// Its id.
    pub id: InterruptId,
    /// The thread.
    pub thread: ThreadId,
    /// The sub-graph in which it waits, if any.
    pub frame: Option<FrameId>,
    /// The flow.
    pub graph: String,
    /// Where, as people read it.
    pub address: String,
    /// approval, input, … or interrupt, suspend, break, pause.
    pub kind: String,
    /// open, answered, released, superseded or withdrawn.
    pub status: String,
    /// For people.
    pub payload: Value,
    /// When it stops waiting.
    pub deadline: Option<Timestamp>,
    /// Since when.
    pub asked_at: Timestamp,
    /// Until when.
    pub closed_at: Option<Timestamp>,
    /// The request of an operator that dropped it: edited, replayed, restarted,
    /// resumed or cancelled. `None` if the flow itself closed it.
    pub closed_by: Option<String>,
    /// The request, if people decide it.
    pub request: Option<RequestView>,
    /// The answer, once accepted.
    pub answered: Option<Answered>,
}

/// The part of an interrupt that people vote on.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestView {
    /// Counts changes.
    pub revision: u32,
    /// Hash of what is shown.
    pub content_hash: String,
    /// Equal votes so far.
    pub have: u32,
    /// Votes needed.
    pub need: u32,
    /// Who has voted, and when.
    pub votes: Vec<(Principal, Value, Timestamp)>,
}

/// A delivery as operators see it. The address is not part of it.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryView {
    /// Its id.
    pub delivery: DeliveryId,
    /// The thread.
    pub thread: ThreadId,
    /// The interrupt it is about.
    pub interrupt: InterruptId,
    /// Through what.
    pub channel: String,
    /// To whom.
    pub principal: Principal,
    /// Why.
    pub occasion: String,
    /// pending, sending, sent, failed or skipped.
    pub status: String,
    /// How often it was tried.
    pub attempts: u32,
    /// A sender died after it may have handed over (R23).
    pub possibly_twice: bool,
    /// The other side's word, or the last error.
    pub detail: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// A delivery that this worker may attempt now.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryTask {
    /// Through what.
    pub channel: ChannelName,
    /// What to send.
    pub notice: Notice,
}

/// Which threads to list.
#[derive(Debug, Clone, Default)]
pub struct ThreadFilter {
    /// Only with this status; or [`UNFINISHED`](Self::UNFINISHED).
    pub status: Option<String>,
    /// Only of this flow.
    pub graph: Option<String>,
}

impl ThreadFilter {
    /// Any status of a thread that has not ended.
    pub const UNFINISHED: &str = "unfinished";
}

/// Which interrupts to list.
#[derive(Debug, Clone, Default)]
pub struct InterruptFilter {
    /// Only with this status; `open` by default in the API.
    pub status: Option<String>,
    /// Only of this flow.
    pub graph: Option<String>,
    /// Only those that one of these may answer (a person and their roles).
    pub approvers: Option<Vec<String>>,
    /// Only of this thread.
    pub thread: Option<ThreadId>,
}

/// Where a page of a list goes on: after this (time, id).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyset {
    /// Creation time of the last item.
    pub at: Timestamp,
    /// Its id.
    pub id: String,
}

/// An API token as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// Its name; the principal is `service:<name>`.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// The flows it is limited to, if any.
    pub graphs: Option<Vec<String>>,
}

/// One entry of a thread's audit chain.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditEntry {
    /// Its number.
    pub seq: i64,
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub action: String,
    /// Who; `None` when erased.
    pub actor: Option<String>,
    /// The facts; `None` when erased.
    pub detail: Option<Value>,
    /// The chain's hash up to here, hex.
    pub hash: String,
}

/// An event as watchers see it (K22).
#[derive(Debug, Clone, PartialEq)]
pub struct EventView {
    /// Its number in the thread, from 1.
    pub id: i64,
    /// When it happened.
    pub at: Timestamp,
    /// One of [`EVENT_KINDS`](super::EVENT_KINDS).
    pub kind: &'static str,
    /// The facts.
    pub data: Value,
}

/// Some events of a thread, and how it stood when they were read.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPage {
    /// The flow.
    pub graph: String,
    /// The events, in order.
    pub events: Vec<EventView>,
    /// As a thread's.
    pub status: String,
    /// The number of the thread's last event; 0 if it has none.
    pub last: i64,
}
