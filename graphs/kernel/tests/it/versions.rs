//! Threads that wait under one version of their flow and go on under another.

use countersign_kernel::driver::Driver;
use countersign_kernel::graph::{CompiledGraph, GraphBuilder, GraphWarning, Migration, START};
use countersign_kernel::machine::{Misfit, Rest};
use countersign_kernel::node::{NodePolicy, Outcome};
use countersign_kernel::state::{Reducer, Writes};
use serde_json::{Value, json};

mod state;

use crate::support::*;

/// Version `version` of `g`, with the keys of [`graph`].
fn flow(version: u32, build: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    let mut g = GraphBuilder::new("g", version);
    g.key("got", Reducer::Merge).key("log", Reducer::Append).key("sum", Reducer::Sum).key("last", Reducer::Last);
    build(&mut g);
    g.compile().expect("a sound graph")
}

/// One node that asks `ask?`, under this name.
fn asks(version: u32, node: &str, runs: &Runs, changes: impl FnOnce(&mut Migration)) -> CompiledGraph {
    flow(version, |g| {
        g.node(node, asking("ask", runs)).edge(START, node).migrate(1, changes);
    })
}

fn writing(node: &'static str, writes: &Writes) -> countersign_kernel::node::SharedBody {
    with(&(writes.clone(), node), |_, (writes, node)| async move { Ok(writes.with("log", &[node])) })
}

fn said(misfits: &[Misfit]) -> String {
    misfits.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[track_caller]
fn refused(run: &mut Driver, graph: CompiledGraph) -> String {
    let before = (run.points(), run.state(), run.rest());
    let reasons = said(&run.upgrade(graph).expect_err("it does not fit"));
    assert_eq!((run.points(), run.state(), run.rest()), before, "it is as it was");
    reasons
}

#[track_caller]
fn upgraded(run: &mut Driver, graph: CompiledGraph) {
    if let Err(misfits) = run.upgrade(graph) {
        panic!("{}", said(&misfits));
    }
}

#[test]
fn a_question_in_a_renamed_node_waits_on_under_its_id() {
    let runs = Runs::default();
    let mut run = start(asks(1, "old", &runs, |_| ()));
    let points = run.points();
    let reason = refused(&mut run, asks(2, "new", &runs, |_| ()));
    assert!(reason.contains("version 2 of graph `g` has no node `old`, which is due"), "{reason}");

    upgraded(&mut run, asks(3, "new", &runs, |m| _ = m.rename_node("old", "new")));
    assert_eq!((run.points(), run.next()), (points, vec!["new"]));
    answer(&mut run, "yes");
    assert_eq!((run.rest(), &run.state()["got"], runs.of("ask")), (Rest::Succeeded, &json!({"ask": "yes"}), 2));
}

#[test]
fn nodes_that_come_and_go_elsewhere_change_nothing_for_what_waits() {
    let runs = Runs::default();
    let mut run = start(flow(1, |g| {
        g.node("a", counting("a", &runs)).node("ask", asking("ask", &runs)).node("z", counting("z", &runs));
        g.edge(START, "a").edge("a", "ask").edge("ask", "z");
    }));
    let points = run.points();
    upgraded(
        &mut run,
        flow(2, |g| {
            g.node("before", counting("before", &runs)).node("ask", asking("ask", &runs));
            g.node("after", counting("after", &runs));
            g.edge(START, "before").edge("before", "ask").edge("ask", "after");
        }),
    );
    assert_eq!(run.points(), points);
    answer(&mut run, 1);
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!(["a", "after"])));
}

#[test]
fn a_version_may_fall_behind_but_nothing_newer_is_taken_over() {
    let runs = Runs::default();
    let mut run = start(asks(3, "n", &runs, |_| ()));
    let reason = refused(&mut run, asks(2, "n", &runs, |_| ()));
    assert_eq!(reason, "the thread is on version 3 of graph `g`, and this build has version 2");
    // Versions without a migration changed nothing that needs one.
    upgraded(&mut run, asks(9, "n", &runs, |m| _ = m.rename_node("n", "never")));
    answer(&mut run, 1);
    assert_eq!(run.rest(), Rest::Succeeded);
}

#[test]
fn migrations_follow_each_other_and_begin_where_the_thread_stands() {
    let runs = Runs::default();
    let build = |version: u32, node: &'static str| {
        flow(version, |g| {
            g.node(node, asking("ask", &runs)).edge(START, node);
            for (from, old, new) in [(1, "a", "b"), (2, "b", "c"), (3, "c", "a")] {
                g.migrate(from, |m| {
                    m.rename_node(old, new);
                    m.change_key("last", |value| Ok(json!(value.as_i64().unwrap_or(0) * 2)));
                });
            }
        })
    };
    let mut run = start_with(build(1, "a"), json!({"last": 1}));
    upgraded(&mut run, build(3, "c"));
    assert_eq!((run.next(), &run.state()["last"]), (vec!["c"], &json!(4)));
    upgraded(&mut run, build(4, "a"));
    assert_eq!((run.next(), &run.state()["last"]), (vec!["a"], &json!(8)));
    answer(&mut run, 1);
    assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!(8)));
}

