//! Looking into a paused graph, editing it, starting over inside it (rules 12,
//! 76, 84, R5, R13).

use std::sync::Arc;

use countersign_kernel::driver::{Driver, Refused};
use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::{CheckpointId, FrameId};
use countersign_kernel::machine::{EditRefused, Position, Rest};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use crate::support::*;

/// `p`, then `ask` beside `quick`, then `q`, in a graph as the node `sub`.
fn paused(runs: &Runs) -> CompiledGraph {
    let inner = named("inner", |g| {
        let logs = |node: &'static str| with(runs, move |_, runs| async move { Ok(got(node, &json!(runs.hit(node)))) });
        g.node("p", logs("p")).node("quick", logs("quick")).node("q", logs("q"));
        g.node(
            "ask",
            with(runs, |cx, runs| async move {
                runs.hit("ask");
                let seen = cx.state().values().get("last").cloned().unwrap_or_default();
                let answer = cx.interrupt(json!({"seen": seen})).await?;
                Ok(got("ask", &answer))
            }),
        );
        g.edge(START, "p").edge("p", "ask").edge("p", "quick").edge("ask", "q");
    });
    graph(|g| {
        g.subgraph("sub", inner).node("after", counting("after", runs)).edge(START, "sub").edge("sub", "after");
    })
}

fn frame(run: &Driver) -> FrameId {
    run.frames()[0].id.clone()
}

#[test]
fn an_unfinished_graph_shows_its_live_state_and_what_has_still_to_run() {
    let runs = Runs::default();
    let mut run = start_with(paused(&runs), json!({"last": "in"}));
    let frames = run.frames();
    assert_eq!(
        (frames.len(), &frames[0].path, frames[0].address.to_string()),
        (1, &vec!["sub".to_owned()], "g/sub@0".into())
    );
    assert_eq!(frames[0].next, ["ask"]);
    let values = json!({"got": {"p": 1, "quick": 1}, "last": "in", "log": [], "sum": 0});
    assert_eq!(Value::Object(frames[0].values.clone()), values, "with what `quick` wrote, which is not applied yet");
    assert_eq!((Value::Object(run.live_state())["got"].clone(), run.next()), (json!({}), vec!["sub"]));
    answer(&mut run, "A");
    assert_eq!((run.rest(), run.frames().len()), (Rest::Succeeded, 0));
}

#[test]
fn the_live_state_of_the_thread_has_the_writes_of_finished_tasks() {
    let runs = Runs::default();
    let run = start(graph(|g| {
        g.node("a", asking("a", &runs)).node("b", counting("b", &runs)).edge(START, "a").edge(START, "b");
    }));
    assert_eq!((&run.state()["log"], &run.live_state()["log"], run.next()), (&json!([]), &json!(["b"]), vec!["a"]));
    assert_eq!((&run.history()[0].values["log"], &run.history()[0].next), (&json!([]), &vec!["a".into(), "b".into()]));
}

#[test]
fn graphs_in_graphs_and_in_sent_tasks_are_told_apart_by_their_path() {
    let leaf = Arc::new(named("leaf", |g| {
        g.node("ask", with(&(), |cx, ()| async move { cx.interrupt("?").await.map(|_| Writes::none()) }));
        g.edge(START, "ask");
    }));
    let mid = named("mid", |g| {
        g.subgraph("leaf", Arc::clone(&leaf)).edge(START, "leaf");
    });
    let run = start(graph(|g| {
        g.subgraph("w", Arc::clone(&leaf)).subgraph("mid", mid).edge(START, "mid");
        g.branch(START, |_| Ok(vec![send("w", json!({})), send("w", json!({"last": 2}))]));
    }));
    let paths: Vec<String> = run.frames().iter().map(|frame| frame.path.join("/")).collect();
    assert_eq!(paths, ["mid", "mid/leaf", "w#0", "w#1"]);
    let lasts: Vec<Option<Value>> = run.frames().iter().map(|frame| frame.values.get("last").cloned()).collect();
    assert_eq!(lasts, [None, None, None, Some(json!(2))]);
    assert_eq!(run.next(), ["mid", "w", "w"]);
}

