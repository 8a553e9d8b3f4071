//! Input: the flow asks for what it lacks, and asks again until it is right.

use std::sync::Arc;

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde_json::{Value, json};

use super::Outside;

#[derive(State)]
struct Supplier {
    name: String,
    iban: Option<String>,
    registered: Option<Value>,
}

/// The flow `bank_details`. Input: `{name, iban?}`.
///
/// Use it for what only a person knows. The node asks only for what is missing
/// or wrong, checks the answer, and asks again with the fault shown.
///
/// Guaranteed: every wrong answer stays on record under the question it
/// answered, and counts once; the body runs again from its top at each answer
/// and gets the earlier ones back in order, so the check must depend on nothing
/// but its arguments (a look-up goes into `cx.step`). What comes after sees a
/// checked value only. An operator may fill in the value as this node (R5).
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn bank_details(outside: Arc<dyn Outside>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Supplier>::new("bank_details", 1);
    let collect = flow.node("collect", collect);
    let register = flow.node("register", register);
    flow.start(collect).edge(collect, register).end(register);
    flow.provide(outside);
    flow.compile()
}

async fn collect(cx: &Context, supplier: &Supplier) -> NodeResult<SupplierUpdate> {
    let mut given = supplier.iban.clone();
    let iban = loop {
        let message = match given.as_deref().map(checked_iban) {
            Some(Ok(iban)) => break iban,
            Some(Err(fault)) => format!("“{}” cannot be used: {fault}.", given.unwrap_or_default()),
            None => "It is on their invoices.".to_owned(),
        };
        let question = input(format!("The IBAN of {}?", supplier.name)).message(message).to(role("purchasing"));
        given = Some(cx.ask(question).await?);
    };
    Ok(Supplier::update().iban(Some(iban)))
}

async fn register(cx: &Context, supplier: &Supplier) -> NodeResult<SupplierUpdate> {
    let outside = cx.resource::<Arc<dyn Outside>>()?;
    let arguments = json!({"name": supplier.name, "iban": supplier.iban});
    let done = cx.step("register", |key| async move { outside.call(key.as_str(), "register", &arguments).await });
    Ok(Supplier::update().registered(Some(done.await?)))
}

/// The IBAN without blanks and in capitals, if its check digits hold (ISO 13616:
/// country and digits moved to the end, letters as 10 to 35, the rest by 97 is 1).
fn checked_iban(text: &str) -> Result<String, &'static str> {
    let iban: String = text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_uppercase();
    if !(15..=34).contains(&iban.len()) || !iban.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err("an IBAN has 15 to 34 letters and digits");
    }
    let (country, account) = iban.split_at(4);
    let digits = account.chars().chain(country.chars()).filter_map(|c| c.to_digit(36));
    let rest = digits.fold(0, |rest, digit| (rest * if digit < 10 { 10 } else { 100 } + digit) % 97);
    if rest == 1 { Ok(iban) } else { Err("its check digits are wrong") }
}
