//! Pauses from outside, graceful and at once (K9, K12, R15).

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Waking, Poll};

use countersign_kernel::context::Slot;
use countersign_kernel::driver::{Driver, RunRequest};
use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::machine::Rest;
use countersign_kernel::node::SharedBody;
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::ports::StopSignal;
use countersign_kernel::state::Writes;
use futures_util::future::poll_fn;
use futures_util::task::{AtomicWaker, noop_waker};
use serde_json::{Value, json};

use crate::support::*;

/// What bodies wait for until the test opens it.
#[derive(Clone, Default)]
struct Gate(Arc<(AtomicBool, AtomicWaker)>);

impl Gate {
    fn open(&self) {
        self.0.0.store(true, Ordering::Release);
        self.0.1.wake();
    }

    async fn pass(&self) {
        poll_fn(|cx| {
            self.0.1.register(cx.waker());
            if self.0.0.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    Gracefully,
    AtOnce,
}

/// Runs until it waits for the gate, asks for a pause, and runs to the rest; a
/// graceful one opens the gate after it has asked.
fn run_and_pause(run: &mut Driver, request: RunRequest, how: How, gate: &Gate) {
    let signal: StopSignal = run.stop_signal();
    let mut running = pin!(run.run(request));
    let waker = noop_waker();
    let mut waking = Waking::from_waker(&waker);
    assert!(running.as_mut().poll(&mut waking).is_pending(), "a body waits for the gate");
    match how {
        How::Gracefully => signal.graceful(),
        How::AtOnce => signal.now(),
    }
    let mut polled = running.as_mut().poll(&mut waking);
    if how == How::Gracefully {
        assert!(polled.is_pending(), "what runs is let finish");
        gate.open();
        polled = running.as_mut().poll(&mut waking);
    }
    assert_eq!(polled, Poll::Ready(Ok(())));
}

fn input() -> RunRequest {
    RunRequest { input: Some(json!({})), ..RunRequest::default() }
}

fn paused(graph: impl Into<Arc<CompiledGraph>>, how: How, gate: &Gate) -> Driver {
    let mut run = thread(graph);
    run_and_pause(&mut run, input(), how, gate);
    run
}

/// Counts when it starts, waits for the gate, counts when it ends.
fn waiting(name: &'static str, gate: &Gate, runs: &Runs) -> SharedBody {
    with(&(runs.clone(), gate.clone()), move |cx, (runs, gate)| async move {
        runs.hit(name);
        let step = cx.step("once", |_| async { Ok::<_, std::fmt::Error>(runs.hit("step")) }).await?;
        gate.pass().await;
        runs.hit(format!("{name} ended"));
        Ok(got(name, &json!([step, cx.argument()])))
    })
}

/// What the only open point says.
fn pause_of(run: &Driver) -> Value {
    let points = run.points();
    assert_eq!((points.len(), points[0].kind), (1, PointKind::Pause));
    points[0].payload.clone()
}

#[test]
fn gracefully_what_runs_finishes_and_the_thread_stops_at_the_border_after_it() {
    let (runs, gate) = (Runs::default(), Gate::default());
    let build = || {
        graph(|g| {
            g.node("a", waiting("a", &gate, &runs)).node("b", counting("b", &runs)).edge(START, "a").edge("a", "b");
        })
    };
    let mut run = paused(build(), How::Gracefully, &gate);
    assert_eq!(pause_of(&run), json!({"reason": "requested", "after": ["a"]}));
    assert_eq!((run.rest(), run.next(), runs.of("a"), runs.of("b")), (Rest::Parked, vec!["b"], 1, 0));
    assert_eq!(run.state()["got"], json!({"a": [1, null]}), "the superstep is applied");
    run = run.reopen(build());
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("a"), runs.of("b")), (Rest::Succeeded, 1, 1), "the request is forgotten");
}

#[test]
fn gracefully_after_the_last_node_the_thread_has_finished() {
    let (runs, gate) = (Runs::default(), Gate::default());
    let run = paused(single(waiting("n", &gate, &runs)), How::Gracefully, &gate);
    assert_eq!((run.rest(), run.points().len(), runs.of("n ended")), (Rest::Succeeded, 0, 1));
}

#[test]
fn gracefully_beside_a_question_both_are_open_and_an_answer_waits_for_the_release() {
    let (runs, gate) = (Runs::default(), Gate::default());
    let mut run = paused(
        graph(|g| {
            g.node("a", waiting("a", &gate, &runs)).node("ask", asking("ask", &runs));
            g.edge(START, "a").edge(START, "ask");
        }),
        How::Gracefully,
        &gate,
    );
    let kinds: Vec<PointKind> = run.points().iter().map(|point| point.kind).collect();
    assert_eq!(kinds, [PointKind::Pause, PointKind::Interrupt]);
    answer(&mut run, "A");
    assert_eq!((run.rest(), run.points().len(), runs.of("ask")), (Rest::Parked, 1, 1));
    resume(&mut run, CONTINUE);
    assert_eq!(
        (run.rest(), runs.of("ask"), runs.of("a"), &run.state()["got"]["ask"]),
        (Rest::Succeeded, 2, 1, &json!("A"))
    );
}

#[test]
fn at_once_a_body_is_dropped_and_runs_again_with_its_input_and_what_it_recorded() {
    for by_id in [false, true] {
        let (runs, gate) = (Runs::default(), Gate::default());
        let build = || {
            graph(|g| {
                g.node("w", waiting("w", &gate, &runs)).node("quick", counting("quick", &runs)).edge(START, "quick");
                g.branch(START, |_| Ok(vec![send("w", json!("argument"))]));
            })
        };
        let mut run = paused(build(), How::AtOnce, &gate);
        assert_eq!(pause_of(&run), json!({"reason": "requested", "after": []}));
        assert_eq!((run.rest(), run.next(), errors(&run).len()), (Rest::Parked, vec!["w"], 0));
        assert_eq!((runs.of("w"), runs.of("w ended"), &run.live_state()["log"]), (1, 0, &json!(["quick"])));
        run = run.reopen(build());
        gate.open();
        if by_id {
            let id = run.points()[0].id.clone();
            answer_ids(&mut run, &[(&id, Value::Null)]).expect("open");
        } else {
            resume(&mut run, CONTINUE);
        }
        assert_eq!((run.rest(), &run.state()["got"]["w"]), (Rest::Succeeded, &json!([1, "argument"])));
        assert_eq!((runs.of("w"), runs.of("step"), runs.of("quick")), (2, 1, 1));
    }
}

#[test]
fn at_once_in_a_run_that_an_answer_began_the_answer_is_kept() {
    let (runs, gate) = (Runs::default(), Gate::default());
    let body = with(&(runs.clone(), gate.clone()), |cx, (runs, gate)| async move {
        runs.hit("n");
        let answer = cx.interrupt("n?").await?;
        gate.pass().await;
        Ok(got("n", &answer))
    });
    let build = || single(body.clone());
    let mut run = start(build());
    let answers = vec![(run.points()[0].id.clone(), json!("A"))];
    run_and_pause(&mut run, RunRequest { answers, ..RunRequest::default() }, How::AtOnce, &gate);
    assert_eq!(pause_of(&run)["reason"], "requested");
    run = run.reopen(build());
    gate.open();
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), &run.state()["got"]["n"], runs.of("n")), (Rest::Succeeded, &json!("A"), 3));
}

