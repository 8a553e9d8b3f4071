//! Moving the head of a thread: new input, edits, replays, amendments (R5, R13).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::{CheckpointId, FrameId, InterruptId, RunId, ThreadId};
use countersign_kernel::machine::{
    Amend, Archived, Edit, EditRefused, Next, Point, Position, Rest, Resume, StepChanges, Taken, fork,
};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::ports::FrameStep;
use countersign_kernel::principal::Principal;
use countersign_kernel::question::Answered;
use serde_json::{Map, Value, json};

use super::Engine;
use super::activation::{end_of, failed, unsaved_tasks};
use super::effects::{FrameRows, Rows, checkpoint_of, frame_commit};
use super::requests::{Reply, RequestError, ResumeRequest, Started};
use super::restore::{Restored, restore, restore_chain};
use crate::queue::Message;
use crate::store::commands::{
    Closing, FrameCommit, HeadMove, IdempotencyEntry, MoveThread, NewCheckpoint, NewRun, OpenedPoint, PointEnd, RestAs,
    StepGuard,
};
use crate::store::{Accepted, Refusal};
use crate::tally::Count;

/// An edit of the state, which makes a checkpoint and runs nothing.
#[derive(Debug, Clone)]
pub struct EditRequest {
    /// The thread.
    pub thread: ThreadId,
    /// What is written, and as which node.
    pub edit: Edit,
    /// The newest checkpoint that the caller saw, of the frame that is edited:
    /// compare and set.
    pub expected_head: Option<CheckpointId>,
    /// An older checkpoint to edit instead of the head: a fork.
    pub at: Option<CheckpointId>,
    /// An unfinished sub-graph to edit instead of the thread's own graph.
    pub frame: Option<FrameId>,
    /// Who asks.
    pub principal: Principal,
}

/// What an edit led to.
#[derive(Debug, Clone, PartialEq)]
pub enum Edited {
    /// It is committed.
    New {
        /// The checkpoint that it made.
        checkpoint: CheckpointId,
        /// How the thread rests now.
        status: &'static str,
        /// What is due in the frame that was edited, one node per task, sorted.
        next: Vec<String>,
    },
    /// The same request was accepted before; here is what it got.
    Replayed {
        /// The first status.
        status: u16,
        /// The first body.
        body: String,
    },
}

/// Makes the reply of an edit (checkpoint, status, nodes due) known before it
/// is committed, so that it can be kept with it.
pub type EditReply<'a> = dyn Fn(&CheckpointId, &'static str, &[String]) -> Option<IdempotencyEntry> + Send + Sync + 'a;

/// A run from an older checkpoint.
#[derive(Debug, Clone)]
pub struct ReplayRequest {
    /// The thread.
    pub thread: ThreadId,
    /// Where to start over: a checkpoint of the thread or of a sub-graph.
    pub checkpoint: CheckpointId,
    /// New input, applied to the state at that checkpoint.
    pub input: Option<Value>,
    /// Whether steps that were done may be done again (R13).
    pub re_execute: bool,
    /// Releases the breakpoints of the checkpoint; another limit of supersteps.
    pub resume: Resume,
    /// Who asks.
    pub principal: Principal,
}

impl Engine {
    /// Gives new input to an existing thread. `reply` is kept with it, so that
    /// the same request again gets the same.
    ///
    /// # Errors
    /// As [`start`](Self::start); something waits and `discard` is not set.
    pub async fn restart(
        &self,
        thread: &ThreadId,
        input: &Value,
        discard: bool,
        by: &Principal,
        reply: &Reply<'_>,
    ) -> Result<Started, RequestError> {
        self.restart_within(thread, input, discard, None, by, reply).await
    }

    /// As [`restart`](Self::restart), with another limit of supersteps for this
    /// run than the flow's.
    ///
    /// # Errors
    /// As [`restart`](Self::restart).
    pub async fn restart_within(
        &self,
        thread: &ThreadId,
        input: &Value,
        discard: bool,
        supersteps: Option<u32>,
        by: &Principal,
        reply: &Reply<'_>,
    ) -> Result<Started, RequestError> {
        let mut held = self.inner.store.load(thread).await?;
        let graph = Arc::clone(self.graph(&held.graph)?);
        let expected_head = held.checkpoint.id.clone();
        let Restored { mut position, root, .. } = restore(&graph, &mut held)?;
        let mut rows = Rows { seq: root.seq + 1, ..root };
        let changes = position.restart(&graph, input, self.outside()).map_err(RequestError::InvalidInput)?;
        let next = checkpoint_of(&graph, &position, changes, &mut rows);
        let made = Made { expected_head, next, frames: Vec::new(), kind: "start", action: "restarted", guard: None };
        let detail = json!({"discarded": discard});
        let limit = Resume { supersteps, ..Resume::default() };
        self.run_from(thread, &position, made, discard, limit, detail, by, reply).await
    }

