//! Events: written with the commits they tell of, read for watchers (K22).

use std::collections::{HashMap, HashSet};

use countersign_kernel::ids::{FrameId, InterruptId, ThreadId};
use countersign_kernel::time::Timestamp;
use serde_json::{Map, Value, json};

use super::super::codec::{PLAIN, decode, encode};
use super::super::commands::Fence;
use super::super::db::{self, Arg, Conn};
use super::super::events::{AppendEvents, Event, TaskEnd, TaskPlace, What, Written};
use super::super::packed::{pack, unpack};
use super::super::views::{EventPage, EventView};
use super::super::{Refusal, StoreError};
use super::commit::{self, ROOT};
use super::later::Table;
use super::tx::Tx;

/// What one command has to tell watchers.
#[derive(Debug, Clone)]
pub(super) struct Log {
    on: bool,
    now: Timestamp,
    events: Vec<Event>,
}

impl Log {
    /// Nothing yet; with `on` unset it stays so.
    pub(super) fn new(on: bool, now: Timestamp) -> Self {
        Self { on, now, events: Vec::new() }
    }

    pub(super) fn add(&mut self, what: What) {
        if self.on {
            self.events.push(Event { at: self.now, what });
        }
    }

    pub(super) fn extend(&mut self, events: Vec<Event>) {
        if self.on {
            self.events.extend(events);
        }
    }

    /// Drops what was added last, which did not happen.
    pub(super) fn take_back(&mut self) {
        self.events.pop();
    }

    /// By how much the thread's `next_event` is to be raised.
    pub(super) fn len(&self) -> i64 {
        i64::try_from(self.events.len()).unwrap_or(i64::MAX)
    }

    /// As [`len`](Self::len) when so many more have been added.
    pub(super) fn len_with(&self, more: usize) -> i64 {
        if self.on { self.len() + i64::try_from(more).unwrap_or(i64::MAX) } else { 0 }
    }

    /// Puts the row down; `last` is the thread's `next_event` after it was raised.
    pub(super) fn insert(self, tx: &mut Tx<'_>, thread: &ThreadId, last: i64) -> Result<(), StoreError> {
        if self.events.is_empty() {
            return Ok(());
        }
        let at = self.now.as_micros();
        let packed = encode("events", &pack(self.events, self.now))?;
        let row = vec![thread.as_str().into(), last.into(), at.into(), packed.into(), PLAIN.into()];
        tx.insert(Table::Events, row);
        Ok(())
    }

    /// Raises `next_event` and writes the row, for commands that do not write
    /// the thread's row last.
    pub(super) async fn append(self, tx: &mut Tx<'_>, thread: &ThreadId) -> Result<(), StoreError> {
        if self.events.is_empty() {
            return Ok(());
        }
        let last: i64 =
            db::scalar("UPDATE threads SET next_event = next_event + $2 WHERE thread = $1 RETURNING next_event")
                .bind(thread.as_str())
                .bind(self.len())
                .fetch_one(tx.own())
                .await?;
        self.insert(tx, thread, last)
    }
}

/// Raises `next_event` under the fence, and the marks of progress if there was
/// some; returns what it is then.
pub(super) async fn fenced(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    fence: Fence,
    log: &Log,
    progress: bool,
) -> Result<i64, StoreError> {
    if log.events.is_empty() && !progress {
        return commit::fenced(tx, thread, fence).await.map(|()| 0);
    }
    db::scalar(
        "UPDATE threads SET next_event = next_event + $3,
                attempts = CASE WHEN $4 THEN 0 ELSE attempts END,
                not_before = CASE WHEN $4 THEN 0 ELSE not_before END,
                updated_at = CASE WHEN $4 THEN $5 ELSE updated_at END
         WHERE thread = $1 AND fence = $2 AND lease_owner IS NOT NULL RETURNING next_event",
    )
    .bind(thread.as_str())
    .bind(fence.0)
    .bind(log.len())
    .bind(progress)
    .bind(log.now.as_micros())
    .fetch_optional(tx.own())
    .await?
    .ok_or(StoreError::Fenced)
}

pub(super) async fn append(tx: &mut Tx<'_>, command: AppendEvents, mut log: Log) -> Result<(), StoreError> {
    log.extend(command.events);
    let last = fenced(tx, &command.thread, command.fence, &log, false).await?;
    log.insert(tx, &command.thread, last)
}