/// `p`, then `a` waits for the gate, then `q`: two graphs deep.
fn nested(gate: &Gate, runs: &Runs) -> CompiledGraph {
    let leaf = named("leaf", |g| {
        let count =
            |node: &'static str| with(runs, move |_, runs| async move { Ok(got(node, &json!(runs.hit(node)))) });
        g.node("p", count("p"))
            .node("a", waiting("a", gate, runs))
            .node("beside", count("beside"))
            .node("q", count("q"));
        g.edge(START, "p").edge("p", "a").edge("p", "beside").edge("a", "q");
    });
    let mid = named("mid", |g| {
        g.subgraph("leaf", leaf).edge(START, "leaf");
    });
    graph(|g| {
        g.subgraph("mid", mid).node("after", counting("after", runs)).edge(START, "mid").edge("mid", "after");
    })
}

#[test]
fn at_once_the_graphs_inside_keep_what_they_had_finished() {
    let (runs, gate) = (Runs::default(), Gate::default());
    let mut run = paused(nested(&gate, &runs), How::AtOnce, &gate);
    assert_eq!((pause_of(&run)["reason"].clone(), run.next()), (json!("requested"), vec!["mid"]));
    let frames: Vec<_> = run.frames().iter().map(|frame| (frame.path.join("/"), frame.next.clone())).collect();
    assert_eq!(frames, [("mid".into(), vec!["leaf".to_owned()]), ("mid/leaf".into(), vec!["a".to_owned()])]);
    run = run.reopen(nested(&gate, &runs));
    gate.open();
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("p"), runs.of("beside"), runs.of("a")), (Rest::Succeeded, 1, 1, 2));
    assert_eq!((runs.of("step"), runs.of("q"), runs.of("after")), (1, 1, 1));
}

