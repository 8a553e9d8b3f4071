//! Time and signals: `cx.sleep`, deadlines (K21), `cx.signal`.

use std::time::Duration;

use countersign_kernel::context::Context;
use countersign_kernel::driver::{Driver, Refused};
use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::machine::{Point, Rest, Resume};
use countersign_kernel::node::{NodeError, NodePolicy, NodeResult, RetryPolicy, SharedBody, body_fn};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::principal::Principal;
use countersign_kernel::question::{OnDeadline, approval};
use countersign_kernel::state::Writes;
use countersign_kernel::time::Timestamp;
use serde_json::{Value, json};

use crate::support::*;

const DAY: Duration = Duration::from_hours(24);

fn body<F, Fut>(body: F) -> SharedBody
where
    F: Fn(Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<Writes>> + Send + 'static,
{
    body_fn(body)
}

/// A thread whose time is the driver's own.
fn begin(graph: CompiledGraph) -> Driver {
    now(Driver::start(graph, json!({}))).expect("good input")
}

fn only(run: &Driver) -> Point {
    let points = run.points();
    assert_eq!(points.len(), 1, "{points:?}");
    points.into_iter().next().expect("one")
}

#[test]
fn a_sleep_is_counted_once_and_wakes_its_own_task_alone() {
    let runs = Runs::default();
    let sleeps = with(&runs, |cx, runs| async move {
        runs.hit("sleeps");
        cx.sleep(DAY).await?;
        cx.sleep(DAY).await?;
        Ok(got("sleeps", &json!(cx.now() >= Timestamp::from_micros(0).after(2 * DAY))))
    });
    let asks = with(&runs, |cx, runs| async move {
        runs.hit("asks");
        Ok(got("asks", &cx.interrupt("?").await?))
    });
    let two = || {
        graph(|g| {
            g.node("sleeps", sleeps.clone()).node("asks", asks.clone()).edge(START, "sleeps").edge(START, "asks");
        })
    };
    let mut run = begin(two());
    let before: Vec<Point> = run.points();
    assert_eq!(before.iter().map(|point| point.kind).collect::<Vec<_>>(), [PointKind::Interrupt, PointKind::Sleep]);
    assert_eq!(before[0].due, None);
    // Neither a restart nor a resume-all counts from the start again.
    run = run.reopen(two());
    resume(&mut run, RESUME_ALL);
    assert_eq!((&run.points()[1].id, run.points()[1].due), (&before[1].id, before[1].due));
    assert_eq!(now(run.answer(json!("an answer"))), Ok(()), "the sleep is no question");
    assert_eq!((runs.of("asks"), run.rest()), (3, Rest::Parked));

    assert!(now(run.pass_time()));
    let second = only(&run);
    assert_ne!(second.id, before[1].id);
    assert!(second.due >= before[1].due.map(|due| due.after(DAY)), "{second:?}");
    assert!(now(run.pass_time()));
    assert_eq!((run.rest(), runs.of("asks")), (Rest::Succeeded, 3));
    assert_eq!(run.state()["got"], json!({"asks": "an answer", "sleeps": true}));
    assert!(!now(run.pass_time()), "nothing waits for time any more");
}

#[test]
fn an_instant_that_has_passed_is_no_wait() {
    let mut run = begin(single(body(|cx| async move {
        cx.sleep_until(Timestamp::from_micros(0)).await?;
        cx.interrupt("?").await?;
        Ok(Writes::none())
    })));
    assert_eq!(only(&run).kind, PointKind::Interrupt);
    answer(&mut run, "go");
    assert_eq!(run.rest(), Rest::Succeeded);
}

#[test]
fn a_deadline_does_what_the_request_says() {
    let outcome = |then: OnDeadline| {
        let mut run = begin(single(body(move |cx| {
            let ask = approval("Pay?").within(DAY, then.clone());
            async move { Ok(got("n", &serde_json::to_value(cx.ask(ask).await?)?)) }
        })));
        let asked = only(&run);
        assert!(asked.due.is_some());
        let passed = now(run.pass_time());
        (passed, run)
    };
    let (passed, run) = outcome(OnDeadline::Wait);
    assert_eq!((passed, run.rest(), run.points().len()), (false, Rest::Parked, 1));

    let (_, run) = outcome(OnDeadline::Reject);
    let by = json!([Principal::deadline()]);
    let rejected = json!({"approved": false, "reason": "nobody decided in time", "by": by});
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &rejected));

    let (_, run) = outcome(OnDeadline::Answer(json!({"approved": true})));
    assert_eq!(run.state()["got"]["n"], json!({"approved": true, "by": by}));

    let (_, run) = outcome(OnDeadline::Fail);
    assert_eq!((run.rest(), run.errors()["n"]), (Rest::Failed, "`Pay?` was not decided in time"));
}

