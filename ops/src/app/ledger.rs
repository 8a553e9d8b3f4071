//! The shipped flows' ledger, on the worker's durable list of effects.

use std::sync::Arc;

use async_trait::async_trait;
use countersign_flows::{Ledger, LedgerError, Payment, Receipt};
use countersign_kernel::ports::Clock;
use countersign_worker::store::EffectLedger;

/// Books payments in `ledger.db`: one per key, attempts counted.
pub struct StoreLedger {
    effects: EffectLedger,
    clock: Arc<dyn Clock>,
}

impl StoreLedger {
    /// A ledger over a list of effects.
    #[must_use]
    pub fn new(effects: EffectLedger, clock: Arc<dyn Clock>) -> Self {
        Self { effects, clock }
    }
}

#[async_trait]
impl Ledger for StoreLedger {
    async fn pay(&self, key: &str, payment: &Payment) -> Result<Receipt, LedgerError> {
        let order = serde_json::to_string(payment).map_err(|error| LedgerError::Refused(error.to_string()))?;
        self.effects
            .order(key, &order, self.clock.now())
            .await
            .map_err(|error| LedgerError::Unavailable(error.to_string()))?;
        // The booking's number is the key's, so a repetition gets the same.
        Ok(Receipt { number: format!("L-{}", key.get(..12).unwrap_or(key).to_uppercase()) })
    }
}
