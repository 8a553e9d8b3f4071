//! Leases: who may write a thread now.
//!
//! A lease is a row's word, not a lock: it says who runs a thread until when.
//! Each claim raises the thread's fence, and every write of an activation
//! carries the fence it was given, so a worker that comes back from the dead
//! writes nothing. A claim counts as an attempt, and progress (a new
//! checkpoint, a rest) sets the count back; a thread that kills its worker
//! before any progress is set aside after its attempts.

use countersign_kernel::ids::ThreadId;
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use serde_json::json;

use super::super::StoreError;
use super::super::commands::{Claim, Fence};
use super::super::db::{self, Arg};
use super::super::events::What;
use super::events::Log;
use super::turns::{self, Judged};
use super::tx::Tx;
use super::{audit, threads};
use crate::queue;

/// Whether a lease was taken. Who has it reads the thread beside the writer: the
/// lease keeps others from changing what an activation needs, and what still
/// comes in (answers, requests to stop) is looked for again before a rest.
#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    /// With this proof.
    Held(Fence),
    /// Nothing to do, or somebody else does it.
    Nothing,
    /// The thread made no progress too often and was set aside.
    Dead,
}

pub(super) async fn claim(tx: &mut Tx<'_>, claim: Claim, controlled: bool, log: Log) -> Result<Taken, StoreError> {
    let counted =
        match if controlled { turns::judge(tx, &claim, log.clone()).await? } else { Judged::Goes { counted: false } } {
            Judged::Goes { counted } => counted,
            Judged::HeldBack => {
                tx.delete(&claim.jobs);
                return Ok(Taken::Nothing);
            }
        };
    let taken = db::query(db::either(
        "UPDATE threads SET fence = fence + 1, lease_owner = $2, lease_until = $3, status = 'running',
                attempts = attempts + 1, updated_at = $4, counted = $7, held_back = NULL
         WHERE thread = $1 AND status IN ('queued', 'running') AND not_before <= $4
           AND (lease_owner IS NULL OR lease_until < $4)
           AND ($5 OR graph IN (SELECT value FROM json_each($6)))
         RETURNING attempts, fence",
        "UPDATE threads SET fence = fence + 1, lease_owner = $2, lease_until = $3, status = 'running',
                attempts = attempts + 1, updated_at = $4, counted = $7, held_back = NULL
         WHERE thread = $1 AND status IN ('queued', 'running') AND not_before <= $4
           AND (lease_owner IS NULL OR lease_until < $4)
           AND ($5 OR graph = ANY ($6))
         RETURNING attempts, fence",
    ))
    .bind(claim.thread.as_str())
    .bind(&claim.worker)
    .bind(claim.lease_until.as_micros())
    .bind(claim.now.as_micros())
    .bind(claim.graphs.is_none())
    .bind(Arg::texts(claim.graphs.iter().flatten()))
    .bind(counted)
    .fetch_optional(tx.own())
    .await?;
    let Some(row) = taken else {
        // Somebody else has it and will find what there is, or nothing is
        // left, or it backs off and the sweep comes back to it.
        tx.delete(&claim.jobs);
        if claim.graphs.is_some() {
            // The message is gone with this process; others have to look.
            call_others(tx, &claim).await?;
        }
        return Ok(Taken::Nothing);
    };
    let attempts = u32::try_from(row.try_get::<i64, _>(0)?).unwrap_or(u32::MAX);
    if attempts > claim.max_attempts {
        set_aside(tx, &claim, attempts - 1, log).await?;
        return Ok(Taken::Dead);
    }
    if attempts > 1 {
        let not_before = claim.now.after((claim.backoff)(attempts));
        db::query("UPDATE threads SET not_before = $2 WHERE thread = $1")
            .bind(claim.thread.as_str())
            .bind(not_before.as_micros())
            .execute(tx.own())
            .await?;
    }
    tx.runs_run(&claim.thread);
    Ok(Taken::Held(Fence(row.try_get(1)?)))
}

/// Has other processes look for the thread, if it waits for one that serves its
/// flow.
async fn call_others(tx: &mut Tx<'_>, claim: &Claim) -> Result<(), StoreError> {
    let waits = db::query("SELECT 1 FROM threads WHERE thread = $1 AND status = 'queued' AND lease_owner IS NULL")
        .bind(claim.thread.as_str())
        .fetch_optional(tx.own())
        .await?;
    if waits.is_some() {
        queue::call(tx.own()).await?;
    }
    Ok(())
}