#[test]
fn an_edit_inside_reaches_the_question_and_leaves_the_thread_around_it_alone() {
    let runs = Runs::default();
    let mut run = start_with(paused(&runs), json!({"last": "in"}));
    let (old, frame) = (run.points(), frame(&run));
    assert_eq!(old[0].payload, json!({"seen": "in"}));
    run.edit(&edit_of(json!({"last": "edited"}), None), None, Some(&frame)).expect("`p` ran last");

    let points = run.points();
    assert_eq!((points.len(), points[0].kind, points[0].address.to_string()), (1, PointKind::Pause, "g/sub@0".into()));
    assert_eq!((run.rest(), run.checkpoints(), runs.of("ask")), (Rest::Parked, 1, 1), "nothing ran");
    assert_eq!(run.frames()[0].next, ["ask", "quick"], "the finished sibling is due again as well");
    assert_eq!(run.frames()[0].values["last"], "edited");
    let stale = answer_ids(&mut run, &[(&old[0].id, json!("late"))]);
    assert_eq!(stale, Err(Refused::NotOpen(old[0].id.clone())));

    resume(&mut run, CONTINUE);
    assert_eq!((run.points()[0].payload.clone(), runs.of("p"), runs.of("ask")), (json!({"seen": "edited"}), 1, 2));
    answer(&mut run, "A");
    assert_eq!(
        (run.rest(), &run.state()["last"], &run.state()["got"]["ask"]),
        (Rest::Succeeded, &json!("edited"), &json!("A"))
    );
    assert_eq!((runs.of("q"), runs.of("after")), (1, 1));
}

#[test]
fn an_edit_inside_as_the_asking_node_takes_its_place() {
    let runs = Runs::default();
    let mut run = start(paused(&runs));
    let frame = frame(&run);
    let unknown = run.edit(&edit_of(json!({}), Some("after")), None, Some(&frame));
    let (node, message) = unknown_node(unknown);
    assert_eq!(
        (node.as_str(), message.contains("known: ask,")),
        ("after", true),
        "a node of the graph around it: {message}"
    );
    run.edit(&edit_of(json!({"got": {"ask": "by hand"}}), Some("ask")), None, Some(&frame)).expect("a node");
    assert_eq!(run.frames()[0].next, ["q"]);
    run = run.reopen(paused(&runs));
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("ask"), runs.of("q"), runs.of("after")), (Rest::Succeeded, 1, 1, 1));
    assert_eq!(run.state()["got"], json!({"p": 1, "ask": "by hand", "q": 1}));
}

#[test]
fn an_edit_inside_as_end_ends_the_graph_with_what_it_has() {
    let runs = Runs::default();
    let mut run = start(paused(&runs));
    let frame = frame(&run);
    run.edit(&edit_of(Value::Null, Some("END")), None, Some(&frame)).expect("END");
    assert_eq!((run.rest(), runs.of("after")), (Rest::Parked, 0), "an edit runs nothing");
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), &run.state()["got"]), (Rest::Succeeded, &json!({"p": 1, "quick": 1})));
    assert_eq!((runs.of("ask"), runs.of("q"), runs.of("after")), (1, 0, 1));
}

#[test]
fn an_edit_inside_repairs_what_failed_there() {
    let runs = Runs::default();
    let inner = named("inner", |g| {
        let picky = with(&runs, |cx, runs| async move {
            runs.hit("picky");
            match cx.state().values().get("sum") {
                Some(Value::Number(sum)) if sum.as_i64() > Some(0) => Ok(got("picky", &json!("pleased"))),
                _ => Err(countersign_kernel::node::NodeError::failed("nothing there")),
            }
        });
        g.node("picky", picky).edge(START, "picky");
    });
    let mut run = start(graph(|g| {
        g.subgraph("sub", inner).edge(START, "sub");
    }));
    assert_eq!(run.rest(), Rest::Failed);
    let frame = frame(&run);
    run.edit(&edit_of(json!({"sum": 5}), None), None, Some(&frame)).expect("as START");
    assert_eq!((run.rest(), run.failures().len()), (Rest::Parked, 0), "what failed is dropped");
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), runs.of("picky"), &run.state()["sum"]), (Rest::Succeeded, 2, &json!(5)));
}

