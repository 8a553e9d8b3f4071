//! What a running body has in hand: `cx`.

mod batch;
mod questions;
mod steps;
mod suspend;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use batch::Slot;
pub use steps::IdempotencyKey;
pub use suspend::Resumption;

use crate::address::Address;
use crate::ids::CheckpointId;
use crate::node::{NodeError, NodeResult};
use crate::occurrence::Occurrences;
use crate::ports::Effects;
use crate::resources::Resources;
use crate::state::StateView;
use crate::time::Timestamp;

/// What the executor gives a task to run with.
pub struct TaskScope {
    /// The task's address.
    pub address: Address,
    /// The checkpoint that planned the task (R7).
    pub planned_by: CheckpointId,
    /// The thread's salt.
    pub salt: [u8; 16],
    /// The state at the start of the superstep.
    pub state: Arc<StateView>,
    /// The task's own argument, if it was started with one (R3).
    pub argument: Option<Arc<serde_json::Value>>,
    /// The record so far.
    pub occurrences: Occurrences,
    /// The instant at which this run of the body starts.
    pub now: Timestamp,
    /// Whether open points run although nobody answered them (K10).
    pub resume_all: bool,
    /// Whether the task failed and was told to try again (K13).
    pub retry: bool,
    /// The largest payload of a question, in bytes.
    pub payload_bytes: usize,
    /// What the graph was given.
    pub resources: Arc<Resources>,
    /// Where results are made durable.
    pub effects: Arc<dyn Effects>,
}

/// The record after a body ended, and whether it stands before an open point.
#[derive(Debug)]
pub struct TaskRecordAfter {
    /// What was asked, answered and done.
    pub occurrences: Occurrences,
    /// The body reached a question that has no answer yet, so the task waits,
    /// whatever the body made of the signal.
    pub waits: bool,
}

struct Shared {
    planned_by: CheckpointId,
    salt: [u8; 16],
    state: Arc<StateView>,
    argument: Option<Arc<serde_json::Value>>,
    now: Timestamp,
    resume_all: bool,
    retry: bool,
    payload_bytes: usize,
    resources: Arc<Resources>,
    effects: Arc<dyn Effects>,
    occurrences: Mutex<Occurrences>,
    waits: AtomicBool,
}

/// Counts what one run of an occurrence has used, so that the k-th use meets
/// the k-th record.
#[derive(Default)]
struct Cursor {
    ordinal: u32,
    waits: bool,
    names: BTreeMap<String, u32>,
}

/// The hand of a running body. Cheap to clone; all clones are the same run.
#[derive(Clone)]
pub struct Context {
    shared: Arc<Shared>,
    address: Arc<Address>,
    cursor: Arc<Mutex<Cursor>>,
}

impl Context {
    /// Starts a run of a task.
    #[must_use]
    pub fn new(scope: TaskScope) -> Self {
        Self {
            shared: Arc::new(Shared {
                planned_by: scope.planned_by,
                salt: scope.salt,
                state: scope.state,
                argument: scope.argument,
                now: scope.now,
                resume_all: scope.resume_all,
                retry: scope.retry,
                payload_bytes: scope.payload_bytes,
                resources: scope.resources,
                effects: scope.effects,
                occurrences: Mutex::new(scope.occurrences),
                waits: AtomicBool::new(false),
            }),
            address: Arc::new(scope.address),
            cursor: Arc::default(),
        }
    }

    /// Takes the record once the body has ended.
    #[must_use]
    pub fn finish(&self) -> TaskRecordAfter {
        TaskRecordAfter {
            occurrences: std::mem::take(&mut *self.occurrences()),
            waits: self.shared.waits.load(Ordering::Acquire),
        }
    }

    /// The state at the start of the superstep, by key.
    #[must_use]
    pub fn state(&self) -> &Arc<StateView> {
        &self.shared.state
    }

    /// The argument that this task was started with, if any.
    #[must_use]
    pub fn argument(&self) -> Option<&serde_json::Value> {
        self.shared.argument.as_deref()
    }

    /// Something the graph was given from outside, by type.
    ///
    /// # Errors
    /// The graph was given no such thing.
    pub fn resource<T: Send + Sync + 'static>(&self) -> NodeResult<&T> {
        self.shared
            .resources
            .get::<T>()
            .ok_or_else(|| NodeError::failed(format!("the graph was given no {}", std::any::type_name::<T>())))
    }

    /// Where this runs: graph, node, slot…
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The instant at which this run of the body started. The same for the
    /// whole run; another one when the body runs again.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.now
    }

    /// A part of this occurrence, with its own record.
    fn part(&self, address: Address) -> Self {
        Self { shared: Arc::clone(&self.shared), address: Arc::new(address), cursor: Arc::default() }
    }

    fn occurrences(&self) -> MutexGuard<'_, Occurrences> {
        // A poisoned record is still a valid record: every change to it is a
        // single assignment or push.
        self.shared.occurrences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_ordinal(&self) -> u32 {
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let ordinal = cursor.ordinal;
        cursor.ordinal += 1;
        ordinal
    }

    /// `name` for its first use in this run, `name#1` for the second, and so
    /// on. Names that could be taken for such a one, or for a slot's result,
    /// always carry their number.
    fn nth_use(&self, name: &str) -> String {
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let count = cursor.names.entry(name.to_owned()).or_insert(0);
        let plain = *count == 0 && !name.contains('#') && name != batch::RESULT;
        let unique = if plain { name.to_owned() } else { format!("{name}#{count}") };
        *count += 1;
        unique
    }

    fn mark_waiting(&self) {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner).waits = true;
        self.shared.waits.store(true, Ordering::Release);
    }

    /// Whether this run of this occurrence reached an open point, its own or
    /// one of its parts'.
    fn waits(&self) -> bool {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner).waits
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("address", &self.address.to_string()).finish_non_exhaustive()
    }
}
