//! Rows that wait for the end of a group of commands.
//!
//! Most of what a command writes nobody reads before the transaction ends. So
//! it is only put down here, and the rows of all commands of a group go into
//! each table together. Whoever needs to read before that has them written
//! first: see [`Tx`](super::tx::Tx).

use std::collections::HashMap;
use std::sync::OnceLock;

use countersign_kernel::time::Timestamp;
use serde_json::Value;

use super::super::StoreError;
use super::super::db::{self, Arg, Conn, Insert, Kind, Sql};
use crate::queue::{self, JobId, Message, Way};

use Kind::{Bytes, Int, Text};

/// A table that rows wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Checkpoints,
    Values,
    Items,
    Tasks,
    Steps,
    Runs,
    Interrupts,
    Requests,
    Approvers,
    Deliveries,
    Votes,
    Answers,
    Audit,
    Events,
    Replies,
    Timers,
    Signals,
}

/// In the order of [`Table`].
static INSERTS: [Insert; 17] = [
    Insert {
        table: "checkpoints",
        columns: &[
            ("thread", Text),
            ("frame", Text),
            ("seq", Int),
            ("checkpoint", Text),
            ("parent", Text),
            ("branch", Int),
            ("source", Text),
            ("superstep", Int),
            ("graph_version", Int),
            ("fingerprint", Text),
            ("body", Bytes),
            ("keys", Bytes),
            ("codec", Int),
            ("created_at", Int),
        ],
        conflict: "",
    },
    Insert {
        table: "state_values",
        columns: &[("thread", Text), ("frame", Text), ("key", Text), ("seq", Int), ("value", Bytes), ("codec", Int)],
        conflict: "",
    },
    Insert {
        table: "state_items",
        columns: &[
            ("thread", Text),
            ("frame", Text),
            ("key", Text),
            ("branch", Int),
            ("position", Int),
            ("value", Bytes),
            ("codec", Int),
        ],
        conflict: "",
    },
    Insert {
        table: "tasks",
        columns: &[
            ("thread", Text),
            ("frame", Text),
            ("seq", Int),
            ("task", Text),
            ("status", Text),
            ("record", Bytes),
            ("codec", Int),
        ],
        conflict: "ON CONFLICT (thread, frame, seq, task) DO UPDATE SET status = excluded.status, record = excluded.record",
    },
    Insert {
        table: "steps",
        columns: &[
            ("thread", Text),
            ("frame", Text),
            ("seq", Int),
            ("occurrence", Text),
            ("name", Text),
            ("result", Bytes),
            ("codec", Int),
            ("recorded_at", Int),
        ],
        conflict: "ON CONFLICT (thread, frame, seq, occurrence, name) DO NOTHING",
    },
    Insert {
        table: "runs",
        columns: &[
            ("thread", Text),
            ("run", Text),
            ("kind", Text),
            ("status", Text),
            ("requested_by", Text),
            ("resume", Text),
            ("taken", Kind::Bool),
            ("created_at", Int),
        ],
        conflict: "",
    },
    Insert {
        table: "interrupts",
        columns: &[
            ("thread", Text),
            ("id", Text),
            ("frame", Text),
            ("seq", Int),
            ("graph", Text),
            ("address", Text),
            ("number", Int),
            ("kind", Text),
            ("status", Text),
            ("payload", Bytes),
            ("codec", Int),
            ("asked_at", Int),
            ("deadline", Int),
        ],
        conflict: "",
    },
    Insert {
        table: "requests",
        columns: &[
            ("thread", Text),
            ("interrupt", Text),
            ("revision", Int),
            ("content_hash", Text),
            ("need", Int),
            ("status", Text),
        ],
        conflict: "ON CONFLICT (thread, interrupt) DO NOTHING",
    },
    Insert {
        table: "request_approvers",
        columns: &[("thread", Text), ("interrupt", Text), ("approver", Text), ("asked_at", Int)],
        conflict: "ON CONFLICT DO NOTHING",
    },
    Insert {
        table: "deliveries",
        columns: &[
            ("thread", Text),
            ("delivery", Text),
            ("interrupt", Text),
            ("channel", Text),
            ("principal", Text),
            ("name", Text),
            ("address", Text),
            ("occasion", Text),
            ("status", Text),
            ("next_attempt_at", Int),
            ("created_at", Int),
        ],
        conflict: "",
    },
    Insert {
        table: "votes",
        columns: &[
            ("thread", Text),
            ("interrupt", Text),
            ("principal", Text),
            ("revision", Int),
            ("value", Bytes),
            ("codec", Int),
            ("channel", Text),
            ("identified", Text),
            ("voted_at", Int),
        ],
        conflict: "",
    },
    Insert {
        table: "answers",
        columns: &[
            ("thread", Text),
            ("interrupt", Text),
            ("position", Int),
            ("answered", Bytes),
            ("codec", Int),
            ("accepted_at", Int),
        ],
        conflict: "",
    },
    Insert {
        table: "audit",
        columns: &[
            ("thread", Text),
            ("seq", Int),
            ("at", Int),
            ("action", Text),
            ("actor", Text),
            ("actor_digest", Bytes),
            ("detail", Text),
            ("detail_digest", Bytes),
            ("hash", Bytes),
        ],
        conflict: "",
    },
    Insert {
        table: "events",
        columns: &[("thread", Text), ("last", Int), ("at", Int), ("events", Bytes), ("codec", Int)],
        conflict: "",
    },
    Insert {
        table: "idempotency",
        columns: &[
            ("scope", Text),
            ("key", Text),
            ("request_hash", Text),
            ("status", Int),
            ("body", Text),
            ("created_at", Int),
        ],
        conflict: "",
    },
    Insert {
        table: "timers",
        columns: &[("thread", Text), ("interrupt", Text), ("kind", Text), ("due_at", Int), ("status", Text)],
        conflict: "ON CONFLICT (thread, interrupt, kind) DO NOTHING",
    },
    Insert {
        table: "signals",
        columns: &[
            ("thread", Text),
            ("position", Int),
            ("name", Text),
            ("payload", Bytes),
            ("codec", Int),
            ("sent_by", Text),
            ("sent_at", Int),
            ("interrupt", Text),
        ],
        conflict: "",
    },
];

