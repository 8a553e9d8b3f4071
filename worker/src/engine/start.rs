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
use crate::store::Accepted;
use crate::store::commands::CreateThread;

/// The first checkpoint of a thread.
struct First {
    position: Position,
    changes: StepChanges,
    input_hash: String,
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
        let compiled = self.graph(graph)?;
        let thread = match thread {
            Some(thread) => thread,
            None => self.fresh_id(ThreadId::parse)?,
        };
        let salt = self.inner.ids.salt();
        let (position, changes) =
            Position::start(compiled, salt, input, self.outside()).map_err(RequestError::InvalidInput)?;
        let first = First { position, changes, input_hash: content_hash(input) };
        let limit = Resume { supersteps, ..Resume::default() };
        self.create(compiled, thread, first, limit, by, reply).await
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
        let first = First { position, changes, input_hash };
        match self.create(compiled, thread, first, Resume::default(), by, &|_, _, _| None).await? {
            Started::New { status, .. } => Ok(Edited::New { checkpoint, status, next }),
            Started::Replayed { status, body } => Ok(Edited::Replayed { status, body }),
        }
    }

    async fn create(
        &self,
        graph: &CompiledGraph,
        thread: ThreadId,
        first: First,
        resume: Resume,
        by: &Principal,
        reply: &Reply<'_>,
    ) -> Result<Started, RequestError> {
        let First { position, changes, input_hash } = first;
        let run: RunId = self.fresh_id(RunId::parse)?;
        let first = checkpoint_of(graph, &position, changes, &mut Rows::default());
        let (opened, mut messages) = self.opened_points(&thread, position.points());
        let status = if opened.is_empty() { "queued" } else { "parked" };
        let command = CreateThread {
            run: run.clone(),
            graph: graph.name().to_owned(),
            salt: position.salt,
            input_hash,
            started_by: by.clone(),
            first,
            resume,
            opened,
            job: self.job(),
            idempotency: reply(&thread, &run, status),
            now: self.inner.clock.now(),
            thread: thread.clone(),
        };
        match self.inner.store.create(command).await? {
            Accepted::Replayed { status, body } => Ok(Started::Replayed { status, body }),
            Accepted::Committed(wake) => {
                messages.extend(wake);
                messages.into_iter().for_each(|message| self.hand_over(message));
                Ok(Started::New { thread, run, status })
            }
        }
    }
}
