//! What a running body has in hand: `cx`.

mod batch;
mod cancel;
mod child;
mod frame;
mod questions;
mod steps;
mod suspend;
mod waits;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use batch::Slot;
pub use questions::Signed;
pub use steps::IdempotencyKey;
pub use suspend::Resumption;
pub use waits::{SIGNAL_NAME_BYTES, is_signal_name};

use serde::de::DeserializeOwned;

use crate::address::{Address, SegmentKind};
use crate::ids::{CheckpointId, FrameId};
use crate::limits;
use crate::machine::{Frames, Position};
use crate::node::{NodeError, NodeResult};
use crate::occurrence::Occurrences;
use crate::ports::{EffectError, Host};
use crate::resources::Resources;
use crate::state::StateView;
use crate::time::Timestamp;

/// What the executor gives a task to run with.
pub struct TaskScope {
    /// The task's address.
    pub address: Address,
    /// The frame in which it runs; `None` is the root frame.
    pub frame: Option<FrameId>,
    /// The task's key in its checkpoint.
    pub task: String,
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
    /// The graphs that it runs inside, as far as they have come.
    pub frames: Frames,
    /// The instant at which this run of the body starts.
    pub now: Timestamp,
    /// Whether open points run although nobody answered them (K10).
    pub resume_all: bool,
    /// Whether the task failed and was told to try again (K13).
    pub retry: bool,
    /// The largest payload of a question, in bytes.
    pub payload_bytes: usize,
    /// How many supersteps a graph inside may take in this run.
    pub supersteps: u32,
    /// What the graph was given.
    pub resources: Arc<Resources>,
    /// The world outside the kernel.
    pub host: Arc<Host>,
}

/// The record after a body ended, and whether it stands before an open point.
#[derive(Debug)]
pub struct TaskRecordAfter {
    /// What was asked, answered and done.
    pub occurrences: Occurrences,
    /// The graphs inside that have not ended with the task.
    pub frames: Frames,
    /// The body reached a question that has no answer yet, so the task waits,
    /// whatever the body made of the signal.
    pub waits: bool,
    /// Where watchers are told of the end.
    pub(crate) host: Arc<Host>,
}

struct Shared {
    scope: Fixed,
    occurrences: Mutex<Occurrences>,
    frames: Mutex<Frames>,
    waits: AtomicBool,
    /// A request was not decided in time, and that is why the body fails.
    missed: AtomicBool,
}

/// The parts of a [`TaskScope`] that do not change while the task runs.
struct Fixed {
    frame: Option<FrameId>,
    task: String,
    planned_by: CheckpointId,
    salt: [u8; 16],
    state: Arc<StateView>,
    argument: Option<Arc<serde_json::Value>>,
    now: Timestamp,
    resume_all: bool,
    retry: bool,
    payload_bytes: usize,
    supersteps: u32,
    resources: Arc<Resources>,
    host: Arc<Host>,
}

/// Counts what one run of an occurrence has used, so that the k-th use meets
/// the k-th record.
#[derive(Default)]
struct Cursor {
    ordinal: u32,
    waits: bool,
    names: BTreeMap<String, u32>,
    entries: BTreeMap<(SegmentKind, String), u64>,
}

/// The hand of a running body. Cheap to clone; all clones are the same run.
#[derive(Clone)]
pub struct Context {
    shared: Arc<Shared>,
    address: Arc<Address>,
    cursor: Arc<Mutex<Cursor>>,
    attempt: u32,
}

impl Context {
    /// Starts a run of a task.
    #[must_use]
    pub fn new(scope: TaskScope) -> Self {
        Self {
            shared: Arc::new(Shared {
                scope: Fixed {
                    frame: scope.frame,
                    task: scope.task,
                    planned_by: scope.planned_by,
                    salt: scope.salt,
                    state: scope.state,
                    argument: scope.argument,
                    now: scope.now,
                    resume_all: scope.resume_all,
                    retry: scope.retry,
                    payload_bytes: scope.payload_bytes,
                    supersteps: scope.supersteps,
                    resources: scope.resources,
                    host: scope.host,
                },
                occurrences: Mutex::new(scope.occurrences),
                frames: Mutex::new(scope.frames),
                waits: AtomicBool::new(false),
                missed: AtomicBool::new(false),
            }),
            address: Arc::new(scope.address),
            cursor: Arc::default(),
            attempt: 1,
        }
    }

    /// Takes the record once the body has ended.
    #[must_use]
    pub fn finish(&self) -> TaskRecordAfter {
        TaskRecordAfter {
            occurrences: std::mem::take(&mut *self.occurrences()),
            frames: std::mem::take(&mut *self.frames()),
            waits: self.shared.waits.load(Ordering::Acquire),
            host: Arc::clone(self.host()),
        }
    }

