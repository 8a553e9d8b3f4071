//! Sub-graphs on a store: they park, restart and go on where they were (K17).

use std::sync::Arc;

use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::node::{NodeError, NodePolicy, RetryPolicy};
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use super::nested::{answer, names, open, restarted, world};
use crate::support::flows::{asks, fails, flow, got, logs, part, pays, pays_at_once, sends, with, works};
use crate::support::{Runs, operator};

engine!(
    a_question_two_graphs_deep_is_answered_in_another_process_and_only_its_node_runs_again,
    sub_graphs_side_by_side_are_answered_one_by_one_across_restarts,
    sub_graphs_that_were_sent_are_answered_in_portions_across_restarts,
    a_graph_that_a_body_calls_is_found_where_it_was,
    a_failure_inside_is_named_by_its_way_and_a_retry_runs_it_alone,
    an_answer_inside_beside_a_failure_runs_its_point_alone,
    a_static_stop_inside_is_passed_once_in_another_process,
    a_loop_of_a_sub_graph_asks_anew_each_time_and_keeps_no_frame_of_before,
    a_sub_graph_whose_result_cannot_be_applied_is_not_done_twice,
);

/// `before`, a graph `outer` of `first` and a graph `inner` of `early`, `asks`
/// and `late`, and `after`.
fn two_deep(runs: &Runs) -> CompiledGraph {
    let inner = part("inner", |g| {
        g.node("early", logs("inside", "early", runs))
            .node("asks", pays("asks", runs))
            .node("late", works("late", runs));
        g.edge(START, "early").edge("early", "asks").edge("asks", "late");
    });
    let outer = part("outer", |g| {
        g.node("first", works("first", runs)).subgraph("inner", inner).node("beside", works("beside", runs));
        g.edge(START, "first").edge("first", "inner").edge("first", "beside");
    });
    flow("flow", |g| {
        g.node("before", logs("log", "before", runs)).subgraph("outer", outer).node("after", works("after", runs));
        g.edge(START, "before").edge("before", "outer").edge("outer", "after");
    })
}

async fn a_question_two_graphs_deep_is_answered_in_another_process_and_only_its_node_runs_again() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || two_deep(&runs)
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let parked = open(&engine, &thread, "parked").await;
    assert_eq!(names(&parked), ["asks?"]);
    assert_eq!(parked[0].1.address, "flow/outer@1/inner@1/asks@1");
    let before = runs.all();

    let engine = restarted(&world, engine).await;
    let view = engine.view(&thread).await;
    let paths: Vec<_> = view.frames.iter().map(|frame| frame.path.clone()).collect();
    assert_eq!(paths, [vec!["outer"], vec!["outer", "inner"]]);
    assert_eq!(
        (view.next.as_slice(), view.frames[1].next.as_slice()),
        (["outer".into()].as_slice(), ["asks".into()].as_slice())
    );
    assert_eq!(view.frames[1].values["inside"], json!(["early"]));
    assert_eq!(view.frames[0].values["got"], json!({"beside": "done", "first": "done"}), "what has finished shows");
    assert_eq!(parked[0].1.frame.as_ref(), Some(&view.frames[1].frame));
    assert_eq!(runs.all(), before, "a restart runs nothing");

    answer(&engine, &parked[0].1, json!(7)).await;
    let done = engine.rests(&thread, "succeeded").await;
    let expected = json!({"first": "done", "beside": "done", "asks": 7, "late": "done", "after": "done"});
    assert_eq!((&done.state["got"], &done.state["log"]), (&expected, &json!(["before"])));
    for node in ["before", "first", "beside", "early", "late", "after"] {
        assert_eq!(runs.of(node), 1, "{node}");
    }
    assert_eq!(runs.of("asks"), 2);
    let effects: Vec<_> = runs.all().into_iter().filter(|(name, _)| name.contains(' ')).collect();
    assert!(effects.len() == 2 && effects.iter().all(|(_, count)| *count == 1), "each step once: {effects:?}");
    assert_eq!((done.interrupts.len(), done.summary.open), (0, 0));
}

