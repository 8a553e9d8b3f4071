//! Threads that wait under one build and go on under another: nothing of them
//! is migrated twice, whoever dies, and their past stays as it was.

use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::ids::{CheckpointId, ThreadId};
use countersign_kernel::machine::{Amend, Resume};
use countersign_kernel::state::{Reducer, Writes};
use countersign_worker::engine::{ReplayRequest, RequestError, ResumeRequest};
use serde_json::{Value, json};

use super::versions::{deployed, flow};
use crate::support::flows::{asks, with, works};
use crate::support::{Dies, Fate, On, Runs, TestEngine, World, operator};

engine!(
    what_finished_tasks_have_written_is_migrated_once_whichever_build_they_ran_under,
    an_amendment_is_the_first_checkpoint_of_the_new_version_and_takes_the_old_results_along,
    a_process_that_dies_anywhere_under_the_new_build_migrates_nothing_twice,
    a_replay_from_an_old_checkpoint_is_migrated_and_history_stays,
    a_replay_of_what_does_not_fit_is_refused_and_moves_nothing,
    a_replay_inside_a_sub_graph_is_migrated_by_the_versions_of_both,
);

/// Two questions side by side, the first of which is about `n`; then one more.
/// In version 2 `n` and `m` are one more than they were, and the names of the
/// nodes and of the lists have changed places: whatever is migrated twice shows.
fn swapped(version: u32) -> CompiledGraph {
    let (a, b, log) = if version > 1 { ("b", "a", "list") } else { ("a", "b", "log") };
    flow(version, move |g| {
        let asks = |name: &'static str| {
            with(&(), move |cx, ()| async move {
                let answer = cx.interrupt(format!("{name}?")).await?;
                let writes = Writes::none().with(log, &[name]);
                Ok(if name == "first" { writes.with("n", &answer) } else { writes })
            })
        };
        g.key("list", Reducer::Append).node(a, asks("first")).node(b, asks("second")).node("last", asks("last"));
        g.edge(START, a).edge(START, b).join([a, b], "last");
        if version > 1 {
            let one_more = |n: Value| n.as_i64().map(|n| json!(n + 1)).ok_or_else(|| "no number".to_owned());
            g.migrate(1, |m| {
                m.rename_node("a", "x").rename_node("b", "a").rename_node("x", "b");
                m.rename_key("log", "x").rename_key("list", "log").rename_key("x", "list");
                m.change_key("n", one_more).change_key("m", one_more);
            });
        }
    })
}

async fn vote(engine: &TestEngine, thread: &ThreadId, payload: &str, answer: Value) {
    let points = engine.detail(thread).await.interrupts;
    let point = points.iter().find(|point| point.payload == payload).expect("open");
    engine.vote(&point.id, &operator(), answer).await.expect("accepted");
}

const SWAPPED: &str = r#"{"n": 1, "m": 10, "log": ["in"]}"#;

fn has_been_migrated_once(state: &serde_json::Map<String, Value>, n: i64) {
    assert_eq!((&state["n"], &state["m"]), (&json!(n), &json!(11)));
    assert_eq!((&state["list"], state.get("log")), (&json!(["in", "first", "second", "last"]), Some(&json!([]))));
}

async fn what_finished_tasks_have_written_is_migrated_once_whichever_build_they_ran_under() {
    for under_the_old_build in [true, false] {
        let world = World::one(|| swapped(1));
        let mut engine = world.engine().await;
        let thread = engine.start("flow", serde_json::from_str(SWAPPED).expect("JSON")).await;
        engine.parked(&thread).await;
        let mut world = world;
        if under_the_old_build {
            vote(&engine, &thread, "first?", json!(5)).await;
            engine.parked(&thread).await;
        }
        (world, engine) = deployed(world, engine, || swapped(2)).await;
        if !under_the_old_build {
            vote(&engine, &thread, "first?", json!(5)).await;
            engine.parked(&thread).await;
        }
        (world, engine) = deployed(world, engine, || swapped(2)).await;
        assert_eq!(engine.engine.view(&thread).await.expect("there").next, ["a"]);
        vote(&engine, &thread, "second?", json!(0)).await;
        engine.parked(&thread).await;
        (world, engine) = deployed(world, engine, || swapped(2)).await;
        vote(&engine, &thread, "last?", json!(0)).await;
        let done = engine.rests(&thread, "succeeded").await;
        has_been_migrated_once(&done.state, if under_the_old_build { 6 } else { 5 });
        let oldest = engine.history(&thread).await.pop().expect("the first");
        assert_eq!(Value::Object(oldest.state), serde_json::from_str::<Value>(SWAPPED).expect("JSON"));
        drop(world);
    }
}

