//! Compacting the history of a thread, in small pieces.
//!
//! A piece deletes checkpoints first and what they needed only when none of
//! them is left, so that nobody ever reads a checkpoint without its state.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use countersign_kernel::ids::ThreadId;
use serde_json::json;

use super::super::StoreError;
use super::super::codec::{decode, parse};
use super::super::commands::{KeyAt, KeyIndex};
use super::super::db::{self, Arg, Conn};
use super::super::retention::{History, Retention};
use super::SqlStore;
use super::commit::ROOT;
use super::tx::Tx;
use super::writer::Locks;

#[async_trait]
impl Retention for SqlStore {
    async fn compact(&self, thread: &ThreadId, keep: u32, limit: u32) -> Result<u64, StoreError> {
        let thread = thread.clone();
        let command = self.writer.run(Locks::on(&thread), move |tx| {
            let thread = thread.clone();
            Box::pin(compact(tx, thread, keep.max(1), i64::from(limit.max(1))))
        });
        command.await
    }

    async fn histories(&self, after: Option<&ThreadId>, limit: u32) -> Result<Vec<History>, StoreError> {
        let mut link = self.pools.reading().await?;
        let rows = db::query(
            "SELECT thread, graph, head_seq + 1 - compacted_seq FROM threads WHERE thread > $1 ORDER BY thread LIMIT $2",
        )
        .bind(after.map_or("", ThreadId::as_str))
        .bind(limit)
        .fetch_all(&mut link.conn())
        .await?;
        rows.iter()
            .map(|row| {
                Ok(History {
                    thread: parse("thread id", row.try_get(0)?)?,
                    graph: row.try_get(1)?,
                    checkpoints: row.try_get::<i64, _>(2)?.max(0).unsigned_abs(),
                })
            })
            .collect()
    }
}

async fn compact(tx: &mut Tx<'_>, thread: ThreadId, keep: u32, limit: i64) -> Result<u64, StoreError> {
    let conn = tx.now().await?;
    let Some(first) = first_kept(conn, &thread, keep).await? else { return Ok(0) };
    let mut gone = delete_checkpoints(conn, &thread, first, limit).await?;
    if gone > 0 {
        let compacted = db::query("UPDATE threads SET compacted_seq = $2 WHERE thread = $1 AND compacted_seq < $2");
        compacted.bind(thread.as_str()).bind(first).execute(conn).await?;
    }
    for piece in [Piece::Tasks, Piece::Steps, Piece::Frames, Piece::Values, Piece::Items] {
        let left = limit - i64::try_from(gone).unwrap_or(limit);
        if left <= 0 {
            break;
        }
        gone += piece.delete(conn, &thread, first, left).await?;
    }
    Ok(gone)
}

/// The number of the oldest checkpoint that stays. A sub-graph that has not
/// ended needs the checkpoint that it began at, which may have been amended
/// since.
async fn first_kept(conn: &mut Conn<'_>, thread: &ThreadId, keep: u32) -> Result<Option<i64>, StoreError> {
    let newest: Option<i64> =
        db::scalar("SELECT seq FROM checkpoints WHERE thread = $1 AND frame = '' ORDER BY seq DESC LIMIT 1 OFFSET $2")
            .bind(thread.as_str())
            .bind(keep - 1)
            .fetch_optional(conn)
            .await?;
    let Some(first) = newest else { return Ok(None) };
    let begun: Option<i64> = db::scalar(
        "SELECT min(c.seq) FROM frames f
         JOIN checkpoints c ON c.thread = f.thread AND c.checkpoint = f.around AND c.frame = ''
         WHERE f.thread = $1 AND f.root_seq >= $2",
    )
    .bind(thread.as_str())
    .bind(first)
    .fetch_one(conn)
    .await?;
    Ok(Some(begun.map_or(first, |begun| begun.min(first))))
}

async fn delete_checkpoints(conn: &mut Conn<'_>, thread: &ThreadId, first: i64, limit: i64) -> Result<u64, StoreError> {
    let gone = db::query(
        "DELETE FROM checkpoints WHERE thread = $1 AND frame = '' AND seq IN (
             SELECT seq FROM checkpoints WHERE thread = $1 AND frame = '' AND seq < $2 ORDER BY seq LIMIT $3)",
    )
    .bind(thread.as_str())
    .bind(first)
    .bind(limit)
    .execute(conn)
    .await?;
    Ok(gone.rows_affected())
}

