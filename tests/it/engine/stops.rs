//! Stops that take data, and containers that do (K12, K18).

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::machine::Resume;
use countersign_kernel::node::NodeError;
use countersign_kernel::state::Writes;
use countersign_worker::engine::RequestError;
use countersign_worker::store::{Refusal, StoreError};
use serde_json::{Value, json};

use super::graphs::{CONTINUE, NOTHING, RESUME_ALL};
use super::nested::{answer, names, open, restarted, world};
use crate::support::flows::{asks, flow, got, part, with, works};
use crate::support::{Runs, World, ann, operator};

engine!(
    data_for_a_stop_is_an_update_of_the_graph_that_stopped,
    data_that_does_not_fit_releases_nothing_and_is_for_operators,
    data_inside_beside_a_question_leaves_the_question,
    a_container_takes_data_and_its_members_wait_on,
    a_container_whose_members_are_answered_is_closed_with_them,
    a_container_inside_a_sub_graph_takes_data_and_an_unknown_one_none,
    a_resume_all_passes_stops_and_wakes_questions_inside_once,
);

/// Reads `got` as it is when it runs.
fn reads(node: &'static str, runs: &Runs) -> countersign_kernel::node::SharedBody {
    with(runs, move |cx, runs| async move {
        runs.hit(node);
        let seen = cx.state().values().get("got").cloned().unwrap_or_default();
        Ok(got(node, &json!({"saw": seen["note"]})))
    })
}

/// A stop before `b`, and one before `d` of a graph `sub`, in that order.
fn stopping(runs: &Runs) -> CompiledGraph {
    let sub = part("sub", |g| {
        g.node("c", works("c", runs)).node("d", reads("d", runs)).edge(START, "c").edge("c", "d").break_before("d");
    });
    flow("flow", |g| {
        g.node("a", works("a", runs)).node("b", reads("b", runs)).subgraph("sub", sub);
        g.edge(START, "a").edge("a", "b").edge("b", "sub").break_before("b");
    })
}

fn of_stops(runs: &Runs) -> World {
    let runs = runs.clone();
    world(move || stopping(&runs))
}

async fn data_for_a_stop_is_an_update_of_the_graph_that_stopped() {
    for by_vote in [true, false] {
        let runs = Runs::default();
        let world = of_stops(&runs);
        let mut engine = world.engine().await;
        let thread = engine.start("flow", json!({})).await;
        for (note, counts) in [(1, (0, 0)), (2, (1, 0))] {
            let stop = open(&engine, &thread, "parked").await;
            assert_eq!((names(&stop), runs.of("b"), runs.of("d")), (vec!["break"], counts.0, counts.1));
            engine = restarted(&world, engine).await;
            let data = json!({"got": {"note": note}});
            if by_vote {
                let voted = engine.vote(&stop[0].1.id, &operator(), data).await.expect("accepted");
                assert!(voted.decided && voted.thread == thread);
            } else {
                engine.resume(&thread, [(stop[0].1.id.clone(), data)], NOTHING).await.expect("accepted");
            }
            engine.idles().await;
            assert_eq!(engine.engine.store().interrupt(&stop[0].1.id).await.expect("there").status, "released");
        }
        let done = engine.rests(&thread, "succeeded").await;
        let expected = json!({"a": "done", "note": 2, "b": {"saw": 1}, "c": "done", "d": {"saw": 2}});
        assert_eq!(done.state["got"], expected, "by a vote: {by_vote}");
        assert_eq!((runs.of("a"), runs.of("b"), runs.of("c"), runs.of("d")), (1, 1, 1, 1));
    }
}

async fn data_that_does_not_fit_releases_nothing_and_is_for_operators() {
    let runs = Runs::default();
    let world = of_stops(&runs);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let stop = open(&engine, &thread, "parked").await.remove(0).1;
    engine.idles().await;
    let before = (engine.detail(&thread).await, engine.history(&thread).await);
    for data in [json!({"nothing": 1}), json!({"got": 1}), json!(7), json!([1])] {
        assert!(engine.vote(&stop.id, &operator(), data.clone()).await.is_err(), "{data}");
        assert!(engine.resume(&thread, [(stop.id.clone(), data.clone())], NOTHING).await.is_err(), "{data}");
    }
    let refused = engine.vote(&stop.id, &ann(), json!({"got": {"note": 1}})).await;
    assert!(
        matches!(refused, Err(RequestError::Store(StoreError::Refused(Refusal::OperatorOnly { .. })))),
        "{refused:?}"
    );
    engine.idles().await;
    assert_eq!((engine.detail(&thread).await, engine.history(&thread).await), before);
    assert_eq!(runs.of("b"), 0);
    answer(&engine, &stop, Value::Null).await;
    engine.idles().await;
    assert_eq!(names(&open(&engine, &thread, "parked").await), ["break"]);
    let late = engine.vote(&stop.id, &operator(), json!({"got": {"note": 1}})).await;
    assert!(late.is_err(), "{late:?}");
}

