//! Going back: edits, replays and forks over a store (R5, R13).

use std::sync::Arc;

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::{CheckpointId, FrameId, ThreadId};
use countersign_kernel::machine::EditRefused;
use countersign_worker::engine::{Edited, ReplayRequest, RequestError, Started};
use countersign_worker::store::commands::IdempotencyEntry;
use countersign_worker::store::{Refusal, Store, StoreError};
use serde_json::{Value, json};

use super::graphs::CONTINUE;
use super::nested::{answer, names, open, restarted, world};
use crate::support::flows::{asks, fails, flow, got, logs, part, pays, pays_at_once, with, works};
use crate::support::{Runs, TestEngine, World, operator};

/// The checkpoint of a superstep of the thread, on the newest line that has it.
async fn at(engine: &TestEngine, thread: &ThreadId, superstep: u64) -> CheckpointId {
    let history = engine.history(thread).await;
    history.into_iter().find(|entry| entry.superstep == superstep).expect("it went that far").checkpoint
}

/// The checkpoint of a superstep of a sub-graph.
async fn inside(engine: &TestEngine, thread: &ThreadId, frame: &FrameId, superstep: u64) -> CheckpointId {
    let history = engine.store.history(thread, Some(frame), None, 100).await.expect("there");
    history.into_iter().find(|entry| entry.superstep == superstep).expect("it went that far").checkpoint
}

/// `a` logs, `asks` asks, `b` logs, and the same again.
fn rows(runs: &Runs) -> CompiledGraph {
    flow("flow", |g| {
        g.node("a", logs("log", "a", runs)).node("asks", asks("asks", runs)).node("b", logs("log", "b", runs));
        g.node("again", asks("again", runs)).node("c", logs("log", "c", runs));
        g.edge(START, "a").edge("a", "asks").edge("asks", "b").edge("b", "again").edge("again", "c");
    })
}

fn of_rows(runs: &Runs) -> World {
    let runs = runs.clone();
    world(move || rows(&runs))
}

async fn superseded(engine: &TestEngine, id: &countersign_kernel::ids::InterruptId) {
    let late = engine.vote(id, &operator(), json!("late")).await;
    let Err(RequestError::Store(StoreError::Refused(Refusal::Superseded { interrupt, status }))) = late else {
        panic!("{late:?}")
    };
    assert_eq!((&interrupt, status.as_str()), (id, "superseded"));
}

#[tokio::test]
async fn another_answer_from_before_the_question_is_another_line() {
    let runs = Runs::default();
    let world = of_rows(&runs);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let first = open(&engine, &thread, "parked").await;
    answer(&engine, &first[0].1, json!("yes")).await;
    let second = {
        engine.idles().await;
        open(&engine, &thread, "parked").await
    };
    assert_eq!(names(&second), ["again?"]);

    engine = restarted(&world, engine).await;
    let from = at(&engine, &thread, 1).await;
    let Ok(Started::New { status: "queued", .. }) = engine.replay(&thread, &from).await else { panic!("not replayed") };
    engine.idles().await;
    let asked = open(&engine, &thread, "parked").await;
    assert_eq!((names(&asked), &asked[0].1.address), (vec!["asks?"], &first[0].1.address));
    assert_ne!(asked[0].1.id, first[0].1.id, "a fork asks anew (R13)");
    assert_eq!(runs.of("a"), 1, "what lies before is not done again");
    superseded(&engine, &second[0].1.id).await;

    engine = restarted(&world, engine).await;
    answer(&engine, &asked[0].1, json!("no")).await;
    engine.idles().await;
    let again = open(&engine, &thread, "parked").await;
    answer(&engine, &again[0].1, json!("well")).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(
        done.state,
        *json!({"got": {"asks": "no", "again": "well"}, "log": ["a", "b", "c"]}).as_object().expect("an object")
    );
    let kinds: Vec<_> = done.runs.iter().map(|run| (run.kind.as_str(), run.status.as_str())).collect();
    assert!(kinds.contains(&("replay", "parked")), "{kinds:?}");
    assert_eq!((runs.of("a"), runs.of("asks"), runs.of("b"), runs.of("c")), (1, 4, 2, 1));

    // The history shows both lines, each with the state of its own.
    let history = engine.history(&thread).await;
    let logs: Vec<_> = history.iter().map(|entry| (entry.superstep, entry.state.get("log").cloned())).collect();
    let log = |items: &[&str]| Some(json!(items));
    let newest =
        [(5, log(&["a", "b", "c"])), (4, log(&["a", "b"])), (3, log(&["a", "b"])), (2, log(&["a"])), (1, log(&["a"]))];
    let older = [(3, log(&["a", "b"])), (2, log(&["a"])), (1, log(&["a"])), (0, None)];
    assert_eq!(logs, [newest.as_slice(), &older].concat());
    assert_eq!(history[4].source, "fork");
    assert_eq!(history[4].parent.as_ref(), Some(&history[7].checkpoint));
    assert_eq!(engine.store.verify_audit(&thread).await.expect("verified"), None);
}

