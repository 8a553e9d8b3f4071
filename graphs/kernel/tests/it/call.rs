//! Graphs that a body runs itself (rule 86, K17, R6).

use std::sync::Arc;

use countersign_kernel::context::Slot;
use countersign_kernel::driver::Driver;
use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::machine::Rest;
use countersign_kernel::node::{NodeError, SharedBody};
use countersign_kernel::state::Reducer;
use futures_util::future::join;
use serde_json::{Value, json};

use crate::support::*;

/// `p` counts, then `ask` asks about what it was given.
fn called(runs: &Runs) -> Arc<CompiledGraph> {
    Arc::new(named("called", |g| {
        g.key("own", Reducer::Sum);
        let p = with(runs, |cx, runs| async move {
            runs.hit("p");
            let given = cx.state().values().get("last").cloned().unwrap_or_default();
            Ok(got("given", &given).with("own", &1))
        });
        let ask = with(runs, |cx, runs| async move {
            let given = cx.state().values().get("last").cloned().unwrap_or_default();
            runs.hit(format!("ask {given}"));
            let answer = cx.interrupt(json!({"about": given})).await?;
            Ok(got("answer", &answer))
        });
        g.node("p", p).node("ask", ask).edge(START, "p").edge("p", "ask");
    }))
}

/// Calls the graph once per input, all side by side.
fn caller(runs: &Runs) -> SharedBody {
    with(&(runs.clone(), called(runs)), |cx, (runs, called)| async move {
        runs.hit("body");
        let before = cx.step("before", |_| async { Ok::<_, std::fmt::Error>(runs.hit("before")) }).await?;
        let one = cx.graph("called", &called, json!({"last": 1}));
        let two = cx.graph("called", &called, json!({"last": 2}));
        let (one, two) = join(one, two).await;
        Ok(got("n", &json!([before, one?, two?])))
    })
}

fn about(run: &Driver) -> Vec<Value> {
    run.points().iter().map(|point| point.payload["about"].clone()).collect()
}

#[test]
fn two_calls_of_one_graph_are_told_apart_and_an_answer_reaches_only_the_one_that_asked() {
    let runs = Runs::default();
    let mut run = start(single(caller(&runs)));
    assert_eq!(addresses(&run), ["g/n@0/called/ask@1", "g/n@0/called[1]/ask@1"]);
    let points = run.points();
    let parents: Vec<String> = points[1].parents.iter().map(|parent| parent.address.to_string()).collect();
    assert_eq!(parents, ["g/n@0/called[1]", "g/n@0", "g"]);
    answer_ids(&mut run, &[(&points[1].id, json!("second"))]).expect("open");
    assert_eq!((run.points(), runs.of("ask 1"), runs.of("ask 2")), (points[..1].to_vec(), 1, 2));
    answer(&mut run, "first");
    assert_eq!(run.rest(), Rest::Succeeded);
    let end =
        |n: u32, answer: &str| json!({"got": {"given": n, "answer": answer}, "last": n, "log": [], "sum": 0, "own": 1});
    assert_eq!(run.state()["got"]["n"], json!([1, end(1, "first"), end(2, "second")]));
    assert_eq!(
        (runs.of("body"), runs.of("before"), runs.of("p")),
        (3, 1, 2),
        "the body runs from the top, the graphs go on"
    );
}

#[test]
fn a_restart_in_between_keeps_the_called_graphs_as_they_were() {
    let runs = Runs::default();
    let mut run = start(single(caller(&runs)));
    let frames = run.frames();
    for answers in [2, 1] {
        run = run.reopen(single(caller(&runs)));
        assert_eq!(about(&run).len(), answers);
        let id = run.points()[0].id.clone();
        answer_ids(&mut run, &[(&id, json!("."))]).expect("open");
    }
    assert_eq!((run.rest(), runs.of("p"), runs.of("ask 1"), runs.of("ask 2")), (Rest::Succeeded, 2, 2, 2));
    assert_eq!(run.state()["got"]["n"][1]["own"], 1);
    assert_eq!(run.state()["got"]["n"][1]["last"], 1);
    assert_eq!(run.state()["got"]["n"][1].as_object().expect("a state").len(), 5, "its own keys and no others");
    let shown: Vec<_> = frames.iter().map(|frame| (frame.path.join("/"), frame.next.join(","))).collect();
    assert_eq!(shown, [("n".into(), "ask".into()), ("n".into(), "ask".into())]);
    assert_eq!(frames[1].values["got"], json!({"given": 2}));
}