async fn data_inside_beside_a_question_leaves_the_question() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let sub = part("sub", |g| {
                g.node("b", reads("b", &runs)).edge(START, "b").break_before("b");
            });
            flow("flow", |g| {
                g.subgraph("sub", sub).node("plain", asks("plain", &runs)).edge(START, "sub").edge(START, "plain");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let stop = open(&engine, &thread, "parked").await;
    assert_eq!(names(&stop), ["break", "plain?"]);
    let engine = restarted(&world, engine).await;
    let head = engine.detail(&thread).await.head;
    let both = [(stop[0].1.id.clone(), json!({"got": {"note": 3}}))];
    engine.resume(&thread, both, NOTHING).await.expect("accepted");
    engine.idles().await;
    let still = open(&engine, &thread, "parked").await;
    assert_eq!((still.as_slice(), engine.detail(&thread).await.head), (&stop[1..], head), "the thread has not moved");
    let engine = restarted(&world, engine).await;
    answer(&engine, &still[0].1, json!("yes")).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"note": 3, "b": {"saw": 3}, "plain": "yes"}));
    assert_eq!((runs.of("b"), runs.of("plain")), (1, 2));
}

/// A group that takes more for all of its two members, each of which asks.
fn group(runs: &Runs) -> CompiledGraph {
    let body = with(runs, |cx, runs| async move {
        runs.hit("group");
        let more = cx.container("the group")?;
        let member = |id: &'static str| {
            let (cx, runs) = (cx.clone(), runs.clone());
            async move {
                cx.child("member", id, async move |cx| {
                    runs.hit(format!("member {id}"));
                    cx.interrupt(format!("{id}?")).await
                })
                .await
            }
        };
        let (left, right) = futures_util::future::join(member("left"), member("right")).await;
        let (left, right): (Value, Value) = (left?, right?);
        Ok::<Writes, NodeError>(got("group", &json!({"left": left, "right": right, "more": more})))
    });
    flow("flow", |g| {
        g.node("group", body).edge(START, "group");
    })
}

fn of_group(runs: &Runs) -> World {
    let runs = runs.clone();
    world(move || group(&runs))
}

async fn a_container_takes_data_and_its_members_wait_on() {
    for by_vote in [true, false] {
        let runs = Runs::default();
        let world = of_group(&runs);
        let mut engine = world.engine().await;
        let thread = engine.start("flow", json!({})).await;
        let asked = open(&engine, &thread, "parked").await;
        assert_eq!((names(&asked), engine.detail(&thread).await.summary.open), (vec!["left?", "right?"], 2));
        engine = restarted(&world, engine).await;
        let view = engine.view(&thread).await;
        let parents = &view.parents[&asked[0].1.id];
        let group = parents.iter().find(|parent| parent.takes_data).expect("it says so").clone();
        assert_eq!((&group.info, group.address.to_string().as_str()), (&json!("the group"), "flow/group@0"));
        let stored = engine.engine.store().interrupt(&group.id).await.expect("named by its id");
        assert_eq!((stored.kind.as_str(), stored.status.as_str()), ("container", "open"));

        for bare in [
            engine.vote(&group.id, &operator(), Value::Null).await.err(),
            engine.resume(&thread, [(group.id.clone(), Value::Null)], NOTHING).await.err(),
        ] {
            assert!(
                matches!(bare, Some(RequestError::Store(StoreError::Refused(Refusal::NotAnswerable { .. })))),
                "{bare:?}"
            );
        }
        if by_vote {
            engine.vote(&group.id, &operator(), json!("more")).await.expect("accepted");
        } else {
            engine.resume(&thread, [(group.id.clone(), json!("more"))], NOTHING).await.expect("accepted");
        }
        engine.idles().await;
        let still = open(&engine, &thread, "parked").await;
        assert_eq!(still, asked, "they wait on");
        assert_eq!((runs.of("group"), runs.of("member left"), runs.of("member right")), (2, 1, 1));
        assert_eq!(engine.engine.store().interrupt(&group.id).await.expect("there").status, "answered");

        engine = restarted(&world, engine).await;
        for (name, view) in &asked {
            answer(&engine, view, json!(name)).await;
            engine.idles().await;
        }
        let done = engine.rests(&thread, "succeeded").await;
        assert_eq!(done.state["got"]["group"], json!({"left": "left?", "right": "right?", "more": "more"}));
        assert_eq!((runs.of("member left"), runs.of("member right")), (2, 2));
    }
}

