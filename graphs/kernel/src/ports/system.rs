//! Time and chance.

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
