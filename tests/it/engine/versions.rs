//! Threads that wait under one build and go on under another: their nodes.

use std::sync::Arc;

use countersign_kernel::graph::{CompiledGraph, GraphBuilder, Migration, START};
use countersign_kernel::ids::ThreadId;
use countersign_kernel::machine::Edit;
use countersign_kernel::prelude::*;
use countersign_kernel::state::{Reducer, Writes};
use countersign_worker::engine::{EditRequest, Edited, RequestError};
use countersign_worker::store::Store as _;
use serde_json::{Value, json};

use super::graphs::{CONTINUE, RETRY};
use crate::support::flows::{asks, fails, got, hangs, logs, pays, with, works};
use crate::support::{Gate, Outbox, Runs, TestEngine, World, ann, eventually, operator};

engine!(
    a_request_in_a_renamed_node_keeps_its_id_its_mails_and_what_was_done,
    without_a_migration_the_answer_waits_with_the_thread_for_a_build_that_fits,
    an_edit_as_another_node_gets_a_thread_out_of_a_node_that_is_gone,
    a_failed_node_is_tried_again_under_its_new_name,
    a_stop_that_was_passed_is_not_migrated_twice,
    a_graph_inside_is_migrated_by_its_own_version,
    a_graph_that_a_body_calls_is_migrated_as_well_or_fails_its_node_with_the_reason,
    a_node_that_runs_another_graph_now_holds_what_waits_in_the_old_one,
    nodes_that_come_and_go_elsewhere_change_nothing_for_what_waits,
    another_graph_under_the_same_version_goes_on_if_it_fits,
    a_join_that_is_gone_when_half_its_sources_have_run_holds_the_thread,
    an_older_build_or_one_without_the_graph_holds_and_the_right_one_goes_on,
);

/// Version `version` of `flow`, with the keys `got` (merge), `log` (append),
/// `n` and `m` (last value).
pub(super) fn flow(version: u32, build: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    named("flow", version, build)
}

fn named(name: &str, version: u32, build: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    let mut g = GraphBuilder::new(name, version);
    g.key("got", Reducer::Merge).key("log", Reducer::Append).key("n", Reducer::Last).key("m", Reducer::Last);
    build(&mut g);
    g.compile().expect("a sound flow")
}

/// The folder under another build, once the present one has nothing to do.
pub(super) async fn deployed(
    world: World,
    engine: TestEngine,
    graph: impl Fn() -> CompiledGraph + Send + Sync + 'static,
) -> (World, TestEngine) {
    engine.idles().await;
    engine.crash().await;
    let world = world.with_graphs(move || vec![graph()]);
    let engine = world.engine().await;
    (world, engine)
}

pub(super) async fn edit(
    engine: &TestEngine,
    thread: &ThreadId,
    node: Option<&str>,
    values: Value,
) -> Result<Edited, RequestError> {
    let values = values.as_object().cloned();
    let request = EditRequest {
        thread: thread.clone(),
        edit: Edit { values, as_node: node.map(str::to_owned) },
        expected_head: None,
        at: None,
        frame: None,
        principal: operator(),
    };
    engine.engine.edit(request).await
}

/// Why the thread is held.
pub(super) async fn held(engine: &TestEngine, thread: &ThreadId) -> String {
    engine.rests(thread, "held").await.summary.held_reason.expect("a reason")
}

async fn retry(engine: &TestEngine, thread: &ThreadId) {
    engine.engine.retry(thread, &operator()).await.expect("accepted");
}

/// One node that asks managers by mail, after an effect.
fn asking(version: u32, node: &str, runs: &Runs, changes: impl FnOnce(&mut Migration)) -> CompiledGraph {
    let body = with(runs, |cx, runs| async move {
        runs.hit("asks");
        cx.step("book", async move |key| Ok::<_, NodeError>(runs.hit(key.to_string()))).await?;
        let decision = cx.ask(approval("May we?").to(role("manager"))).await?;
        Ok(got("approved", &json!(decision.approved)))
    });
    flow(version, |g| {
        g.node(node, body).node("last", works("last", runs)).edge(START, node).edge(node, "last").migrate(1, changes);
    })
}

