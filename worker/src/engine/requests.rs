//! What callers ask of the engine: answer, resume, pause, cancel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersign_kernel::fault::Fault;
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::{InterruptId, RunId, ThreadId};
use countersign_kernel::machine::{Amend, EditRefused, Misfit, Outside, Resume};
use countersign_kernel::policy::Voter;
use countersign_kernel::principal::Principal;
use serde_json::Value;

use super::Engine;
use super::restore::restore;
use crate::store::commands::{IdempotencyEntry, RecordVote, ResumeThread, Via, Voted};
use crate::store::{Accepted, Cancelled, Refusal, StoreError};
use crate::tally::Count;

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
    /// An edit, an amendment or a replay that cannot be done.
    #[error(transparent)]
    Edit(EditRefused),
    /// The thread does not fit this build (a newer version, a migration that
    /// refuses a value).
    #[error(transparent)]
    Misfit(#[from] Misfit),

    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<EditRefused> for RequestError {
    fn from(refused: EditRefused) -> Self {
        match refused {
            EditRefused::Invalid(faults) => Self::InvalidInput(faults),
            other => Self::Edit(other),
        }
    }
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
    /// More state and more tasks for the superstep that waits (R5).
    pub amend: Amend,
    /// Whether what an amendment starts in a thread that has ended may do again
    /// steps that were done (R13).
    pub re_execute: bool,
    /// The parts that name no point.
    pub resume: Resume,
    /// Who asks; answers count as theirs.
    pub principal: Principal,
    /// Whether they may answer points that carry no policy.
    pub operator: bool,
    /// For a repeated request.
    pub idempotency: Option<IdempotencyEntry>,
}

impl ResumeRequest {
    /// A resume of a thread that asks for nothing yet, by nobody.
    #[must_use]
    pub fn new(thread: ThreadId) -> Self {
        Self {
            thread,
            answers: BTreeMap::new(),
            amend: Amend::default(),
            re_execute: false,
            resume: Resume::default(),
            principal: Principal::service("local"),
            operator: false,
            idempotency: None,
        }
    }
}

/// Makes the reply of a request known before it is committed, so that it can
/// be kept with it.
pub type Reply<'a> = dyn Fn(&ThreadId, &RunId, &'static str) -> Option<IdempotencyEntry> + Send + Sync + 'a;

impl Engine {
    /// Records one person's answer; if it decides, the point wakes.
    ///
    /// # Errors
    /// Every refusal of K11.
    pub async fn vote(&self, vote: VoteRequest) -> Result<Voted, RequestError> {
        let mut voted = match self.inner.store.record_vote(self.record(vote.clone())).await {
            Err(StoreError::Refused(Refusal::CarriesUpdate { thread, .. })) => {
                return self.release_with_update(thread, vote).await;
            }
            voted => voted?,
        };
        if !voted.repeated {
            self.inner.store.tally().add(Count::Answers);
        }
        if let Some(message) = voted.wake.take() {
            self.hand_over(message);
        }
        Ok(voted)
    }

    /// Data for a stop is an update of the state that goes with its release (K12).
    async fn release_with_update(&self, thread: ThreadId, vote: VoteRequest) -> Result<Voted, RequestError> {
        let request = ResumeRequest {
            answers: BTreeMap::from([(vote.interrupt, vote.answer)]),
            principal: vote.principal,
            operator: vote.operator,
            ..ResumeRequest::new(thread.clone())
        };
        self.resume(request).await?;
        Ok(Voted { thread, decided: true, have: 1, need: 1, repeated: false, wake: None })
    }

    /// Resumes a thread with answers, amendments and flags, all or nothing.
    ///
    /// # Errors
    /// The first refusal, with nothing recorded.
    pub async fn resume(&self, request: ResumeRequest) -> Result<Accepted, RequestError> {
        let (thread, operator) = (request.thread.clone(), request.operator);
        match self.resume_known(request).await {
            Err(RequestError::Store(StoreError::Refused(Refusal::UnknownInterrupt(id)))) if operator => {
                Err(self.unknown_point(&thread, id).await)
            }
            resumed => resumed,
        }
    }

    /// Why an id that the store does not know takes no answer: it is that of a
    /// container around an open point, which is listed with it and takes no
    /// data (K11), or nobody's.
    async fn unknown_point(&self, thread: &ThreadId, id: InterruptId) -> RequestError {
        let view = match self.view(thread).await {
            Ok(view) => view,
            Err(error) => return error,
        };
        let is_container = view.parents.values().flatten().any(|container| container.id == id);
        if is_container {
            Refusal::NotAnswerable { interrupt: id }.into()
        } else {
            Refusal::UnknownInterrupt(id).into()
        }
    }

