//! Keeping less of the past, while it is made.

use countersign_kernel::ids::ThreadId;

use super::Engine;

/// Most rows that one transaction deletes, so that others get their turns.
const PIECE: u32 = 500;

/// Threads that one step of the walk looks at.
const WALK: u32 = 1_000;

impl Engine {
    /// Compacts what rests with more of a past than is kept: of a process that
    /// died over it, or from before it was configured. Each call looks at the
    /// next threads, and begins again behind the last.
    pub(super) async fn compact_next(&self, after: &mut Option<ThreadId>) {
        let config = &self.inner.config;
        if config.keep_checkpoints == 0 && config.keep_checkpoints_of.is_empty() {
            return;
        }
        let found = match self.inner.store.histories(after.as_ref(), WALK).await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "histories were not looked at; the next time tries again");
                return;
            }
        };
        *after = found.last().filter(|_| found.len() == WALK as usize).map(|last| last.thread.clone());
        for history in found {
            let keep = self.keeps(&history.graph);
            // One that advances is compacted as it does.
            if keep > 0 && history.checkpoints > u64::from(keep) + u64::from(keep) / 2 + 1 {
                self.compact_whole(&history.thread, keep).await;
            }
        }
    }

    /// How many checkpoints of a flow's threads are kept; 0 is all.
    fn keeps(&self, graph: &str) -> u32 {
        let config = &self.inner.config;
        config.keep_checkpoints_of.get(graph).copied().unwrap_or(config.keep_checkpoints)
    }

    async fn compact_whole(&self, thread: &ThreadId, keep: u32) {
        loop {
            match self.inner.store.compact(thread, keep, PIECE).await {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, %thread, "a history was not compacted; a later time tries again");
                    return;
                }
            }
        }
    }

    /// Compacts a thread whose newest checkpoint is number `seq`, now and then:
    /// beside what it does, in pieces.
    pub(super) fn compact_at(&self, graph: &str, thread: &ThreadId, seq: i64) {
        let keep = self.keeps(graph);
        let every = i64::from((keep / 2).max(1));
        if keep == 0 || seq < i64::from(keep) || seq % every != 0 {
            return;
        }
        let (engine, thread) = (self.clone(), thread.clone());
        self.inner.tasks.spawn(async move { engine.compact_whole(&thread, keep).await });
    }
}