#[test]
fn gracefully_a_graph_inside_stops_at_its_own_border() {
    let (runs, gate) = (Runs::default(), Gate::default());
    let mut run = paused(nested(&gate, &runs), How::Gracefully, &gate);
    assert_eq!((run.rest(), runs.of("a ended"), runs.of("q"), run.next()), (Rest::Parked, 1, 0, vec!["mid"]));
    assert!(run.points().iter().all(|point| point.kind == PointKind::Pause));
    let inside = run.points().into_iter().find(|point| point.address.to_string() == "g/mid@0/leaf@0").expect("inside");
    assert_eq!(inside.payload, json!({"reason": "requested", "after": ["a", "beside"]}));
    run = run.reopen(nested(&gate, &runs));
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("a"), runs.of("q"), runs.of("after")), (Rest::Succeeded, 1, 1, 1));
}

#[test]
fn at_once_finished_slots_and_called_graphs_keep_their_results() {
    let (runs, gate) = (Runs::default(), Gate::default());
    let inner = Arc::new(named("inner", |g| {
        g.node("p", with(&runs, |_, runs| async move { Ok(got("p", &json!(runs.hit("p")))) })).edge(START, "p");
    }));
    let body = with(&(runs, gate.clone(), inner), |cx, (runs, gate, inner)| async move {
        let end = cx.graph("inner", &inner, json!({})).await?;
        let slots = ["quick", "slow"].map(|label| Slot::new(label, label)).into();
        let all: Vec<u32> = cx
            .batch("part", slots, |_, label| {
                let (run, gate) = (runs.hit(label), gate.clone());
                async move {
                    if label == "slow" {
                        gate.pass().await;
                    }
                    Ok(run)
                }
            })
            .await?;
        Ok(got("n", &json!([end["got"]["p"], all])))
    });
    let build = || single(body.clone());
    let mut run = paused(build(), How::AtOnce, &gate).reopen(build());
    assert_eq!((run.rest(), run.points().len()), (Rest::Parked, 1));
    gate.open();
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([1, [1, 2]])));
}

#[test]
fn a_thread_that_was_paused_can_be_paused_again() {
    let (runs, gate) = (Runs::default(), Gate::default());
    let mut run = paused(single(waiting("n", &gate, &runs)), How::AtOnce, &gate);
    let first = run.points().remove(0);
    run_and_pause(&mut run, RunRequest { resume: CONTINUE, ..RunRequest::default() }, How::AtOnce, &gate);
    assert_eq!((run.rest(), runs.of("n"), run.points().len()), (Rest::Parked, 2, 1));
    assert_ne!(run.points()[0].id, first.id);
    gate.open();
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("n"), runs.of("n ended")), (Rest::Succeeded, 3, 1));
}

#[test]
fn new_input_and_an_edit_leave_no_pause_behind() {
    let (runs, gate) = (Runs::default(), Gate::default());
    let mut run = paused(single(waiting("n", &gate, &runs)), How::AtOnce, &gate);
    edit(&mut run, json!({"got": {"n": "by hand"}}), Some("n")).expect("a node");
    assert_eq!((run.rest(), run.points().len()), (Rest::Succeeded, 0));

    let (runs, gate) = (Runs::default(), Gate::default());
    let mut run = paused(single(waiting("n", &gate, &runs)), How::AtOnce, &gate);
    gate.open();
    restart(&mut run, json!({}));
    assert_eq!(
        (run.rest(), runs.of("n"), runs.of("step")),
        (Rest::Succeeded, 2, 2),
        "another task, with steps of its own"
    );
    let mut finished = run;
    finished.stop_signal().now();
    resume(&mut finished, Default::default());
    assert_eq!((finished.rest(), finished.points().len()), (Rest::Succeeded, 0), "nothing is left to pause");
}

#[test]
fn a_thread_waits_for_nothing_of_this_when_nobody_asks() {
    let (runs, gate) = (Runs::default(), Gate::default());
    gate.open();
    let run = start(single(with(&gate, |_, gate: Gate| async move {
        gate.pass().await;
        Ok(Writes::none())
    })));
    assert_eq!((run.rest(), runs.all().len()), (Rest::Succeeded, 0));
}
