//! What an activation has to tell the store: checkpoint, records, points.

use std::collections::{HashMap, HashSet};

use countersign_kernel::ids::{DeliveryId, InterruptId, ThreadId};
use countersign_kernel::machine::{Point, StepChanges, TaskStatus};
use countersign_kernel::occurrence::PointKind;

use super::{Abort, Activation};
use crate::engine::Engine;
use crate::queue::Message;
use crate::store::commands::{Committed, KeyAt, KeyIndex, NewCheckpoint, OpenedPoint, PointEnd, RestAs, StepCommit};

impl Activation {
    pub(super) async fn commit(
        &mut self,
        settled: Option<StepChanges>,
        rest: Option<RestAs>,
    ) -> Result<Committed, Abort> {
        let now = self.engine.inner.clock.now();
        let checkpoint = settled.map(|changes| self.next_checkpoint(changes));
        let tasks = self
            .touched
            .drain()
            .map(|index| &self.position.tasks[index])
            .map(|task| (task.plan.key.clone(), task.record.clone()))
            .collect();
        let (opened, closed, messages) = self.point_changes(checkpoint.is_some());
        let body = (self.border_changed && checkpoint.is_none()).then(|| self.position.body());
        let commit = StepCommit {
            thread: self.thread.clone(),
            graph: self.graph.name().to_owned(),
            fence: self.fence,
            checkpoint,
            seq: self.seq,
            body,
            tasks,
            opened,
            closed,
            consumed: std::mem::take(&mut self.consumed),
            runs: std::mem::take(&mut self.runs),
            paused: std::mem::take(&mut self.paused),
            jobs: std::mem::take(&mut self.jobs),
            rest,
            now,
        };
        self.border_changed = false;
        // A lease that is being given up is not renewed, so that a renewal does
        // not take the rest for a loss.
        let rests = commit.rest.is_some();
        if rests {
            self.engine.set_fence(&self.thread, None);
        }
        let committed = self.engine.inner.store.commit(commit).await?;
        if rests && matches!(committed, Committed::Running(_)) {
            self.engine.set_fence(&self.thread, Some(self.fence));
        }
        for message in messages {
            self.engine.hand_over(message);
        }
        Ok(committed)
    }

    /// The checkpoint that the position has moved to, and where its keys lie.
    fn next_checkpoint(&mut self, changes: StepChanges) -> NewCheckpoint {
        self.seq += 1;
        index_changes(&mut self.keys, &changes, self.seq, self.branch);
        NewCheckpoint {
            checkpoint: self.position.checkpoint.clone(),
            seq: self.seq,
            branch: self.branch,
            graph_version: self.graph.version(),
            fingerprint: self.graph.fingerprint().to_owned(),
            body: self.position.body(),
            keys: self.keys.clone(),
            changes,
        }
    }

    /// What became of a point that closed without an answer: let go by a task
    /// that went on without it (K20), or asked anew (R4).
    fn end_of(&self, id: &InterruptId, kind: PointKind, advanced: bool) -> PointEnd {
        if matches!(kind, PointKind::Break | PointKind::Pause) {
            return PointEnd::Released;
        }
        let finished = self.position.tasks.iter().any(|task| {
            task.record.status == TaskStatus::Done
                && task.record.occurrences.questions().any(|(_, question)| question.id == *id)
        });
        if advanced || finished { PointEnd::Withdrawn } else { PointEnd::Superseded }
    }

    /// Points that opened and closed since the store last heard of them.
    fn point_changes(&mut self, advanced: bool) -> (Vec<OpenedPoint>, Vec<(InterruptId, PointEnd)>, Vec<Message>) {
        let points = self.position.points(&self.graph);
        let open: HashSet<&InterruptId> = points.iter().map(|point| &point.id).collect();
        let closed = self
            .known
            .iter()
            .filter(|(id, _)| !open.contains(id) && !self.answered.contains(*id))
            .map(|(id, kind)| (id.clone(), self.end_of(id, *kind, advanced)))
            .collect();
        let mut messages = Vec::new();
        let mut opened = Vec::new();
        let known: HashMap<_, _> = points.iter().map(|point| (point.id.clone(), point.kind)).collect();
        for point in points {
            if !self.known.contains_key(&point.id) {
                opened.push(self.engine.opened(&self.thread, point, &mut messages));
            }
        }
        self.known = known;
        (opened, closed, messages)
    }
}

impl Engine {
    /// A point with those who are told of it, frozen now (R18).
    pub(in crate::engine) fn opened(
        &self,
        thread: &ThreadId,
        point: Point,
        messages: &mut Vec<Message>,
    ) -> OpenedPoint {
        let recipients = point.request().map_or_else(Vec::new, |request| {
            self.inner
                .directory
                .recipients(&request.policy)
                .into_iter()
                .filter_map(|recipient| {
                    let delivery = DeliveryId::parse(self.inner.ids.uuid()).ok()?;
                    let job = self.job();
                    messages.push(Message::deliver(job, thread.clone(), &delivery));
                    Some((delivery, job, recipient))
                })
                .collect()
        });
        if recipients.is_empty() && point.request().is_some() {
            // Roles are configured, so this is for the operator to see.
            tracing::warn!(%thread, interrupt = %point.id, "a request waits that nobody is told of: no approver is known");
        }
        OpenedPoint { point, recipients }
    }
}

/// Records in a key index where a checkpoint's changes lie.
pub(in crate::engine) fn index_changes(keys: &mut KeyIndex, changes: &StepChanges, seq: i64, branch: i64) {
    for (key, change) in changes {
        match change {
            countersign_kernel::state::Change::Set(_) => {
                keys.insert(key.clone(), KeyAt::Value(seq));
            }
            countersign_kernel::state::Change::Appended(items) => {
                let segments = match keys.remove(key) {
                    Some(KeyAt::Items(segments)) => segments,
                    Some(KeyAt::Value(_)) | None => Vec::new(),
                };
                let before = segments.last().map_or(0, |(_, until)| *until);
                let until = before + items.len() as u64;
                let mut segments = segments;
                match segments.last_mut() {
                    Some((last, end)) if *last == branch => *end = until,
                    _ => segments.push((branch, until)),
                }
                keys.insert(key.clone(), KeyAt::Items(segments));
            }
        }
    }
}
