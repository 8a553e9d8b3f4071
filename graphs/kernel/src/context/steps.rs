//! Effects that happen once: `cx.step`.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::{Context, durable};
use crate::node::{NodeError, NodeResult};

/// A key to hand to the outside system, equal at every attempt of one step,
/// so that it can tell a repetition from a second order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// 32 hex digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Context {
    /// Runs an effect once and remembers its result: the result is durable
    /// before the body goes on, and a later run of the body (after an
    /// interrupt, a failure, a crash) gets it back instead of repeating the
    /// effect. Steps are matched by name; a name used twice in one run counts
    /// as two steps, in order.
    ///
    /// At-least-once: a process that dies between the effect and its record
    /// repeats it. Pass the key to whatever you call.
    ///
    /// # Errors
    /// The effect's own error (nothing is recorded), or the result could not
    /// be stored.
    pub async fn step<T, E, Fut>(&self, name: &str, effect: impl FnOnce(IdempotencyKey) -> Fut + Send) -> NodeResult<T>
    where
        T: Serialize + DeserializeOwned,
        E: Into<NodeError>,
        Fut: Future<Output = Result<T, E>> + Send,
    {
        let name = self.nth_use(name);
        if let Some(recorded) = self.recorded(&name) {
            return Ok(T::deserialize(recorded)?);
        }
        durable(self.shared.scope.host.effects.may_begin())?;
        let result = effect(self.idempotency_key(&name)).await.map_err(Into::into)?;
        let encoded = serde_json::to_value(&result)?;
        self.record(&name, &encoded).await?;
        Ok(result)
    }

    /// The key of the step `name` at this address.
    fn idempotency_key(&self, name: &str) -> IdempotencyKey {
        let mut hash = Sha256::new();
        let mut put = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        put(b"countersign/step/1");
        put(&self.shared.scope.salt);
        put(self.shared.scope.planned_by.as_str().as_bytes());
        self.address.each_part(&mut put);
        put(name.as_bytes());
        IdempotencyKey(hex::encode(&hash.finalize()[..16]))
    }

    pub(super) fn recorded(&self, name: &str) -> Option<serde_json::Value> {
        self.occurrences().get(&self.address).and_then(|occurrence| occurrence.steps.get(name).cloned())
    }

    pub(super) async fn record(&self, name: &str, result: &serde_json::Value) -> NodeResult<()> {
        let scope = &self.shared.scope;
        durable(scope.host.effects.record(scope.frame.as_ref(), &self.address, name, result).await)?;
        self.occurrences().entry(&self.address).steps.insert(name.to_owned(), result.clone());
        Ok(())
    }
}
