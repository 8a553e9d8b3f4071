//! The queue: wake-up messages, written in the store's own transactions.
//!
//! A message says "look at this thread" or "look at this delivery" and nothing
//! else; what there is to do is read from the store. Messages travel as job
//! rows of apalis, which is the carrier only: it fetches rows and calls a
//! handler that hands the [`Message`] to a [`Receiver`] and returns. Its
//! locks, acknowledgements, retries, limits and clean-up are unused. The life
//! of a row is ours:
//!
//! 1. `push` inserts it in the transaction that made the work;
//! 2. after the commit, [`Wake::wake`] tells the [`Carrier`] to fetch;
//! 3. a fetch marks it as held by the carrier's worker and the receiver gets
//!    the message;
//! 4. `delete` removes it in the transaction that did the work, or in which
//!    the work proved to be done or somebody else's.
//!
//! Delivery is **at least once**. A row that was fetched and not deleted is
//! given back when its worker ends ([`Carrier::run`]) or when the next process
//! starts (`give_back_all`); the same message then arrives again, under the
//! same id. A message may also arrive for a row that is gone by now. Receivers
//! have to find nothing to do in both cases.
//!
//! Where a [`Redis`] carries the messages, the rows are those of the
//! table `outbox`, and are relayed instead of fetched: see `queue/redis/mod.rs`.
//!
//! Types of apalis do not leave this module.

mod carrier;
mod listen;
mod message;
mod outbox;
mod poll;
mod redis;
mod rows;
#[cfg(test)]
mod tests;
mod way;
mod worker;

pub use carrier::{Carrier, Receiver};
pub(crate) use listen::call;
pub use message::{JobId, JobIdError, JobKind, Message};
pub use poll::Wake;
pub use redis::{Redis, RedisUrlError};
pub use rows::QueueDepth;
pub(crate) use rows::migrate;
pub(crate) use way::{Transport, Way, delete, depths, give_back_all, push, tidy};

/// Why the queue could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The database refused a statement or could not be reached.
    #[error("the queue's database failed: {0}")]
    Database(#[from] sqlx::Error),
    /// A statement on the carrier's tables failed.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    /// The carrier's tables could not be brought to their present form.
    #[error("the queue's tables could not be migrated: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    /// A message could not be written as JSON.
    #[error("a message could not be encoded: {0}")]
    Encode(#[from] serde_json::Error),
    /// Redis refused or could not be reached.
    #[error("Redis failed: {0}")]
    Redis(#[from] ::redis::RedisError),
    /// A worker of the carrier ended, by an error or a panic.
    #[error("the carrier's worker ended: {0}")]
    Worker(String),
}