/// `a` and `b`, which asks, join in `z`; named anew.
fn joined(version: u32, [a, b, z]: [&'static str; 3], runs: &Runs, join: bool) -> CompiledGraph {
    flow(version, |g| {
        g.node(a, counting("a", runs)).node("mid", counting("mid", runs));
        g.node(b, asking("b", runs)).node(z, counting("z", runs));
        g.edge(START, a).edge(START, "mid").edge("mid", b);
        if join {
            g.join([a, b], z);
        }
        g.migrate(1, |m| {
            m.rename_node("a", "y").rename_node("b", "x").rename_node("z", "w");
        });
    })
}

#[test]
fn a_join_that_is_half_full_stays_so_under_other_names() {
    let runs = Runs::default();
    let mut run = start(joined(1, ["a", "b", "z"], &runs, true));
    assert_eq!(run.next(), ["b"]);
    let reason = refused(&mut run, joined(2, ["y", "x", "w"], &runs, false));
    assert!(reason.contains("has no join x+y>w"), "{reason}");
    upgraded(&mut run, joined(2, ["y", "x", "w"], &runs, true));
    answer(&mut run, 1);
    assert_eq!((run.rest(), runs.of("a"), runs.of("z")), (Rest::Succeeded, 1, 1));
}

#[test]
fn a_node_that_waits_for_the_others_is_renamed_as_well_and_missed() {
    let runs = Runs::default();
    let build = |version, late: &'static str, changes: fn(&mut Migration)| {
        flow(version, |g| {
            g.node("ask", asking("ask", &runs)).node(late, counting("late", &runs));
            g.policy(late, NodePolicy { deferred: true, ..NodePolicy::default() });
            g.edge(START, "ask").edge(START, late).migrate(1, changes);
        })
    };
    let mut run = start(build(1, "late", |_| ()));
    let reason = refused(&mut run, build(2, "later", |_| ()));
    assert!(reason.contains("no node `late`"), "{reason}");
    upgraded(&mut run, build(2, "later", |m| _ = m.rename_node("late", "later")));
    answer(&mut run, 1);
    assert_eq!((run.rest(), runs.of("late")), (Rest::Succeeded, 1));
}

#[test]
fn sent_tasks_keep_their_keys_arguments_and_results() {
    let runs = Runs::default();
    let build = |version, node: &'static str| {
        flow(version, |g| {
            let body = with(&runs, |cx, runs| async move {
                let n = cx.argument().and_then(Value::as_u64).unwrap_or(0);
                runs.hit(n.to_string());
                let answer = if n == 0 { json!("free") } else { cx.interrupt(format!("{n}?")).await? };
                Ok(Writes::none().with("log", &[json!([n, answer])]))
            });
            g.node(node, body).branch(START, move |_| Ok((0..3).map(|n| send(node, json!(n))).collect()));
            g.migrate(1, |m| _ = m.rename_node("w", "worker"));
        })
    };
    let mut run = start(build(1, "w"));
    let points = run.points();
    upgraded(&mut run, build(2, "worker"));
    assert_eq!(run.points(), points);
    answer_ids(&mut run, &[(&points[1].id, json!("B"))]).expect("open");
    answer(&mut run, "A");
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!([[0, "free"], [1, "A"], [2, "B"]])));
    assert_eq!((runs.of("0"), runs.of("1"), runs.of("2")), (1, 2, 2));
}

#[test]
fn tasks_that_an_amendment_adds_have_no_name_of_a_task_that_was_renamed() {
    let build = |version, [a, b]: [&'static str; 2]| {
        flow(version, |g| {
            g.node(a, asking("a", &Runs::default())).node(b, asking("b", &Runs::default())).edge(START, a);
            g.branch(START, move |_| Ok(vec![send(a, json!(1))]));
            g.migrate(1, |m| _ = m.rename_node("a", "x").rename_node("b", "a").rename_node("x", "b"));
        })
    };
    let mut run = start(build(1, ["a", "b"]));
    upgraded(&mut run, build(2, ["b", "a"]));
    let refused = amend(&mut run, json!({}), vec!["a".into()], CONTINUE).expect_err("its key is taken");
    assert!(refused.to_string().contains("planned as `a`, before a migration"), "{refused}");
    amend(&mut run, json!({}), vec![send("a", json!(2))], CONTINUE).expect("a place of its own");
    let keys: Vec<_> = run.position().into_iter().flat_map(|position| &position.tasks).collect();
    let keys: Vec<_> = keys.iter().map(|task| (task.plan.key.as_str(), task.plan.node.as_str())).collect();
    assert_eq!(keys, [("a", "b"), ("a#0", "b"), ("a#1", "a")]);
    assert_eq!(addresses(&run), ["g/a@0", "g/a@0/a[0]", "g/a@0/a[1]"]);
}