    /// Starts over from an older checkpoint; the line that the head was on is
    /// left, and its open points are superseded (R13).
    ///
    /// # Errors
    /// Unknown checkpoint, nothing to run there, steps that would be done again.
    pub async fn replay(&self, request: &ReplayRequest, reply: &Reply<'_>) -> Result<Started, RequestError> {
        let thread = &request.thread;
        let chain = self.inner.store.archived(thread, &request.checkpoint).await?;
        let guard = (!request.re_execute).then(|| StepGuard {
            from: request.checkpoint.clone(),
            leaves: true,
            anew: Vec::new(),
        });
        let held = self.inner.store.load(thread).await?;
        let graph = Arc::clone(self.graph(&held.graph)?);
        let expected_head = held.checkpoint.id.clone();
        // A line of its own, named by its first checkpoint.
        let seq = held.seq + 1;
        let (chain, migrated, rows) = restore_chain(&graph, chain)?;
        let mut rows = Rows { seq, branch: seq, ..rows };
        let (mut position, changes) = match &request.input {
            None => (fork(&graph, held.salt, chain, self.outside())?, StepChanges::new()),
            Some(input) => {
                let mut position = root_of(chain, &graph, held.salt, &request.checkpoint)?;
                let changes = position.restart(&graph, input, self.outside()).map_err(RequestError::InvalidInput)?;
                (position, changes)
            }
        };
        position.migrated = migrated;
        if let Some(misfit) = position.misfits(&graph).into_iter().next() {
            // It would only be held.
            return Err(misfit.into());
        }
        position.resume(Resume { supersteps: None, ..request.resume });
        let next = checkpoint_of(&graph, &position, changes, &mut rows);
        let frames = first_commits(&graph, &position, seq, &position.checkpoint.id);
        let kind = if request.input.is_some() { "fork" } else { "replay" };
        let made = Made { expected_head, next, frames, kind, action: "replayed", guard };
        let detail = json!({"from": request.checkpoint.as_str(), "re_execute": request.re_execute});
        let limit = Resume { supersteps: request.resume.supersteps, ..Resume::default() };
        self.run_from(thread, &position, made, true, limit, detail, &request.principal, reply).await
    }

    #[allow(clippy::too_many_arguments, reason = "one request, its checkpoint and its reply")]
    async fn run_from(
        &self,
        thread: &ThreadId,
        position: &Position,
        made: Made,
        discard_waiting: bool,
        resume: Resume,
        mut detail: Value,
        by: &Principal,
        reply: &Reply<'_>,
    ) -> Result<Started, RequestError> {
        let (opened, mut messages) = self.opened_points(thread, position.points());
        let rest = rest_of(position);
        let status = rest.as_ref().map_or("queued", RestAs::status);
        let run: RunId = self.fresh_id(RunId::parse)?;
        detail["run"] = run.as_str().into();
        let command = MoveThread {
            thread: thread.clone(),
            guard: made.guard,
            head: HeadMove {
                expected_head: made.expected_head,
                next: Some(made.next),
                carry: false,
                tasks: Vec::new(),
                frames: made.frames,
                closed: Closing::All,
                opened,
            },
            idempotency: reply(thread, &run, status),
            run: Some(NewRun { run: run.clone(), kind: made.kind, resume }),
            discard_waiting,
            rest,
            requested_by: by.clone(),
            action: made.action,
            detail,
            job: self.job(),
            now: self.inner.clock.now(),
        };
        match self.inner.store.move_thread(command).await? {
            Accepted::Replayed { status, body } => Ok(Started::Replayed { status, body }),
            Accepted::Committed(wake) => {
                self.inner.store.tally().add(Count::RunsStarted);
                messages.extend(wake);
                messages.into_iter().for_each(|message| self.hand_over(message));
                Ok(Started::New { thread: thread.clone(), run, status })
            }
        }
    }

    /// Edits the state of a thread at rest. Nothing runs: what the edit makes
    /// due waits behind a pause point. Steps that were done may be done again.
    ///
    /// # Errors
    /// See [`EditRefused`]; the thread is running, or its head has moved.
    pub async fn edit(&self, request: EditRequest) -> Result<Edited, RequestError> {
        self.edit_once(request, true, &|_, _, _| None).await
    }

