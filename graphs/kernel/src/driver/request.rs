//! What a client asks of a thread in memory: the requests of the API.

use serde_json::Value;

use super::Driver;
use crate::fault::Fault;
use crate::ids::{CheckpointId, FrameId, InterruptId};
use crate::machine::{
    Amend, AnswerRefused, Edit, EditRefused, Next, Position, Rest, Resume, ResumeRefused, StepChanges, Taken, fork,
};
use crate::occurrence::QuestionRecord;
use crate::ports::Clock;
use crate::principal::Principal;
use crate::question::Answered;

/// A run: fresh input, a resume, or a replay (R1, R25).
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    /// Fresh input: the flow starts from its entry, on the state that the
    /// thread has.
    pub input: Option<Value>,
    /// Input may drop what waits (K15).
    pub discard: bool,
    /// The checkpoint to run from: with input it starts over from that state,
    /// without it replays that superstep.
    pub at: Option<CheckpointId>,
    /// Answers by id, all or none (K11). With `retry`, also to questions that a
    /// failed task was given an answer to: it replaces that one (R9).
    pub answers: Vec<(InterruptId, Value)>,
    /// More state and more tasks for the superstep that waits (R5).
    pub amend: Amend,
    /// What names no point.
    pub resume: Resume,
    /// Another limit of supersteps for this run.
    pub supersteps: Option<u32>,
}

/// Why the driver did not do what it was asked; nothing ran and nothing changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refused {
    /// A plain answer needs exactly one open question (K10).
    #[error("{0} questions are open; answer by id")]
    NotOne(usize),
    /// No open point has the id.
    #[error("no open point has the id {0}")]
    NotOpen(InterruptId),
    /// The id is that of a container that takes no data, or it got none.
    #[error("the container {0} takes no answer without data")]
    NotAnswerable(InterruptId),
    /// The input, the answer or the values do not fit.
    #[error("it does not fit: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Fault>),
    /// Something waits, and the request does not say that it may be dropped.
    #[error("the thread waits; say `discard` to drop what waits")]
    Waiting,
    /// The thread never ran.
    #[error("the thread never ran: give it input")]
    NeverRan,
    /// No such checkpoint.
    #[error("the thread has no checkpoint {0}")]
    UnknownCheckpoint(CheckpointId),
    /// Nothing can be resumed.
    #[error(transparent)]
    Resume(#[from] ResumeRefused),
    /// The edit, the amendment or the replay cannot be done.
    #[error(transparent)]
    Edit(EditRefused),
}

impl From<EditRefused> for Refused {
    fn from(refused: EditRefused) -> Self {
        match refused {
            EditRefused::Invalid(faults) => Self::Invalid(faults),
            other => Self::Edit(other),
        }
    }
}

impl From<AnswerRefused> for Refused {
    fn from(refused: AnswerRefused) -> Self {
        match refused {
            AnswerRefused::NotOpen(id) => Self::NotOpen(id),
            AnswerRefused::NotAnswerable(id) => Self::NotAnswerable(id),
        }
    }
}