async fn an_amendment_is_the_first_checkpoint_of_the_new_version_and_takes_the_old_results_along() {
    let world = World::one(|| swapped(1));
    let engine = world.engine().await;
    let thread = engine.start("flow", serde_json::from_str(SWAPPED).expect("JSON")).await;
    engine.parked(&thread).await;
    vote(&engine, &thread, "first?", json!(5)).await;
    engine.parked(&thread).await;
    let (world, engine) = deployed(world, engine, || swapped(2)).await;
    let amend = Amend { update: json!({"got": {"by": "hand"}}).as_object().cloned().unwrap_or_default(), goto: vec![] };
    let request = ResumeRequest { amend, principal: operator(), operator: true, ..ResumeRequest::new(thread.clone()) };
    engine.engine.resume(request).await.expect("accepted");
    let parked = engine.rests(&thread, "parked").await;
    assert_eq!((&parked.state["m"], &parked.state["list"]), (&json!(11), &json!(["in"])));
    let (_world, engine) = deployed(world, engine, || swapped(2)).await;
    for (question, status) in [("second?", "parked"), ("last?", "succeeded")] {
        vote(&engine, &thread, question, json!(0)).await;
        engine.rests(&thread, status).await;
    }
    let state = engine.detail(&thread).await.state;
    has_been_migrated_once(&state, 6);
    assert_eq!(state["got"], json!({"by": "hand"}));
}

/// Goes on under version 2 with both answers and the last one; says how many
/// writes of activations that took.
async fn goes_on_whoever_dies(fate: Fate) -> u32 {
    let world = World::one(|| swapped(1));
    let engine = world.engine().await;
    let thread = engine.start("flow", serde_json::from_str(SWAPPED).expect("JSON")).await;
    engine.parked(&thread).await;
    engine.idles().await;
    engine.crash().await;
    // Only the new build meets its fate: how often the old one claims is a
    // matter of timing, and would shift the numbers of the writes that count.
    let world = world.with_graphs(|| vec![swapped(2)]).meeting(&fate);
    let mut engine = world.engine().await;
    let mut died = false;
    for (question, value, status) in [("first?", 5, "parked"), ("second?", 0, "parked"), ("last?", 0, "succeeded")] {
        vote(&engine, &thread, question, json!(value)).await;
        let dies = tokio::select! {
            _ = engine.rests(&thread, status) => false,
            () = fate.death(), if !died => true,
        };
        if dies {
            died = true;
            engine.crash().await;
            engine = world.engine().await;
            engine.rests(&thread, status).await;
        }
    }
    has_been_migrated_once(&engine.detail(&thread).await.state, 5);
    fate.writes()
}

async fn a_process_that_dies_anywhere_under_the_new_build_migrates_nothing_twice() {
    let all = goes_on_whoever_dies(Fate::kind()).await;
    assert!(all > 6, "{all}");
    for (n, dies) in (0..all).flat_map(|n| [(n, Dies::Before), (n, Dies::After)]).step_by(On::one_of() as usize) {
        goes_on_whoever_dies(Fate::at(n, dies)).await;
    }
}

async fn replayed(engine: &TestEngine, thread: &ThreadId, checkpoint: &CheckpointId) -> Result<(), RequestError> {
    let request = ReplayRequest {
        thread: thread.clone(),
        checkpoint: checkpoint.clone(),
        input: None,
        re_execute: false,
        resume: Resume::default(),
        principal: operator(),
    };
    engine.engine.replay(&request, &|_, _, _| None).await.map(|_| ())
}

