//! How many supersteps a run may take (rules 93, 94, R11, R30).

use countersign_kernel::driver::{Driver, RunRequest};
use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::limits::Limits;
use countersign_kernel::machine::{Rest, Resume};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use crate::support::*;

/// A node that runs `rounds` times, one superstep each.
fn rounds(name: &str, rounds: i64, runs: &Runs, more: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    named(name, |g| {
        let count = with(runs, |_, runs| async move {
            runs.hit("n");
            Ok(Writes::none().with("sum", &1))
        });
        g.node("n", count).edge(START, "n");
        g.branch("n", move |view| {
            let done = view.values().get("sum").and_then(Value::as_i64).unwrap_or(0);
            Ok(if done < rounds { vec!["n".into()] } else { vec![] })
        });
        more(g);
    })
}

fn limited(graph: CompiledGraph, supersteps_per_run: u32) -> CompiledGraph {
    graph.with_limits(Limits { supersteps_per_run, ..Limits::default() })
}

fn looping(most: u32, runs: &Runs) -> CompiledGraph {
    limited(rounds("g", 7, runs, |_| ()), most)
}

/// The limit that the only open point names.
fn reached(run: &Driver) -> Value {
    let points = run.points();
    assert_eq!((points.len(), points[0].kind), (1, PointKind::Pause));
    assert_eq!(points[0].payload["reason"], "recursion_limit");
    points[0].payload["supersteps"].clone()
}

#[test]
fn a_run_parks_whole_at_the_limit_and_each_continue_gives_as_many_again() {
    let runs = Runs::default();
    let mut run = start(looping(3, &runs));
    for done in [3, 6] {
        assert_eq!((run.rest(), reached(&run), runs.of("n")), (Rest::Parked, json!(3), done));
        assert_eq!((&run.state()["sum"], run.next()), (&json!(done), vec!["n"]), "state and due tasks are kept");
        run = run.reopen(looping(3, &runs));
        resume(&mut run, CONTINUE);
    }
    assert_eq!((run.rest(), runs.of("n")), (Rest::Succeeded, 7));
}

#[test]
fn exactly_as_many_supersteps_as_allowed_is_no_stop() {
    let runs = Runs::default();
    assert_eq!(start(looping(7, &runs)).rest(), Rest::Succeeded);
    assert_eq!(start(looping(6, &runs)).rest(), Rest::Parked);
}

#[test]
fn another_limit_holds_for_its_run_and_for_no_later_one() {
    let runs = Runs::default();
    let mut run = thread(looping(4, &runs));
    let input = RunRequest { input: Some(json!({})), supersteps: Some(2), ..RunRequest::default() };
    request(&mut run, input).expect("good input");
    assert_eq!((reached(&run), runs.of("n")), (json!(2), 2));
    resume(&mut run, Resume { supersteps: Some(1), ..CONTINUE });
    assert_eq!((reached(&run), runs.of("n")), (json!(1), 3));
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("n")), (Rest::Succeeded, 7), "four more, as the graph says");
}

#[test]
fn the_limit_is_met_at_a_stop_as_well_and_one_continue_passes_both() {
    let runs = Runs::default();
    let graph = limited(rounds("g", 3, &runs, |g| _ = g.break_before("n")), 1);
    let mut run = start(graph);
    let mut open = Vec::new();
    while run.rest() == Rest::Parked {
        open.push(run.points().len());
        resume(&mut run, CONTINUE);
    }
    assert_eq!((run.rest(), open), (Rest::Succeeded, vec![1, 2, 2]));
}

#[test]
fn an_answer_begins_a_run_with_all_its_supersteps() {
    let runs = Runs::default();
    let graph = limited(
        graph(|g| {
            for (i, node) in ["a", "b", "c", "d"].into_iter().enumerate() {
                g.node(node, if i % 2 == 0 { counting(node, &runs) } else { asking(node, &runs) });
            }
            g.edge(START, "a").edge("a", "b").edge("b", "c").edge("c", "d");
        }),
        2,
    );
    let mut run = start(graph);
    assert_eq!(open(&run), ["b?"], "one superstep done, the second waits");
    answer(&mut run, 1);
    assert_eq!(reached(&run), json!(2));
    resume(&mut run, CONTINUE);
    assert_eq!(open(&run), ["d?"]);
    answer(&mut run, 1);
    assert_eq!(run.rest(), Rest::Succeeded);
}

#[test]
fn the_limit_is_met_inside_a_graph_too_and_parks_the_thread_with_its_task_due() {
    for by_id in [false, true] {
        let runs = Runs::default();
        let inner = rounds("inner", 5, &runs, |_| ());
        let mut run = start(limited(
            graph(|g| {
                g.subgraph("sub", inner)
                    .node("after", counting("after", &runs))
                    .edge(START, "sub")
                    .edge("sub", "after");
            }),
            3,
        ));
        assert_eq!((reached(&run), runs.of("n"), run.next()), (json!(3), 3, vec!["sub"]));
        assert_eq!(run.points()[0].address.to_string(), "g/sub@0");
        assert_eq!((&run.frames()[0].values["sum"], &run.state()["sum"]), (&json!(3), &json!(0)));
        if by_id {
            let id = run.points()[0].id.clone();
            answer_ids(&mut run, &[(&id, Value::Null)]).expect("open");
        } else {
            resume(&mut run, CONTINUE);
        }
        assert_eq!((run.rest(), runs.of("n"), runs.of("after")), (Rest::Succeeded, 5, 1));
    }
}

#[test]
fn the_limit_changes_no_course_and_an_edit_may() {
    let runs = Runs::default();
    let mut run = start(looping(3, &runs));
    edit(&mut run, json!({"sum": 100}), Some("n")).expect("a node");
    assert_eq!((run.rest(), run.points().len(), run.next().len()), (Rest::Succeeded, 0, 0));
    assert_eq!((&run.state()["sum"], runs.of("n")), (&json!(103), 3));
}

#[test]
fn new_input_has_all_its_supersteps() {
    let runs = Runs::default();
    let mut run = start(looping(4, &runs));
    restart(&mut run, json!({"sum": -1}));
    assert_eq!((run.rest(), runs.of("n")), (Rest::Succeeded, 8), "3 were counted, 4 to go");
}
