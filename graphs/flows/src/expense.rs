//! Expenses: small ones are paid at once, larger ones need one approver or two.

use std::sync::Arc;

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde_json::Value;

use crate::fields::Fields;
use crate::ledger::{self, Ledger, Payment, Receipt};
use crate::{Money, Outcome};

/// From here on a manager is asked.
const ONE_APPROVER_FROM: Money = Money::whole(100);
/// From here on finance is asked as well.
const TWO_APPROVERS_FROM: Money = Money::whole(1_000);

#[derive(State)]
struct Expense {
    amount: Money,
    currency: String,
    requester: String,
    purpose: String,
    #[reduce(append)]
    decisions: Vec<Decision>,
    receipt: Option<Receipt>,
    outcome: Option<Outcome>,
}

/// The flow `expense`. Input: `{amount, currency, requester, purpose}`.
///
/// Under 100 nobody is asked; from 100 one `manager`; from 1,000 also
/// `finance`, who must be somebody else. A rejection ends it.
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn expense(ledger: Arc<dyn Ledger>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Expense>::new("expense", 1);
    let manager = flow.node("manager", ask_manager);
    let finance = flow.node("finance", ask_finance);
    let pay = flow.node("pay", pay);

    flow.start_with(move |e| if e.amount < ONE_APPROVER_FROM { pay.into() } else { manager.into() });
    flow.after(manager, move |e| match e.outcome {
        Some(_) => Target::end(),
        None if e.amount >= TWO_APPROVERS_FROM => finance.into(),
        None => pay.into(),
    });
    flow.after(finance, move |e| if e.outcome.is_some() { Target::end() } else { pay.into() });
    flow.end(pay);
    flow.provide(ledger).input(read);
    flow.compile()
}

async fn ask_manager(cx: &Context, expense: &Expense) -> NodeResult<ExpenseUpdate> {
    let next = if expense.amount >= TWO_APPROVERS_FROM { "finance is asked next" } else { "it is paid at once" };
    let decision = cx.ask(expense.question().to(role("manager")).on_yes(next)).await?;
    Ok(decided(decision))
}

async fn ask_finance(cx: &Context, expense: &Expense) -> NodeResult<ExpenseUpdate> {
    let before: Vec<Principal> = expense.decisions.iter().flat_map(|decision| decision.by.clone()).collect();
    let names = before.iter().map(Principal::name).collect::<Vec<_>>().join(", ");
    let ask = expense.question().detail("Approved by", names).to(role("finance")).excluding(before);
    Ok(decided(cx.ask(ask.on_yes("it is paid at once")).await?))
}

async fn pay(cx: &Context, expense: &Expense) -> NodeResult<ExpenseUpdate> {
    let payment = Payment {
        reference: expense.purpose.clone(),
        payee: expense.requester.clone(),
        amount: expense.amount,
        currency: expense.currency.clone(),
    };
    let receipt = ledger::pay(cx, &payment).await?;
    Ok(Expense::update().receipt(Some(receipt)).outcome(Some(Outcome::Paid)))
}

fn decided(decision: Decision) -> ExpenseUpdate {
    let rejected = (!decision.approved).then_some(Outcome::Rejected);
    Expense::update().decisions(decision).outcome(rejected)
}

impl Expense {
    fn question(&self) -> Ask<Decision> {
        approval(format!("Pay {} {} to {}?", self.amount, self.currency, self.requester))
            .detail("Requester", &self.requester)
            .detail("Purpose", &self.purpose)
            .detail("Amount", format_args!("{} {}", self.amount, self.currency))
            .requested_by(&self.requester)
            .on_no("nothing is paid and the case ends")
    }
}

fn read(input: &Value) -> Result<ExpenseUpdate, Vec<Fault>> {
    let mut fields = Fields::of(input, "");
    let expense = Expense::update()
        .amount(fields.amount("amount"))
        .currency(fields.currency("currency"))
        .requester(fields.text("requester"))
        .purpose(fields.text("purpose"));
    let faults = fields.finish();
    if faults.is_empty() { Ok(expense) } else { Err(faults) }
}

#[cfg(test)]
mod tests {
    use countersign_kernel::machine::Rest;
    use countersign_kernel::policy::Policy;
    use futures_util::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::InMemoryLedger;

