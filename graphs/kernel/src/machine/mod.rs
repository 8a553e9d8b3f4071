//! The machine: where a thread stands, what runs next, what follows.
//!
//! Pure functions over values. The worker (or the in-memory
//! [driver](crate::driver)) loops: ask [`Position::next`]; run the bodies it
//! names; hand the results to [`Position::complete`]; and once it says so,
//! [`Position::settle`] into the next checkpoint. Whatever was decided is in
//! the position's public parts, for a store to commit.

mod answers;
mod complete;
mod edit;
mod fit;
mod fork;
mod frames;
mod given;
mod live;
mod note;
mod plan;
mod points;
mod route;
mod settle;
mod start;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::answers::{AnswerRefused, Resume, ResumeRefused, Taken};
pub use self::edit::{Amend, Edit, EditRefused};
pub use self::fit::{Migrated, Misfit, migrate_chain};
pub use self::fork::{Archived, fork};
pub use self::frames::{FramePlace, FrameView};
pub use self::note::{RunAs, TaskChange, TaskEvent};
pub use self::plan::{Next, Rest};
pub use self::points::{BorderPoint, BorderReason, ParentPoint, Point};
pub(crate) use self::route::join_key;
pub use self::settle::{Settled, StepChanges};
pub use self::start::fill_neutral;
pub use self::task::{Frames, PlannedTask, StoredOutcome, Task, TaskRecord, TaskStatus, Unsaved};
use crate::graph::CompiledGraph;
use crate::ids::CheckpointId;
use crate::limits::Limits;
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
    /// An amendment in a resume: the same superstep with more state or tasks.
    Amend,
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
            Self::Amend => "amend",
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

/// Where a frame stands: its newest checkpoint, the state, and how far the
/// tasks of the superstep have come. A thread is its root frame; graphs that
/// run inside tasks are frames in the records of those tasks (K17).
#[derive(Debug, Clone, PartialEq)]
pub struct Position {
    /// The thread's salt, part of every interrupt id.
    pub salt: [u8; 16],
    /// Which frame this is.
    pub place: FramePlace,
    /// The newest checkpoint.
    pub checkpoint: Checkpoint,
    /// The state at the start of the superstep.
    pub state: Arc<StateView>,
    /// The tasks of the superstep and their records, in task order.
    pub tasks: Vec<Task>,
    /// Which sources of a join have run, by the join. A full one is cleared
    /// when its target has run (rule 10).
    pub arrivals: BTreeMap<String, BTreeSet<String>>,
    /// Deferred nodes that wait until nothing else is due.
    pub deferred: BTreeSet<String>,
    /// The nodes of the last superstep that ran: what an edit that names no
    /// node is taken as.
    pub ran: BTreeSet<String>,
    /// Breakpoints and pauses at this checkpoint's border.
    pub border: Vec<BorderPoint>,
    /// Open points run although nobody answered, at the next attempt (K10).
    pub resume_all: bool,
    /// How many supersteps a run may take; it starts anew with each.
    pub budget: Budget,
    /// Whether the checkpoint's body has changed since it was last stored.
    pub unsaved: Unsaved,
    /// The version of its graph under which a store was left with it, until
    /// somebody who knows the graph [takes it over](Self::take_over).
    pub left_under: Option<u32>,
    /// What a migration did to it when it was taken over.
    pub migrated: Migrated,
}

/// How many supersteps a run may take in a frame (R30).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// In this run; that of a graph inside is that of the graph around it.
    pub limit: u32,
    /// In a run that asks for no other limit.
    pub usual: u32,
    /// Taken in this one.
    pub used: u32,
}

impl Budget {
    /// A run of up to `limit` supersteps.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self { limit, usual: limit, used: 0 }
    }

    /// With the limit that the graph around has in this run.
    pub(crate) fn of_run(self, limit: u32) -> Self {
        Self { limit, ..self }
    }
}

/// What a store keeps of a checkpoint beside its identity and the state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointBody {
    /// The planned tasks.
    pub tasks: Vec<PlannedTask>,
    /// See [`Position::arrivals`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arrivals: BTreeMap<String, BTreeSet<String>>,
    /// See [`Position::deferred`].
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub deferred: BTreeSet<String>,
    /// See [`Position::ran`].
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ran: BTreeSet<String>,
    /// See [`Position::border`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub border: Vec<BorderPoint>,
    /// See [`Position::resume_all`]; kept only while a pause holds it up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume_all: bool,
}

impl Position {
    /// Puts a frame together from what a store kept; [`adopt`](Self::adopt) or
    /// [`take_over`](Self::take_over) makes it one of a graph. Frames inside its tasks follow through
    /// [`insert_frame`](Self::insert_frame).
    #[must_use]
    pub fn restore(
        salt: [u8; 16],
        place: FramePlace,
        checkpoint: Checkpoint,
        body: CheckpointBody,
        values: Values,
        mut records: BTreeMap<String, TaskRecord>,
    ) -> Self {
        let tasks = body.tasks.into_iter().map(|plan| {
            let record = records.remove(&plan.key).unwrap_or_default();
            Task { record, ..Task::new(plan) }
        });
        Self {
            salt,
            place,
            checkpoint,
            state: Arc::new(StateView::new(values)),
            tasks: tasks.collect(),
            arrivals: body.arrivals,
            deferred: body.deferred,
            ran: body.ran,
            border: body.border,
            resume_all: body.resume_all,
            budget: Budget::new(Limits::default().supersteps_per_run),
            unsaved: Unsaved(false),
            left_under: None,
            migrated: Migrated::default(),
        }
    }

    /// Makes a restored frame one of `graph`: keys that nobody wrote get their
    /// neutral value.
    #[must_use]
    pub fn adopt(mut self, graph: &CompiledGraph) -> Self {
        self.budget = Budget::new(graph.limits.supersteps_per_run);
        if start::lacks_neutral(graph, self.state.values()) {
            let mut values = self.state.values().clone();
            start::fill_neutral(graph, &mut values);
            self.state = Arc::new(StateView::new(values));
        }
        self
    }

    /// What a store keeps of this checkpoint.
    #[must_use]
    pub fn body(&self) -> CheckpointBody {
        CheckpointBody {
            tasks: self.tasks.iter().map(|task| task.plan.clone()).collect(),
            arrivals: self.arrivals.clone(),
            deferred: self.deferred.clone(),
            ran: self.ran.clone(),
            border: self.border.clone(),
            resume_all: self.resume_all,
        }
    }
}