#[test]
fn a_missed_deadline_is_not_tried_again_but_an_operator_may_answer_in_its_place() {
    let runs = Runs::default();
    let policy = NodePolicy { retry: Some(RetryPolicy::immediate(5)), ..NodePolicy::default() };
    let asks = with(&runs, |cx, runs| async move {
        runs.hit("n");
        let decision = cx.ask(approval("Pay?").within(DAY, OnDeadline::Fail)).await?;
        Ok(got("n", &json!(decision.approved)))
    });
    let mut run = begin(graph(|g| {
        g.node("n", asks).policy("n", policy).edge(START, "n");
    }));
    let id = only(&run).id;
    assert!(now(run.pass_time()));
    assert_eq!((run.rest(), runs.of("n")), (Rest::Failed, 2));
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), runs.of("n")), (Rest::Failed, 3));

    let request = countersign_kernel::driver::RunRequest {
        answers: vec![(id, json!({"approved": true}))],
        resume: Resume { retry: true, ..Resume::default() },
        ..Default::default()
    };
    assert_eq!(now(run.run(request)), Ok(()));
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!(true)));
}

#[test]
fn a_faulty_deadline_fails_the_node_when_it_asks() {
    let run = begin(single(body(|cx| async move {
        cx.ask(approval("Pay?").within(DAY, OnDeadline::Answer(json!({"value": 1})))).await?;
        Ok(Writes::none())
    })));
    assert_eq!(run.rest(), Rest::Failed);
    let message = run.errors()["n"].to_owned();
    assert!(message.contains("`Pay?`") && message.contains("/approved"), "{message}");
}

#[test]
fn signals_are_kept_and_taken_in_the_order_in_which_they_came() {
    let mut run = begin(single(body(|cx| async move {
        cx.interrupt("ready?").await?;
        let first: u32 = cx.signal("paid").await?;
        let other: Value = cx.signal("refunded").await?;
        let second: u32 = cx.signal("paid").await?;
        Ok(got("n", &json!([first, other, second])))
    })));
    for (name, payload) in [("paid", json!(1)), ("paid", json!(2)), ("ignored", json!(0)), ("paid", json!(3))] {
        assert_eq!(now(run.signal(name, payload)), Ok(()));
    }
    assert_eq!(only(&run).kind, PointKind::Interrupt, "they wake nothing that waits for something else");
    answer(&mut run, "go");
    let waits = only(&run);
    assert_eq!((waits.kind, waits.signal()), (PointKind::Signal, Some("refunded")));
    assert_eq!(now(run.signal("refunded", Value::Null)), Ok(()));
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([1, null, 2])));
    assert!(matches!(
        now(Driver::new(single(body(|_| async { Ok(Writes::none()) }))).signal("x", Value::Null)),
        Err(Refused::NeverRan)
    ));
}

#[test]
fn a_signal_has_a_time_limit_if_the_flow_says_so() {
    let graph = || {
        single(body(|cx| async move {
            let paid: Option<u32> = cx.signal_within("paid", DAY).await?;
            let late: Option<u32> = cx.signal_within("paid", DAY).await?;
            Ok(got("n", &json!([paid, late])))
        }))
    };
    let mut run = begin(graph());
    assert!(only(&run).due.is_some());
    assert!(now(run.pass_time()));
    assert_eq!(now(run.signal("paid", json!(7))), Ok(()));
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([null, 7])));
}

#[test]
fn of_two_points_that_wait_for_one_name_the_one_that_has_waited_longest_gets_it() {
    let waits = body(|cx| async move {
        let value: Value = cx.signal("go").await?;
        let node = cx.address().segments().last().map(|segment| segment.name.clone()).unwrap_or_default();
        Ok(got(&node, &value))
    });
    let mut run = begin(graph(|g| {
        g.node("a", waits.clone()).node("b", waits).edge(START, "a").edge(START, "b");
    }));
    for n in [1, 2] {
        assert_eq!(now(run.signal("go", json!(n))), Ok(()));
    }
    assert_eq!((run.rest(), &run.state()["got"]), (Rest::Succeeded, &json!({"a": 1, "b": 2})));
}

#[test]
fn a_signal_that_does_not_fit_fails_by_its_name() {
    let mut run = begin(single(body(|cx| async move {
        let _: u32 = cx.signal("paid").await?;
        Ok(Writes::none())
    })));
    assert_eq!(now(run.signal("paid", json!("much"))), Ok(()));
    assert!(run.errors()["n"].contains("the signal `paid` does not fit"), "{:?}", run.errors());

    let run = begin(single(body(|cx| async move {
        let _: Value = cx.signal("no name").await?;
        Err(NodeError::failed("not reached"))
    })));
    assert!(run.errors()["n"].contains("`no name` is no name of a signal"), "{:?}", run.errors());
}
