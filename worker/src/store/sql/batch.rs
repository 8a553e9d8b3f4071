//! Many answers at once: one command for each thread, so that none holds the
//! writer for long.

use std::collections::BTreeMap;

use async_trait::async_trait;
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::time::Timestamp;

use super::super::batch::{BatchDone, Batches};
use super::super::codec::parse;
use super::super::commands::{IdempotencyEntry, RecordVote, VoteBatch};
use super::super::db::{self, Arg};
use super::super::{Refusal, StoreError};
use super::events::Log;
use super::tx::Tx;
use super::writer::Locks;
use super::{SqlStore, threads, votes};
use crate::queue::Message;

/// Most ids in one question to the database.
const IDS_AT_ONCE: usize = 1_000;

#[async_trait]
impl Batches for SqlStore {
    async fn places_of(&self, points: &[InterruptId]) -> Result<BTreeMap<InterruptId, (ThreadId, String)>, StoreError> {
        let mut link = self.pools.reading().await?;
        let mut places = BTreeMap::new();
        for ids in points.chunks(IDS_AT_ONCE) {
            let rows = db::query(db::either(
                "SELECT id, thread, graph FROM interrupts WHERE id IN (SELECT value FROM json_each($1))",
                "SELECT id, thread, graph FROM interrupts WHERE id = ANY ($1)",
            ))
            .bind(Arg::texts(ids.iter().map(InterruptId::as_str)))
            .fetch_all(&mut link.conn())
            .await?;
            for row in rows {
                let place = (parse("thread id", row.try_get(1)?)?, row.try_get(2)?);
                places.insert(parse("interrupt id", row.try_get(0)?)?, place);
            }
        }
        Ok(places)
    }

    async fn judge_votes(&self, votes: &[RecordVote]) -> Result<Vec<Result<(), Refusal>>, StoreError> {
        let mut link = self.pools.snapshot().await?;
        let mut judged = Vec::with_capacity(votes.len());
        for vote in votes {
            judged.push(refusal(votes::weigh(&mut link.conn(), vote).await)?.map(|_| ()));
        }
        Ok(judged)
    }

    async fn record_votes(&self, batch: VoteBatch) -> Result<BatchDone, StoreError> {
        let thread = batch.thread.clone();
        let log = Log::new(self.journal.is_on(), batch.now);
        let command = self.writer.run(Locks::on(&thread), move |tx| {
            let (batch, log) = (batch.clone(), log.clone());
            Box::pin(async move { record(tx, batch, log).await })
        });
        let done = command.await?;
        self.journal.tell(&thread);
        Ok(done)
    }

    async fn remember(&self, entry: IdempotencyEntry, now: Timestamp) -> Result<(), StoreError> {
        let command = self.writer.run(Locks::default().and_request(Some(&entry)), move |tx| {
            let entry = entry.clone();
            Box::pin(async move {
                if threads::replay(tx, Some(&entry)).await?.is_none() {
                    threads::remember(tx, Some(&entry), now);
                }
                Ok(())
            })
        });
        command.await
    }
}

/// A refusal is an outcome, everything else is not.
fn refusal<T>(result: Result<T, StoreError>) -> Result<Result<T, Refusal>, StoreError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(StoreError::Refused(refusal)) => Ok(Err(refusal)),
        Err(error) => Err(error),
    }
}

async fn record(tx: &mut Tx<'_>, batch: VoteBatch, mut log: Log) -> Result<BatchDone, StoreError> {
    if batch.whole {
        let mut outcomes = Vec::with_capacity(batch.votes.len());
        for vote in &batch.votes {
            outcomes.push(refusal(votes::weigh(tx.own(), vote).await)?.map(|_| None));
        }
        if outcomes.iter().any(Result::is_err) {
            return Ok(BatchDone { outcomes, wake: None });
        }
    }
    let mut done = BatchDone { outcomes: Vec::with_capacity(batch.votes.len()), wake: None };
    let mut decided = false;
    for vote in &batch.votes {
        // One that is refused has written nothing.
        let outcome = refusal(votes::cast(tx, vote, &mut log).await)?;
        decided |= outcome.as_ref().is_ok_and(|voted| voted.decided && !voted.repeated);
        done.outcomes.push(outcome.map(Some));
    }
    if decided {
        let message = Message::advance(batch.job, batch.thread);
        done.wake = Some(votes::wake(tx, &message, batch.now, log).await?);
    }
    Ok(done)
}