#[tokio::test]
async fn lists_of_two_lines_do_not_mix() {
    let runs = Runs::default();
    let world = of_rows(&runs);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let from = {
        engine.rests(&thread, "parked").await;
        at(&engine, &thread, 0).await
    };
    // Every line appends `a`, and then what it is given by an edit.
    for line in ["x", "y", "z"] {
        engine.idles().await;
        let Ok(Edited::New { status, .. }) =
            engine.edit(&thread, None, json!({"log": [line, line]}), Some("asks")).await
        else {
            panic!("not edited")
        };
        assert_eq!(status, "parked");
        engine = restarted(&world, engine).await;
        assert_eq!(engine.detail(&thread).await.state["log"], json!(["a", line, line]));
        engine.resume(&thread, [], CONTINUE).await.expect("accepted");
        engine.idles().await;
        assert_eq!(engine.parked(&thread).await.len(), 1);
        assert_eq!(engine.detail(&thread).await.state["log"], json!(["a", line, line, "b"]));
        engine.replay(&thread, &from).await.expect("replayed");
        engine.idles().await;
        assert_eq!(engine.rests(&thread, "parked").await.state["log"], json!(["a"]));
    }
    let history = engine.history(&thread).await;
    let ends: Vec<_> = history.iter().filter(|entry| entry.superstep == 3).map(|entry| &entry.state["log"]).collect();
    let end = |line: &str| json!(["a", line, line, "b"]);
    assert_eq!(ends, [&end("z"), &end("y"), &end("x")]);
    assert_eq!(runs.of("a"), 4);
}

#[tokio::test]
async fn an_edit_as_a_node_skips_it_and_a_pause_keeps_what_follows() {
    let runs = Runs::default();
    let world = of_rows(&runs);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let asked = open(&engine, &thread, "parked").await;
    engine.idles().await;
    let edited = engine.edit(&thread, None, json!({"got": {"asks": "edited"}}), Some("asks")).await.expect("edited");
    let Edited::New { checkpoint, status: "parked", .. } = edited else { panic!("{edited:?}") };
    assert_eq!(engine.store.head(&thread).await.expect("there"), checkpoint);
    superseded(&engine, &asked[0].1.id).await;
    let paused = open(&engine, &thread, "parked").await;
    assert_eq!((names(&paused), engine.detail(&thread).await.next), (vec!["pause"], vec!["b".to_owned()]));
    assert_eq!(paused[0].1.payload["reason"], "edited");
    assert_eq!((runs.of("asks"), runs.of("b")), (1, 0), "an edit runs nothing");

    let engine = restarted(&world, engine).await;
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    engine.idles().await;
    let again = open(&engine, &thread, "parked").await;
    assert_eq!(names(&again), ["again?"]);
    let state = engine.detail(&thread).await.state;
    assert_eq!((&state["got"], &state["log"]), (&json!({"asks": "edited"}), &json!(["a", "b"])));
}

