//! Finding work whose message was lost, and cleaning up after the dead.

use std::time::Duration;

use countersign_kernel::time::Timestamp;

use super::super::codec::parse;
use super::super::commands::Serves;
use super::super::db::{self, Arg, Conn};
use super::super::{Due, StoreError};
use super::turns;
use crate::queue::{self, JobKind, Way};

pub(super) async fn find(
    conn: &mut Conn<'_>,
    serves: &Serves,
    now: Timestamp,
    grace: Duration,
    limit: u32,
) -> Result<Vec<Due>, StoreError> {
    let grace = i64::try_from(grace.as_micros()).unwrap_or(i64::MAX);
    let before = now.as_micros().saturating_sub(grace);
    // A kind that is not wanted gets no room.
    let most = |kind| if serves.kinds.contains(&kind) { i64::from(limit) } else { 0 };
    let mut due = Vec::new();
    let threads = db::query(db::either(
        "SELECT updated_at - 60000000 * priority, thread FROM threads
         WHERE status IN ('queued', 'running') AND held_back IS NULL AND not_before <= $1
           AND ((lease_owner IS NULL AND updated_at <= $2) OR (lease_owner IS NOT NULL AND lease_until < $1))
           AND ($4 OR graph IN (SELECT value FROM json_each($5)))
         ORDER BY updated_at - 60000000 * priority LIMIT $3",
        "SELECT updated_at - 60000000 * priority, thread FROM threads
         WHERE status IN ('queued', 'running') AND held_back IS NULL AND not_before <= $1
           AND ((lease_owner IS NULL AND updated_at <= $2) OR (lease_owner IS NOT NULL AND lease_until < $1))
           AND ($4 OR graph = ANY ($5))
         ORDER BY updated_at - 60000000 * priority LIMIT $3",
    ))
    .bind(now.as_micros())
    .bind(before)
    .bind(most(JobKind::Advance))
    .bind(serves.graphs.is_none())
    .bind(Arg::texts(serves.graphs.iter().flatten()))
    .fetch_all(&mut *conn)
    .await?;
    for thread in threads {
        due.push((thread.try_get::<i64, _>(0)?, Due::Thread(parse("thread id", thread.try_get(1)?)?)));
    }
    if serves.kinds.contains(&JobKind::Advance) {
        due.extend(turns::find(conn, serves, now, limit).await?);
    }
    let deliveries = db::query(
        "SELECT next_attempt_at, thread, delivery FROM deliveries
         WHERE ((status = 'pending' AND next_attempt_at <= $2) OR (status = 'sending' AND taken_until < $1))
           AND channel NOT IN (SELECT name FROM pause_switches
                               WHERE kind = 'channel' AND (ends_at IS NULL OR ends_at > $1))
         ORDER BY next_attempt_at LIMIT $3",
    )
    .bind(now.as_micros())
    .bind(before)
    .bind(most(JobKind::Deliver))
    .fetch_all(conn)
    .await?;
    for row in deliveries {
        let delivery = Due::Delivery(parse("thread id", row.try_get(1)?)?, parse("delivery id", row.try_get(2)?)?);
        due.push((row.try_get(0)?, delivery));
    }
    // Neither kind keeps the other from its turn.
    due.sort_by_key(|(since, _)| *since);
    due.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(due.into_iter().map(|(_, due)| due).collect())
}

/// The one process of a data folder has just started, so whoever held
/// anything is dead.
pub(super) async fn recover(conn: &mut Conn<'_>, way: Way, now: Timestamp) -> Result<u64, StoreError> {
    let leases = db::query(
        "UPDATE threads SET status = 'queued', lease_owner = NULL, lease_until = 0, updated_at = $1
         WHERE lease_owner IS NOT NULL",
    )
    .bind(now.as_micros())
    .execute(&mut *conn)
    .await?;
    db::query("UPDATE deliveries SET taken_until = 0 WHERE status = 'sending'").execute(&mut *conn).await?;
    db::query("DELETE FROM processes").execute(&mut *conn).await?;
    queue::give_back_all(conn, way).await?;
    Ok(leases.rows_affected())
}

/// How long replies to requests are remembered (R26).
const REPLIES_KEPT: Duration = Duration::from_hours(24);
/// How long a fetched message may take until its row counts as dropped. Far
/// longer than a sweep takes to find the work itself.
const FETCHED_KEPT: Duration = Duration::from_mins(10);

pub(super) async fn tidy(conn: &mut Conn<'_>, way: Way, now: Timestamp) -> Result<u64, StoreError> {
    let before = |kept: Duration| {
        let kept = i64::try_from(kept.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(now.as_micros().saturating_sub(kept))
    };
    let replies = db::query("DELETE FROM idempotency WHERE created_at < $1")
        .bind(before(REPLIES_KEPT).as_micros())
        .execute(&mut *conn)
        .await?;
    let switches = super::controls::forget_ended(conn, now).await?;
    let jobs = queue::tidy(conn, way, before(FETCHED_KEPT), now).await?;
    Ok(replies.rows_affected() + switches + jobs)
}
