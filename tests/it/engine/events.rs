//! What the engine tells of a run, in order, whole, and only what holds (K22).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::{CheckpointId, FrameId, ThreadId};
use countersign_kernel::node::NodeError;
use countersign_kernel::state::Writes;
use countersign_worker::store::Store;
use countersign_worker::store::views::EventView;
use serde_json::{Value, json};

use crate::support::flows::{asks, fails, flow, got, hangs, logs, part, sends, with, works};
use crate::support::{Dies, Fate, Gate, On, Runs, TestEngine, World, operator};

engine!(
    a_run_with_a_fan_out_and_a_sub_graph_is_told_whole_and_in_order,
    what_a_body_says_is_seen_while_it_still_runs,
    a_finished_task_is_told_with_the_flush_that_keeps_it_and_not_before,
    failures_retries_and_pauses_are_told_as_what_they_are,
    a_result_that_cannot_be_applied_is_told_as_a_failure_alone,
    edits_and_replays_are_told_with_what_they_close_and_open,
    a_crash_at_any_write_tells_nothing_twice_and_loses_nothing,
    an_engine_without_events_keeps_none_and_bodies_say_things_to_nobody,
    an_event_that_is_too_large_fails_its_node,
);

/// `plan` sends `w` twice; beside them `sub` runs `p`, then `q`, which asks;
/// `last` comes when all have finished.
fn mixed(runs: &Runs) -> CompiledGraph {
    let inner = part("inner", |g| {
        g.node("p", logs("inside", "p", runs)).node("q", asks("q", runs)).edge(START, "p").edge("p", "q");
    });
    flow("flow", |g| {
        g.node("plan", sends("w", 2)).node("w", telling(runs)).node("last", logs("log", "last", runs));
        g.subgraph("sub", Arc::clone(&inner)).edge(START, "plan").edge("plan", "sub");
        g.join(["sub", "w"], "last");
    })
}

/// As [`mixed`], with a stop before the last node of `sub` instead of a question.
fn stopping(runs: &Runs) -> CompiledGraph {
    let inner = part("inner", |g| {
        g.node("p", logs("inside", "p", runs)).node("q", works("q", runs)).edge(START, "p").edge("p", "q");
        g.break_before("q");
    });
    flow("flow", |g| {
        g.node("plan", sends("w", 2)).node("w", telling(runs)).node("last", logs("log", "last", runs));
        g.subgraph("sub", inner).edge(START, "plan").edge("plan", "sub").join(["sub", "w"], "last");
    })
}

/// Says how far it is, and keeps something that is worth a reference.
fn telling(runs: &Runs) -> countersign_kernel::node::SharedBody {
    with(runs, |cx, runs| async move {
        let n = cx.argument_as::<Value>()?["n"].clone();
        runs.hit(format!("w {n}"));
        cx.emit(json!({"half": n})).await?;
        Ok(Writes::none().with("log", &[format!("the work with the number {n} is done")]))
    })
}

async fn events(engine: &TestEngine, thread: &ThreadId) -> Vec<EventView> {
    engine.store.events(thread, None, 10_000).await.expect("there").events
}

/// Where something happened: frame and task.
fn place(data: &Value) -> (String, String) {
    let text = |name: &str| data[name].as_str().unwrap_or("").to_owned();
    (text("frame_id"), text("address"))
}

/// Asserts what holds of the events of every thread: numbers without gaps, one
/// update for each task that finished, and for each checkpoint of the history
/// of each frame one event with its values.
async fn are_sound(engine: &TestEngine, thread: &ThreadId, events: &[EventView]) {
    assert!((1..).zip(events).all(|(number, event)| event.id == number), "{events:#?}");
    let of_kind = |kind: &'static str| events.iter().filter(move |event| event.kind == kind);
    let updated: Vec<_> = of_kind("updates").map(|event| place(&event.data)).collect();
    let unique: BTreeSet<_> = updated.iter().collect();
    assert_eq!(unique.len(), updated.len(), "once per finished task: {updated:#?}");
    let done: BTreeSet<_> = of_kind("tasks").filter(|e| e.data["state"] == "done").map(|e| place(&e.data)).collect();
    assert_eq!(done.iter().collect::<BTreeSet<_>>(), unique, "finished tasks and no others");

    let mut told: BTreeMap<Option<String>, Vec<(String, Value)>> = BTreeMap::new();
    for event in of_kind("values") {
        let frame = event.data["frame_id"].as_str().map(str::to_owned);
        let id = event.data["checkpoint_id"].as_str().expect("an id").to_owned();
        let chain = engine.store.archived(thread, &CheckpointId::parse(&id).expect("an id")).await.expect("there");
        let values = chain.last().expect("one at least").archived.values.to_object();
        told.entry(frame).or_default().push((id, Value::Object(values)));
    }
    assert!(told.contains_key(&None));
    for (frame, told) in told {
        let frame = frame.map(|id| FrameId::parse(id).expect("an id"));
        let mut history = engine.store.history(thread, frame.as_ref(), None, 1_000).await.expect("there");
        history.reverse();
        let history: Vec<_> =
            history.into_iter().map(|entry| (entry.checkpoint.to_string(), Value::Object(entry.state))).collect();
        assert_eq!(told, history, "{frame:?}");
    }
}

