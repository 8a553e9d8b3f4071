//! Threads, history and counts, for people.

use countersign_kernel::ids::{CheckpointId, FrameId, ThreadId};
use countersign_kernel::machine::{CheckpointBody, TaskStatus};
use countersign_kernel::time::Timestamp;

use super::super::codec::{decode, parse};
use super::super::commands::{Activation, KeyIndex};
use super::super::db::{self, Builder, Conn, Row};
use super::super::views::{HistoryEntry, InterruptFilter, Keyset, RunView, ThreadDetail, ThreadFilter, ThreadSummary};
use super::super::{Refusal, StoreError};
use super::commit::ROOT;
use super::{activate, points};

const SUMMARY: &str = "SELECT thread, graph, graph_version, status, open, failed_tasks, error, held_reason, started_by,
       created_at, updated_at, priority, limit_key, held_back FROM threads";

fn summary(row: &Row) -> Result<ThreadSummary, StoreError> {
    let number = |column: usize| -> Result<u32, StoreError> {
        Ok(u32::try_from(row.try_get::<i64, _>(column)?).unwrap_or(u32::MAX))
    };
    let held_back: Option<String> = row.try_get(13)?;
    Ok(ThreadSummary {
        priority: row.try_get(11)?,
        limit_key: row.try_get(12)?,
        held_back: held_back.map(|by| decode("held back", &by, by.as_bytes())).transpose()?,
        thread: parse("thread id", row.try_get(0)?)?,
        graph: row.try_get(1)?,
        graph_version: number(2)?,
        status: row.try_get(3)?,
        open: number(4)?,
        failed_tasks: number(5)?,
        error: row.try_get(6)?,
        held_reason: row.try_get(7)?,
        started_by: parse("principal", row.try_get(8)?)?,
        created_at: Timestamp::from_micros(row.try_get(9)?),
        updated_at: Timestamp::from_micros(row.try_get(10)?),
    })
}

pub(super) async fn threads(
    conn: &mut Conn<'_>,
    filter: &ThreadFilter,
    after: Option<&Keyset>,
    limit: u32,
) -> Result<Vec<ThreadSummary>, StoreError> {
    let mut query = Builder::new(SUMMARY);
    query.push(" WHERE true");
    match filter.status.as_deref() {
        None => {}
        Some(ThreadFilter::UNFINISHED) => _ = query.push(" AND status NOT IN ('succeeded', 'cancelled')"),
        Some(status) => _ = query.push(" AND status = ").push_bind(status.to_owned()),
    }
    if let Some(graph) = &filter.graph {
        query.push(" AND graph = ").push_bind(graph.clone());
    }
    if let Some(after) = after {
        query
            .push(" AND (created_at, thread) < (")
            .push_bind(after.at.as_micros())
            .push(", ")
            .push_bind(after.id.clone())
            .push(")");
    }
    query.push(" ORDER BY created_at DESC, thread DESC LIMIT ").push_bind(i64::from(limit));
    query.fetch_all(conn).await?.iter().map(summary).collect()
}