/// About as many bytes a page may have before it ends.
const PAGE_BYTES: usize = 4 << 20;
/// As many rows are read at once.
const ROWS_AT_ONCE: u32 = 64;

pub(super) async fn read(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    after: i64,
    limit: u32,
) -> Result<EventPage, StoreError> {
    let row = db::query("SELECT graph, status, next_event FROM threads WHERE thread = $1")
        .bind(thread.as_str())
        .fetch_optional(&mut *conn)
        .await?
        .ok_or_else(|| Refusal::UnknownThread(thread.clone()))?;
    let last: i64 = row.try_get(2)?;
    let mut found = Vec::new();
    if last > after {
        found = numbered(conn, thread, after, limit).await?;
    }
    let resolved = Resolved::of(conn, thread, &found).await?;
    let events = found.into_iter().map(|(id, event)| resolved.view(id, event)).collect();
    Ok(EventPage { graph: row.try_get(0)?, events, status: row.try_get(1)?, last })
}

async fn numbered(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    after: i64,
    limit: u32,
) -> Result<Vec<(i64, Event)>, StoreError> {
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut found, mut bytes, mut read) = (Vec::new(), 0, after);
    // Rows may be large, so few at a time.
    while found.len() < most && bytes < PAGE_BYTES {
        let rows =
            db::query("SELECT last, at, events FROM events WHERE thread = $1 AND last > $2 ORDER BY last LIMIT $3")
                .bind(thread.as_str())
                .bind(read)
                .bind(ROWS_AT_ONCE)
                .fetch_all(&mut *conn)
                .await?;
        let Some(end) = rows.last() else { break };
        read = end.try_get(0)?;
        for row in rows {
            let last: i64 = row.try_get(0)?;
            let content: Vec<u8> = row.try_get(2)?;
            bytes += content.len();
            let packed = decode("events", thread.as_str(), &content)?;
            let Some(events) = unpack(packed, Timestamp::from_micros(row.try_get(1)?)) else {
                let problem = "they are of no known kind".to_owned();
                return Err(StoreError::Unreadable { what: "events", of: thread.to_string(), problem });
            };
            let first = last - i64::try_from(events.len()).unwrap_or(i64::MAX) + 1;
            for (id, event) in (first..).zip(events) {
                if id > after {
                    bytes += event.what.bytes_elsewhere();
                    found.push((id, event));
                }
            }
            if found.len() >= most || bytes >= PAGE_BYTES {
                break;
            }
        }
    }
    found.truncate(most);
    Ok(found)
}

/// What events refer to, read back.
#[derive(Default)]
struct Resolved {
    /// By frame, key and row.
    values: HashMap<(String, String, i64), Value>,
    /// By frame, key, branch and position.
    items: HashMap<(String, String, i64, u64), Value>,
    /// Checkpoint, superstep and source, by frame and number.
    checkpoints: HashMap<(String, i64), (String, i64, String)>,
    /// Kind, address, frame and payload.
    points: HashMap<String, (String, String, String, Value)>,
}

fn column(frame: Option<&FrameId>) -> &str {
    frame.map_or(ROOT, FrameId::as_str)
}

impl Resolved {
    async fn of(conn: &mut Conn<'_>, thread: &ThreadId, events: &[(i64, Event)]) -> Result<Self, StoreError> {
        let (mut values, mut items) = (HashSet::new(), HashSet::new());
        let (mut checkpoints, mut points) = (HashSet::new(), HashSet::new());
        for (_, event) in events {
            match &event.what {
                What::Wrote(place, writes) => {
                    let frame = column(place.frame.as_ref());
                    for (key, written) in writes {
                        match written {
                            Written::Value(_) => {}
                            Written::Replaced(seq, _) => drop(values.insert((frame, key.as_str(), *seq))),
                            Written::Items(branch, from, until, _) => {
                                items.insert((frame, key.as_str(), *branch, *from, *until));
                            }
                        }
                    }
                }
                What::Values(seq, frame) => drop(checkpoints.insert((column(frame.as_ref()), *seq))),
                What::Opened(id) => drop(points.insert(id)),
                What::Started(..) | What::Ended(..) | What::Closed(..) | What::Custom(..) | What::Status(..) => {}
            }
        }
        let mut resolved = Self::default();
        resolved.read_values(conn, thread, &values).await?;
        resolved.read_items(conn, thread, &items).await?;
        resolved.read_checkpoints(conn, thread, &checkpoints).await?;
        resolved.read_points(conn, thread, &points).await?;
        Ok(resolved)
    }