/// What goes when the checkpoints are gone.
#[derive(Clone, Copy)]
enum Piece {
    Tasks,
    Steps,
    Frames,
    Values,
    Items,
}

impl Piece {
    async fn delete(self, conn: &mut Conn<'_>, thread: &ThreadId, first: i64, limit: i64) -> Result<u64, StoreError> {
        let statement = match self {
            Self::Tasks => {
                "DELETE FROM tasks WHERE thread = $1 AND frame = '' AND (seq, task) IN (
                     SELECT seq, task FROM tasks WHERE thread = $1 AND frame = '' AND seq < $2 LIMIT $3)"
            }
            Self::Steps => {
                "DELETE FROM steps WHERE thread = $1 AND frame = '' AND (seq, occurrence, name) IN (
                     SELECT seq, occurrence, name FROM steps WHERE thread = $1 AND frame = '' AND seq < $2 LIMIT $3)"
            }
            Self::Frames => return frames(conn, thread, first, limit).await,
            Self::Values => return values(conn, thread, first, limit).await,
            Self::Items => return items(conn, thread, first, limit).await,
        };
        let gone = db::query(statement).bind(thread.as_str()).bind(first).bind(limit).execute(conn).await?;
        Ok(gone.rows_affected())
    }
}

/// Frames of supersteps that are gone, one after the other.
async fn frames(conn: &mut Conn<'_>, thread: &ThreadId, first: i64, limit: i64) -> Result<u64, StoreError> {
    let old: Vec<String> = db::scalar("SELECT frame FROM frames WHERE thread = $1 AND root_seq < $2 LIMIT $3")
        .bind(thread.as_str())
        .bind(first)
        .bind(limit)
        .fetch_all(conn)
        .await?;
    let mut gone = 0;
    for frame in old {
        for (table, rest) in [
            ("checkpoints", "seq"),
            ("tasks", "seq, task"),
            ("steps", "seq, occurrence, name"),
            ("state_values", "key, seq"),
            ("state_items", "key, branch, position"),
        ] {
            let left = limit - i64::try_from(gone).unwrap_or(limit);
            if left <= 0 {
                return Ok(gone);
            }
            let deleted = db::query(format!(
                "DELETE FROM {table} WHERE thread = $1 AND frame = $2 AND ({rest}) IN (
                     SELECT {rest} FROM {table} WHERE thread = $1 AND frame = $2 LIMIT $3)"
            ));
            let deleted = deleted.bind(thread.as_str()).bind(&frame).bind(left).execute(conn).await?;
            gone += deleted.rows_affected();
        }
        if i64::try_from(gone).unwrap_or(limit) >= limit {
            return Ok(gone);
        }
        let frame = db::query("DELETE FROM frames WHERE thread = $1 AND frame = $2").bind(thread.as_str()).bind(frame);
        gone += frame.execute(conn).await?.rows_affected();
    }
    Ok(gone)
}

/// Where the keys of the kept checkpoints lie.
async fn kept(conn: &mut Conn<'_>, thread: &ThreadId) -> Result<Vec<KeyIndex>, StoreError> {
    let keys: Vec<Vec<u8>> = db::scalar("SELECT keys FROM checkpoints WHERE thread = $1 AND frame = ''")
        .bind(thread.as_str())
        .fetch_all(conn)
        .await?;
    keys.iter().map(|keys| decode("key index", thread.as_str(), keys)).collect()
}

