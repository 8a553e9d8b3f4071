//! The machine: where a thread stands, what runs next, what follows.
//!
//! Pure functions over values. The worker (or the in-memory
//! [driver](crate::driver)) loops: ask [`Position::next`]; run the bodies it
//! names; hand the results to [`Position::complete`]; and once it says so,
//! [`Position::settle`] into the next checkpoint. Whatever was decided is in
//! the position's public parts, for a store to commit.

mod answers;
mod plan;
mod points;
mod settle;
mod start;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::answers::{AnswerRefused, Resume};
pub use self::plan::{Next, Rest};
pub use self::points::{BorderPoint, BorderReason, Point};
pub use self::settle::{Settled, StepChanges};
pub use self::task::{PlannedTask, StoredOutcome, Task, TaskRecord, TaskStatus};
use crate::graph::CompiledGraph;
use crate::ids::CheckpointId;
use crate::ports::{Clock, Ids};
use crate::state::{StateView, Values};
use crate::time::Timestamp;

/// Where a checkpoint came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Fresh input.
    Input,
    /// A finished superstep.
    Loop,
    /// An edit of the state.
    Update,
    /// A fork of an older checkpoint.
    Fork,
}

impl Source {
    /// The name as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Loop => "loop",
            Self::Update => "update",
            Self::Fork => "fork",
        }
    }
}

/// The identity of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its id (UUIDv7).
    pub id: CheckpointId,
    /// The one before it, if any.
    pub parent: Option<CheckpointId>,
    /// Where it came from.
    pub source: Source,
    /// Number of the superstep whose tasks it holds; the input's is 0.
    pub superstep: u64,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Fresh values from outside that making a checkpoint needs.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    /// For ids of new checkpoints.
    pub ids: &'a dyn Ids,
    /// For times.
    pub clock: &'a dyn Clock,
}

impl std::fmt::Debug for Outside<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outside")
    }
}

/// Where a thread stands: its newest checkpoint, the state, and how far the
/// tasks of the superstep have come.
#[derive(Debug)]
pub struct Position {
    /// The thread's salt, part of every interrupt id.
    pub salt: [u8; 16],
    /// The newest checkpoint.
    pub checkpoint: Checkpoint,
    /// The state at the start of the superstep.
    pub state: Arc<StateView>,
    /// The tasks of the superstep and their records, in task order.
    pub tasks: Vec<Task>,
    /// Which sources of a join have run, by the join's target.
    pub arrivals: BTreeMap<String, BTreeSet<String>>,
    /// Breakpoints and pauses at this checkpoint's border.
    pub border: Vec<BorderPoint>,
    /// Open points run although nobody answered, at the next attempt (K10).
    pub resume_all: bool,
}

/// What a store keeps of a checkpoint beside its identity and the state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointBody {
    /// The planned tasks.
    pub tasks: Vec<PlannedTask>,
    /// See [`Position::arrivals`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arrivals: BTreeMap<String, BTreeSet<String>>,
    /// See [`Position::border`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub border: Vec<BorderPoint>,
    /// See [`Position::resume_all`]; kept only while a pause holds it up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume_all: bool,
}

impl Position {
    /// Puts a position together from what a store kept. Keys that nobody wrote
    /// get their neutral value.
    #[must_use]
    pub fn restore(
        graph: &CompiledGraph,
        salt: [u8; 16],
        checkpoint: Checkpoint,
        body: CheckpointBody,
        mut values: Values,
        mut records: BTreeMap<String, TaskRecord>,
    ) -> Self {
        start::fill_neutral(graph, &mut values);
        let tasks = body
            .tasks
            .into_iter()
            .map(|plan| {
                let record = records.remove(&plan.key).unwrap_or_default();
                Task { plan, record }
            })
            .collect();
        Self {
            salt,
            checkpoint,
            state: Arc::new(StateView::new(values)),
            tasks,
            arrivals: body.arrivals,
            border: body.border,
            resume_all: body.resume_all,
        }
    }

    /// What a store keeps of this checkpoint.
    #[must_use]
    pub fn body(&self) -> CheckpointBody {
        CheckpointBody {
            tasks: self.tasks.iter().map(|task| task.plan.clone()).collect(),
            arrivals: self.arrivals.clone(),
            border: self.border.clone(),
            resume_all: self.resume_all,
        }
    }

    /// The nodes that have still to run, one entry per task, sorted.
    #[must_use]
    pub fn next_nodes(&self) -> Vec<&str> {
        let mut nodes: Vec<_> = self
            .tasks
            .iter()
            .filter(|task| task.record.status != TaskStatus::Done)
            .map(|task| task.plan.node.as_str())
            .collect();
        nodes.sort_unstable();
        nodes
    }
}
