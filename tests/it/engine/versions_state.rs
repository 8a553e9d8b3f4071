//! Threads that wait under one build and go on under another: their state.

use countersign_kernel::graph::{CompiledGraph, GraphBuilder, Migration, START};
use countersign_kernel::ids::ThreadId;
use countersign_kernel::prelude::*;
use countersign_kernel::state::{Reducer, Writes};
use countersign_worker::engine::RequestError;
use serde_json::{Value, json};

use super::graphs::CONTINUE;
use super::versions::{deployed, edit, flow, held};
use crate::support::flows::{asks, with};
use crate::support::{Runs, TestEngine, World, operator};

engine!(
    a_retyped_key_is_changed_by_its_migration_or_the_thread_is_held,
    a_new_key_is_there_if_it_may_be_missing_or_a_migration_gives_it_a_value,
    a_value_that_becomes_a_list_grows_and_costs_a_row_an_item,
    a_value_that_is_a_list_already_needs_no_migration_to_become_one_that_grows,
    a_list_that_becomes_one_value_is_replaced_and_its_past_stays,
    a_list_under_another_name_is_the_same_list_and_comes_back_under_the_old_one,
    a_key_may_be_dropped_and_another_take_its_name,
    a_check_lists_what_this_build_could_not_go_on_with_and_changes_nothing,
);

#[derive(State)]
struct One {
    amount: String,
    old: Option<String>,
    note: Option<String>,
}

#[derive(State)]
struct Two {
    amount: i64,
    #[state(default)]
    urgent: bool,
    by: Option<String>,
    #[reduce(append)]
    notes: Vec<String>,
}

async fn ask_one(cx: &Context, one: &One) -> NodeResult<OneUpdate> {
    let note = cx.interrupt(format!("{}?", one.amount)).await?;
    Ok(One::update().note(Some(note.to_string())))
}

async fn ask_two(cx: &Context, two: &Two) -> NodeResult<TwoUpdate> {
    let note = cx.interrupt(format!("{}?", two.amount)).await?;
    Ok(Two::update().notes(note.to_string()).amount(two.amount + i64::from(two.urgent) + 1))
}

fn one() -> CompiledGraph {
    let mut g = Graph::<One>::new("flow", 1);
    let ask = g.node("ask", ask_one);
    g.start(ask);
    g.compile().expect("sound")
}

fn two(version: u32, changes: impl FnOnce(&mut Migration)) -> CompiledGraph {
    let mut g = Graph::<Two>::new("flow", version);
    let ask = g.node("ask", ask_two);
    g.start(ask).migrate(1, changes);
    g.compile().expect("sound")
}

fn to_number(value: Value) -> Result<Value, String> {
    match value {
        Value::String(text) => text.parse::<i64>().map(Value::from).map_err(|_| format!("{text:?} is no amount")),
        other => Err(format!("{other} is no amount")),
    }
}

async fn answer(engine: &TestEngine, thread: &ThreadId, answer: Value) {
    let point = engine.parked(thread).await.remove(0);
    engine.vote(&point.id, &operator(), answer).await.expect("accepted");
}

async fn a_retyped_key_is_changed_by_its_migration_or_the_thread_is_held() {
    let world = World::one(one);
    let engine = world.engine().await;
    let good = engine.start("flow", json!({"amount": "20", "old": "kept"})).await;
    let bad = engine.start("flow", json!({"amount": "lots"})).await;
    let edited = engine.start("flow", json!({"amount": "many"})).await;
    for thread in [&good, &bad, &edited] {
        engine.parked(thread).await;
    }
    let (world, engine) = deployed(world, engine, || two(2, |_| ())).await;
    for thread in [&good, &bad, &edited] {
        answer(&engine, thread, json!("fine")).await;
        let reason = held(&engine, thread).await;
        assert!(reason.contains("the state does not fit version 2") && reason.contains("`amount`"), "{reason}");
    }
    // An edit can also write what does not read. Nothing ran: it starts anew.
    edit(&engine, &edited, Some("START"), json!({"amount": 5})).await.expect("accepted");
    engine.resume(&edited, [], CONTINUE).await.expect("accepted");
    answer(&engine, &edited, json!("again")).await;
    assert_eq!(engine.rests(&edited, "succeeded").await.state["amount"], 6);

    let (_world, engine) = deployed(world, engine, || two(3, |m| _ = m.change_key("amount", to_number))).await;
    for thread in [&good, &bad] {
        engine.engine.retry(thread, &operator()).await.expect("accepted");
    }
    let done = engine.rests(&good, "succeeded").await;
    assert_eq!((&done.state["amount"], &done.state["notes"]), (&json!(21), &json!(["\"fine\""])));
    assert_eq!(done.state["old"], "kept", "what is not declared any more stays unread");
    let reason = held(&engine, &bad).await;
    assert!(reason.contains("refuses the value of `amount`: \"lots\" is no amount"), "{reason}");
    let refused = edit(&engine, &bad, Some("ask"), json!({"amount": 1})).await.expect_err("not read");
    assert!(matches!(refused, RequestError::Misfit(_)), "{refused}");
}

