//! Answers and other ways to wake a thread (R1).

use serde::{Deserialize, Serialize};

use super::{Position, TaskStatus};
use crate::ids::InterruptId;
use crate::occurrence::QuestionState;
use crate::question::Answered;

/// Why an answer is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerRefused {
    /// No open point of this position has the id.
    #[error("no open point of this thread has the id {0}")]
    NotOpen(InterruptId),
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
}

impl Resume {
    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl Position {
    /// Takes an answer to an open point: its occurrence becomes a target, or
    /// its border is released. Nothing else wakes (K7).
    ///
    /// # Errors
    /// The id is not open here; nothing changed.
    pub fn answer(&mut self, id: &InterruptId, answered: Answered) -> Result<(), AnswerRefused> {
        if let Some(point) = self.border.iter_mut().find(|point| point.id == *id && !point.released) {
            point.released = true;
            return Ok(());
        }
        let question = self
            .tasks
            .iter_mut()
            .flat_map(|task| task.record.occurrences.questions_mut())
            .find(|question| question.id == *id && question.is_open())
            .ok_or_else(|| AnswerRefused::NotOpen(id.clone()))?;
        question.state = QuestionState::Answered { answered, stale: false };
        question.fresh = true;
        Ok(())
    }

    /// Ends a resume-all that has had its attempt: what asks again, waits, and
    /// is not woken by a later answer to something else. One that an open
    /// border holds up is kept. Says whether there was one.
    pub fn end_resume_all(&mut self) -> bool {
        let held_up = self.border.iter().any(|point| !point.released);
        !held_up && std::mem::take(&mut self.resume_all)
    }

    /// Applies the parts of a resume that name no point.
    pub fn resume(&mut self, resume: Resume) {
        if resume.release || resume.resume_all {
            for point in &mut self.border {
                point.released = true;
            }
        }
        if resume.retry {
            for task in self.tasks.iter_mut().filter(|task| task.record.status == TaskStatus::Failed) {
                task.record.retry = true;
            }
        }
        self.resume_all |= resume.resume_all;
    }
}
