//! Trying again what gave up.

use countersign_kernel::ids::DeliveryId;
use countersign_kernel::principal::Principal;

use super::Engine;
use super::requests::RequestError;
use crate::queue::JobKind;
use crate::store::dead_letters::{DeadLetter, DeadLetterFilter};
use crate::store::{Refusal, StoreError};

/// Most dead letters that one request tries again.
pub const RETRY_MAX: u32 = 1_000;

/// What a retry of dead letters led to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retried {
    /// Have fresh attempts.
    pub retried: u32,
    /// Nobody waits for them any more; their dead letters are gone.
    pub dropped: u32,
    /// Whether there are more that fit.
    pub more: bool,
}

impl Engine {
    /// Gives dead letters fresh attempts, the oldest first, at most
    /// [`RETRY_MAX`].
    ///
    /// # Errors
    /// The store failed; those that were tried again until then are.
    pub async fn retry_dead_letters(&self, filter: &DeadLetterFilter, by: &Principal) -> Result<Retried, RequestError> {
        let mut found = self.inner.store.dead_letters(filter, None, RETRY_MAX + 1).await?;
        let mut done = Retried { more: found.len() > RETRY_MAX as usize, ..Retried::default() };
        found.truncate(RETRY_MAX as usize);
        for letter in found {
            if self.retry_dead_letter(&letter, by).await? {
                done.retried += 1;
            } else {
                done.dropped += 1;
            }
        }
        Ok(done)
    }

    async fn retry_dead_letter(&self, letter: &DeadLetter, by: &Principal) -> Result<bool, RequestError> {
        let (now, job) = (self.inner.clock.now(), self.job());
        let message = match (letter.kind, DeliveryId::parse(letter.id.as_str())) {
            (JobKind::Deliver, Ok(delivery)) => {
                self.inner.store.retry_delivery(&letter.thread, &delivery, by, job, now).await?
            }
            _ => match self.inner.store.release_hold(&letter.thread, by, job, now).await {
                Ok(message) => Some(message),
                // Somebody else was faster.
                Err(StoreError::Refused(Refusal::NothingPending)) => None,
                Err(error) => return Err(error.into()),
            },
        };
        let retried = message.is_some();
        if let Some(message) = message {
            self.hand_over(message);
        }
        Ok(retried)
    }
}