    /// Edits as [`edit`](Self::edit) does, but refuses to have steps done again
    /// unless `re_execute` says so (R13), and remembers the reply with it: the
    /// same request again gets the same reply (R26).
    ///
    /// # Errors
    /// As [`edit`](Self::edit); the key was used with another request.
    pub async fn edit_once(
        &self,
        request: EditRequest,
        re_execute: bool,
        reply: &EditReply<'_>,
    ) -> Result<Edited, RequestError> {
        let thread = &request.thread;
        let mut held = self.inner.store.load(thread).await?;
        let graph = Arc::clone(self.graph(&held.graph)?);
        let expected_head = held.checkpoint.id.clone();
        let salt = held.salt;
        let Restored { mut position, root, frames: known, .. } = restore(&graph, &mut held)?;
        let newest = match &request.frame {
            None => &expected_head,
            Some(frame) => {
                let found =
                    position.frame_mut(&graph, frame).ok_or_else(|| EditRefused::UnknownFrame(frame.clone()))?;
                &found.0.checkpoint.id
            }
        };
        if request.expected_head.as_ref().is_some_and(|seen| seen != newest) {
            return Err(Refusal::ThreadChanged.into());
        }
        let from = request.at.clone().unwrap_or_else(|| newest.clone());
        let before = position.points();
        let (checkpoint, mut head) = match (&request.frame, &request.at) {
            (Some(frame), _) => {
                let changes = position.edit_frame(&graph, frame, &request.edit, self.outside())?;
                let tasks = unsaved_tasks(&position);
                let rows = known.get(frame).cloned().unwrap_or_default();
                let (edited, inner) =
                    position.frame_mut(&graph, frame).ok_or_else(|| EditRefused::UnknownFrame(frame.clone()))?;
                let commit = next_in_frame(inner, edited, frame, changes, rows, false);
                (edited.checkpoint.id.clone(), HeadMove { tasks, frames: vec![commit], ..still(expected_head) })
            }
            (None, at) => {
                let mut rows = Rows { seq: root.seq + 1, ..root };
                if let Some(at) = at {
                    let (chain, migrated, theirs) =
                        restore_chain(&graph, self.inner.store.archived(thread, at).await?)?;
                    rows = Rows { seq: rows.seq, branch: rows.seq, ..theirs };
                    position = root_of(chain, &graph, salt, at)?;
                    position.migrated = migrated;
                }
                let changes = position.edit(&graph, &request.edit, self.outside())?;
                let next = checkpoint_of(&graph, &position, changes, &mut rows);
                (
                    next.checkpoint.id.clone(),
                    HeadMove { next: Some(next), closed: Closing::All, ..still(expected_head) },
                )
            }
        };
        if let Closing::Some(closed) = &mut head.closed {
            closed.extend(superseded(&before, &position));
        }
        let new = position.points().into_iter().filter(|point| before.iter().all(|known| known.id != point.id));
        let (opened, messages) = self.opened_points(thread, new.collect());
        head.opened = opened;
        let rest = rest_of(&position).unwrap_or(RestAs::Parked);
        let status = rest.status();
        let next: Vec<String> = match &request.frame {
            None => position.next_nodes().into_iter().map(str::to_owned).collect(),
            Some(frame) => position
                .frame_mut(&graph, frame)
                .map(|(edited, _)| edited.next_nodes().into_iter().map(str::to_owned).collect())
                .unwrap_or_default(),
        };
        // As the input it begins from the start, whatever was done before. Where
        // nothing is due, nothing is done again.
        let begins = request.frame.is_none() && request.edit.as_node.as_deref() == Some(START);
        let guard = (!re_execute && !next.is_empty()).then(|| StepGuard {
            from,
            leaves: request.frame.is_none(),
            anew: if begins { next.clone() } else { Vec::new() },
        });
        let detail = json!({
            "checkpoint": checkpoint.as_str(), "as_node": request.edit.as_node,
            "at": request.at.as_ref().map(CheckpointId::as_str), "frame": request.frame.as_ref().map(FrameId::as_str),
            "values": request.edit.values,
        });
        let command = MoveThread {
            thread: thread.clone(),
            guard,
            head,
            run: None,
            discard_waiting: true,
            rest: Some(rest),
            requested_by: request.principal,
            action: "edited",
            detail,
            idempotency: reply(&checkpoint, status, &next),
            job: self.job(),
            now: self.inner.clock.now(),
        };
        match self.inner.store.move_thread(command).await? {
            Accepted::Replayed { status, body } => Ok(Edited::Replayed { status, body }),
            Accepted::Committed(_) => {
                messages.into_iter().for_each(|message| self.hand_over(message));
                Ok(Edited::New { checkpoint, status, next })
            }
        }
    }

