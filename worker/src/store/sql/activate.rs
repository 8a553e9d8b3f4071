//! Reading all of a thread, for an activation.

use std::collections::BTreeMap;

use countersign_kernel::address::Address;
use countersign_kernel::ids::{InterruptId, RunId, ThreadId};
use countersign_kernel::machine::{Checkpoint, CheckpointBody, Resume, Source, TaskRecord};
use countersign_kernel::question::Answered;
use countersign_kernel::state::Values;
use countersign_kernel::time::Timestamp;
use serde_json::{Value, json};

use super::super::codec::{decode, parse};
use super::super::commands::{Activation, Fence, Incoming, KeyAt, KeyIndex};
use super::super::db::{self, Arg, Conn, Query, Row};
use super::super::{Refusal, StoreError};
use super::commit::ROOT;
use super::frames;

pub(super) async fn load(conn: &mut Conn<'_>, thread: &ThreadId) -> Result<Activation, StoreError> {
    let head = db::query(
        "SELECT t.graph, t.fence, t.salt, t.branch, t.head_seq,
                c.checkpoint, c.parent, c.source, c.superstep, c.created_at, c.graph_version, c.fingerprint, c.body, c.keys
         FROM threads t
         JOIN checkpoints c ON c.thread = t.thread AND c.frame = '' AND c.seq = t.head_seq
         WHERE t.thread = $1",
    )
    .bind(thread.as_str());
    let open = db::query("SELECT id, kind FROM interrupts WHERE thread = $1 AND status = 'open'").bind(thread.as_str());
    let all = [head, records_of(thread, ROOT, None), frames::of(thread), open, incoming_of(thread)];
    let [head, records, frames, open, came_in] = db::fetch_each(conn, all).await?;
    let row = head.into_iter().next().ok_or_else(|| Refusal::UnknownThread(thread.clone()))?;
    let of = thread.as_str();
    let salt: Vec<u8> = row.try_get(2)?;
    let seq: i64 = row.try_get(4)?;
    let parent: Option<String> = row.try_get(6)?;
    let checkpoint = Checkpoint {
        id: parse("checkpoint id", row.try_get(5)?)?,
        parent: parent.map(|text| parse("checkpoint id", text)).transpose()?,
        source: source(row.try_get(7)?),
        superstep: u64::try_from(row.try_get::<i64, _>(8)?).unwrap_or(0),
        created_at: Timestamp::from_micros(row.try_get(9)?),
    };
    let body: CheckpointBody = decode("checkpoint body", of, row.try_get(12)?)?;
    let keys: KeyIndex = decode("key index", of, row.try_get(13)?)?;
    let values = values(conn, thread, ROOT, &keys).await?;
    let records = records_in(thread, &body, records)?;
    let frames = frames::load(conn, thread, seq, frames, &body, &records).await?;
    let (open, stops) = points_in(open)?;
    let wake = incoming_in(came_in, &[], &[])?;
    Ok(Activation {
        thread: thread.clone(),
        graph: row.try_get(0)?,
        fence: Fence(row.try_get(1)?),
        salt: salt.try_into().map_err(|_| StoreError::Unreadable {
            what: "salt",
            of: of.to_owned(),
            problem: "not 16 bytes".into(),
        })?,
        branch: row.try_get(3)?,
        checkpoint,
        seq,
        graph_version: u32::try_from(row.try_get::<i64, _>(10)?).unwrap_or(0),
        fingerprint: row.try_get(11)?,
        body,
        keys,
        values,
        records,
        frames,
        open,
        stops,
        wake,
    })
}

/// The open points, and those among them that are no questions.
fn points_in(rows: Vec<Row>) -> Result<(Vec<InterruptId>, Vec<InterruptId>), StoreError> {
    let (mut open, mut stops) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        let id: InterruptId = parse("interrupt id", row.try_get(0)?)?;
        let kind: String = row.try_get(1)?;
        if matches!(kind.as_str(), "break" | "pause" | "container") {
            stops.push(id.clone());
        }
        open.push(id);
    }
    Ok((open, stops))
}

pub(super) fn source(text: &str) -> Source {
    match text {
        "input" => Source::Input,
        "update" => Source::Update,
        "amend" => Source::Amend,
        "fork" => Source::Fork,
        _ => Source::Loop,
    }
}

/// The state at a checkpoint, by its key index.
pub(super) async fn values(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    frame: &str,
    keys: &KeyIndex,
) -> Result<Values, StoreError> {
    let mut values = replaced_values(conn, thread, frame, keys).await?;
    for (key, items) in appended_values(conn, thread, frame, keys).await? {
        values.insert(key, Value::Array(items));
    }
    Ok(values)
}

