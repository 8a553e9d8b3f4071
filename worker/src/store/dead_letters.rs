//! Work that gave up, until somebody looks.

use async_trait::async_trait;
use countersign_kernel::ids::{DeliveryId, ThreadId};
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;

use super::StoreError;
use super::views::Keyset;
use crate::queue::{JobId, JobKind, Message};

/// Work that gave up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The thread.
    pub thread: ThreadId,
    /// Names it within the thread.
    pub id: String,
    /// What was to be done: the thread to be advanced, or a delivery.
    pub kind: JobKind,
    /// The flow.
    pub graph: String,
    /// The channel, of a delivery.
    pub channel: Option<String>,
    /// Why it gave up.
    pub reason: String,
    /// After how many attempts.
    pub attempts: u32,
    /// When.
    pub died_at: Timestamp,
}

/// Which dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// Only of this kind.
    pub kind: Option<JobKind>,
    /// Only of these flows.
    pub graphs: Option<Vec<String>>,
    /// Only deliveries through this channel.
    pub channel: Option<String>,
    /// Only those that died before.
    pub before: Option<Timestamp>,
    /// Only of this thread.
    pub thread: Option<ThreadId>,
    /// Only the one of this id in its thread.
    pub id: Option<String>,
}

/// Looking at dead letters and trying again.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// Dead letters, oldest first.
    ///
    /// # Errors
    /// Only of the database.
    async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        after: Option<&Keyset>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, StoreError>;

    /// Gives a delivery that failed fresh attempts, with its job; its dead
    /// letter is gone. `None` if nobody waits for it any more: then only the
    /// dead letter goes.
    ///
    /// # Errors
    /// Only of the database.
    async fn retry_delivery(
        &self,
        thread: &ThreadId,
        delivery: &DeliveryId,
        by: &Principal,
        job: JobId,
        now: Timestamp,
    ) -> Result<Option<Message>, StoreError>;
}
