//! Starting, restarting, pausing, cancelling threads.

use countersign_kernel::ids::{RunId, ThreadId};
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use serde_json::json;

use super::super::commands::{CreateThread, IdempotencyEntry};
use super::super::db::{self, Conn};
use super::super::events::What;
use super::super::{Accepted, Cancelled, Refusal, StoreError};
use super::audit::Chain;
use super::events::Log;
use super::later::Table;
use super::tx::Tx;
use super::{audit, commit, points};
use crate::queue::{self, JobId, Message};

pub(super) async fn create(tx: &mut Tx<'_>, command: CreateThread, mut log: Log) -> Result<Accepted, StoreError> {
    if let Some(replay) = replay(tx, command.idempotency.as_ref()).await? {
        return Ok(replay);
    }
    let first = &command.first;
    let stopped = !command.opened.is_empty();
    let status = if stopped { "parked" } else { "queued" };
    log.add(What::Values(first.seq, None));
    let last = log.len_with(command.opened.len() + 1);
    let mut chain = Chain { salt: command.salt.to_vec(), seq: 0, head: Vec::new() };
    let detail = json!({"graph": command.graph, "run": command.run.as_str(), "input_hash": command.input_hash});
    chain.extend(tx, &command.thread, "started", &command.started_by, &detail, command.now);
    let made = db::query(
        "INSERT INTO threads (thread, graph, graph_version, fingerprint, status, salt, input_hash, started_by,
                              head, head_seq, branch, open, next_event, audit_seq, audit_head, created_at, updated_at,
                              priority, limit_key)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $16, $17, $18)
         ON CONFLICT (thread) DO NOTHING",
    )
    .bind(command.thread.as_str())
    .bind(&command.graph)
    .bind(first.graph_version)
    .bind(&first.fingerprint)
    .bind(status)
    .bind(command.salt.as_slice())
    .bind(&command.input_hash)
    .bind(command.started_by.as_str())
    .bind(first.checkpoint.id.as_str())
    .bind(first.seq)
    .bind(first.branch)
    .bind(i64::try_from(command.opened.len()).unwrap_or(i64::MAX))
    .bind(last)
    .bind(chain.seq)
    .bind(chain.head)
    .bind(command.now.as_micros())
    .bind(command.priority)
    .bind(command.limit_key.as_deref())
    .execute(tx.own())
    .await?;
    if made.rows_affected() == 0 {
        let hash: String = db::scalar("SELECT input_hash FROM threads WHERE thread = $1")
            .bind(command.thread.as_str())
            .fetch_one(tx.own())
            .await?;
        return Err(Refusal::ThreadExists { same_input: hash == command.input_hash, thread: command.thread }.into());
    }
    commit::insert_checkpoint(tx, &command.thread, commit::ROOT, first)?;
    let flags = serde_json::to_string(&command.resume).map_err(|error| StoreError::Database(error.to_string()))?;
    // A run that stops before anything ran has nothing to take up.
    let taken = stopped || command.resume.is_empty();
    insert_run(tx, &command.thread, &command.run, "start", &flags, taken, &command.started_by, command.now);
    points::open(tx, &command.thread, &command.graph, first.seq, &command.opened, command.now, &mut log).await?;
    log.add(What::status(status));
    log.insert(tx, &command.thread, last)?;
    remember(tx, command.idempotency.as_ref(), command.now);
    if stopped {
        return Ok(Accepted::Committed(None));
    }
    let message = Message::advance(command.job, command.thread).with_priority(command.priority);
    tx.push(message.clone(), command.now);
    Ok(Accepted::Committed(Some(message)))
}

#[allow(clippy::too_many_arguments, reason = "one row, one argument a column")]
pub(super) fn insert_run(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    run: &RunId,
    kind: &str,
    resume: &str,
    taken: bool,
    by: &Principal,
    now: Timestamp,
) {
    let row = vec![
        thread.as_str().into(),
        run.as_str().into(),
        kind.into(),
        "queued".into(),
        by.as_str().into(),
        resume.into(),
        taken.into(),
        now.as_micros().into(),
    ];
    tx.insert(Table::Runs, row);
}

async fn status_of(conn: &mut Conn<'_>, thread: &ThreadId) -> Result<String, StoreError> {
    db::scalar("SELECT status FROM threads WHERE thread = $1")
        .bind(thread.as_str())
        .fetch_optional(conn)
        .await?
        .ok_or_else(|| Refusal::UnknownThread(thread.clone()).into())
}

pub(super) fn ended(status: &str) -> Option<&'static str> {
    match status {
        "succeeded" => Some("succeeded"),
        "cancelled" => Some("cancelled"),
        _ => None,
    }
}

pub(super) async fn pause(
    tx: &mut Tx<'_>,
    thread: ThreadId,
    by: Principal,
    job: JobId,
    now: Timestamp,
    mut log: Log,
) -> Result<Option<Message>, StoreError> {
    let status = status_of(tx.now().await?, &thread).await?;
    if let Some(ended) = ended(&status) {
        return Err(Refusal::ThreadEnded(ended).into());
    }
    db::query("UPDATE threads SET pause_requested = true, updated_at = $2 WHERE thread = $1")
        .bind(thread.as_str())
        .bind(now.as_micros())
        .execute(tx.now().await?)
        .await?;
    audit::append(tx, &thread, "pause_requested", &by, &json!({}), now).await?;
    if !matches!(status.as_str(), "parked" | "failed") {
        return Ok(None);
    }
    db::query("UPDATE threads SET status = 'queued' WHERE thread = $1")
        .bind(thread.as_str())
        .execute(tx.now().await?)
        .await?;
    log.add(What::status("queued"));
    log.append(tx, &thread).await?;
    let message = Message::advance(job, thread);
    tx.push(message.clone(), now);
    Ok(Some(message))
}