/// Values that no kept checkpoint has.
async fn values(conn: &mut Conn<'_>, thread: &ThreadId, first: i64, limit: i64) -> Result<u64, StoreError> {
    let kept = kept(conn, thread).await?;
    let needed: BTreeSet<(&str, i64)> = kept
        .iter()
        .flatten()
        .filter_map(|(key, at)| match at {
            KeyAt::Value(seq) => Some((key.as_str(), *seq)),
            KeyAt::Items(_) => None,
        })
        .collect();
    let rows = db::query(
        "SELECT key, seq FROM state_values WHERE thread = $1 AND frame = '' AND seq < $2 ORDER BY seq, key LIMIT $3",
    )
    .bind(thread.as_str())
    .bind(first)
    .bind(limit + i64::try_from(needed.len()).unwrap_or(0))
    .fetch_all(conn)
    .await?;
    let mut old: Vec<(String, i64)> = Vec::new();
    for row in rows {
        let (key, seq): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        if !needed.contains(&(key.as_str(), seq)) {
            old.push((key, seq));
        }
    }
    old.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    if old.is_empty() {
        return Ok(0);
    }
    let gone = db::query(db::either(
        "DELETE FROM state_values WHERE thread = $1 AND frame = '' AND (key, seq) IN (
             SELECT value ->> 0, value ->> 1 FROM json_each($2))",
        "DELETE FROM state_values WHERE thread = $1 AND frame = '' AND (key, seq) IN (
             SELECT value ->> 0, (value ->> 1)::bigint FROM json_array_elements($2::json) AS rows(value))",
    ))
    .bind(thread.as_str())
    .bind(Arg::Json(json!(old)))
    .execute(conn)
    .await?;
    Ok(gone.rows_affected())
}

/// Items of lines of checkpoints that were left, as far as no kept checkpoint
/// has them. Items of the present line are the state.
async fn items(conn: &mut Conn<'_>, thread: &ThreadId, _first: i64, limit: i64) -> Result<u64, StoreError> {
    let kept = kept(conn, thread).await?;
    let mut until: BTreeMap<(String, i64), u64> = BTreeMap::new();
    for (key, at) in kept.into_iter().flatten() {
        let KeyAt::Items(segments) = at else { continue };
        for (branch, end) in segments {
            let most = until.entry((key.clone(), branch)).or_default();
            *most = end.max(*most);
        }
    }
    let lines = db::query("SELECT DISTINCT key, branch FROM state_items WHERE thread = $1 AND frame = ''")
        .bind(thread.as_str())
        .fetch_all(conn)
        .await?;
    let mut gone = 0;
    for line in lines {
        let (key, branch): (String, i64) = (line.try_get(0)?, line.try_get(1)?);
        let until = until.get(&(key.clone(), branch)).copied().unwrap_or(0);
        let left = limit - i64::try_from(gone).unwrap_or(limit);
        if left <= 0 {
            break;
        }
        let deleted = db::query(
            "DELETE FROM state_items WHERE thread = $1 AND frame = '' AND key = $2 AND branch = $3 AND position IN (
                 SELECT position FROM state_items WHERE thread = $1 AND frame = '' AND key = $2 AND branch = $3
                        AND position >= $4 LIMIT $5)",
        )
        .bind(thread.as_str())
        .bind(key)
        .bind(branch)
        .bind(i64::try_from(until).unwrap_or(i64::MAX))
        .bind(left)
        .execute(conn)
        .await?;
        gone += deleted.rows_affected();
    }
    Ok(gone)
}

/// Whether checkpoints of the thread were compacted.
pub(super) async fn is_compacted(conn: &mut Conn<'_>, thread: &ThreadId) -> Result<bool, StoreError> {
    let compacted = db::query("SELECT 1 FROM threads WHERE thread = $1 AND compacted_seq > 0").bind(thread.as_str());
    Ok(compacted.fetch_optional(conn).await?.is_some())
}

/// Whether the rows that a key index names are there: those of a checkpoint
/// that somebody wants to go back to may have been compacted in between.
pub(super) async fn holds(conn: &mut Conn<'_>, thread: &ThreadId, keys: &KeyIndex) -> Result<bool, StoreError> {
    if !is_compacted(conn, thread).await? {
        return Ok(true);
    }
    let state = match super::activate::values(conn, thread, ROOT, keys).await {
        Ok(state) => state.to_object(),
        Err(StoreError::Unreadable { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    let whole = |(key, at): (&String, &KeyAt)| match at {
        KeyAt::Value(_) => true,
        KeyAt::Items(segments) => {
            let until = segments.last().map_or(0, |(_, until)| *until);
            state.get(key).and_then(serde_json::Value::as_array).map_or(0, Vec::len) as u64 == until
        }
    };
    Ok(keys.iter().all(whole))
}
