//! One execution of a node in a superstep, planned and recorded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Position;
use crate::address::Address;
use crate::ids::CheckpointId;
use crate::node::Goto;
use crate::occurrence::Occurrences;

/// A task as its checkpoint planned it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedTask {
    /// Unique in the checkpoint: the node's name, `node#i` for a sent task.
    pub key: String,
    /// The node to run.
    pub node: String,
    /// Its address.
    pub address: Address,
    /// An argument of its own, if it was sent one (R3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<Value>,
    /// The checkpoint that planned it first; part of its interrupt ids (R7).
    pub planned_by: CheckpointId,
}

impl PlannedTask {
    /// Whether the task was sent an argument of its own.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.key.contains(SENT)
    }
}

/// What tells the key of a sent task from a node's name, which cannot have it.
pub(super) const SENT: char = '#';

/// How far a task has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Not run yet.
    #[default]
    Pending,
    /// Waits for answers.
    Waiting,
    /// Finished; its result is kept until the superstep settles.
    Done,
    /// Failed; `retry` runs it again with its recorded answers (K13).
    Failed,
}

impl TaskStatus {
    /// The name as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// What a finished task leaves for the superstep's end: the pending write.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StoredOutcome {
    /// Writes to state keys, in order.
    pub writes: Vec<(String, Value)>,
    /// Where the body led.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goto: Vec<Goto>,
    /// Where its conditions led, decided when it finished. `None` when they
    /// are decided at the superstep's end (a task alone in its superstep).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<Goto>>,
    /// It hands over: the writes and the targets are the parent's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parent: bool,
    /// The version of the graph that names the keys and the nodes here; `None`
    /// is that of the checkpoint. What is written outlives a migration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
}

/// The frames of the graphs that a task runs, by address.
pub type Frames = BTreeMap<Address, Position>;

/// The record of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// How far it has come.
    pub status: TaskStatus,
    /// What it asked, was told, and did.
    #[serde(default)]
    pub occurrences: Occurrences,
    /// Graphs that run inside. Stored on their own, so not here.
    #[serde(skip)]
    pub frames: Frames,
    /// The result of a finished task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<StoredOutcome>,
    /// Why a failed task failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A failed task that was told to try again and has not run since. Kept,
    /// so that a retry that meets a pause is done after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry: bool,
    /// The body ended early although a graph inside could have gone on: that
    /// graph wakes the task only when something more comes in for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passed_by: bool,
}

impl TaskRecord {
    /// A copy of what a store keeps in one piece: all but the frames.
    #[must_use]
    pub fn to_store(&self) -> Self {
        Self {
            status: self.status,
            occurrences: self.occurrences.clone(),
            frames: Frames::new(),
            outcome: self.outcome.clone(),
            error: self.error.clone(),
            retry: self.retry,
            passed_by: self.passed_by,
        }
    }
}

/// Marks what has changed since whoever keeps it last did. No part of what it
/// marks: all marks are equal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unsaved(pub bool);

impl PartialEq for Unsaved {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A planned task and its record.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// What was planned.
    pub plan: PlannedTask,
    /// How far it has come.
    pub record: TaskRecord,
    /// Whether the record has changed since it was last stored.
    pub unsaved: Unsaved,
}

impl Task {
    pub(super) fn new(plan: PlannedTask) -> Self {
        Self { plan, record: TaskRecord::default(), unsaved: Unsaved(false) }
    }

    /// Whether it is to run now (K7): never run, answered just now, told to
    /// try again, woken by a resume-all, or the path to something inside that
    /// is to run.
    pub(super) fn is_runnable(&self, resume_all: bool) -> bool {
        let inside = || !self.record.passed_by && self.record.frames.values().any(Position::can_go_on);
        let woken = || self.record.occurrences.has_fresh() || inside();
        match self.record.status {
            TaskStatus::Pending => true,
            // What it waited for may have come to its end in a graph inside whose
            // process died before the task could hear of it.
            TaskStatus::Waiting => resume_all || woken() || !self.has_open(),
            TaskStatus::Failed => self.record.retry || woken() || (resume_all && self.has_open()),
            TaskStatus::Done => false,
        }
    }

    /// Whether something inside waits for an answer.
    fn has_open(&self) -> bool {
        self.record.occurrences.has_open() || self.record.frames.values().any(Position::has_open)
    }
}
