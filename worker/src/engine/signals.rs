//! Events from outside.

use countersign_kernel::ids::ThreadId;
use countersign_kernel::principal::Principal;
use serde_json::Value;

use super::{Engine, RequestError};
use crate::store::Accepted;
use crate::store::commands::{IdempotencyEntry, SendSignal};

impl Engine {
    /// Sends a thread a signal: the point that has waited longest for its name
    /// is answered with it, or it is kept for the first that will.
    ///
    /// # Errors
    /// The thread does not exist or has ended, or too many signals are kept for
    /// it.
    pub async fn signal(
        &self,
        thread: &ThreadId,
        name: &str,
        payload: Value,
        by: &Principal,
        idempotency: Option<IdempotencyEntry>,
    ) -> Result<Accepted, RequestError> {
        let command = SendSignal {
            thread: thread.clone(),
            name: name.to_owned(),
            payload,
            by: by.clone(),
            idempotency,
            job: self.job(),
            now: self.inner.clock.now(),
        };
        let accepted = self.inner.store.send_signal(command).await?;
        if let Accepted::Committed(Some(message)) = &accepted {
            self.hand_over(message.clone());
        }
        Ok(accepted)
    }
}
