//! Writes, reducers, joins and conditions (rules 1 to 14, R14).

use countersign_kernel::driver::Driver;
use countersign_kernel::graph::{CompiledGraph, END_NAME, GraphBuilder, START};
use countersign_kernel::machine::Rest;
use countersign_kernel::node::{Goto, SharedBody};
use countersign_kernel::prelude::{Context, Graph, NodeResult, State, Target};
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use crate::support::*;

fn writing(writes: &Writes) -> SharedBody {
    with(writes, |_, writes| async move { Ok(writes) })
}

/// Parallel nodes `a`, `b`… that make these writes.
fn parallel(bodies: impl IntoIterator<Item = Writes>) -> CompiledGraph {
    graph(|g| {
        for (name, writes) in ["a", "b", "c", "d"].into_iter().zip(bodies) {
            g.node(name, writing(&writes)).edge(START, name);
        }
    })
}

#[test]
fn keys_with_a_neutral_value_exist_from_the_start_and_input_is_a_write() {
    let run = start_with(
        parallel([Writes::none().with("log", &["b"]).with("sum", &2).with("got", &json!({"b": 1}))]),
        json!({"log": ["a"], "sum": 40, "got": {"a": 1}}),
    );
    assert_eq!(Value::Object(run.state()), json!({"log": ["a", "b"], "sum": 42, "got": {"a": 1, "b": 1}}));
    assert_eq!(Value::Object(start(parallel([Writes::none()])).state()), json!({"log": [], "sum": 0, "got": {}}));
}

#[test]
fn parallel_writes_are_reduced_in_the_order_of_the_node_names() {
    let item = |text: &str| Writes::none().with("log", &[text]).with("sum", &1).with("got", &json!({"k": text}));
    let run = start(graph(|g| {
        for name in ["c", "a", "b"] {
            g.node(name, writing(&item(name))).edge(START, name);
        }
    }));
    assert_eq!(Value::Object(run.state()), json!({"log": ["a", "b", "c"], "sum": 3, "got": {"k": "c"}}));
}

#[test]
fn several_writes_of_one_body_are_one_update() {
    let writes = Writes::none()
        .with("log", &[1])
        .with("log", &[2, 3])
        .with("sum", &1)
        .with("sum", &-3)
        .with("last", &"first")
        .with("last", &"second")
        .with("got", &json!({"a": 1}))
        .with("got", &json!({"b": 2}));
    let run = start(parallel([writes]));
    assert_eq!(
        Value::Object(run.state()),
        json!({"log": [1, 2, 3], "sum": -2, "last": "second", "got": {"a": 1, "b": 2}})
    );
}

#[test]
fn a_write_to_an_undeclared_key_fails_that_node() {
    let run = start(parallel([Writes::none().with("lost", &1), Writes::none().with("log", &["b"])]));
    assert_eq!(run.rest(), Rest::Failed);
    let errors: Vec<_> = run.errors().into_iter().collect();
    assert_eq!(errors, [("a", "the node writes the key `lost`, which the graph does not declare")]);
    assert_eq!(run.state()["log"], json!([]), "nothing of the superstep is applied");
}

#[test]
fn a_write_that_does_not_fit_its_reducer_fails_that_node() {
    for (key, value) in [("log", json!("x")), ("sum", json!(1.5)), ("got", json!([]))] {
        let run = start(parallel([Writes::none(), Writes::none().with(key, &value)]));
        let errors: Vec<_> = run.errors().into_iter().collect();
        assert_eq!((run.rest(), errors.len(), errors[0].0), (Rest::Failed, 1, "b"), "{key}");
        assert!(errors[0].1.contains(&format!("`{key}`")), "{errors:?}");
    }
}

#[test]
fn two_writers_of_a_last_value_key_are_a_named_error_and_change_nothing() {
    let last = |n: i64| Writes::none().with("last", &n).with("log", &[n]);
    let mut run = start(parallel([last(1), Writes::none().with("log", &["b"]), last(3)]));
    for _ in 0..2 {
        assert_eq!(run.rest(), Rest::Failed);
        assert_eq!(run.errors().into_keys().collect::<Vec<_>>(), ["a", "c"]);
        let message = run.errors()["a"].to_owned();
        assert!(message.starts_with("concurrent_update: a and c wrote the last-value key `last`"), "{message}");
        assert_eq!(Value::Object(run.state()), json!({"log": [], "sum": 0, "got": {}}));
        resume(&mut run, RETRY);
    }
    assert_eq!((run.visits("a"), run.visits("b"), run.visits("c")), (3, 1, 3));
}

#[test]
fn a_sum_that_overflows_fails_those_who_wrote_it() {
    let run = start(parallel([
        Writes::none().with("log", &["a"]),
        Writes::none().with("sum", &i64::MAX),
        Writes::none().with("log", &["c"]),
        Writes::none().with("sum", &1),
    ]));
    assert_eq!(run.rest(), Rest::Failed);
    assert_eq!(run.errors().into_keys().collect::<Vec<_>>(), ["b", "d"]);
    assert!(run.errors()["b"].contains("`sum`"));
    assert_eq!(Value::Object(run.state()), json!({"log": [], "sum": 0, "got": {}}));
}

