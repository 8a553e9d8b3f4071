//! What the kernel does with a body beyond running it once: retries, pauses,
//! time limits, panics (rules 49, 53, K13).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_kernel::context::Context;
use countersign_kernel::driver::{Driver, RunRequest};
use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::machine::Rest;
use countersign_kernel::node::{NodeError, NodePolicy, RetryPolicy, SharedBody};
use countersign_kernel::ports::Timers;
use countersign_kernel::prelude::{Graph, NodeResult, State};
use countersign_kernel::state::Writes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending, ready};
use serde_json::json;

use crate::support::*;

fn retrying(attempts: u32) -> NodePolicy {
    NodePolicy { retry: Some(RetryPolicy::immediate(attempts)), ..NodePolicy::default() }
}

fn under(policy: NodePolicy, body: SharedBody) -> CompiledGraph {
    graph(|g| {
        g.node("n", body).edge(START, "n").policy("n", policy);
    })
}

/// Fails until its `good`th run; writes the number of the attempt.
fn fails_until(good: u32, runs: &Runs) -> SharedBody {
    with(runs, move |cx, runs| async move {
        if runs.hit("n") < good {
            return Err(NodeError::failed(format!("attempt {}", cx.attempt())));
        }
        Ok(Writes::none().with("log", &[cx.attempt()]))
    })
}

#[test]
fn a_node_is_tried_again_within_the_run_and_failed_attempts_write_nothing() {
    let runs = Runs::default();
    let run = start(under(retrying(3), fails_until(3, &runs)));
    assert_eq!((run.rest(), &run.state()["log"], runs.of("n")), (Rest::Succeeded, &json!([3]), 3));
    assert_eq!((run.visits("n"), run.checkpoints()), (1, 2), "one task, one superstep");
}

#[test]
fn attempts_are_counted_anew_in_every_run() {
    let runs = Runs::default();
    let mut run = start(under(retrying(3), fails_until(6, &runs)));
    assert_eq!((run.rest(), errors(&run), runs.of("n")), (Rest::Failed, vec![("n", "attempt 3")], 3));
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), &run.state()["log"], runs.of("n")), (Rest::Succeeded, &json!([3]), 6));
}

#[test]
fn without_a_policy_there_is_one_attempt_and_none_is_fewer_than_one() {
    for policy in [NodePolicy::default(), retrying(1), retrying(0)] {
        let runs = Runs::default();
        let run = start(under(policy, fails_until(2, &runs)));
        assert_eq!((run.rest(), errors(&run), runs.of("n")), (Rest::Failed, vec![("n", "attempt 1")], 1));
    }
}

#[test]
fn a_question_is_no_failure_and_answers_and_steps_are_kept_by_all_attempts() {
    let runs = Runs::default();
    let mut run = start(under(
        retrying(3),
        with(&runs, |cx, runs| async move {
            let runs = &runs;
            runs.hit("n");
            let paid = cx.step("pay", |_| async { Ok::<_, std::fmt::Error>(runs.hit("pay")) }).await?;
            if runs.of("n") == 1 {
                return Err(NodeError::failed("before the question"));
            }
            let answer = cx.interrupt("ok?").await?;
            if cx.attempt() < 3 {
                return Err(NodeError::failed("after the answer"));
            }
            Ok(got("n", &json!([paid, answer])))
        }),
    ));
    assert_eq!((run.rest(), open(&run), runs.of("n")), (Rest::Parked, vec!["ok?".to_owned()], 2));
    answer(&mut run, "yes");
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([1, "yes"])));
    assert_eq!((runs.of("n"), runs.of("pay")), (5, 1), "three attempts in the second run");
}

#[test]
fn a_failure_beside_an_open_question_of_the_same_body_is_not_tried_again() {
    let runs = Runs::default();
    let mut run = start(under(
        retrying(5),
        with(&runs, |cx, runs| async move {
            runs.hit("n");
            let answer = cx.interrupt("n?").await.ok();
            if answer.is_none() {
                return Err(NodeError::failed("not without it"));
            }
            Ok(got("n", &json!(answer)))
        }),
    ));
    assert_eq!((run.rest(), open(&run), runs.of("n")), (Rest::Failed, vec!["n?".to_owned()], 1));
    answer(&mut run, "A");
    assert_eq!((run.rest(), runs.of("n")), (Rest::Succeeded, 2));
}

