//! What happens in a thread, for whoever watches it (K22).
//!
//! Events change nothing. They are numbered per thread from 1, without gaps,
//! and become visible with the commit that makes true what they tell. What
//! lies in other rows anyway (a large value that became part of the state, what
//! a point asks, which checkpoint it was) is referred to and read back when
//! somebody asks.

use std::collections::HashMap;

use countersign_kernel::ids::{FrameId, InterruptId, ThreadId};
use countersign_kernel::machine::RunAs;
use countersign_kernel::state::Change;
use countersign_kernel::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::commands::{Fence, KeyAt, NewCheckpoint};

/// The kinds of events.
pub const EVENT_KINDS: [&str; 6] = ["tasks", "updates", "values", "interrupts", "custom", "status"];

/// Something that happened, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When it happened; at most when it was committed.
    pub at: Timestamp,
    /// What.
    pub what: What,
}

/// Tells watchers something while a body runs.
#[derive(Debug, Clone)]
pub struct AppendEvents {
    /// The thread.
    pub thread: ThreadId,
    /// The proof.
    pub fence: Fence,
    /// What is told.
    pub events: Vec<Event>,
    /// Now.
    pub now: Timestamp,
}

/// A task, as events name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TaskPlace {
    /// Its key in its checkpoint: the node's name, `node#i` for a sent one.
    pub task: String,
    /// Its address, as people read it.
    pub address: String,
    /// Its frame; `None` is the root frame.
    pub frame: Option<FrameId>,
}

/// How the run of a task's body ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEnd {
    /// It has finished.
    Done,
    /// It waits for somebody.
    Waiting,
    /// It failed, and why.
    Failed(String),
    /// It was dropped for a pause.
    Stopped,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A body started.
    Started(TaskPlace, RunAs),
    /// A body's run ended.
    Ended(TaskPlace, TaskEnd),
    /// A finished task wrote this; once per finished task.
    Wrote(TaskPlace, Vec<(String, Written)>),
    /// There is a new checkpoint: its number in its frame.
    Values(i64, Option<FrameId>),
    /// A point was raised.
    Opened(InterruptId),
    /// A point closed: answered, released, superseded or withdrawn.
    Closed(InterruptId, String),
    /// The flow's own: from where, and what.
    Custom(String, Value),
    /// The thread's status, and the reason if it failed or is held.
    Status(String, Option<String>),
}

/// A written value, or where it lies in the state of the task's frame and
/// about how many bytes it has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Written {
    /// The value itself.
    #[serde(rename = "w")]
    Value(Value),
    /// The row that the checkpoint of this number wrote for the key.
    #[serde(rename = "r")]
    Replaced(i64, usize),
    /// The rows of these positions: branch, from, until.
    #[serde(rename = "i")]
    Items(i64, u64, u64, usize),
}

impl What {
    /// A status without a reason.
    #[must_use]
    pub fn status(status: &str) -> Self {
        Self::Status(status.to_owned(), None)
    }

    /// How many bytes it takes to tell, beside those of its row; about.
    #[must_use]
    pub fn bytes_elsewhere(&self) -> usize {
        let Self::Wrote(_, writes) = self else { return 0 };
        let sizes = writes.iter().map(|(_, written)| match written {
            Written::Value(_) => 0,
            Written::Replaced(_, bytes) | Written::Items(_, _, _, bytes) => *bytes,
        });
        sizes.sum()
    }

    /// Refers to the rows of `new` where they hold what a task wrote that was
    /// alone in its superstep.
    #[must_use]
    pub fn referring_to(self, new: &NewCheckpoint) -> Self {
        let Self::Wrote(place, writes) = self else { return self };
        let once = |key: &str| writes.iter().filter(|(written, _)| written == key).count() == 1;
        let refer = |(key, written): &(String, Written)| {
            let found = match written {
                Written::Value(value) if !is_small(value) && once(key) => row_of(new, key, value),
                _ => None,
            };
            (key.clone(), found.unwrap_or_else(|| written.clone()))
        };
        let writes = writes.iter().map(refer).collect();
        Self::Wrote(place, writes)
    }
}

/// About how many bytes a value has.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(size).sum::<usize>() + 2,
        Value::Object(members) => members.iter().map(|(name, value)| name.len() + size(value) + 4).sum::<usize>() + 2,
    }
}

