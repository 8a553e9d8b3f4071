//! Rows of a payments file: large ones wait for finance, the others are paid,
//! credits are left alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde_json::Value;

use crate::fields::is_currency;
use crate::ledger::{self, Ledger, Payment, Receipt};
use crate::{Money, MoneyError, Outcome, written};

/// From here on finance is asked.
const APPROVAL_FROM: Money = Money::whole(5_000);
/// The currency of files that name none: those of British councils.
const CURRENCY: &str = "GBP";

/// What the columns are called, in normal form.
const REFERENCE: &[&str] = &["trans_no", "transaction_no", "transaction_number", "reference"];
const PAYEE: &[&str] = &["supplier_name", "supplier", "payee", "beneficiary"];
const AMOUNT: &[&str] = &["amount", "net_amount", "value"];
const CURRENCY_CODE: &[&str] = &["currency"];

#[derive(State)]
struct Row {
    reference: String,
    payee: String,
    amount: Money,
    currency: String,
    #[state(default)]
    facts: BTreeMap<String, String>,
    #[reduce(append)]
    decisions: Vec<Decision>,
    receipt: Option<Receipt>,
    outcome: Option<Outcome>,
}

/// The flow `payment`. Input: a row of a payments file, as an object of
/// columns; how the columns are spelled and amounts written may vary.
///
/// From 5,000 `finance` is asked; below, it is paid at once. Credits and
/// empty amounts are skipped.
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn payment(ledger: Arc<dyn Ledger>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Row>::new("payment", 1);
    let finance = flow.node("finance", ask_finance);
    let pay = flow.node("pay", pay);
    let skip = flow.node("skip", skip);

    flow.start_with(move |row| match row.amount {
        amount if !amount.is_positive() => skip.into(),
        amount if amount >= APPROVAL_FROM => finance.into(),
        _ => pay.into(),
    });
    flow.after(finance, move |row| if row.outcome.is_some() { Target::end() } else { pay.into() });
    flow.end(pay).end(skip);
    flow.provide(ledger).input(read);
    flow.compile()
}

async fn ask_finance(cx: &Context, row: &Row) -> NodeResult<RowUpdate> {
    let ask = approval(format!("Pay {} {} to {}?", row.amount, row.currency, row.payee))
        .detail("Payee", &row.payee)
        .detail("Amount", format_args!("{} {}", row.amount, row.currency))
        .detail("Reference", &row.reference)
        .details(&row.facts)
        .to(role("finance"))
        .on_yes("it is paid at once")
        .on_no("it is not paid and the case ends");
    let decision = cx.ask(ask).await?;
    let rejected = (!decision.approved).then_some(Outcome::Rejected);
    Ok(Row::update().decisions(decision).outcome(rejected))
}

async fn pay(cx: &Context, row: &Row) -> NodeResult<RowUpdate> {
    let payment = Payment {
        reference: row.reference.clone(),
        payee: row.payee.clone(),
        amount: row.amount,
        currency: row.currency.clone(),
    };
    let receipt = ledger::pay(cx, &payment).await?;
    Ok(Row::update().receipt(Some(receipt)).outcome(Some(Outcome::Paid)))
}

async fn skip(_: &Context, _: &Row) -> NodeResult<RowUpdate> {
    Ok(Row::update().outcome(Some(Outcome::Skipped)))
}

fn read(input: &Value) -> Result<RowUpdate, Vec<Fault>> {
    let mut columns = Columns::of(input)?;
    let reference = columns.required(REFERENCE);
    let payee = columns.required(PAYEE);
    let (amount_column, amount) = columns.required(AMOUNT);
    let (currency_column, code) = columns.take(CURRENCY_CODE).unwrap_or_default();
    let code = code.to_uppercase();
    if !code.is_empty() && !is_currency(&code) {
        columns.fault(&currency_column, "expected a currency code of three letters such as GBP");
    }
    let mut money = Money::whole(0);
    let mut currency = if code.is_empty() { CURRENCY.to_owned() } else { code.clone() };
    match written(&amount) {
        Ok(amount) => {
            money = amount.money;
            match amount.currency {
                Some(sign) if !code.is_empty() && sign != code => {
                    columns
                        .fault(&amount_column, format!("is in {sign}, but the column `{currency_column}` says {code}"));
                }
                Some(sign) => sign.clone_into(&mut currency),
                None => {}
            }
        }
        // That it is missing or empty has been said.
        Err(_) if amount.is_empty() => {}
        Err(problem) => columns.fault(&amount_column, problem.to_string()),
    }
    let row = Row::update().reference(reference.1).payee(payee.1).amount(money).currency(currency);
    if columns.faults.is_empty() { Ok(row.facts(columns.rest())) } else { Err(columns.faults) }
}

/// A row's cells by the normal form of their column's name.
struct Columns {
    /// Normal form to the name as given and the text.
    cells: BTreeMap<String, (String, String)>,
    faults: Vec<Fault>,
}

impl Columns {
    fn of(input: &Value) -> Result<Self, Vec<Fault>> {
        let Value::Object(members) = input else {
            return Err(vec![Fault::at("", "expected a row: an object of columns")]);
        };
        let mut columns = Self { cells: BTreeMap::new(), faults: Vec::new() };
        for (name, cell) in members {
            let text = match cell {
                Value::String(text) => text.trim().to_owned(),
                Value::Number(number) => {
                    if let Err(problem @ MoneyError::Inexact(_)) = Money::from_json(cell) {
                        columns.fault(name, problem.to_string());
                    }
                    number.to_string()
                }
                Value::Bool(flag) => flag.to_string(),
                Value::Null => String::new(),
                Value::Array(_) | Value::Object(_) => {
                    columns.fault(name, "expected a text or a number");
                    String::new()
                }
            };
            if let Some((first, _)) = columns.cells.insert(normal(name), (name.clone(), text)) {
                columns.fault(name, format!("is the same column as `{first}`"));
            }
        }
        // Of what is no row, the columns tell nothing.
        if columns.faults.is_empty() { Ok(columns) } else { Err(columns.faults) }
    }

    /// Takes the first column of these names: as it is spelled, and its text.
    fn take(&mut self, names: &[&str]) -> Option<(String, String)> {
        names.iter().find_map(|name| self.cells.remove(*name))
    }

    fn required(&mut self, names: &[&str]) -> (String, String) {
        let wanted = names.first().copied().unwrap_or_default();
        match self.take(names) {
            Some((name, text)) => {
                if text.is_empty() {
                    self.fault(&name, "is empty");
                }
                (name, text)
            }
            None => {
                self.fault(wanted, format!("is missing: the row has no column called {}", names.join(" or ")));
                (wanted.to_owned(), String::new())
            }
        }
    }

    fn fault(&mut self, name: &str, message: impl Into<String>) {
        self.faults.push(Fault::at_member(name, message));
    }

    /// The columns that no rule reads: what people see beside the question.
    fn rest(self) -> BTreeMap<String, String> {
        self.cells.into_iter().map(|(name, (_, text))| (name, text)).collect()
    }
}

/// `Trans No`, `TRANS_NO` and ` trans-no ` are one column, and so are
/// `Amount` and `Amount (£)`.
fn normal(name: &str) -> String {
    let words = name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
#[path = "payment_tests.rs"]
mod tests;