/// Notes what is waited for; a limit ends at once if it says so.
#[derive(Default)]
struct Noted {
    waits: Mutex<Vec<Duration>>,
    limits: Mutex<Vec<Duration>>,
    over: AtomicBool,
}

impl Timers for Noted {
    fn wait(&self, wait: Duration) -> BoxFuture<'static, ()> {
        self.waits.lock().expect("not poisoned").push(wait);
        ready(()).boxed()
    }

    fn limit(&self, limit: Duration) -> BoxFuture<'static, ()> {
        self.limits.lock().expect("not poisoned").push(limit);
        if self.over.load(Ordering::Relaxed) { ready(()).boxed() } else { pending().boxed() }
    }
}

fn start_timed(graph: CompiledGraph, timers: &Arc<Noted>) -> Driver {
    let mut run = thread(graph).with_host(|host| host.timers = timers.clone());
    request(&mut run, RunRequest { input: Some(json!({})), ..RunRequest::default() }).expect("good input");
    run
}

#[test]
fn the_waits_between_attempts_grow_as_the_policy_says() {
    let retry = RetryPolicy {
        max_attempts: 6,
        initial_interval: Duration::from_millis(100),
        backoff: 3.0,
        max_interval: Duration::from_secs(2),
    };
    let (runs, timers) = (Runs::default(), Arc::new(Noted::default()));
    let policy = NodePolicy { retry: Some(retry), ..NodePolicy::default() };
    let run = start_timed(under(policy, fails_until(100, &runs)), &timers);
    assert_eq!((run.rest(), runs.of("n")), (Rest::Failed, 6));
    let waits: Vec<u128> = timers.waits.lock().expect("not poisoned").iter().map(Duration::as_millis).collect();
    assert_eq!(waits, [100, 300, 900, 2000, 2000], "none after the last attempt");
}

/// Says when it is dropped.
struct Dropped(Runs);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.hit("dropped");
    }
}

/// Never ends before its `good`th run.
fn hangs_until(good: u32, runs: &Runs) -> SharedBody {
    with(runs, move |_, runs| async move {
        let _dropped = Dropped(runs.clone());
        if runs.hit("n") < good {
            pending::<()>().await;
        }
        Ok(Writes::none().with("log", &["n"]))
    })
}

#[test]
fn a_body_that_takes_too_long_is_dropped_and_has_failed() {
    let (runs, timers) = (Runs::default(), Arc::new(Noted::default()));
    timers.over.store(true, Ordering::Relaxed);
    let policy = NodePolicy { timeout: Some(Duration::from_secs(5)), ..NodePolicy::default() };
    let mut run = start_timed(under(policy, hangs_until(2, &runs)), &timers);
    assert_eq!((run.rest(), errors(&run)), (Rest::Failed, vec![("n", "timed out after 5s")]));
    assert_eq!((runs.of("n"), runs.of("dropped")), (1, 1));
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), runs.of("n")), (Rest::Succeeded, 2), "one that is done at once is not too late");
    assert_eq!(*timers.limits.lock().expect("not poisoned"), [Duration::from_secs(5); 2]);
}

#[test]
fn each_attempt_has_the_whole_time_and_a_time_out_is_tried_again() {
    let (runs, timers) = (Runs::default(), Arc::new(Noted::default()));
    timers.over.store(true, Ordering::Relaxed);
    let policy = NodePolicy { timeout: Some(Duration::from_secs(5)), ..retrying(4) };
    let run = start_timed(under(policy, hangs_until(4, &runs)), &timers);
    assert_eq!((run.rest(), runs.of("n"), runs.of("dropped")), (Rest::Succeeded, 4, 4));
    assert_eq!(*timers.limits.lock().expect("not poisoned"), [Duration::from_secs(5); 4]);
}