/// Whether a value takes no more room than a reference to it.
fn is_small(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => text.len() <= 16,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

fn row_of(new: &NewCheckpoint, key: &str, value: &Value) -> Option<Written> {
    let (_, change) = new.changes.iter().find(|(changed, _)| changed == key)?;
    match (change, new.keys.get(key)?) {
        (Change::Set(set), KeyAt::Value(seq)) if set == value => Some(Written::Replaced(*seq, size(value))),
        (Change::Appended(items), KeyAt::Items(segments)) if value.as_array() == Some(items) => {
            let (branch, until) = segments.last()?;
            Some(Written::Items(*branch, until.checked_sub(items.len() as u64)?, *until, size(value)))
        }
        _ => None,
    }
}

/// The events of one commit as its row keeps them: each task is named once,
/// and times count back from the commit's.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Packed {
    #[serde(rename = "t", default, skip_serializing_if = "Vec::is_empty")]
    tasks: Vec<PackedPlace>,
    #[serde(rename = "e")]
    events: Vec<(i64, PackedWhat)>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum PackedPlace {
    Inner(String, String, FrameId),
    Root(String, String),
}

#[derive(Debug, Serialize, Deserialize)]
enum PackedWhat {
    #[serde(rename = "s")]
    Started(usize, RunAs),
    #[serde(rename = "d")]
    Done(usize),
    #[serde(rename = "w")]
    Waiting(usize),
    #[serde(rename = "f")]
    Failed(usize, String),
    #[serde(rename = "x")]
    Stopped(usize),
    #[serde(rename = "u")]
    Wrote(usize, Vec<(String, Written)>),
    #[serde(rename = "v")]
    Values(i64),
    #[serde(rename = "V")]
    InnerValues(i64, FrameId),
    #[serde(rename = "o")]
    Opened(InterruptId),
    #[serde(rename = "c")]
    Closed(InterruptId, String),
    #[serde(rename = "m")]
    Custom(String, Value),
    #[serde(rename = "a")]
    Status(String),
    #[serde(rename = "A")]
    StatusBecause(String, String),
}

impl Packed {
    pub(super) fn new(events: Vec<Event>, committed: Timestamp) -> Self {
        let mut places = Places::default();
        let events = events
            .into_iter()
            .map(|event| (committed.as_micros() - event.at.as_micros(), places.pack(event.what)))
            .collect();
        Self { tasks: places.packed, events }
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// The events, in order. One that names a task which is not there was not
    /// written by [`new`](Self::new), and is left out.
    pub(super) fn unpack(self, committed: Timestamp) -> Vec<Option<Event>> {
        let places: Vec<TaskPlace> = self.tasks.into_iter().map(PackedPlace::unpack).collect();
        let unpack = |(before, packed): (i64, PackedWhat)| {
            let at = Timestamp::from_micros(committed.as_micros().saturating_sub(before));
            Some(Event { at, what: packed.unpack(&places)? })
        };
        self.events.into_iter().map(unpack).collect()
    }
}

#[derive(Default)]
struct Places {
    known: HashMap<TaskPlace, usize>,
    packed: Vec<PackedPlace>,
}

impl Places {
    fn index(&mut self, place: TaskPlace) -> usize {
        if let Some(index) = self.known.get(&place) {
            return *index;
        }
        let index = self.packed.len();
        self.packed.push(match &place.frame {
            None => PackedPlace::Root(place.task.clone(), place.address.clone()),
            Some(frame) => PackedPlace::Inner(place.task.clone(), place.address.clone(), frame.clone()),
        });
        self.known.insert(place, index);
        index
    }

    fn pack(&mut self, what: What) -> PackedWhat {
        match what {
            What::Started(place, run_as) => PackedWhat::Started(self.index(place), run_as),
            What::Ended(place, TaskEnd::Done) => PackedWhat::Done(self.index(place)),
            What::Ended(place, TaskEnd::Waiting) => PackedWhat::Waiting(self.index(place)),
            What::Ended(place, TaskEnd::Failed(message)) => PackedWhat::Failed(self.index(place), message),
            What::Ended(place, TaskEnd::Stopped) => PackedWhat::Stopped(self.index(place)),
            What::Wrote(place, writes) => PackedWhat::Wrote(self.index(place), writes),
            What::Values(seq, None) => PackedWhat::Values(seq),
            What::Values(seq, Some(frame)) => PackedWhat::InnerValues(seq, frame),
            What::Opened(id) => PackedWhat::Opened(id),
            What::Closed(id, status) => PackedWhat::Closed(id, status),
            What::Custom(address, payload) => PackedWhat::Custom(address, payload),
            What::Status(status, None) => PackedWhat::Status(status),
            What::Status(status, Some(reason)) => PackedWhat::StatusBecause(status, reason),
        }
    }
}

impl PackedPlace {
    fn unpack(self) -> TaskPlace {
        match self {
            Self::Root(task, address) => TaskPlace { task, address, frame: None },
            Self::Inner(task, address, frame) => TaskPlace { task, address, frame: Some(frame) },
        }
    }
}

impl PackedWhat {
    fn unpack(self, places: &[TaskPlace]) -> Option<What> {
        let place = |index: usize| places.get(index).cloned();
        let ended = |index: usize, end: TaskEnd| Some(What::Ended(place(index)?, end));
        match self {
            Self::Started(index, run_as) => Some(What::Started(place(index)?, run_as)),
            Self::Done(index) => ended(index, TaskEnd::Done),
            Self::Waiting(index) => ended(index, TaskEnd::Waiting),
            Self::Failed(index, message) => ended(index, TaskEnd::Failed(message)),
            Self::Stopped(index) => ended(index, TaskEnd::Stopped),
            Self::Wrote(index, writes) => Some(What::Wrote(place(index)?, writes)),
            Self::Values(seq) => Some(What::Values(seq, None)),
            Self::InnerValues(seq, frame) => Some(What::Values(seq, Some(frame))),
            Self::Opened(id) => Some(What::Opened(id)),
            Self::Closed(id, status) => Some(What::Closed(id, status)),
            Self::Custom(address, payload) => Some(What::Custom(address, payload)),
            Self::Status(status) => Some(What::Status(status, None)),
            Self::StatusBecause(status, reason) => Some(What::Status(status, Some(reason))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn place(task: &str, frame: Option<&str>) -> TaskPlace {
        let frame = frame.map(|id| FrameId::parse(id).expect("an id"));
        TaskPlace { task: task.into(), address: format!("g/{task}@3"), frame }
    }

    #[test]
    fn what_is_packed_comes_back_and_names_each_task_once() {
        let (root, inner) = (place("a", None), place("b#1", Some(&"0f".repeat(16))));
        let interrupt = || InterruptId::parse("ab".repeat(16)).expect("an id");
        let all = [
            What::Started(root.clone(), RunAs::Target),
            What::Started(inner.clone(), RunAs::Fresh),
            What::Ended(inner.clone(), TaskEnd::Failed("no line".into())),
            What::Ended(inner.clone(), TaskEnd::Stopped),
            What::Ended(root.clone(), TaskEnd::Waiting),
            What::Ended(root.clone(), TaskEnd::Done),
            What::Wrote(
                root,
                vec![("n".into(), Written::Value(json!([1]))), ("m".into(), Written::Items(0, 3, 5, 80))],
            ),
            What::Wrote(inner.clone(), vec![("n".into(), Written::Replaced(7, 300))]),
            What::Values(4, None),
            What::Values(0, inner.frame),
            What::Opened(interrupt()),
            What::Closed(interrupt(), "answered".into()),
            What::Custom("g/a@3/x[0]".into(), json!({"s": 1})),
            What::status("parked"),
            What::Status("held".into(), Some("lost".into())),
        ];
        let events: Vec<Event> =
            (0..).zip(all).map(|(n, what)| Event { at: Timestamp::from_micros(1_000 + n), what }).collect();
        let committed = Timestamp::from_micros(5_000);
        let text = serde_json::to_string(&Packed::new(events.clone(), committed)).expect("JSON");
        assert_eq!(text.matches("g/a@3\"").count(), 1, "{text}");
        let packed: Packed = serde_json::from_str(&text).expect("as it was");
        assert_eq!(packed.len(), events.len());
        let back: Option<Vec<Event>> = packed.unpack(committed).into_iter().collect();
        assert_eq!(back, Some(events));
    }
}
