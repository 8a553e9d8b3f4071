//! What the API answers, as far as the commands look at it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cli::output::plain;

/// A refusal (RFC 9457).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// The kind, a URI whose last part is its name.
    pub r#type: String,
    /// The kind, for people.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong this time.
    pub detail: String,
    /// What is wrong with an input or an answer, and where.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ProblemError>,
    /// What else the kind carries.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// One fault in an input or an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProblemError {
    /// Where, as a JSON pointer.
    pub pointer: String,
    /// What is wrong.
    pub message: String,
}

impl Problem {
    /// Whether it is of the kind `name`: `thread-exists`, say.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.r#type.rsplit(['/', ':', '#']).next() == Some(name)
    }

    /// The faults alone if there are any, else what was decided or came
    /// instead, else the detail.
    #[must_use]
    pub fn reason(&self) -> String {
        if self.errors.is_empty() {
            return match self.instead() {
                Some(instead) => instead,
                None if self.detail.is_empty() => self.title.clone(),
                None => self.detail.clone(),
            };
        }
        let faults = self.errors.iter().map(|error| match error.pointer.as_str() {
            "" => error.message.clone(),
            pointer => format!("{pointer}: {}", error.message),
        });
        faults.collect::<Vec<_>>().join("; ")
    }

    fn instead(&self) -> Option<String> {
        self.decided().or_else(|| self.dropped())
    }

    /// What dropped a request and where the present one is, where that is why.
    fn dropped(&self) -> Option<String> {
        if !self.is("superseded") {
            return None;
        }
        let text = |name: &str| self.more.get(name).and_then(Value::as_str);
        let became = text("became")?;
        let why = match (became, text("closed_by")) {
            ("released", _) => "the flow went on without an answer",
            ("withdrawn", _) => "the flow withdrew it",
            (_, Some("edited")) => "the state of its thread was edited",
            (_, Some("replayed")) => "its thread was run again from a checkpoint",
            (_, Some("restarted")) => "its thread was given new input",
            (_, Some("cancelled")) => "its thread was cancelled",
            _ => "the flow has moved on",
        };
        let at = text("at").map(|at| format!(" at {at}")).unwrap_or_default();
        let instead = match (became, text("replaced_by")) {
            (_, Some(id)) => {
                format!("; asked in its place: {id} (countersign interrupts show {id})")
            }
            ("superseded", None) => "; nothing is asked in its place now".to_owned(),
            (_, None) => String::new(),
        };
        Some(plain(&format!("{why}{at}; nothing was recorded{instead}")))
    }

    /// The detail for people who see the faults below it: what is said of
    /// members of the document is for machines.
    fn said(&self) -> String {
        let parts = self.detail.split("; ").filter(|part| self.errors.is_empty() || !part.contains("`errors`"));
        parts.collect::<Vec<_>>().join("; ")
    }

    /// Whether the detail says what the title says, in more words.
    fn repeats_its_title(&self) -> bool {
        const SMALL: [&str; 16] = [
            "a", "already", "an", "at", "been", "being", "has", "is", "it", "no", "of", "such", "the", "there", "this",
            "to",
        ];
        let words = |text: &str| -> Vec<String> {
            let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            words.map(str::to_lowercase).filter(|word| !SMALL.contains(&word.as_str())).collect()
        };
        let (title, detail) = (words(&self.title), words(&self.detail));
        !title.is_empty() && title.iter().all(|word| detail.iter().any(|said| said.starts_with(word.as_str())))
    }

    /// Who decided what and when, where that is why.
    fn decided(&self) -> Option<String> {
        if !self.is("already-answered") {
            return None;
        }
        let by: Vec<&str> = self.more.get("by")?.as_array()?.iter().filter_map(Value::as_str).collect();
        let (by, at) = (by.join(" and "), self.more.get("at")?.as_str()?);
        let what = match self.more.get("answer")? {
            Value::Null => "it".to_owned(),
            answer => answer.to_string(),
        };
        Some(plain(&format!("{by} decided {what} at {at}")))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = if self.title.is_empty() { "refused" } else { &self.title };
        if let Some(instead) = self.instead() {
            return write!(f, "{title} ({}): {instead}", self.status);
        }
        let said = self.said();
        if self.repeats_its_title() {
            write!(f, "{said} ({})", self.status)?;
        } else {
            write!(f, "{title} ({})", self.status)?;
            if !said.is_empty() {
                write!(f, ": {said}")?;
            }
        }
        if !self.errors.is_empty() {
            write!(f, ": {}", self.reason())?;
        }
        Ok(())
    }
}

/// A page of a list; the items as the server wrote them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Page {
    /// The items.
    pub items: Vec<Value>,
    /// Where the next page begins.
    #[serde(default)]
    pub next_cursor: Option<String>,
}

/// A started thread.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Started {
    /// The thread.
    pub thread_id: String,
}

/// What an answer led to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Answered {
    /// `decided` or `waiting`.
    pub status: String,
    /// Equal votes so far.
    #[serde(default)]
    pub have: u32,
    /// Votes needed.
    #[serde(default)]
    pub need: u32,
    /// The thread that asked.
    #[serde(default)]
    pub thread_id: Option<String>,
}

/// A link that signs a person in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInLink {
    /// Whom.
    pub person: String,
    /// The link.
    pub link: String,
    /// Until when it works, as the server writes instants.
    pub expires_at: String,
}

/// What lists show of a thread.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ThreadSummary {
    /// The thread.
    pub thread_id: String,
    /// Its graph.
    pub graph: String,
    /// queued, running, parked, held, succeeded, failed or cancelled.
    pub status: String,
    /// How many points are open.
    #[serde(default)]
    pub open: u64,
    /// Why it is held.
    #[serde(default)]
    pub held_reason: Option<String>,
    /// When it last changed, as the server writes instants.
    #[serde(default)]
    pub updated_at: Value,
}

/// Counts over everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overview {
    /// Threads by status.
    pub threads: ThreadCounts,
    /// Messages.
    pub deliveries: DeliveryCounts,
    /// Open requests.
    pub requests_open: u64,
    /// Jobs that gave up.
    pub dead_letters: u64,
}

/// Threads by status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadCounts {
    /// Waiting for a worker.
    pub queued: u64,
    /// At work.
    pub running: u64,
    /// Waiting for answers.
    pub parked: u64,
    /// Kept from running, for a reason they name.
    pub held: u64,
    /// Done.
    pub succeeded: u64,
    /// Ended by an error.
    pub failed: u64,
    /// Called off.
    pub cancelled: u64,
}

/// Messages by what became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeliveryCounts {
    /// To be sent.
    pub pending: u64,
    /// Handed over.
    pub sent: u64,
    /// Given up.
    pub failed: u64,
}
