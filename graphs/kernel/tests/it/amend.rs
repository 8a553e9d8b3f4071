//! What a resume changes in the superstep that it wakes (rules 16, 88 to 90,
//! R5, K12).

use std::sync::Arc;

use countersign_kernel::driver::{Driver, Refused, RunRequest};
use countersign_kernel::graph::{CompiledGraph, END_NAME, GraphBuilder, START};
use countersign_kernel::machine::{Amend, Rest, Resume, Source};
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use crate::support::*;

/// `ask` asks what it sees in `last`; `quick` is done; `d` is led to by nobody.
fn flow(runs: &Runs, more: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    graph(|g| {
        let asks = with(runs, |cx, runs| async move {
            runs.hit("ask");
            let answer = cx.interrupt("ask?").await?;
            let seen = cx.state().values().get("last").cloned().unwrap_or_default();
            Ok(got("ask", &json!([answer, seen])))
        });
        g.node("ask", asks).node("quick", counting("quick", runs)).node("d", counting("d", runs));
        g.node("after", counting("after", runs)).edge("ask", "after");
        g.edge(START, "ask").edge(START, "quick");
        more(g);
    })
}

/// An answer to the question together with an amendment.
fn answer_and(
    run: &mut Driver,
    value: &Value,
    update: Value,
    goto: Vec<countersign_kernel::node::Goto>,
) -> Result<(), Refused> {
    let answers = vec![(point(run, "ask?").id, value.clone())];
    request(run, RunRequest { answers, amend: Amend { update: object(update), goto }, ..RunRequest::default() })
}

#[test]
fn an_update_with_the_answer_is_applied_before_the_waiting_task_runs() {
    let runs = Runs::default();
    let mut run = start(flow(&runs, |_| ()));
    answer_and(&mut run, &json!("A"), json!({"last": "seen", "log": ["amended"]}), vec![]).expect("open");
    assert_eq!((run.rest(), &run.state()["got"]["ask"]), (Rest::Succeeded, &json!(["A", "seen"])));
    assert_eq!(run.state()["log"], json!(["amended", "quick", "after"]), "the finished sibling kept its result");
    assert_eq!((runs.of("ask"), runs.of("quick")), (2, 1));
}

#[test]
fn an_amendment_is_a_checkpoint_of_its_own_in_the_same_superstep() {
    let runs = Runs::default();
    let mut run = start(flow(&runs, |_| ()));
    let (before, points) = (run.history(), run.points());
    amend(&mut run, json!({"last": 1}), vec![], Resume::default()).expect("something waits");
    let history = run.history();
    assert_eq!(history[1..], before, "the old checkpoint shows what it was");
    assert_eq!((history[0].checkpoint.source, history[0].checkpoint.superstep), (Source::Amend, 0));
    assert_eq!((&history[0].values["last"], &history[0].next), (&json!(1), &before[0].next));
    assert_eq!(history[0].checkpoint.parent.as_ref(), Some(&before[0].checkpoint.id));
    assert_eq!((run.points(), runs.of("ask")), (points, 1), "the question keeps its id and nothing ran");
}

#[test]
fn answers_that_were_given_stay_when_the_superstep_is_amended() {
    let runs = Runs::default();
    let two = with(&runs, |cx, runs| async move {
        runs.hit("n");
        let first = cx.interrupt("first?").await?;
        let paid = cx.step("pay", |_| async { Ok::<_, std::fmt::Error>(runs.hit("pay")) }).await?;
        let second = cx.interrupt("second?").await?;
        Ok(got("n", &json!([first, paid, second])))
    });
    let mut run = start(single(two));
    answer(&mut run, 1);
    let second = run.points();
    amend(&mut run, json!({"sum": 1}), vec!["n".into()], Resume::default()).expect("something waits");
    assert_eq!((run.points(), run.next()), (second, vec!["n"]), "a goto to what is planned adds nothing");
    answer(&mut run, 2);
    assert_eq!((run.rest(), &run.state()["got"]["n"], runs.of("pay")), (Rest::Succeeded, &json!([1, 1, 2]), 1));
}

