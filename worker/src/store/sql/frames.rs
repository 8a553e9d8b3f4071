//! Inner frames: graphs that run inside tasks (K17).

use std::collections::BTreeMap;

use countersign_kernel::ids::{CheckpointId, FrameId, ThreadId};
use countersign_kernel::machine::{Archived, Checkpoint, CheckpointBody, TaskRecord, TaskStatus};
use countersign_kernel::time::Timestamp;

use super::super::codec::{decode, parse};
use super::super::commands::{FrameCommit, FrameFlush, FrameOwner, KeyIndex, LoadedFrame};
use super::super::db::{self, Conn, Query, Row};
use super::super::views::ArchivedAt;
use super::super::{Refusal, StoreError};
use super::commit::{self, ROOT, encode_text};
use super::events::{self, Log};
use super::tx::Tx;
use super::{activate, heads, retention};

/// A frame column as an id; the root frame has none.
pub(super) fn id(text: String) -> Result<Option<FrameId>, StoreError> {
    if text == ROOT { Ok(None) } else { parse("frame id", text).map(Some) }
}

/// Refuses to move a frame that has moved since it was read: moves of inner
/// frames leave the head of the thread where it is.
pub(super) async fn check(conn: &mut Conn<'_>, thread: &ThreadId, commit: &FrameCommit) -> Result<(), StoreError> {
    let Some(next) = commit.checkpoint.as_ref().filter(|_| commit.owner.is_none()) else { return Ok(()) };
    let head: Option<i64> = db::scalar("SELECT head_seq FROM frames WHERE thread = $1 AND frame = $2")
        .bind(thread.as_str())
        .bind(commit.frame.as_str())
        .fetch_optional(conn)
        .await?;
    if head == Some(next.seq - 1) { Ok(()) } else { Err(Refusal::ThreadChanged.into()) }
}

