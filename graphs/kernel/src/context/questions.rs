//! Asking inside a body: raise on the first pass, return the answer later.

use std::sync::atomic::Ordering;

use serde_json::Value;

use super::Context;
use crate::canonical::content_hash;
use crate::limits;
use crate::node::{NodeError, NodeResult};
use crate::occurrence::{PointKind, QuestionRecord, QuestionState};
use crate::principal::Principal;
use crate::question::{Answered, Ask, FromAnswer, OnDeadline, Request, Until};
use crate::time::Timestamp;

/// An answer with who gave it and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Signed<A> {
    /// The answer.
    pub answer: A,
    /// Whose votes it rests on.
    pub by: Vec<Principal>,
    /// When it was accepted.
    pub at: Timestamp,
}

impl Context {
    /// Asks people. Parks the task the first time; returns the answer once
    /// the request is decided. The k-th call of a body gets the k-th answer;
    /// a question whose content changed since it was answered is asked again
    /// as a new one (R4).
    ///
    /// Use `?` on the result: that is how control leaves the body.
    ///
    /// # Errors
    /// [`NodeError::Interrupted`] while nobody has answered; a failure if the
    /// question itself is faulty (no options, a form that is not flat), or if
    /// nobody decided in time and that is what its deadline says.
    pub async fn ask<A: FromAnswer>(&self, ask: Ask<A>) -> NodeResult<A> {
        Ok(self.ask_signed(ask).await?.answer)
    }

    /// As [`ask`](Self::ask), with who answered and when: for a record in the
    /// state, or to exclude them from the next question.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    #[allow(clippy::unused_async, reason = "awaited where flows ask, so that asking may await one day")]
    pub async fn ask_signed<A: FromAnswer>(&self, ask: Ask<A>) -> NodeResult<Signed<A>> {
        let request = ask.build().map_err(NodeError::Failed)?;
        let until = request.deadline.as_ref().map(|deadline| deadline.until);
        let answered = self.question(PointKind::Ask, request.to_payload(), until)?;
        if fails_by(&request, &answered) {
            self.shared.missed.store(true, Ordering::Release);
            return Err(NodeError::failed(format!("`{}` was not decided in time", request.title)));
        }
        Ok(Signed { answer: A::from_answer(&answered)?, by: answered.by, at: answered.at })
    }

    /// Raises a raw interrupt with a payload of the flow's own, for clients
    /// that bring their own shapes. No policy: answering needs a token.
    /// Returns the answer's data (`null` for a bare one). If the payload
    /// differs at a later run, the recorded answer is still taken (R4).
    ///
    /// # Errors
    /// [`NodeError::Interrupted`] while nobody has answered.
    #[allow(clippy::unused_async, reason = "awaited where flows ask, so that asking may await one day")]
    pub async fn interrupt(&self, payload: impl Into<Value>) -> NodeResult<Value> {
        let answered = self.question(PointKind::Interrupt, payload.into(), None)?;
        Ok(answered.value.unwrap_or(Value::Null))
    }

    pub(super) fn question(&self, kind: PointKind, payload: Value, until: Option<Until>) -> NodeResult<Answered> {
        let ordinal = self.next_ordinal();
        limits::check(|| "the question".into(), "payload_bytes", &payload, self.shared.scope.payload_bytes)
            .map_err(NodeError::Failed)?;
        let hash = content_hash(&payload);
        let mut occurrences = self.occurrences();
        let occurrence = occurrences.entry(&self.address);
        if let Some(record) = occurrence.at_ordinal(ordinal) {
            let unchanged = record.content_hash == hash;
            let same = unchanged || kind == PointKind::Interrupt;
            if !unchanged && same {
                record.shown_later = Some(payload.clone());
            }
            match &mut record.state {
                QuestionState::Answered { answered, .. } if same => return Ok(answered.clone()),
                QuestionState::Answered { stale, .. } => *stale = true,
                QuestionState::Open if same => {
                    self.mark_waiting();
                    return Err(NodeError::Interrupted);
                }
                state @ (QuestionState::Open | QuestionState::Superseded) => *state = QuestionState::Superseded,
            }
        }
        // Not the start of this run: what the body did before took its time.
        let due = until.map(|until| until.instant(self.host().clock.now()));
        if let (PointKind::Sleep, Some(Until::AtMicros(instant))) = (kind, until)
            && instant <= self.host().clock.now()
        {
            return Ok(Answered { value: None, by: vec![Principal::timer()], at: instant });
        }
        let number = occurrence.next_number();
        occurrence.questions.push(QuestionRecord {
            ordinal,
            number,
            id: self.address.interrupt_id(&self.shared.scope.salt, &self.shared.scope.planned_by, number),
            kind,
            payload,
            content_hash: hash,
            asked_at: self.shared.scope.now,
            due,
            state: QuestionState::Open,
            shown_later: None,
            fresh: false,
        });
        self.mark_waiting();
        Err(NodeError::Interrupted)
    }
}

/// Whether this is no answer but the end of the time for one.
fn fails_by(request: &Request, answered: &Answered) -> bool {
    let fails = request.deadline.as_ref().is_some_and(|deadline| deadline.then == OnDeadline::Fail);
    fails && answered.value.is_none() && answered.by == [Principal::deadline()]
}
