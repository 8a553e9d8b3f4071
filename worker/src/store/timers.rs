//! The instants that points wait for (K21).

use async_trait::async_trait;
use countersign_kernel::time::Timestamp;

use super::StoreError;
use super::commands::{DueTimers, FireTimer, Fired};

/// Durable timers. They are set and dropped by the commands that open and close
/// points.
#[async_trait]
pub trait Timers {
    /// The timers that are due, at most `limit`, and when the next one will be.
    /// Looking changes nothing.
    ///
    /// # Errors
    /// Only of the database.
    async fn due_timers(&self, now: Timestamp, limit: u32) -> Result<DueTimers, StoreError>;

    /// Fires a timer. Afterwards what it does is done and on record, all or
    /// none: the answer of its point, the audit row, and the job that wakes the
    /// point. Of many processes that fire it one does; of a timer and an answer
    /// that race, whichever is recorded first counts.
    ///
    /// # Errors
    /// Only of the database.
    async fn fire_timer(&self, fire: FireTimer) -> Result<Fired, StoreError>;
}