#[test]
fn a_graph_that_takes_too_long_keeps_what_it_had_finished_and_waits_for_a_retry() {
    let (runs, timers) = (Runs::default(), Arc::new(Noted::default()));
    timers.over.store(true, Ordering::Relaxed);
    let inner = named("inner", |g| {
        g.node("p", with(&runs, |_, runs| async move { Ok(got("p", &json!(runs.hit("p")))) }));
        g.node("hangs", hangs_until(2, &runs)).edge(START, "p").edge("p", "hangs");
    });
    let graph = graph(|g| {
        g.subgraph("sub", inner).edge(START, "sub");
        g.policy("sub", NodePolicy { timeout: Some(Duration::from_secs(1)), ..NodePolicy::default() });
    });
    let mut run = start_timed(graph, &timers);
    assert_eq!((run.rest(), errors(&run)), (Rest::Failed, vec![("sub", "timed out after 1s")]));
    assert_eq!((run.visits("sub"), runs.of("p"), runs.of("dropped")), (1, 1, 1));
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), run.visits("sub")), (Rest::Failed, 1), "continue is not retry");
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), runs.of("p"), runs.of("n")), (Rest::Succeeded, 1, 2));
}

#[test]
fn a_time_limit_does_not_count_while_people_think() {
    let (runs, timers) = (Runs::default(), Arc::new(Noted::default()));
    timers.over.store(true, Ordering::Relaxed);
    let policy = NodePolicy { timeout: Some(Duration::from_secs(1)), ..NodePolicy::default() };
    let mut run = start_timed(under(policy, asking("n", &runs)), &timers);
    assert_eq!(run.rest(), Rest::Parked);
    answer(&mut run, 1);
    assert_eq!(run.rest(), Rest::Succeeded);
}

#[test]
fn a_panic_of_a_body_is_a_failure_of_its_node_and_of_no_other() {
    let runs = Runs::default();
    let mut run = start(graph(|g: &mut GraphBuilder| {
        let panics = with(&runs, |_, runs| async move {
            assert!(runs.hit("n") > 1, "the floor is {}", "lava");
            Ok(Writes::none())
        });
        g.node("n", panics).node("ask", asking("ask", &runs)).edge(START, "n").edge(START, "ask");
    }));
    assert_eq!(errors(&run), [("n", "the body panicked: the floor is lava")]);
    assert_eq!(open(&run), ["ask?"]);
    answer(&mut run, 1);
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), runs.of("n"), runs.of("ask")), (Rest::Succeeded, 2, 2));
}

#[test]
fn a_panic_is_tried_again_and_what_was_recorded_before_it_is_kept() {
    let runs = Runs::default();
    let run = start(under(
        retrying(2),
        with(&runs, |cx, runs| async move {
            let runs = &runs;
            let paid = cx.step("pay", |_| async { Ok::<_, std::fmt::Error>(runs.hit("pay")) }).await?;
            assert_eq!(cx.attempt(), 2);
            Ok(Writes::none().with("log", &[paid]))
        }),
    ));
    assert_eq!((run.rest(), &run.state()["log"], runs.of("pay")), (Rest::Succeeded, &json!([1]), 1));
}

#[test]
fn a_graph_that_is_tried_again_goes_on_where_it_failed() {
    let runs = Runs::default();
    let inner = named("inner", |g| {
        g.node("p", with(&runs, |_, runs| async move { Ok(got("p", &json!(runs.hit("p")))) }));
        g.node("bad", fails_until(3, &runs)).edge(START, "p").edge("p", "bad");
    });
    let run = start(graph(|g| {
        g.subgraph("sub", inner).edge(START, "sub").policy("sub", retrying(3));
    }));
    assert_eq!((run.rest(), runs.of("p"), runs.of("n")), (Rest::Succeeded, 1, 3));
    assert_eq!(run.state()["log"], json!([1]), "for its own policy each was a first attempt");
}

#[derive(State)]
struct Try {
    #[state(default)]
    attempts: u32,
}

async fn attempt(cx: &Context, _: &Try) -> NodeResult<TryUpdate> {
    if cx.attempt() < 3 {
        return Err(NodeError::failed("not yet"));
    }
    Ok(Try::update().attempts(cx.attempt()))
}

#[test]
fn a_typed_node_has_a_policy_as_well() {
    let mut flow = Graph::<Try>::new("try", 1);
    let node = flow.node("attempt", attempt);
    flow.start(node).policy(node, retrying(3)).end(node);
    let run = start(flow.compile().expect("sound"));
    assert_eq!((run.rest(), &run.state()["attempts"]), (Rest::Succeeded, &json!(3)));
}