#[tokio::test]
async fn an_edit_of_an_old_checkpoint_is_a_fork_and_a_refused_one_changes_nothing() {
    let runs = Runs::default();
    let world = of_rows(&runs);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let first = open(&engine, &thread, "parked").await;
    answer(&engine, &first[0].1, json!("yes")).await;
    engine.idles().await;
    let second = open(&engine, &thread, "parked").await;
    let before = (engine.detail(&thread).await, engine.history(&thread).await);
    for (values, node) in
        [(json!({"nothing": 1}), Some("a")), (json!({"log": "no list"}), Some("a")), (json!({}), Some("x"))]
    {
        assert!(engine.edit(&thread, None, values.clone(), node).await.is_err(), "{values} as {node:?}");
    }
    assert_eq!((engine.detail(&thread).await, engine.history(&thread).await), before);

    let (old, newest) = (at(&engine, &thread, 1).await, at(&engine, &thread, 3).await);
    let fork = countersign_worker::engine::EditRequest {
        thread: thread.clone(),
        edit: countersign_kernel::machine::Edit {
            values: json!({"log": ["forked"]}).as_object().cloned(),
            as_node: Some("asks".into()),
        },
        expected_head: Some(newest.clone()),
        at: Some(old.clone()),
        frame: None,
        principal: operator(),
    };
    let stale = countersign_worker::engine::EditRequest { expected_head: Some(old.clone()), ..fork.clone() };
    let refused = engine.engine.edit(stale).await;
    assert!(matches!(refused, Err(RequestError::Store(StoreError::Refused(Refusal::ThreadChanged)))), "{refused:?}");
    engine.engine.edit(fork).await.expect("forked");
    superseded(&engine, &second[0].1.id).await;
    let engine = restarted(&world, engine).await;
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    engine.idles().await;
    open(&engine, &thread, "parked").await;
    let state = engine.detail(&thread).await.state;
    assert_eq!(
        (&state["log"], state.get("got")),
        (&json!(["a", "forked", "b"]), None),
        "the answer is on the other line"
    );
    let head = engine.history(&thread).await;
    assert_eq!(head[1].parent.as_ref(), Some(&old));
}

/// A graph `sub` of `one`, `two` (asks) and `three` beside `plain` (asks).
fn beside(runs: &Runs) -> CompiledGraph {
    let sub = part("sub", |g| {
        g.node("one", logs("inside", "one", runs))
            .node("two", asks("two", runs))
            .node("three", logs("inside", "three", runs));
        g.node("four", asks("four", runs));
        g.edge(START, "one").edge("one", "two").edge("two", "three").edge("three", "four");
    });
    flow("flow", |g| {
        g.node("start", logs("log", "start", runs)).subgraph("sub", sub).node("plain", asks("plain", runs));
        g.node("end", works("end", runs));
        g.edge(START, "start").edge("start", "sub").edge("start", "plain").join(["sub", "plain"], "end");
    })
}

fn of_beside(runs: &Runs) -> World {
    let runs = runs.clone();
    world(move || beside(&runs))
}

#[tokio::test]
async fn an_edit_of_a_sub_graph_drops_what_waits_there_and_nothing_else() {
    let runs = Runs::default();
    let world = of_beside(&runs);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let all = open(&engine, &thread, "parked").await;
    assert_eq!(names(&all), ["plain?", "two?"]);
    engine = restarted(&world, engine).await;
    let head = engine.store.head(&thread).await.expect("there");
    let frame = engine.view(&thread).await.frames[0].frame.clone();
    let values = json!({"inside": ["edited"], "got": {"two": "edited"}});
    engine.edit(&thread, Some(&frame), values, Some("two")).await.expect("edited");
    assert_eq!(engine.store.head(&thread).await.expect("there"), head, "the thread stays where it is");
    superseded(&engine, &all[1].1.id).await;
    let now = open(&engine, &thread, "parked").await;
    assert_eq!(names(&now), ["pause", "plain?"]);
    assert_eq!((&now[1].1, now[0].1.frame.as_ref()), (&all[0].1, Some(&frame)), "the question beside it is the same");

    engine = restarted(&world, engine).await;
    let view = engine.view(&thread).await;
    assert_eq!((view.frames.len(), &view.frames[0].values["inside"]), (1, &json!(["one", "edited"])));
    assert_eq!(view.frames[0].next, ["three"]);
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    engine.idles().await;
    let four = open(&engine, &thread, "parked").await;
    assert_eq!(names(&four), ["four?", "plain?"]);
    engine = restarted(&world, engine).await;
    for (_, view) in &four {
        answer(&engine, view, json!("yes")).await;
    }
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"two": "edited", "four": "yes", "plain": "yes", "end": "done"}));
    assert_eq!((runs.of("one"), runs.of("two"), runs.of("three"), runs.of("plain")), (1, 1, 1, 2));
}

