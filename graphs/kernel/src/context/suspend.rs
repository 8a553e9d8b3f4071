//! The component style: suspend with private state, learn how one was woken.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Context;
use crate::canonical::content_hash;
use crate::limits;
use crate::node::{NodeError, NodeResult};
use crate::occurrence::{PointKind, QuestionRecord, QuestionState};

/// What a component learns about the run it is in (K6).
#[derive(Debug, Clone, PartialEq)]
pub enum Resumption<S, A> {
    /// Never interrupted.
    Fresh,
    /// Interrupted and not a target: hold, with the kept state.
    Waiting(S),
    /// Interrupted and a target. The data is `None` for a bare answer, and
    /// for data of another type than asked for (K5).
    Answered(S, Option<A>),
}

impl Context {
    /// Stops here: `info` for people, `private` for this component alone. A
    /// component that is still waiting holds: the point keeps its id and its
    /// info, and takes the new private state. After an answer it is a new
    /// question with a new id.
    ///
    /// Return the error: `return Err(cx.suspend(info, &state));`.
    pub fn suspend(&self, info: impl Into<Value>, private: &impl Serialize) -> NodeError {
        let private = match serde_json::to_value(private) {
            Ok(value) => value,
            Err(problem) => return NodeError::failed(format!("the private state cannot be encoded: {problem}")),
        };
        let mut occurrences = self.occurrences();
        let occurrence = occurrences.entry(&self.address);
        occurrence.private_state = Some(private);
        let holds = occurrence.questions.last().is_some_and(QuestionRecord::is_open);
        if !holds {
            let number = occurrence.next_number();
            let payload = info.into();
            let most = self.shared.scope.payload_bytes;
            if let Err(fault) = limits::check(|| "the info".into(), "payload_bytes", &payload, most) {
                return NodeError::Failed(fault);
            }
            occurrence.questions.push(QuestionRecord {
                ordinal: number,
                number,
                id: self.address.interrupt_id(&self.shared.scope.salt, &self.shared.scope.planned_by, number),
                kind: PointKind::Suspend,
                content_hash: content_hash(&payload),
                payload,
                asked_at: self.shared.scope.now,
                due: None,
                state: QuestionState::Open,
                shown_later: None,
                fresh: false,
            });
        }
        self.mark_waiting();
        NodeError::Interrupted
    }

    /// How this component was woken, and the state it kept.
    ///
    /// # Errors
    /// The kept state does not read as `S`.
    pub fn resumption<S: DeserializeOwned, A: DeserializeOwned>(&self) -> NodeResult<Resumption<S, A>> {
        let mut occurrences = self.occurrences();
        let occurrence = occurrences.entry(&self.address);
        let Some(question) = occurrence.questions.last() else {
            return Ok(Resumption::Fresh);
        };
        let private = occurrence.private_state.clone().unwrap_or(Value::Null);
        let state = S::deserialize(private)
            .map_err(|problem| NodeError::failed(format!("the private state does not read back: {problem}")))?;
        Ok(match &question.state {
            QuestionState::Answered { answered, .. } => {
                let data = answered.value.clone().and_then(|value| A::deserialize(value).ok());
                Resumption::Answered(state, data)
            }
            QuestionState::Open | QuestionState::Superseded => Resumption::Waiting(state),
        })
    }

    /// Whether this run is a resume-all: open points run unanswered (K10).
    #[must_use]
    pub fn is_resume_all(&self) -> bool {
        self.shared.scope.resume_all
    }
}