async fn sub_graphs_side_by_side_are_answered_one_by_one_across_restarts() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let one = |name: &'static str, asked: &'static str| {
                part(name, |g| {
                    g.node(asked, asks(asked, &runs)).edge(START, asked);
                })
            };
            flow("flow", |g| {
                g.subgraph("left", one("left", "l")).subgraph("right", one("right", "r"));
                g.node("plain", asks("plain", &runs)).node("end", works("end", &runs));
                g.edge(START, "left").edge(START, "right").edge(START, "plain");
                g.join(["left", "right", "plain"], "end");
            })
        }
    });
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let all = open(&engine, &thread, "parked").await;
    assert_eq!(names(&all), ["l?", "plain?", "r?"]);
    for (answered, left) in [(2, vec!["l?", "plain?"]), (0, vec!["plain?"])] {
        engine = restarted(&world, engine).await;
        answer(&engine, &all[answered].1, json!(answered)).await;
        engine.idles().await;
        let still = open(&engine, &thread, "parked").await;
        assert_eq!(names(&still), left);
        for (name, view) in &still {
            let first = all.iter().find(|(known, _)| known == name).expect("asked before");
            assert_eq!(view, &first.1, "what is not answered stays as it is");
        }
    }
    engine = restarted(&world, engine).await;
    answer(&engine, &all[1].1, json!(1)).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"l": 0, "r": 2, "plain": 1, "end": "done"}));
    assert_eq!((runs.of("l"), runs.of("r"), runs.of("plain"), runs.of("end")), (2, 2, 2, 1));
}

/// A graph that gets a number, asks about it, and gives it back.
fn asking_about_its_number(runs: &Runs) -> Arc<CompiledGraph> {
    part("child", |g| {
        let ask = with(runs, |cx, runs| async move {
            let n = cx.state().values().get("n").cloned().unwrap_or_default();
            runs.hit(format!("ask {n}"));
            let answer = cx.interrupt(format!("{n}?")).await?;
            Ok(got(&n.to_string(), &answer).with("inside", &[n]))
        });
        g.node("ask", ask).node("end", logs("inside", "end", runs)).edge(START, "ask").edge("ask", "end");
    })
}

async fn sub_graphs_that_were_sent_are_answered_in_portions_across_restarts() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let child = asking_about_its_number(&runs);
            flow("flow", |g| {
                g.node("fan", sends("child", 5)).subgraph("child", child).node("end", logs("log", "end", &runs));
                g.edge(START, "fan").edge("child", "end");
            })
        }
    });
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let all = open(&engine, &thread, "parked").await;
    assert_eq!(names(&all), ["0?", "1?", "2?", "3?", "4?"]);
    assert_eq!(all[3].1.address, "flow/child@1/child[3]/ask@0");
    assert_eq!(engine.view(&thread).await.frames.len(), 5);
    for portion in [vec![3], vec![0, 4]] {
        engine = restarted(&world, engine).await;
        let answers = portion.iter().map(|i: &usize| (all[*i].1.id.clone(), json!({"to": i})));
        engine.resume(&thread, answers, super::graphs::NOTHING).await.expect("accepted");
        engine.idles().await;
    }
    let still = open(&engine, &thread, "parked").await;
    assert_eq!(names(&still), ["1?", "2?"]);
    let view = engine.view(&thread).await;
    let paths: Vec<_> = view.frames.iter().map(|frame| frame.path.join("/")).collect();
    assert_eq!(paths, ["child#1", "child#2"], "the finished ones are gone");
    assert_eq!(view.values["got"], json!({"0": {"to": 0}, "3": {"to": 3}, "4": {"to": 4}}));
    engine = restarted(&world, engine).await;
    for (name, view) in &still {
        answer(&engine, view, json!(name)).await;
    }
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"0": {"to": 0}, "1": "1?", "2": "2?", "3": {"to": 3}, "4": {"to": 4}}));
    assert_eq!(done.state["log"], json!(["end"]), "one task of the node that follows");
    for n in 0..5 {
        assert_eq!(runs.of(&format!("ask {n}")), 2, "{n}");
    }
}

/// A body that calls a graph twice and keeps what the calls give.
fn calling(runs: &Runs, child: &Arc<CompiledGraph>) -> countersign_kernel::node::SharedBody {
    with(&(runs.clone(), Arc::clone(child)), |cx, (runs, child)| async move {
        runs.hit("calls");
        let mut results = Vec::new();
        for n in [10, 20] {
            let before = format!("before {n}");
            let hits = runs.clone();
            cx.step(&before, async |_| {
                hits.hit(&before);
                Ok::<_, NodeError>(())
            })
            .await?;
            let end = cx.graph("child", &child, json!({"n": n})).await?;
            results.push(end["got"].clone());
        }
        Ok(got("calls", &Value::Array(results)))
    })
}

