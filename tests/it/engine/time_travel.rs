//! Going back: edits, replays and forks over a store (R5, R13).

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::{CheckpointId, ThreadId};
use countersign_kernel::machine::EditRefused;
use countersign_worker::engine::{Edited, ReplayRequest, RequestError, Started};
use countersign_worker::store::commands::IdempotencyEntry;
use countersign_worker::store::{Refusal, Store, StoreError};
use serde_json::json;

use super::graphs::CONTINUE;
use super::nested::{answer, at, inside, names, open, restarted, superseded, world};
use crate::support::flows::{asks, flow, logs, part, pays, pays_at_once, works};
use crate::support::{Runs, World, operator};

engine!(
    another_answer_from_before_the_question_is_another_line,
    lists_of_two_lines_do_not_mix,
    an_edit_as_a_node_skips_it_and_a_pause_keeps_what_follows,
    an_edit_of_an_old_checkpoint_is_a_fork_and_a_refused_one_changes_nothing,
    steps_are_done_again_only_if_told_to,
    a_replay_where_nothing_is_left_or_of_nothing_known_is_refused,
    other_input_at_an_old_checkpoint_is_a_line_of_its_own,
    the_same_replay_gets_the_first_reply_and_runs_once,
);

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
