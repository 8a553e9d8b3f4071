//! Asking, as a flow writes it.
//!
//! ```
//! use countersign_kernel::prelude::*;
//!
//! let ask = approval("Pay 1,200.00 EUR to Acme?")
//!     .detail("Invoice", "2016-0417")
//!     .to(role("manager"))
//!     .on_yes("the transfer is sent at once");
//! assert_eq!(ask.request().question.kind(), "approval");
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::{
    Choice, Deadline, Decision, Detail, Filled, FromAnswer, OnDeadline, Outcomes, Question, Request, Until, fields,
};
use crate::policy::Policy;
use crate::principal::{Approver, Principal};
use crate::time::Timestamp;

/// A question under construction; `A` is what the body receives.
#[derive(Clone)]
#[must_use = "a question is only asked by handing it to `cx.ask`"]
pub struct Ask<A> {
    request: Request,
    answer: PhantomData<fn() -> A>,
}

impl<A> fmt::Debug for Ask<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.fmt(f)
    }
}

fn ask<A>(question: Question, title: impl Into<String>) -> Ask<A> {
    Ask {
        request: Request {
            question,
            title: title.into(),
            message: None,
            details: Vec::new(),
            requested_by: None,
            outcomes: Outcomes::default(),
            policy: Policy::default(),
            deadline: None,
        },
        answer: PhantomData,
    }
}

/// Asks for yes or no.
pub fn approval(title: impl Into<String>) -> Ask<Decision> {
    ask(Question::Approval {}, title)
}

/// Asks for a line of text.
pub fn input(title: impl Into<String>) -> Ask<String> {
    ask(Question::Input { placeholder: None }, title)
}

/// Asks for exactly one of `options`.
pub fn select<C: Into<Choice>>(title: impl Into<String>, options: impl IntoIterator<Item = C>) -> Ask<String> {
    ask(Question::Select { options: options.into_iter().map(Into::into).collect() }, title)
}

/// Asks for any number of `options`.
pub fn multi_select<C: Into<Choice>>(
    title: impl Into<String>,
    options: impl IntoIterator<Item = C>,
) -> Ask<Vec<String>> {
    ask(Question::MultiSelect { options: options.into_iter().map(Into::into).collect() }, title)
}

/// Offers several named actions.
pub fn modal<C: Into<Choice>>(title: impl Into<String>, actions: impl IntoIterator<Item = C>) -> Ask<String> {
    ask(Question::Modal { actions: actions.into_iter().map(Into::into).collect() }, title)
}

/// Waits for a bare "go on" over `key`.
pub fn unlock(title: impl Into<String>, key: impl Into<String>) -> Ask<()> {
    ask(Question::Unlock { key: key.into() }, title)
}

/// Asks for a flat form, described by JSON Schema; see [`fields`] for the subset.
pub fn form<T>(title: impl Into<String>, schema: Value) -> Ask<Filled<T>> {
    ask(Question::Form { schema }, title)
}

impl<A> Ask<A> {
    /// Adds a paragraph of plain text.
    pub fn message(mut self, text: impl Into<String>) -> Self {
        self.request.message = Some(text.into());
        self
    }

    /// Adds one row to the table of facts.
    pub fn detail(mut self, label: impl Into<String>, value: impl fmt::Display) -> Self {
        self.request.details.push(Detail { label: label.into(), value: value.to_string() });
        self
    }

    /// Adds every scalar member of `facts` as a row, names made readable
    /// (`supplier_name` becomes "Supplier name"); empty ones are left out.
    pub fn details(mut self, facts: &impl Serialize) -> Self {
        if let Ok(Value::Object(members)) = serde_json::to_value(facts) {
            for (name, value) in members {
                let text = match value {
                    Value::String(text) => text,
                    Value::Number(number) => number.to_string(),
                    Value::Bool(flag) => if flag { "yes" } else { "no" }.to_owned(),
                    Value::Null | Value::Array(_) | Value::Object(_) => continue,
                };
                if !text.is_empty() {
                    self.request.details.push(Detail { label: readable(&name), value: text });
                }
            }
        }
        self
    }

    /// Says on whose behalf the flow asks.
    pub fn requested_by(mut self, who: impl Into<String>) -> Self {
        self.request.requested_by = Some(who.into());
        self
    }

    /// Adds one who may answer. Without any, the role `approver` may.
    pub fn to(mut self, approver: Approver) -> Self {
        self.request.policy.approvers.push(approver);
        self
    }

    /// Requires `need` equal votes of different people.
    pub fn need(mut self, need: u32) -> Self {
        self.request.policy.need = need;
        self
    }

    /// Excludes people from answering: the starter, or who decided before.
    pub fn excluding(mut self, principals: impl IntoIterator<Item = Principal>) -> Self {
        self.request.policy.excluding.extend(principals);
        self
    }

    /// Says what happens on yes (or on an answer).
    pub fn on_yes(mut self, text: impl Into<String>) -> Self {
        self.request.outcomes.yes = Some(text.into());
        self
    }

    /// Says what happens on no.
    pub fn on_no(mut self, text: impl Into<String>) -> Self {
        self.request.outcomes.no = Some(text.into());
        self
    }

    /// Says what happens if nobody answers.
    pub fn on_silence(mut self, text: impl Into<String>) -> Self {
        self.request.outcomes.silence = Some(text.into());
        self
    }

    /// Waits for `time` after it is first asked; then this happens. Without a
    /// deadline it waits for ever.
    pub fn within(mut self, time: Duration, then: OnDeadline) -> Self {
        self.request.deadline = Some(Deadline { until: Until::after(time), then });
        self
    }

    /// Waits up to `instant`, which must be the same at every run of the body,
    /// as all of a question; then this happens.
    pub fn until(mut self, instant: Timestamp, then: OnDeadline) -> Self {
        self.request.deadline = Some(Deadline { until: Until::AtMicros(instant), then });
        self
    }

    /// The request as it would be sent, default approver filled in, and in
    /// words what its deadline does.
    #[must_use]
    pub fn request(&self) -> Request {
        let mut request = self.request.clone();
        if request.policy.approvers.is_empty() {
            request.policy.approvers.push(Approver::Role("approver".into()));
        }
        if let (None, Some(deadline)) = (&request.outcomes.silence, &request.deadline) {
            request.outcomes.silence = Some(deadline.in_words());
        }
        request
    }
}

impl<A: FromAnswer> Ask<A> {
    /// The finished request, checked: options not empty, a form's schema flat,
    /// at least one vote needed.
    pub(crate) fn build(&self) -> Result<Request, String> {
        let mut request = self.request();
        match &request.question {
            Question::Select { options } | Question::MultiSelect { options } if options.is_empty() => {
                return Err(format!("`{}` offers no options", request.title));
            }
            Question::Modal { actions } if actions.is_empty() => {
                return Err(format!("`{}` offers no actions", request.title));
            }
            Question::Form { schema } => {
                fields(schema).map_err(|fault| fault.to_string())?;
            }
            _ => {}
        }
        if request.policy.need == 0 {
            return Err(format!("`{}` needs no votes; at least one is needed", request.title));
        }
        let title = &request.title;
        let deadline = request.deadline.map(|deadline| deadline.checked(&request.question)).transpose();
        request.deadline = deadline.map_err(|fault| format!("`{title}`: {fault}"))?;
        Ok(request)
    }
}

fn readable(name: &str) -> String {
    let spaced = name.replace(['_', '-'], " ");
    let mut chars = spaced.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
