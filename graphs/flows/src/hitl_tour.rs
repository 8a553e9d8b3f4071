//! A tour of the seven kinds of question, one after another.

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(State)]
struct Tour {
    name: Option<String>,
    colour: Option<String>,
    toppings: Option<Vec<String>>,
    decision: Option<Decision>,
    action: Option<String>,
    order: Option<Order>,
    outcome: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    street: String,
    quantity: u32,
    gift: Option<bool>,
    wanted_on: Option<String>,
}

/// The flow `hitl_tour`. Input: an empty object.
///
/// One node asks `input`, `select`, `multi_select` and `approval`; after a yes
/// a second one asks `modal`, `unlock` and `form`. All questions go to the
/// default approver.
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn hitl_tour() -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Tour>::new("hitl_tour", 1);
    let choose = flow.node("choose", choose);
    let order = flow.node("order", order);
    flow.start(choose);
    flow.after(choose, move |tour| if tour.outcome.is_some() { Target::end() } else { order.into() });
    flow.end(order);
    flow.compile()
}

async fn choose(cx: &Context, _: &Tour) -> NodeResult<TourUpdate> {
    let name = cx.ask(input("What is your name?").message("Any text will do.")).await?;
    let colours = [("red", "Red"), ("green", "Green"), ("blue", "Blue")];
    let colour = cx.ask(select(format!("Which colour do you like, {name}?"), colours)).await?;
    let toppings = cx.ask(multi_select("Which toppings?", ["basil", "olives", "mushrooms"])).await?;
    let decision = cx
        .ask(
            approval(format!("Bake a {colour} pizza for {name}?"))
                .detail("Toppings", if toppings.is_empty() { "none".to_owned() } else { toppings.join(", ") })
                .on_yes("the order is prepared")
                .on_no("the tour ends here"),
        )
        .await?;
    let stopped = (!decision.approved).then(|| "stopped".to_owned());
    Ok(Tour::update()
        .name(Some(name))
        .colour(Some(colour))
        .toppings(Some(toppings))
        .decision(Some(decision))
        .outcome(stopped))
}

async fn order(cx: &Context, _: &Tour) -> NodeResult<TourUpdate> {
    let actions = [("deliver", "Deliver it"), ("collect", "I collect it"), ("later", "Later")];
    let action = cx.ask(modal("How shall it reach you?", actions)).await?;
    cx.ask(unlock("The oven is locked. Unlock it?", "oven").on_yes("the oven is heated")).await?;
    let schema = json!({
        "type": "object",
        "required": ["street", "quantity"],
        "properties": {
            "street": {"type": "string", "title": "Street and number", "maxLength": 80},
            "quantity": {"type": "integer", "title": "How many"},
            "gift": {"type": "boolean", "title": "It is a gift"},
            "wanted_on": {"type": "string", "format": "date", "title": "Wanted on"},
        },
    });
    let Filled(order) = cx.ask(form::<Order>("The order", schema)).await?;
    Ok(Tour::update().action(Some(action)).order(Some(order)).outcome(Some("finished".to_owned())))
}

#[cfg(test)]
mod tests {
    use countersign_kernel::driver::Refused;
    use countersign_kernel::machine::Rest;
    use futures_util::FutureExt;
    use serde_json::Value;

    use super::*;

    fn start() -> Driver {
        let flow = hitl_tour().expect("sound");
        Driver::start(flow, json!({})).now_or_never().expect("in memory").expect("good input")
    }

    fn answer(run: &mut Driver, answer: Value) -> Result<(), Refused> {
        run.answer(answer).now_or_never().expect("in memory")
    }

    #[test]
    fn all_seven_kinds_are_asked_in_turn() {
        let mut run = start();
        for (kind, reply) in [
            ("input", json!({"value": "Ann"})),
            ("select", json!({"value": "green"})),
            ("multi_select", json!({"values": ["olives", "basil"]})),
            ("approval", json!({"approved": true})),
            ("modal", json!({"action": "collect"})),
            ("unlock", json!({})),
            ("form", json!({"street": "Hauptstr. 1", "quantity": 2})),
        ] {
            let points = run.points();
            assert_eq!(points.len(), 1, "{kind}");
            assert_eq!(points[0].request().expect("a question").question.kind(), kind);
            assert!(matches!(answer(&mut run, json!({"nonsense": 1})), Err(Refused::Invalid(_))), "{kind}");
            answer(&mut run, reply).expect("it fits");
        }
        assert_eq!(run.rest(), Rest::Succeeded);
        let state = run.state();
        assert_eq!(state["name"], "Ann");
        assert_eq!(state["toppings"], json!(["olives", "basil"]));
        assert_eq!(state["action"], "collect");
        assert_eq!(state["order"]["quantity"], 2);
        assert_eq!(state["outcome"], "finished");
    }

    #[test]
    fn a_no_ends_the_tour() {
        let mut run = start();
        for reply in [
            json!({"value": ""}),
            json!({"value": "red"}),
            json!({"values": []}),
            json!({"approved": false, "reason": "no oven"}),
        ] {
            answer(&mut run, reply).expect("it fits");
        }
        assert_eq!((run.rest(), &run.state()["outcome"]), (Rest::Succeeded, &json!("stopped")));
        assert_eq!(run.state()["decision"]["reason"], "no oven");
        assert_eq!(run.visits("order"), 0);
    }
}