async fn a_request_in_a_renamed_node_keeps_its_id_its_mails_and_what_was_done() {
    let (runs, outbox) = (Runs::default(), Outbox::taking());
    let world = World::one({
        let runs = runs.clone();
        move || asking(1, "old", &runs, |_| ())
    });
    let world = world.sending_through(&outbox);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let before = engine.parked(&thread).await;
    eventually("both managers have their mail", || async {
        let sent = engine.store.deliveries(None, Some("sent"), 10).await.expect("it reads");
        (sent.len() == 2).then_some(())
    })
    .await;
    let effects = runs.clone();
    let (world, engine) =
        deployed(world, engine, move || asking(2, "new", &effects, |m| _ = m.rename_node("old", "new"))).await;
    assert_eq!(engine.parked(&thread).await, before);
    assert_eq!(engine.engine.view(&thread).await.expect("there").next, ["new"]);
    engine.vote(&before[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"approved": true, "last": "done"}));
    assert_eq!((runs.of("asks"), runs.of("last"), runs.all().len()), (2, 1, 3), "the effect was made once");
    assert_eq!(outbox.attempts().len(), 2, "nobody was asked twice");
    assert_eq!(done.summary.graph_version, 2);
    let mut next: Vec<_> = engine.history(&thread).await.into_iter().map(|entry| entry.next).collect();
    next.reverse();
    assert_eq!(next, [vec!["old"], vec!["last"], vec![]], "what was is shown as it was");
    let rows = world.texts("SELECT graph_version || ' ' || fingerprint FROM checkpoints ORDER BY seq").await;
    let of = |graph: CompiledGraph| format!("{} {}", graph.version(), graph.fingerprint());
    let (one, two) = (of(asking(1, "old", &runs, |_| ())), of(asking(2, "new", &runs, |_| ())));
    assert_eq!(rows, [one, two.clone(), two]);
}

async fn without_a_migration_the_answer_waits_with_the_thread_for_a_build_that_fits() {
    let runs = Runs::default();
    let build = |version, node: &'static str, renamed: bool| {
        let runs = runs.clone();
        move || {
            asking(version, node, &runs, |m| {
                if renamed {
                    m.rename_node("old", "new");
                }
            })
        }
    };
    let world = World::one(build(1, "old", false));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let point = engine.parked(&thread).await.remove(0);

    let (world, engine) = deployed(world, engine, build(2, "new", false)).await;
    assert_eq!(engine.detail(&thread).await.summary.status, "parked", "it waits for people, not for a build");
    let voted = engine.vote(&point.id, &ann(), json!({"approved": true})).await.expect("accepted");
    assert!(voted.decided);
    let reason = held(&engine, &thread).await;
    assert!(reason.contains("version 2 of graph `flow` has no node `old`, which is due"), "{reason}");
    retry(&engine, &thread).await;
    held(&engine, &thread).await;
    assert_eq!(runs.of("asks"), 1);

    let (_world, engine) = deployed(world, engine, build(3, "new", true)).await;
    retry(&engine, &thread).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"]["approved"], runs.of("asks")), (&json!(true), 2));
    assert!(done.runs.iter().all(|run| run.finished_at.is_some()));
}

async fn an_edit_as_another_node_gets_a_thread_out_of_a_node_that_is_gone() {
    let runs = Runs::default();
    let world = World::one({
        let runs = runs.clone();
        move || asking(1, "old", &runs, |_| ())
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let point = engine.parked(&thread).await.remove(0);
    let bodies = runs.clone();
    let (_world, engine) = deployed(world, engine, move || asking(2, "new", &bodies, |_| ())).await;
    engine.vote(&point.id, &ann(), json!({"approved": true})).await.expect("accepted");
    held(&engine, &thread).await;
    edit(&engine, &thread, Some("new"), json!({"got": {"by": "hand"}})).await.expect("accepted");
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"by": "hand", "last": "done"}));
    assert_eq!(engine.store.interrupt(&point.id).await.expect("there").status, "answered");
    assert_eq!((runs.of("asks"), done.interrupts.len()), (1, 0));
}