#[test]
fn calls_one_after_the_other_stop_at_the_first_that_asks() {
    let runs = Runs::default();
    let body = with(&(runs.clone(), called(&runs)), |cx, (runs, called)| async move {
        runs.hit("body");
        let mut all = Vec::new();
        for n in 0..3 {
            let end = cx.graph("called", &called, json!({"last": n})).await?;
            all.push(end["got"]["answer"].clone());
        }
        Ok(got("n", &json!(all)))
    });
    let mut run = start(single(body));
    for n in 0..3 {
        assert_eq!(about(&run), [json!(n)]);
        answer(&mut run, format!("answer {n}"));
    }
    assert_eq!(run.state()["got"]["n"], json!(["answer 0", "answer 1", "answer 2"]));
    assert_eq!((runs.of("body"), runs.of("p"), runs.of("ask 0")), (4, 3, 2));
}

#[test]
fn a_graph_that_has_ended_is_not_run_again_by_a_body_that_asks_after_it() {
    let runs = Runs::default();
    let body = with(&(runs.clone(), called(&runs)), |cx, (_, called)| async move {
        let end = cx.graph("called", &called, json!({"last": 1})).await?;
        let own = cx.interrupt("own?").await?;
        Ok(got("n", &json!([end["got"]["answer"], own])))
    });
    let build = || single(body.clone());
    let mut run = start(build());
    answer(&mut run, "inner");
    run = run.reopen(build());
    assert_eq!((open(&run), run.frames().len()), (vec!["own?".to_owned()], 0));
    answer(&mut run, "outer");
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!(["inner", "outer"])));
    assert_eq!((runs.of("p"), runs.of("ask 1")), (1, 2));
}

#[test]
fn the_input_of_a_call_is_what_it_was_when_the_graph_started() {
    let runs = Runs::default();
    let body = with(&(runs.clone(), called(&runs)), |cx, (runs, called)| async move {
        let attempt = runs.hit("body");
        let end = cx.graph("called", &called, json!({"last": attempt})).await?;
        Ok(got("n", &end["got"]["given"]))
    });
    let mut run = start(single(body));
    answer(&mut run, ".");
    assert_eq!((run.rest(), &run.state()["got"]["n"], runs.of("body")), (Rest::Succeeded, &json!(1), 2));
}

#[test]
fn slots_and_parts_that_call_graphs_wait_each_for_their_own() {
    let runs = Runs::default();
    let body = with(&(runs.clone(), called(&runs)), |cx, (runs, called)| async move {
        let slots = [1, 2].map(|n| Slot::new(format!("s{n}"), n)).into();
        let all: Vec<Value> = cx
            .batch("tool", slots, |cx, n: i64| {
                let (runs, called) = (runs.clone(), Arc::clone(&called));
                async move {
                    runs.hit(format!("slot {n}"));
                    let end = cx.graph("called", &called, json!({"last": n})).await?;
                    Ok(end["got"]["answer"].clone())
                }
            })
            .await?;
        Ok(got("n", &json!(all)))
    });
    let build = || single(body.clone());
    let mut run = start(build());
    assert_eq!(addresses(&run), ["g/n@0/tool[0]:s1/called/ask@1", "g/n@0/tool[1]:s2/called/ask@1"]);
    let second = run.points()[1].id.clone();
    answer_ids(&mut run, &[(&second, json!("two"))]).expect("open");
    assert_eq!((runs.of("slot 1"), runs.of("slot 2"), about(&run)), (1, 2, vec![json!(1)]));
    run = run.reopen(build());
    answer(&mut run, "one");
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!(["one", "two"])));
    assert_eq!((runs.of("slot 1"), runs.of("slot 2"), runs.of("p")), (2, 2, 2), "a finished slot is not entered");
}

#[test]
fn a_failure_in_a_called_graph_is_the_bodys_and_a_retry_goes_on_inside() {
    let runs = Runs::default();
    let inner = Arc::new(named("inner", |g| {
        let bad = with(&runs, |_, runs| async move {
            if runs.hit("bad") < 3 { Err(NodeError::failed("no line")) } else { Ok(got("bad", &json!("better"))) }
        });
        g.node("first", counting("first", &runs)).node("bad", bad).edge(START, "first").edge("first", "bad");
    }));
    let body = with(&(runs.clone(), inner), |cx, (runs, inner)| async move {
        runs.hit("body");
        let end = cx.graph("inner", &inner, json!({})).await?;
        Ok(got("n", &end["got"]["bad"]))
    });
    let build = || single(body.clone());
    let mut run = start(build());
    for bodies in 1..=2 {
        assert_eq!(errors(&run), [("n", "in graph `inner`: bad: no line")]);
        assert_eq!(run.failures()[0].0, ["n", "bad"]);
        assert_eq!((run.rest(), runs.of("body"), runs.of("bad")), (Rest::Failed, bodies, bodies));
        run = run.reopen(build());
        resume(&mut run, RETRY);
    }
    assert_eq!((run.rest(), &run.state()["got"]["n"], runs.of("first")), (Rest::Succeeded, &json!("better"), 1));
}

