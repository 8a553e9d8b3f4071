//! Several calls in one node: `cx.batch` (K16).

use futures_util::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Context;
use crate::node::{NodeError, NodeResult};

/// The name under which a slot's finished result is recorded.
pub(super) const RESULT: &str = "=";

/// One call of a batch: an input, with a label that people read in the
/// address. The slot number, not the label, makes it unique.
#[derive(Debug, Clone)]
pub struct Slot<T> {
    label: String,
    input: T,
}

impl<T> Slot<T> {
    /// A slot for `input`, labelled `label`.
    pub fn new(label: impl Into<String>, input: T) -> Self {
        Self { label: label.into(), input }
    }
}

impl Context {
    /// Runs a body per slot, side by side, and returns the results in slot
    /// order once all have one. Each slot is an occurrence of its own: it has
    /// its own questions and steps, a finished slot keeps its result for good,
    /// and a slot that waits is not run until it is answered (K7, K16).
    ///
    /// All slots run to their end before the batch does, also when one fails.
    ///
    /// # Errors
    /// The first failure in slot order; otherwise an interrupt if any slot waits.
    pub async fn batch<T, R, F, Fut>(&self, name: &str, slots: Vec<Slot<T>>, body: F) -> NodeResult<Vec<R>>
    where
        R: Serialize + DeserializeOwned,
        F: Fn(Context, T) -> Fut + Sync,
        Fut: Future<Output = NodeResult<R>> + Send,
    {
        let name = self.nth_use(name);
        let known = self.occurrences().slots(&self.address, &name);
        let runs = slots.into_iter().enumerate().map(|(number, slot)| {
            let number = number as u64;
            // Matched by its number: the label may be another one at each run,
            // and the first stays in the address (K16).
            let address = known.get(&number).cloned();
            let address = address.unwrap_or_else(|| self.address.slot(&name, number, Some(&slot.label)));
            let (cx, body) = (self.part(address), &body);
            async move { (cx.run_slot(slot.input, body).await, cx.waits()) }
        });
        let mut results = Vec::new();
        let mut waits = false;
        let mut failure = None;
        for (outcome, slot_waits) in join_all(runs).await {
            if slot_waits {
                self.mark_waiting();
            }
            match outcome {
                Ok(result) => results.push(result),
                Err(NodeError::Interrupted) => waits = true,
                Err(NodeError::LeaseLost) => return Err(NodeError::LeaseLost),
                Err(error @ NodeError::Failed(_)) => {
                    failure.get_or_insert(error);
                }
            }
        }
        match failure {
            Some(error) => Err(error),
            None if waits => Err(NodeError::Interrupted),
            None => Ok(results),
        }
    }

    async fn run_slot<T, R, F, Fut>(&self, input: T, body: &F) -> NodeResult<R>
    where
        R: Serialize + DeserializeOwned,
        F: Fn(Context, T) -> Fut,
        Fut: Future<Output = NodeResult<R>>,
    {
        if let Some(result) = self.recorded(RESULT) {
            return Ok(R::deserialize(result)?);
        }
        // A retry enters what has parked parts: what failed may be beside them.
        let parked = self.occurrences().is_parked(&self.address, !self.shared.retry);
        if parked && !self.shared.resume_all {
            self.mark_waiting();
            return Err(NodeError::Interrupted);
        }
        let result = body(self.clone(), input).await?;
        // A body that swallowed the signal still waits: its question is open.
        if self.waits() {
            return Err(NodeError::Interrupted);
        }
        self.record(RESULT, &serde_json::to_value(&result)?).await?;
        // What it did not ask again, it no longer waits for (K20).
        self.occurrences().withdraw(&self.address);
        Ok(result)
    }
}
