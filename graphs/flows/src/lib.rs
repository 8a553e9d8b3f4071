//! The flows that ship with Countersign, each one file that reads like the
//! rule it is: [`expense()`], [`payment()`], [`wire_batch()`], [`hitl_tour()`].
//! And [`recipes`]: small ones to copy.
//!
//! What leaves the house goes through a [`Ledger`], given from outside.

mod expense;
mod fields;
mod hitl_tour;
mod ledger;
mod money;
mod payment;
pub mod recipes;
mod wire_batch;

use std::sync::Arc;

use countersign_kernel::graph::{CompileError, CompiledGraph};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use expense::expense;
pub use hitl_tour::hitl_tour;
pub use ledger::{InMemoryLedger, Ledger, LedgerError, Payment, Receipt};
pub use money::{Money, MoneyError, Written, written};
pub use payment::payment;
pub use wire_batch::wire_batch;

/// How a case over money ended: the key `outcome`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The money was sent; there is a receipt.
    Paid,
    /// Somebody said no.
    Rejected,
    /// There was nothing to pay: a credit, or an empty row.
    Skipped,
}

/// Every flow that ships.
///
/// # Errors
/// A flow does not compile; the error says which and why.
pub fn all(ledger: Arc<dyn Ledger>) -> Result<Vec<CompiledGraph>, CompileError> {
    Ok(vec![expense(Arc::clone(&ledger))?, payment(Arc::clone(&ledger))?, wire_batch(ledger)?, hitl_tour()?])
}

/// A few threads to look at, as pairs of flow and input. Together they show
/// every state a new thread can be in: done at once, and waiting for one or
/// several people.
#[must_use]
pub fn demo_inputs() -> Vec<(&'static str, Value)> {
    let expense = |amount: &str, requester: &str, purpose: &str| {
        ("expense", json!({"amount": amount, "currency": "EUR", "requester": requester, "purpose": purpose}))
    };
    let payment = |trans_no: &str, supplier: &str, category: &str, amount: &str| {
        let row = json!({
            "trans_no": trans_no, "supplier_name": supplier, "expenditure_category": category,
            "paid_date": "28/06/2016", "amount": amount,
        });
        ("payment", row)
    };
    vec![
        expense("48.20", "Ines Moreau", "Train to the supplier"),
        expense("420.00", "Jonas Weber", "Chairs for the meeting room"),
        expense("2350.00", "Amara Okafor", "Booth at the spring fair"),
        payment("47015104_0", "Thames Water", "Water & Sewerage Charges", "1009.95"),
        payment("60057781_0", "Willmott Dixon", "Main Contractor", "£18,240.00"),
        payment("60057782_0", "Willmott Dixon", "Main Contractor", "(310.00)"),
        ("wire_batch", json!({})),
        ("hitl_tour", json!({})),
    ]
}

#[cfg(test)]
mod tests {
    use countersign_kernel::driver::Driver;
    use countersign_kernel::machine::Rest;
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn every_demo_input_is_taken_by_a_flow_that_ships() {
        let flows: Vec<_> =
            all(Arc::new(InMemoryLedger::new())).expect("sound flows").into_iter().map(Arc::new).collect();
        assert!(flows.iter().all(|flow| flow.warnings().is_empty()));
        let rests: Vec<Rest> = demo_inputs()
            .into_iter()
            .map(|(name, input)| {
                let flow = flows.iter().find(|flow| flow.name() == name).expect("a flow that ships");
                let run = Driver::start(Arc::clone(flow), input).now_or_never().expect("in memory");
                run.expect("good input").rest()
            })
            .collect();
        let (done, waits) = (Rest::Succeeded, Rest::Parked);
        assert_eq!(rests, [done, waits, waits, done, waits, done, waits, waits]);
    }
}
