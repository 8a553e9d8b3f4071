//! Approval: a person says yes or no before a machine acts.

use std::sync::Arc;

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde_json::{Value, json};

use super::Outside;

#[derive(State)]
struct Closing {
    account: String,
    reason: String,
    decision: Option<Decision>,
    confirmation: Option<Value>,
}

/// The flow `close_account`. Input: `{account, reason}`.
///
/// Use it before anything that cannot be taken back. The question and the act
/// are two nodes, so that the decision is in the state, under a checkpoint of
/// its own, before anything happens.
///
/// Guaranteed: nothing is done without a yes of somebody who was asked; neither
/// a bare answer nor a resume-all is one (K5, K10). If the act fails, a retry
/// does it again under the same key and asks nobody again (K13). If the account
/// is edited while the question waits, the question is void and the new one
/// shows the new account (R5).
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn close_account(outside: Arc<dyn Outside>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Closing>::new("close_account", 1);
    let ask = flow.node("ask", ask);
    let act = flow.node("act", act);
    flow.start(ask);
    flow.after(ask, move |case| if case.is_approved() { act.into() } else { Target::end() });
    flow.end(act);
    flow.provide(outside);
    flow.compile()
}

async fn ask(cx: &Context, case: &Closing) -> NodeResult<ClosingUpdate> {
    let question = approval(format!("Close the account {}?", case.account))
        .detail("Account", &case.account)
        .detail("Reason", &case.reason)
        .to(role("manager"))
        .on_yes("it is closed at once, for good")
        .on_no("it stays open and the case ends");
    let decision = cx.ask(question).await?;
    Ok(Closing::update().decision(Some(decision)))
}

async fn act(cx: &Context, case: &Closing) -> NodeResult<ClosingUpdate> {
    let outside = cx.resource::<Arc<dyn Outside>>()?;
    let arguments = json!({"account": case.account});
    let done = cx.step("close", |key| async move { outside.call(key.as_str(), "close_account", &arguments).await });
    Ok(Closing::update().confirmation(Some(done.await?)))
}

impl Closing {
    fn is_approved(&self) -> bool {
        self.decision.as_ref().is_some_and(|decision| decision.approved)
    }
}
