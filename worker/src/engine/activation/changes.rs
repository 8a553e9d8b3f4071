//! What an activation has to tell the store: checkpoint, records, points.

use std::collections::{HashMap, HashSet};

use countersign_kernel::ids::{DeliveryId, InterruptId, ThreadId};
use countersign_kernel::machine::{Point, Position, StepChanges, TaskRecord, TaskStatus};
use countersign_kernel::occurrence::PointKind;

use super::{Abort, Activation};
use crate::engine::effects::checkpoint_of;
use crate::engine::{Engine, lock};
use crate::queue::Message;
use crate::store::commands::{
    Committed, FrameCommit, KeyAt, KeyIndex, NewCheckpoint, OpenedPoint, PointEnd, RestAs, StepCommit,
};
use crate::tally::{Count, Timed};

impl Activation {
    pub(super) async fn commit(
        &mut self,
        settled: Option<StepChanges>,
        rest: Option<RestAs>,
    ) -> Result<Committed, Abort> {
        let now = self.engine.inner.clock.now();
        let advanced = settled.is_some();
        let checkpoint = settled.map(|changes| self.next_checkpoint(changes));
        let tasks = unsaved_tasks(&self.position);
        let frames = self.frame_changes();
        let (opened, closed, messages) = self.point_changes();
        let body = (self.position.unsaved.0 && !advanced).then(|| self.position.stored_body());
        let events = self.gathered.take_all(checkpoint.as_ref(), now);
        let commit = StepCommit {
            thread: self.thread.clone(),
            graph: self.graph.name().to_owned(),
            fence: self.fence,
            checkpoint,
            seq: self.root.seq,
            body,
            tasks,
            frames,
            opened,
            closed,
            consumed: std::mem::take(&mut self.consumed),
            runs: std::mem::take(&mut self.runs),
            paused: std::mem::take(&mut self.paused),
            jobs: std::mem::take(&mut self.jobs),
            rest,
            events,
            now,
        };
        self.position.each_mut(&mut |frame| {
            frame.unsaved.0 = false;
            frame.tasks.iter_mut().for_each(|task| task.unsaved.0 = false);
        });
        // A lease that is being given up is not renewed, so that a renewal does
        // not take the rest for a loss.
        let rests = commit.rest.is_some();
        if rests {
            self.engine.set_fence(&self.thread, None);
        }
        let ends = commit.rest.as_ref().and_then(ends_as);
        let timed = commit.opened.iter().any(|opened| opened.point.due.is_some());
        let committed = self.engine.inner.store.commit(commit).await?;
        if timed {
            self.engine.inner.timed.notify_one();
        }
        self.tally(advanced, ends.filter(|_| matches!(committed, Committed::Released)));
        if rests && matches!(committed, Committed::Running(_)) {
            self.engine.set_fence(&self.thread, Some(self.fence));
        }
        for message in messages {
            self.engine.hand_over(message);
        }
        if advanced {
            self.engine.compact_at(self.graph.name(), &self.thread, self.root.seq);
        }
        Ok(committed)
    }

    /// Counts what has just been committed.
    fn tally(&mut self, advanced: bool, ended: Option<Count>) {
        let tally = self.engine.inner.store.tally();
        if let Some(began) = self.began.take() {
            tally.took(Timed::ClaimToCommit, began.elapsed());
        }
        let done = advanced.then_some(Count::Supersteps).into_iter().chain(ended);
        done.for_each(|count| tally.add(count));
    }

    /// The checkpoint that the position has moved to, and where its keys lie.
    fn next_checkpoint(&mut self, changes: StepChanges) -> NewCheckpoint {
        self.root.seq += 1;
        checkpoint_of(&self.graph, &self.position, changes, &mut self.root)
    }

    /// What has changed in inner frames since the store last heard of them.
    fn frame_changes(&self) -> Vec<FrameCommit> {
        let rows = lock(&self.rows);
        let mut commits = Vec::new();
        self.position.each_frame(&mut |_, _, frame| {
            let tasks = unsaved_tasks(frame);
            let Some(id) = &frame.place.id else { return };
            let Some(at) = rows.get(id) else { return };
            if !tasks.is_empty() || frame.unsaved.0 {
                commits.push(FrameCommit {
                    frame: id.clone(),
                    owner: None,
                    checkpoint: None,
                    carry_from: None,
                    seq: at.seq,
                    body: frame.unsaved.0.then(|| frame.stored_body()),
                    tasks,
                });
            }
        });
        commits
    }

    /// Points that opened and closed since the store last heard of them.
    fn point_changes(&mut self) -> (Vec<OpenedPoint>, Vec<(InterruptId, PointEnd)>, Vec<Message>) {
        let mut points = self.position.points();
        points.extend(self.position.open_containers());
        let open: HashSet<&InterruptId> = points.iter().map(|point| &point.id).collect();
        let gone = self.known.iter().filter(|(id, _)| !open.contains(id) && !self.answered.contains(*id));
        let closed = gone.map(|(id, kind)| (id.clone(), end_of(&self.position, id, *kind))).collect();
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

/// Records of tasks that the store has not heard of.
pub(in crate::engine) fn unsaved_tasks(position: &Position) -> Vec<(String, TaskRecord)> {
    let unsaved = position.tasks.iter().filter(|task| task.unsaved.0);
    unsaved.map(|task| (task.plan.key.clone(), task.record.to_store())).collect()
}

/// What became of a point that closed without an answer: let go by a task that
/// went on without it (K20), or asked anew (R4).
pub(in crate::engine) fn end_of(position: &Position, id: &InterruptId, kind: PointKind) -> PointEnd {
    if matches!(kind, PointKind::Break | PointKind::Pause | PointKind::Container) {
        return PointEnd::Released;
    }
    let mut asked_anew = asked_anew_in(position, id);
    position.each_frame(&mut |_, _, frame| asked_anew |= asked_anew_in(frame, id));
    if asked_anew { PointEnd::Superseded } else { PointEnd::Withdrawn }
}

/// Whether a task that has not finished has put another question in its place.
fn asked_anew_in(position: &Position, id: &InterruptId) -> bool {
    let unfinished = position.tasks.iter().filter(|task| task.record.status != TaskStatus::Done);
    unfinished.flat_map(|task| task.record.occurrences.questions()).any(|(_, question)| question.id == *id)
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

/// What is counted when a thread rests so.
fn ends_as(rest: &RestAs) -> Option<Count> {
    match rest {
        RestAs::Parked => Some(Count::RunsParked),
        RestAs::Succeeded => Some(Count::RunsSucceeded),
        RestAs::Failed { .. } => Some(Count::RunsFailed),
        RestAs::Held { .. } => Some(Count::RunsHeld),
        RestAs::Cancelled => None,
    }
}