#[test]
fn a_goto_adds_a_task_beside_the_waiting_ones() {
    let runs = Runs::default();
    let mut run = start(flow(&runs, |_| ()));
    let points = run.points();
    amend(&mut run, json!({}), vec!["d".into(), "d".into(), END_NAME.into()], Resume::default()).expect("a node");
    assert_eq!((run.points(), runs.of("d"), runs.of("ask"), run.next()), (points, 1, 1, vec!["ask"]));
    assert_eq!(run.live_state()["log"], json!(["d", "quick"]), "in the order of the names");
    answer(&mut run, "A");
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!(["d", "quick", "after"])));
}

#[test]
fn sent_tasks_come_after_those_that_are_there() {
    let runs = Runs::default();
    let mut run = start(flow(&runs, |g| {
        let worker = with(&(), |cx, ()| async move { Ok(Writes::none().with("log", &[cx.argument().cloned()])) });
        g.node("a", worker).branch(START, |_| Ok(vec![send("a", json!(0))]));
    }));
    amend(&mut run, json!({}), vec![send("a", json!(1)), "d".into(), send("a", json!(2))], Resume::default())
        .expect("nodes");
    assert_eq!(run.visits("a"), 3);
    answer_and(&mut run, &json!("A"), json!({}), vec![send("a", json!(3))]).expect("open");
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!(["d", "quick", 0, 1, 2, 3, "after"])));
}

#[test]
fn an_added_task_that_asks_has_an_id_of_its_own_and_survives_a_restart() {
    let runs = Runs::default();
    let build = || flow(&runs, |g| _ = g.node("more", asking("more", &runs)));
    let mut run = start(build());
    let ask = point(&run, "ask?");
    amend(&mut run, json!({}), vec!["more".into(), send("more", json!(1))], Resume::default()).expect("a node");
    run = run.reopen(build());
    assert_eq!(addresses(&run), ["g/ask@0", "g/more@0", "g/more@0/more[0]"]);
    let points = run.points();
    assert_eq!(points[0], ask);
    assert!(points[1].id != points[2].id && points[1].id != ask.id);
    let answers: Vec<_> = points.iter().map(|point| (&point.id, json!("yes"))).collect();
    answer_ids(&mut run, &answers).expect("open");
    assert_eq!((run.rest(), runs.of("more"), runs.of("ask")), (Rest::Succeeded, 4, 2));
}

#[test]
fn at_a_stop_an_amendment_runs_beside_the_waiting_node_only_when_it_is_released() {
    for release in [false, true] {
        let runs = Runs::default();
        let mut run = start(graph(|g| {
            for node in ["b", "d"] {
                g.node(node, counting(node, &runs));
            }
            g.edge(START, "b").break_before("b");
        }));
        let resume = if release { CONTINUE } else { Resume::default() };
        amend(&mut run, json!({"log": ["amended"]}), vec!["d".into()], resume).expect("a stop is open");
        let (rest, ran) = if release { (Rest::Succeeded, 1) } else { (Rest::Parked, 0) };
        assert_eq!((run.rest(), runs.of("b"), runs.of("d")), (rest, ran, ran));
        if !release {
            assert_eq!((run.next(), run.points().len()), (vec!["b", "d"], 1));
        }
        assert_eq!(run.state()["log"][0], "amended");
    }
}