/// What was written to a key, over all updates.
fn written<'e>(events: &'e [EventView], key: &str) -> Vec<&'e Value> {
    let updates = events.iter().filter(|event| event.kind == "updates");
    updates.filter_map(|event| event.data["writes"].get(key)).collect()
}

async fn a_run_with_a_fan_out_and_a_sub_graph_is_told_whole_and_in_order() {
    let runs = Runs::default();
    let world = World::one(move || mixed(&runs));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    let parked = events(&engine, &thread).await;
    are_sound(&engine, &thread, &parked).await;
    assert_eq!(parked.last().map(|event| &event.data), Some(&json!({"status": "parked"})), "a stop is no error");
    let opened: Vec<_> = parked.iter().filter(|event| event.kind == "interrupts").collect();
    assert_eq!(opened.len(), 1);
    assert_eq!(
        (&opened[0].data["interrupt_id"], &opened[0].data["payload"]),
        (&json!(open[0].id.as_str()), &json!("q?"))
    );
    assert_eq!(opened[0].data["frame_id"], json!(open[0].frame.as_ref().expect("inside").as_str()));

    engine.vote(&open[0].id, &operator(), json!("yes")).await.expect("taken");
    let detail = engine.rests(&thread, "succeeded").await;
    let all = events(&engine, &thread).await;
    are_sound(&engine, &thread, &all).await;
    assert_eq!(all[..parked.len()], parked, "what was told stays told");
    let statuses: Vec<_> = all.iter().filter(|e| e.kind == "status").map(|e| e.data["status"].clone()).collect();
    assert_eq!(statuses, ["queued", "running", "parked", "queued", "running", "succeeded"]);
    let starts: BTreeMap<_, Vec<_>> =
        all.iter().filter(|event| event.data["state"] == "started").fold(BTreeMap::new(), |mut starts, event| {
            let of: &mut Vec<_> = starts.entry(event.data["task"].as_str().expect("a task")).or_default();
            of.push(event.data["how"].as_str().expect("a word"));
            starts
        });
    let expected: BTreeMap<_, _> = [
        ("plan", vec!["fresh"]),
        ("w#0", vec!["fresh"]),
        ("w#1", vec!["fresh"]),
        ("sub", vec!["fresh", "target"]),
        ("p", vec!["fresh"]),
        ("q", vec!["fresh", "target"]),
        ("last", vec!["fresh"]),
    ]
    .into();
    assert_eq!(starts, expected);
    assert_eq!(written(&all, "inside"), [&json!(["p"])]);
    assert_eq!(written(&all, "log").len(), 3);
    assert_eq!(detail.state["log"].as_array().map(Vec::len), Some(3));
    let custom: BTreeSet<_> = all.iter().filter(|e| e.kind == "custom").map(|e| e.data.to_string()).collect();
    assert_eq!(custom.len(), 2, "{custom:?}");
}

