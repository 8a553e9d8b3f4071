//! What the API says, as JSON.

use chrono::{DateTime, SecondsFormat};
use countersign_kernel::ids::InterruptId;
use countersign_kernel::machine::ParentPoint;
use countersign_kernel::time::Timestamp;
use countersign_worker::engine::{FrameState, ThreadView};
use countersign_worker::store::commands::PauseSwitch;
use countersign_worker::store::views::{AuditEntry, DeliveryView, InterruptView, RunView, ThreadSummary};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::held_back::why;

/// An instant as RFC 3339 text, UTC, microseconds.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    DateTime::from_timestamp_micros(at.as_micros()).unwrap_or_default().to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// A page of a list.
#[derive(Serialize, ToSchema)]
pub(super) struct Page<T: ToSchema> {
    /// The items.
    pub(super) items: Vec<T>,
    /// Where the next page begins; absent on the last.
    pub(super) next_cursor: Option<String>,
}

/// A thread, in one line.
#[derive(Serialize, ToSchema)]
pub(super) struct Thread {
    thread_id: String,
    graph: String,
    graph_version: u32,
    /// queued, running, parked, held, succeeded, failed or cancelled.
    status: String,
    /// Open points.
    open: u32,
    /// Failed tasks of the superstep.
    failed_tasks: u32,
    /// Why it failed.
    error: Option<String>,
    /// Why it is held.
    held_reason: Option<String>,
    /// How urgent it is.
    priority: i64,
    /// Threads of the flow with the same key are limited together.
    limit_key: Option<String>,
    /// Of a queued thread that may not run for now: what it stands behind.
    held_back: Option<String>,
    started_by: String,
    created_at: String,
    updated_at: String,
}

impl From<ThreadSummary> for Thread {
    fn from(thread: ThreadSummary) -> Self {
        Self {
            thread_id: thread.thread.into(),
            graph: thread.graph,
            graph_version: thread.graph_version,
            status: thread.status,
            open: thread.open,
            failed_tasks: thread.failed_tasks,
            error: thread.error,
            held_reason: thread.held_reason,
            priority: thread.priority,
            limit_key: thread.limit_key,
            held_back: thread.held_back.map(|by| by.to_string()),
            started_by: thread.started_by.into(),
            created_at: rfc3339(thread.created_at),
            updated_at: rfc3339(thread.updated_at),
        }
    }
}

impl Thread {
    /// With why it does not run, by what is paused now.
    pub(super) fn of(summary: ThreadSummary, switches: &[PauseSwitch]) -> Self {
        let held_back = why(&summary, switches);
        Self { held_back, ..summary.into() }
    }
}

/// A thread with its state and what it waits for.
#[derive(Serialize, ToSchema)]
pub(super) struct FullThread {
    #[serde(flatten)]
    thread: Thread,
    checkpoint_id: String,
    /// The state at the newest checkpoint.
    #[schema(value_type = Object)]
    state: Map<String, Value>,
    /// The state with what finished tasks of the superstep have written.
    #[schema(value_type = Object)]
    values: Map<String, Value>,
    /// Nodes that have still to run, one per task.
    next: Vec<String>,
    /// Sub-graphs that have begun and not finished, outer ones first.
    frames: Vec<Frame>,
    /// Open points.
    interrupts: Vec<Interrupt>,
    /// Why tasks failed, by task.
    errors: Vec<TaskError>,
    /// The latest runs, newest first.
    runs: Vec<Run>,
}

/// Why a task failed.
#[derive(Serialize, ToSchema)]
pub(super) struct TaskError {
    /// The task; of one in a sub-graph, the tasks that lead to it, with slashes
    /// between.
    task: String,
    /// The tasks that lead to it, outermost first, and itself.
    path: Vec<String>,
    message: String,
}

/// An unfinished sub-graph.
#[derive(Serialize, ToSchema)]
pub(super) struct Frame {
    /// What an edit of it and its history name as `frame`.
    id: String,
    graph: String,
    /// The tasks that lead to it, outermost first.
    path: Vec<String>,
    /// Where it runs, as people read it.
    address: String,
    /// Its newest checkpoint.
    checkpoint_id: String,
    /// Its state, with what its finished tasks have written.
    #[schema(value_type = Object)]
    values: Map<String, Value>,
    /// Nodes that have still to run in it, one per task.
    next: Vec<String>,
}

impl From<FrameState> for Frame {
    fn from(frame: FrameState) -> Self {
        Self {
            id: frame.frame.into(),
            graph: frame.graph,
            path: frame.path,
            address: frame.address.to_string(),
            checkpoint_id: frame.checkpoint.into(),
            values: frame.values,
            next: frame.next,
        }
    }
}

/// One request to advance a thread.
#[derive(Serialize, ToSchema)]
pub(super) struct Run {
    run_id: String,
    kind: String,
    status: String,
    created_at: String,
    finished_at: Option<String>,
}

impl From<RunView> for Run {
    fn from(run: RunView) -> Self {
        Self {
            run_id: run.run.into(),
            kind: run.kind,
            status: run.status,
            created_at: rfc3339(run.created_at),
            finished_at: run.finished_at.map(rfc3339),
        }
    }
}

impl FullThread {
    /// With why it does not run.
    pub(super) fn held_back(mut self, why: Option<String>) -> Self {
        self.thread.held_back = why;
        self
    }
}