async fn a_container_whose_members_are_answered_is_closed_with_them() {
    let runs = Runs::default();
    let world = of_group(&runs);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let asked = open(&engine, &thread, "parked").await;
    let engine = restarted(&world, engine).await;
    let parents = engine.view(&thread).await.parents;
    let group = parents[&asked[0].1.id].iter().find(|parent| parent.takes_data).expect("it says so").id.clone();
    let answers = asked.iter().map(|(name, view)| (view.id.clone(), json!(name)));
    engine.resume(&thread, answers, NOTHING).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"]["group"], json!({"left": "left?", "right": "right?", "more": null}));
    engine.idles().await;
    let closed = engine.engine.store().interrupt(&group).await.expect("there");
    assert_ne!(closed.status, "open");
    let late = engine.vote(&group, &operator(), json!("late")).await;
    assert!(late.is_err(), "{late:?}");
}

async fn a_container_inside_a_sub_graph_takes_data_and_an_unknown_one_none() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let sub = part("sub", |g| {
                let body = with(&runs, |cx, runs| async move {
                    runs.hit("b");
                    let more = cx.container("more?")?;
                    let answer = cx.child("part", "one", async |cx| cx.interrupt("b?").await).await?;
                    Ok(got("b", &json!([answer, more])))
                });
                g.node("b", body).edge(START, "b");
            });
            flow("flow", |g| {
                g.subgraph("sub", sub).edge(START, "sub");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let asked = open(&engine, &thread, "parked").await;
    let engine = restarted(&world, engine).await;
    let parents = engine.view(&thread).await.parents[&asked[0].1.id].clone();
    let addresses: Vec<_> = parents.iter().map(|parent| (parent.address.to_string(), parent.takes_data)).collect();
    let known = [("flow/sub@0/b@0", true), ("flow/sub@0", false), ("flow", false)];
    assert_eq!(addresses, known.map(|(address, takes)| (address.to_owned(), takes)));
    let refused = engine.resume(&thread, [(parents[1].id.clone(), json!(1))], NOTHING).await;
    assert!(refused.is_err(), "{refused:?}");
    let both = [(parents[0].id.clone(), json!("more")), (asked[0].1.id.clone(), json!("yes"))];
    engine.resume(&thread, both, NOTHING).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"]["b"], runs.of("b")), (&json!(["yes", "more"]), 2));
}

async fn a_resume_all_passes_stops_and_wakes_questions_inside_once() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            let sub = part("sub", |g| {
                g.node("stopped", works("stopped", &runs)).node("in", asks("in", &runs));
                g.edge(START, "stopped").edge(START, "in").break_before("stopped");
            });
            flow("flow", |g| {
                g.subgraph("sub", sub).node("plain", asks("plain", &runs)).edge(START, "sub").edge(START, "plain");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let first = open(&engine, &thread, "parked").await;
    assert_eq!(names(&first), ["break", "plain?"]);
    let engine = restarted(&world, engine).await;
    engine.resume(&thread, [], RESUME_ALL).await.expect("accepted");
    engine.idles().await;
    let second = open(&engine, &thread, "parked").await;
    assert_eq!((names(&second), &second[1].1), (vec!["in?", "plain?"], &first[1].1));
    assert_eq!((runs.of("stopped"), runs.of("in"), runs.of("plain")), (1, 1, 2));
    let engine = restarted(&world, engine).await;
    answer(&engine, &second[0].1, json!("yes")).await;
    engine.idles().await;
    assert_eq!(runs.of("plain"), 2, "what was woken once is not woken by a later answer");
    let none = engine.resume(&thread, [], Resume { release: true, ..CONTINUE }).await;
    assert!(matches!(none, Err(RequestError::Store(StoreError::Refused(Refusal::NothingToContinue)))), "{none:?}");
}