async fn what_a_body_says_is_seen_while_it_still_runs() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let shared = (runs.clone(), gate.clone());
    let world = World::one(move || {
        let inner = part("inner", |g| {
            g.node(
                "slow",
                with(&shared, |cx, (_, gate)| async move {
                    for done in 1..=3 {
                        cx.emit(json!({"done": done})).await?;
                    }
                    gate.pass().await;
                    Ok(Writes::none())
                }),
            )
            .edge(START, "slow");
        });
        flow("flow", |g| {
            g.subgraph("sub", inner).node("quick", works("quick", &shared.0)).edge(START, "sub").edge(START, "quick");
        })
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let mut watching = engine.store.journal().watch(&thread);
    let said = async || {
        let events = events(&engine, &thread).await;
        events.into_iter().filter(|event| event.kind == "custom").map(|event| event.data).collect::<Vec<_>>()
    };
    while said().await.len() < 3 {
        tokio::time::timeout(crate::support::DEADLINE, watching.news()).await.expect("news");
    }
    let expected: Vec<_> =
        (1..=3).map(|done| json!({"address": "flow/sub@0/slow@0", "payload": {"done": done}})).collect();
    assert_eq!(said().await, expected);
    assert_eq!(engine.detail(&thread).await.summary.status, "running");
    let so_far = events(&engine, &thread).await;
    let state = |task: &str, state: &str| so_far.iter().any(|e| e.data["task"] == task && e.data["state"] == state);
    assert!(state("slow", "started") && state("sub", "started") && !state("slow", "done"), "{so_far:#?}");
    gate.open();
    engine.rests(&thread, "succeeded").await;
    are_sound(&engine, &thread, &events(&engine, &thread).await).await;
}

async fn a_finished_task_is_told_with_the_flush_that_keeps_it_and_not_before() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let shared = (runs.clone(), gate.clone());
    let world = World::one(move || {
        flow("flow", |g| {
            g.node("quick", works("quick", &shared.0)).node("slow", hangs("slow", &shared.0, &shared.1));
            g.edge(START, "quick").edge(START, "slow");
        })
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.flushed(&thread, 1).await;
    let now = events(&engine, &thread).await;
    let finished: Vec<_> = now.iter().filter(|event| event.kind == "updates").map(|e| &e.data["task"]).collect();
    assert_eq!(finished, [&json!("quick")]);
    assert_eq!(engine.detail(&thread).await.summary.status, "running");
    gate.open();
    engine.rests(&thread, "succeeded").await;
    are_sound(&engine, &thread, &events(&engine, &thread).await).await;
}

async fn failures_retries_and_pauses_are_told_as_what_they_are() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let shared = (runs.clone(), gate.clone());
    let world = World::one(move || {
        flow("flow", |g| {
            g.node("bad", fails("bad", 1, &shared.0)).node("slow", hangs("slow", &shared.0, &shared.1));
            g.edge(START, "bad").edge("bad", "slow");
        })
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.rests(&thread, "failed").await;
    engine.engine.retry(&thread, &operator()).await.expect("something failed");
    gate.arrived(1).await;
    engine.engine.pause(&thread, true, &operator()).await.expect("it runs");
    let stop = engine.parked(&thread).await;
    gate.open();
    engine.vote(&stop[0].id, &operator(), Value::Null).await.expect("released");
    engine.rests(&thread, "succeeded").await;
    let all = events(&engine, &thread).await;
    let line = |event: &EventView| {
        let data = &event.data;
        let text = |name: &str| data[name].as_str().unwrap_or("").to_owned();
        match event.kind {
            "tasks" => format!("{} {} {}", text("task"), text("state"), text("how") + &text("error")),
            "status" => format!("{} {}", text("status"), text("reason")),
            "interrupts" => format!("{} {}", text("state"), text("kind") + &text("status")),
            _ => String::new(),
        }
    };
    let lines: Vec<String> =
        all.iter().map(|event| line(event).trim_end().to_owned()).filter(|l| !l.is_empty()).collect();
    let expected = [
        "queued",
        "running",
        "bad started fresh",
        "bad failed bad has no line",
        "failed bad: bad has no line",
        "queued",
        "running",
        "bad started retry",
        "bad done",
        "slow started fresh",
        "slow stopped",
        "opened pause",
        "parked",
        "closed answered",
        "queued",
        "running",
        "slow started fresh",
        "slow done",
        "succeeded",
    ];
    assert_eq!(lines, expected);
    are_sound(&engine, &thread, &all).await;
}

async fn a_result_that_cannot_be_applied_is_told_as_a_failure_alone() {
    let world = World::one(move || {
        let both = || with(&(), |_, ()| async { Ok(Writes::none().with("n", &1)) });
        let inner = part("inner", |g| {
            g.node("a", both()).node("b", both()).edge(START, "a").edge(START, "b");
        });
        flow("flow", |g| {
            g.subgraph("sub", inner).edge(START, "sub");
        })
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.rests(&thread, "failed").await;
    let all = events(&engine, &thread).await;
    let of =
        |task: &str, state: &str| all.iter().filter(|e| e.data["task"] == task && e.data["state"] == state).count();
    // Of two that finish side by side one may have been kept before the other.
    assert_eq!((of("a", "failed"), of("b", "failed"), of("sub", "failed")), (1, 1, 1), "{all:#?}");
    assert!(of("b", "done") == 0, "{all:#?}");
}

async fn edits_and_replays_are_told_with_what_they_close_and_open() {
    use countersign_kernel::machine::{Edit, Resume};
    use countersign_worker::engine::{EditRequest, ReplayRequest};

    let runs = Runs::default();
    let world = World::one(move || {
        flow("flow", |g| {
            g.node("a", asks("a", &runs)).node("b", asks("b", &runs)).edge(START, "a").edge("a", "b");
        })
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    let edit = EditRequest {
        thread: thread.clone(),
        edit: Edit { values: json!({"got": {"a": 1}}).as_object().cloned(), as_node: Some("a".into()) },
        expected_head: None,
        at: None,
        frame: None,
        principal: operator(),
    };
    engine.engine.edit(edit).await.expect("edited");
    let history = engine.history(&thread).await;
    let replay = ReplayRequest {
        thread: thread.clone(),
        checkpoint: history.last().expect("the first").checkpoint.clone(),
        input: None,
        re_execute: false,
        resume: Resume::default(),
        principal: operator(),
    };
    engine.engine.replay(&replay, &|_, _, _| None).await.expect("replayed");
    engine.parked(&thread).await;
    let all = events(&engine, &thread).await;
    let line = |event: &EventView| match event.kind {
        "interrupts" => event.data["status"].as_str().or(event.data["kind"].as_str()).unwrap_or("").to_owned(),
        "status" => event.data["status"].as_str().unwrap_or("").to_owned(),
        "values" => format!("{} {}", event.data["source"].as_str().unwrap_or(""), event.data["superstep"]),
        _ => String::new(),
    };
    let lines: Vec<String> = all.iter().map(line).filter(|line| !line.is_empty()).collect();
    let expected = [
        "input 0",
        "queued",
        "running",
        "interrupt",
        "parked",
        "superseded",
        "update 1",
        "pause",
        "parked",
        "superseded",
        "fork 0",
        "queued",
        "running",
        "interrupt",
        "parked",
    ];
    assert_eq!(lines, expected, "{all:#?}");
    are_sound(&engine, &thread, &all).await;
}

/// Answers what is asked until the thread has succeeded.
async fn finishes(engine: &TestEngine, thread: &ThreadId) {
    let mut watching = engine.store.journal().watch(thread);
    loop {
        let detail = engine.detail(thread).await;
        match detail.summary.status.as_str() {
            "succeeded" => return,
            "parked" => {
                assert!(!detail.interrupts.is_empty(), "parked with nothing to answer");
                for open in detail.interrupts {
                    let answer = if open.kind == "break" { Value::Null } else { json!("yes") };
                    engine.vote(&open.id, &operator(), answer).await.expect("taken");
                }
            }
            _ => watching.news().await,
        }
    }
}

/// Runs the flow to its end in a folder whose process dies of write `n`, and
/// looks at what was told. Says whether it came to that.
async fn dying_of(n: u32, dies: Dies, flow: fn(&Runs) -> CompiledGraph) -> bool {
    let what = format!("{n} {dies:?}");
    let (runs, fate) = (Runs::default(), Fate::at(n, dies));
    let world = World::one(move || flow(&runs)).meeting(&fate);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let died = tokio::select! {
        () = finishes(&engine, &thread) => false,
        () = fate.death() => true,
    };
    let seen = events(&engine, &thread).await;
    if died {
        engine.crash().await;
        engine = world.engine().await;
        let finished = tokio::time::timeout(crate::support::DEADLINE, finishes(&engine, &thread)).await;
        assert!(finished.is_ok(), "{what}: {:#?}", events(&engine, &thread).await);
    }
    let all = events(&engine, &thread).await;
    assert_eq!(all[..seen.len()], seen, "{what}");
    are_sound(&engine, &thread, &all).await;
    assert_eq!(written(&all, "inside"), [&json!(["p"])], "{what}");
    assert_eq!(written(&all, "log").len(), 3, "{what}");
    died
}

async fn a_crash_at_any_write_tells_nothing_twice_and_loses_nothing() {
    for flow in [mixed, stopping] {
        for dies in [Dies::Before, Dies::After] {
            let mut write = 0;
            while dying_of(write, dies, flow).await {
                write += On::one_of();
            }
            assert!(write > 8, "{write}");
        }
    }
}

async fn an_engine_without_events_keeps_none_and_bodies_say_things_to_nobody() {
    let runs = Runs::default();
    let world = World::one(move || mixed(&runs)).configured(|config| config.events = false);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    engine.vote(&open[0].id, &operator(), json!("yes")).await.expect("taken");
    engine.rests(&thread, "succeeded").await;
    assert_eq!(events(&engine, &thread).await, []);
}

async fn an_event_that_is_too_large_fails_its_node() {
    let world = World::one(|| {
        flow("flow", |g| {
            g.node(
                "n",
                with(&(), |cx, ()| async move {
                    cx.emit("x".repeat(300_000)).await?;
                    Ok::<_, NodeError>(got("n", &json!(1)))
                }),
            )
            .edge(START, "n");
        })
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let failed = engine.rests(&thread, "failed").await;
    assert!(failed.summary.error.as_deref().is_some_and(|error| error.contains("payload_bytes")), "{failed:?}");
}