#[test]
fn a_body_that_swallows_a_failure_inside_and_asks_waits_for_the_answer() {
    let runs = Runs::default();
    let inner = Arc::new(single(with(&runs, |_, runs| async move {
        runs.hit("bad");
        Err::<countersign_kernel::state::Writes, _>(NodeError::failed("never"))
    })));
    let body = with(&(runs.clone(), inner), |cx, (runs, inner)| async move {
        runs.hit("body");
        let failed = cx.graph("inner", &inner, json!({})).await.is_err();
        let answer = cx.interrupt("anyway?").await?;
        Ok(got("n", &json!([failed, answer])))
    });
    let mut run = start(single(body));
    assert_eq!((run.rest(), runs.of("body"), runs.of("bad")), (Rest::Parked, 1, 1));
    answer(&mut run, "yes");
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([true, "yes"])));
    assert_eq!((runs.of("body"), runs.of("bad")), (2, 1));
}

#[test]
fn a_call_that_a_later_run_does_not_make_keeps_nobody_from_finishing() {
    let runs = Runs::default();
    let body = with(&(runs.clone(), called(&runs)), |cx, (runs, called)| async move {
        if runs.hit("body") == 1 {
            let (asked, own) = join(cx.graph("called", &called, json!({"last": 1})), cx.interrupt("own?")).await;
            asked?;
            own?;
        }
        Ok(got("n", &json!("finished without")))
    });
    let mut run = start(single(body));
    let own = point(&run, "own?");
    answer_ids(&mut run, &[(&own.id, json!(1))]).expect("open");
    assert_eq!((run.rest(), run.points().len(), run.frames().len()), (Rest::Succeeded, 0, 0));
}

#[test]
fn an_answer_in_a_graph_that_a_later_run_does_not_enter_wakes_the_body_once() {
    let runs = Runs::default();
    let body = with(&(runs.clone(), called(&runs)), |cx, (runs, called)| async move {
        if runs.hit("body") == 2 {
            cx.interrupt("changed my mind?").await?;
        }
        let end = cx.graph("called", &called, json!({"last": 1})).await?;
        Ok(got("n", &end["got"]["answer"]))
    });
    let mut run = start(single(body));
    answer(&mut run, "A");
    assert_eq!((run.rest(), open(&run), runs.of("body")), (Rest::Parked, vec!["changed my mind?".to_owned()], 2));
    answer(&mut run, "no");
    assert_eq!((run.rest(), &run.state()["got"]["n"], runs.of("body")), (Rest::Succeeded, &json!("A"), 3));
}

#[test]
fn a_resume_all_reaches_what_is_open_in_called_graphs_once() {
    let runs = Runs::default();
    let mut run = start(single(caller(&runs)));
    let before = run.points();
    resume(&mut run, RESUME_ALL);
    assert_eq!((run.rest(), run.points()), (Rest::Parked, before));
    assert_eq!((runs.of("ask 1"), runs.of("ask 2"), runs.of("body"), runs.of("p")), (2, 2, 2, 2));
}

#[test]
fn an_input_that_does_not_fit_fails_the_caller() {
    let inner = called(&Runs::default());
    let body = with(&inner, |cx, inner| async move {
        let end = cx.graph("called", &inner, json!({"nothing": 1})).await?;
        Ok(got("n", &json!(end)))
    });
    let run = start(single(body));
    let message = errors(&run)[0].1.to_owned();
    assert!(message.starts_with("the input of graph `called` does not fit: /nothing"), "{message}");
}

#[test]
fn a_resume_all_that_does_not_come_to_a_graph_is_over_for_it_as_well() {
    let runs = Runs::default();
    let body = with(&(runs.clone(), called(&runs)), |cx, (_, called)| async move {
        if cx.is_resume_all() {
            cx.interrupt("instead?").await?;
        }
        let end = cx.graph("called", &called, json!({"last": 1})).await?;
        Ok(got("n", &end["got"]["answer"]))
    });
    let mut run = start(single(body));
    resume(&mut run, RESUME_ALL);
    let instead = point(&run, "instead?");
    answer_ids(&mut run, &[(&instead.id, json!(1))]).expect("open");
    assert_eq!((run.rest(), about(&run), runs.of("ask 1")), (Rest::Parked, vec![json!(1)], 1), "nobody answered there");
    answer(&mut run, "A");
    assert_eq!((run.rest(), &run.state()["got"]["n"], runs.of("ask 1")), (Rest::Succeeded, &json!("A"), 2));
}
