//! Where the money leaves: the one thing the shipped flows need from outside.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use countersign_kernel::prelude::*;
use serde::{Deserialize, Serialize};

use crate::money::Money;

/// One payment to one payee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payment {
    /// What it pays: an invoice, a transaction number.
    pub reference: String,
    /// Who is paid.
    pub payee: String,
    /// How much; always positive.
    pub amount: Money,
    /// ISO 4217, `EUR`.
    pub currency: String,
}

/// The ledger's word that a payment is booked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The booking's number.
    pub number: String,
}

/// Why a payment was not booked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The ledger will not book it, however often it is asked.
    #[error("the ledger refused the payment: {0}")]
    Refused(String),
    /// The ledger could not be reached; it may or may not have booked it.
    #[error("the ledger did not answer: {0}")]
    Unavailable(String),
}

/// Books payments.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Books a payment under `key`. Unique on the key: asked again with the
    /// same key it books nothing more and returns the first receipt, so that a
    /// caller that never heard the first reply may ask again.
    ///
    /// # Errors
    /// Nothing was booked, or nobody knows; asking again with the key is safe.
    async fn pay(&self, key: &str, payment: &Payment) -> Result<Receipt, LedgerError>;
}

/// Pays through the graph's ledger, once for this occurrence (`cx.step`).
pub(crate) async fn pay(cx: &Context, payment: &Payment) -> NodeResult<Receipt> {
    let ledger = cx.resource::<Arc<dyn Ledger>>()?;
    cx.step("pay", |key| async move { ledger.pay(key.as_str(), payment).await }).await
}

/// A ledger in memory, for demonstrations and tests: one booking per key,
/// and a count of how often it was asked.
#[derive(Debug, Default)]
pub struct InMemoryLedger {
    entries: Mutex<BTreeMap<String, Entry>>,
}

#[derive(Debug)]
struct Entry {
    payment: Payment,
    receipt: Receipt,
    attempts: u32,
}

impl InMemoryLedger {
    /// An empty ledger.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What is booked, in the order of the keys: one payment per key.
    #[must_use]
    pub fn payments(&self) -> Vec<Payment> {
        self.entries().values().map(|entry| entry.payment.clone()).collect()
    }

    /// How often [`pay`](Ledger::pay) was called, repetitions included.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.entries().values().map(|entry| entry.attempts).sum()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        // A panic elsewhere leaves whole entries behind.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Ledger for InMemoryLedger {
    async fn pay(&self, key: &str, payment: &Payment) -> Result<Receipt, LedgerError> {
        let mut entries = self.entries();
        let number = format!("R{:06}", entries.len() + 1);
        let entry = entries.entry(key.to_owned()).or_insert_with(|| Entry {
            payment: payment.clone(),
            receipt: Receipt { number },
            attempts: 0,
        });
        entry.attempts += 1;
        if entry.payment == *payment {
            Ok(entry.receipt.clone())
        } else {
            Err(LedgerError::Refused(format!("the key {key} was used for another payment")))
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn one_booking_per_key_whatever_the_attempts() {
        let ledger = InMemoryLedger::new();
        let pay = |key: &str, units| {
            let payment = Payment {
                reference: "r".into(),
                payee: "p".into(),
                amount: Money::whole(units),
                currency: "EUR".into(),
            };
            ledger.pay(key, &payment).now_or_never().expect("in memory")
        };
        let first = pay("a", 1).expect("booked");
        assert_eq!(pay("a", 1), Ok(first));
        assert_ne!(pay("b", 1), pay("a", 1));
        assert!(matches!(pay("a", 2), Err(LedgerError::Refused(_))));
        assert_eq!((ledger.payments().len(), ledger.attempts()), (2, 5));
    }
}