/// `done` finishes and `ask` asks beside it; `done` leads on by a condition.
fn beside(version: u32, writes: &Writes, next: &'static str, more: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    flow(version, |g| {
        g.node("done", writing("done", writes)).node("ask", asking("ask", &Runs::default()));
        g.node(next, writing("next", &Writes::none()));
        g.edge(START, "done").edge(START, "ask").branch("done", move |_| Ok(vec![next.into()]));
        more(g);
    })
}

#[test]
fn what_finished_tasks_have_written_is_migrated_with_the_state() {
    let writes = Writes::none().with("last", &20).with("sum", &3).with("got", &json!({"gone": 1}));
    let mut run = start_with(beside(1, &writes, "next", |_| ()), json!({"sum": 4}));
    upgraded(
        &mut run,
        beside(2, &Writes::none(), "then", |g| {
            g.key("amount", Reducer::Last).migrate(1, |m| {
                m.rename_node("next", "then").rename_key("last", "amount").remove_key("got");
                m.change_key("amount", |value| Ok(json!(value.to_string())));
                m.change_key("sum", |value| value.as_i64().map(|n| json!(n * 100)).ok_or("no number".into()));
            });
        }),
    );
    assert_eq!(run.live_state()["amount"], "20");
    answer(&mut run, "yes");
    let state = run.state();
    assert_eq!((run.rest(), &state["amount"], &state["sum"]), (Rest::Succeeded, &json!("20"), &json!(700)));
    assert_eq!((&state["got"], &state["log"]), (&json!({"ask": "yes"}), &json!(["done", "next"])));
    assert!(!state.contains_key("last"));
}

#[test]
fn what_finished_tasks_have_written_must_fit_or_the_thread_waits() {
    let mut run = start(beside(1, &Writes::none().with("last", &"text").with("extra", &1), "next", |g| {
        g.key("extra", Reducer::Last);
    }));
    let without_extra = beside(2, &Writes::none(), "next", |_| ());
    let reason = refused(&mut run, without_extra);
    assert!(reason.contains("`done`") && reason.contains("`extra`"), "{reason}");
    let without_next = beside(2, &Writes::none(), "other", |g| {
        g.key("extra", Reducer::Last);
    });
    let reason = refused(&mut run, without_next);
    assert!(reason.contains("no node `next`"), "{reason}");
    let summed = beside(2, &Writes::none(), "next", |g| {
        g.key("extra", Reducer::Append);
    });
    let reason = refused(&mut run, summed);
    assert!(reason.contains("key `extra` takes a list to append, not 1"), "{reason}");
    let migrated = beside(2, &Writes::none(), "next", |g| {
        g.key("extra", Reducer::Append).migrate(1, |m| {
            m.change_key("extra", |value| Ok(json!([value])));
        });
    });
    upgraded(&mut run, migrated);
    answer(&mut run, 1);
    assert_eq!((run.rest(), &run.state()["extra"]), (Rest::Succeeded, &json!([1])));
}

/// `sub` runs `inner`, which asks in a node of this name.
fn around_inner(
    versions: (u32, u32),
    sub: &'static str,
    node: &'static str,
    changes: fn(&mut Migration),
) -> CompiledGraph {
    let mut inner = GraphBuilder::new("inner", versions.1);
    inner.key("own", Reducer::Last).key("got", Reducer::Merge).node(node, asking("ask", &Runs::default()));
    inner.edge(START, node).migrate(1, changes);
    let inner = inner.compile().expect("sound");
    flow(versions.0, |g| {
        g.subgraph(sub, inner).edge(START, sub).migrate(1, |m| _ = m.rename_node("sub", "part"));
    })
}

#[test]
fn a_graph_inside_goes_by_its_own_version() {
    let mut run = start(around_inner((1, 1), "sub", "ask", |_| ()));
    let points = run.points();
    let reason = refused(&mut run, around_inner((1, 2), "sub", "question", |_| ()));
    assert!(reason.contains("version 2 of graph `inner` has no node `ask`"), "{reason}");
    upgraded(&mut run, around_inner((2, 2), "part", "question", |m| _ = m.rename_node("ask", "question")));
    assert_eq!((run.points(), run.next()), (points, vec!["part"]));
    assert_eq!((&run.frames()[0].next, &run.frames()[0].path), (&vec!["question".to_owned()], &vec!["sub".to_owned()]));
    let reason = refused(&mut run, around_inner((2, 1), "part", "question", |_| ()));
    assert!(reason.contains("version 2 of graph `inner`, and this build has version 1"), "{reason}");
    answer(&mut run, "yes");
    assert_eq!((run.rest(), &run.state()["got"]), (Rest::Succeeded, &json!({"ask": "yes"})));
}