impl Driver {
    /// Does what a request says and runs until the thread rests.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn run(&mut self, request: RunRequest) -> Result<(), Refused> {
        self.run_as(request, "tester@example.com").await
    }

    /// As [`run`](Self::run), with the answers given by a person.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn run_as(&mut self, request: RunRequest, address: &str) -> Result<(), Refused> {
        let mut log = Vec::new();
        let mut position = match (&request.input, &request.at) {
            (Some(input), at) => self.with_input(input, at.as_ref(), request.discard, &mut log)?,
            (None, Some(at)) => self.forked(at, &mut log)?,
            (None, None) => {
                let position = self.position.clone().ok_or(Refused::NeverRan)?;
                let amended = !request.amend.is_empty() || !request.answers.is_empty();
                position.check_resume(request.resume, amended)?;
                position
            }
        };
        for (id, value) in self.checked_answers(&position, request.answers)? {
            let value = (!value.is_null()).then_some(value);
            let by = vec![Principal::person(address)];
            let answered = Answered { value: value.clone(), by, at: self.outside.now() };
            if request.resume.retry && position.decided(&id).is_some() {
                position.answer_again(&id, answered)?;
                continue;
            }
            let taken = position.answer(&id, answered)?;
            if let (Taken::Border(frame), Some(update)) = (taken, value) {
                let update = state_update(&update)?;
                let only_a_body_knows =
                    frame.as_ref().filter(|frame| position.frame_mut(&self.graph, frame).is_none()).cloned();
                if let Some(frame) = only_a_body_knows {
                    position.keep_update(&frame, &id, update);
                    continue;
                }
                let amend = Amend { update, ..Amend::default() };
                self.amend(&mut position, frame.as_ref(), &amend, &mut log)?;
            }
        }
        if !request.amend.is_empty() {
            self.amend(&mut position, None, &request.amend, &mut log)?;
        }
        position.resume(request.resume);
        position.begin_run(request.supersteps.or(request.resume.supersteps));
        for made in log {
            match made {
                Made::Root(made, changes) => self.archive.keep(&made, Some(&changes)),
                Made::Beside(made, changes) => self.archive.keep_beside(&made, &changes),
                Made::Fork(made) => {
                    self.archive.keep(&made, None);
                    self.archive.keep_inside(&self.graph, &made);
                }
            }
        }
        self.position = Some(position);
        self.drive().await;
        Ok(())
    }

    fn with_input(
        &self,
        input: &Value,
        at: Option<&CheckpointId>,
        discard: bool,
        log: &mut Log,
    ) -> Result<Position, Refused> {
        let outside = self.outside.outside();
        let base = match at {
            Some(id) => Some(self.restored(id)?),
            None => self.position.clone(),
        };
        let waits = |position: &Position| position.next() != Next::Rest(Rest::Succeeded);
        if at.is_none() && !discard && base.as_ref().is_some_and(waits) {
            return Err(Refused::Waiting);
        }
        let (position, changes) = match base {
            Some(mut position) => {
                let changes = position.restart(&self.graph, input, outside).map_err(Refused::Invalid)?;
                (position, changes)
            }
            None => Position::start(&self.graph, self.salt, input, outside).map_err(Refused::Invalid)?,
        };
        log.push(Made::Root(position.clone(), changes));
        Ok(position)
    }

    /// Edits the state. Nothing runs.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn edit(
        &mut self,
        edit: &Edit,
        at: Option<&CheckpointId>,
        frame: Option<&FrameId>,
    ) -> Result<CheckpointId, Refused> {
        let outside = self.outside.outside();
        let mut position = match (at, &self.position) {
            (Some(id), _) => self.restored(id)?,
            (None, Some(position)) => position.clone(),
            (None, None) => {
                Position::unused(&self.graph, self.salt, crate::machine::FramePlace::root(&self.graph), outside)
            }
        };
        let made = match frame {
            None => {
                let first = self.position.is_none() && at.is_none();
                let changes = position.edit(&self.graph, edit, outside)?;
                if first {
                    position.checkpoint.parent = None;
                }
                self.archive.keep(&position, Some(&changes));
                position.checkpoint.id.clone()
            }
            Some(frame) => {
                let changes = position.edit_frame(&self.graph, frame, edit, outside)?;
                let edited = position.frame_mut(&self.graph, frame);
                let (edited, _) = edited.ok_or_else(|| EditRefused::UnknownFrame(frame.clone()))?;
                self.archive.keep_beside(edited, &changes);
                edited.checkpoint.id.clone()
            }
        };
        self.position = Some(position);
        Ok(made)
    }

    /// Amends the root frame, or the frame whose stop brought data (K12).
    fn amend(
        &self,
        position: &mut Position,
        frame: Option<&FrameId>,
        amend: &Amend,
        log: &mut Log,
    ) -> Result<(), Refused> {
        let outside = self.outside.outside();
        let (target, graph) = match frame {
            None => (position, self.graph.as_ref()),
            Some(frame) => {
                position.frame_mut(&self.graph, frame).ok_or_else(|| EditRefused::UnknownFrame(frame.clone()))?
            }
        };
        let changes = target.amend(graph, amend, outside)?;
        log.push(match frame {
            None => Made::Root(target.clone(), changes),
            Some(_) => Made::Beside(target.clone(), changes),
        });
        Ok(())
    }

    /// A checkpoint of the root frame as it was, its tasks not run.
    fn restored(&self, id: &CheckpointId) -> Result<Position, Refused> {
        let chain = self.chain(id)?;
        let [archived] = <[_; 1]>::try_from(chain).map_err(|_| Refused::UnknownCheckpoint(id.clone()))?;
        Ok(archived.restore(&self.graph, self.salt))
    }

    fn forked(&self, id: &CheckpointId, log: &mut Log) -> Result<Position, Refused> {
        let chain = self.chain(id)?;
        let position = fork(&self.graph, self.salt, chain, self.outside.outside())?;
        log.push(Made::Fork(position.clone()));
        Ok(position)
    }

    /// All answers, checked against the points that they name.
    fn checked_answers(
        &self,
        position: &Position,
        answers: Vec<(InterruptId, Value)>,
    ) -> Result<Vec<(InterruptId, Value)>, Refused> {
        let points = position.points();
        let mut valid: Vec<(InterruptId, Value)> = Vec::new();
        for (id, answer) in answers {
            if valid.iter().any(|(taken, _)| *taken == id) {
                return Err(Refused::NotOpen(id));
            }
            let open = points.iter().find(|point| point.id == id).and_then(crate::machine::Point::request);
            let decided = || position.decided(&id).and_then(QuestionRecord::request);
            let request = open.or_else(decided);
            let value = match request {
                Some(request) => request.question.validate(&answer).map_err(Refused::Invalid)?,
                None => answer,
            };
            valid.push((id, value));
        }
        Ok(valid)
    }
}

/// The checkpoints that a request made. Kept only if all of it is accepted.
type Log = Vec<Made>;

enum Made {
    /// In the root frame, with what changed.
    Root(Position, StepChanges),
    /// In an inner frame, with what changed.
    Beside(Position, StepChanges),
    /// A fork, inner frames and all.
    Fork(Position),
}

fn state_update(data: &Value) -> Result<serde_json::Map<String, Value>, Refused> {
    data.as_object().cloned().ok_or_else(|| {
        Refused::Invalid(vec![Fault::at("", "the data for a stop is an update of the state: an object of keys")])
    })
}
