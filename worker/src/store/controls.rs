//! Controlling the flow of work: pause switches, limits, cancels that wait.
//!
//! They are rows, so they hold for every process of the database, and a claim
//! is judged by them in the transaction that would take the lease. A process
//! learns at its next sweep that there are any at all.

use async_trait::async_trait;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;

use super::commands::{Committed, FlowLimits, HoldBack, Operation, PauseSwitch, Serves, SwitchOf};
use super::{Due, StoreError};

/// What a point of priority is worth: a thread goes before those that have
/// waited at most so much longer, and after all others. So whatever its
/// priority, a thread is overtaken only by what came within a bounded time.
pub const HEAD_START_MICROS: i64 = 60_000_000;

/// The priorities that a thread can have.
pub const PRIORITIES: std::ops::RangeInclusive<i64> = -100..=100;

/// A thread's place among others: what has the lower one goes first.
#[must_use]
pub fn turn(since: Timestamp, priority: i64) -> i64 {
    since.as_micros().saturating_sub(HEAD_START_MICROS.saturating_mul(priority))
}

/// Pause switches, limits of flows, and cancels that wait for a running thread.
#[async_trait]
pub trait Controls: Send + Sync {
    /// Sets a switch; one that is there is replaced and keeps its start.
    /// Afterwards no process takes up what it pauses, after its next sweep at
    /// the latest; what runs comes to its next border first.
    ///
    /// # Errors
    /// Only of the database.
    async fn set_switch(&self, switch: PauseSwitch, id: &str) -> Result<(), StoreError>;

    /// Takes a switch away; whether there was one that held. Every process is
    /// called to look at what it held back.
    ///
    /// # Errors
    /// Only of the database.
    async fn end_switch(&self, of: &SwitchOf, by: &Principal, id: &str, now: Timestamp) -> Result<bool, StoreError>;

    /// The switches that hold.
    ///
    /// # Errors
    /// Only of the database.
    async fn switches(&self, now: Timestamp) -> Result<Vec<PauseSwitch>, StoreError>;

    /// Sets the limits of a flow; no limits at all take them away.
    ///
    /// # Errors
    /// Only of the database.
    async fn set_limits(
        &self,
        graph: &str,
        limits: FlowLimits,
        by: &Principal,
        id: &str,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// The flows that have limits, by name.
    ///
    /// # Errors
    /// Only of the database.
    async fn limits(&self) -> Result<Vec<(String, FlowLimits)>, StoreError>;

    /// Gives a thread back that may not go on for now. If something came in for
    /// it, that is returned instead and the lease is kept.
    ///
    /// # Errors
    /// [`StoreError::Fenced`].
    async fn hold_back(&self, hold: HoldBack) -> Result<Committed, StoreError>;

    /// Threads that were held back and may go on now, those first whose turn
    /// comes first: as many of each kind as there is room for.
    ///
    /// # Errors
    /// Only of the database.
    async fn in_turn(&self, serves: &Serves, now: Timestamp, limit: u32) -> Result<Vec<Due>, StoreError>;

    /// The threads under leases of `worker` that somebody asked to cancel.
    ///
    /// # Errors
    /// Only of the database.
    async fn cancelling(&self, worker: &str) -> Result<Vec<ThreadId>, StoreError>;

    /// Cancels running threads whose cancel was asked for before `asked_before`
    /// and whose holders have not stopped, at most `limit`: from now on these
    /// commit nothing. Says how many.
    ///
    /// # Errors
    /// Only of the database.
    async fn abandon(&self, asked_before: Timestamp, limit: u32, now: Timestamp) -> Result<u64, StoreError>;

    /// What operators did that is about no single thread, newest first.
    ///
    /// # Errors
    /// Only of the database.
    async fn operations(&self, limit: u32) -> Result<Vec<Operation>, StoreError>;
}
