//! Static breakpoints and pauses (K12, R2, R11).

use countersign_kernel::driver::{Driver, Refused};
use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::machine::{Next, Rest};
use countersign_kernel::node::NodeError;
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::question::Answered;
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use crate::ids::{Fixed, attempt, position};
use crate::support::*;

/// `a` to `b` to `c`.
fn chain(runs: &Runs, stops: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    graph(|g| {
        for node in ["a", "b", "c"] {
            g.node(node, counting(node, runs));
        }
        g.edge(START, "a").edge("a", "b").edge("b", "c");
        stops(g);
    })
}

/// The nodes of the only open point, which is a breakpoint.
fn stop(run: &Driver) -> (Value, Value) {
    let points = run.points();
    assert_eq!((points.len(), points[0].kind), (1, PointKind::Break));
    (points[0].payload["before"].clone(), points[0].payload["after"].clone())
}

#[test]
fn a_stop_before_a_node_is_raised_once() {
    let runs = Runs::default();
    let mut run = start(chain(&runs, |g| _ = g.break_before("b")));
    assert_eq!((stop(&run), run.rest()), ((json!(["b"]), json!([])), Rest::Parked));
    assert_eq!((runs.of("a"), runs.of("b")), (1, 0));
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.all().into_values().collect::<Vec<_>>()), (Rest::Succeeded, vec![1, 1, 1]));
}

#[test]
fn a_stop_after_a_node_comes_when_its_superstep_is_complete() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        g.node("a", asking("a", &runs)).node("b", counting("b", &runs));
        g.edge(START, "a").edge("a", "b").break_after("a");
    }));
    assert_eq!(open(&run), ["a?"]);
    answer(&mut run, 1);
    assert_eq!(stop(&run), (json!([]), json!(["a"])));
    assert_eq!(run.state()["got"], json!({"a": 1}), "the superstep is applied");
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("b")), (Rest::Succeeded, 1));
}

#[test]
fn a_star_stops_everywhere_but_after_the_last_node() {
    let runs = Runs::default();
    let mut run = start(chain(&runs, |g| _ = g.break_before("*").break_after("*")));
    let mut stops = Vec::new();
    while run.rest() == Rest::Parked {
        stops.push(stop(&run));
        resume(&mut run, CONTINUE);
    }
    assert_eq!(stops, [(json!(["a"]), json!([])), (json!(["b"]), json!(["a"])), (json!(["c"]), json!(["b"]))]);
    assert_eq!(run.rest(), Rest::Succeeded);
}

#[test]
fn parallel_nodes_make_one_stop() {
    let runs = Runs::default();
    let run = start(graph(|g| {
        for node in ["a", "b", "c"] {
            g.node(node, counting(node, &runs)).edge(START, node);
        }
        g.break_before("a").break_before("c");
    }));
    assert_eq!(stop(&run), (json!(["a", "c"]), json!([])));
    assert!(runs.all().is_empty());
}

#[test]
fn a_stop_in_a_loop_is_raised_at_each_round_with_a_new_id() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        g.node("a", with(&runs, |_, runs| async move { Ok(Writes::none().with("last", &runs.hit("a"))) }));
        g.edge(START, "a").break_before("a");
        g.branch("a", |view| Ok(if view.values().get("last") == Some(&json!(3)) { vec![] } else { vec!["a".into()] }));
    }));
    let mut ids = std::collections::BTreeSet::new();
    while run.rest() == Rest::Parked {
        ids.insert(run.points()[0].id.clone());
        resume(&mut run, CONTINUE);
    }
    assert_eq!((run.rest(), runs.of("a"), ids.len()), (Rest::Succeeded, 3, 3));
}

#[test]
fn a_stop_is_released_by_its_id_and_by_resume_all_but_by_no_plain_answer() {
    let runs = Runs::default();
    let mut by_id = start(chain(&runs, |g| _ = g.break_before("b")));
    let id = by_id.points()[0].id.clone();
    assert_eq!(now(by_id.answer(json!("go on"))), Err(Refused::NotOne(0)));
    assert_eq!(stop(&by_id), (json!(["b"]), json!([])));
    answer_ids(&mut by_id, &[(&id, Value::Null)]).expect("open");
    assert_eq!(by_id.rest(), Rest::Succeeded);
    assert_eq!(answer_ids(&mut by_id, &[(&id, Value::Null)]), Err(Refused::NotOpen(id)));

    let mut by_all = start(chain(&runs, |g| _ = g.break_before("b")));
    resume(&mut by_all, RESUME_ALL);
    assert_eq!(by_all.rest(), Rest::Succeeded);
}

#[test]
fn a_failure_after_a_stop_does_not_raise_it_again() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        let fails_once = with(&runs, |_, runs| async move {
            if runs.hit("a") == 1 { Err(NodeError::failed("once")) } else { Ok(Writes::none()) }
        });
        g.node("a", fails_once).edge(START, "a").break_before("a");
    }));
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), run.points().len()), (Rest::Failed, 0));
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("a")), (Rest::Failed, 1), "continue is not retry");
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), runs.of("a")), (Rest::Succeeded, 2));
}

#[test]
fn continue_answers_no_question() {
    let runs = Runs::default();
    let mut run = start(single(asking("n", &runs)));
    let before = run.points();
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), run.points(), runs.of("n")), (Rest::Parked, before, 1));
}

#[test]
fn an_answer_given_during_a_pause_waits_for_the_release() {
    let runs = Runs::default();
    let graph = single(asking("n", &runs));
    let mut position = position(&graph, [0; 16]);
    attempt(&graph, &mut position);
    position.pause(Fixed::NOW);
    let points = position.points();
    let kinds: Vec<PointKind> = points.iter().map(|point| point.kind).collect();
    assert_eq!(kinds, [PointKind::Pause, PointKind::Interrupt]);
    let answered = Answered { value: Some(json!("yes")), by: Vec::new(), at: Fixed::NOW };
    position.answer(&points[1].id, answered).expect("open");
    assert_eq!((position.next(), position.points().len()), (Next::Rest(Rest::Parked), 1));
    position.resume(CONTINUE);
    assert_eq!(position.next(), Next::Run(vec![0]));
    attempt(&graph, &mut position);
    assert_eq!((position.next(), runs.of("n")), (Next::Settle, 2));
}

#[test]
fn a_finished_thread_has_nothing_to_pause() {
    let graph = graph(|g| {
        g.node("n", counting("n", &Runs::default()));
        g.branch(START, |_| Ok(vec![]));
    });
    let mut position = position(&graph, [0; 16]);
    position.pause(Fixed::NOW);
    assert_eq!((position.next(), position.points().len()), (Next::Rest(Rest::Succeeded), 0));
}
