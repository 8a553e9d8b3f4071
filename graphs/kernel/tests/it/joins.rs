//! Joins across questions, failures and runs, and nodes that wait for all the
//! others (rules 8 to 11, 14).

use countersign_kernel::graph::{CompiledGraph, END_NAME, GraphBuilder, START};
use countersign_kernel::machine::Rest;
use countersign_kernel::node::{NodeError, NodePolicy};
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use crate::support::*;

/// `a` and `b` from the start, `b` asks; both join in `z`.
fn joined(runs: &Runs, more: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    graph(|g| {
        g.node("a", counting("a", runs)).node("b", asking("b", runs)).node("b2", counting("b2", runs));
        g.node("z", counting("z", runs));
        g.edge(START, "a").edge(START, "b").edge("b", "b2").join(["a", "b2"], "z");
        more(g);
    })
}

#[test]
fn arrivals_survive_questions_failures_and_restarts() {
    let runs = Runs::default();
    let build = || {
        joined(&runs, |g| {
            let fails_once = with(&runs, |_, runs| async move {
                if runs.hit("c") == 1 { Err(NodeError::failed("once")) } else { Ok(Writes::none()) }
            });
            g.node("c", fails_once).edge("b", "c").join(["a", "c"], "y").node("y", counting("y", &runs));
        })
    };
    let mut run = start(build());
    run = run.reopen(build());
    answer(&mut run, 1);
    assert_eq!((run.rest(), runs.of("z"), runs.of("y")), (Rest::Failed, 0, 0));
    run = run.reopen(build());
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), runs.of("a"), runs.of("z"), runs.of("y")), (Rest::Succeeded, 1, 1, 1));
}

#[test]
fn a_full_join_counts_as_due_until_its_target_has_run() {
    let runs = Runs::default();
    let mut run = start(joined(&runs, |g| _ = g.break_before("z")));
    answer(&mut run, 1);
    assert_eq!((run.rest(), run.next()), (Rest::Parked, vec!["z"]));
    // As another node: what the join started stays due beside what follows `b`.
    edit(&mut run, json!({}), Some("b")).expect("a node");
    assert_eq!(run.next(), ["b2", "z"]);
    resume(&mut run, CONTINUE);
    assert_eq!((runs.of("z"), runs.of("b2")), (1, 2));
    // `b2` arrived once more, `a` did not: the join is half full again.
    assert_eq!((run.rest(), run.next().len()), (Rest::Succeeded, 0));
    edit(&mut run, json!({}), Some("a")).expect("a node");
    assert_eq!(run.next(), ["z"]);
}

#[test]
fn an_edit_as_the_target_of_a_join_takes_its_place() {
    let runs = Runs::default();
    let mut run = start(joined(&runs, |g| {
        g.break_before("z").node("after", counting("after", &runs)).edge("z", "after");
    }));
    answer(&mut run, 1);
    edit(&mut run, json!({"log": ["by hand"]}), Some("z")).expect("a node");
    assert_eq!(run.next(), ["after"]);
    resume(&mut run, CONTINUE);
    assert_eq!(
        (run.rest(), runs.of("z"), &run.state()["log"]),
        (Rest::Succeeded, 0, &json!(["a", "b2", "by hand", "after"]))
    );
}

#[test]
fn new_input_and_an_end_by_hand_drop_the_waiting_target_for_good() {
    for by_hand in [false, true] {
        let runs = Runs::default();
        let mut run = start(joined(&runs, |g| _ = g.break_before("z")));
        answer(&mut run, 1);
        if by_hand {
            edit(&mut run, Value::Null, Some(END_NAME)).expect("END");
            assert_eq!(run.rest(), Rest::Succeeded);
        }
        restart(&mut run, json!({}));
        assert_eq!((run.next(), runs.of("z")), (vec!["b"], 0));
        answer(&mut run, 2);
        assert_eq!(run.next(), ["z"], "both sources ran again");
        resume(&mut run, CONTINUE);
        assert_eq!((run.rest(), runs.of("z")), (Rest::Succeeded, 1));
    }
}

#[test]
fn a_half_full_join_stays_so_when_a_run_ends_and_counts_in_the_next() {
    let runs = Runs::default();
    let build = || {
        graph(|g| {
            for node in ["a", "b", "z"] {
                g.node(node, counting(node, &runs));
            }
            g.join(["a", "b"], "z");
            g.branch(START, |view| {
                let first = view.values().get("last").is_none();
                Ok(vec![if first { "a".into() } else { "b".into() }])
            });
        })
    };
    let mut run = start(build());
    assert_eq!((run.rest(), runs.of("a"), runs.of("z")), (Rest::Succeeded, 1, 0));
    run = run.reopen(build());
    restart(&mut run, json!({"last": 2}));
    assert_eq!((run.rest(), runs.of("a"), runs.of("b"), runs.of("z")), (Rest::Succeeded, 1, 1, 1));
}

