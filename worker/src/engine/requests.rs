//! What callers ask of the engine: start, answer, resume, pause, cancel.

use std::collections::BTreeMap;

use countersign_kernel::canonical::content_hash;
use countersign_kernel::fault::Fault;
use countersign_kernel::ids::{InterruptId, RunId, ThreadId};
use countersign_kernel::machine::{Outside, Position, Resume};
use countersign_kernel::policy::Voter;
use countersign_kernel::principal::Principal;
use serde_json::Value;

use super::Engine;
use super::activation::index_changes;
use crate::queue::Message;
use crate::store::commands::{
    CreateThread, IdempotencyEntry, KeyIndex, NewCheckpoint, RecordVote, RestartThread, ResumeThread, Via, Voted,
};
use crate::store::{Accepted, Cancelled, Refusal, StoreError};

/// Why a request was not carried out. Nothing of it happened.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// This build has no such flow.
    #[error("there is no graph `{graph}`; known: {}", .known.join(", "))]
    UnknownGraph {
        /// The name asked for.
        graph: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The flow does not take this input.
    #[error("the input does not fit the graph")]
    InvalidInput(Vec<Fault>),
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Refusal> for RequestError {
    fn from(refusal: Refusal) -> Self {
        Self::Store(refusal.into())
    }
}

/// What a start led to.
#[derive(Debug, Clone, PartialEq)]
pub enum Started {
    /// It is committed.
    New {
        /// The thread.
        thread: ThreadId,
        /// The run.
        run: RunId,
        /// queued, or parked at a breakpoint before the first node.
        status: &'static str,
    },
    /// The same request was accepted before; here is what it got.
    Replayed {
        /// The first status.
        status: u16,
        /// The first body.
        body: String,
    },
}

/// One answer, from whichever door.
#[derive(Debug, Clone)]
pub struct VoteRequest {
    /// The interrupt.
    pub interrupt: InterruptId,
    /// Who answers.
    pub principal: Principal,
    /// Whether they may answer points that carry no policy.
    pub operator: bool,
    /// The answer.
    pub answer: Value,
    /// The revision they saw, if known.
    pub revision: Option<u32>,
    /// The content they saw, if known.
    pub content_hash: Option<String>,
    /// How it came.
    pub via: Via,
}

/// A resume of one thread, all or nothing.
#[derive(Debug, Clone)]
pub struct ResumeRequest {
    /// The thread.
    pub thread: ThreadId,
    /// Answers by interrupt.
    pub answers: BTreeMap<InterruptId, Value>,
    /// The parts that name no point.
    pub resume: Resume,
    /// Who asks; answers count as theirs.
    pub principal: Principal,
    /// Whether they may answer points that carry no policy.
    pub operator: bool,
    /// For a repeated request.
    pub idempotency: Option<IdempotencyEntry>,
}

/// Makes the reply of a request known before it is committed, so that it can
/// be kept with it.
pub type Reply<'a> = dyn Fn(&ThreadId, &RunId, &'static str) -> Option<IdempotencyEntry> + Send + Sync + 'a;

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
        let compiled = self.inner.graphs.get(graph).ok_or_else(|| RequestError::UnknownGraph {
            graph: graph.to_owned(),
            known: self.inner.graphs.keys().cloned().collect(),
        })?;
        let thread = match thread {
            Some(thread) => thread,
            None => self.fresh_id(ThreadId::parse)?,
        };
        let run: RunId = self.fresh_id(RunId::parse)?;
        let salt = self.inner.ids.salt();
        let (position, changes) =
            Position::start(compiled, salt, input, self.outside()).map_err(RequestError::InvalidInput)?;
        let (first, opened, mut messages) = self.first(compiled, &thread, &position, changes, KeyIndex::new(), 0, 0);
        let status = if opened.is_empty() { "queued" } else { "parked" };
        let command = CreateThread {
            run: run.clone(),
            graph: graph.to_owned(),
            salt,
            input_hash: content_hash(input),
            started_by: by.clone(),
            first,
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

    /// Gives new input to an existing thread. `reply` is kept with it, so that
    /// the same request again gets the same.
    ///
    /// # Errors
    /// As [`start`](Self::start); something waits and `discard` is not set.
    pub async fn restart(
        &self,
        thread: &ThreadId,
        input: &Value,
        discard: bool,
        by: &Principal,
        reply: &Reply<'_>,
    ) -> Result<Started, RequestError> {
        let held = self.inner.store.load(thread).await?;
        let compiled = self.inner.graphs.get(&held.graph).ok_or_else(|| RequestError::UnknownGraph {
            graph: held.graph.clone(),
            known: self.inner.graphs.keys().cloned().collect(),
        })?;
        let expected_head = held.checkpoint.id.clone();
        let (seq, branch, keys) = (held.seq, held.branch, held.keys);
        let mut position =
            Position::restore(compiled, held.salt, held.checkpoint, held.body, held.values, held.records);
        let changes = position.restart(compiled, input, self.outside()).map_err(RequestError::InvalidInput)?;
        let (next, opened, mut messages) = self.first(compiled, thread, &position, changes, keys, seq + 1, branch);
        let status = if opened.is_empty() { "queued" } else { "parked" };
        let run: RunId = self.fresh_id(RunId::parse)?;
        let command = RestartThread {
            thread: thread.clone(),
            run: run.clone(),
            expected_head,
            discard_waiting: discard,
            idempotency: reply(thread, &run, status),
            requested_by: by.clone(),
            next,
            opened,
            job: self.job(),
            now: self.inner.clock.now(),
        };
        match self.inner.store.restart(command).await? {
            Accepted::Replayed { status, body } => Ok(Started::Replayed { status, body }),
            Accepted::Committed(wake) => {
                messages.extend(wake);
                messages.into_iter().for_each(|message| self.hand_over(message));
                Ok(Started::New { thread: thread.clone(), run, status })
            }
        }
    }

    /// Records one person's answer; if it decides, the point wakes.
    ///
    /// # Errors
    /// Every refusal of K11.
    pub async fn vote(&self, vote: VoteRequest) -> Result<Voted, RequestError> {
        let mut voted = self.inner.store.record_vote(self.record(vote)).await?;
        if let Some(message) = voted.wake.take() {
            self.hand_over(message);
        }
        Ok(voted)
    }

    /// Resumes a thread with answers and flags, all or nothing.
    ///
    /// # Errors
    /// The first refusal, with nothing recorded.
    pub async fn resume(&self, request: ResumeRequest) -> Result<Accepted, RequestError> {
        let via = Via { channel: "api", identified: "token" };
        let votes = request
            .answers
            .into_iter()
            .map(|(interrupt, answer)| {
                self.record(VoteRequest {
                    interrupt,
                    principal: request.principal.clone(),
                    operator: request.operator,
                    answer,
                    revision: None,
                    content_hash: None,
                    via: via.clone(),
                })
            })
            .collect();
        let command = ResumeThread {
            thread: request.thread,
            run: self.fresh_id(RunId::parse)?,
            votes,
            resume: request.resume,
            requested_by: request.principal,
            job: self.job(),
            now: self.inner.clock.now(),
        };
        let accepted = self.inner.store.resume(command, request.idempotency).await?;
        if let Accepted::Committed(Some(message)) = &accepted {
            self.hand_over(message.clone());
        }
        Ok(accepted)
    }

    /// Runs failed tasks again with their recorded answers, or puts a held
    /// thread back to work.
    ///
    /// # Errors
    /// [`Refusal::NothingToRetry`].
    pub async fn retry(&self, thread: &ThreadId, by: &Principal) -> Result<(), RequestError> {
        let now = self.inner.clock.now();
        match self.inner.store.release_hold(thread, by, self.job(), now).await {
            Ok(message) => {
                self.hand_over(message);
                return Ok(());
            }
            Err(StoreError::Refused(Refusal::NothingPending)) => {}
            Err(error) => return Err(error.into()),
        }
        let request = ResumeRequest {
            thread: thread.clone(),
            answers: BTreeMap::new(),
            resume: Resume { retry: true, ..Resume::default() },
            principal: by.clone(),
            operator: true,
            idempotency: None,
        };
        self.resume(request).await.map(|_| ())
    }

    /// Asks for a pause at the next superstep border.
    ///
    /// # Errors
    /// The thread has ended or does not exist.
    pub async fn pause(&self, thread: &ThreadId, by: &Principal) -> Result<(), RequestError> {
        Ok(self.inner.store.pause(thread, by, self.inner.clock.now()).await?)
    }

    /// Cancels a thread, now or at its next commit.
    ///
    /// # Errors
    /// The thread has ended or does not exist.
    pub async fn cancel(&self, thread: &ThreadId, by: &Principal) -> Result<Cancelled, RequestError> {
        Ok(self.inner.store.cancel(thread, by, self.inner.clock.now()).await?)
    }

    fn record(&self, vote: VoteRequest) -> RecordVote {
        let roles = self.inner.directory.roles(&vote.principal);
        RecordVote {
            interrupt: vote.interrupt,
            voter: Voter { principal: vote.principal, roles },
            operator: vote.operator,
            answer: vote.answer,
            revision: vote.revision,
            content_hash: vote.content_hash,
            via: vote.via,
            job: self.job(),
            now: self.inner.clock.now(),
        }
    }

    fn outside(&self) -> Outside<'_> {
        Outside { ids: self.inner.ids.as_ref(), clock: self.inner.clock.as_ref() }
    }

    fn fresh_id<T, E: std::fmt::Display>(&self, parse: fn(String) -> Result<T, E>) -> Result<T, RequestError> {
        parse(self.inner.ids.uuid()).map_err(|error| StoreError::Database(error.to_string()).into())
    }

    #[allow(clippy::too_many_arguments, reason = "where a checkpoint stands is several numbers")]
    fn first(
        &self,
        graph: &countersign_kernel::graph::CompiledGraph,
        thread: &ThreadId,
        position: &Position,
        changes: countersign_kernel::machine::StepChanges,
        mut keys: KeyIndex,
        seq: i64,
        branch: i64,
    ) -> (NewCheckpoint, Vec<crate::store::commands::OpenedPoint>, Vec<Message>) {
        index_changes(&mut keys, &changes, seq, branch);
        let mut messages = Vec::new();
        let opened =
            position.points(graph).into_iter().map(|point| self.opened(thread, point, &mut messages)).collect();
        let first = NewCheckpoint {
            checkpoint: position.checkpoint.clone(),
            seq,
            branch,
            graph_version: graph.version(),
            fingerprint: graph.fingerprint().to_owned(),
            body: position.body(),
            keys,
            changes,
        };
        (first, opened, messages)
    }
}