#[tokio::test]
async fn an_edit_before_a_graph_inside_leaves_nothing_of_its_old_run() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let inner = part("inner", |g| {
                g.node("ask", asks("ask", &runs)).edge(START, "ask");
            });
            let outer = part("outer", |g| {
                g.node("first", works("first", &runs))
                    .subgraph("inner", inner)
                    .edge(START, "first")
                    .edge("first", "inner");
            });
            flow("flow", |g| {
                g.subgraph("outer", outer).edge(START, "outer");
            })
        }
    });
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let asked = open(&engine, &thread, "parked").await;
    engine = restarted(&world, engine).await;
    let outer = engine.view(&thread).await.frames[0].frame.clone();
    // As `first`: the graph inside is due again, and it is another run of it.
    engine.edit(&thread, Some(&outer), json!({"got": {"first": "edited"}}), Some("first")).await.expect("edited");
    superseded(&engine, &asked[0].1.id).await;
    engine = restarted(&world, engine).await;
    let paths = async |engine: &TestEngine| {
        engine.view(&thread).await.frames.iter().map(|frame| frame.path.join("/")).collect::<Vec<_>>()
    };
    assert_eq!(paths(&engine).await, ["outer"], "the old run of the graph inside is gone");
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    engine.idles().await;
    let again = open(&engine, &thread, "parked").await;
    assert!(again[0].1.id != asked[0].1.id && again.len() == 1, "{again:?}");
    engine = restarted(&world, engine).await;
    assert_eq!(paths(&engine).await, ["outer", "outer/inner"]);
    answer(&engine, &again[0].1, json!("yes")).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"first": "edited", "ask": "yes"}));
    assert_eq!((runs.of("first"), runs.of("ask")), (1, 3));
}

#[tokio::test]
async fn an_edit_gets_a_failed_graph_two_levels_deep_going_again() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let inner = part("inner", |g| {
                g.node("breaks", fails("breaks", 9, &runs)).node("next", works("next", &runs));
                g.edge(START, "breaks").edge("breaks", "next");
            });
            let outer = part("outer", |g| {
                g.subgraph("inner", inner).edge(START, "inner");
            });
            flow("flow", |g| {
                g.subgraph("outer", outer).edge(START, "outer");
            })
        }
    });
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.rests(&thread, "failed").await;
    engine = restarted(&world, engine).await;
    let inner = engine.view(&thread).await.frames[1].frame.clone();
    engine.edit(&thread, Some(&inner), json!({"got": {"breaks": "by hand"}}), Some("breaks")).await.expect("edited");
    engine = restarted(&world, engine).await;
    let view = engine.view(&thread).await;
    assert_eq!((view.detail.summary.status.as_str(), view.detail.summary.error.as_deref()), ("parked", None));
    assert_eq!((view.failures, view.detail.errors), (Vec::new(), Vec::new()), "what had failed is dropped");
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"], runs.of("breaks")), (&json!({"breaks": "by hand", "next": "done"}), 1));
}

#[tokio::test]
async fn a_replay_from_inside_goes_on_from_there_and_keeps_the_state_of_then() {
    let runs = Runs::default();
    let world = of_beside(&runs);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let all = open(&engine, &thread, "parked").await;
    let frame = engine.view(&thread).await.frames[0].frame.clone();
    answer(&engine, &all[1].1, json!("first")).await;
    engine.idles().await;
    let later = open(&engine, &thread, "parked").await;
    assert_eq!(names(&later), ["four?", "plain?"]);
    engine = restarted(&world, engine).await;
    let from = inside(&engine, &thread, &frame, 1).await;
    engine.replay(&thread, &from).await.expect("replayed");
    engine.idles().await;
    // The thread is at the superstep around it again, so `plain` asks anew too.
    let asked = open(&engine, &thread, "parked").await;
    assert_eq!(names(&asked), ["plain?", "two?"]);
    assert!(asked.iter().all(|(_, view)| all.iter().all(|(_, old)| old.id != view.id)));
    for (_, view) in &later {
        superseded(&engine, &view.id).await;
    }
    assert_eq!((runs.of("start"), runs.of("one"), runs.of("two"), runs.of("plain")), (1, 1, 3, 2));

    engine = restarted(&world, engine).await;
    let frames = engine.view(&thread).await.frames;
    assert_eq!((frames.len(), &frames[0].values["inside"]), (1, &json!(["one"])), "the state of then");
    assert_ne!(frames[0].frame, frame);
    answer(&engine, &asked[1].1, json!("second")).await;
    engine.idles().await;
    engine = restarted(&world, engine).await;
    let frames = engine.view(&thread).await.frames;
    assert_eq!(frames[0].values["inside"], json!(["one", "three"]), "a list that a fork took along grows on");
    let four = open(&engine, &thread, "parked").await;
    for (_, view) in &four {
        answer(&engine, view, json!("yes")).await;
    }
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"two": "second", "four": "yes", "plain": "yes", "end": "done"}));
    assert_eq!((runs.of("one"), runs.of("three"), runs.of("end")), (1, 2, 1));
}

