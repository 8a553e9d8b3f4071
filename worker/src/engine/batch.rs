//! Many answers at once, over many threads.

use std::collections::BTreeMap;

use countersign_kernel::ids::{InterruptId, ThreadId};
use futures_util::stream::{self, StreamExt as _};

use super::{Engine, RequestError, VoteRequest};
use crate::store::commands::{IdempotencyEntry, RecordVote, VoteBatch, Voted};
use crate::store::{Refusal, StoreError};
use crate::tally::Count;

/// How many threads are written side by side: what else waits to be written
/// waits for these at most.
const SIDE_BY_SIDE: usize = 32;
/// How many votes are judged on one look.
const JUDGED_AT_ONCE: usize = 500;

/// How much of a batch stands or falls together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Together {
    /// All of it is judged before anything is recorded; if one is refused, none
    /// is.
    All,
    /// The answers to points of one thread.
    Thread,
    /// Each answer by itself.
    Each,
}

/// What became of one answer.
#[derive(Debug)]
pub enum BatchOutcome {
    /// It is on record.
    Voted(Voted),
    /// It was refused, or failed.
    Refused(RequestError),
    /// It was not recorded, because another that it stands or falls with was
    /// refused.
    LeftOut,
}

impl Engine {
    /// Records many answers, each judged as [`vote`](Self::vote) does. Each
    /// thread is one transaction with one job. What changes between the judgement
    /// of a whole and its recording is told answer by answer: those are refused,
    /// and the others stand.
    ///
    /// # Errors
    /// Only of the database, and only before anything was recorded; later ones
    /// are outcomes.
    pub async fn vote_many(
        &self,
        votes: Vec<VoteRequest>,
        together: Together,
        sees: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<BTreeMap<InterruptId, BatchOutcome>, RequestError> {
        if together == Together::All {
            let judged = self.judge_many(&votes, sees).await?;
            if judged.values().any(|outcome| matches!(outcome, BatchOutcome::Refused(_))) {
                return Ok(judged);
            }
        }
        let (threads, mut outcomes) = self.by_thread(votes, sees).await?;
        let whole = together == Together::Thread;
        let mut written = stream::iter(threads)
            .map(|(thread, votes)| self.vote_in(thread, votes, whole))
            .buffer_unordered(SIDE_BY_SIDE);
        while let Some(of_thread) = written.next().await {
            outcomes.extend(of_thread);
        }
        Ok(outcomes)
    }

    /// Judges many answers as [`vote_many`](Self::vote_many) would, and records
    /// none: what is not refused is left out.
    ///
    /// # Errors
    /// Only of the database.
    pub async fn judge_many(
        &self,
        votes: &[VoteRequest],
        sees: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<BTreeMap<InterruptId, BatchOutcome>, RequestError> {
        let (threads, mut outcomes) = self.by_thread(votes.to_vec(), sees).await?;
        let votes: Vec<RecordVote> = threads.into_values().flatten().map(|vote| self.record(vote)).collect();
        for votes in votes.chunks(JUDGED_AT_ONCE) {
            let judged = self.inner.store.judge_votes(votes).await?;
            for (vote, judged) in votes.iter().zip(judged) {
                let outcome = match judged {
                    Ok(()) | Err(Refusal::CarriesUpdate { .. }) => BatchOutcome::LeftOut,
                    Err(refusal) => BatchOutcome::Refused(refusal.into()),
                };
                outcomes.insert(vote.interrupt.clone(), outcome);
            }
        }
        Ok(outcomes)
    }

    /// Sorts votes by thread. Points that nobody knows, or of flows that the
    /// caller does not see, are refused as unknown.
    async fn by_thread(
        &self,
        votes: Vec<VoteRequest>,
        sees: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<(BTreeMap<ThreadId, Vec<VoteRequest>>, BTreeMap<InterruptId, BatchOutcome>), RequestError> {
        let ids: Vec<InterruptId> = votes.iter().map(|vote| vote.interrupt.clone()).collect();
        let places = self.inner.store.places_of(&ids).await?;
        let mut outcomes = BTreeMap::new();
        let mut threads: BTreeMap<ThreadId, Vec<VoteRequest>> = BTreeMap::new();
        for vote in votes {
            match places.get(&vote.interrupt).filter(|(_, graph)| sees(graph)) {
                Some((thread, _)) => threads.entry(thread.clone()).or_default().push(vote),
                None => {
                    let refusal = Refusal::UnknownInterrupt(vote.interrupt.clone()).into();
                    outcomes.insert(vote.interrupt, BatchOutcome::Refused(refusal));
                }
            }
        }
        Ok((threads, outcomes))
    }

    /// Keeps the reply of a request under its key (R26), after what it asked for
    /// was done by more than one command.
    ///
    /// # Errors
    /// Only of the database.
    pub async fn remember(&self, entry: IdempotencyEntry) -> Result<(), RequestError> {
        Ok(self.inner.store.remember(entry, self.inner.clock.now()).await?)
    }

    async fn vote_in(
        &self,
        thread: ThreadId,
        votes: Vec<VoteRequest>,
        whole: bool,
    ) -> Vec<(InterruptId, BatchOutcome)> {
        let batch = VoteBatch {
            thread: thread.clone(),
            votes: votes.iter().map(|vote| self.record(vote.clone())).collect(),
            whole,
            job: self.job(),
            now: self.inner.clock.now(),
        };
        let done = match self.inner.store.record_votes(batch).await {
            Ok(done) => done,
            Err(error) => {
                let failed = |vote: VoteRequest| {
                    (vote.interrupt, BatchOutcome::Refused(RequestError::Store(StoreError::clone(&error))))
                };
                return votes.into_iter().map(failed).collect();
            }
        };
        if let Some(message) = done.wake {
            self.hand_over(message);
        }
        let mut outcomes = Vec::with_capacity(votes.len());
        for (vote, outcome) in votes.into_iter().zip(done.outcomes) {
            let id = vote.interrupt.clone();
            let outcome = match outcome {
                Ok(Some(voted)) => {
                    if !voted.repeated {
                        self.inner.store.tally().add(Count::Answers);
                    }
                    BatchOutcome::Voted(voted)
                }
                Ok(None) => BatchOutcome::LeftOut,
                // Data for a stop goes with its release, alone (K12).
                Err(Refusal::CarriesUpdate { .. }) if !whole => match self.vote(vote).await {
                    Ok(voted) => BatchOutcome::Voted(voted),
                    Err(error) => BatchOutcome::Refused(error),
                },
                Err(refusal) => BatchOutcome::Refused(refusal.into()),
            };
            outcomes.push((id, outcome));
        }
        outcomes
    }
}