async fn a_failed_node_is_tried_again_under_its_new_name() {
    let runs = Runs::default();
    let build = |version, node: &'static str| {
        let runs = runs.clone();
        move || {
            flow(version, |g| {
                g.node(node, fails("n", 1, &runs)).node("beside", asks("beside", &runs));
                g.edge(START, node).edge(START, "beside").migrate(1, |m| _ = m.rename_node("old", "new"));
            })
        }
    };
    let world = World::one(build(1, "old"));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let failed = engine.rests(&thread, "failed").await;
    assert_eq!(failed.summary.error.as_deref(), Some("old: n has no line"));
    let (_world, engine) = deployed(world, engine, build(2, "new")).await;
    let answer = [(failed.interrupts[0].id.clone(), json!("A"))];
    engine.resume(&thread, answer, RETRY).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"beside": "A", "n": "at last"}));
    assert_eq!((runs.of("n"), runs.of("beside")), (2, 2));
}

async fn a_stop_that_was_passed_is_not_migrated_twice() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    // The names go round, so that renaming twice would run another node.
    let build = |version, [a, b]: [&'static str; 2]| {
        let (runs, gate) = (runs.clone(), gate.clone());
        move || {
            flow(version, |g| {
                g.node(a, hangs("first", &runs, &gate)).node(b, works("second", &runs)).edge(START, a).edge(a, b);
                g.break_before(a).migrate(1, |m| {
                    m.rename_node("a", "x").rename_node("b", "a").rename_node("x", "b");
                });
            })
        }
    };
    let world = World::one(build(1, ["a", "b"]));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    let (world, engine) = deployed(world, engine, build(2, ["b", "a"])).await;
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    gate.arrived(1).await;
    engine.engine.pause(&thread, true, &operator()).await.expect("accepted");
    let points = engine.parked(&thread).await;
    assert_eq!((points.len(), points[0].kind.as_str()), (1, "pause"));
    let history = engine.history(&thread).await;
    assert_eq!((history.len(), &history[0].next), (1, &vec!["a".to_owned()]), "as the old build left it");

    let (_world, engine) = deployed(world, engine, build(2, ["b", "a"])).await;
    assert_eq!(engine.engine.view(&thread).await.expect("there").next, ["b"]);
    gate.open();
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"first": "passed", "second": "done"}));
    assert_eq!((runs.of("first"), runs.of("second")), (2, 1));
}

/// `sub` runs `inner` at its own version, in which this node asks.
fn nested(versions: (u32, u32), node: &'static str, sub: bool, runs: &Runs) -> CompiledGraph {
    let inner = Arc::new(named("inner", versions.1, |g| {
        g.node("first", logs("log", "first", runs)).node(node, pays("ask", runs)).edge(START, "first");
        g.edge("first", node).migrate(1, |m| {
            m.rename_node("old", "new").rename_key("log", "steps");
        });
        g.key("steps", Reducer::Append);
    }));
    flow(versions.0, |g| {
        if sub {
            g.subgraph("sub", inner);
        } else {
            let body = with(&inner, |cx, inner| async move {
                let end = cx.graph("call", &inner, json!({})).await?;
                Ok(got("all", &Value::Object(end)))
            });
            g.node("sub", body);
        }
        g.node("beside", asks("beside", runs)).edge(START, "sub").edge(START, "beside");
    })
}

