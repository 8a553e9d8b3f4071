//! The writer's connection.
//!
//! A pool asks the database whether a connection is well whenever one is taken
//! and given back, which costs more than many a transaction. So the writer keeps
//! its connection while commands come, and gives it back when none has come for a
//! while. On SQLite, where the queue's carrier waits for the same one, it also
//! does so now and then in between.

use std::time::{Duration, Instant};

use super::super::super::StoreError;
use super::super::super::db::{Dialect, Link, Pools};

/// How long the connection is kept while no command comes.
pub(super) const KEPT_IDLE: Duration = Duration::from_millis(2);
/// How long it is kept at most while others may wait for it.
const KEPT_BUSY: Duration = Duration::from_millis(20);

/// A place for the connection between transactions.
pub(super) struct Hand {
    pools: Pools,
    kept: Option<Link>,
    since: Instant,
}

impl Hand {
    pub(super) fn new(pools: Pools) -> Self {
        Self { pools, kept: None, since: Instant::now() }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.pools.dialect()
    }

    pub(super) fn holds(&self) -> bool {
        self.kept.is_some()
    }

    /// Gives the connection back.
    pub(super) fn let_go(&mut self) {
        drop(self.kept.take());
    }

    /// Takes the connection, with a transaction begun on it.
    pub(super) async fn open(&mut self) -> Result<Open, StoreError> {
        if let Some(link) = self.kept.take() {
            let mut open = Open { link: Some(link) };
            match open.begin().await {
                Ok(()) => return Ok(open),
                // Lost since the last transaction; nothing was written yet.
                Err(error) => {
                    tracing::debug!(%error, "the writer's connection was lost; another is taken");
                    discard(open).await;
                }
            }
        }
        let mut open = Open { link: Some(self.pools.writing().await?) };
        self.since = Instant::now();
        if let Err(error) = open.begin().await {
            discard(open).await;
            return Err(error);
        }
        Ok(open)
    }

    /// Keeps a connection that is in no transaction.
    pub(super) fn keep(&mut self, link: Link) {
        if self.since.elapsed() < KEPT_BUSY {
            self.kept = Some(link);
        }
    }
}

/// A connection that may be in a transaction. Nobody else must get it then, also
/// if whatever uses it panics.
pub(super) struct Open {
    pub(super) link: Option<Link>,
}

impl Open {
    async fn begin(&mut self) -> Result<(), StoreError> {
        match &mut self.link {
            Some(link) => link.conn().begin().await,
            None => Ok(()),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(link) = &mut self.link {
            link.close_on_drop();
        }
    }
}

/// Closes a connection that is not where it should be: after an error that ended
/// the transaction by itself, say. The pool opens another.
pub(super) async fn discard(mut open: Open) {
    if let Some(link) = open.link.take()
        && let Err(error) = link.close().await
    {
        tracing::warn!(%error, "a connection to the database did not close cleanly");
    }
}