#[test]
fn two_joins_to_one_target_and_one_to_the_end_do_not_meet() {
    let runs = Runs::default();
    let run = start(graph(|g| {
        for node in ["a", "b", "c", "z"] {
            g.node(node, counting(node, &runs));
        }
        g.edge(START, "a").edge(START, "b").edge("a", "c");
        g.join(["a", "b"], "z").join(["a", "c"], "z").join(["a", "b"], END_NAME);
    }));
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!(["a", "b", "c", "z", "z"])));
}

#[test]
fn a_join_of_one_source_is_an_edge_and_a_sent_source_counts_as_its_node() {
    let runs = Runs::default();
    let run = start(graph(|g| {
        for node in ["a", "w", "y", "z"] {
            g.node(node, counting(node, &runs));
        }
        g.edge(START, "a").join(["a"], "y").join(["a", "w"], "z");
        g.branch(START, |_| Ok(vec![send("w", json!(1)), send("w", json!(2))]));
    }));
    assert_eq!((runs.of("y"), runs.of("z"), runs.of("w")), (1, 1, 2));
    assert_eq!(run.state()["log"], json!(["a", "w", "w", "y", "z"]));
}

fn deferred(g: &mut GraphBuilder, node: &str) {
    g.policy(node, NodePolicy { deferred: true, ..NodePolicy::default() });
}

/// `a` to `end`, and `b` over `b2` to `end`, which waits for both branches.
fn gathering(runs: &Runs, more: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    graph(|g| {
        g.node("a", counting("a", runs)).node("b", asking("b", runs)).node("b2", counting("b2", runs));
        g.node("end", counting("end", runs));
        g.edge(START, "a").edge(START, "b").edge("b", "b2").edge("a", "end").edge("b2", "end");
        deferred(g, "end");
        more(g);
    })
}

#[test]
fn a_deferred_node_runs_once_when_nothing_else_is_due() {
    let runs = Runs::default();
    let mut run = start(gathering(&runs, |_| ()));
    answer(&mut run, 1);
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!(["a", "b2", "end"])));
    assert_eq!((runs.of("end"), run.checkpoints()), (1, 4));
}

#[test]
fn a_deferred_node_waits_through_restarts_and_questions() {
    let runs = Runs::default();
    let build = || {
        gathering(&runs, |g| {
            g.node("late", asking("late", &runs)).edge("b2", "late");
        })
    };
    let mut run = start(build());
    for expected in [["b?"], ["late?"]] {
        run = run.reopen(build());
        assert_eq!((open(&run), runs.of("end")), (vec![expected[0].to_owned()], 0));
        answer(&mut run, 1);
    }
    assert_eq!((run.rest(), runs.of("end")), (Rest::Succeeded, 1));
}

#[test]
fn several_deferred_nodes_run_together_and_what_they_start_runs_after() {
    let runs = Runs::default();
    let mut run = start(gathering(&runs, |g| {
        g.node("end2", counting("end2", &runs)).edge("a", "end2").edge("end", "more");
        g.node("more", counting("more", &runs)).node("last", counting("last", &runs)).edge("end2", "last");
        deferred(g, "end2");
        deferred(g, "last");
    }));
    answer(&mut run, 1);
    assert_eq!(run.state()["log"], json!(["a", "b2", "end", "end2", "more", "last"]));
    assert_eq!(run.rest(), Rest::Succeeded);
}

#[test]
fn a_deferred_join_waits_for_its_sources_and_for_all_others() {
    let runs = Runs::default();
    let run = start(graph(|g| {
        for node in ["a", "b", "c", "d", "z"] {
            g.node(node, counting(node, &runs));
        }
        g.edge(START, "a").edge(START, "b").join(["a", "b"], "z").edge("a", "c").edge("c", "d");
        deferred(g, "z");
    }));
    assert_eq!(run.state()["log"], json!(["a", "b", "c", "d", "z"]));
    assert_eq!(run.rest(), Rest::Succeeded);
}

#[test]
fn new_input_forgets_a_deferred_node_that_waited() {
    let runs = Runs::default();
    let mut run = start(gathering(&runs, |g| {
        g.branch(START, |view| {
            let second = view.values().get("last").is_some();
            Ok(if second { vec!["b2".into()] } else { vec![] })
        });
    }));
    restart(&mut run, json!({"last": 2, "log": ["again"]}));
    answer(&mut run, 1);
    assert_eq!((run.rest(), runs.of("end")), (Rest::Succeeded, 1));

    let mut run = start(gathering(&runs, |_| ()));
    edit(&mut run, Value::Null, Some(END_NAME)).expect("END");
    assert_eq!((run.rest(), run.next().len()), (Rest::Succeeded, 0));
}