    /// What a resume changes in the superstep that it wakes: what it amends,
    /// and the data that it brings for stops, which leave the answers (K12).
    pub(super) async fn amendments(
        &self,
        request: &mut ResumeRequest,
    ) -> Result<(Option<HeadMove>, Option<StepGuard>), RequestError> {
        let updates = self.updates_of_stops(request).await?;
        if request.amend.is_empty() && updates.is_empty() {
            return Ok((None, None));
        }
        let mut held = self.inner.store.load(&request.thread).await?;
        let graph = Arc::clone(self.graph(&held.graph)?);
        let mut head = HeadMove { carry: true, ..still(held.checkpoint.id.clone()) };
        let Restored { mut position, root, frames: known, .. } = restore(&graph, &mut held)?;
        let mut rows = Rows { seq: root.seq + 1, ..root };
        let before = position.points();
        let mut amend = std::mem::take(&mut request.amend);
        // A thread that has ended begins again at these nodes.
        let guard = (!request.re_execute && position.tasks.is_empty()).then(|| StepGuard {
            from: head.expected_head.clone(),
            leaves: false,
            anew: amend.goto.iter().map(|goto| goto.node().to_owned()).collect(),
        });
        let mut kept: BTreeSet<FrameId> = BTreeSet::new();
        for (id, update) in updates {
            let by = vec![request.principal.clone()];
            let answered = Answered { value: None, by, at: self.inner.clock.now() };
            let taken = position.answer(&id, answered).map_err(|_| Refusal::UnknownInterrupt(id.clone()))?;
            match taken {
                Taken::Border(Some(frame)) => {
                    let at = known.get(&frame).cloned().unwrap_or_default();
                    let Some((target, inner)) = position.frame_mut(&graph, &frame) else {
                        // Only the body knows the graph: it writes the update.
                        position.keep_update(&frame, &id, update);
                        kept.insert(frame);
                        continue;
                    };
                    let changes = target.amend(inner, &Amend { update, ..Amend::default() }, self.outside())?;
                    head.frames.push(next_in_frame(inner, target, &frame, changes, at, true));
                }
                Taken::Border(None) | Taken::Question | Taken::Container => amend.update.extend(update),
            }
        }
        position.each_frame(&mut |_, _, frame| {
            if let Some(id) = frame.place.id.as_ref().filter(|id| kept.contains(id)) {
                let at = known.get(id).map_or(0, |rows| rows.seq);
                head.frames.push(body_of_frame(id, frame, at));
            }
        });
        // A stop of the root frame is released in the body of the new checkpoint.
        if !amend.is_empty() || position.unsaved.0 {
            let changes = position.amend(&graph, &amend, self.outside())?;
            head.next = Some(checkpoint_of(&graph, &position, changes, &mut rows));
        }
        head.closed =
            Closing::Some(superseded(&before, &position).into_iter().map(|(id, _)| (id, PointEnd::Released)).collect());
        Ok((Some(head), guard))
    }

    /// Takes the answers that are data for a break or pause out of a request.
    async fn updates_of_stops(
        &self,
        request: &mut ResumeRequest,
    ) -> Result<Vec<(InterruptId, Map<String, Value>)>, RequestError> {
        let mut updates = Vec::new();
        let data: Vec<InterruptId> =
            request.answers.iter().filter(|(_, value)| value.is_object()).map(|(id, _)| id.clone()).collect();
        for id in data {
            let view = self.inner.store.interrupt(&id).await?;
            if !matches!(view.kind.as_str(), "break" | "pause") || view.thread != request.thread {
                continue;
            }
            if !request.operator {
                return Err(Refusal::OperatorOnly { interrupt: id }.into());
            }
            if view.status != "open" {
                return Err(Refusal::Superseded { interrupt: id, status: view.status }.into());
            }
            if let Some(Value::Object(update)) = request.answers.remove(&id) {
                updates.push((id, update));
            }
        }
        Ok(updates)
    }