async fn a_graph_that_a_body_calls_is_found_where_it_was() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let child = asking_about_its_number(&runs);
            flow("flow", |g| {
                g.node("calls", calling(&runs, &child)).edge(START, "calls");
            })
        }
    });
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    for (asked, address) in [("10?", "flow/calls@0/child/ask@0"), ("20?", "flow/calls@0/child[1]/ask@0")] {
        let parked = open(&engine, &thread, "parked").await;
        assert_eq!((names(&parked), parked[0].1.address.as_str()), (vec![asked], address));
        engine = restarted(&world, engine).await;
        answer(&engine, &parked[0].1, json!(asked)).await;
        engine.idles().await;
    }
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"]["calls"], json!([{"10": "10?"}, {"20": "20?"}]));
    assert_eq!((runs.of("ask 10"), runs.of("ask 20"), runs.of("calls")), (2, 2, 3));
    assert_eq!((runs.of("before 10"), runs.of("before 20"), runs.of("end")), (1, 1, 2));
}

async fn a_failure_inside_is_named_by_its_way_and_a_retry_runs_it_alone() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let inner = part("inner", |g| {
                g.node("early", works("early", &runs)).node("breaks", fails("breaks", 2, &runs));
                g.node("beside", works("beside", &runs));
                g.edge(START, "early").edge("early", "breaks").edge("early", "beside");
            });
            let outer = part("outer", |g| {
                g.subgraph("inner", inner).edge(START, "inner");
            });
            flow("flow", |g| {
                g.subgraph("outer", outer).node("plain", asks("plain", &runs));
                g.edge(START, "outer").edge(START, "plain");
            })
        }
    });
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    for round in 1..=2 {
        let failed = engine.rests(&thread, "failed").await;
        let error = failed.summary.error.expect("a reason");
        assert_eq!(error, "outer/inner/breaks: breaks has no line");
        assert_eq!((failed.summary.failed_tasks, failed.summary.open), (1, 1));
        engine = restarted(&world, engine).await;
        let failures = engine.view(&thread).await.failures;
        let way = ["outer", "inner", "breaks"].map(str::to_owned).to_vec();
        assert_eq!(failures, [(way, "breaks has no line".to_owned())]);
        assert_eq!((runs.of("breaks"), runs.of("early"), runs.of("beside")), (round, 1, 1));
        engine.engine.retry(&thread, &operator()).await.expect("accepted");
        engine.idles().await;
    }
    let parked = open(&engine, &thread, "parked").await;
    assert_eq!(names(&parked), ["plain?"]);
    answer(&engine, &parked[0].1, json!("yes")).await;
    let done = engine.rests(&thread, "succeeded").await;
    let expected = json!({"early": "done", "breaks": "at last", "beside": "done", "plain": "yes"});
    assert_eq!(done.state["got"], expected);
    assert_eq!((runs.of("early"), runs.of("breaks"), runs.of("beside"), runs.of("plain")), (1, 3, 1, 2));
}

async fn an_answer_inside_beside_a_failure_runs_its_point_alone() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let inner = part("inner", |g| {
                g.node("asks", asks("asks", &runs)).node("breaks", fails("breaks", 1, &runs));
                g.edge(START, "asks").edge(START, "breaks");
            });
            flow("flow", |g| {
                g.subgraph("inner", inner).edge(START, "inner");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let failed = open(&engine, &thread, "failed").await;
    assert_eq!(names(&failed), ["asks?"]);
    let engine = restarted(&world, engine).await;
    answer(&engine, &failed[0].1, json!("yes")).await;
    engine.idles().await;
    engine.rests(&thread, "failed").await;
    assert_eq!((runs.of("asks"), runs.of("breaks")), (2, 1));
    let engine = restarted(&world, engine).await;
    engine.engine.retry(&thread, &operator()).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(
        (&done.state["got"], runs.of("asks"), runs.of("breaks")),
        (&json!({"asks": "yes", "breaks": "at last"}), 2, 2)
    );
}

/// `stops` in a sub-graph with stops before its second node and after its last.
fn stopping(runs: &Runs) -> CompiledGraph {
    let inner = part("inner", |g: &mut GraphBuilder| {
        g.node("a", works("a", runs)).node("b", works("b", runs));
        g.edge(START, "a").edge("a", "b").break_before("b").break_after("b");
    });
    flow("flow", |g| {
        g.subgraph("inner", inner).node("end", works("end", runs)).edge(START, "inner").edge("inner", "end");
    })
}

async fn a_static_stop_inside_is_passed_once_in_another_process() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || stopping(&runs)
    });
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    // By its id, by `continue`: either passes it.
    for (by_id, counts) in [(true, (1, 0)), (false, (1, 1))] {
        let parked = open(&engine, &thread, "parked").await;
        assert_eq!(names(&parked), ["break"]);
        assert!(parked[0].1.frame.is_some());
        assert_eq!((runs.of("a"), runs.of("b")), counts);
        engine = restarted(&world, engine).await;
        assert!(engine.view(&thread).await.frames.len() == 1, "it waits before its result is handed up");
        if by_id {
            answer(&engine, &parked[0].1, Value::Null).await;
        } else {
            engine.resume(&thread, [], super::graphs::CONTINUE).await.expect("accepted");
        }
        engine.idles().await;
        let closed = engine.engine.store().interrupt(&parked[0].1.id).await.expect("there");
        assert_eq!(closed.status, if by_id { "answered" } else { "released" });
    }
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"a": "done", "b": "done", "end": "done"}));
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("end")), (1, 1, 1));
}