impl From<ThreadView> for FullThread {
    fn from(view: ThreadView) -> Self {
        let ThreadView { detail, values, next, frames, failures, mut parents, .. } = view;
        let interrupts = detail.interrupts.into_iter().map(|point| {
            let parents = parents.remove(&point.id).unwrap_or_default();
            Interrupt { parents: parents.into_iter().map(Into::into).collect(), ..point.into() }
        });
        let errors = failures.into_iter().map(|(path, message)| TaskError { task: path.join("/"), path, message });
        Self {
            thread: detail.summary.into(),
            checkpoint_id: detail.head.into(),
            state: detail.state,
            values,
            next,
            frames: frames.into_iter().map(Into::into).collect(),
            interrupts: interrupts.collect(),
            errors: errors.collect(),
            runs: detail.runs.into_iter().map(Into::into).collect(),
        }
    }
}

/// A point that waits, or waited.
#[derive(Serialize, ToSchema)]
pub(super) struct Interrupt {
    id: String,
    thread_id: String,
    graph: String,
    /// The sub-graph in which it waits, if any.
    frame: Option<String>,
    /// Where, as people read it: `expense/manager@0`.
    address: String,
    /// approval, input, select, multi_select, modal, unlock, form; or
    /// interrupt, suspend, break, pause.
    kind: String,
    /// open, answered, released, superseded or withdrawn.
    status: String,
    #[schema(value_type = Object)]
    payload: Value,
    deadline: Option<String>,
    asked_at: String,
    closed_at: Option<String>,
    /// What an operator did that dropped it: edited, replayed, restarted or
    /// cancelled. `null` if the flow itself closed it.
    closed_by: Option<String>,
    /// Of one that was superseded: the open point that asks in its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_by: Option<String>,
    #[serde(flatten)]
    request: Option<Request>,
    decision: Option<DecisionShape>,
    /// With a thread: the containers around it, nearest first. One that takes
    /// data can be named in a resume.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parents: Vec<Container>,
}

impl Interrupt {
    /// With what asks in its place.
    pub(super) fn replaced_by(self, successor: Option<InterruptId>) -> Self {
        Self { replaced_by: successor.map(Into::into), ..self }
    }
}

/// A container around a point.
#[derive(Serialize, ToSchema)]
pub(super) struct Container {
    id: String,
    /// Where, as people read it.
    address: String,
    /// What it says of itself.
    #[schema(value_type = Object)]
    info: Value,
    /// Whether it takes data.
    takes_data: bool,
}

impl From<ParentPoint> for Container {
    fn from(parent: ParentPoint) -> Self {
        Self {
            id: parent.id.into(),
            address: parent.address.to_string(),
            info: parent.info,
            takes_data: parent.takes_data,
        }
    }
}

/// The part that people vote on.
#[derive(Serialize, ToSchema)]
pub(super) struct Request {
    /// Counts changes of the request; send it with an answer to be sure.
    revision: u32,
    content_hash: String,
    /// Equal votes so far.
    have: u32,
    /// Votes needed.
    need: u32,
}

/// What was decided.
#[derive(Serialize, ToSchema)]
pub(super) struct DecisionShape {
    #[schema(value_type = Object)]
    answer: Option<Value>,
    by: Vec<String>,
    at: String,
}

impl From<InterruptView> for Interrupt {
    fn from(view: InterruptView) -> Self {
        Self {
            id: view.id.into(),
            thread_id: view.thread.into(),
            graph: view.graph,
            frame: view.frame.map(Into::into),
            address: view.address,
            kind: view.kind,
            status: view.status,
            payload: view.payload,
            deadline: view.deadline.map(rfc3339),
            asked_at: rfc3339(view.asked_at),
            closed_at: view.closed_at.map(rfc3339),
            closed_by: view.closed_by,
            replaced_by: None,
            parents: Vec::new(),
            request: view.request.map(|request| Request {
                revision: request.revision,
                content_hash: request.content_hash,
                have: request.have,
                need: request.need,
            }),
            decision: view.answered.map(|answered| DecisionShape {
                answer: answered.value,
                by: answered.by.into_iter().map(Into::into).collect(),
                at: rfc3339(answered.at),
            }),
        }
    }
}

/// One message to one recipient.
#[derive(Serialize, ToSchema)]
pub(super) struct Delivery {
    delivery_id: String,
    thread_id: String,
    interrupt_id: String,
    channel: String,
    recipient: String,
    occasion: String,
    /// pending, sending, sent, failed or skipped.
    status: String,
    attempts: u32,
    /// A sender died after it may have handed the message over.
    possibly_twice: bool,
    detail: Option<String>,
    created_at: String,
    finished_at: Option<String>,
}

impl From<DeliveryView> for Delivery {
    fn from(view: DeliveryView) -> Self {
        Self {
            delivery_id: view.delivery.into(),
            thread_id: view.thread.into(),
            interrupt_id: view.interrupt.into(),
            channel: view.channel,
            recipient: view.principal.into(),
            occasion: view.occasion,
            status: view.status,
            attempts: view.attempts,
            possibly_twice: view.possibly_twice,
            detail: view.detail,
            created_at: rfc3339(view.created_at),
            finished_at: view.finished_at.map(rfc3339),
        }
    }
}

/// One entry of a thread's audit chain.
#[derive(Serialize, ToSchema)]
pub(super) struct AuditItem {
    seq: i64,
    at: String,
    action: String,
    actor: Option<String>,
    #[schema(value_type = Object)]
    detail: Option<Value>,
    hash: String,
}

impl From<AuditEntry> for AuditItem {
    fn from(entry: AuditEntry) -> Self {
        Self {
            seq: entry.seq,
            at: rfc3339(entry.at),
            action: entry.action,
            actor: entry.actor,
            detail: entry.detail,
            hash: entry.hash,
        }
    }
}
