//! Until when something waits, and what happens then (K21).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Question, Request};
use crate::canonical::canonical_text;
use crate::fault::Fault;
use crate::time::Timestamp;

/// Until when something waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// So many microseconds after it was first asked.
    AfterMicros(u64),
    /// Up to this instant, in microseconds since the epoch, UTC.
    AtMicros(Timestamp),
}

impl Until {
    /// So long after it was first asked.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Self::AfterMicros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    /// The instant, for something that is first asked at `now`.
    #[must_use]
    pub fn instant(self, now: Timestamp) -> Timestamp {
        match self {
            Self::AfterMicros(micros) => now.after(Duration::from_micros(micros)),
            Self::AtMicros(instant) => instant,
        }
    }
}

/// What happens to a request that nobody decided in time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", content = "value", rename_all = "snake_case")]
pub enum OnDeadline {
    /// It goes on waiting; the passing is on record.
    Wait,
    /// It is answered with this.
    Answer(Value),
    /// The approval is rejected.
    Reject,
    /// The node that asks fails. No attempt of its policy follows.
    Fail,
}

/// The deadline of a request. Silence is no consent unless the request says so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deadline {
    /// Until when it waits.
    pub until: Until,
    /// What happens then.
    pub then: OnDeadline,
}

/// What the passing of an instant does to the point that waits for it.
#[derive(Debug, Clone, PartialEq)]
pub enum Elapsed {
    /// Nothing: it waits on.
    Waits,
    /// It is answered with this, or with nothing.
    Answered(Option<Value>),
}

/// Why an approval was rejected that nobody decided.
pub const NOBODY_IN_TIME: &str = "nobody decided in time";

impl Deadline {
    /// The deadline in its validated form.
    pub(super) fn checked(self, question: &Question) -> Result<Self, String> {
        let then = match self.then {
            OnDeadline::Answer(answer) => {
                let valid = question.validate(&answer).map_err(|faults| {
                    let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
                    format!("the answer at the deadline does not fit the question: {}", faults.join("; "))
                })?;
                OnDeadline::Answer(valid)
            }
            OnDeadline::Reject if !matches!(question, Question::Approval {}) => {
                return Err(format!(
                    "only an approval can be rejected at its deadline, and this is {}",
                    question.kind()
                ));
            }
            then => then,
        };
        Ok(Self { then, ..self })
    }

    /// What happens on silence, in words for the approver.
    pub(super) fn in_words(&self) -> String {
        match &self.then {
            OnDeadline::Wait => "it goes on waiting".into(),
            OnDeadline::Answer(answer) => format!("it counts as answered with {}", canonical_text(answer)),
            OnDeadline::Reject => "it counts as rejected".into(),
            OnDeadline::Fail => "the flow fails".into(),
        }
    }
}

impl Request {
    /// What its deadline does to it.
    #[must_use]
    pub fn elapsed(&self) -> Elapsed {
        match self.deadline.as_ref().map(|deadline| &deadline.then) {
            None | Some(OnDeadline::Wait) => Elapsed::Waits,
            Some(OnDeadline::Answer(answer)) => Elapsed::Answered(Some(answer.clone())),
            Some(OnDeadline::Reject) => Elapsed::Answered(Some(json!({"approved": false, "reason": NOBODY_IN_TIME}))),
            Some(OnDeadline::Fail) => Elapsed::Answered(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::{approval, input};

    fn faults(request: Result<Request, String>) -> String {
        request.expect_err("refused")
    }

    #[test]
    fn what_a_deadline_answers_is_checked_when_asked() {
        let week = Duration::from_hours(7 * 24);
        let good = approval("?").within(week, OnDeadline::Answer(json!({"approved": true, "reason": null}))).build();
        assert_eq!(good.expect("fits").elapsed(), Elapsed::Answered(Some(json!({"approved": true}))));
        let bad = approval("?").within(week, OnDeadline::Answer(json!({"approved": "yes"}))).build();
        assert!(faults(bad).contains("/approved"));
        let no_rejection = input("?").within(week, OnDeadline::Reject).build();
        assert!(faults(no_rejection).contains("only an approval"));
    }

    #[test]
    fn silence_is_put_into_words_unless_the_flow_has_its_own() {
        let words = |ask: crate::question::Ask<_>| ask.request().outcomes.silence;
        let ask = || approval("?").within(Duration::from_secs(7), OnDeadline::Reject);
        assert_eq!(words(ask()).as_deref(), Some("it counts as rejected"));
        assert_eq!(words(ask().on_silence("we ask again")).as_deref(), Some("we ask again"));
        assert_eq!(words(approval("?")), None);
    }

    #[test]
    fn a_deadline_reads_back_and_an_unknown_action_is_refused() {
        let deadline = Deadline { until: Until::after(Duration::from_secs(7)), then: OnDeadline::Fail };
        let text = json!({"until": {"after_micros": 7_000_000}, "then": {"do": "fail"}});
        assert_eq!(serde_json::to_value(&deadline).expect("encodes"), text);
        assert_eq!(Deadline::deserialize(&text).expect("reads"), deadline);
        let escalates = json!({"until": {"after_micros": 1}, "then": {"do": "escalate"}});
        assert!(Deadline::deserialize(&escalates).expect_err("not yet").to_string().contains("escalate"));
    }

    #[test]
    fn an_instant_is_counted_from_the_first_asking() {
        let now = Timestamp::from_micros(5);
        assert_eq!(Until::after(Duration::from_micros(7)).instant(now), Timestamp::from_micros(12));
        assert_eq!(Until::AtMicros(Timestamp::from_micros(3)).instant(now), Timestamp::from_micros(3));
        assert_eq!(Until::after(Duration::MAX).instant(now), Timestamp::from_micros(i64::MAX));
    }
}