/// The append-only keys, a row an item, all by one statement.
async fn appended_values(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    frame: &str,
    keys: &KeyIndex,
) -> Result<BTreeMap<String, Vec<Value>>, StoreError> {
    let mut lists = BTreeMap::new();
    let mut wanted = Vec::new();
    for (key, at) in keys {
        let KeyAt::Items(segments) = at else { continue };
        let mut from = 0;
        for (branch, until) in segments {
            wanted.push(json!([key, branch, from, until]));
            from = *until;
        }
        lists.insert(key.clone(), Vec::with_capacity(usize::try_from(from).unwrap_or(0)));
    }
    if wanted.is_empty() {
        return Ok(lists);
    }
    let rows = db::query(db::either(
        "SELECT s.key, s.value FROM json_each($3) AS wanted
         JOIN state_items s ON s.thread = $1 AND s.frame = $2 AND s.key = wanted.value ->> 0
              AND s.branch = wanted.value ->> 1
              AND s.position >= wanted.value ->> 2 AND s.position < wanted.value ->> 3
         ORDER BY wanted.key, s.position",
        "SELECT s.key, s.value FROM json_array_elements($3::json) WITH ORDINALITY AS wanted(value, nth)
         JOIN state_items s ON s.thread = $1 AND s.frame = $2 AND s.key = wanted.value ->> 0
              AND s.branch = (wanted.value ->> 1)::bigint
              AND s.position >= (wanted.value ->> 2)::bigint AND s.position < (wanted.value ->> 3)::bigint
         ORDER BY wanted.nth, s.position",
    ))
    .bind(thread.as_str())
    .bind(frame)
    .bind(Arg::Json(wanted.into()))
    .fetch_all(conn)
    .await?;
    for row in rows {
        let key: String = row.try_get(0)?;
        let item = decode("state item", &key, row.try_get(1)?)?;
        lists.entry(key).or_default().push(item);
    }
    Ok(lists)
}

/// The keys whose value is one row, all by one statement.
async fn replaced_values(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    frame: &str,
    keys: &KeyIndex,
) -> Result<Values, StoreError> {
    let wanted: serde_json::Map<String, Value> = keys
        .iter()
        .filter_map(|(key, at)| match at {
            KeyAt::Value(seq) => Some((key.clone(), Value::from(*seq))),
            KeyAt::Items(_) => None,
        })
        .collect();
    let mut values = Values::default();
    if wanted.is_empty() {
        return Ok(values);
    }
    let rows = db::query(db::either(
        "SELECT wanted.key, state_values.value FROM json_each($3) AS wanted
         LEFT JOIN state_values ON state_values.thread = $1 AND state_values.frame = $2
               AND state_values.key = wanted.key AND state_values.seq = wanted.value",
        "SELECT wanted.key, state_values.value FROM json_each_text($3::json) AS wanted
         LEFT JOIN state_values ON state_values.thread = $1 AND state_values.frame = $2
               AND state_values.key = wanted.key AND state_values.seq = wanted.value::bigint",
    ))
    .bind(thread.as_str())
    .bind(frame)
    .bind(Arg::Json(wanted.into()))
    .fetch_all(conn)
    .await?;
    for row in rows {
        let key: String = row.try_get(0)?;
        let value: Option<Vec<u8>> = row.try_get(1)?;
        let Some(bytes) = value else {
            return Err(StoreError::Unreadable { what: "state value", of: key, problem: "its row is gone".into() });
        };
        values.insert(key.clone(), decode("state value", &key, &bytes)?);
    }
    Ok(values)
}

/// Records of a checkpoint's tasks, with the results of their steps.
pub(super) async fn records(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    frame: &str,
    seq: i64,
    body: &CheckpointBody,
) -> Result<BTreeMap<String, TaskRecord>, StoreError> {
    records_in(thread, body, records_of(thread, frame, Some(seq)).fetch_all(conn).await?)
}

