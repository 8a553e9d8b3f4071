//! Answers and other ways to wake a thread (R1).

use serde::{Deserialize, Serialize};

use super::{Position, TaskStatus};
use crate::ids::{FrameId, InterruptId};
use crate::occurrence::{QuestionRecord, QuestionState};
use crate::question::Answered;

/// Why an answer is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerRefused {
    /// No open point of this position has the id.
    #[error("no open point of this thread has the id {0}")]
    NotOpen(InterruptId),
    /// The id is that of a container that takes no data, or it got none (K11).
    #[error("the container {0} takes no answer without data")]
    NotAnswerable(InterruptId),
}

/// What an answer reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// A break or pause point of a frame, which is released.
    Border(Option<FrameId>),
    /// A question.
    Question,
    /// A container that takes data (K18).
    Container,
}

/// The parts of a resume that name no point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resume {
    /// Releases breakpoints and pauses.
    #[serde(rename = "continue")]
    pub release: bool,
    /// Runs failed tasks again, with their recorded answers.
    pub retry: bool,
    /// Runs every open point without an answer (K10); releases breakpoints.
    pub resume_all: bool,
    /// Another limit of supersteps for this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supersteps: Option<u32>,
}

/// Why a resume has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResumeRefused {
    /// The thread has finished.
    #[error("the thread has finished; nothing waits")]
    NothingPending,
    /// What the request releases or retries is not there: only questions are
    /// open, or nothing failed (R11).
    #[error("nothing here waits for that: answer the open questions")]
    NothingToContinue,
}

impl Resume {
    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Both requests in one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            release: self.release || other.release,
            retry: self.retry || other.retry,
            resume_all: self.resume_all || other.resume_all,
            supersteps: other.supersteps.or(self.supersteps),
        }
    }
}

impl Position {
    /// Takes an answer to an open point, here or in an inner frame: its
    /// occurrence becomes a target, or its border is released. Nothing else
    /// wakes (K7). A new run begins.
    ///
    /// # Errors
    /// The id is not open here, or it cannot be answered; nothing changed.
    pub fn answer(&mut self, id: &InterruptId, answered: Answered) -> Result<Taken, AnswerRefused> {
        let taken = self.take_answer(id, &mut Some(answered))?.ok_or_else(|| AnswerRefused::NotOpen(id.clone()))?;
        self.begin_run(None);
        Ok(taken)
    }

    /// Looks for the point here and inside; whoever has it takes the answer.
    fn take_answer(
        &mut self,
        id: &InterruptId,
        answered: &mut Option<Answered>,
    ) -> Result<Option<Taken>, AnswerRefused> {
        if let Some(point) = self.border.iter_mut().find(|point| point.id == *id && !point.released) {
            point.released = true;
            self.unsaved.0 = true;
            return Ok(Some(Taken::Border(self.place.id.clone())));
        }
        for task in &mut self.tasks {
            let super::Task { record, unsaved, .. } = task;
            if let Some(question) = record.occurrences.questions_mut().find(|q| q.id == *id && q.is_open())
                && let Some(answered) = answered.take()
            {
                question.state = QuestionState::Answered { answered, stale: false };
                question.fresh = true;
                unsaved.0 = true;
                return Ok(Some(Taken::Question));
            }
            let unfinished = record.status != TaskStatus::Done;
            if let Some(container) =
                record.occurrences.containers_mut().find(|container| container.id == *id && container.data.is_none())
                && unfinished
            {
                if answered.as_ref().is_none_or(|answered| answered.value.is_none()) {
                    return Err(AnswerRefused::NotAnswerable(id.clone()));
                }
                container.data = answered.take();
                container.fresh = true;
                unsaved.0 = true;
                return Ok(Some(Taken::Container));
            }
            for frame in record.frames.values_mut() {
                if let Some(taken) = frame.take_answer(id, answered)? {
                    record.passed_by = false;
                    unsaved.0 = true;
                    return Ok(Some(taken));
                }
            }
        }
        // A container that waits but takes nothing is known, and refused.
        let is_parent = |point: &super::Point| point.parents.iter().any(|parent| parent.id == *id);
        if self.place.id.is_none() && self.points().iter().any(is_parent) {
            return Err(AnswerRefused::NotAnswerable(id.clone()));
        }
        Ok(None)
    }