    async fn read_values(
        &mut self,
        conn: &mut Conn<'_>,
        thread: &ThreadId,
        wanted: &HashSet<(&str, &str, i64)>,
    ) -> Result<(), StoreError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let rows = db::query(db::either(
            "SELECT s.frame, s.key, s.seq, s.value FROM json_each($2) AS wanted
             JOIN state_values s ON s.thread = $1 AND s.frame = wanted.value ->> 0 AND s.key = wanted.value ->> 1
                  AND s.seq = wanted.value ->> 2",
            "SELECT s.frame, s.key, s.seq, s.value FROM json_array_elements($2::json) AS wanted(value)
             JOIN state_values s ON s.thread = $1 AND s.frame = wanted.value ->> 0 AND s.key = wanted.value ->> 1
                  AND s.seq = (wanted.value ->> 2)::bigint",
        ))
        .bind(thread.as_str())
        .bind(Arg::Json(json!(wanted)))
        .fetch_all(conn)
        .await?;
        for row in rows {
            let key: String = row.try_get(1)?;
            let value = decode("state value", &key, row.try_get(3)?)?;
            self.values.insert((row.try_get(0)?, key, row.try_get(2)?), value);
        }
        Ok(())
    }

    async fn read_items(
        &mut self,
        conn: &mut Conn<'_>,
        thread: &ThreadId,
        wanted: &HashSet<(&str, &str, i64, u64, u64)>,
    ) -> Result<(), StoreError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let rows = db::query(db::either(
            "SELECT s.frame, s.key, s.branch, s.position, s.value FROM json_each($2) AS wanted
             JOIN state_items s ON s.thread = $1 AND s.frame = wanted.value ->> 0 AND s.key = wanted.value ->> 1
                  AND s.branch = wanted.value ->> 2
                  AND s.position >= wanted.value ->> 3 AND s.position < wanted.value ->> 4",
            "SELECT s.frame, s.key, s.branch, s.position, s.value FROM json_array_elements($2::json) AS wanted(value)
             JOIN state_items s ON s.thread = $1 AND s.frame = wanted.value ->> 0 AND s.key = wanted.value ->> 1
                  AND s.branch = (wanted.value ->> 2)::bigint
                  AND s.position >= (wanted.value ->> 3)::bigint AND s.position < (wanted.value ->> 4)::bigint",
        ))
        .bind(thread.as_str())
        .bind(Arg::Json(json!(wanted)))
        .fetch_all(conn)
        .await?;
        for row in rows {
            let key: String = row.try_get(1)?;
            let value = decode("state item", &key, row.try_get(4)?)?;
            let position = u64::try_from(row.try_get::<i64, _>(3)?).unwrap_or(u64::MAX);
            self.items.insert((row.try_get(0)?, key, row.try_get(2)?, position), value);
        }
        Ok(())
    }

    async fn read_checkpoints(
        &mut self,
        conn: &mut Conn<'_>,
        thread: &ThreadId,
        wanted: &HashSet<(&str, i64)>,
    ) -> Result<(), StoreError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let rows = db::query(db::either(
            "SELECT c.frame, c.seq, c.checkpoint, c.superstep, c.source FROM json_each($2) AS wanted
             JOIN checkpoints c ON c.thread = $1 AND c.frame = wanted.value ->> 0 AND c.seq = wanted.value ->> 1",
            "SELECT c.frame, c.seq, c.checkpoint, c.superstep, c.source
             FROM json_array_elements($2::json) AS wanted(value)
             JOIN checkpoints c ON c.thread = $1 AND c.frame = wanted.value ->> 0
                  AND c.seq = (wanted.value ->> 1)::bigint",
        ))
        .bind(thread.as_str())
        .bind(Arg::Json(json!(wanted)))
        .fetch_all(conn)
        .await?;
        for row in rows {
            let found = (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
            self.checkpoints.insert((row.try_get(0)?, row.try_get(1)?), found);
        }
        Ok(())
    }

    async fn read_points(
        &mut self,
        conn: &mut Conn<'_>,
        thread: &ThreadId,
        wanted: &HashSet<&InterruptId>,
    ) -> Result<(), StoreError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let rows = db::query(db::either(
            "SELECT id, kind, address, frame, payload FROM interrupts
             WHERE thread = $1 AND id IN (SELECT value FROM json_each($2))",
            "SELECT id, kind, address, frame, payload FROM interrupts WHERE thread = $1 AND id = ANY ($2)",
        ))
        .bind(thread.as_str())
        .bind(Arg::texts(wanted.iter().map(|id| id.as_str())))
        .fetch_all(conn)
        .await?;
        for row in rows {
            let id: String = row.try_get(0)?;
            let payload = decode("payload", &id, row.try_get(4)?)?;
            self.points.insert(id, (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, payload));
        }
        Ok(())
    }

    fn view(&self, id: i64, event: Event) -> EventView {
        let (kind, data) = match event.what {
            What::Started(place, run_as) => {
                ("tasks", task(&place, json!({"state": "started", "how": run_as.as_str()})))
            }
            What::Ended(place, end) => {
                let state = match &end {
                    TaskEnd::Done => json!({"state": "done"}),
                    TaskEnd::Waiting => json!({"state": "waiting"}),
                    TaskEnd::Failed(error) => json!({"state": "failed", "error": error}),
                    TaskEnd::Stopped => json!({"state": "stopped"}),
                };
                ("tasks", task(&place, state))
            }
            What::Wrote(place, writes) => {
                let frame = column(place.frame.as_ref());
                let writes: Map<String, Value> = writes
                    .into_iter()
                    .map(|(key, written)| {
                        let value = self.written(frame, &key, written);
                        (key, value)
                    })
                    .collect();
                ("updates", task(&place, json!({"writes": writes})))
            }
            What::Values(seq, frame) => {
                let found = self.checkpoints.get(&(column(frame.as_ref()).to_owned(), seq));
                let (checkpoint, superstep, source) = found.cloned().unwrap_or_default();
                let frame = frame.as_ref().map(FrameId::as_str);
                let data = json!({
                    "checkpoint_id": checkpoint, "superstep": superstep, "source": source, "frame_id": frame,
                });
                ("values", data)
            }
            What::Opened(id) => {
                let (kind, address, frame, payload) = self.points.get(id.as_str()).cloned().unwrap_or_default();
                let frame = Some(frame).filter(|frame| frame != ROOT);
                let data = json!({
                    "state": "opened", "interrupt_id": id.as_str(), "kind": kind, "address": address,
                    "frame_id": frame, "payload": payload,
                });
                ("interrupts", data)
            }
            What::Closed(id, status) => {
                ("interrupts", json!({"state": "closed", "interrupt_id": id.as_str(), "status": status}))
            }
            What::Custom(address, payload) => ("custom", json!({"address": address, "payload": payload})),
            What::Status(status, None) => ("status", json!({"status": status})),
            What::Status(status, Some(reason)) => ("status", json!({"status": status, "reason": reason})),
        };
        EventView { id, at: event.at, kind, data }
    }

    /// What was written; null if its rows are gone.
    fn written(&self, frame: &str, key: &str, written: Written) -> Value {
        let of = || (frame.to_owned(), key.to_owned());
        match written {
            Written::Value(value) => value,
            Written::Replaced(seq, _) => {
                let (frame, key) = of();
                self.values.get(&(frame, key, seq)).cloned().unwrap_or_default()
            }
            Written::Items(branch, from, until, _) => {
                let item = |position: u64| {
                    let (frame, key) = of();
                    self.items.get(&(frame, key, branch, position)).cloned().unwrap_or_default()
                };
                (from..until).map(item).collect()
            }
        }
    }
}

/// `more`, behind what says which task it is about.
fn task(place: &TaskPlace, more: Value) -> Value {
    let node = place.task.split_once('#').map_or(place.task.as_str(), |(node, _)| node);
    let frame = place.frame.as_ref().map(FrameId::as_str);
    let mut data = json!({"node": node, "task": place.task, "address": place.address, "frame_id": frame});
    if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
        data.extend(more);
    }
    data
}

/// Deletes what was committed before `before`, the oldest first, at most
/// `limit` rows. Rows lie in the order they were written, so that this looks
/// at those alone.
pub(super) async fn forget(conn: &mut Conn<'_>, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let deleted = db::query(db::either(
        "DELETE FROM events WHERE rowid < (SELECT min(rowid) FROM events) + $2 AND at < $1",
        "DELETE FROM events WHERE ctid = ANY (ARRAY (
             SELECT ctid FROM events WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED))",
    ))
    .bind(before.as_micros())
    .bind(i64::from(limit))
    .execute(conn)
    .await?;
    Ok(deleted.rows_affected())
}