#[tokio::test]
async fn a_replay_from_the_thread_runs_a_sub_graph_from_its_start() {
    let runs = Runs::default();
    let world = of_beside(&runs);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let all = open(&engine, &thread, "parked").await;
    engine = restarted(&world, engine).await;
    let from = at(&engine, &thread, 1).await;
    engine.replay(&thread, &from).await.expect("replayed");
    engine.idles().await;
    let asked = open(&engine, &thread, "parked").await;
    assert_eq!(names(&asked), ["plain?", "two?"]);
    assert_eq!((runs.of("start"), runs.of("one"), runs.of("two")), (1, 2, 2));
    superseded(&engine, &all[0].1.id).await;
    engine = restarted(&world, engine).await;
    let frames = engine.view(&thread).await.frames;
    assert_eq!((frames.len(), &frames[0].values["inside"]), (1, &json!(["one"])));
}

#[tokio::test]
async fn steps_are_done_again_only_if_told_to() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let sub = part("sub", |g| {
                g.node("in", pays("in", &runs)).edge(START, "in");
            });
            flow("flow", |g| {
                g.node("start", works("start", &runs))
                    .subgraph("sub", sub)
                    .node("beside", pays_at_once("beside", &runs));
                g.edge(START, "start").edge("start", "sub").edge("start", "beside");
            })
        }
    });
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    open(&engine, &thread, "parked").await;
    engine = restarted(&world, engine).await;
    let frame = engine.view(&thread).await.frames[0].frame.clone();
    let before = (engine.detail(&thread).await, engine.history(&thread).await, runs.all());
    for from in
        [at(&engine, &thread, 0).await, at(&engine, &thread, 1).await, inside(&engine, &thread, &frame, 0).await]
    {
        let request = ReplayRequest { re_execute: false, ..engine.replaying(&thread, &from) };
        let refused = engine.engine.replay(&request, &|_, _, _| None).await;
        let Err(RequestError::Store(StoreError::Refused(Refusal::ReExecutes(steps)))) = refused else {
            panic!("{refused:?}")
        };
        let mut steps: Vec<_> = steps.iter().map(|step| format!("{} {}", step.address, step.name)).collect();
        steps.sort();
        assert_eq!(steps, ["flow/beside@1 pay", "flow/sub@1/in@0 before"]);
    }
    assert_eq!((engine.detail(&thread).await, engine.history(&thread).await, runs.all()), before);

    engine.replay(&thread, &inside(&engine, &thread, &frame, 0).await).await.expect("told to");
    engine.idles().await;
    open(&engine, &thread, "parked").await;
    let effects = runs.all().into_iter().filter(|(name, _)| name.contains(' ')).collect::<Vec<_>>();
    assert_eq!(
        (effects.len(), effects.iter().all(|(_, count)| *count == 1)),
        (4, true),
        "under keys of their own: {effects:?}"
    );
}

