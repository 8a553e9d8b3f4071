//! Time and chance.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::time::Timestamp;

/// Where instants come from.
pub trait Clock: Send + Sync {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

/// Where fresh identifiers and random bytes come from.
pub trait Ids: Send + Sync {
    /// A new UUIDv7 as text: unique, and sorted by time of making.
    fn uuid(&self) -> String;
    /// Sixteen random bytes, for salts.
    fn salt(&self) -> [u8; 16];
}

/// What lets time pass while a body runs. Not durable: a process that dies
/// forgets what it waited for.
pub trait Timers: Send + Sync {
    /// Ends after `wait`: the pause between two attempts of a node.
    fn wait(&self, wait: Duration) -> BoxFuture<'static, ()>;
    /// Ends when an attempt that starts now has had `limit`. A host without
    /// time of its own never ends it.
    fn limit(&self, limit: Duration) -> BoxFuture<'static, ()>;
}
