//! A batch of wire transfers in one node: each goes out as soon as whoever
//! must agree to it has agreed, and none goes out twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fields::Fields;
use crate::ledger::{self, Ledger, Payment, Receipt};
use crate::{Money, Outcome};

/// From here on treasury is asked.
const TREASURY_FROM: Money = Money::whole(10_000);
/// Most transfers in one batch.
const TRANSFERS_MAX: usize = 1_000;

#[derive(State)]
struct WireBatch {
    transfers: Vec<Transfer>,
    #[reduce(append)]
    results: Vec<Sent>,
    outcome: Option<Outcome>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Transfer {
    id: String,
    to: String,
    amount: Money,
    currency: String,
    abroad: bool,
}

/// What became of one transfer.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sent {
    id: String,
    outcome: Outcome,
    receipt: Option<Receipt>,
    decisions: Vec<Decision>,
}

/// The flow `wire_batch`. Input: `{transfers: [{id, to, amount, currency,
/// abroad?}]}`; without `transfers`, five made-up ones.
///
/// From 10,000 `treasury` is asked, and `compliance` for what goes abroad;
/// who says no stops that transfer only.
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn wire_batch(ledger: Arc<dyn Ledger>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<WireBatch>::new("wire_batch", 1);
    let send = flow.node("send", send_all);
    flow.start(send).end(send);
    flow.provide(ledger).input(read);
    flow.compile()
}

async fn send_all(cx: &Context, batch: &WireBatch) -> NodeResult<WireBatchUpdate> {
    let slots = batch.transfers.iter().map(|transfer| Slot::new(&transfer.id, transfer.clone())).collect();
    let results = cx.batch("transfer", slots, send).await?;
    let any_paid = results.iter().any(|sent| sent.outcome == Outcome::Paid);
    let outcome = if any_paid { Outcome::Paid } else { Outcome::Rejected };
    Ok(results.into_iter().fold(WireBatch::update(), WireBatchUpdate::results).outcome(Some(outcome)))
}

async fn send(cx: Context, transfer: Transfer) -> NodeResult<Sent> {
    let mut sent = Sent { id: transfer.id.clone(), outcome: Outcome::Paid, receipt: None, decisions: Vec::new() };
    for approver in transfer.approvers() {
        let decision = cx.ask(transfer.question(approver, &sent.decisions)).await?;
        let approved = decision.approved;
        sent.decisions.push(decision);
        if !approved {
            return Ok(Sent { outcome: Outcome::Rejected, ..sent });
        }
    }
    let payment =
        Payment { reference: transfer.id, payee: transfer.to, amount: transfer.amount, currency: transfer.currency };
    Ok(Sent { receipt: Some(ledger::pay(&cx, &payment).await?), ..sent })
}

impl Transfer {
    fn approvers(&self) -> impl Iterator<Item = &'static str> {
        let treasury = (self.amount >= TREASURY_FROM).then_some("treasury");
        let compliance = self.abroad.then_some("compliance");
        treasury.into_iter().chain(compliance)
    }

    /// Whoever decided this transfer before does not decide it again.
    fn question(&self, approver: &str, before: &[Decision]) -> Ask<Decision> {
        approval(format!("Send {} {} to {}?", self.amount, self.currency, self.to))
            .detail("Transfer", &self.id)
            .detail("To", &self.to)
            .detail("Amount", format_args!("{} {}", self.amount, self.currency))
            .detail("Leaves the country", if self.abroad { "yes" } else { "no" })
            .to(role(approver))
            .excluding(before.iter().flat_map(|decision| decision.by.clone()))
            .on_yes("it is sent once everybody asked agrees")
            .on_no("this transfer is dropped; the others are not affected")
    }
}

fn read(input: &Value) -> Result<WireBatchUpdate, Vec<Fault>> {
    let nothing = json!({});
    let mut fields = Fields::of(if input.is_null() { &nothing } else { input }, "");
    let made_up = demo();
    let transfers = match fields.optional("transfers").unwrap_or(&made_up) {
        Value::Array(transfers) => transfers.as_slice(),
        _ => {
            fields.fault("transfers", "expected a list of transfers");
            &[]
        }
    };
    if !(1..=TRANSFERS_MAX).contains(&transfers.len()) {
        fields.fault("transfers", format!("must hold 1 to {TRANSFERS_MAX} transfers, not {}", transfers.len()));
    }
    let mut faults = fields.finish();
    let mut ids = BTreeSet::new();
    let mut read = Vec::with_capacity(transfers.len());
    for (number, transfer) in transfers.iter().enumerate() {
        let mut fields = Fields::of(transfer, format!("/transfers/{number}"));
        let transfer = Transfer {
            id: fields.text("id"),
            to: fields.text("to"),
            amount: fields.amount("amount"),
            currency: fields.currency("currency"),
            abroad: fields.flag("abroad"),
        };
        if !transfer.id.is_empty() && !ids.insert(transfer.id.clone()) {
            fields.fault("id", "is the id of an earlier transfer");
        }
        faults.extend(fields.finish());
        read.push(transfer);
    }
    if faults.is_empty() { Ok(WireBatch::update().transfers(read)) } else { Err(faults) }
}

/// Five transfers of which two need somebody, and not the same one.
fn demo() -> Value {
    json!([
        {"id": "W-1", "to": "Stadtwerke Kassel", "amount": "312.40", "currency": "EUR"},
        {"id": "W-2", "to": "Baumann Spedition", "amount": "18500.00", "currency": "EUR"},
        {"id": "W-3", "to": "Papier Union", "amount": "86.10", "currency": "EUR"},
        {"id": "W-4", "to": "Ferreira Cortiça, Porto", "amount": "2200.00", "currency": "EUR", "abroad": true},
        {"id": "W-5", "to": "Reinigung Albrecht", "amount": "540.00", "currency": "EUR"},
    ])
}

#[cfg(test)]
#[path = "wire_batch_tests.rs"]
mod tests;
