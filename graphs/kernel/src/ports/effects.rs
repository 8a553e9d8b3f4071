//! How a running body makes results durable.

use async_trait::async_trait;
use serde_json::Value;

use crate::address::Address;
use crate::graph::CompiledGraph;
use crate::ids::{CheckpointId, FrameId};
use crate::machine::{Position, StepChanges, TaskEvent};

/// Why a result could not be made durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EffectError {
    /// The lease is lost: another worker runs this thread now.
    #[error("the lease on this thread is lost")]
    LeaseLost,
    /// The store failed.
    #[error("the result could not be stored: {0}")]
    Store(String),
}

/// What happened in an inner frame while its task runs (K17).
#[derive(Debug, Clone, Copy)]
pub struct FrameStep<'a> {
    /// The frame around it; `None` for the root frame.
    pub parent: Option<&'a FrameId>,
    /// The task of that frame which runs it.
    pub task: &'a str,
    /// The checkpoint that planned that task.
    pub planned_by: &'a CheckpointId,
    /// The frame's graph.
    pub graph: &'a CompiledGraph,
    /// Where the frame stands now.
    pub position: &'a Position,
    /// The changes that led to a new checkpoint; `None` when only records of
    /// tasks changed.
    pub changes: Option<&'a StepChanges>,
    /// The tasks whose records changed, by index.
    pub tasks: &'a [usize],
}

/// Receives results that must be durable before the body goes on (R10).
#[async_trait]
pub trait Effects: Send + Sync {
    /// Commits the result of a `step` or of a finished batch slot, fenced by
    /// the thread's lease. Once this returns `Ok`, a later run of the body
    /// gets the result instead of repeating the effect. `frame` is the frame
    /// in which the task runs.
    ///
    /// # Errors
    /// The lease is lost, or the store failed; the body must stop.
    async fn record(
        &self,
        frame: Option<&FrameId>,
        occurrence: &Address,
        name: &str,
        result: &Value,
    ) -> Result<(), EffectError>;

    /// Whether an effect may begin: not if the thread may be somebody else's by
    /// now. By default nobody else is there.
    ///
    /// # Errors
    /// The lease is lost; the body must stop.
    fn may_begin(&self) -> Result<(), EffectError> {
        Ok(())
    }

    /// Commits a superstep of an inner frame, or records of its tasks, fenced
    /// by the thread's lease. Once this returns `Ok`, a restart goes on from
    /// there.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    async fn frame(&self, step: FrameStep<'_>) -> Result<(), EffectError>;

    /// Hands on an event of the flow's own (K22). Events are for watchers:
    /// they change nothing.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    async fn emit(&self, occurrence: &Address, event: &Value) -> Result<(), EffectError>;

    /// Hears what happens to the tasks of every frame, as it happens (K22). By
    /// default nobody listens.
    fn note(&self, _event: TaskEvent<'_>) {}
}