/// A change of rows that is the same for many threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Thread: its runs that wait are running.
    RunsRun,
    /// Thread, run: it has been taken up.
    RunTaken,
    /// Thread, status, time: its runs have ended.
    RunsEnd,
    /// Thread, interrupt, fence: the answer was run with.
    AnswerConsumed,
    /// Thread, interrupt, time: it was answered.
    PointAnswered,
    /// Thread, interrupt, votes: so many agree.
    RequestCounted,
    /// Thread, interrupt: it is decided.
    RequestDecided,
    /// Thread, interrupt: it is in nobody's inbox.
    ApproversClosed,
    /// Thread, interrupt: nobody else is told.
    DeliveriesSkipped,
    /// Thread, interrupt: it waits for no instant any more.
    TimersDropped,
}

/// In the order of [`Change`]. The rows are `given`, with the columns `a`, `b`
/// and `c`.
static CHANGES: [(&str, &str); 10] = [
    ("runs", "status = 'running' FROM given WHERE runs.thread = given.a AND runs.status IN ('queued', 'held')"),
    ("runs", "taken = true FROM given WHERE runs.thread = given.a AND runs.run = given.b"),
    (
        "runs",
        "status = given.b, finished_at = given.c, taken = true FROM given
         WHERE runs.thread = given.a AND runs.finished_at IS NULL",
    ),
    ("answers", "consumed_by = given.c FROM given WHERE answers.thread = given.a AND answers.interrupt = given.b"),
    (
        "interrupts",
        "status = 'answered', closed_at = given.c FROM given
         WHERE interrupts.thread = given.a AND interrupts.id = given.b",
    ),
    (
        "requests",
        "have = given.c FROM given
         WHERE requests.thread = given.a AND requests.interrupt = given.b AND requests.have < given.c",
    ),
    (
        "requests",
        "status = 'decided' FROM given
         WHERE requests.thread = given.a AND requests.interrupt = given.b AND requests.status = 'open'",
    ),
    (
        "request_approvers",
        "open = false FROM given
         WHERE request_approvers.thread = given.a AND request_approvers.interrupt = given.b",
    ),
    (
        "deliveries",
        "status = 'skipped', detail = 'the request closed before it was sent' FROM given
         WHERE deliveries.thread = given.a AND deliveries.interrupt = given.b AND deliveries.status = 'pending'",
    ),
    (
        "timers",
        "status = 'dropped' FROM given
         WHERE timers.thread = given.a AND timers.interrupt = given.b AND timers.status = 'set'",
    ),
];

/// The statement for each of [`CHANGES`].
fn statements() -> &'static [Sql; CHANGES.len()] {
    static TEXTS: OnceLock<[Sql; CHANGES.len()]> = OnceLock::new();
    TEXTS.get_or_init(|| {
        CHANGES.map(|(table, set)| {
            Sql::put_together(
                format!(
                    "WITH given AS (SELECT value ->> 0 AS a, value ->> 1 AS b, value ->> 2 AS c FROM json_each($1))
                     UPDATE {table} SET {set}"
                ),
                format!(
                    "WITH given AS (SELECT value ->> 0 AS a, value ->> 1 AS b, (value ->> 2)::bigint AS c
                                    FROM json_array_elements($1::json) AS rows(value))
                     UPDATE {table} SET {set}"
                ),
            )
        })
    })
}

