//! What people are asked, and the shape of what they answer.
//!
//! A [`Request`] is the payload of an interrupt that people decide on. It
//! carries the [`Question`] (one of seven kinds), the words around it, and the
//! [`Policy`]. Answers are validated against the
//! question before anything is recorded (K5, K11).

mod answer;
mod ask;
mod deadline;
mod form;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::answer::{Answered, Decision, Filled, FromAnswer};
pub use self::ask::{Ask, approval, form, input, modal, multi_select, select, unlock};
pub use self::deadline::{Deadline, Elapsed, NOBODY_IN_TIME, OnDeadline, Until};
pub use self::form::{Field, FieldKind, FormFault, fields};
use crate::canonical::content_hash;
use crate::policy::Policy;

/// One of the things to choose from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// What the answer carries.
    pub value: String,
    /// What people read.
    pub label: String,
}

impl From<&str> for Choice {
    fn from(text: &str) -> Self {
        Self { value: text.to_owned(), label: text.to_owned() }
    }
}

impl From<(&str, &str)> for Choice {
    fn from((value, label): (&str, &str)) -> Self {
        Self { value: value.to_owned(), label: label.to_owned() }
    }
}

/// The seven kinds of question, with what each needs to be shown and checked.
///
/// The answer of each kind: `input` and `select` `{value}`, `multi_select`
/// `{values}`, `modal` `{action}`, `approval` `{approved, reason?}`, `unlock`
/// `{}`, `form` an object that fits the schema.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Question {
    /// A line of text.
    Input {
        /// Grey text in the empty field.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        placeholder: Option<String>,
    },
    /// Exactly one of the options.
    Select {
        /// What there is to choose from; never empty.
        options: Vec<Choice>,
    },
    /// Any number of the options.
    MultiSelect {
        /// What there is to choose from; never empty.
        options: Vec<Choice>,
    },
    /// One of several named actions.
    Modal {
        /// The buttons; never empty.
        actions: Vec<Choice>,
    },
    /// Yes or no, with an optional reason.
    Approval {},
    /// A bare "go on": nothing to fill in.
    Unlock {
        /// What is being unlocked.
        key: String,
    },
    /// A flat form, described by JSON Schema (see [`fields`]).
    Form {
        /// `{"type": "object", "properties": {…}, "required": […]}`.
        schema: Value,
    },
}

impl Question {
    /// The kind's name: `input`, `select`, `multi_select`, `modal`,
    /// `approval`, `unlock` or `form`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Input { .. } => "input",
            Self::Select { .. } => "select",
            Self::MultiSelect { .. } => "multi_select",
            Self::Modal { .. } => "modal",
            Self::Approval {} => "approval",
            Self::Unlock { .. } => "unlock",
            Self::Form { .. } => "form",
        }
    }
}

/// A row of the table under a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// What it is.
    pub label: String,
    /// What it says.
    pub value: String,
}

/// What happens next, in words for the approver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// On yes (or on an answer).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yes: Option<String>,
    /// On no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no: Option<String>,
    /// If nobody answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence: Option<String>,
}

/// What people see of an interrupt: the question, the words around it, and the
/// policy that says who may answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The question and its kind (`type`).
    #[serde(flatten)]
    pub question: Question,
    /// One line: what is asked.
    pub title: String,
    /// A paragraph or two, plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The facts, as rows of a table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
    /// On whose behalf the flow asks, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// What happens next.
    #[serde(default)]
    pub outcomes: Outcomes,
    /// Who may answer, under which rule.
    pub policy: Policy,
    /// Until when, and what happens then; it waits for ever without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
}

impl Request {
    /// SHA-256 over the canonical text of all that an approver is shown. A
    /// vote names the hash it saw, so that nobody approves what has changed.
    #[must_use]
    pub fn content_hash(&self) -> String {
        content_hash(&self.to_payload())
    }

    /// The request as the payload of an interrupt.
    #[must_use]
    pub fn to_payload(&self) -> Value {
        // A struct of strings, lists and JSON values always encodes.
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// Reads a request back from an interrupt's payload.
    ///
    /// # Errors
    /// The payload is not one that [`Request::to_payload`] made.
    pub fn from_payload(payload: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(payload)
    }
}