async fn a_new_key_is_there_if_it_may_be_missing_or_a_migration_gives_it_a_value() {
    let before = || {
        flow(1, |g| {
            g.node("ask", asks("ask", &Runs::default())).edge(START, "ask");
        })
    };
    let world = World::one(before);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    let (world, engine) = deployed(world, engine, || two(2, |_| ())).await;
    answer(&engine, &thread, json!("n")).await;
    let reason = held(&engine, &thread).await;
    assert!(reason.contains("missing: the state key `amount` has no value"), "{reason}");
    // The optional one, that with a default and the list need nothing.
    let (_world, engine) = deployed(world, engine, || two(3, |m| _ = m.add_key("amount", 7))).await;
    engine.engine.retry(&thread, &operator()).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["amount"], &done.state["notes"]), (&json!(8), &json!(["\"n\""])));
}

/// Counts to 4 by one superstep each, in which it notes the number in `key`;
/// asks before the third.
fn counting(version: u32, key: &'static str, reducer: Reducer, changes: impl FnOnce(&mut Migration)) -> CompiledGraph {
    let appends = reducer == Reducer::Append;
    flow(version, |g| {
        let body = with(&(), move |cx, ()| async move {
            let n = cx.state().values().get("n").and_then(Value::as_u64).unwrap_or(0) + 1;
            if n == 3 {
                cx.interrupt("go on?").await?;
            }
            let noted = if appends { json!([n]) } else { json!(n) };
            Ok(Writes::none().with("n", &n).with(key, &noted))
        });
        g.key(key, reducer).node("count", body).edge(START, "count").migrate(1, changes);
        g.branch("count", |view| {
            let done = view.values().get("n").and_then(Value::as_u64) >= Some(5);
            Ok(if done { vec![] } else { vec!["count".into()] })
        });
    })
}

/// Runs to its question under the first build and to its end under the second;
/// says what the key holds then, also after a restart.
async fn noted(
    first: impl Fn() -> CompiledGraph + Send + Sync + 'static,
    input: Value,
    second: impl Fn() -> CompiledGraph + Clone + Send + Sync + 'static,
    key: &str,
) -> (World, TestEngine, ThreadId, Value) {
    let world = World::one(first);
    let engine = world.engine().await;
    let thread = engine.start("flow", input).await;
    engine.parked(&thread).await;
    let (world, engine) = deployed(world, engine, second.clone()).await;
    answer(&engine, &thread, json!("yes")).await;
    let done = engine.rests(&thread, "succeeded").await.state[key].clone();
    // And once more from the first superstep of the new build, after a restart.
    let (world, engine) = deployed(world, engine, second).await;
    assert_eq!(engine.rests(&thread, "succeeded").await.state[key], done);
    (world, engine, thread, done)
}

async fn a_value_that_becomes_a_list_grows_and_costs_a_row_an_item() {
    let first = || counting(1, "seen", Reducer::Last, |_| ());
    let to_list = |m: &mut Migration| _ = m.change_key("seen", |value| Ok(json!(["from", value])));
    let second = move || counting(2, "seen", Reducer::Append, to_list);
    let (world, engine, thread, done) = noted(first, json!({}), second, "seen").await;
    assert_eq!(done, json!(["from", 2, 3, 4, 5]));
    let rows = world.payloads("SELECT value FROM state_items WHERE key = 'seen' ORDER BY branch, position");
    assert_eq!(rows.await, ["\"from\"", "2", "3", "4", "5"]);

    drop((engine, thread));
}

async fn a_value_that_is_a_list_already_needs_no_migration_to_become_one_that_grows() {
    let waiting = || {
        flow(1, |g| {
            g.key("seen", Reducer::Last).node("count", asks("count", &Runs::default())).edge(START, "count");
        })
    };
    let world = World::one(waiting);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({"seen": ["a", "b"], "n": 2})).await;
    let text = engine.start("flow", json!({"seen": "a", "n": 2})).await;
    engine.parked(&thread).await;
    engine.parked(&text).await;
    let (world, engine) = deployed(world, engine, || counting(2, "seen", Reducer::Append, |_| ())).await;
    answer(&engine, &thread, json!("yes")).await;
    assert_eq!(engine.rests(&thread, "succeeded").await.state["seen"], json!(["a", "b", 3, 4, 5]));
    assert_eq!(world.count("state_items WHERE key = 'seen'").await, 5);
    answer(&engine, &text, json!("yes")).await;
    let reason = held(&engine, &text).await;
    assert!(reason.contains("the value of key `seen` does not fit: its reducer needs a list"), "{reason}");
    let refused = edit(&engine, &text, Some("count"), json!({"seen": ["lost"]})).await;
    assert!(matches!(refused, Err(RequestError::InvalidInput(_))), "{refused:?}");
}