    pub(super) fn opened_points(&self, thread: &ThreadId, points: Vec<Point>) -> (Vec<OpenedPoint>, Vec<Message>) {
        let mut messages = Vec::new();
        let opened = points.into_iter().map(|point| self.opened(thread, point, &mut messages)).collect();
        (opened, messages)
    }
}

/// A checkpoint that a request made.
struct Made {
    expected_head: CheckpointId,
    next: NewCheckpoint,
    frames: Vec<FrameCommit>,
    kind: &'static str,
    action: &'static str,
    guard: Option<StepGuard>,
}

/// A head that does not move.
fn still(expected_head: CheckpointId) -> HeadMove {
    HeadMove {
        expected_head,
        next: None,
        carry: false,
        tasks: Vec::new(),
        frames: Vec::new(),
        closed: Closing::Some(Vec::new()),
        opened: Vec::new(),
    }
}

/// The changed body of the checkpoint at which a frame stands.
fn body_of_frame(frame: &FrameId, position: &Position, seq: i64) -> FrameCommit {
    FrameCommit {
        frame: frame.clone(),
        owner: None,
        checkpoint: None,
        carry_from: None,
        seq,
        body: Some(position.body()),
        tasks: Vec::new(),
    }
}

/// The next checkpoint of a frame that a request moved.
fn next_in_frame(
    graph: &CompiledGraph,
    position: &Position,
    frame: &FrameId,
    changes: StepChanges,
    before: Rows,
    carry: bool,
) -> FrameCommit {
    let from = before.seq;
    let mut rows = Rows { seq: from + 1, ..before };
    let next = checkpoint_of(graph, position, changes, &mut rows);
    FrameCommit {
        frame: frame.clone(),
        owner: None,
        seq: next.seq,
        checkpoint: Some(next),
        carry_from: carry.then_some(from),
        body: None,
        tasks: Vec::new(),
    }
}

/// The first checkpoints of frames that a fork put into place.
fn first_commits(graph: &CompiledGraph, position: &Position, root_seq: i64, root: &CheckpointId) -> Vec<FrameCommit> {
    let rows: FrameRows = Arc::new(Mutex::new(HashMap::new()));
    let mut commits = Vec::new();
    collect_first(graph, position, (root_seq, root), &rows, &mut commits);
    commits
}

fn collect_first(
    graph: &CompiledGraph,
    around: &Position,
    root: (i64, &CheckpointId),
    rows: &FrameRows,
    commits: &mut Vec<FrameCommit>,
) {
    for task in &around.tasks {
        let Some(inner) = graph.node(&task.plan.node).and_then(|node| node.subgraph()) else { continue };
        for frame in task.record.frames.values() {
            let Some(id) = &frame.place.id else { continue };
            let changes = frame.changes_from_none(inner);
            let step = FrameStep {
                parent: around.place.id.as_ref(),
                task: &task.plan.key,
                planned_by: &task.plan.planned_by,
                graph: inner,
                position: frame,
                changes: Some(&changes),
                tasks: &[],
            };
            commits.push(frame_commit(rows, root, id, &step));
            collect_first(inner, frame, root, rows, commits);
        }
    }
}

/// The root frame at a checkpoint of its own.
fn root_of(
    chain: Vec<Archived>,
    graph: &CompiledGraph,
    salt: [u8; 16],
    checkpoint: &CheckpointId,
) -> Result<Position, RequestError> {
    match <[Archived; 1]>::try_from(chain) {
        Ok([archived]) => Ok(archived.restore(graph, salt)),
        Err(_) => Err(Refusal::UnknownCheckpoint(checkpoint.clone()).into()),
    }
}

/// How a thread rests at a position; `None` if something is to run.
fn rest_of(position: &Position) -> Option<RestAs> {
    match position.next() {
        Next::Run(_) | Next::Settle => None,
        Next::Rest(Rest::Parked) => Some(RestAs::Parked),
        Next::Rest(Rest::Succeeded) => Some(RestAs::Succeeded),
        Next::Rest(Rest::Failed) => Some(failed(position)),
    }
}

/// Points that were open and are not any more.
fn superseded(before: &[Point], position: &Position) -> Vec<(InterruptId, PointEnd)> {
    let now = position.points();
    let gone = before.iter().filter(|point| now.iter().all(|open| open.id != point.id));
    gone.map(|point| {
        let stops = matches!(point.kind, PointKind::Break | PointKind::Pause);
        let end = if stops { end_of(position, &point.id, point.kind) } else { PointEnd::Superseded };
        (point.id.clone(), end)
    })
    .collect()
}
