//! Tests of the flow `payment`; the whole file of real rows is in `tests/it`.

use countersign_kernel::machine::Rest;
use futures_util::FutureExt;
use serde_json::json;

use super::*;
use crate::InMemoryLedger;

fn start(input: Value) -> (Driver, Arc<InMemoryLedger>) {
    let ledger = Arc::new(InMemoryLedger::new());
    let flow = payment(Arc::clone(&ledger) as Arc<dyn Ledger>).expect("sound");
    (Driver::start(flow, input).now_or_never().expect("in memory").expect("good row"), ledger)
}

fn row(amount: &str) -> Value {
    json!({"trans_no": "7_1", "supplier_name": " Acme ", "amount": amount, "type": "Revenue"})
}

fn faults(input: &Value) -> Vec<(String, String)> {
    read(input).err().unwrap_or_default().into_iter().map(|fault| (fault.pointer, fault.message)).collect()
}

#[test]
fn below_5000_it_is_paid_at_once() {
    let (run, ledger) = start(row("4,999.99"));
    assert_eq!((run.rest(), &run.state()["outcome"]), (Rest::Succeeded, &json!("paid")));
    let paid = Payment {
        reference: "7_1".into(),
        payee: "Acme".into(),
        amount: "4999.99".parse().expect("money"),
        currency: "GBP".into(),
    };
    assert_eq!(ledger.payments(), [paid]);
}

#[test]
fn from_5000_finance_decides() {
    for (approved, outcome, payments) in [(true, "paid", 1), (false, "rejected", 0)] {
        let (mut run, ledger) = start(row("£5,000.00"));
        let request = run.points()[0].request().expect("an approval");
        assert_eq!(request.policy.approvers, [role("finance")]);
        assert_eq!(request.title, "Pay 5,000.00 GBP to Acme?");
        let details: Vec<_> = request.details.iter().map(|d| (d.label.as_str(), d.value.as_str())).collect();
        let expected = [("Payee", "Acme"), ("Amount", "5,000.00 GBP"), ("Reference", "7_1"), ("Type", "Revenue")];
        assert_eq!(details, expected);
        assert!(ledger.payments().is_empty());
        run.answer(json!({"approved": approved})).now_or_never().expect("in memory").expect("an open approval");
        assert_eq!((run.rest(), &run.state()["outcome"]), (Rest::Succeeded, &json!(outcome)));
        assert_eq!(ledger.payments().len(), payments);
    }
}

#[test]
fn credits_and_empty_amounts_are_skipped() {
    for amount in ["0", "0.00", "-1", "(7,500.00)", "7,500.00-"] {
        let (run, ledger) = start(row(amount));
        assert_eq!((run.rest(), &run.state()["outcome"]), (Rest::Succeeded, &json!("skipped")), "{amount}");
        assert_eq!(ledger.attempts(), 0);
    }
}

#[test]
fn columns_are_found_however_they_are_spelled() {
    for (no, supplier, amount) in [
        ("Trans No", "Supplier Name", "Amount"),
        ("TRANS_NO", "SUPPLIER", "Net Amount"),
        (" trans-no ", "Payee", "Amount (£)"),
        ("Transaction Number", "beneficiary", "Value"),
    ] {
        let (run, _) = start(json!({no: 4711, supplier: "Acme", amount: 12.5, "Notes": null}));
        assert_eq!(run.state()["reference"], "4711");
        assert_eq!(run.state()["payee"], "Acme");
        assert_eq!(run.state()["amount"], "12.50");
        assert_eq!(run.state()["facts"], json!({"notes": ""}));
    }
}

#[test]
fn the_currency_is_what_the_row_says() {
    let currency = |row: Value| start(row).0.state()["currency"].clone();
    assert_eq!(currency(row("€12")), "EUR");
    assert_eq!(currency(json!({"trans_no": "1", "payee": "A", "amount": "12", "Currency": "usd"})), "USD");
    let both = json!({"trans_no": "1", "payee": "A", "amount": "€12", "currency": "usd"});
    assert_eq!(faults(&both), [("/amount".into(), "is in EUR, but the column `currency` says USD".into())]);
}

#[test]
fn rows_that_cannot_be_read_are_refused_column_by_column() {
    let pointers = |row: Value| -> Vec<String> { faults(&row).into_iter().map(|(pointer, _)| pointer).collect() };
    assert_eq!(pointers(json!({})), ["/trans_no", "/supplier_name", "/amount"]);
    assert_eq!(pointers(json!("7_1,Acme,12")), [""]);
    let bad_cells = json!({"Trans No": "", "Payee": "A", "Amount (£/€)": "12,5", "currency": "pounds"});
    assert_eq!(pointers(bad_cells), ["/Trans No", "/currency", "/Amount (£~1€)"]);
    let no_row =
        json!({"trans_no": [], "Trans No": "2", "payee": 0.300_000_000_000_000_04, "amount": 123_456_789_012_345.67});
    assert_eq!(pointers(no_row), ["/trans_no", "/Trans No", "/amount"]);
    let too_precise = json!({"trans_no": "1", "payee": "A", "amount": "1.005"});
    assert_eq!(faults(&too_precise), [("/amount".into(), "`1.005` has more than two decimals".into())]);
}