/// The rows of [`records`]; of the thread's head where no checkpoint is given.
fn records_of(thread: &ThreadId, frame: &str, seq: Option<i64>) -> Query {
    db::query(db::either(
        "WITH at (seq) AS (SELECT coalesce($3, (SELECT head_seq FROM threads WHERE thread = $1)))
         SELECT task, record, NULL AS name FROM at JOIN tasks ON tasks.seq = at.seq WHERE thread = $1 AND frame = $2
         UNION ALL
         SELECT occurrence, result, name FROM at JOIN steps ON steps.seq = at.seq WHERE thread = $1 AND frame = $2",
        "WITH at (seq) AS (SELECT coalesce($3::bigint, (SELECT head_seq FROM threads WHERE thread = $1)))
         SELECT task, record, NULL::text AS name FROM at JOIN tasks ON tasks.seq = at.seq
         WHERE thread = $1 AND frame = $2
         UNION ALL
         SELECT occurrence, result, name FROM at JOIN steps ON steps.seq = at.seq WHERE thread = $1 AND frame = $2",
    ))
    .bind(thread.as_str())
    .bind(frame)
    .bind(seq)
}

fn records_in(
    thread: &ThreadId,
    body: &CheckpointBody,
    rows: Vec<Row>,
) -> Result<BTreeMap<String, TaskRecord>, StoreError> {
    let mut records: BTreeMap<String, TaskRecord> = BTreeMap::new();
    let (tasks, steps): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .map(|row| (row.try_get::<Option<String>, _>(2), row))
        .partition(|(name, _)| matches!(name, Ok(None)));
    for (_, row) in tasks {
        let task: String = row.try_get(0)?;
        let record = decode("task record", &task, row.try_get(1)?)?;
        records.insert(task, record);
    }
    for (name, row) in steps {
        let Some(name) = name? else { continue };
        let text: String = row.try_get(0)?;
        let occurrence: Address = decode("address", thread.as_str(), text.as_bytes())?;
        let Some(task) = body.tasks.iter().find(|task| task.address.contains(&occurrence)) else {
            continue;
        };
        let result = decode("step result", &text, row.try_get(1)?)?;
        let record = records.entry(task.key.clone()).or_default();
        record.occurrences.entry(&occurrence).steps.insert(name, result);
    }
    Ok(records)
}

/// What came in and was not taken up.
pub(super) async fn incoming(conn: &mut Conn<'_>, thread: &ThreadId) -> Result<Incoming, StoreError> {
    incoming_without(conn, thread, &[], &[]).await
}

/// As [`incoming`], without these runs and answers.
pub(super) async fn incoming_without(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    runs: &[RunId],
    answers: &[InterruptId],
) -> Result<Incoming, StoreError> {
    incoming_in(incoming_of(thread).fetch_all(conn).await?, runs, answers)
}

/// The rows of [`incoming`]: all by one statement, which most of the time finds
/// the flags alone.
fn incoming_of(thread: &ThreadId) -> Query {
    db::query(db::either(
        "SELECT 0, interrupt, answered, NULL, position FROM answers WHERE thread = $1 AND consumed_by IS NULL
         UNION ALL
         SELECT 1, run, NULL, resume, created_at FROM runs WHERE thread = $1 AND NOT taken
         UNION ALL
         SELECT 2, '', NULL, NULL, cancel_requested + 2 * pause_requested FROM threads WHERE thread = $1
         ORDER BY 1, 5, 2",
        "SELECT 0::bigint, interrupt, answered, NULL::text, position
         FROM answers WHERE thread = $1 AND consumed_by IS NULL
         UNION ALL
         SELECT 1, run, NULL, resume, created_at FROM runs WHERE thread = $1 AND NOT taken
         UNION ALL
         SELECT 2, '', NULL, NULL, cancel_requested::int + 2 * pause_requested::int FROM threads WHERE thread = $1
         ORDER BY 1, 5, 2",
    ))
    .bind(thread.as_str())
}

fn incoming_in(rows: Vec<Row>, runs: &[RunId], answers: &[InterruptId]) -> Result<Incoming, StoreError> {
    let mut wake = Incoming::default();
    for row in rows {
        match row.try_get::<i64, _>(0)? {
            0 => {
                let id: String = row.try_get(1)?;
                let answered: Answered = decode("answer", &id, row.try_get(2)?)?;
                let id = parse("interrupt id", id)?;
                if !answers.contains(&id) {
                    wake.answers.push((id, answered));
                }
            }
            1 => {
                let run: String = row.try_get(1)?;
                let text: String = row.try_get(3)?;
                let resume: Resume = decode("resume", &run, text.as_bytes())?;
                let run = parse("run id", run)?;
                if !runs.contains(&run) {
                    wake.resume = wake.resume.and(resume);
                    wake.runs.push(run);
                }
            }
            _ => {
                let flags: i64 = row.try_get(4)?;
                wake.cancel = flags & 1 != 0;
                wake.pause = flags & 2 != 0;
            }
        }
    }
    Ok(wake)
}
