//! Starting threads, with input or with an edit.

use countersign_kernel::canonical::content_hash;
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::{RunId, ThreadId};
use countersign_kernel::machine::{Edit, FramePlace, Position, Resume, StepChanges};
use countersign_kernel::principal::Principal;
use serde_json::{Value, json};

use super::Engine;
use super::effects::{Rows, checkpoint_of};
use super::moves::Edited;
use super::requests::{Reply, RequestError, Started};
use crate::queue::Message;
use crate::store::Accepted;
use crate::store::commands::CreateThread;
use crate::store::controls::PRIORITIES;
use crate::tally::Count;

/// A thread to start.
#[derive(Debug, Clone)]
pub struct StartRequest<'a> {
    /// The flow.
    pub graph: &'a str,
    /// What the flow takes.
    pub input: &'a Value,
    /// The id to give it; a fresh one if `None`.
    pub thread: Option<ThreadId>,
    /// Another limit of supersteps for this run than the flow's.
    pub supersteps: Option<u32>,
    /// Another priority than the flow's; see [`PRIORITIES`].
    pub priority: Option<i64>,
    /// Another name for those that it is limited with than the flow's.
    pub limit_key: Option<String>,
    /// Who starts it.
    pub by: &'a Principal,
}

impl<'a> StartRequest<'a> {
    /// A thread with a fresh id, as its flow has it.
    #[must_use]
    pub fn new(graph: &'a str, input: &'a Value, by: &'a Principal) -> Self {
        Self { graph, input, thread: None, supersteps: None, priority: None, limit_key: None, by }
    }
}

/// The first checkpoint of a thread.
struct First {
    position: Position,
    changes: StepChanges,
    input_hash: String,
    order: Order,
}

/// In which order a thread is taken up.
struct Order {
    priority: i64,
    limit_key: Option<String>,
}

impl Engine {
    /// Starts a thread: checks the input, commits it with its first checkpoint
    /// and wake-up, and hands it to this process if there is room.
    ///
    /// # Errors
    /// Unknown graph, input that does not fit, a thread that exists.
    pub async fn start(
        &self,
        graph: &str,
        input: &Value,
        thread: Option<ThreadId>,
        by: &Principal,
    ) -> Result<Started, RequestError> {
        self.start_once(graph, input, thread, by, &|_, _, _| None).await
    }

    /// Starts a thread as [`start`](Self::start) does, and remembers the reply
    /// with it: the same request again gets the same reply (R26).
    ///
    /// # Errors
    /// As [`start`](Self::start); the key was used with another request.
    pub async fn start_once(
        &self,
        graph: &str,
        input: &Value,
        thread: Option<ThreadId>,
        by: &Principal,
        reply: &Reply<'_>,
    ) -> Result<Started, RequestError> {
        self.start_within(graph, input, thread, None, by, reply).await
    }

    /// As [`start_once`](Self::start_once), with another limit of supersteps for
    /// this run than the flow's.
    ///
    /// # Errors
    /// As [`start_once`](Self::start_once).
    pub async fn start_within(
        &self,
        graph: &str,
        input: &Value,
        thread: Option<ThreadId>,
        supersteps: Option<u32>,
        by: &Principal,
        reply: &Reply<'_>,
    ) -> Result<Started, RequestError> {
        self.start_as(StartRequest { thread, supersteps, ..StartRequest::new(graph, input, by) }, reply).await
    }

    /// Starts a thread in another order than its flow says.
    ///
    /// # Errors
    /// As [`start_once`](Self::start_once).
    pub async fn start_as(&self, request: StartRequest<'_>, reply: &Reply<'_>) -> Result<Started, RequestError> {
        let (command, messages) = self.creation_of(request)?;
        self.create(command, messages, reply).await
    }

    /// Whether a thread could be started so.
    ///
    /// # Errors
    /// Unknown graph, input that does not fit.
    pub(super) fn check_start(&self, graph: &str, input: &Value) -> Result<(), RequestError> {
        let compiled = self.graph(graph)?;
        Position::start(compiled, [0; 16], input, self.outside()).map_err(RequestError::InvalidInput)?;
        Ok(())
    }