/// Undoes a claim, but for its fence: what cannot be read is not held.
pub(super) async fn give_back(tx: &mut Tx<'_>, thread: ThreadId, fence: Fence) -> Result<(), StoreError> {
    db::query(
        "UPDATE threads SET status = 'queued', lease_owner = NULL, lease_until = 0, attempts = attempts - 1
         WHERE thread = $1 AND fence = $2 AND lease_owner IS NOT NULL",
    )
    .bind(thread.as_str())
    .bind(fence.0)
    .execute(tx.own())
    .await?;
    Ok(())
}

async fn set_aside(tx: &mut Tx<'_>, claim: &Claim, attempts: u32, mut log: Log) -> Result<(), StoreError> {
    let reason = format!("gave up after {attempts} attempts: each worker was lost before any progress");
    db::query(
        "UPDATE threads SET status = 'held', held_reason = $2, lease_owner = NULL, lease_until = 0,
                attempts = 0, not_before = 0, updated_at = $3
         WHERE thread = $1",
    )
    .bind(claim.thread.as_str())
    .bind(&reason)
    .bind(claim.now.as_micros())
    .execute(tx.now().await?)
    .await?;
    log.add(What::Status("held".to_owned(), Some(reason.clone())));
    log.append(tx, &claim.thread).await?;
    threads::hold_runs(tx, &claim.thread).await?;
    db::query(
        "INSERT INTO dead_letters (thread, id, kind, subject, reason, attempts, died_at)
         VALUES ($1, 'advance', 'advance', NULL, $2, $3, $4)
         ON CONFLICT (thread, id) DO UPDATE SET reason = excluded.reason, attempts = excluded.attempts,
                 died_at = excluded.died_at",
    )
    .bind(claim.thread.as_str())
    .bind(&reason)
    .bind(i64::from(attempts))
    .bind(claim.now.as_micros())
    .execute(tx.now().await?)
    .await?;
    audit::append(tx, &claim.thread, "held", &Principal::service("worker"), &json!({"reason": reason}), claim.now)
        .await?;
    tx.delete(&claim.jobs);
    Ok(())
}

pub(super) async fn release(
    tx: &mut Tx<'_>,
    thread: ThreadId,
    fence: Fence,
    now: Timestamp,
    mut log: Log,
) -> Result<(), StoreError> {
    let released = db::query(
        "UPDATE threads SET status = 'queued', lease_owner = NULL, lease_until = 0, attempts = 0, not_before = 0,
                updated_at = $3
         WHERE thread = $1 AND fence = $2 AND lease_owner IS NOT NULL",
    )
    .bind(thread.as_str())
    .bind(fence.0)
    .bind(now.as_micros())
    .execute(tx.now().await?)
    .await?;
    if released.rows_affected() == 0 {
        return Err(StoreError::Fenced);
    }
    log.add(What::status("queued"));
    log.append(tx, &thread).await
}

pub(super) async fn renew(
    tx: &mut Tx<'_>,
    leases: Vec<(ThreadId, Fence)>,
    until: Timestamp,
) -> Result<Vec<ThreadId>, StoreError> {
    let pairs: Vec<(&str, i64)> = leases.iter().map(|(thread, fence)| (thread.as_str(), fence.0)).collect();
    let kept: Vec<String> = db::scalar(db::either(
        "UPDATE threads SET lease_until = max(lease_until, $2)
         FROM (SELECT value ->> 0 AS thread, value ->> 1 AS fence FROM json_each($1)) AS held
         WHERE threads.thread = held.thread AND threads.fence = held.fence AND threads.lease_owner IS NOT NULL
         RETURNING threads.thread",
        "UPDATE threads SET lease_until = greatest(lease_until, $2)
         FROM (SELECT value ->> 0 AS thread, (value ->> 1)::bigint AS fence
               FROM jsonb_array_elements($1::jsonb) AS pairs(value)) AS held
         WHERE threads.thread = held.thread AND threads.fence = held.fence AND threads.lease_owner IS NOT NULL
         RETURNING threads.thread",
    ))
    .bind(Arg::Json(json!(pairs)))
    .bind(until.as_micros())
    .fetch_all(tx.now().await?)
    .await?;
    Ok(leases
        .into_iter()
        .map(|(thread, _)| thread)
        .filter(|thread| !kept.iter().any(|k| k == thread.as_str()))
        .collect())
}