/// A thread for people, and all of it as an activation has it.
pub(super) async fn thread(conn: &mut Conn<'_>, thread: &ThreadId) -> Result<(ThreadDetail, Activation), StoreError> {
    let mut query = Builder::new(SUMMARY);
    query.push(" WHERE thread = ").push_bind(thread.as_str());
    let row = query.fetch_optional(&mut *conn).await?.ok_or_else(|| Refusal::UnknownThread(thread.clone()))?;
    let summary = summary(&row)?;
    let activation = activate::load(conn, thread).await?;
    let status_of = |key: &str| activation.records.get(key).map_or(TaskStatus::Pending, |record| record.status);
    let mut next: Vec<String> = activation
        .body
        .tasks
        .iter()
        .filter(|task| status_of(&task.key) != TaskStatus::Done)
        .map(|task| task.node.clone())
        .collect();
    next.sort_unstable();
    let errors = activation
        .records
        .iter()
        .filter_map(|(key, record)| record.error.clone().map(|error| (key.clone(), error)))
        .collect();
    let filter =
        InterruptFilter { status: Some("open".into()), thread: Some(thread.clone()), ..InterruptFilter::default() };
    let interrupts = points::interrupts(conn, &filter, None, 10_000).await?;
    let runs = db::query(
        "SELECT run, kind, status, created_at, finished_at FROM runs WHERE thread = $1
         ORDER BY created_at DESC, run DESC LIMIT 20",
    )
    .bind(thread.as_str())
    .fetch_all(&mut *conn)
    .await?
    .into_iter()
    .map(|row| {
        let finished_at: Option<i64> = row.try_get(4)?;
        Ok::<_, StoreError>(RunView {
            run: parse("run id", row.try_get(0)?)?,
            kind: row.try_get(1)?,
            status: row.try_get(2)?,
            created_at: Timestamp::from_micros(row.try_get(3)?),
            finished_at: finished_at.map(Timestamp::from_micros),
        })
    })
    .collect::<Result<_, _>>()?;
    let detail = ThreadDetail {
        summary,
        head: activation.checkpoint.id.clone(),
        state: activation.values.to_object(),
        next,
        errors,
        interrupts,
        runs,
    };
    Ok((detail, activation))
}

pub(super) async fn head(conn: &mut Conn<'_>, thread: &ThreadId) -> Result<CheckpointId, StoreError> {
    let head: String = db::scalar("SELECT head FROM threads WHERE thread = $1")
        .bind(thread.as_str())
        .fetch_optional(conn)
        .await?
        .ok_or_else(|| Refusal::UnknownThread(thread.clone()))?;
    parse("checkpoint id", head)
}

/// Most state in one page of a history: a page ends early rather than grow.
const HISTORY_BYTES_MAX: usize = 4 << 20;

pub(super) async fn history(
    conn: &mut Conn<'_>,
    thread: &ThreadId,
    frame: Option<&FrameId>,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<HistoryEntry>, StoreError> {
    head(conn, thread).await?;
    let frame = frame.map_or(ROOT, FrameId::as_str);
    let rows = db::query(
        "SELECT checkpoint, parent, seq, source, superstep, body, keys, created_at
         FROM checkpoints WHERE thread = $1 AND frame = $2 AND seq < $3 ORDER BY seq DESC LIMIT $4",
    )
    .bind(thread.as_str())
    .bind(frame)
    .bind(before.unwrap_or(i64::MAX))
    .bind(i64::from(limit))
    .fetch_all(&mut *conn)
    .await?;
    let mut entries = Vec::with_capacity(rows.len());
    let mut bytes = 0;
    for row in rows {
        let body: CheckpointBody = decode("checkpoint body", thread.as_str(), row.try_get(5)?)?;
        let keys: KeyIndex = decode("key index", thread.as_str(), row.try_get(6)?)?;
        let parent: Option<String> = row.try_get(1)?;
        let state = activate::values(conn, thread, frame, &keys).await?.to_object();
        bytes += state.values().map(|value| value.to_string().len()).sum::<usize>();
        if bytes > HISTORY_BYTES_MAX && !entries.is_empty() {
            break;
        }
        let mut next: Vec<String> = body.tasks.into_iter().map(|task| task.node).collect();
        next.sort_unstable();
        entries.push(HistoryEntry {
            checkpoint: parse("checkpoint id", row.try_get(0)?)?,
            parent: parent.map(|text| parse("checkpoint id", text)).transpose()?,
            seq: row.try_get(2)?,
            source: row.try_get(3)?,
            superstep: u64::try_from(row.try_get::<i64, _>(4)?).unwrap_or(0),
            state,
            next,
            created_at: Timestamp::from_micros(row.try_get(7)?),
        });
    }
    Ok(entries)
}