async fn a_graph_inside_is_migrated_by_its_own_version() {
    let runs = Runs::default();
    let build = |versions, node| {
        let runs = runs.clone();
        move || nested(versions, node, true, &runs)
    };
    let world = World::one(build((1, 1), "old"));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let points = engine.parked(&thread).await;
    let (world, engine) = deployed(world, engine, build((1, 2), "other")).await;
    engine.vote(&points[1].id, &operator(), json!("A")).await.expect("accepted");
    let reason = held(&engine, &thread).await;
    assert!(reason.contains("version 2 of graph `inner` has no node `new`"), "{reason}");

    let (world, engine) = deployed(world, engine, build((1, 2), "new")).await;
    retry(&engine, &thread).await;
    assert_eq!(engine.parked(&thread).await.len(), 1, "the other question waits on");
    let view = engine.engine.view(&thread).await.expect("there");
    assert_eq!((view.next, runs.of("ask")), (vec!["beside".to_owned()], 2));
    engine.vote(&points[0].id, &operator(), json!("B")).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"ask": "A", "beside": "B"}));
    let effects = runs.all().into_iter().filter(|(name, _)| name.starts_with("before ask"));
    assert_eq!(effects.map(|(_, times)| times).collect::<Vec<_>>(), [1]);
    let versions =
        "SELECT graph_version || '' FROM checkpoints WHERE frame <> '' GROUP BY graph_version ORDER BY min(seq)";
    assert_eq!(world.texts(versions).await, ["1", "2"]);
}

async fn a_graph_that_a_body_calls_is_migrated_as_well_or_fails_its_node_with_the_reason() {
    let runs = Runs::default();
    let build = |versions, node| {
        let runs = runs.clone();
        move || nested(versions, node, false, &runs)
    };
    let world = World::one(build((1, 1), "old"));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let points = engine.parked(&thread).await;
    let (world, engine) = deployed(world, engine, build((1, 2), "other")).await;
    engine.vote(&points[1].id, &operator(), json!("A")).await.expect("accepted");
    let failed = engine.rests(&thread, "failed").await;
    let error = failed.summary.error.expect("an error");
    assert!(error.contains("version 2 of graph `inner` has no node `new`"), "{error}");

    let (_world, engine) = deployed(world, engine, build((1, 2), "new")).await;
    engine.resume(&thread, [(points[0].id.clone(), json!("B"))], RETRY).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"]["beside"], "B");
    assert_eq!(done.state["got"]["all"]["got"], json!({"ask": "A"}));
    assert_eq!(done.state["got"]["all"]["steps"], json!(["first"]));
    assert_eq!((runs.of("first"), runs.of("ask")), (1, 2));
}

async fn a_node_that_runs_another_graph_now_holds_what_waits_in_the_old_one() {
    let runs = Runs::default();
    let build = |name: &'static str, version| {
        let runs = runs.clone();
        move || {
            let inner = named(name, 3 - version, |g| _ = g.node("ask", asks("ask", &runs)).edge(START, "ask"));
            flow(version, |g| {
                g.subgraph("sub", inner).node("last", works("last", &runs)).edge(START, "sub").edge("sub", "last");
            })
        }
    };
    let world = World::one(build("inner", 1));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let point = engine.parked(&thread).await.remove(0);
    let (_world, engine) = deployed(world, engine, build("another", 2)).await;
    engine.vote(&point.id, &operator(), json!("A")).await.expect("accepted");
    let reason = held(&engine, &thread).await;
    assert!(reason.contains("does not run the graph any more that waits in node `sub`"), "{reason}");
    edit(&engine, &thread, Some("sub"), json!({"got": {"by": "hand"}})).await.expect("accepted");
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"by": "hand", "last": "done"}));
}

async fn nodes_that_come_and_go_elsewhere_change_nothing_for_what_waits() {
    let runs = Runs::default();
    let build = |version| {
        let runs = runs.clone();
        move || {
            flow(version, |g| {
                g.node("ask", asks("ask", &runs));
                let (before, after) = if version == 1 { ("gone", "gone too") } else { ("new", "newer") };
                let (before_node, after_node) = (before.replace(' ', "-"), after.replace(' ', "-"));
                g.node(before_node.as_str(), works(before, &runs)).node(after_node.as_str(), works(after, &runs));
                g.edge(START, before_node.as_str()).edge(before_node, "ask").edge("ask", after_node);
            })
        }
    };
    let world = World::one(build(1));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let points = engine.parked(&thread).await;
    // The version is the same in name, and the graph is another: it fits.
    let (world, engine) = deployed(world, engine, build(2)).await;
    assert_eq!(engine.parked(&thread).await, points);
    engine.vote(&points[0].id, &operator(), json!("A")).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"gone": "done", "ask": "A", "newer": "done"}));
    drop(world);
}

