//! Waiting for an event: an order is shipped when its payment is confirmed, and
//! given up when that takes too long.

use std::sync::Arc;
use std::time::Duration;

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Outside;

/// How long a payment may take.
const A_WEEK: Duration = Duration::from_hours(7 * 24);
/// How long goods are held back after it, to be able to take it back.
const A_DAY: Duration = Duration::from_hours(24);

#[derive(State)]
struct Order {
    order: String,
    payment: Option<Payment>,
    outcome: Option<Value>,
}

/// What the signal `payment.confirmed` carries.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Payment {
    reference: String,
}

/// The flow `order`. Input: `{order}`.
///
/// Use it for what no person answers: a payment, a parcel's arrival, another
/// system's "done".
///
/// Guaranteed: a signal that comes before the flow waits is kept, each is taken
/// once, and nothing has to run for as long as it waits. Without one the flow
/// goes on after the time it says, once, whatever was restarted in between. A
/// signal that comes later wakes nothing, and is refused once the flow has ended.
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn order(outside: Arc<dyn Outside>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Order>::new("order", 1);
    let pay = flow.node("pay", pay);
    let ship = flow.node("ship", ship);
    let give_up = flow.node("give_up", give_up);
    flow.start(pay);
    flow.after(pay, move |order| if order.payment.is_some() { ship.into() } else { give_up.into() });
    flow.end(ship).end(give_up);
    flow.provide(outside);
    flow.compile()
}

async fn pay(cx: &Context, _: &Order) -> NodeResult<OrderUpdate> {
    let payment: Option<Payment> = cx.signal_within("payment.confirmed", A_WEEK).await?;
    Ok(Order::update().payment(payment))
}

async fn ship(cx: &Context, order: &Order) -> NodeResult<OrderUpdate> {
    cx.sleep(A_DAY).await?;
    act(cx, order, "ship").await
}

async fn give_up(cx: &Context, order: &Order) -> NodeResult<OrderUpdate> {
    act(cx, order, "cancel_order").await
}

async fn act(cx: &Context, order: &Order, what: &str) -> NodeResult<OrderUpdate> {
    let outside = cx.resource::<Arc<dyn Outside>>()?;
    let arguments = json!({"order": order.order});
    let done = cx.step(what, |key| async move { outside.call(key.as_str(), what, &arguments).await });
    Ok(Order::update().outcome(Some(done.await?)))
}
