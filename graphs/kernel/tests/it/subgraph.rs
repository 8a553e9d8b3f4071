//! Graphs as nodes: what goes in and out, questions inside, failures inside
//! (rules 52, 77 to 82, R2, K17).

use std::sync::Arc;

use countersign_kernel::driver::Driver;
use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::machine::Rest;
use countersign_kernel::node::{NodeError, body_fn};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::prelude::{Context, Graph, NodeResult, State};
use countersign_kernel::state::{Reducer, Writes};
use serde_json::{Value, json};

use crate::support::*;

/// A graph called `inner` with `got`, `last` and a key of its own.
fn inner(build: impl FnOnce(&mut GraphBuilder)) -> Arc<CompiledGraph> {
    let mut graph = GraphBuilder::new("inner", 1);
    graph.key("got", Reducer::Merge).key("last", Reducer::Last).key("own", Reducer::Append);
    build(&mut graph);
    Arc::new(graph.compile().expect("a sound graph"))
}

/// `sub` alone in the outer graph.
fn around(inner: &Arc<CompiledGraph>) -> CompiledGraph {
    graph(|g| {
        g.subgraph("sub", Arc::clone(inner)).edge(START, "sub");
    })
}

/// Keeps what it finds in `own`, under a name in `got`.
fn looking(name: &'static str) -> countersign_kernel::node::SharedBody {
    with(&(), move |cx, ()| async move {
        let values: Vec<String> = cx.state().values().keys().map(str::to_owned).collect();
        let own = cx.state().values().get("own").cloned().unwrap_or_default();
        Ok(got(name, &json!({"keys": values, "own": own})).with("own", &[name]))
    })
}

#[test]
fn what_both_declare_goes_in_and_comes_back_and_the_rest_stays_inside() {
    let inner = inner(|g| {
        g.node("p", looking("p")).node("q", looking("q")).edge(START, "p").edge("p", "q");
    });
    let run = start_with(around(&inner), json!({"last": 7, "got": {"before": 1}, "sum": 3}));
    assert_eq!(run.rest(), Rest::Succeeded);
    let keys = json!(["got", "last", "own"]);
    let expected = json!({"before": 1, "p": {"keys": keys, "own": []}, "q": {"keys": keys, "own": ["p"]}});
    assert_eq!(Value::Object(run.state()), json!({"log": [], "got": expected, "sum": 3, "last": 7}));
}

#[test]
fn an_append_and_a_sum_key_that_both_declare_count_the_parents_part_twice() {
    let inner = named("inner", |g| {
        g.node("s", with(&(), |_, ()| async move { Ok(Writes::none().with("log", &["s"]).with("sum", &1)) }));
        g.edge(START, "s");
    });
    let run = start_with(around(&Arc::new(inner)), json!({"log": ["a"], "sum": 10}));
    assert_eq!((&run.state()["log"], &run.state()["sum"]), (&json!(["a", "a", "s"]), &json!(21)));
}

#[test]
fn each_task_of_a_subgraph_node_starts_with_fresh_private_state() {
    let inner = inner(|g| {
        g.node("p", looking("p")).edge(START, "p");
    });
    let run = start(graph(|g| {
        g.subgraph("sub", Arc::clone(&inner))
            .node("count", with(&(), |_, ()| async { Ok(Writes::none().with("sum", &1)) }));
        g.edge(START, "sub").edge("sub", "count");
        g.branch("count", |view| {
            Ok(if view.values().get("sum") == Some(&json!(3)) { vec![] } else { vec!["sub".into()] })
        });
    }));
    assert_eq!((run.rest(), run.visits("sub")), (Rest::Succeeded, 3));
    assert_eq!(run.state()["got"]["p"]["own"], json!([]));
}

/// `mid` runs `inner`, which asks `a?` and `b?` side by side after `p`.
fn two_levels(runs: &Runs) -> CompiledGraph {
    let inner = inner(|g| {
        g.node("p", with(runs, |_, runs| async move { Ok(Writes::none().with("own", &[runs.hit("p")])) }));
        g.node("a", asking("a", runs)).node("b", asking("b", runs));
        g.edge(START, "p").edge("p", "a").edge("p", "b");
    });
    let mid = named("mid", |g| {
        g.subgraph("inner", inner).node("beside", counting("beside", runs));
        g.edge(START, "inner").edge(START, "beside");
    });
    graph(|g| {
        g.subgraph("mid", mid).node("after", counting("after", runs)).edge(START, "mid").edge("mid", "after");
    })
}