#[test]
fn parallel_nodes_do_not_see_each_other_and_the_next_ones_see_all() {
    let seen = |name: &'static str| {
        with(&(), move |cx, ()| async move {
            let log = cx.state().values().get("log").cloned().unwrap_or_default();
            Ok(got(name, &log).with("log", &[name]))
        })
    };
    let run = start(graph(|g| {
        for name in ["a", "b", "c"] {
            g.node(name, seen(name));
        }
        g.edge(START, "a").edge(START, "b").edge("a", "c").edge("b", "c");
    }));
    assert_eq!(run.state()["got"], json!({"a": [], "b": [], "c": ["a", "b"]}));
    assert_eq!(run.visits("c"), 1, "reached twice in one superstep, it runs once");
}

/// `a` to `z` at once, `b` over `b2`; `z` joins `a` and `b2`.
fn joined(runs: &Runs) -> CompiledGraph {
    graph(|g| {
        g.node("a", counting("a", runs)).node("b", asking("b", runs));
        g.node("b2", counting("b2", runs)).node("z", counting("z", runs));
        g.edge(START, "a").edge(START, "b").edge("b", "b2").join(["a", "b2"], "z").edge("z", END_NAME);
    })
}

#[test]
fn a_join_waits_for_all_its_sources_in_whichever_supersteps() {
    let runs = Runs::default();
    let mut run = start(joined(&runs));
    assert_eq!((open(&run), runs.of("z")), (vec!["b?".to_owned()], 0));
    answer(&mut run, 1);
    assert_eq!((run.rest(), runs.of("z"), run.checkpoints()), (Rest::Succeeded, 1, 4));
    assert_eq!(run.state()["log"], json!(["a", "b2", "z"]));
}

#[test]
fn a_join_in_a_loop_waits_anew_each_time() {
    let runs = Runs::default();
    let run = start(graph(|g| {
        for name in ["a", "b", "z"] {
            g.node(name, counting(name, &runs));
        }
        g.edge(START, "a").edge(START, "b").join(["a", "b"], "z");
        g.branch("z", |view| {
            let log = view.values().get("log").and_then(Value::as_array).map_or(0, Vec::len);
            Ok(if log < 6 { vec!["a".into(), "b".into()] } else { vec![] })
        });
    }));
    assert_eq!(run.state()["log"], json!(["a", "b", "z", "a", "b", "z"]));
    assert_eq!(run.rest(), Rest::Succeeded);
}

fn branching(branch: impl FnOnce(&mut GraphBuilder), runs: &Runs) -> CompiledGraph {
    graph(|g| {
        for name in ["a", "b", "x", "y"] {
            g.node(name, counting(name, runs));
        }
        g.edge(START, "a").edge(START, "b");
        branch(g);
    })
}

#[test]
fn a_condition_sees_its_own_nodes_write_and_no_siblings() {
    let runs = Runs::default();
    let run = start(branching(
        |g| {
            g.branch("b", |view| {
                let own = view.values().get("log") == Some(&json!(["b"]));
                Ok(vec![if own { "x" } else { "y" }.into()])
            });
        },
        &runs,
    ));
    assert_eq!((run.rest(), runs.of("x"), runs.of("y")), (Rest::Succeeded, 1, 0));
}

#[test]
fn all_edges_and_conditions_of_a_node_apply_and_end_starts_nothing() {
    let runs = Runs::default();
    let run = start(branching(
        |g| {
            g.branch("a", |_| Ok(vec![END_NAME.into(), "x".into()]))
                .branch("a", |_| Ok(vec!["x".into()]))
                .edge("a", "y");
        },
        &runs,
    ));
    assert_eq!((run.rest(), runs.of("x"), runs.of("y"), run.checkpoints()), (Rest::Succeeded, 1, 1, 3));
}

#[test]
fn a_condition_to_an_unknown_node_or_to_none_fails_its_node() {
    for (answer, expected) in [
        (Ok(vec![Goto::Node("nowhere".into())]), "the condition after `a` leads to `nowhere`, which is no node"),
        (Err("no case fits".to_owned()), "no case fits"),
    ] {
        for alone in [true, false] {
            let runs = Runs::default();
            let answer = answer.clone();
            let run = start(graph(|g| {
                g.node("a", counting("a", &runs)).edge(START, "a").branch("a", move |_| answer.clone());
                if !alone {
                    g.node("b", counting("b", &runs)).edge(START, "b");
                }
            }));
            assert_eq!(run.errors().into_iter().collect::<Vec<_>>(), [("a", expected)]);
            assert_eq!((run.rest(), &run.state()["log"]), (Rest::Failed, &json!([])));
        }
    }
}

#[derive(State)]
struct Count {
    n: u32,
    #[reduce(append)]
    seen: Vec<u32>,
}

async fn count(_: &Context, count: &Count) -> NodeResult<CountUpdate> {
    Ok(Count::update().seen(count.n).n(count.n + 1))
}

#[test]
fn a_typed_state_follows_the_writes_of_many_supersteps() {
    let mut flow = Graph::<Count>::new("count", 1);
    let count = flow.node("count", count);
    flow.start(count);
    flow.after(count, move |c| if c.seen.len() < 5 { count.into() } else { Target::end() });
    let run: Driver = start_with(flow.compile().expect("sound"), json!({"n": 7}));
    assert_eq!(Value::Object(run.state()), json!({"n": 12, "seen": [7, 8, 9, 10, 11]}));
    assert_eq!((run.rest(), run.checkpoints()), (Rest::Succeeded, 6));
}
