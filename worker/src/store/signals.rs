//! Events from outside.

use async_trait::async_trait;

use super::commands::SendSignal;
use super::{Accepted, StoreError};

/// Signals: kept until something waits for them, each taken once.
#[async_trait]
pub trait Signals {
    /// Sends a thread a signal. Afterwards it is on record; if a point waits for
    /// its name, the one that has waited longest is answered with it, with the
    /// job that wakes it, all or none. Otherwise it is kept: the first point to
    /// wait for the name takes it in the transaction that opens the point.
    ///
    /// # Errors
    /// [`Refusal::UnknownThread`](super::Refusal::UnknownThread),
    /// [`Refusal::ThreadEnded`](super::Refusal::ThreadEnded),
    /// [`Refusal::SignalsFull`](super::Refusal::SignalsFull),
    /// [`Refusal::KeyReused`](super::Refusal::KeyReused).
    async fn send_signal(&self, command: SendSignal) -> Result<Accepted, StoreError>;
}
