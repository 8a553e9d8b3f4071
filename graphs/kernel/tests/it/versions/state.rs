//! Keys that come, go and change between versions.

use countersign_kernel::graph::{CompiledGraph, Graph, GraphBuilder, Migration, START};
use countersign_kernel::machine::Rest;
use countersign_kernel::prelude::*;
use countersign_kernel::state::{Reducer, Writes};
use serde_json::{Value, json};

use super::{flow, refused, upgraded};
use crate::support::*;

#[derive(State)]
struct One {
    amount: String,
    note: Option<String>,
}

#[derive(State)]
struct Two {
    amount: i64,
    #[reduce(append)]
    notes: Vec<String>,
    #[state(default)]
    urgent: bool,
    by: Option<String>,
}

async fn ask_one(cx: &Context, one: &One) -> NodeResult<OneUpdate> {
    let note = cx.interrupt(format!("{}?", one.amount)).await?;
    Ok(One::update().note(note.as_str().map(str::to_owned)))
}

async fn ask_two(cx: &Context, two: &Two) -> NodeResult<TwoUpdate> {
    let note = cx.interrupt(format!("{}?", two.amount)).await?;
    Ok(Two::update().notes(note.to_string()).amount(two.amount + i64::from(two.urgent)))
}

fn one() -> CompiledGraph {
    let mut g = Graph::<One>::new("g", 1);
    let ask = g.node("ask", ask_one);
    g.start(ask);
    g.compile().expect("sound")
}

fn two(changes: impl FnOnce(&mut Migration)) -> CompiledGraph {
    let mut g = Graph::<Two>::new("g", 2);
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

#[test]
fn a_retyped_key_is_changed_by_its_migration_or_the_thread_waits() {
    let mut run = start_with(one(), json!({"amount": "20"}));
    let reason = refused(&mut run, two(|_| ()));
    assert!(reason.contains("does not fit version 2") && reason.contains("`amount`"), "{reason}");
    upgraded(&mut run, two(|m| _ = m.change_key("amount", to_number)));
    assert_eq!(run.points()[0].payload, "20?", "the question is as it was asked");
    answer(&mut run, "fine");
    assert_eq!((run.rest(), &run.state()["amount"]), (Rest::Succeeded, &json!(20)));
    assert_eq!(run.state()["notes"], json!(["\"fine\""]), "a new list is there from the start");

    let mut run = start_with(one(), json!({"amount": "lots"}));
    let reason = refused(&mut run, two(|m| _ = m.change_key("amount", to_number)));
    assert_eq!(reason, "the migration of graph `g` to version 2 refuses the value of `amount`: \"lots\" is no amount");
    let reason = refused(&mut run, two(|m| _ = m.change_key("amount", |value| panic!("what of {value}?"))));
    assert!(reason.ends_with("of `amount`: the change panicked: what of \"lots\"?"), "{reason}");
}

#[test]
fn a_new_key_that_the_flow_needs_gets_a_value_or_the_thread_waits() {
    let needs = |version, add: bool| {
        let mut g = Graph::<Two>::new("g", version);
        let ask = g.node("ask", ask_two);
        g.start(ask).migrate(1, |m| {
            if add {
                m.add_key("amount", 7);
            }
        });
        g.compile().expect("sound")
    };
    let before = flow(1, |g| {
        g.node("ask", asking("ask", &Runs::default())).edge(START, "ask");
    });
    let mut run = start_with(before, json!({"last": 1}));
    let reason = refused(&mut run, needs(2, false));
    assert!(reason.contains("missing: the state key `amount` has no value"), "{reason}");
    upgraded(&mut run, needs(2, true));
    answer(&mut run, "n");
    assert_eq!((run.rest(), &run.state()["amount"]), (Rest::Succeeded, &json!(7)));
    assert_eq!(run.state()["last"], 1, "keys that are not declared any more stay unread");
}

#[test]
fn a_value_that_another_reducer_would_lose_is_not_taken_over() {
    let build = |version, reducer: Reducer| {
        let mut g = GraphBuilder::new("g", version);
        g.key("k", reducer).node(
            "ask",
            with(&(), |cx, ()| async move {
                let answer = cx.interrupt("k?").await?;
                Ok(Writes::none().with("k", &answer))
            }),
        );
        g.edge(START, "ask");
        g.compile().expect("sound")
    };
    let cases = [
        (json!("one"), Reducer::Append, "a list"),
        (json!("one"), Reducer::Sum, "a 64-bit integer"),
        (json!([1]), Reducer::Merge, "an object"),
        (Value::Null, Reducer::Append, "a list"),
    ];
    for (value, reducer, needs) in cases {
        let mut run = start_with(build(1, Reducer::Last), json!({"k": value}));
        let reason = refused(&mut run, build(2, reducer));
        assert!(reason.contains("`k`") && reason.ends_with(&format!("its reducer needs {needs}")), "{reason}");
    }
    let fits = [
        (Reducer::Last, json!(["a"]), Reducer::Append, json!(["b"]), json!(["a", "b"])),
        (Reducer::Append, json!(["a"]), Reducer::Last, json!("b"), json!("b")),
        (Reducer::Last, json!(2), Reducer::Sum, json!(3), json!(5)),
        (Reducer::Last, json!({"a": 1}), Reducer::Merge, json!({"b": 2}), json!({"a": 1, "b": 2})),
        (Reducer::Last, Value::Null, Reducer::Sum, json!(3), json!(3)),
    ];
    for (before, value, after, written, end) in fits {
        let mut run = start_with(build(1, before), json!({"k": value}));
        upgraded(&mut run, build(2, after));
        answer(&mut run, written);
        assert_eq!((run.rest(), &run.state()["k"]), (Rest::Succeeded, &end));
    }
}
