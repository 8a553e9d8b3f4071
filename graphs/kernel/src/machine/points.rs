//! The open points of a position, and those that the engine raises itself.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Position, Task};
use crate::address::Address;
use crate::ids::{FrameId, InterruptId};
use crate::occurrence::{PointKind, QuestionRecord};
use crate::principal::Principal;
use crate::question::{Elapsed, Request};
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
    Requested {
        /// The nodes that ran last.
        #[serde(default)]
        after: Vec<String>,
    },
    /// An edit left work: nothing runs until somebody says so (R11).
    Edited,
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
    /// Data that came with the release of a stop in a graph that only a body
    /// knows: written when the body enters it (K12, K17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Map<String, Value>>,
}

impl BorderPoint {
    fn kind(&self) -> PointKind {
        match self.reason {
            BorderReason::Breakpoint { .. } => PointKind::Break,
            BorderReason::Requested { .. } | BorderReason::Edited | BorderReason::RecursionLimit { .. } => {
                PointKind::Pause
            }
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
    /// Until when, if not for ever.
    pub due: Option<Timestamp>,
    /// The frame in which it waits; `None` is the root frame.
    pub frame: Option<FrameId>,
    /// The containers around it, nearest first; the root graph is the last.
    pub parents: Vec<ParentPoint>,
}

/// A container around a point. Its id can be named in a resume if it takes
/// data (K18).
#[derive(Debug, Clone, PartialEq)]
pub struct ParentPoint {
    /// Its id.
    pub id: InterruptId,
    /// Where it is.
    pub address: Address,
    /// For people; `null` for containers that do not say.
    pub info: Value,
    /// Whether it takes data.
    pub takes_data: bool,
}

impl Point {
    /// The request behind a question that people decide on.
    #[must_use]
    pub fn request(&self) -> Option<Request> {
        match self.kind {
            PointKind::Ask => Request::from_payload(&self.payload).ok(),
            PointKind::Interrupt
            | PointKind::Suspend
            | PointKind::Sleep
            | PointKind::Signal
            | PointKind::Container
            | PointKind::Break
            | PointKind::Pause => None,
        }
    }

    /// What the passing of its time does to the point, and in whose name; `None`
    /// for one that waits for no instant.
    #[must_use]
    pub fn elapsed(&self) -> Option<(Elapsed, Principal)> {
        self.due?;
        Some(match self.kind {
            PointKind::Sleep => (Elapsed::Answered(None), Principal::timer()),
            PointKind::Ask => {
                (self.request().map_or(Elapsed::Waits, |request| request.elapsed()), Principal::deadline())
            }
            _ => (Elapsed::Answered(None), Principal::deadline()),
        })
    }

    /// The name of the signal that it waits for.
    #[must_use]
    pub fn signal(&self) -> Option<&str> {
        (self.kind == PointKind::Signal).then(|| self.payload.get("signal").and_then(Value::as_str)).flatten()
    }
}

impl Position {
    /// All open points, those of inner frames included: the border's first,
    /// then the tasks' in task order. Leaves only; containers are their parents
    /// (K4).
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let mut points = Vec::new();
        self.collect_points(&[], &mut points);
        points
    }

    fn collect_points(&self, outer: &[ParentPoint], points: &mut Vec<Point>) {
        for (i, point) in self.border.iter().enumerate().filter(|(_, point)| !point.released) {
            points.push(Point {
                id: point.id.clone(),
                address: self.place.address.clone(),
                number: u32::try_from(i).unwrap_or(u32::MAX),
                kind: point.kind(),
                payload: serde_json::to_value(&point.reason).unwrap_or_else(|_| json!({})),
                asked_at: point.asked_at,
                due: None,
                frame: self.place.id.clone(),
                parents: outer.to_vec(),
            });
        }
        for task in &self.tasks {
            let mut own: Option<Vec<ParentPoint>> = None;
            for (address, question) in task.record.occurrences.questions().filter(|(_, question)| question.is_open()) {
                let around = own.get_or_insert_with(|| self.with_frame(outer));
                points.push(self.point(address, question, self.parents(task, address, around)));
            }
            for (address, frame) in &task.record.frames {
                let around = own.get_or_insert_with(|| self.with_frame(outer));
                let parents = self.parents(task, address, around);
                frame.collect_points(&parents, points);
            }
        }
    }

    /// `outer`, with the root graph before it in the root frame. A nested
    /// frame is itself the innermost of `outer`'s addresses.
    fn with_frame(&self, outer: &[ParentPoint]) -> Vec<ParentPoint> {
        let address = &self.place.address;
        let id = match &self.place.id {
            None => address.container_id(&self.salt, None),
            Some(frame) => InterruptId::from(frame.clone()),
        };
        let own = ParentPoint { id, address: address.clone(), info: Value::Null, takes_data: false };
        std::iter::once(own).chain(outer.iter().cloned()).collect()
    }

    /// The containers of `task` above `address`, then those around the frame.
    fn parents(&self, task: &Task, address: &Address, around: &[ParentPoint]) -> Vec<ParentPoint> {
        let within = address.ancestors().take_while(|above| task.plan.address.contains(above));
        let within = within.map(|above| {
            let container = task.record.occurrences.get(&above).and_then(|occurrence| occurrence.container.as_ref());
            ParentPoint {
                id: above.container_id(&self.salt, Some(&task.plan.planned_by)),
                info: container.map_or(Value::Null, |container| container.info.clone()),
                takes_data: container.is_some_and(|container| container.data.is_none()),
                address: above,
            }
        });
        within.chain(around.iter().cloned()).collect()
    }

    /// Whether something waits in this frame or inside.
    #[must_use]
    pub fn has_open(&self) -> bool {
        self.border.iter().any(|point| !point.released)
            || self
                .tasks
                .iter()
                .any(|task| task.record.occurrences.has_open() || task.record.frames.values().any(Self::has_open))
    }

    /// Raises a point at this checkpoint's border.
    pub(super) fn raise(&mut self, reason: BorderReason, now: Timestamp) {
        let number = u32::try_from(self.border.len()).unwrap_or(u32::MAX);
        let id = self.place.address.interrupt_id(&self.salt, &self.checkpoint.id, number);
        self.border.push(BorderPoint { id, reason, asked_at: now, released: false, update: None });
        self.unsaved.0 = true;
    }

    /// Stops here until somebody says `continue`, because somebody asked for
    /// it; not if the stop is there already, here or in a graph inside, nor on a
    /// finished thread.
    pub fn pause(&mut self, now: Timestamp) {
        let requested = |point: &BorderPoint| !point.released && matches!(point.reason, BorderReason::Requested { .. });
        let mut inside = self.border.iter().any(requested);
        self.each_frame(&mut |_, _, frame| {
            inside |= frame.border.iter().any(requested);
        });
        if self.tasks.is_empty() || inside {
            return;
        }
        let begun = self.tasks.iter().any(|task| task.record != super::TaskRecord::default());
        let after = if begun { Vec::new() } else { self.ran.iter().cloned().collect() };
        self.raise(BorderReason::Requested { after }, now);
    }

    fn point(&self, address: &Address, question: &QuestionRecord, parents: Vec<ParentPoint>) -> Point {
        Point {
            id: question.id.clone(),
            address: address.clone(),
            number: question.number,
            kind: question.kind,
            payload: question.payload.clone(),
            asked_at: question.asked_at,
            due: question.due,
            frame: self.place.id.clone(),
            parents,
        }
    }

    /// The containers with open points below them that take data of their own
    /// and were sent none (K18), as points: no leaves, and never listed with
    /// [`points`](Self::points).
    #[must_use]
    pub fn open_containers(&self) -> Vec<Point> {
        let mut containers: Vec<Point> = Vec::new();
        for point in self.points() {
            for (i, parent) in point.parents.iter().enumerate().filter(|(_, parent)| parent.takes_data) {
                if containers.iter().all(|known| known.id != parent.id) {
                    containers.push(Point {
                        id: parent.id.clone(),
                        address: parent.address.clone(),
                        number: 0,
                        kind: PointKind::Container,
                        payload: parent.info.clone(),
                        asked_at: point.asked_at,
                        due: None,
                        frame: point.frame.clone(),
                        parents: point.parents[i + 1..].to_vec(),
                    });
                }
            }
        }
        containers
    }
}
