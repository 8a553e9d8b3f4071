//! One hash chain per thread (R21).
//!
//! Each entry's hash covers the one before it and the digests of its parts.
//! The digests are salted by the thread, and only they are chained: the actor
//! and the detail beside them can be erased without breaking the chain.

use countersign_kernel::canonical::canonical_text;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::super::StoreError;
use super::super::db::{self, Conn};
use super::super::views::AuditEntry;
use super::later::Table;
use super::tx::Tx;

/// Where a thread's chain ends.
pub(super) struct Chain {
    pub(super) salt: Vec<u8>,
    /// How many entries there are.
    pub(super) seq: i64,
    /// The hash of the last.
    pub(super) head: Vec<u8>,
}

impl Chain {
    /// Puts the next entry down. The thread's row has to learn the new end.
    pub(super) fn extend(
        &mut self,
        tx: &mut Tx<'_>,
        thread: &ThreadId,
        action: &str,
        actor: &Principal,
        detail: &Value,
        now: Timestamp,
    ) {
        let detail = canonical_text(detail);
        let actor_digest = digest(&self.salt, actor.as_str());
        let detail_digest = digest(&self.salt, &detail);
        self.seq += 1;
        self.head = chain(&self.head, self.seq, now, action, &actor_digest, &detail_digest);
        let row = vec![
            thread.as_str().into(),
            self.seq.into(),
            now.as_micros().into(),
            action.into(),
            actor.as_str().into(),
            actor_digest.into(),
            detail.into(),
            detail_digest.into(),
            self.head.clone().into(),
        ];
        tx.insert(Table::Audit, row);
    }
}

/// Appends an entry, in the caller's transaction.
pub(super) async fn append(
    tx: &mut Tx<'_>,
    thread: &ThreadId,
    action: &str,
    actor: &Principal,
    detail: &Value,
    now: Timestamp,
) -> Result<(), StoreError> {
    let row = db::query("SELECT salt, audit_seq, audit_head FROM threads WHERE thread = $1")
        .bind(thread.as_str())
        .fetch_one(tx.own())
        .await?;
    let mut chain = Chain { salt: row.try_get(0)?, seq: row.try_get(1)?, head: row.try_get(2)? };
    chain.extend(tx, thread, action, actor, detail, now);
    db::query("UPDATE threads SET audit_seq = $2, audit_head = $3 WHERE thread = $1")
        .bind(thread.as_str())
        .bind(chain.seq)
        .bind(chain.head)
        .execute(tx.own())
        .await?;
    Ok(())
}

fn digest(salt: &[u8], text: &str) -> Vec<u8> {
    Sha256::new().chain_update(salt).chain_update(text.as_bytes()).finalize().to_vec()
}

fn chain(head: &[u8], seq: i64, at: Timestamp, action: &str, actor_digest: &[u8], detail_digest: &[u8]) -> Vec<u8> {
    let mut hash = Sha256::new();
    for part in
        [head, &seq.to_be_bytes(), &at.as_micros().to_be_bytes(), action.as_bytes(), actor_digest, detail_digest]
    {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().to_vec()
}

pub(super) async fn entries(conn: &mut Conn<'_>, thread: &ThreadId) -> Result<Vec<AuditEntry>, StoreError> {
    db::query("SELECT seq, at, action, actor, detail, hash FROM audit WHERE thread = $1 ORDER BY seq")
        .bind(thread.as_str())
        .fetch_all(conn)
        .await?
        .into_iter()
        .map(|row| {
            let detail: Option<String> = row.try_get(4)?;
            Ok(AuditEntry {
                seq: row.try_get(0)?,
                at: Timestamp::from_micros(row.try_get(1)?),
                action: row.try_get(2)?,
                actor: row.try_get(3)?,
                detail: detail.and_then(|text| serde_json::from_str(&text).ok()),
                hash: hex::encode(row.try_get::<Vec<u8>, _>(5)?),
            })
        })
        .collect()
}

/// The number of the first entry that does not hold, if any. The last hash
/// must be the one in the thread's row, so a cut-off chain is found too.
pub(super) async fn verify(conn: &mut Conn<'_>, thread: &ThreadId) -> Result<Option<i64>, StoreError> {
    let row = db::query("SELECT salt, audit_seq, audit_head FROM threads WHERE thread = $1")
        .bind(thread.as_str())
        .fetch_one(&mut *conn)
        .await?;
    let (salt, last): (Vec<u8>, i64) = (row.try_get(0)?, row.try_get(1)?);
    let expected: Vec<u8> = row.try_get(2)?;
    let rows = db::query(
        "SELECT seq, at, action, actor, actor_digest, detail, detail_digest, hash
         FROM audit WHERE thread = $1 ORDER BY seq",
    )
    .bind(thread.as_str())
    .fetch_all(conn)
    .await?;
    let mut head = Vec::new();
    let mut next = 1;
    for row in rows {
        let seq: i64 = row.try_get(0)?;
        let (actor, detail): (Option<String>, Option<String>) = (row.try_get(3)?, row.try_get(5)?);
        let (actor_digest, detail_digest): (Vec<u8>, Vec<u8>) = (row.try_get(4)?, row.try_get(6)?);
        let at = Timestamp::from_micros(row.try_get(1)?);
        let hash = chain(&head, seq, at, row.try_get(2)?, &actor_digest, &detail_digest);
        let holds = seq == next
            && actor.is_none_or(|text| digest(&salt, &text) == actor_digest)
            && detail.is_none_or(|text| digest(&salt, &text) == detail_digest)
            && hash == row.try_get::<Vec<u8>, _>(7)?;
        if !holds {
            return Ok(Some(next));
        }
        head = hash;
        next += 1;
    }
    Ok(if next - 1 == last && head == expected { None } else { Some(next) })
}