    async fn resume_known(&self, mut request: ResumeRequest) -> Result<Accepted, RequestError> {
        let (amended, guard) = self.amendments(&mut request).await?;
        let replaced = self.replaced(&request).await?;
        let via = Via { channel: "api", identified: "token" };
        let votes = request
            .answers
            .into_iter()
            .map(|(interrupt, answer)| {
                let replace = replaced.contains(&interrupt);
                let vote = self.record(VoteRequest {
                    interrupt,
                    principal: request.principal.clone(),
                    operator: request.operator,
                    answer,
                    revision: None,
                    content_hash: None,
                    via: via.clone(),
                });
                RecordVote { replace, ..vote }
            })
            .collect();
        let command = ResumeThread {
            thread: request.thread,
            run: self.fresh_id(RunId::parse)?,
            votes,
            resume: request.resume,
            amended,
            guard,
            requested_by: request.principal,
            job: self.job(),
            now: self.inner.clock.now(),
        };
        let answers = command.votes.len();
        let accepted = self.inner.store.resume(command, request.idempotency).await?;
        if let Accepted::Committed(wake) = &accepted {
            self.inner.store.tally().add(Count::Resumes);
            self.inner.store.tally().add_many(Count::Answers, answers);
            wake.iter().for_each(|message| self.hand_over(message.clone()));
        }
        Ok(accepted)
    }

    /// Which answers of a retry replace those that failed tasks were given (R9).
    async fn replaced(&self, request: &ResumeRequest) -> Result<BTreeSet<InterruptId>, RequestError> {
        if !request.resume.retry || !request.operator || request.answers.is_empty() {
            return Ok(BTreeSet::new());
        }
        let mut held = self.inner.store.load(&request.thread).await?;
        let graph = self.graph(&held.graph)?;
        let restored = restore(graph, &mut held)?;
        Ok(request.answers.keys().filter(|id| restored.position.decided(id).is_some()).cloned().collect())
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
            resume: Resume { retry: true, ..Resume::default() },
            principal: by.clone(),
            operator: true,
            ..ResumeRequest::new(thread.clone())
        };
        self.resume(request).await.map(|_| ())
    }

    /// Asks for a pause: at the next superstep border, or, with `now`, at once
    /// if this process runs the thread: bodies are dropped where they wait and
    /// run again later with the same input. A thread at rest pauses there.
    ///
    /// # Errors
    /// The thread has ended or does not exist.
    pub async fn pause(&self, thread: &ThreadId, now: bool, by: &Principal) -> Result<(), RequestError> {
        let wake = self.inner.store.pause(thread, by, self.job(), self.inner.clock.now()).await?;
        let signal = self.stop_signal(thread);
        if now {
            signal.now();
        } else {
            signal.graceful();
        }
        if let Some(message) = wake {
            self.hand_over(message);
        }
        Ok(())
    }

    /// Cancels a thread: now if it is at rest. Bodies that run are told, and
    /// have a grace before they are dropped; other processes learn of it at
    /// their next sweep.
    ///
    /// # Errors
    /// The thread has ended or does not exist.
    pub async fn cancel(&self, thread: &ThreadId, by: &Principal) -> Result<Cancelled, RequestError> {
        let cancelled = self.inner.store.cancel(thread, by, self.inner.clock.now()).await?;
        if cancelled == Cancelled::Requested {
            self.tell_of_cancel(thread);
        }
        Ok(cancelled)
    }

    pub(super) fn record(&self, vote: VoteRequest) -> RecordVote {
        let roles = self.inner.directory.roles(&vote.principal);
        RecordVote {
            interrupt: vote.interrupt,
            voter: Voter { principal: vote.principal, roles },
            operator: vote.operator,
            answer: vote.answer,
            revision: vote.revision,
            content_hash: vote.content_hash,
            replace: false,
            via: vote.via,
            job: self.job(),
            now: self.inner.clock.now(),
        }
    }

    pub(super) fn outside(&self) -> Outside<'_> {
        Outside { ids: self.inner.ids.as_ref(), clock: self.inner.clock.as_ref() }
    }

    pub(super) fn fresh_id<T, E: std::fmt::Display>(
        &self,
        parse: fn(String) -> Result<T, E>,
    ) -> Result<T, RequestError> {
        parse(self.inner.ids.uuid()).map_err(|error| StoreError::Database(error.to_string()).into())
    }

    pub(super) fn graph(&self, graph: &str) -> Result<&Arc<CompiledGraph>, RequestError> {
        self.inner.graphs.get(graph).ok_or_else(|| RequestError::UnknownGraph {
            graph: graph.to_owned(),
            known: self.inner.graphs.keys().cloned().collect(),
        })
    }
}
