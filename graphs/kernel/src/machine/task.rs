//! One execution of a node in a superstep, planned and recorded.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::Address;
use crate::ids::CheckpointId;
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
    /// Where its conditions led, decided when it finished. `None` when they
    /// are decided at the superstep's end (a task alone in its superstep).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<String>>,
}

/// The record of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// How far it has come.
    pub status: TaskStatus,
    /// What it asked, was told, and did.
    #[serde(default)]
    pub occurrences: Occurrences,
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
}

/// A planned task and its record.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// What was planned.
    pub plan: PlannedTask,
    /// How far it has come.
    pub record: TaskRecord,
}

impl Task {
    /// Whether it is to run now (K7): never run, answered just now, told to
    /// try again, or woken by a resume-all.
    pub(super) fn is_runnable(&self, resume_all: bool) -> bool {
        match self.record.status {
            TaskStatus::Pending => true,
            TaskStatus::Waiting => resume_all || self.record.occurrences.has_fresh(),
            TaskStatus::Failed => {
                let open = self.record.occurrences.has_open();
                self.record.retry || self.record.occurrences.has_fresh() || (resume_all && open)
            }
            TaskStatus::Done => false,
        }
    }
}