#[test]
fn questions_two_levels_deep_are_listed_at_the_top_and_only_the_asking_node_runs_again() {
    let runs = Runs::default();
    let mut run = start(two_levels(&runs));
    assert_eq!(addresses(&run), ["g/mid@0/inner@0/a@1", "g/mid@0/inner@0/b@1"]);
    let (a, b) = (point(&run, "a?"), point(&run, "b?"));
    let parents: Vec<String> = a.parents.iter().map(|parent| parent.address.to_string()).collect();
    assert_eq!(parents, ["g/mid@0/inner@0", "g/mid@0", "g"]);
    assert_eq!(a.parents, b.parents);
    assert_eq!(run.next(), ["mid"]);

    answer_ids(&mut run, &[(&b.id, json!("B"))]).expect("open");
    assert_eq!((run.rest(), run.points()), (Rest::Parked, vec![a]));
    assert_eq!((runs.of("p"), runs.of("a"), runs.of("b"), runs.of("beside")), (1, 1, 2, 1));
    answer(&mut run, "A");
    assert_eq!((run.rest(), &run.state()["got"]), (Rest::Succeeded, &json!({"a": "A", "b": "B"})));
    assert_eq!((runs.of("p"), runs.of("a"), runs.of("b")), (1, 2, 2));
    assert_eq!((runs.of("beside"), runs.of("after"), run.checkpoints()), (1, 1, 3));
}

#[test]
fn a_restart_between_the_answers_changes_nothing() {
    let runs = Runs::default();
    let mut run = start(two_levels(&runs));
    let before = run.points();
    for (point, text) in before.iter().zip(["A", "B"]) {
        run = run.reopen(two_levels(&runs));
        answer_ids(&mut run, &[(&point.id, json!(text))]).expect("open");
    }
    assert_eq!((run.rest(), &run.state()["got"]), (Rest::Succeeded, &json!({"a": "A", "b": "B"})));
    assert_eq!((runs.of("p"), runs.of("a"), runs.of("b"), runs.of("beside")), (1, 2, 2, 1));
}

#[test]
fn questions_inside_and_beside_are_answered_independently() {
    let runs = Runs::default();
    let inner = inner(|g| {
        g.node("a", asking("a", &runs)).edge(START, "a");
    });
    let mut run = start(graph(|g| {
        g.subgraph("sub", inner).node("b", asking("b", &runs)).edge(START, "sub").edge(START, "b");
    }));
    assert_eq!(now(run.answer(json!(1))), Err(countersign_kernel::driver::Refused::NotOne(2)));
    let (a, b) = (point(&run, "a?"), point(&run, "b?"));
    answer_ids(&mut run, &[(&a.id, json!("A"))]).expect("open");
    assert_eq!((run.points(), runs.of("a"), runs.of("b")), (vec![b], 2, 1));
    assert_eq!(run.next(), ["b"], "the graph inside has finished");
    answer(&mut run, "B");
    assert_eq!(run.state()["got"], json!({"a": "A", "b": "B"}));
}

/// `first` to `bad`, which fails once, beside `ask`.
fn failing(runs: &Runs) -> CompiledGraph {
    let inner = inner(|g| {
        let bad = with(runs, |_, runs| async move {
            if runs.hit("bad") == 1 { Err(NodeError::failed("no line")) } else { Ok(got("bad", &json!("better"))) }
        });
        g.node("first", with(runs, |_, runs| async move { Ok(Writes::none().with("own", &[runs.hit("first")])) }));
        g.node("bad", bad).node("ask", asking("ask", runs));
        g.edge(START, "first").edge("first", "bad").edge("first", "ask");
    });
    around(&inner)
}

#[test]
fn a_failure_inside_keeps_what_was_reached_and_is_retried_inside() {
    let runs = Runs::default();
    let mut run = start(failing(&runs));
    assert_eq!(errors(&run), [("sub", "in graph `inner`: bad: no line")]);
    assert_eq!(run.failures(), [(vec!["sub".to_owned(), "bad".to_owned()], "no line".to_owned())]);
    assert_eq!(
        (run.rest(), open(&run)),
        (Rest::Failed, vec!["ask?".to_owned()]),
        "what was asked beside it stays open"
    );
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), open(&run)), (Rest::Parked, vec!["ask?".to_owned()]));
    assert_eq!((runs.of("first"), runs.of("bad"), runs.of("ask")), (1, 2, 1));
    answer(&mut run, "A");
    assert_eq!((run.rest(), &run.state()["got"]), (Rest::Succeeded, &json!({"ask": "A", "bad": "better"})));
}

