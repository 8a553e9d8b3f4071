//! What a wake-up message says.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use countersign_kernel::ids::{DeliveryId, ThreadId};
use serde::{Deserialize, Serialize};
use ulid::Ulid;

/// What a message asks to be looked at.
///
/// The name of a kind is also the name of its queue, so it is on disk: a kind
/// that is renamed needs its old name as an alias in [`JobKind::from_name`]
/// *and* a step in the store's migrations that renames the rows, because each
/// kind polls one queue only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKind {
    /// Look at a thread: it was started, or there are answers for it.
    Advance,
    /// Look at one delivery: a notice to one recipient is due.
    Deliver,
    /// Fire a timer that is due. No message says so: it would lie in the queue
    /// for as long as the timer is set. Whoever does this kind looks for them.
    Timer,
}

impl JobKind {
    /// Every kind, in the order of the overview.
    pub const ALL: [Self; 3] = [Self::Advance, Self::Deliver, Self::Timer];

    /// Whether messages of this kind are carried.
    #[must_use]
    pub const fn is_carried(self) -> bool {
        !matches!(self, Self::Timer)
    }

    /// The kind's name, which is the name of its queue.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Advance => "advance",
            Self::Deliver => "deliver",
            Self::Timer => "timer",
        }
    }

    /// The kind of that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "advance" => Some(Self::Advance),
            "deliver" => Some(Self::Deliver),
            "timer" => Some(Self::Timer),
            _ => None,
        }
    }

    /// The place in [`JobKind::ALL`].
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Advance => 0,
            Self::Deliver => 1,
            Self::Timer => 2,
        }
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a text is not the id of a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a job id: 26 upper-case characters of a ULID")]
pub struct JobIdError {
    text: String,
}

/// Names one message: a ULID, written as its 26 upper-case characters.
///
/// The carrier reads the ids of its rows as ULIDs and ends when one is not,
/// hence a type that cannot hold anything else. Ids sort by their time stamp,
/// which makes the rows of one second come out in the order they were made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(Ulid);

impl JobId {
    /// The id for a time stamp in milliseconds since the Unix epoch and random
    /// bits; the lowest 48 and 80 bits count. The same input gives the same
    /// id: clock and chance are the caller's.
    #[must_use]
    pub const fn new(timestamp_ms: u64, random: u128) -> Self {
        Self(Ulid::from_parts(timestamp_ms, random))
    }

    /// Parses the text that [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    /// The text is not a ULID, or is one in another spelling: rows are found
    /// by their text, so lower case would name no row.
    pub fn parse(text: &str) -> Result<Self, JobIdError> {
        let id = Ulid::from_string(text).map(Self).ok();
        id.filter(|id| id.to_string() == text).ok_or_else(|| JobIdError { text: text.chars().take(80).collect() })
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

impl FromStr for JobId {
    type Err = JobIdError;
    fn from_str(text: &str) -> Result<Self, JobIdError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for JobId {
    type Error = JobIdError;
    fn try_from(text: String) -> Result<Self, JobIdError> {
        Self::parse(&text)
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.to_string()
    }
}

/// One wake-up: "look here".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Names the message and its row; what deletes it.
    pub id: JobId,
    /// What is to be looked at, and the queue it travels in.
    pub kind: JobKind,
    /// The thread it is about.
    pub thread: ThreadId,
    /// What of the thread it is about: the delivery's id for
    /// [`JobKind::Deliver`]; for [`JobKind::Advance`] the thread's priority, if
    /// it has one.
    pub subject: Option<String>,
    /// How long after the push it may arrive at the earliest; `None` is at
    /// once. The carrier counts in whole seconds and the due time is rounded
    /// up, so it arrives up to a second late and never early. A message that
    /// was received carries `None`.
    pub run_after: Option<Duration>,
}

impl Message {
    /// "Look at this thread."
    #[must_use]
    pub const fn advance(id: JobId, thread: ThreadId) -> Self {
        Self { id, kind: JobKind::Advance, thread, subject: None, run_after: None }
    }

    /// The same message, about a thread of this priority.
    #[must_use]
    pub fn with_priority(self, priority: i64) -> Self {
        Self { subject: (priority != 0).then(|| priority.to_string()), ..self }
    }

    /// The priority of the thread that it is about.
    #[must_use]
    pub fn priority(&self) -> i64 {
        match (self.kind, &self.subject) {
            (JobKind::Advance, Some(priority)) => priority.parse().unwrap_or(0),
            _ => 0,
        }
    }

    /// "Look at this delivery of this thread."
    #[must_use]
    pub fn deliver(id: JobId, thread: ThreadId, delivery: &DeliveryId) -> Self {
        Self { id, kind: JobKind::Deliver, thread, subject: Some(delivery.as_str().to_owned()), run_after: None }
    }

    /// The same message, due `delay` after its push.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { run_after: Some(delay), ..self }
    }

    /// The row's content: what is not in its other columns.
    pub(super) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&Payload { thread: self.thread.clone(), subject: self.subject.clone() })
    }

    /// The message of a row that came out of `kind`'s queue.
    pub(super) fn decode(kind: JobKind, id: &str, payload: &[u8]) -> Result<Self, DecodeError> {
        let id = JobId::parse(id)?;
        let Payload { thread, subject } = serde_json::from_slice(payload)?;
        Ok(Self { id, kind, thread, subject, run_after: None })
    }
}

