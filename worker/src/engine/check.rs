//! Which threads this build could not go on with, before it is let loose on them.

use countersign_kernel::ids::ThreadId;

use super::Engine;
use super::restore::restore;
use crate::store::StoreError;
use crate::store::views::{Keyset, ThreadFilter};

/// A thread that does not fit this build: it would be held when something
/// wakes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// The thread.
    pub thread: ThreadId,
    /// Its graph.
    pub graph: String,
    /// The version of the graph that it is on.
    pub graph_version: u32,
    /// Its status.
    pub status: String,
    /// Why it does not fit, all reasons.
    pub reasons: Vec<String>,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Threads that have not ended.
    pub threads: u64,
    /// Those that do not fit.
    pub unfit: Vec<Unfit>,
}

const PAGE: u32 = 500;

impl Engine {
    /// Looks at every thread that has not ended, changes nothing, and says
    /// which ones this build could not go on with. A thread that is moving just
    /// now is looked at wherever it is. An ended one starts over on fresh input
    /// whatever it was.
    ///
    /// # Errors
    /// Only of the database.
    pub async fn check(&self) -> Result<Checked, StoreError> {
        let mut checked = Checked::default();
        let filter = ThreadFilter { status: Some(ThreadFilter::UNFINISHED.into()), ..ThreadFilter::default() };
        let mut after: Option<Keyset> = None;
        loop {
            let page = self.inner.store.threads(&filter, after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(checked) };
            after = Some(Keyset { at: last.created_at, id: last.thread.as_str().to_owned() });
            for summary in page {
                checked.threads += 1;
                let reasons = self.reasons(&summary.thread, &summary.graph).await?;
                if !reasons.is_empty() {
                    checked.unfit.push(Unfit {
                        thread: summary.thread,
                        graph: summary.graph,
                        graph_version: summary.graph_version,
                        status: summary.status,
                        reasons,
                    });
                }
            }
        }
    }

    async fn reasons(&self, thread: &ThreadId, graph: &str) -> Result<Vec<String>, StoreError> {
        let Some(graph) = self.inner.graphs.get(graph) else {
            return Ok(vec![format!("this build has no graph `{graph}`")]);
        };
        let mut held = match self.inner.store.load(thread).await {
            Ok(held) => held,
            Err(unreadable @ StoreError::Unreadable { .. }) => return Ok(vec![unreadable.to_string()]),
            Err(error) => return Err(error),
        };
        Ok(match restore(graph, &mut held) {
            Ok(restored) => restored.misfits(graph).iter().map(ToString::to_string).collect(),
            Err(misfit) => vec![misfit.to_string()],
        })
    }
}