#[test]
fn an_amendment_that_does_not_fit_is_refused_whole() {
    let runs = Runs::default();
    let mut run = start(flow(&runs, |_| ()));
    let before = (run.points(), run.history());
    let nowhere = answer_and(&mut run, &json!("A"), json!({}), vec!["d".into(), "nowhere".into()]);
    let (node, message) = unknown_node(nowhere);
    assert_eq!((node.as_str(), message.ends_with(", END")), ("nowhere", true), "{message}");
    for update in [json!({"lost": 1}), json!({"sum": "x"}), json!({"log": 1})] {
        let refused = answer_and(&mut run, &json!("A"), update, vec![]);
        assert!(matches!(refused, Err(Refused::Invalid(_))), "{refused:?}");
    }
    let sent = amend(&mut run, json!({}), vec![send(END_NAME, json!(1))], Resume::default());
    let (node, message) = unknown_node(sent);
    assert_eq!((node.as_str(), message.ends_with(", END")), (END_NAME, false), "END takes no argument: {message}");
    assert_eq!((run.points(), run.history(), runs.of("ask"), runs.of("d")), (before.0, before.1, 1, 0));
}

#[test]
fn a_thread_that_never_ran_or_has_finished() {
    let runs = Runs::default();
    let mut run = thread(flow(&runs, |_| ()));
    assert_eq!(amend(&mut run, json!({"last": 1}), vec![], CONTINUE), Err(Refused::NeverRan));

    let mut run = start(flow(&runs, |_| ()));
    answer(&mut run, "A");
    assert_eq!(run.rest(), Rest::Succeeded);
    amend(&mut run, json!({"last": 1}), vec![], Resume::default()).expect("only the state");
    assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!(1)));
    amend(&mut run, json!({}), vec!["d".into()], Resume::default()).expect("a node");
    assert_eq!((run.rest(), runs.of("d"), &run.state()["log"]), (Rest::Succeeded, 1, &json!(["quick", "after", "d"])));
}

#[test]
fn an_edit_after_an_amendment_keeps_what_it_changed() {
    let runs = Runs::default();
    let mut run = start(flow(&runs, |_| ()));
    amend(&mut run, json!({"sum": 5}), vec![], Resume::default()).expect("something waits");
    edit(&mut run, json!({"sum": 1}), None).expect("as START");
    assert_eq!(run.state()["sum"], 6);
}

#[test]
fn data_for_a_stop_is_an_update_of_the_state() {
    let runs = Runs::default();
    let build = || {
        graph(|g| {
            g.node("b", counting("b", &runs)).edge(START, "b").break_before("b");
        })
    };
    let mut run = start_with(build(), json!({"log": ["in"]}));
    let id = run.points()[0].id.clone();
    for refused in [json!("go"), json!(["log"]), json!({"lost": 1}), json!({"log": 1})] {
        assert!(matches!(answer_ids(&mut run, &[(&id, refused)]), Err(Refused::Invalid(_))));
        assert_eq!((run.points().len(), runs.of("b"), run.checkpoints()), (1, 0, 1));
    }
    answer_ids(&mut run, &[(&id, json!({"log": ["amended"]}))]).expect("open");
    assert_eq!((run.rest(), &run.state()["log"]), (Rest::Succeeded, &json!(["in", "amended", "b"])));
    let sources: Vec<Source> = run.history().iter().map(|entry| entry.checkpoint.source).collect();
    assert_eq!(sources, [Source::Loop, Source::Amend, Source::Input]);
}

#[test]
fn data_for_a_stop_inside_a_graph_updates_that_graph() {
    let runs = Runs::default();
    let inner = Arc::new(named("inner", |g| {
        g.key("own", countersign_kernel::state::Reducer::Last);
        let keep = with(&runs, |cx, runs| async move {
            runs.hit("n");
            Ok(got("own", &cx.state().values().get("own").cloned().unwrap_or_default()))
        });
        g.node("n", keep).edge(START, "n").break_before("n");
    }));
    let build = || {
        graph(|g| {
            g.subgraph("sub", Arc::clone(&inner)).edge(START, "sub");
        })
    };
    let mut run = start(build()).reopen(build());
    let id = run.points()[0].id.clone();
    answer_ids(&mut run, &[(&id, json!({"own": 7}))]).expect("open");
    assert_eq!((run.rest(), runs.of("n"), &run.state()["got"]), (Rest::Succeeded, 1, &json!({"own": 7})));
    assert_eq!(run.checkpoints(), 2, "the amendment is the inner graph's");
}
