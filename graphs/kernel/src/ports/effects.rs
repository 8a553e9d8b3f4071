//! How a running body makes results durable.

use async_trait::async_trait;
use serde_json::Value;

use crate::address::Address;

/// Why a result could not be made durable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EffectError {
    /// The lease is lost: another worker runs this thread now.
    #[error("the lease on this thread is lost")]
    LeaseLost,
    /// The store failed.
    #[error("the result could not be stored: {0}")]
    Store(String),
}

/// Receives results that must be durable before the body goes on (R10).
#[async_trait]
pub trait Effects: Send + Sync {
    /// Commits the result of a `step` or of a finished batch slot, fenced by
    /// the thread's lease. Once this returns `Ok`, a later run of the body
    /// gets the result instead of repeating the effect.
    ///
    /// # Errors
    /// The lease is lost, or the store failed; the body must stop.
    async fn record(&self, occurrence: &Address, name: &str, result: &Value) -> Result<(), EffectError>;
}
