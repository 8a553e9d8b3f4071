//! What happens in a thread, for whoever watches it (K22).
//!
//! Events change nothing. They are numbered per thread from 1, without gaps,
//! and become visible with the commit that makes true what they tell. What
//! lies in other rows anyway (a large value that became part of the state, what
//! a point asks, which checkpoint it was) is referred to and read back when
//! somebody asks.

use countersign_kernel::ids::{FrameId, InterruptId, ThreadId};
use countersign_kernel::machine::RunAs;
use countersign_kernel::state::Change;
use countersign_kernel::time::Timestamp;
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
/// about how many KiB it has.
#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    /// The value itself.
    Value(Value),
    /// The row that the checkpoint of this number wrote for the key.
    Replaced(i64, usize),
    /// The rows of these positions: branch, from, until.
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
            Written::Replaced(_, kib) | Written::Items(_, _, _, kib) => *kib << 10,
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
        (Change::Set(set), KeyAt::Value(seq)) if set == value => Some(Written::Replaced(*seq, size(value) >> 10)),
        (Change::Appended(items), KeyAt::Items(segments)) if value.as_array() == Some(items) => {
            let (branch, until) = segments.last()?;
            Some(Written::Items(*branch, until.checked_sub(items.len() as u64)?, *until, size(value) >> 10))
        }
        _ => None,
    }
}
