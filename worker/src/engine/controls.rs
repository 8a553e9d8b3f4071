//! Switches, limits and cancels: what an engine knows of them, and what it is
//! asked to do about them.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::machine::Position;
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;

use super::dispatch::Work;
use super::requests::RequestError;
use super::{Engine, lock};
use crate::store::commands::{FlowLimits, HeldBack, PauseSwitch, SwitchOf};
use crate::store::{Due, StoreError};

/// Most threads that are taken up when a place has become free.
const IN_TURN_MAX: u32 = 100;
/// Most cancels that are finished over the heads of holders at a time.
const ABANDON_MAX: u32 = 100;

/// What holds threads back, as this process learned at its last sweep.
#[derive(Debug, Default)]
pub(super) struct Standing {
    switches: Vec<PauseSwitch>,
    limited: HashSet<String>,
}

impl Engine {
    /// Learns which switches and limits there are now.
    pub(super) async fn learn(&self, now: Timestamp) -> Result<(), StoreError> {
        let switches = self.inner.store.switches(now).await?;
        let limited = self.inner.store.limits().await?.into_iter().map(|(graph, _)| graph).collect();
        *lock(&self.inner.standing) = Arc::new(Standing { switches, limited });
        Ok(())
    }

    /// Tells bodies of this process of cancels that came in through others, and
    /// cancels what others should have stopped by now.
    pub(super) async fn mind_cancels(&self, now: Timestamp) -> Result<(), StoreError> {
        for thread in self.inner.store.cancelling(&self.inner.worker).await? {
            self.tell_of_cancel(&thread);
        }
        // A holder drops its bodies first; this is for those that cannot.
        let grace = self.inner.config.cancel_grace.saturating_mul(2);
        let grace = i64::try_from(grace.as_micros()).unwrap_or(i64::MAX);
        let asked_before = Timestamp::from_micros(now.as_micros().saturating_sub(grace));
        match self.inner.store.abandon(asked_before, ABANDON_MAX, now).await? {
            0 => {}
            threads => tracing::warn!(threads, "cancelled over the heads of workers that did not stop"),
        }
        Ok(())
    }

    pub(super) fn tell_of_cancel(&self, thread: &ThreadId) {
        if let Some(active) = lock(&self.inner.active).get(thread) {
            active.stop.cancel();
        }
    }

    /// Of these tasks of a superstep, those that may run now, and what holds the
    /// others back.
    pub(super) fn may_run(
        &self,
        graph: &CompiledGraph,
        position: &Position,
        tasks: Vec<usize>,
    ) -> (Vec<usize>, Option<HeldBack>) {
        let standing = Arc::clone(&lock(&self.inner.standing));
        if standing.switches.is_empty() {
            return (tasks, None);
        }
        let now = self.inner.clock.now();
        let mut paused = HashSet::new();
        for switch in standing.switches.iter().filter(|switch| switch.holds(now)) {
            match &switch.of {
                SwitchOf::Graph(name) if name == graph.name() => {
                    return (Vec::new(), Some(HeldBack::Graph(name.clone())));
                }
                SwitchOf::Node { graph: of, node } if of == graph.name() => _ = paused.insert(node.as_str()),
                SwitchOf::Graph(_) | SwitchOf::Node { .. } | SwitchOf::Channel(_) => {}
            }
        }
        let node = |index: &usize| position.tasks[*index].plan.node.as_str();
        let (waits, runs): (Vec<usize>, Vec<usize>) = tasks.into_iter().partition(|index| paused.contains(node(index)));
        let nodes: BTreeSet<String> = waits.iter().map(|index| node(index).to_owned()).collect();
        let by = (!nodes.is_empty()).then(|| HeldBack::Nodes(graph.name().to_owned(), nodes.into_iter().collect()));
        (runs, by)
    }

    /// A thread of this flow no longer runs: another may have its place.
    pub(super) fn freed(&self, graph: &str) {
        if lock(&self.inner.standing).limited.contains(graph) {
            self.inner.freed.notify_one();
        }
    }

    /// Takes up whose turn it is when a place becomes free, for as long as the
    /// engine runs. The sweep does so too.
    pub(super) async fn take_turns(self) {
        loop {
            self.inner.freed.notified().await;
            let now = self.inner.clock.now();
            match self.inner.store.in_turn(&self.inner.config.serves, now, IN_TURN_MAX).await {
                Ok(due) => {
                    for due in due {
                        if let Due::Thread(thread) = due {
                            self.add(Work::Thread(thread), None);
                        }
                    }
                }
                Err(error) => tracing::error!(%error, "nobody was taken up; the sweep does it"),
            }
        }
    }

    /// Pauses a flow, a node of one or a channel, for every process: within a
    /// sweep's interval nothing of it is taken up any more.
    ///
    /// # Errors
    /// The store failed.
    pub async fn set_switch(
        &self,
        of: SwitchOf,
        reason: String,
        until: Option<Timestamp>,
        by: &Principal,
    ) -> Result<PauseSwitch, RequestError> {
        let now = self.inner.clock.now();
        let switch = PauseSwitch { of, reason, by: by.clone(), since: now, until };
        self.inner.store.set_switch(switch.clone(), &self.inner.ids.uuid()).await?;
        self.learn(now).await?;
        Ok(switch)
    }

    /// Ends a pause; what it held back is taken up at once. Whether there was
    /// one.
    ///
    /// # Errors
    /// The store failed.
    pub async fn end_switch(&self, of: &SwitchOf, by: &Principal) -> Result<bool, RequestError> {
        let now = self.inner.clock.now();
        let ended = self.inner.store.end_switch(of, by, &self.inner.ids.uuid(), now).await?;
        self.inner.called.notify_one();
        Ok(ended)
    }

    /// Limits how many threads of a flow run, for every process. What runs
    /// already goes on and counts.
    ///
    /// # Errors
    /// The store failed.
    pub async fn set_limits(&self, graph: &str, limits: FlowLimits, by: &Principal) -> Result<(), RequestError> {
        let now = self.inner.clock.now();
        self.inner.store.set_limits(graph, limits, by, &self.inner.ids.uuid(), now).await?;
        self.inner.called.notify_one();
        Ok(())
    }
}
