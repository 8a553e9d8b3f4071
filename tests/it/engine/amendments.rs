//! Resumes that change the superstep they wake (R5).

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::InterruptId;
use countersign_kernel::machine::{Amend, EditRefused, Resume};
use countersign_kernel::node::Goto;
use countersign_worker::engine::{RequestError, ResumeRequest};
use countersign_worker::store::commands::IdempotencyEntry;
use countersign_worker::store::{Accepted, Refusal, StoreError};
use serde_json::{Value, json};

use super::graphs::NOTHING;
use super::nested::{answer, names, open, restarted, world};
use crate::support::flows::{asks, flow, got, part, pays_at_once, with, works};
use crate::support::{Runs, World, operator};

engine!(
    more_state_and_tasks_beside_open_questions_leave_them_as_they_are,
    an_answer_and_an_amendment_of_one_resume_both_count,
    a_refused_amendment_changes_nothing,
    the_same_amendment_again_gets_the_first_reply_and_runs_once,
    a_finished_thread_goes_on_where_an_amendment_leads,
    an_amended_superstep_is_replayed_with_what_it_was_given,
);

fn send(node: &str, argument: Value) -> Goto {
    Goto::Send { node: node.to_owned(), argument }
}

/// `plain` and a graph `sub` ask, `done` finishes at once; `extra` and `w` run
/// only if somebody leads there.
fn open_questions(runs: &Runs) -> CompiledGraph {
    let sub = part("sub", |g| {
        g.node("in", asks("in", runs)).edge(START, "in");
    });
    flow("flow", |g| {
        let sees = with(runs, |cx, runs| async move {
            runs.hit("extra");
            let seen = cx.state().values().get("got").cloned().unwrap_or_default();
            Ok(got("extra", &json!({"seen": seen["note"]})))
        });
        let w = with(runs, |cx, runs| async move {
            let argument = cx.argument().cloned().unwrap_or_default();
            runs.hit(format!("w {argument}"));
            Ok(got(&format!("w {argument}"), &json!("done")))
        });
        g.node("plain", asks("plain", runs)).subgraph("sub", sub).node("done", pays_at_once("done", runs));
        g.node("extra", sees).node("w", w).node("end", works("end", runs));
        g.edge(START, "plain").edge(START, "sub").edge(START, "done").join(["plain", "sub", "done"], "end");
    })
}

fn of_questions(runs: &Runs) -> World {
    let runs = runs.clone();
    world(move || open_questions(&runs))
}

async fn more_state_and_tasks_beside_open_questions_leave_them_as_they_are() {
    let runs = Runs::default();
    let world = of_questions(&runs);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let asked = open(&engine, &thread, "parked").await;
    assert_eq!(names(&asked), ["in?", "plain?"]);
    // One is answered before and one after.
    answer(&engine, &asked[0].1, json!("before")).await;
    engine.idles().await;
    engine = restarted(&world, engine).await;
    let goto = vec![Goto::Node("extra".into()), send("w", json!(1)), send("w", json!(2)), Goto::Node("plain".into())];
    engine.amend(&thread, json!({"got": {"note": "amended"}}), goto, NOTHING).await.expect("accepted");
    engine.idles().await;
    let still = open(&engine, &thread, "parked").await;
    assert_eq!(still, asked[1..], "the same id since the same time");
    assert_eq!((runs.of("plain"), runs.of("in"), runs.of("done")), (1, 2, 1), "a goto to what waits adds nothing");
    assert_eq!((runs.of("extra"), runs.of("w 1"), runs.of("w 2"), runs.of("end")), (1, 1, 1, 0));
    let detail = engine.detail(&thread).await;
    assert_eq!((&detail.state["got"], detail.next), (&json!({"note": "amended"}), vec!["plain".to_owned()]));
    let history = engine.history(&thread).await;
    let sources: Vec<_> = history.iter().map(|entry| (entry.source.as_str(), entry.superstep)).collect();
    assert_eq!(sources, [("amend", 0), ("input", 0)], "the same superstep");

    engine = restarted(&world, engine).await;
    answer(&engine, &asked[1].1, json!("after")).await;
    let done = engine.rests(&thread, "succeeded").await;
    let expected = json!({
        "note": "amended", "done": null, "in": "before", "plain": "after", "extra": {"seen": "amended"},
        "w 1": "done", "w 2": "done", "end": "done",
    });
    let mut state = done.state["got"].clone();
    state["done"] = Value::Null;
    assert_eq!(state, expected);
    assert_eq!((runs.of("plain"), runs.of("in"), runs.of("done"), runs.of("extra")), (2, 2, 1, 1));
    let effects: Vec<_> = runs.all().into_iter().filter(|(name, _)| name.starts_with("pay ")).collect();
    assert!(effects.len() == 1 && effects[0].1 == 1, "{effects:?}");
}

async fn an_answer_and_an_amendment_of_one_resume_both_count() {
    let runs = Runs::default();
    let world = of_questions(&runs);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let asked = open(&engine, &thread, "parked").await;
    let engine = restarted(&world, engine).await;
    let request = ResumeRequest {
        answers: [(asked[1].1.id.clone(), json!("yes"))].into(),
        amend: Amend {
            update: json!({"got": {"note": 1}}).as_object().cloned().expect("an object"),
            goto: vec!["extra".into()],
        },
        operator: true,
        principal: operator(),
        ..ResumeRequest::new(thread.clone())
    };
    assert!(matches!(engine.engine.resume(request).await, Ok(Accepted::Committed(Some(_)))));
    engine.idles().await;
    assert_eq!(names(&open(&engine, &thread, "parked").await), ["in?"]);
    assert_eq!((runs.of("plain"), runs.of("in"), runs.of("extra")), (2, 1, 1));
    let engine = restarted(&world, engine).await;
    answer(&engine, &asked[0].1, json!("yes")).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"]["plain"], &done.state["got"]["extra"]), (&json!("yes"), &json!({"seen": 1})));
}