/// The thread that a row names.
pub(super) fn thread(text: String) -> Option<ThreadId> {
    ThreadId::parse(text).ok()
}

/// Why a row is not a message.
#[derive(Debug, thiserror::Error)]
pub(super) enum DecodeError {
    #[error(transparent)]
    Id(#[from] JobIdError),
    #[error("its content is not a message: {0}")]
    Payload(#[from] serde_json::Error),
}

/// The JSON in a row. Fields may be added when they have a default; fields
/// that an older version does not know are passed over.
#[derive(Serialize, Deserialize)]
struct Payload {
    thread: ThreadId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_name_and_place() {
        for (place, kind) in JobKind::ALL.into_iter().enumerate() {
            assert_eq!(JobKind::from_name(kind.name()), Some(kind));
            assert_eq!(kind.index(), place);
        }
        assert_eq!(JobKind::from_name("Advance"), None);
    }

    #[test]
    fn a_job_id_is_a_function_of_its_parts_and_sorts_by_time() {
        assert_eq!(JobId::new(1_469_918_176_385, 7), JobId::new(1_469_918_176_385, 7));
        assert!(JobId::new(1, u128::MAX) < JobId::new(2, 0));
        assert!(JobId::new(1, u128::MAX).to_string() < JobId::new(2, 0).to_string());
        let id = JobId::new(1_469_918_176_385, u128::MAX);
        assert_eq!(JobId::parse(&id.to_string()), Ok(id));
    }

    #[test]
    fn a_job_id_has_one_spelling() {
        for bad in [
            "",
            "not-a-ulid",
            "01arz3ndektsv4rrffq69g5fav",
            "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "01ARZ3NDEKTSV4RRFFQ69G5FA\0",
        ] {
            assert!(JobId::parse(bad).is_err(), "{bad:?}");
        }
        assert!(JobId::parse("01ARZ3NDEKTSV4RRFFQ69G5FAV").is_ok());
    }

    #[test]
    fn a_message_survives_its_row() {
        let thread = ThreadId::parse("invoice-2016").unwrap();
        let delivery = DeliveryId::parse("d-1").unwrap();
        let id = JobId::new(5, 6);
        let advance = Message::advance(id, thread.clone());
        assert_eq!((advance.priority(), advance.clone().with_priority(-7).priority()), (0, -7));
        for message in [advance.clone(), advance.with_priority(5), Message::deliver(id, thread, &delivery)] {
            let row = message.encode().unwrap();
            let back = Message::decode(message.kind, &id.to_string(), &row).unwrap();
            assert_eq!(back, message);
        }
        for bad in ["", "{}", "[]", r#"{"thread":"a/b"}"#, r#"{"thread":1}"#] {
            assert!(Message::decode(JobKind::Advance, &id.to_string(), bad.as_bytes()).is_err());
        }
    }
}