async fn a_replay_from_an_old_checkpoint_is_migrated_and_history_stays() {
    let world = World::one(|| swapped(1));
    let engine = world.engine().await;
    let thread = engine.start("flow", serde_json::from_str(SWAPPED).expect("JSON")).await;
    engine.parked(&thread).await;
    let (world, engine) = deployed(world, engine, || swapped(2)).await;
    for (question, status) in [("first?", "parked"), ("second?", "parked"), ("last?", "succeeded")] {
        vote(&engine, &thread, question, json!(5)).await;
        engine.rests(&thread, status).await;
    }
    let before = engine.history(&thread).await;
    replayed(&engine, &thread, &before[before.len() - 1].checkpoint).await.expect("accepted");
    engine.parked(&thread).await;
    let (_world, engine) = deployed(world, engine, || swapped(2)).await;
    for (question, status) in [("second?", "parked"), ("first?", "parked"), ("last?", "succeeded")] {
        vote(&engine, &thread, question, json!(7)).await;
        engine.rests(&thread, status).await;
    }
    has_been_migrated_once(&engine.detail(&thread).await.state, 7);
    let after = engine.history(&thread).await;
    assert_eq!(after[after.len() - before.len()..], before[..]);
}

async fn a_replay_of_what_does_not_fit_is_refused_and_moves_nothing() {
    let build = |version, node: &'static str| {
        move || {
            flow(version, |g| {
                g.node(node, works(node, &Runs::default())).node("ask", asks("ask", &Runs::default()));
                g.edge(START, node).edge(node, "ask");
            })
        }
    };
    let world = World::one(build(1, "first"));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    let (_world, engine) = deployed(world, engine, build(2, "other")).await;
    let before = engine.history(&thread).await;
    let refused = replayed(&engine, &thread, &before[1].checkpoint).await.expect_err("gone");
    assert!(matches!(&refused, RequestError::Misfit(misfit) if misfit.to_string().contains("`first`")), "{refused}");
    assert_eq!((engine.history(&thread).await, engine.parked(&thread).await.len()), (before, 1));
}

async fn a_replay_inside_a_sub_graph_is_migrated_by_the_versions_of_both() {
    let build = |version, node: &'static str, key: &'static str| {
        move || {
            let mut inner = GraphBuilder::new("inner", version + 1);
            let notes = with(&(), move |_, ()| async move { Ok(Writes::none().with(key, &["first"])) });
            let ends = with(&(), move |cx, ()| async move {
                let answer = cx.interrupt("inside?").await?;
                let list = cx.state().values().get(key).cloned().unwrap_or_default();
                Ok(Writes::none().with("got", &json!({"answer": answer, "list": list})))
            });
            inner.key("got", Reducer::Merge).key(key, Reducer::Append).node("first", notes).node(node, ends);
            inner.edge(START, "first").edge("first", node).migrate(2, |m| {
                m.rename_node("old", "new").rename_key("inside", "within");
                m.change_key("within", |list| Ok(json!([list, "changed"])));
            });
            let inner = inner.compile().expect("sound");
            let sub = if version == 1 { "sub" } else { "part" };
            flow(version, |g| {
                g.subgraph(sub, inner).edge(START, sub).migrate(1, |m| _ = m.rename_node("sub", "part"));
            })
        }
    };
    let world = World::one(build(1, "old", "inside"));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    let frame = engine.engine.view(&thread).await.expect("there").frames.remove(0);
    let (_world, engine) = deployed(world, engine, build(2, "new", "within")).await;
    replayed(&engine, &thread, &frame.checkpoint).await.expect("accepted");
    engine.parked(&thread).await;
    let view = engine.engine.view(&thread).await.expect("there");
    vote(&engine, &thread, "inside?", json!("A")).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"answer": "A", "list": [["first"], "changed"]}), "{view:?}");
}
