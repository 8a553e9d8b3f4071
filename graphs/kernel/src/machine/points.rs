//! The open points of a position, and those that the engine raises itself.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Position;
use crate::address::Address;
use crate::graph::CompiledGraph;
use crate::ids::InterruptId;
use crate::occurrence::{PointKind, QuestionRecord};
use crate::question::Request;
use crate::time::Timestamp;

/// Why the engine stopped at a border.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum BorderReason {
    /// Static breakpoints (K12): several nodes make one stop.
    Breakpoint {
        /// Nodes that are due and stop before they run.
        before: Vec<String>,
        /// Nodes that have just finished and stop after.
        after: Vec<String>,
    },
    /// Somebody asked for a pause.
    Requested,
    /// The run used up its supersteps (R11).
    RecursionLimit {
        /// The limit that was reached.
        supersteps: u32,
    },
}

/// A point at a checkpoint's border. Raised once, when the checkpoint is made
/// or the pause asked for; released once, for good (R2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BorderPoint {
    /// The point's id.
    pub id: InterruptId,
    /// Why.
    #[serde(flatten)]
    pub reason: BorderReason,
    /// When it was raised.
    pub asked_at: Timestamp,
    /// Whether it has been released.
    #[serde(default)]
    pub released: bool,
}

impl BorderPoint {
    fn kind(&self) -> PointKind {
        match self.reason {
            BorderReason::Breakpoint { .. } => PointKind::Break,
            BorderReason::Requested | BorderReason::RecursionLimit { .. } => PointKind::Pause,
        }
    }
}

/// A pending point as everything outside the kernel sees it (K3).
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The id to answer it by.
    pub id: InterruptId,
    /// Where it waits.
    pub address: Address,
    /// The question's number at that address.
    pub number: u32,
    /// What kind of point.
    pub kind: PointKind,
    /// For people.
    pub payload: Value,
    /// Since when.
    pub asked_at: Timestamp,
}

impl Point {
    /// The request behind a question that people decide on.
    #[must_use]
    pub fn request(&self) -> Option<Request> {
        match self.kind {
            PointKind::Ask => Request::from_payload(&self.payload).ok(),
            PointKind::Interrupt | PointKind::Suspend | PointKind::Break | PointKind::Pause => None,
        }
    }
}

impl Position {
    /// All open points: the border's first, then the tasks' in task order.
    #[must_use]
    pub fn points(&self, graph: &CompiledGraph) -> Vec<Point> {
        let frame = Address::graph(graph.name());
        let border = self.border.iter().enumerate().filter(|(_, point)| !point.released).map(|(i, point)| Point {
            id: point.id.clone(),
            address: frame.clone(),
            number: u32::try_from(i).unwrap_or(u32::MAX),
            kind: point.kind(),
            payload: serde_json::to_value(&point.reason).unwrap_or_else(|_| json!({})),
            asked_at: point.asked_at,
        });
        let questions = self
            .tasks
            .iter()
            .flat_map(|task| task.record.occurrences.questions())
            .filter(|(_, question)| question.is_open())
            .map(|(address, question)| point(address, question));
        border.chain(questions).collect()
    }

    /// Raises a point at this checkpoint's border.
    pub(super) fn raise(&mut self, graph: &CompiledGraph, reason: BorderReason, now: Timestamp) {
        let number = u32::try_from(self.border.len()).unwrap_or(u32::MAX);
        let id = Address::graph(graph.name()).interrupt_id(&self.salt, &self.checkpoint.id, number);
        self.border.push(BorderPoint { id, reason, asked_at: now, released: false });
    }

    /// Stops here until somebody says `continue`: for a pause from outside,
    /// or a run that used up its supersteps. Does nothing on a finished thread.
    pub fn pause(&mut self, graph: &CompiledGraph, reason: BorderReason, now: Timestamp) {
        if !self.tasks.is_empty() {
            self.raise(graph, reason, now);
        }
    }
}

fn point(address: &Address, question: &QuestionRecord) -> Point {
    Point {
        id: question.id.clone(),
        address: address.clone(),
        number: question.number,
        kind: question.kind,
        payload: question.payload.clone(),
        asked_at: question.asked_at,
    }
}
