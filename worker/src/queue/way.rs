//! The two ways in which messages leave a transaction.

use std::fmt;
use std::sync::Arc;

use countersign_kernel::time::Timestamp;

use super::rows::QueueDepth;
use super::{JobId, Message, QueueError, Redis, outbox, rows};
use crate::store::db::Conn;

/// What brings messages from those who push them to those who receive them.
#[derive(Clone, Default)]
pub(crate) enum Transport {
    /// Rows of the store's database, which apalis fetches.
    #[default]
    Rows,
    /// A Redis, over the outbox.
    Redis(Arc<Redis>),
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows => f.write_str("Rows"),
            Self::Redis(redis) => redis.fmt(f),
        }
    }
}

impl Transport {
    pub(crate) fn way(&self) -> Way {
        match self {
            Self::Rows => Way::Rows,
            Self::Redis(_) => Way::Outbox,
        }
    }
}

/// Into which table messages are pushed, and from which they are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The carrier's own.
    Rows,
    /// The outbox.
    Outbox,
}

/// Inserts messages, in the transaction that `conn` is in. They can be fetched
/// or relayed once it commits; then call [`Wake::wake`](super::Wake::wake).
///
/// The time beside a message is what [`Message::run_after`] counts from. It has
/// to come from a clock that agrees with the system's, which the carrier's fetch
/// reads: with a clock that runs ahead, messages arrive that much late.
///
/// # Errors
/// If a row cannot be written; an id that is there already is such a case. The
/// caller has to roll back: messages before the one that failed are inserted.
pub(crate) async fn push(conn: &mut Conn<'_>, way: Way, messages: &[(Message, Timestamp)]) -> Result<(), QueueError> {
    match way {
        _ if messages.is_empty() => Ok(()),
        Way::Rows => rows::push(conn, messages).await,
        Way::Outbox => outbox::push(conn, messages).await,
    }
}

/// Deletes the rows of messages that were dealt with, in the transaction that
/// `conn` is in, by one statement. Tells how many there were: rows that are
/// gone already are not counted and no error.
///
/// # Errors
/// [`QueueError::Database`] if the statement fails.
pub(crate) async fn delete(conn: &mut Conn<'_>, way: Way, ids: &[JobId]) -> Result<u64, QueueError> {
    match way {
        _ if ids.is_empty() => Ok(0),
        Way::Rows => rows::delete(conn, ids).await,
        Way::Outbox => outbox::delete(conn, ids).await,
    }
}

/// Deletes, in the transaction that `conn` is in, rows that served no purpose
/// for long: those that were fetched before `before` and that nobody dealt with,
/// those whose work was done without them, and those that went the other way
/// and have been due since before `before`: the processes that took that way may
/// be gone. Whoever keeps the truth elsewhere and finds work without its message
/// calls this, so that rows whose message was dropped do not stay.
///
/// # Errors
/// [`QueueError::Database`] if a statement fails.
pub(crate) async fn tidy(conn: &mut Conn<'_>, way: Way, before: Timestamp, now: Timestamp) -> Result<u64, QueueError> {
    Ok(match way {
        Way::Rows => rows::delete_fetched(conn, before).await?,
        Way::Outbox => rows::delete_due(conn, before).await?,
    } + outbox::tidy(conn, before, now).await?)
}

/// How full the queues are: one entry for each of
/// [`JobKind::ALL`](super::JobKind::ALL), in that order.
///
/// # Errors
/// [`QueueError::Database`] if the statement fails.
pub(crate) async fn depths(conn: &mut Conn<'_>, way: Way) -> Result<Vec<QueueDepth>, QueueError> {
    match way {
        Way::Rows => rows::depths(conn).await,
        Way::Outbox => outbox::depths(conn).await,
    }
}

/// Gives back every message that was fetched or relayed. Tells how many.
///
/// For the start of the process, before a carrier runs: the data folder has
/// one process, so whatever is held is held by a dead one. Without this, the
/// carrier would find the dead workers by their heartbeats a minute later.
///
/// # Errors
/// [`QueueError::Database`] if a statement fails.
pub(crate) async fn give_back_all(conn: &mut Conn<'_>, way: Way) -> Result<u64, QueueError> {
    match way {
        Way::Rows => rows::give_back_all(conn).await,
        Way::Outbox => outbox::put_back_all(conn).await,
    }
}
