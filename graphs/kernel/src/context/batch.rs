//! Several calls in one node: `cx.batch` (K16).

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Context;
use crate::node::{NodeError, NodeResult};

/// One call of a batch: an input, with a label that people read in the
/// address. The slot number, not the label, makes it unique.
#[derive(Debug, Clone)]
pub struct Slot<T> {
    name: Option<String>,
    label: String,
    input: T,
}

impl<T> Slot<T> {
    /// A slot for `input`, labelled `label`.
    pub fn new(label: impl Into<String>, input: T) -> Self {
        Self { name: None, label: label.into(), input }
    }

    /// The slot under a name of its own in the address: the tool that is
    /// called, where the batch mixes tools.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
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
        let names = self.slot_names(name, &slots);
        let known: BTreeMap<_, _> =
            names.values().map(|name| (name.clone(), self.occurrences().slots(&self.address, name))).collect();
        let runs = slots.into_iter().enumerate().map(|(number, slot)| {
            let number = number as u64;
            let name = &names[&slot.name];
            // Matched by its number: the label may be another one at each run,
            // and the first stays in the address (K16).
            let address = known[name].get(&number).cloned();
            let address = address.unwrap_or_else(|| self.address.slot(name, number, Some(&slot.label)));
            let (cx, body) = (self.part(address), &body);
            async move { (cx.run_part(|cx| body(cx, slot.input)).await, cx.waits()) }
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
                Err(error @ (NodeError::Failed(_) | NodeError::HandOver(_))) => {
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

    /// The name in the address of each name that slots have: a second batch of
    /// this run must not meet the slots of the first.
    fn slot_names<T>(&self, batch: &str, slots: &[Slot<T>]) -> BTreeMap<Option<String>, String> {
        let names: BTreeSet<Option<String>> = slots.iter().map(|slot| slot.name.clone()).collect();
        names.into_iter().map(|name| (name.clone(), self.nth_use(name.as_deref().unwrap_or(batch)))).collect()
    }
}