    /// The state at the start of the superstep, by key.
    #[must_use]
    pub fn state(&self) -> &Arc<StateView> {
        &self.shared.scope.state
    }

    /// The argument that this task was started with, if any.
    #[must_use]
    pub fn argument(&self) -> Option<&serde_json::Value> {
        self.shared.scope.argument.as_deref()
    }

    /// The argument that this task was started with, as a type.
    ///
    /// # Errors
    /// The task was started without one, or it does not read as `T`.
    pub fn argument_as<T: DeserializeOwned>(&self) -> NodeResult<T> {
        let argument = self.argument().ok_or_else(|| NodeError::failed("the task was started without an argument"))?;
        T::deserialize(argument).map_err(|problem| NodeError::failed(format!("the argument does not fit: {problem}")))
    }

    /// Which attempt of this run it is, from 1 (see
    /// [`NodePolicy::retry`](crate::node::NodePolicy::retry)).
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Tells watchers something while the body runs: a token of a model, how
    /// far an import has come. It changes nothing, and a body that runs again
    /// says it again.
    ///
    /// # Errors
    /// It is too large (R30), the lease is lost, or the store failed.
    pub async fn emit(&self, event: impl Into<serde_json::Value>) -> NodeResult<()> {
        let event = event.into();
        limits::check(|| "the event".into(), "payload_bytes", &event, self.shared.scope.payload_bytes)
            .map_err(NodeError::Failed)?;
        durable(self.host().effects.emit(&self.address, &event).await)
    }

    /// Something the graph was given from outside, by type.
    ///
    /// # Errors
    /// The graph was given no such thing.
    pub fn resource<T: Send + Sync + 'static>(&self) -> NodeResult<&T> {
        let resources = &self.shared.scope.resources;
        resources
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
        self.shared.scope.now
    }

    /// A part of this occurrence, with its own record.
    fn part(&self, address: Address) -> Self {
        let shared = Arc::clone(&self.shared);
        Self { shared, address: Arc::new(address), cursor: Arc::default(), attempt: self.attempt }
    }

    /// The same occurrence, counting from its start again.
    pub(crate) fn attempt_number(&self, attempt: u32) -> Self {
        Self { attempt, cursor: Arc::default(), ..self.clone() }
    }

    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.shared.scope.host
    }

    fn occurrences(&self) -> MutexGuard<'_, Occurrences> {
        // A poisoned record is still a valid record: every change to it is a
        // single assignment or push.
        self.shared.occurrences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn frames(&self) -> MutexGuard<'_, Frames> {
        self.shared.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parked: something in this occurrence (or in its parts, if those count)
    /// is open and nothing came in for it, so it must not run (K7).
    fn is_parked(&self, parts: bool) -> bool {
        let frames = self.frames();
        let inside: Vec<&Position> =
            frames.iter().filter(|(address, _)| self.address.contains(address)).map(|(_, frame)| frame).collect();
        if inside.iter().any(|frame| frame.can_go_on()) {
            return false;
        }
        let occurrences = self.occurrences();
        let open_inside = parts && inside.iter().any(|frame| frame.has_open());
        occurrences.is_parked(&self.address, parts) || (open_inside && !occurrences.has_target(&self.address))
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
        let plain = *count == 0 && !name.contains('#') && name != child::RESULT;
        let unique = if plain { name.to_owned() } else { format!("{name}#{count}") };
        *count += 1;
        unique
    }

    /// Which entry this is of the parts of one kind and name in this run (R6).
    fn nth_entry(&self, kind: SegmentKind, name: &str) -> u64 {
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let count = cursor.entries.entry((kind, name.to_owned())).or_insert(0);
        let visit = *count;
        *count += 1;
        visit
    }

    fn mark_waiting(&self) {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner).waits = true;
        self.shared.waits.store(true, Ordering::Release);
    }

    /// Whether the task reached an open point, in whichever part.
    pub(crate) fn is_waiting(&self) -> bool {
        self.shared.waits.load(Ordering::Acquire)
    }

    /// Whether the task fails by a deadline: another attempt changes nothing.
    pub(crate) fn missed_a_deadline(&self) -> bool {
        self.shared.missed.load(Ordering::Acquire)
    }

    /// Whether this run of this occurrence reached an open point, its own or
    /// one of its parts'.
    fn waits(&self) -> bool {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner).waits
    }
}

/// How a failed attempt to make something durable ends a body.
fn durable(result: Result<(), EffectError>) -> NodeResult<()> {
    result.map_err(|error| match error {
        EffectError::LeaseLost => NodeError::LeaseLost,
        EffectError::Store(problem) => NodeError::Failed(problem),
    })
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("address", &self.address.to_string()).finish_non_exhaustive()
    }
}