pub(super) async fn cancel(
    tx: &mut Tx<'_>,
    thread: ThreadId,
    by: Principal,
    now: Timestamp,
    mut log: Log,
) -> Result<Cancelled, StoreError> {
    match status_of(tx.now().await?, &thread).await?.as_str() {
        "cancelled" => return Ok(Cancelled::Already),
        "succeeded" => return Err(Refusal::ThreadEnded("succeeded").into()),
        _ => {}
    }
    let at_rest = db::query(
        "UPDATE threads SET status = 'cancelled', cancel_requested = true, held_reason = NULL, failed_tasks = 0,
                fence = fence + 1, lease_owner = NULL, lease_until = 0, held_back = NULL, updated_at = $2
         WHERE thread = $1 AND (lease_owner IS NULL OR lease_until < $2)",
    )
    .bind(thread.as_str())
    .bind(now.as_micros())
    .execute(tx.now().await?)
    .await?
    .rows_affected()
        > 0;
    audit::append(tx, &thread, "cancel_requested", &by, &json!({"at_rest": at_rest}), now).await?;
    if at_rest {
        points::supersede_all(tx, &thread, "cancelled", now, &mut log).await?;
        log.add(What::status("cancelled"));
        log.append(tx, &thread).await?;
        tx.finish_runs(&thread, "cancelled", now);
        forget_dead_letter(tx, &thread).await?;
        return Ok(Cancelled::Now);
    }
    db::query(
        "UPDATE threads SET cancel_requested = true, cancel_asked_at = coalesce(cancel_asked_at, $2) WHERE thread = $1",
    )
    .bind(thread.as_str())
    .bind(now.as_micros())
    .execute(tx.now().await?)
    .await?;
    // Whoever holds it may be another process.
    queue::call(tx.now().await?).await?;
    Ok(Cancelled::Requested)
}

/// Somebody has looked at what gave up.
pub(super) async fn forget_dead_letter(tx: &mut Tx<'_>, thread: &ThreadId) -> Result<(), StoreError> {
    db::query("DELETE FROM dead_letters WHERE thread = $1 AND kind = 'advance'")
        .bind(thread.as_str())
        .execute(tx.now().await?)
        .await?;
    Ok(())
}

/// The runs of a thread that is set aside go on when it does.
pub(super) async fn hold_runs(tx: &mut Tx<'_>, thread: &ThreadId) -> Result<(), StoreError> {
    db::query("UPDATE runs SET status = 'held' WHERE thread = $1 AND finished_at IS NULL")
        .bind(thread.as_str())
        .execute(tx.now().await?)
        .await?;
    Ok(())
}

pub(super) async fn release_hold(
    tx: &mut Tx<'_>,
    thread: ThreadId,
    by: Principal,
    job: JobId,
    now: Timestamp,
    mut log: Log,
) -> Result<Message, StoreError> {
    let priority: Option<i64> = db::scalar(
        "UPDATE threads SET status = 'queued', held_reason = NULL, attempts = 0, not_before = 0, updated_at = $2
         WHERE thread = $1 AND status = 'held' RETURNING priority",
    )
    .bind(thread.as_str())
    .bind(now.as_micros())
    .fetch_optional(tx.now().await?)
    .await?;
    let Some(priority) = priority else {
        status_of(tx.now().await?, &thread).await?;
        return Err(Refusal::NothingPending.into());
    };
    forget_dead_letter(tx, &thread).await?;
    log.add(What::status("queued"));
    log.append(tx, &thread).await?;
    audit::append(tx, &thread, "hold_released", &by, &json!({}), now).await?;
    let message = Message::advance(job, thread).with_priority(priority);
    tx.push(message.clone(), now);
    Ok(message)
}

/// What the same request got before, if it was made before (R26).
pub(super) async fn replay(tx: &mut Tx<'_>, entry: Option<&IdempotencyEntry>) -> Result<Option<Accepted>, StoreError> {
    let Some(entry) = entry else { return Ok(None) };
    let found = repeated(tx.own(), &entry.scope, &entry.key, &entry.request_hash).await?;
    Ok(found.map(|(status, body)| Accepted::Replayed { status, body }))
}

/// The status and body kept under a key.
pub(super) async fn repeated(
    conn: &mut Conn<'_>,
    scope: &str,
    key: &str,
    request_hash: &str,
) -> Result<Option<(u16, String)>, StoreError> {
    let row = db::query("SELECT request_hash, status, body FROM idempotency WHERE scope = $1 AND key = $2")
        .bind(scope)
        .bind(key)
        .fetch_optional(conn)
        .await?;
    let Some(row) = row else { return Ok(None) };
    if row.try_get::<String, _>(0)? != request_hash {
        return Err(Refusal::KeyReused.into());
    }
    let status = u16::try_from(row.try_get::<i64, _>(1)?).unwrap_or(200);
    Ok(Some((status, row.try_get(2)?)))
}

/// Remembers what this request gets, in the transaction that does the work.
pub(super) fn remember(tx: &mut Tx<'_>, entry: Option<&IdempotencyEntry>, now: Timestamp) {
    let Some(entry) = entry else { return };
    let row = vec![
        entry.scope.as_str().into(),
        entry.key.as_str().into(),
        entry.request_hash.as_str().into(),
        i64::from(entry.status).into(),
        entry.body.as_str().into(),
        now.as_micros().into(),
    ];
    tx.insert(Table::Replies, row);
}