#[tokio::test]
async fn a_replay_where_nothing_is_left_or_of_nothing_known_is_refused() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            flow("flow", |g| {
                g.node("a", works("a", &runs)).edge(START, "a");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.rests(&thread, "succeeded").await;
    let end = at(&engine, &thread, 1).await;
    let refused = engine.replay(&thread, &end).await;
    assert!(matches!(refused, Err(RequestError::Edit(EditRefused::NothingPending))), "{refused:?}");
    let unknown = CheckpointId::parse("unknown").expect("an id");
    let refused = engine.replay(&thread, &unknown).await;
    assert!(
        matches!(refused, Err(RequestError::Store(StoreError::Refused(Refusal::UnknownCheckpoint(_))))),
        "{refused:?}"
    );
    let start = at(&engine, &thread, 0).await;
    engine.replay(&thread, &start).await.expect("replayed");
    engine.rests(&thread, "succeeded").await;
    engine.idles().await;
    assert_eq!(runs.of("a"), 2);
}

#[tokio::test]
async fn other_input_at_an_old_checkpoint_is_a_line_of_its_own() {
    let runs = Runs::default();
    let world = of_rows(&runs);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({"got": {"who": "ann"}})).await;
    let first = open(&engine, &thread, "parked").await;
    engine = restarted(&world, engine).await;
    let request = ReplayRequest {
        input: Some(json!({"got": {"who": "bob"}})),
        ..engine.replaying(&thread, &at(&engine, &thread, 0).await)
    };
    engine.engine.replay(&request, &|_, _, _| None).await.expect("forked");
    engine.idles().await;
    let asked = open(&engine, &thread, "parked").await;
    superseded(&engine, &first[0].1.id).await;
    let detail = engine.detail(&thread).await;
    assert_eq!((&detail.state["got"], &detail.state["log"]), (&json!({"who": "bob"}), &json!(["a"])));
    assert!(detail.runs.iter().any(|run| run.kind == "fork"));
    engine = restarted(&world, engine).await;
    answer(&engine, &asked[0].1, json!("yes")).await;
    engine.idles().await;
    assert_eq!(engine.rests(&thread, "parked").await.state["got"], json!({"who": "bob", "asks": "yes"}));
}

#[tokio::test]
async fn the_same_replay_gets_the_first_reply_and_runs_once() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            flow("flow", |g| {
                g.node("a", pays_at_once("a", &runs))
                    .node("asks", asks("asks", &runs))
                    .edge(START, "a")
                    .edge("a", "asks");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    engine.idles().await;
    let entry = |body: String| {
        Some(IdempotencyEntry { scope: "s".into(), key: "k".into(), request_hash: "h".into(), status: 202, body })
    };
    // The first does steps, of which the request that is repeated knew nothing.
    let from = at(&engine, &thread, 1).await;
    let request = ReplayRequest { re_execute: false, ..engine.replaying(&thread, &from) };
    let reply = |_: &ThreadId, run: &countersign_kernel::ids::RunId, _: &'static str| entry(run.to_string());
    let Ok(Started::New { run, .. }) = engine.engine.replay(&request, &reply).await else { panic!("not replayed") };
    engine.idles().await;
    engine.parked(&thread).await;
    let before = (engine.detail(&thread).await, runs.all());
    let again = engine.engine.replay(&request, &reply).await.expect("no refusal");
    assert_eq!(again, Started::Replayed { status: 202, body: run.to_string() });
    engine.idles().await;
    assert_eq!((engine.detail(&thread).await, runs.all()), before);
}

#[tokio::test]
async fn a_graph_that_only_a_body_knows_is_no_place_to_go_back_to() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let child: Arc<CompiledGraph> = part("child", |g| {
                g.node("ask", asks("ask", &runs)).edge(START, "ask");
            });
            let calls = with(&child, |cx, child| async move {
                let end = cx.graph("child", &child, json!({})).await?;
                Ok(got("calls", &Value::Object(end)))
            });
            flow("flow", |g| {
                g.node("calls", calls).edge(START, "calls");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let asked = open(&engine, &thread, "parked").await;
    engine.idles().await;
    let frame = asked[0].1.frame.clone().expect("inside");
    let refused = engine.edit(&thread, Some(&frame), json!({}), Some("ask")).await;
    assert!(matches!(refused, Err(RequestError::Edit(EditRefused::UnknownFrame(_)))), "{refused:?}");
    let refused = engine.replay(&thread, &inside(&engine, &thread, &frame, 0).await).await;
    assert!(matches!(refused, Err(RequestError::Edit(EditRefused::UnknownFrame(_)))), "{refused:?}");
    answer(&engine, &asked[0].1, json!("yes")).await;
    engine.rests(&thread, "succeeded").await;
}