#[test]
fn a_question_beside_a_failure_inside_is_answered_without_a_retry() {
    let runs = Runs::default();
    let mut run = start(failing(&runs));
    answer(&mut run, "A");
    assert_eq!((run.rest(), run.points().len()), (Rest::Failed, 0));
    assert_eq!((runs.of("bad"), runs.of("ask")), (1, 2));
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), runs.of("first"), runs.of("bad"), runs.of("ask")), (Rest::Succeeded, 1, 2, 2));
}

#[test]
fn an_input_or_a_result_that_does_not_fit_fails_the_node() {
    let strict = {
        let mut flow = Graph::<Part>::new("part", 1);
        let node = flow.node("double", double);
        flow.start(node);
        Arc::new(flow.compile().expect("sound"))
    };
    let run = start(graph(|g| {
        g.subgraph("sub", Arc::clone(&strict)).edge(START, "sub");
    }));
    assert_eq!(errors(&run), [("sub", "the input of graph `part` does not fit: /n: is missing")]);

    let wrong = named("inner", |g| {
        g.node("s", with(&(), |_, ()| async move { Ok(Writes::none().with("sum", &i64::MAX)) })).edge(START, "s");
    });
    let run = start_with(around(&Arc::new(wrong)), json!({"sum": 0, "log": ["kept"]}));
    assert_eq!(run.rest(), Rest::Succeeded);
    let run = start_with(
        around(&Arc::new(named("inner", |g| {
            g.node("s", with(&(), |_, ()| async move { Ok(Writes::none().with("sum", &(i64::MAX - 1))) }))
                .edge(START, "s");
        }))),
        json!({"sum": 1}),
    );
    assert_eq!((run.rest(), &run.state()["sum"]), (Rest::Failed, &json!(1)));
    assert!(errors(&run)[0].1.contains("`sum`"), "{:?}", errors(&run));
}

fn stopped(stops: impl FnOnce(&mut GraphBuilder), runs: &Runs) -> CompiledGraph {
    let inner = inner(|g| {
        for node in ["a", "b"] {
            let body = with(runs, move |_, runs| async move { Ok(got(node, &json!(runs.hit(node)))) });
            g.node(node, body);
        }
        g.edge(START, "a").edge("a", "b");
        stops(g);
    });
    graph(|g| {
        g.subgraph("sub", inner).node("after", counting("after", runs)).edge(START, "sub").edge("sub", "after");
    })
}

#[test]
fn a_static_stop_inside_parks_the_whole_thread_with_the_task_due() {
    let runs = Runs::default();
    let mut run = start(stopped(|g| _ = g.break_before("b"), &runs));
    let points = run.points();
    assert_eq!((points.len(), points[0].kind, points[0].address.to_string()), (1, PointKind::Break, "g/sub@0".into()));
    assert_eq!(points[0].payload["before"], json!(["b"]));
    assert_eq!((run.rest(), run.next(), runs.of("a"), runs.of("b")), (Rest::Parked, vec!["sub"], 1, 0));
    run = run.reopen(stopped(|g| _ = g.break_before("b"), &runs));
    assert_eq!(run.points(), points);
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("a"), runs.of("b"), runs.of("after")), (Rest::Succeeded, 1, 1, 1));
}

#[test]
fn a_stop_after_the_last_node_inside_parks_before_the_result_is_handed_up() {
    for by_id in [false, true] {
        let runs = Runs::default();
        let mut run = start(stopped(|g| _ = g.break_after("b"), &runs));
        let points = run.points();
        assert_eq!((points.len(), &points[0].payload["after"]), (1, &json!(["b"])));
        assert_eq!((run.rest(), runs.of("b"), runs.of("after")), (Rest::Parked, 1, 0));
        assert_eq!((&run.state()["got"], run.next()), (&json!({}), vec!["sub"]));
        assert_eq!(run.frames()[0].values["got"], json!({"a": 1, "b": 1}));
        assert!(run.frames()[0].next.is_empty());
        if by_id {
            answer_ids(&mut run, &[(&points[0].id, Value::Null)]).expect("open");
        } else {
            resume(&mut run, CONTINUE);
        }
        assert_eq!((run.rest(), &run.state()["got"]), (Rest::Succeeded, &json!({"a": 1, "b": 1})));
        assert_eq!((runs.of("b"), runs.of("after")), (1, 1));
    }
}