    fn start(amount: impl Into<Value>) -> (Driver, Arc<InMemoryLedger>) {
        let ledger = Arc::new(InMemoryLedger::new());
        let flow = expense(Arc::clone(&ledger) as Arc<dyn Ledger>).expect("sound");
        let input = json!({"amount": amount.into(), "currency": "eur", "requester": "Ann", "purpose": "Fair"});
        (Driver::start(flow, input).now_or_never().expect("in memory").expect("good input"), ledger)
    }

    fn decide(run: &mut Driver, who: &str, approved: bool) {
        run.answer_as(who, json!({"approved": approved})).now_or_never().expect("in memory").expect("an open approval");
    }

    fn policy(run: &Driver) -> Policy {
        run.points()[0].request().expect("an approval").policy
    }

    #[test]
    fn under_100_nobody_is_asked() {
        let (run, ledger) = start("99.99");
        assert_eq!(run.rest(), Rest::Succeeded);
        assert_eq!(run.state()["outcome"], "paid");
        assert_eq!(run.state()["receipt"]["number"], "R000001");
        assert_eq!(ledger.payments()[0].amount, "99.99".parse().expect("money"));
    }

    #[test]
    fn from_100_one_manager_decides() {
        for amount in ["100", "999.99"] {
            let (mut run, ledger) = start(amount);
            assert_eq!(policy(&run).approvers, [role("manager")]);
            assert!(ledger.payments().is_empty());
            decide(&mut run, "mia@example.com", true);
            assert_eq!((run.rest(), &run.state()["outcome"]), (Rest::Succeeded, &json!("paid")));
            assert_eq!(run.visits("finance"), 0);
        }
    }

    #[test]
    fn from_1000_finance_decides_too_and_is_somebody_else() {
        let (mut run, ledger) = start(1000);
        decide(&mut run, "Mia@example.com", true);
        let policy = policy(&run);
        assert_eq!(policy.approvers, [role("finance")]);
        assert_eq!(policy.excluding, [Principal::person("mia@example.com")]);
        assert!(ledger.payments().is_empty());
        decide(&mut run, "finn@example.com", true);
        assert_eq!(run.state()["outcome"], "paid");
        assert_eq!(run.state()["decisions"].as_array().map(Vec::len), Some(2));
        assert_eq!((ledger.payments().len(), ledger.attempts()), (1, 1));
    }

    #[test]
    fn either_of_them_can_say_no() {
        for no_at in [1, 2] {
            let (mut run, ledger) = start("5000.00");
            decide(&mut run, "mia@example.com", no_at != 1);
            if no_at == 2 {
                decide(&mut run, "finn@example.com", false);
            }
            assert_eq!((run.rest(), &run.state()["outcome"]), (Rest::Succeeded, &json!("rejected")));
            assert_eq!(run.state()["decisions"].as_array().map(Vec::len), Some(no_at));
            assert!(ledger.payments().is_empty());
        }
    }

    #[test]
    fn the_question_says_what_and_what_follows() {
        let (run, _) = start("1234.5");
        let request = run.points()[0].request().expect("an approval");
        assert_eq!(request.title, "Pay 1,234.50 EUR to Ann?");
        let details: Vec<_> = request.details.iter().map(|d| (d.label.as_str(), d.value.as_str())).collect();
        assert_eq!(details, [("Requester", "Ann"), ("Purpose", "Fair"), ("Amount", "1,234.50 EUR")]);
        assert_eq!(request.outcomes.yes.as_deref(), Some("finance is asked next"));
        assert_eq!(request.outcomes.no.as_deref(), Some("nothing is paid and the case ends"));
        assert_eq!(run.state()["amount"], "1234.50");
    }

    #[test]
    fn bad_input_is_refused_with_every_fault() {
        let faults = |input: Value| -> Vec<String> {
            read(&input).expect_err("bad").into_iter().map(|fault| fault.pointer).collect()
        };
        for amount in [json!("NaN"), json!("-5"), json!("0"), json!("1.005"), json!(0.001), json!(null), json!("1,000")]
        {
            let input = json!({"amount": amount, "currency": "EUR", "requester": "Ann", "purpose": "Fair"});
            assert_eq!(faults(input), ["/amount"], "{amount}");
        }
        assert_eq!(faults(json!({})), ["/amount", "/currency", "/requester", "/purpose"]);
        assert_eq!(
            faults(json!({"amount": 1, "currency": "euro", "requester": " ", "purpose": 7, "a/b": 1})),
            ["/currency", "/requester", "/purpose", "/a~1b"]
        );
        assert_eq!(faults(json!([1])), [""]);
    }
}