#[test]
fn a_node_that_runs_its_graph_no_more_is_no_place_for_what_waits_there() {
    let mut run = start(around_inner((1, 1), "sub", "ask", |_| ()));
    let plain = flow(2, |g| {
        g.node("sub", counting("sub", &Runs::default())).edge(START, "sub");
    });
    let reason = refused(&mut run, plain);
    assert!(reason.contains("does not run the graph any more that waits in node `sub`"), "{reason}");
}

#[test]
fn what_was_handed_over_must_fit_the_graph_around() {
    let build = |version, key: Option<&str>| {
        let inner = named("inner", |g| {
            g.node(
                "hand",
                leading(&(), |_, ()| async move { Ok(Outcome::from(Writes::none().with("extra", &1)).to_parent()) }),
            );
            g.node("ask", asking("ask", &Runs::default())).edge(START, "hand").edge(START, "ask");
        });
        flow(version, |g| {
            g.subgraph("sub", inner).edge(START, "sub");
            key.map(|key| g.key(key, Reducer::Last));
        })
    };
    let mut run = start(build(1, Some("extra")));
    let reason = refused(&mut run, build(2, None));
    assert!(reason.contains("`hand`") && reason.contains("`g` around it has no key `extra`"), "{reason}");
    upgraded(&mut run, build(2, Some("extra")));
    answer(&mut run, 1);
    assert_eq!((run.rest(), &run.state()["extra"]), (Rest::Succeeded, &json!(1)));
}

#[test]
fn history_shows_what_was_and_a_replay_of_it_is_migrated() {
    let runs = Runs::default();
    let build = |version, key: &'static str, node: &'static str| {
        let mut g = GraphBuilder::new("g", version);
        g.key(key, Reducer::Append).key("got", Reducer::Merge);
        let body = with(&runs, move |_, _| async move { Ok(Writes::none().with(key, &[version])) });
        g.node("first", body).node(node, asking("ask", &runs)).edge(START, "first").edge("first", node);
        g.migrate(1, |m| {
            m.rename_key("log", "steps").rename_node("ask", "question");
            m.change_key("steps", |list| {
                let list = list.as_array().cloned().unwrap_or_default();
                Ok(list.into_iter().map(|n| json!(n.as_i64().unwrap_or(0) * 10)).collect())
            });
        });
        g.compile().expect("sound")
    };
    let mut run = start_with(build(1, "log", "ask"), json!({"log": [7]}));
    upgraded(&mut run, build(2, "steps", "question"));
    answer(&mut run, "yes");
    let state = run.state();
    assert_eq!((run.rest(), &state["steps"], state.contains_key("log")), (Rest::Succeeded, &json!([70, 10]), false));

    let history = run.history();
    assert_eq!(history[0].values, run.state(), "also as the archive puts it together");
    assert_eq!((&history[1].values["log"], &history[1].next), (&json!([7, 1]), &vec!["ask".to_owned()]));
    assert_eq!((&history[2].values["log"], &history[2].next), (&json!([7]), &vec!["first".to_owned()]));

    replay(&mut run, &history[2].checkpoint.id).expect("something to run");
    assert_eq!((run.state()["steps"].clone(), run.next()), (json!([70, 2]), vec!["question"]));
    answer(&mut run, "again");
    assert_eq!((run.rest(), run.history()[0].values.clone()), (Rest::Succeeded, run.state()));
}

#[test]
fn an_edit_that_names_no_node_does_not_start_the_flow_anew() {
    let runs = Runs::default();
    let build = |version, first: &'static str| {
        flow(version, |g| {
            g.node(first, counting("first", &runs)).node("ask", asking("ask", &runs));
            g.edge(START, first).edge(first, "ask");
        })
    };
    let mut run = start(build(1, "first"));
    upgraded(&mut run, build(2, "other"));
    let refused = edit(&mut run, json!({"last": 1}), None);
    assert_eq!(unknown_node(refused).0, "first");
    edit(&mut run, json!({"last": 1}), Some("other")).expect("a node");
    assert_eq!((run.next(), runs.of("first")), (vec!["ask"], 1));
}

#[test]
fn a_migration_that_can_never_run_is_a_warning() {
    let graph = asks(1, "n", &Runs::default(), |m| _ = m.rename_node("m", "n"));
    assert_eq!(graph.warnings(), [GraphWarning::IdleMigration(1)]);
    assert_eq!(asks(2, "n", &Runs::default(), |_| ()).warnings(), []);
}