#[test]
fn a_frame_that_is_not_there_is_refused() {
    let runs = Runs::default();
    let mut run = start(paused(&runs));
    let frame = frame(&run);
    answer(&mut run, "A");
    let refused = run.edit(&edit_of(json!({}), None), None, Some(&frame));
    assert_eq!(refused, Err(Refused::Edit(EditRefused::UnknownFrame(frame))));
}

/// The newest checkpoint of the only frame.
fn inside(run: &Driver) -> CheckpointId {
    let position: &Position = run.position().expect("it ran");
    let frame = position.tasks.iter().flat_map(|task| task.record.frames.values()).next().expect("a frame");
    frame.checkpoint.id.clone()
}

#[test]
fn a_fork_inside_starts_over_there_and_runs_nothing_before_it() {
    let runs = Runs::default();
    let mut run = start_with(paused(&runs), json!({"last": "in"}));
    let (checkpoint, old) = (inside(&run), run.points());
    answer(&mut run, "first time");
    assert_eq!((run.rest(), runs.of("after")), (Rest::Succeeded, 1));
    let before = run.history();

    replay(&mut run, &checkpoint).expect("known");
    assert_eq!((run.rest(), runs.of("p"), runs.of("ask"), runs.of("quick")), (Rest::Parked, 1, 3, 2));
    let points = run.points();
    assert_eq!((points.len(), points[0].payload.clone()), (1, json!({"seen": "in"})));
    assert_ne!(points[0].id, old[0].id);
    answer(&mut run, "second time");
    assert_eq!((run.rest(), runs.of("p"), runs.of("q"), runs.of("after")), (Rest::Succeeded, 1, 2, 2));
    let end = json!({"p": 1, "ask": "second time", "quick": 2, "q": 2});
    assert_eq!(run.state()["got"], end);
    let history = run.history();
    assert_eq!(history[history.len() - before.len()..], before, "the old branch stays");
}

#[test]
fn a_fork_of_a_fork_inside_and_a_restart_of_one_work_as_well() {
    let runs = Runs::default();
    let mut run = start(paused(&runs));
    let first = inside(&run);
    replay(&mut run, &first).expect("known");
    let second = inside(&run);
    assert_ne!(first, second);
    replay(&mut run, &second).expect("known");
    run = run.reopen(paused(&runs));
    assert_eq!((runs.of("p"), runs.of("ask")), (1, 3));
    answer(&mut run, "A");
    assert_eq!(
        (run.rest(), &run.state()["got"]["ask"], &run.state()["got"]["p"]),
        (Rest::Succeeded, &json!("A"), &json!(1))
    );
}

#[test]
fn a_fork_inside_keeps_what_an_amendment_had_changed_around_it() {
    let runs = Runs::default();
    let inner = named("inner", |g| {
        g.node("ask", asking("ask", &runs)).edge(START, "ask");
    });
    let mut run = start(graph(|g| {
        g.subgraph("sub", inner).node("after", counting("after", &runs)).edge(START, "sub").edge("sub", "after");
        g.break_before("sub");
    }));
    amend(&mut run, json!({"sum": 7}), vec![], CONTINUE).expect("a stop is open");
    let checkpoint = inside(&run);
    assert_eq!(run.frames()[0].values["sum"], 7);
    replay(&mut run, &checkpoint).expect("known");
    assert_eq!((&run.state()["sum"], &run.frames()[0].values["sum"]), (&json!(7), &json!(7)));
}