async fn a_refused_amendment_changes_nothing() {
    let runs = Runs::default();
    let world = of_questions(&runs);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let asked = open(&engine, &thread, "parked").await;
    engine.idles().await;
    let before = (engine.detail(&thread).await, engine.history(&thread).await, runs.all());
    let to = |node: &str| vec![Goto::Node(node.to_owned())];
    let refused = engine.amend(&thread, json!({}), to("nowhere"), NOTHING).await;
    assert!(matches!(refused, Err(RequestError::Edit(EditRefused::UnknownNode { .. }))), "{refused:?}");
    for update in [json!({"nothing": 1}), json!({"got": "no object"}), json!({"log": 1})] {
        let refused = engine.amend(&thread, update.clone(), to("extra"), NOTHING).await;
        assert!(matches!(refused, Err(RequestError::InvalidInput(_))), "{update}: {refused:?}");
    }
    // A good amendment beside an answer to nothing.
    let nothing = InterruptId::parse("0".repeat(32)).expect("an id");
    let request = ResumeRequest {
        answers: [(nothing.clone(), json!(1)), (asked[0].1.id.clone(), json!(1))].into(),
        amend: Amend { goto: to("extra"), ..Amend::default() },
        operator: true,
        principal: operator(),
        ..ResumeRequest::new(thread.clone())
    };
    let refused = engine.engine.resume(request).await;
    let expected = Refusal::UnknownInterrupt(nothing);
    assert!(
        matches!(&refused, Err(RequestError::Store(StoreError::Refused(refusal))) if *refusal == expected),
        "{refused:?}"
    );
    engine.idles().await;
    assert_eq!((engine.detail(&thread).await, engine.history(&thread).await, runs.all()), before);
}

async fn the_same_amendment_again_gets_the_first_reply_and_runs_once() {
    let runs = Runs::default();
    let world = of_questions(&runs);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let asked = open(&engine, &thread, "parked").await;
    engine.idles().await;
    let request = |body: &str| ResumeRequest {
        answers: [(asked[0].1.id.clone(), json!("yes"))].into(),
        amend: Amend { goto: vec![send("w", json!(1))], ..Amend::default() },
        idempotency: Some(IdempotencyEntry {
            scope: "s".into(),
            key: "k".into(),
            request_hash: "h".into(),
            status: 202,
            body: body.into(),
        }),
        operator: true,
        principal: operator(),
        ..ResumeRequest::new(thread.clone())
    };
    assert!(matches!(engine.engine.resume(request("first")).await, Ok(Accepted::Committed(Some(_)))));
    // While it runs, and when it rests again.
    for _ in 0..2 {
        let again = engine.engine.resume(request("again")).await.expect("no refusal");
        assert_eq!(again, Accepted::Replayed { status: 202, body: "first".into() });
        engine.idles().await;
    }
    assert_eq!((runs.of("w 1"), runs.of("in")), (1, 2));
    assert_eq!(engine.history(&thread).await.len(), 2);
}

async fn a_finished_thread_goes_on_where_an_amendment_leads() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || {
            flow("flow", |g| {
                g.node("a", works("a", &runs)).node("b", works("b", &runs)).edge(START, "a");
            })
        }
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.rests(&thread, "succeeded").await;
    let engine = restarted(&world, engine).await;
    engine.amend(&thread, json!({"got": {"note": 1}}), vec!["b".into()], NOTHING).await.expect("accepted");
    engine.idles().await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"a": "done", "note": 1, "b": "done"}));
    assert_eq!((runs.of("a"), runs.of("b")), (1, 1));
    let bare = engine.resume(&thread, [], Resume { release: true, ..NOTHING }).await;
    assert!(
        matches!(bare, Err(RequestError::Store(StoreError::Refused(Refusal::ThreadEnded("succeeded"))))),
        "{bare:?}"
    );
}

async fn an_amended_superstep_is_replayed_with_what_it_was_given() {
    let runs = Runs::default();
    let world = of_questions(&runs);
    let mut engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let asked = open(&engine, &thread, "parked").await;
    engine.idles().await;
    engine.amend(&thread, json!({"got": {"note": 7}}), vec!["extra".into()], NOTHING).await.expect("accepted");
    engine.idles().await;
    let amended = engine.history(&thread).await[0].checkpoint.clone();
    engine = restarted(&world, engine).await;
    engine.replay(&thread, &amended).await.expect("replayed");
    engine.idles().await;
    let again = open(&engine, &thread, "parked").await;
    assert_eq!(names(&again), ["in?", "plain?"]);
    assert!(again.iter().all(|(_, view)| asked.iter().all(|(_, old)| old.id != view.id)));
    assert_eq!((runs.of("extra"), runs.of("plain"), runs.of("in")), (2, 2, 2), "the added task as well");
    engine = restarted(&world, engine).await;
    for (_, view) in &again {
        answer(&engine, view, json!("yes")).await;
    }
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"]["note"], &done.state["got"]["extra"]), (&json!(7), &json!({"seen": 7})));
}
