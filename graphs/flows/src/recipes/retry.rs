//! Node policy: a call that fails now and then is tried again, and bounded.

use std::sync::Arc;
use std::time::Duration;

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde_json::{Value, json};

use super::Outside;

#[derive(State)]
struct Quote {
    parcel: String,
    price: Option<Value>,
    decision: Option<Decision>,
}

/// The flow `quote`. Input: `{parcel}`.
///
/// Use it for every call over a network. Keep the flaky call in a node without
/// questions: the time limit is for a machine, and each answer starts the
/// attempts of its node anew.
///
/// Guaranteed: up to five attempts, with waits of 1, 2, 4 and 8 seconds in
/// between, each dropped after ten seconds; a step that succeeded is not done
/// again by a later attempt, and all attempts of a step carry one key. When the
/// last has failed the thread is `failed` with its reason; a retry gives it five
/// more (K13). Nobody is asked anything until there is a price.
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn quote(outside: Arc<dyn Outside>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Quote>::new("quote", 1);
    let fetch = flow.node("fetch", fetch);
    let confirm = flow.node("confirm", confirm);
    flow.start(fetch).edge(fetch, confirm).end(confirm);
    let patient = RetryPolicy { initial_interval: Duration::from_secs(1), ..RetryPolicy::new(5) };
    let policy = NodePolicy { retry: Some(patient), timeout: Some(Duration::from_secs(10)), ..NodePolicy::default() };
    flow.policy(fetch, policy);
    flow.provide(outside);
    flow.compile()
}

async fn fetch(cx: &Context, quote: &Quote) -> NodeResult<QuoteUpdate> {
    let outside = cx.resource::<Arc<dyn Outside>>()?;
    let nothing = Value::Null;
    let session =
        cx.step("session", |key| async move { outside.call(key.as_str(), "session", &nothing).await }).await?;
    let wanted = json!({"parcel": quote.parcel, "session": session});
    let price = cx.step("price", |key| async move { outside.call(key.as_str(), "price", &wanted).await }).await?;
    Ok(Quote::update().price(Some(price)))
}

async fn confirm(cx: &Context, quote: &Quote) -> NodeResult<QuoteUpdate> {
    let price = quote.price.as_ref().map_or_else(String::new, ToString::to_string);
    let question = approval(format!("Ship {} for {price}?", quote.parcel)).to(role("shipping"));
    Ok(Quote::update().decision(Some(cx.ask(question).await?)))
}
