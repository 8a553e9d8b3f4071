//! Parts of an occurrence: `cx.child`, and containers that take data (K1, K7, K18).

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Context;
use crate::address::{Segment, SegmentKind};
use crate::node::{NodeError, NodeResult};
use crate::occurrence::Container;

/// The name under which a part's finished result is recorded.
pub(super) const RESULT: &str = "=";

impl Context {
    /// Runs a part of this occurrence under a segment of its own: a member of
    /// a group, a step of a loop. The part has its own questions, steps and
    /// parts; once finished it keeps its result for good; while it waits it is
    /// not run until it is answered (K7). Entering the same segment and id
    /// again in this run is another visit (R6).
    ///
    /// A body that enters several parts runs them one after the other or, with
    /// `join!`, side by side; to stop with all open ones together, enter all
    /// before returning the first interrupt.
    ///
    /// # Errors
    /// What the part returns; [`NodeError::Interrupted`] while it waits.
    pub async fn child<R, F, Fut>(&self, segment: &str, id: &str, body: F) -> NodeResult<R>
    where
        R: Serialize + DeserializeOwned,
        F: FnOnce(Self) -> Fut,
        Fut: Future<Output = NodeResult<R>> + Send,
    {
        // Counted by segment and id together: members are told apart by both.
        let visit = self.nth_entry(SegmentKind::Child, &format!("{segment}:{id}"));
        let segment = Segment { kind: SegmentKind::Child, name: segment.to_owned(), sub: Some(id.to_owned()), visit };
        let cx = self.part(self.address.child(segment));
        let result = cx.run_part(body).await;
        if cx.waits() {
            self.mark_waiting();
        }
        result
    }

    /// Declares that this occurrence takes data of its own beside what its
    /// parts ask, and gives the newest that it was sent (K18). `info` is for
    /// people. Parts below it can be answered together with it or without.
    ///
    /// # Errors
    /// None today.
    pub fn container(&self, info: impl Into<Value>) -> NodeResult<Option<Value>> {
        let id = self.address.container_id(&self.shared.scope.salt, Some(&self.shared.scope.planned_by));
        let mut occurrences = self.occurrences();
        let occurrence = occurrences.entry(&self.address);
        let container =
            occurrence.container.get_or_insert_with(|| Container { id, info: Value::Null, data: None, fresh: false });
        container.info = info.into();
        Ok(container.data.as_ref().and_then(|data| data.value.clone()))
    }

    /// Runs this part, unless it has its result, is parked, or failed without
    /// being told to try again (R12).
    pub(super) async fn run_part<R, F, Fut>(&self, body: F) -> NodeResult<R>
    where
        R: Serialize + DeserializeOwned,
        F: FnOnce(Self) -> Fut,
        Fut: Future<Output = NodeResult<R>>,
    {
        if let Some(result) = self.recorded(RESULT) {
            return Ok(R::deserialize(result)?);
        }
        let again = self.shared.scope.retry || self.attempt > 1;
        // A retry enters what has parked parts: what failed may be beside them.
        if !self.shared.scope.resume_all && self.is_parked(!again) {
            self.mark_waiting();
            return Err(NodeError::Interrupted);
        }
        if !again && let Some(message) = self.failed_before() {
            return Err(NodeError::Failed(message));
        }
        let result = body(self.clone()).await;
        let failure = match &result {
            Err(NodeError::Failed(message)) => Some(message.clone()),
            Ok(_) | Err(NodeError::Interrupted | NodeError::HandOver(_) | NodeError::LeaseLost) => None,
        };
        self.occurrences().entry(&self.address).failure = failure;
        let result = result?;
        // A body that swallowed the signal still waits: its question is open.
        if self.waits() {
            return Err(NodeError::Interrupted);
        }
        self.record(RESULT, &serde_json::to_value(&result)?).await?;
        // What it did not ask again, it no longer waits for (K20).
        self.occurrences().withdraw(&self.address);
        self.frames().retain(|address, _| !self.address.contains(address));
        Ok(result)
    }

    /// Why this part failed in an earlier run, if nothing came in for it since.
    fn failed_before(&self) -> Option<String> {
        let occurrences = self.occurrences();
        let failure = occurrences.get(&self.address)?.failure.clone()?;
        let woken = occurrences.has_target(&self.address)
            || self.frames().iter().any(|(at, frame)| self.address.contains(at) && frame.can_go_on());
        (!woken).then_some(failure)
    }
}