    /// The command that starts a thread, and the messages that it enqueues
    /// beside the wake-up.
    pub(super) fn creation_of(&self, request: StartRequest<'_>) -> Result<(CreateThread, Vec<Message>), RequestError> {
        let StartRequest { graph, input, thread, supersteps, priority, limit_key, by } = request;
        let compiled = self.graph(graph)?;
        let thread = match thread {
            Some(thread) => thread,
            None => self.fresh_id(ThreadId::parse)?,
        };
        let salt = self.inner.ids.salt();
        let (position, changes) =
            Position::start(compiled, salt, input, self.outside()).map_err(RequestError::InvalidInput)?;
        let order = Order {
            priority: priority.unwrap_or(compiled.priority()).clamp(*PRIORITIES.start(), *PRIORITIES.end()),
            limit_key: limit_key.or_else(|| compiled.limit_key(input)).filter(|key| !key.is_empty()),
        };
        let first = First { position, changes, input_hash: content_hash(input), order };
        let limit = Resume { supersteps, ..Resume::default() };
        self.creation(compiled, thread, first, limit, by)
    }

    /// Starts a thread with an edit instead of input: as an edit of a thread
    /// that never ran. Nothing runs; what the edit makes due waits behind a
    /// pause point (R11). An edit after which nothing is due has the thread end
    /// at once.
    ///
    /// # Errors
    /// Unknown graph, a thread that exists; see [`EditRefused`](countersign_kernel::machine::EditRefused).
    pub async fn start_by_edit(
        &self,
        graph: &str,
        edit: &Edit,
        thread: ThreadId,
        by: &Principal,
    ) -> Result<Edited, RequestError> {
        let compiled = self.graph(graph)?;
        let salt = self.inner.ids.salt();
        let mut position = Position::unused(compiled, salt, FramePlace::root(compiled), self.outside());
        let changes = position.edit(compiled, edit, self.outside())?;
        // There is nothing before it that anybody could go back to.
        position.checkpoint.parent = None;
        let checkpoint = position.checkpoint.id.clone();
        let next = position.next_nodes().into_iter().map(str::to_owned).collect();
        let input_hash = content_hash(&json!({"values": edit.values, "as_node": edit.as_node}));
        let order = Order { priority: compiled.priority(), limit_key: None };
        let first = First { position, changes, input_hash, order };
        let (command, messages) = self.creation(compiled, thread, first, Resume::default(), by)?;
        match self.create(command, messages, &|_, _, _| None).await? {
            Started::New { status, .. } => Ok(Edited::New { checkpoint, status, next }),
            Started::Replayed { status, body } => Ok(Edited::Replayed { status, body }),
        }
    }

    fn creation(
        &self,
        graph: &CompiledGraph,
        thread: ThreadId,
        first: First,
        resume: Resume,
        by: &Principal,
    ) -> Result<(CreateThread, Vec<Message>), RequestError> {
        let First { position, changes, input_hash, order } = first;
        let first = checkpoint_of(graph, &position, changes, &mut Rows::default());
        let (opened, messages) = self.opened_points(&thread, position.points());
        let command = CreateThread {
            run: self.fresh_id(RunId::parse)?,
            graph: graph.name().to_owned(),
            salt: position.salt,
            input_hash,
            started_by: by.clone(),
            priority: order.priority,
            limit_key: order.limit_key,
            first,
            resume,
            opened,
            job: self.job(),
            idempotency: None,
            now: self.inner.clock.now(),
            thread,
        };
        Ok((command, messages))
    }

    async fn create(
        &self,
        mut command: CreateThread,
        mut messages: Vec<Message>,
        reply: &Reply<'_>,
    ) -> Result<Started, RequestError> {
        let (thread, run) = (command.thread.clone(), command.run.clone());
        let status = if command.opened.is_empty() { "queued" } else { "parked" };
        command.idempotency = reply(&thread, &run, status);
        match self.inner.store.create(command).await? {
            Accepted::Replayed { status, body } => Ok(Started::Replayed { status, body }),
            Accepted::Committed(wake) => {
                self.inner.store.tally().add(Count::RunsStarted);
                messages.extend(wake);
                messages.into_iter().for_each(|message| self.hand_over(message));
                Ok(Started::New { thread, run, status })
            }
        }
    }
}
