//! The worker: where truth is kept, and who acts on it.
//!
//! - [`store`]: the database; every command is atomic.
//! - [`queue`]: wake-up messages, carried by apalis.
//! - [`engine`]: leases, bodies, commits, deliveries, the sweep.
//! - [`schedule`]: when a schedule ticks.
//! - [`tally`]: what the process has done, in numbers.
//! - [`system`]: the one place that reads the clock and makes ids.

pub mod engine;
pub mod queue;
pub mod schedule;
pub mod store;
pub mod system;
pub mod tally;