    /// The question of a failed task that was answered under this id: what
    /// `retry {answers}` may answer anew (R9, K13).
    #[must_use]
    pub fn decided(&self, id: &InterruptId) -> Option<&QuestionRecord> {
        let failed = self.tasks.iter().filter(|task| task.record.status == TaskStatus::Failed);
        failed.into_iter().find_map(|task| {
            let mut asked = task.record.occurrences.questions().map(|(_, question)| question);
            let own = asked.find(|question| {
                question.id == *id && matches!(question.state, QuestionState::Answered { stale: false, .. })
            });
            own.or_else(|| task.record.frames.values().find_map(|frame| frame.decided(id)))
        })
    }

    /// Replaces the recorded answer of a failed task's question; the task runs
    /// again with it (R9). The replaced answer is for the audit trail.
    ///
    /// # Errors
    /// No failed task was given an answer under this id; nothing changed.
    pub fn answer_again(&mut self, id: &InterruptId, answered: Answered) -> Result<(), AnswerRefused> {
        if !self.replace_answer(id, &mut Some(answered)) {
            return Err(AnswerRefused::NotOpen(id.clone()));
        }
        self.begin_run(None);
        Ok(())
    }

    fn replace_answer(&mut self, id: &InterruptId, answered: &mut Option<Answered>) -> bool {
        for task in self.tasks.iter_mut().filter(|task| task.record.status == TaskStatus::Failed) {
            let super::Task { record, unsaved, .. } = task;
            for question in record.occurrences.questions_mut().filter(|question| question.id == *id) {
                if matches!(question.state, QuestionState::Answered { stale: false, .. })
                    && let Some(answered) = answered.take()
                {
                    question.state = QuestionState::Answered { answered, stale: false };
                    question.fresh = true;
                    unsaved.0 = true;
                    return true;
                }
            }
            if record.frames.values_mut().any(|frame| frame.replace_answer(id, answered)) {
                record.passed_by = false;
                unsaved.0 = true;
                return true;
            }
        }
        false
    }

    /// Ends a resume-all that has had its attempt: what asks again, waits, and
    /// is not woken by a later answer to something else. One that an open
    /// border holds up is kept. Says whether there was one.
    pub fn end_resume_all(&mut self) -> bool {
        let held_up = self.border.iter().any(|point| !point.released);
        let ended = !held_up && std::mem::take(&mut self.resume_all);
        self.unsaved.0 |= ended;
        if !held_up {
            // Those inside that the attempt did not come to have had it too.
            let inside = self.tasks.iter_mut().flat_map(|task| task.record.frames.values_mut());
            inside.for_each(|frame| _ = frame.end_resume_all());
        }
        ended
    }

    /// Applies the parts of a resume that name no point, here and in all inner
    /// frames. A new run begins.
    pub fn resume(&mut self, resume: Resume) {
        self.wake(resume);
        self.begin_run(resume.supersteps);
    }

    /// Says whether anything woke, here or inside.
    fn wake(&mut self, resume: Resume) -> bool {
        let mut woke = resume.resume_all && self.has_open();
        if resume.release || resume.resume_all {
            woke |= self.border.iter().any(|point| !point.released);
            self.border.iter_mut().for_each(|point| point.released = true);
            self.unsaved.0 = true;
        }
        for task in &mut self.tasks {
            let mut inside = false;
            task.record.frames.values_mut().for_each(|frame| inside |= frame.wake(resume));
            let retry = resume.retry && task.record.status == TaskStatus::Failed;
            if inside || retry {
                task.record.passed_by &= !inside;
                task.record.retry |= retry;
                task.unsaved.0 = true;
                woke = true;
            }
        }
        self.resume_all |= resume.resume_all;
        woke
    }

    /// Whether a resume would do anything; `names` says that it also brings
    /// answers or an amendment.
    ///
    /// # Errors
    /// See [`ResumeRefused`].
    pub fn check_resume(&self, resume: Resume, names: bool) -> Result<(), ResumeRefused> {
        if names {
            return Ok(());
        }
        let mut wakes = self.can_go_on();
        let mut look = |position: &Self| {
            let stopped = position.border.iter().any(|point| !point.released);
            let failed = || position.tasks.iter().any(|task| task.record.status == TaskStatus::Failed);
            wakes |=
                (resume.release && stopped) || (resume.retry && failed()) || (resume.resume_all && position.has_open());
        };
        look(self);
        self.each_frame(&mut |_, _, frame| look(frame));
        match wakes {
            true => Ok(()),
            false if self.tasks.is_empty() => Err(ResumeRefused::NothingPending),
            false => Err(ResumeRefused::NothingToContinue),
        }
    }

    /// Gives a new run all its supersteps, here and in all inner frames.
    pub fn begin_run(&mut self, supersteps: Option<u32>) {
        self.each_mut(&mut |position| {
            position.budget.used = 0;
            position.budget.limit = supersteps.unwrap_or(position.budget.usual);
        });
    }
}
