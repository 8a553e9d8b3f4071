//! A command's view of the transaction that it shares with others.

use std::collections::HashSet;

use countersign_kernel::ids::{InterruptId, RunId, ThreadId};
use countersign_kernel::time::Timestamp;
use serde_json::json;

use super::super::StoreError;
use super::super::db::{self, Arg, Conn};
use super::later::{Change, Later, Mark, Table};
use super::writer::Locks;
use crate::queue::{JobId, Message, Way};

/// The transaction of a group of commands, in the hands of one of them.
///
/// What nobody needs to read goes [`later`](Self::insert), together with that of
/// the other commands. A command that is refused must not have written anything
/// [at once](Self::now) without a savepoint; [`now`](Self::now) sets one.
pub(super) struct Tx<'c> {
    conn: Conn<'c>,
    later: Later,
    /// Where messages go.
    way: Way,
    /// What waited when the present command began.
    began: Mark,
    /// Whether there are other commands in the group.
    shared: bool,
    /// Whether the present command has a savepoint.
    saved: bool,
    /// The threads, and the requests under a key, of which something may wait.
    touched: HashSet<String>,
}

impl<'c> Tx<'c> {
    /// Of a group of commands, or of a single one, on a connection that
    /// has [begun](Conn::begin) a transaction.
    pub(super) fn new(conn: Conn<'c>, way: Way, shared: bool) -> Self {
        let (later, touched) = (Later::default(), HashSet::new());
        Self { conn: conn.in_transaction(), later, way, began: Mark::default(), shared, saved: false, touched }
    }

    /// Puts a row down, to be written before the transaction ends.
    pub(super) fn insert(&mut self, table: Table, row: Vec<Arg>) {
        self.later.insert(table, row);
    }

    /// Puts a message down that is enqueued with the transaction.
    pub(super) fn push(&mut self, message: Message, now: Timestamp) {
        self.later.push(message, now);
    }

    /// Notes jobs that are deleted with the transaction.
    pub(super) fn delete(&mut self, jobs: &[JobId]) {
        self.later.delete(jobs);
    }

    /// For statements that read or write whatever they like. What waits is
    /// written before, so that they see it.
    pub(super) async fn now(&mut self) -> Result<&mut Conn<'c>, StoreError> {
        if self.shared && !self.saved {
            // What the commands before put down is theirs; the present one's
            // comes behind the savepoint.
            let own = self.later.split_off(self.began);
            self.later.write(&mut self.conn, self.way).await?;
            self.later = own;
            self.began = Mark::default();
            self.conn.control("SAVEPOINT command").await?;
            self.saved = true;
        }
        if !self.later.is_empty() {
            self.later.write(&mut self.conn, self.way).await?;
        }
        Ok(&mut self.conn)
    }

    /// For statements about the threads that the command has locked: they see
    /// all that commands before did to them, but not what the present one has
    /// put down. Without a savepoint a command must not be refused once it has
    /// written something through this: the last that can refuse it is a
    /// statement that then has written nothing.
    pub(super) fn own(&mut self) -> &mut Conn<'c> {
        &mut self.conn
    }

    /// The runs that wait are running.
    pub(super) fn runs_run(&mut self, thread: &ThreadId) {
        self.later.change(Change::RunsRun, json!([thread.as_str()]));
    }

    /// The runs have been taken up.
    pub(super) fn take(&mut self, thread: &ThreadId, runs: &[RunId]) {
        for run in runs {
            self.later.change(Change::RunTaken, json!([thread.as_str(), run.as_str()]));
        }
    }

    /// A run is terminal when the thread next rests (R16).
    pub(super) fn finish_runs(&mut self, thread: &ThreadId, status: &str, now: Timestamp) {
        self.later.change(Change::RunsEnd, json!([thread.as_str(), status, now.as_micros()]));
    }

    /// The answers were run with, by the holder of this fence.
    pub(super) fn consume(&mut self, thread: &ThreadId, answers: &[InterruptId], fence: i64) {
        for id in answers {
            self.later.change(Change::AnswerConsumed, json!([thread.as_str(), id.as_str(), fence]));
        }
    }

    /// Puts a change of one interrupt of a thread down.
    pub(super) fn change(&mut self, change: Change, thread: &ThreadId, id: &InterruptId, more: Option<i64>) {
        self.later.change(change, json!([thread.as_str(), id.as_str(), more]));
    }

    /// Begins a command that has these locks. What commands before it put down
    /// for the same threads is written now, so that it sees it.
    pub(super) async fn begin(&mut self, locks: &Locks) -> Result<(), StoreError> {
        let names = || locks.threads.iter().chain(&locks.request);
        if names().any(|name| self.touched.contains(name)) {
            self.later.write(&mut self.conn, self.way).await?;
            self.touched.clear();
        }
        self.touched.extend(names().cloned());
        self.began = self.later.mark();
        self.saved = false;
        Ok(())
    }

    /// Ends the present command; what it did stands, or none of it.
    pub(super) async fn end(&mut self, stands: bool) -> Result<(), StoreError> {
        if !stands {
            self.later.back_to(self.began);
        }
        if self.saved {
            let end = if stands {
                "RELEASE SAVEPOINT command"
            } else {
                "ROLLBACK TO SAVEPOINT command; RELEASE SAVEPOINT command"
            };
            self.conn.control(end).await?;
        }
        Ok(())
    }

    /// Writes what waits.
    pub(super) async fn finish(&mut self) -> Result<(), StoreError> {
        self.later.write(&mut self.conn, self.way).await
    }

    /// Makes everything durable.
    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        db::query("COMMIT").execute(&mut self.conn).await.map(|_| ())
    }

    /// Undoes everything. Fails if the database has done so by itself.
    pub(super) async fn roll_back(mut self) -> Result<(), StoreError> {
        if self.conn.abandon() {
            db::query("ROLLBACK").execute(&mut self.conn).await?;
        }
        Ok(())
    }
}
