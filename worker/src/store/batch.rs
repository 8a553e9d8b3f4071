//! Many answers at once.

use std::collections::BTreeMap;

use async_trait::async_trait;
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::time::Timestamp;

use super::commands::{IdempotencyEntry, RecordVote, VoteBatch, Voted};
use super::{Refusal, StoreError};
use crate::queue::Message;

/// What became of a batch of one thread.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchDone {
    /// What became of each, in order. `None` if it was not recorded because
    /// another was refused.
    pub outcomes: Vec<Result<Option<Voted>, Refusal>>,
    /// The wake-up that was enqueued, if any of them decided.
    pub wake: Option<Message>,
}

/// The part of a store that takes many answers.
#[async_trait]
pub trait Batches: Send + Sync {
    /// The threads of these points and their flows. Points that are unknown are
    /// left out.
    ///
    /// # Errors
    /// Only of the database.
    async fn places_of(&self, points: &[InterruptId]) -> Result<BTreeMap<InterruptId, (ThreadId, String)>, StoreError>;

    /// Judges votes as [`record_vote`](super::Store::record_vote) would, one by
    /// one and without recording any. What is so a moment later may be another
    /// thing.
    ///
    /// # Errors
    /// Only of the database.
    async fn judge_votes(&self, votes: &[RecordVote]) -> Result<Vec<Result<(), Refusal>>, StoreError>;

    /// Records answers to points of one thread, in order, each judged as
    /// [`record_vote`](super::Store::record_vote) does, all in one transaction,
    /// with one job for all that decide.
    ///
    /// # Errors
    /// Only of the database; refusals are outcomes.
    async fn record_votes(&self, batch: VoteBatch) -> Result<BatchDone, StoreError>;

    /// Keeps a reply, so that a repetition of its request gets the same (R26). An
    /// earlier one stays.
    ///
    /// # Errors
    /// Only of the database.
    async fn remember(&self, entry: IdempotencyEntry, now: Timestamp) -> Result<(), StoreError>;
}
