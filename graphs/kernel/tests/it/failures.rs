//! Failures keep what was reached (K13, R9, R12).

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::machine::Rest;
use countersign_kernel::node::NodeError;
use countersign_kernel::state::Writes;
use serde_json::json;

use crate::support::*;

/// `bad` fails at its first run, `ask` asks, `ok` finishes; all in parallel.
fn mixed(runs: &Runs) -> CompiledGraph {
    graph(|g| {
        let bad = with(runs, |_, runs| async move {
            if runs.hit("bad") == 1 { Err(NodeError::failed("no line")) } else { Ok(got("bad", &json!("better"))) }
        });
        g.node("bad", bad).node("ask", asking("ask", runs)).node("ok", counting("ok", runs));
        g.edge(START, "bad").edge(START, "ask").edge(START, "ok");
    })
}

#[test]
fn a_failure_keeps_results_and_points_and_retry_runs_only_what_failed() {
    let runs = Runs::default();
    let mut run = start(mixed(&runs));
    assert_eq!((run.rest(), run.errors().into_iter().collect::<Vec<_>>()), (Rest::Failed, vec![("bad", "no line")]));
    let before = run.points();
    assert_eq!((open(&run), &run.state()["log"]), (vec!["ask?".to_owned()], &json!([])));
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), run.points()), (Rest::Parked, before));
    assert_eq!((runs.of("bad"), runs.of("ask"), runs.of("ok")), (2, 1, 1));
    answer(&mut run, "A");
    assert_eq!((run.rest(), &run.state()["got"]), (Rest::Succeeded, &json!({"ask": "A", "bad": "better"})));
    assert_eq!((&run.state()["log"], runs.of("ok")), (&json!(["ok"]), 1));
}

#[test]
fn an_open_point_of_a_failed_thread_can_be_answered_and_only_it_runs() {
    let runs = Runs::default();
    let mut run = start(mixed(&runs));
    answer(&mut run, "A");
    assert_eq!((run.rest(), run.points().len()), (Rest::Failed, 0));
    assert_eq!((runs.of("bad"), runs.of("ask"), runs.of("ok")), (1, 2, 1));
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), runs.of("bad"), runs.of("ask")), (Rest::Succeeded, 2, 2));
}

#[test]
fn nobody_is_asked_twice_because_of_a_failure() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let first = cx.interrupt("first?").await?;
        let second = cx.interrupt("second?").await?;
        if runs.hit("n") < 3 {
            return Err(NodeError::failed("not yet"));
        }
        Ok(got("n", &json!([first, second])))
    })));
    answer(&mut run, 1);
    answer(&mut run, 2);
    for _ in 0..2 {
        assert_eq!((run.rest(), run.points().len()), (Rest::Failed, 0));
        resume(&mut run, RETRY);
    }
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([1, 2])));
}

#[test]
fn a_failed_body_writes_nothing_and_resume_all_and_continue_do_not_retry_it() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |_, runs| async move {
        runs.hit("n");
        Err::<Writes, _>(NodeError::failed("never"))
    })));
    for how in [CONTINUE, RESUME_ALL] {
        resume(&mut run, how);
        assert_eq!((run.rest(), runs.of("n"), run.checkpoints()), (Rest::Failed, 1, 1));
    }
    assert_eq!(run.state()["got"], json!({}));
}

#[test]
fn an_error_names_its_causes_and_a_false_signal_is_a_failure() {
    #[derive(Debug, thiserror::Error)]
    #[error("cannot pay")]
    struct CannotPay(#[source] std::num::ParseIntError);

    let run = start(single(with(&(), |_, ()| async move {
        let amount: i64 = "x".parse().map_err(CannotPay)?;
        Ok(Writes::none().with("sum", &amount))
    })));
    assert_eq!(run.errors()["n"], "cannot pay: invalid digit found in string");

    let run = start(single(with(&(), |_, ()| async move { Err::<Writes, _>(NodeError::Interrupted) })));
    assert_eq!((run.rest(), run.points().len()), (Rest::Failed, 0));
    assert!(run.errors()["n"].contains("asked nothing"));
}

#[test]
fn a_body_that_asks_and_then_fails_has_failed_and_its_question_stays() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let answer = cx.interrupt("n?").await.ok();
        if runs.hit("n") == 1 {
            return Err(NodeError::failed("and then it broke"));
        }
        Ok(got("n", &json!(answer)))
    })));
    assert_eq!((run.rest(), open(&run)), (Rest::Failed, vec!["n?".to_owned()]));
    answer(&mut run, "yes");
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!("yes")));
}