/// Writes what happened in a frame.
pub(super) async fn commit(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    commit: &FrameCommit,
    now: Timestamp,
) -> Result<(), StoreError> {
    let frame = commit.frame.as_str();
    if let Some(owner) = &commit.owner {
        db::query(
            "INSERT INTO frames (thread, frame, parent, root_seq, task, around, address, graph, head_seq, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        )
        .bind(thread.as_str())
        .bind(frame)
        .bind(owner.parent.as_ref().map_or(ROOT, FrameId::as_str))
        .bind(owner.root_seq)
        .bind(&owner.task)
        .bind(owner.around.as_str())
        .bind(encode_text(&owner.address)?)
        .bind(&owner.graph)
        .bind(commit.seq)
        .bind(now.as_micros())
        .execute(tx.now().await?)
        .await?;
    }
    if let Some(new) = &commit.checkpoint {
        commit::insert_checkpoint(tx, thread, frame, new)?;
        if let Some(from) = commit.carry_from {
            heads::carry(tx, thread, frame, from, new.seq).await?;
        }
        db::query("UPDATE frames SET head_seq = $3, branch = $4 WHERE thread = $1 AND frame = $2")
            .bind(thread.as_str())
            .bind(frame)
            .bind(new.seq)
            .bind(new.branch)
            .execute(tx.now().await?)
            .await?;
    }
    if let Some(body) = &commit.body {
        commit::put_body(tx, thread, frame, commit.seq, body).await?;
    }
    commit::put_tasks(tx, thread, frame, commit.seq, &commit.tasks)
}

/// What a frame did while its task runs. A new checkpoint is progress.
pub(super) async fn flush(tx: &mut Tx<'_>, flush: FrameFlush, mut log: Log) -> Result<(), StoreError> {
    log.extend(flush.events);
    let progress = flush.commit.checkpoint.is_some();
    let last = events::fenced(tx, &flush.thread, flush.fence, &log, progress).await?;
    commit(tx, &flush.thread, &flush.commit, flush.now).await?;
    log.insert(tx, &flush.thread, last)
}

const CHECKPOINT: &str = "c.checkpoint, c.parent, c.source, c.superstep, c.created_at, c.body, c.keys, c.graph_version";

fn checkpoint(row: &Row) -> Result<Checkpoint, StoreError> {
    let parent: Option<String> = row.try_get("parent")?;
    Ok(Checkpoint {
        id: parse("checkpoint id", row.try_get("checkpoint")?)?,
        parent: parent.map(|text| parse("checkpoint id", text)).transpose()?,
        source: activate::source(row.try_get("source")?),
        superstep: u64::try_from(row.try_get::<i64, _>("superstep")?).unwrap_or(0),
        created_at: Timestamp::from_micros(row.try_get("created_at")?),
    })
}

fn version(row: &Row) -> Result<u32, StoreError> {
    Ok(u32::try_from(row.try_get::<i64, _>("graph_version")?).unwrap_or(0))
}

/// The rows of the frames that tasks of the thread's head run.
pub(super) fn of(thread: &ThreadId) -> Query {
    let statement = format!(
        "SELECT f.frame, f.parent AS outer_frame, f.task, f.around, f.address, f.graph, f.head_seq, f.branch, {CHECKPOINT}
         FROM frames f JOIN checkpoints c ON c.thread = f.thread AND c.frame = f.frame AND c.seq = f.head_seq
         WHERE f.thread = $1 AND f.root_seq = (SELECT head_seq FROM threads WHERE thread = $1)"
    );
    db::query(statement).bind(thread.as_str())
}

/// The frames that unfinished tasks of the root frame's checkpoint `root_seq` run,
/// however deep, outer ones first, by [their rows](of). Those of earlier
/// supersteps of the frames around them are done with.
pub(super) async fn load(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    root_seq: i64,
    rows: Vec<Row>,
    body: &CheckpointBody,
    records: &BTreeMap<String, TaskRecord>,
) -> Result<Vec<LoadedFrame>, StoreError> {
    let mut owned = Vec::with_capacity(rows.len());
    for row in rows {
        let frame: FrameId = parse("frame id", row.try_get("frame")?)?;
        let text: String = row.try_get("address")?;
        let owner = FrameOwner {
            parent: id(row.try_get("outer_frame")?)?,
            root_seq,
            task: row.try_get("task")?,
            around: parse("checkpoint id", row.try_get("around")?)?,
            address: decode("address", frame.as_str(), text.as_bytes())?,
            graph: row.try_get("graph")?,
        };
        owned.push((owner, frame, row));
    }
    owned.sort_by_key(|(owner, ..)| owner.address.segments().len());
    let mut frames: Vec<LoadedFrame> = Vec::with_capacity(owned.len());
    for (owner, frame, row) in owned {
        let around = match &owner.parent {
            None => Some((body, records)),
            Some(parent) => frames.iter().find(|f| f.frame == *parent).map(|f| (&f.body, &f.records)),
        };
        let inside: CheckpointBody = decode("checkpoint body", frame.as_str(), row.try_get("body")?)?;
        if !around.is_some_and(|(body, records)| needs(&owner, &inside, body, records)) {
            continue;
        }
        let keys: KeyIndex = decode("key index", frame.as_str(), row.try_get("keys")?)?;
        let seq: i64 = row.try_get("head_seq")?;
        frames.push(LoadedFrame {
            owner,
            branch: row.try_get("branch")?,
            checkpoint: checkpoint(&row)?,
            graph_version: version(&row)?,
            seq,
            values: activate::values(conn, thread, frame.as_str(), &keys).await?,
            records: activate::records(conn, thread, frame.as_str(), seq, &inside).await?,
            body: inside,
            keys,
            frame,
        });
    }
    Ok(frames)
}

/// Whether the task that runs a frame needs it still. Its address tells the
/// task from one of the same name in another superstep. A graph that has ended
/// in a task that has finished is needed while the superstep around it may be
/// refused and tried again at once, which is never in the root frame.
fn needs(
    owner: &FrameOwner,
    inside: &CheckpointBody,
    body: &CheckpointBody,
    records: &BTreeMap<String, TaskRecord>,
) -> bool {
    let planned = body.tasks.iter().any(|task| task.key == owner.task && task.address.contains(&owner.address));
    let finished = records.get(&owner.task).is_some_and(|record| record.status == TaskStatus::Done);
    planned && (!finished || (owner.parent.is_some() && inside.tasks.is_empty()))
}

/// A checkpoint with those around it, outermost first.
pub(super) async fn archived(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    checkpoint_id: &CheckpointId,
) -> Result<Vec<ArchivedAt>, StoreError> {
    let statement = format!(
        "SELECT c.frame, c.seq, f.task, f.around, {CHECKPOINT}
         FROM checkpoints c LEFT JOIN frames f ON f.thread = c.thread AND f.frame = c.frame
         WHERE c.thread = $1 AND c.checkpoint = $2"
    );
    let mut chain = Vec::new();
    let mut next = Some(checkpoint_id.as_str().to_owned());
    while let Some(wanted) = next {
        let row = db::query(statement.clone()).bind(thread.as_str()).bind(&wanted).fetch_optional(&mut *conn).await?;
        let Some(row) = row else {
            let compacted = retention::is_compacted(conn, thread).await?;
            let unknown = if compacted { Refusal::Compacted } else { Refusal::UnknownCheckpoint };
            return Err(unknown(checkpoint_id.clone()).into());
        };
        let frame: String = row.try_get("frame")?;
        let keys: KeyIndex = decode("key index", &wanted, row.try_get("keys")?)?;
        let archived = Archived {
            task: row.try_get("task")?,
            checkpoint: checkpoint(&row)?,
            body: decode("checkpoint body", &wanted, row.try_get("body")?)?,
            values: activate::values(conn, thread, &frame, &keys).await?,
            frame: id(frame)?,
        };
        chain.push(ArchivedAt { archived, seq: row.try_get("seq")?, graph_version: version(&row)?, keys });
        next = match row.try_get::<Option<String>, _>("around")? {
            Some(around) => Some(amended(conn, thread, around, row.try_get("created_at")?).await?),
            None => None,
        };
    }
    chain.reverse();
    Ok(chain)
}

/// The newest amendment of a checkpoint at a time: what ran in it then saw its
/// state (R5).
async fn amended(conn: &mut Conn<'_>, thread: &ThreadId, checkpoint: String, at: i64) -> Result<String, StoreError> {
    let newest = db::scalar(
        "WITH RECURSIVE line (checkpoint, depth) AS (
             SELECT checkpoint, 0 FROM checkpoints WHERE thread = $1 AND checkpoint = $2
             UNION
             SELECT c.checkpoint, line.depth + 1 FROM line
             JOIN checkpoints c ON c.thread = $1 AND c.parent = line.checkpoint AND c.source = 'amend'
                                AND c.created_at <= $3
         )
         SELECT checkpoint FROM line ORDER BY depth DESC LIMIT 1",
    )
    .bind(thread.as_str())
    .bind(checkpoint)
    .bind(at)
    .fetch_one(conn)
    .await?;
    Ok(newest)
}