#[test]
fn an_answer_releases_no_stop_in_a_graph_beside_it() {
    let runs = Runs::default();
    let asks = inner(|g| {
        g.node("ask", asking("ask", &runs)).edge(START, "ask");
    });
    let stops = named("stops", |g| {
        g.node("b", counting("b", &runs)).edge(START, "b").break_before("b");
    });
    let mut run = start(graph(|g| {
        g.subgraph("s1", asks).subgraph("s2", stops).edge(START, "s1").edge(START, "s2");
    }));
    let ask = point(&run, "ask?");
    answer_ids(&mut run, &[(&ask.id, json!(1))]).expect("open");
    assert_eq!((run.rest(), run.points().len(), runs.of("b")), (Rest::Parked, 1, 0));
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("b"), runs.of("ask")), (Rest::Succeeded, 1, 2));
}

#[derive(State)]
struct Part {
    n: i64,
    #[reduce(append)]
    notes: Vec<String>,
}

async fn double(cx: &Context, part: &Part) -> NodeResult<PartUpdate> {
    let note = cx.interrupt("note?").await?;
    Ok(Part::update().n(part.n * 2).notes(note.as_str().unwrap_or("none").to_owned()))
}

#[derive(State)]
struct Whole {
    amount: i64,
    doubled: Option<i64>,
}

#[test]
fn a_typed_graph_maps_its_state_to_that_of_a_typed_subgraph_and_back() {
    let mut part = Graph::<Part>::new("part", 1);
    let node = part.node("double", double);
    part.start(node);
    let part = part.compile().expect("sound");

    let mut flow = Graph::<Whole>::new("whole", 1);
    let sub = flow.subgraph(
        "part",
        part,
        |whole: &Whole| json!({"n": whole.amount, "notes": ["from above"]}),
        |part: &Part| Whole::update().doubled(Some(part.n + i64::try_from(part.notes.len()).unwrap_or(0))),
    );
    flow.start(sub).end(sub);
    let mut run: Driver = start_with(flow.compile().expect("sound"), json!({"amount": 20}));
    assert_eq!(addresses(&run), ["whole/part@0/double@0"]);
    answer(&mut run, "seen");
    assert_eq!((run.rest(), Value::Object(run.state())), (Rest::Succeeded, json!({"amount": 20, "doubled": 42})));
}

#[test]
fn a_subgraph_that_asks_nothing_leaves_no_trace_but_its_result() {
    let empty = inner(|g| {
        g.node("n", body_fn(|_| async { Ok(()) })).branch(START, |_| Ok(vec![]));
    });
    let run = start_with(around(&empty), json!({"last": 1}));
    assert_eq!((run.rest(), run.checkpoints(), run.frames().len()), (Rest::Succeeded, 2, 0));
    assert_eq!(run.state()["last"], 1);
}

#[test]
fn a_result_that_clashes_with_a_siblings_is_kept_and_no_effect_inside_is_repeated() {
    let keys = Runs::default();
    let inner = inner(|g| {
        let pays = with(&keys, |cx, keys| async move {
            let keys = &keys;
            cx.step("pay", |key| async move { Ok::<_, std::fmt::Error>(keys.hit(key.as_str())) }).await?;
            Ok(Writes::none().with("last", &1))
        });
        g.node("pays", pays).edge(START, "pays");
    });
    let mut run = start(graph(|g| {
        g.subgraph("sub", Arc::clone(&inner)).edge(START, "sub").edge(START, "other");
        g.node("other", with(&(), |_, ()| async { Ok(Writes::none().with("last", &2)) }));
    }));
    for _ in 0..2 {
        assert_eq!((run.rest(), run.errors().into_keys().collect::<Vec<_>>()), (Rest::Failed, vec!["other", "sub"]));
        assert_eq!(keys.all().into_values().collect::<Vec<_>>(), [1]);
        run = run.reopen(graph(|g| {
            g.subgraph("sub", Arc::clone(&inner)).edge(START, "sub").edge(START, "other");
            g.node("other", with(&(), |_, ()| async { Ok(Writes::none().with("last", &2)) }));
        }));
        resume(&mut run, RETRY);
    }
    assert_eq!(run.rest(), Rest::Failed);
}