async fn a_list_that_becomes_one_value_is_replaced_and_its_past_stays() {
    let first = || counting(1, "seen", Reducer::Append, |_| ());
    let second = || counting(2, "seen", Reducer::Last, |_| ());
    let (_world, engine, thread, done) = noted(first, json!({"seen": [0]}), second, "seen").await;
    assert_eq!(done, json!(5));
    let seen: Vec<Value> = engine.history(&thread).await.iter().rev().map(|at| at.state["seen"].clone()).collect();
    assert_eq!(seen, [json!([0]), json!([0, 1]), json!([0, 1, 2]), json!(3), json!(4), json!(5)]);
}

async fn a_list_under_another_name_is_the_same_list_and_comes_back_under_the_old_one() {
    let first = || counting(1, "seen", Reducer::Append, |_| ());
    let second = || counting(2, "noted", Reducer::Append, |m| _ = m.rename_key("seen", "noted"));
    let (world, engine, thread, done) = noted(first, json!({"seen": [0]}), second, "noted").await;
    assert_eq!(done, json!([0, 1, 2, 3, 4, 5]));
    let state = engine.rests(&thread, "succeeded").await.state;
    assert!(!state.contains_key("seen"), "{state:?}");

    // Back again, with fewer items than there are rows of that name; twice.
    let (mut world, mut engine) = (world, engine);
    for version in [3, 4] {
        let back = move || {
            let mut g = GraphBuilder::new("flow", version);
            let body = with(&(), |cx, ()| async move {
                cx.interrupt("go on?").await?;
                Ok(Writes::none().with("seen", &["new"]))
            });
            g.key("seen", Reducer::Append).node("note", body).edge(START, "note").migrate(version - 1, |m| {
                m.rename_key("noted", "seen");
                m.change_key("seen", |list| Ok(list.as_array().map_or(json!([]), |list| json!(list[..1]))));
            });
            g.compile().expect("sound")
        };
        (world, engine) = deployed(world, engine, back).await;
        engine.engine.restart(&thread, &json!({}), false, &operator(), &|_, _, _| None).await.expect("accepted");
        answer(&engine, &thread, json!("yes")).await;
        assert_eq!(engine.rests(&thread, "succeeded").await.state["seen"], json!([0, "new"]));
    }
}

async fn a_key_may_be_dropped_and_another_take_its_name() {
    let first = || counting(1, "seen", Reducer::Append, |_| ());
    let second = || {
        counting(2, "seen", Reducer::Append, |m| {
            m.rename_key("seen", "before").remove_key("m");
        })
    };
    let (_world, engine, thread, done) = noted(first, json!({"seen": [0], "m": 1}), second, "seen").await;
    assert_eq!(done, json!([3, 4, 5]));
    let state = engine.rests(&thread, "succeeded").await.state;
    assert_eq!((&state["before"], state.contains_key("m")), (&json!([0, 1, 2]), false));
}

async fn a_check_lists_what_this_build_could_not_go_on_with_and_changes_nothing() {
    let world = World::one(one);
    let engine = world.engine().await;
    let good = engine.start("flow", json!({"amount": "20"})).await;
    let bad = engine.start("flow", json!({"amount": "lots"})).await;
    let ended = engine.start("flow", json!({"amount": "none"})).await;
    for thread in [&good, &bad, &ended] {
        engine.parked(thread).await;
    }
    engine.engine.cancel(&ended, &operator()).await.expect("accepted");
    let fits = engine.engine.check().await.expect("it reads");
    assert_eq!((fits.threads, fits.unfit.len()), (2, 0));

    let before = [engine.detail(&good).await, engine.detail(&bad).await];
    let (world, engine) = deployed(world, engine, || two(2, |m| _ = m.change_key("amount", to_number))).await;
    let checked = engine.engine.check().await.expect("it reads");
    assert_eq!((checked.threads, checked.unfit.len()), (2, 1));
    let unfit = &checked.unfit[0];
    assert_eq!(
        (&unfit.thread, unfit.graph.as_str(), unfit.graph_version, unfit.status.as_str()),
        (&bad, "flow", 1, "parked")
    );
    assert!(unfit.reasons[0].contains("refuses the value of `amount`"), "{:?}", unfit.reasons);
    assert_eq!([engine.detail(&good).await, engine.detail(&bad).await], before);

    let (_world, engine) = deployed(world, engine, || counting(1, "seen", Reducer::Last, |_| ())).await;
    let checked = engine.engine.check().await.expect("it reads");
    let reasons: Vec<&String> = checked.unfit.iter().flat_map(|unfit| &unfit.reasons).collect();
    assert!(reasons.len() == 2 && reasons.iter().all(|reason| reason.contains("has no node `ask`")), "{reasons:?}");
}