async fn another_graph_under_the_same_version_goes_on_if_it_fits() {
    let runs = Runs::default();
    let build = |after: &'static str| {
        let runs = runs.clone();
        move || {
            flow(1, |g| {
                g.node("ask", asks("ask", &runs))
                    .node(after, works(after, &runs))
                    .edge(START, "ask")
                    .edge("ask", after);
            })
        }
    };
    let world = World::one(build("one"));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let point = engine.parked(&thread).await.remove(0);
    let (world, engine) = deployed(world, engine, build("two")).await;
    assert_eq!(engine.engine.check().await.expect("it reads").unfit, []);
    engine.vote(&point.id, &operator(), json!("A")).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"ask": "A", "two": "done"}));
    let prints = world.texts("SELECT DISTINCT fingerprint FROM checkpoints").await;
    assert_eq!(prints.len(), 2);
}

async fn a_join_that_is_gone_when_half_its_sources_have_run_holds_the_thread() {
    let runs = Runs::default();
    let build = |version, joins: bool| {
        let runs = runs.clone();
        move || {
            flow(version, |g| {
                g.node("a", works("a", &runs)).node("mid", works("mid", &runs)).node("b", asks("b", &runs));
                g.node("z", works("z", &runs)).edge(START, "a").edge(START, "mid").edge("mid", "b");
                if joins {
                    g.join(["a", "b"], "z");
                } else {
                    g.edge("b", "z");
                }
            })
        }
    };
    let world = World::one(build(1, true));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let point = engine.parked(&thread).await.remove(0);
    let (world, engine) = deployed(world, engine, build(2, false)).await;
    engine.vote(&point.id, &operator(), json!("A")).await.expect("accepted");
    let reason = held(&engine, &thread).await;
    assert!(reason.contains("has no join a+b>z, of which some sources have run already"), "{reason}");
    // As `mid`: what it asks is asked anew, and the join is forgotten.
    edit(&engine, &thread, Some("mid"), json!({})).await.expect("accepted");
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    let again = engine.parked(&thread).await.remove(0);
    assert_ne!(again.id, point.id);
    engine.vote(&again.id, &operator(), json!("B")).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"]["b"], runs.of("z"), runs.of("a")), (&json!("B"), 1, 1));
    drop(world);
}

async fn an_older_build_or_one_without_the_graph_holds_and_the_right_one_goes_on() {
    let runs = Runs::default();
    let build = |version| {
        let runs = runs.clone();
        move || asking(version, "n", &runs, |_| ())
    };
    let world = World::one(build(2));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let point = engine.parked(&thread).await.remove(0);
    let (world, engine) = deployed(world, engine, build(1)).await;
    let refused = edit(&engine, &thread, Some("n"), json!({})).await.expect_err("a newer thread");
    assert!(matches!(refused, RequestError::Misfit(_)), "{refused}");
    engine.vote(&point.id, &ann(), json!({"approved": false})).await.expect("accepted");
    let reason = held(&engine, &thread).await;
    assert_eq!(reason, "the thread is on version 2 of graph `flow`, and this build has version 1");

    let (world, engine) = deployed(world, engine, || {
        named("another", 1, |g| {
            g.node("n", with(&(), |_, ()| async move { Ok(Writes::none()) })).edge(START, "n");
        })
    })
    .await;
    retry(&engine, &thread).await;
    assert_eq!(held(&engine, &thread).await, "this build has no graph `flow`");

    let (_world, engine) = deployed(world, engine, build(2)).await;
    retry(&engine, &thread).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"]["approved"], runs.of("asks")), (&json!(false), 2));
}