async fn a_loop_of_a_sub_graph_asks_anew_each_time_and_keeps_no_frame_of_before() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let round = part("round", |g| {
                g.node("ask", asks("ask", &runs)).edge(START, "ask");
            });
            let looping = part("looping", |g| {
                let next = with(&runs, |_, runs| async move { Ok(Writes::none().with("n", &runs.hit("next"))) });
                g.node("next", next).subgraph("round", round).edge(START, "next").edge("next", "round");
                g.branch("round", |state| {
                    let again = state.values().get("n").and_then(Value::as_u64) < Some(4);
                    Ok(if again { vec!["next".into()] } else { Vec::new() })
                });
            });
            flow("flow", |g| {
                g.subgraph("looping", looping).edge(START, "looping");
            })
        }
    });
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let mut ids = Vec::new();
    for visit in 0..4 {
        let parked = open(&engine, &thread, "parked").await;
        assert_eq!(parked[0].1.address, format!("flow/looping@0/round@{}/ask@0", 2 * visit + 1));
        assert!(!ids.contains(&parked[0].1.id), "a new question");
        ids.push(parked[0].1.id.clone());
        engine = restarted(&world, engine).await;
        let view = engine.view(&thread).await;
        let paths: Vec<_> = view.frames.iter().map(|frame| frame.path.join("/")).collect();
        assert_eq!(paths, ["looping", "looping/round"]);
        let held = countersign_worker::store::Store::load(&engine.store, &thread).await.expect("there");
        assert_eq!(held.frames.len(), 2, "what has finished is not read again");
        answer(&engine, &parked[0].1, json!(visit)).await;
        engine.idles().await;
    }
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"ask": 3}));
    assert_eq!((runs.of("ask"), runs.of("next")), (8, 4));
}

/// A graph `outer` that is tried twice, in which a graph `writer` and the node
/// `other` write one key; `other` does so once only.
fn conflicting(runs: &Runs, asks_first: bool) -> CompiledGraph {
    let writer = part("writer", |g| {
        let write = with(runs, |_, runs| async move {
            runs.hit("write");
            Ok(Writes::none().with("n", &1))
        });
        g.node("first", pays_at_once("first", runs)).node("write", write).edge(START, "first").edge("first", "write");
    });
    let outer = part("outer", |g| {
        let other = with(runs, move |cx, runs| async move {
            if asks_first {
                cx.interrupt("other?").await?;
            }
            Ok(if runs.hit("other") == 1 { Writes::none().with("n", &100) } else { Writes::none() })
        });
        g.subgraph("writer", writer).node("other", other).edge(START, "writer").edge(START, "other");
    });
    flow("flow", |g| {
        let policy = NodePolicy { retry: Some(RetryPolicy::immediate(2)), ..NodePolicy::default() };
        g.subgraph("outer", outer).policy("outer", policy).edge(START, "outer");
    })
}

async fn a_sub_graph_whose_result_cannot_be_applied_is_not_done_twice() {
    for asks_first in [false, true] {
        let runs = Runs::default();
        let world = world({
            let runs = runs.clone();
            move || conflicting(&runs, asks_first)
        });
        let mut engine = world.engine().await;
        let thread = engine.start("flow", json!({})).await;
        if asks_first {
            let parked = open(&engine, &thread, "parked").await;
            assert_eq!((names(&parked), runs.of("write")), (vec!["other?"], 1), "the writer has finished");
            engine = restarted(&world, engine).await;
            answer(&engine, &parked[0].1, json!("go")).await;
        }
        engine.rests(&thread, "succeeded").await;
        assert_eq!((runs.of("first"), runs.of("write"), runs.of("other")), (1, 1, 2), "{asks_first}");
    }
}