/// How many columns of [`Table::Tasks`] name a row.
const TASK_KEY: usize = 4;

/// What waits.
#[derive(Default)]
pub(super) struct Later {
    rows: [Vec<Vec<Arg>>; INSERTS.len()],
    changes: [Vec<Value>; CHANGES.len()],
    pushed: Vec<(Message, Timestamp)>,
    deleted: Vec<JobId>,
}

/// How much waited at some time.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    rows: [usize; INSERTS.len()],
    changes: [usize; CHANGES.len()],
    pushed: usize,
    deleted: usize,
}

impl Later {
    pub(super) fn insert(&mut self, table: Table, row: Vec<Arg>) {
        self.rows[table as usize].push(row);
    }

    pub(super) fn change(&mut self, change: Change, row: Value) {
        self.changes[change as usize].push(row);
    }

    pub(super) fn push(&mut self, message: Message, now: Timestamp) {
        self.pushed.push((message, now));
    }

    pub(super) fn delete(&mut self, jobs: &[JobId]) {
        self.deleted.extend_from_slice(jobs);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.iter().all(Vec::is_empty)
            && self.changes.iter().all(Vec::is_empty)
            && self.pushed.is_empty()
            && self.deleted.is_empty()
    }

    pub(super) fn mark(&self) -> Mark {
        let mut rows = [0; INSERTS.len()];
        for (length, waiting) in rows.iter_mut().zip(&self.rows) {
            *length = waiting.len();
        }
        let mut changes = [0; CHANGES.len()];
        for (length, waiting) in changes.iter_mut().zip(&self.changes) {
            *length = waiting.len();
        }
        Mark { rows, changes, pushed: self.pushed.len(), deleted: self.deleted.len() }
    }

    /// Drops what was put down since.
    pub(super) fn back_to(&mut self, mark: Mark) {
        for (waiting, length) in self.rows.iter_mut().zip(mark.rows) {
            waiting.truncate(length);
        }
        for (waiting, length) in self.changes.iter_mut().zip(mark.changes) {
            waiting.truncate(length);
        }
        self.pushed.truncate(mark.pushed);
        self.deleted.truncate(mark.deleted);
    }

    /// Takes out what was put down since.
    pub(super) fn split_off(&mut self, mark: Mark) -> Self {
        let mut own = Self::default();
        for ((own, waiting), length) in own.rows.iter_mut().zip(&mut self.rows).zip(mark.rows) {
            *own = waiting.split_off(length);
        }
        for ((own, waiting), length) in own.changes.iter_mut().zip(&mut self.changes).zip(mark.changes) {
            *own = waiting.split_off(length);
        }
        own.pushed = self.pushed.split_off(mark.pushed);
        own.deleted = self.deleted.split_off(mark.deleted);
        own
    }

    /// Writes everything that waits. Changes come first: they are of rows that
    /// were there before the command that put them down.
    pub(super) async fn write(&mut self, conn: &mut Conn<'_>, way: Way) -> Result<(), StoreError> {
        for (statement, rows) in statements().iter().zip(&mut self.changes) {
            if !rows.is_empty() {
                conn.later(db::query(statement.clone()).bind(Arg::Json(std::mem::take(rows).into()))).await?;
            }
        }
        let tasks = &mut self.rows[Table::Tasks as usize];
        if tasks.len() > 1 {
            *tasks = newest(std::mem::take(tasks));
        }
        Insert::run_all(conn, INSERTS.iter().zip(self.rows.iter_mut().map(std::mem::take))).await?;
        // A job that came and went in one group: in this order it is gone.
        queue::push(conn, way, &std::mem::take(&mut self.pushed)).await?;
        queue::delete(conn, way, &std::mem::take(&mut self.deleted)).await?;
        Ok(())
    }
}

/// Of records of the same task only the last: one statement cannot write a row
/// twice.
fn newest(rows: Vec<Vec<Arg>>) -> Vec<Vec<Arg>> {
    let mut place: HashMap<Vec<String>, usize> = HashMap::with_capacity(rows.len());
    let mut kept: Vec<Vec<Arg>> = Vec::with_capacity(rows.len());
    for row in rows {
        let key = row.iter().take(TASK_KEY).map(Arg::key).collect::<Vec<_>>();
        match place.get(&key) {
            Some(&at) => kept[at] = row,
            None => {
                place.insert(key, kept.len());
                kept.push(row);
            }
        }
    }
    kept
}
