//! What was done is not done again unasked, whatever comes between a request
//! and its move of the head (R13).

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::ThreadId;
use countersign_kernel::machine::{Amend, Edit};
use countersign_kernel::node::NodeError;
use countersign_worker::engine::{EditRequest, ReplayRequest, RequestError, ResumeRequest};
use countersign_worker::store::views::InterruptView;
use countersign_worker::store::{Refusal, Store, StoreError};
use serde_json::json;
use tokio::runtime::Handle;

use super::graphs::CONTINUE;
use super::nested::{answer, names, open, restarted, world};
use crate::support::flows::{flow, got, with};
use crate::support::{Gate, On, Runs, TestEngine, operator};

engine!(
    a_step_in_which_a_pause_dropped_the_body_is_listed_as_begun,
    a_thread_that_has_ended_begins_again_only_if_what_it_did_may_be_done_again,
    an_edit_after_which_nothing_is_due_does_nothing_again,
);

/// `pays` asks, pays in a step, and asks once more.
fn between_questions(runs: &Runs) -> CompiledGraph {
    let pays = with(runs, |cx, runs| async move {
        cx.interrupt("first?").await?;
        cx.step("pay", async |_| Ok::<_, NodeError>(runs.hit("pay"))).await?;
        let answer = cx.interrupt("second?").await?;
        Ok(got("pays", &answer))
    });
    flow("flow", |g| {
        g.node("pays", pays).edge(START, "pays");
    })
}

/// `pays` pays in a step that stops at the gate.
fn hanging(runs: &Runs, gate: &Gate) -> CompiledGraph {
    let pays = with(&(runs.clone(), gate.clone()), |cx, (runs, gate)| async move {
        let pay = async |_| {
            runs.hit("begun");
            gate.pass().await;
            Ok::<_, NodeError>(runs.hit("paid"))
        };
        Ok(got("pays", &json!(cx.step("pay", pay).await?)))
    });
    flow("flow", |g| {
        g.node("pays", pays).edge(START, "pays");
    })
}

fn editing(thread: &ThreadId) -> EditRequest {
    EditRequest {
        thread: thread.clone(),
        edit: Edit { values: None, as_node: Some(START.to_owned()) },
        expected_head: None,
        at: None,
        frame: None,
        principal: operator(),
    }
}

async fn replaying(engine: &TestEngine, thread: &ThreadId) -> ReplayRequest {
    let head = engine.store.head(thread).await.expect("there");
    ReplayRequest { re_execute: false, ..engine.replaying(thread, &head) }
}

/// The steps that a refused request would have done again.
#[track_caller]
fn again<T: std::fmt::Debug>(refused: Result<T, RequestError>) -> Vec<String> {
    let Err(RequestError::Store(StoreError::Refused(Refusal::ReExecutes(steps)))) = refused else {
        panic!("{refused:?}")
    };
    steps.into_iter().map(|step| format!("{} {}", step.address, step.name)).collect()
}

/// Has the thread pay after a request has looked at it, and before it moves the
/// head: the head is the same then, and the thread at rest.
fn pays_meanwhile(engine: &TestEngine, thread: &ThreadId, asked: &InterruptView) {
    let pays = async {
        answer(engine, asked, json!("yes")).await;
        engine.idles().await;
        assert_eq!(names(&open(engine, thread, "parked").await), ["second?"]);
    };
    tokio::task::block_in_place(|| Handle::current().block_on(pays));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_is_done_while_a_request_is_on_its_way_is_seen() {
    for on in On::EACH {
        on.run(is_seen(true)).await;
        on.run(is_seen(false)).await;
    }
}

async fn is_seen(by_edit: bool) {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || between_questions(&runs)
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let asked = open(&engine, &thread, "parked").await;
    engine.idles().await;
    let head = engine.store.head(&thread).await.expect("there");
    let steps = if by_edit {
        let reply = |_: &_, _: &'static str, _: &[String]| {
            pays_meanwhile(&engine, &thread, &asked[0].1);
            None
        };
        again(engine.engine.edit_once(editing(&thread), false, &reply).await)
    } else {
        let reply = |_: &_, _: &_, _: &'static str| {
            pays_meanwhile(&engine, &thread, &asked[0].1);
            None
        };
        again(engine.engine.replay(&replaying(&engine, &thread).await, &reply).await)
    };
    assert_eq!(steps, ["flow/pays@0 pay"]);
    assert_eq!(engine.store.head(&thread).await.expect("there"), head, "nothing moved");
    let second = open(&engine, &thread, "parked").await;
    answer(&engine, &second[0].1, json!("done")).await;
    engine.rests(&thread, "succeeded").await;
    assert_eq!(runs.of("pay"), 1);
}

async fn a_step_in_which_a_pause_dropped_the_body_is_listed_as_begun() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world({
        let (runs, gate) = (runs.clone(), gate.clone());
        move || hanging(&runs, &gate)
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    engine.engine.pause(&thread, true, &operator()).await.expect("taken");
    gate.dropped(1).await;
    open(&engine, &thread, "parked").await;
    let engine = restarted(&world, engine).await;
    let begun = ["pays begun, not recorded"];
    assert_eq!(again(engine.engine.edit_once(editing(&thread), false, &|_, _, _| None).await), begun);
    let replay = replaying(&engine, &thread).await;
    assert_eq!(again(engine.engine.replay(&replay, &|_, _, _| None).await), begun);

    // Once it has been recorded it is a step like others.
    gate.open();
    engine.resume(&thread, [], CONTINUE).await.expect("accepted");
    engine.rests(&thread, "succeeded").await;
    engine.idles().await;
    assert_eq!((runs.of("begun"), runs.of("paid")), (2, 1));
    assert_eq!(again(engine.engine.replay(&replay, &|_, _, _| None).await), ["flow/pays@0 pay"]);
}

/// `pays` pays in a step, and that is all.
fn paying(runs: &Runs) -> CompiledGraph {
    let pays = with(runs, |cx, runs| async move {
        let paid = cx.step("pay", async |_| Ok::<_, NodeError>(runs.hit("pay"))).await?;
        Ok(got("pays", &json!(paid)))
    });
    flow("flow", |g| {
        g.node("pays", pays).edge(START, "pays");
    })
}

async fn a_thread_that_has_ended_begins_again_only_if_what_it_did_may_be_done_again() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || paying(&runs)
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.rests(&thread, "succeeded").await;
    engine.idles().await;
    let paid = ["flow/pays@0 pay"];

    // As the input it would begin from the start.
    let as_input = async |re_execute| engine.engine.edit_once(editing(&thread), re_execute, &|_, _, _| None).await;
    assert_eq!(again(as_input(false).await), paid);
    let goto = |re_execute| {
        let amend = Amend { goto: vec!["pays".into()], ..Amend::default() };
        let request = ResumeRequest { amend, re_execute, operator: true, ..ResumeRequest::new(thread.clone()) };
        engine.engine.resume(request)
    };
    assert_eq!(again(goto(false).await), paid);
    assert_eq!((engine.detail(&thread).await.summary.status.as_str(), runs.of("pay")), ("succeeded", 1));

    goto(true).await.expect("asked for");
    engine.rests(&thread, "succeeded").await;
    engine.idles().await;
    assert_eq!(runs.of("pay"), 2);
    as_input(true).await.expect("asked for");
    open(&engine, &thread, "parked").await;
}

async fn an_edit_after_which_nothing_is_due_does_nothing_again() {
    let runs = Runs::default();
    let world = world({
        let runs = runs.clone();
        move || paying(&runs)
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.rests(&thread, "succeeded").await;
    engine.idles().await;
    let end = engine.store.head(&thread).await.expect("there");
    let first = engine.history(&thread).await.pop().expect("the first").checkpoint;
    engine.engine.replay(&engine.replaying(&thread, &first), &|_, _, _| None).await.expect("steps may be done again");
    engine.rests(&thread, "succeeded").await;
    engine.idles().await;
    // The end of the line that was left; the step on the newer line is left too.
    let edit = Edit { values: json!({"got": {"by": "hand"}}).as_object().cloned(), as_node: None };
    let request = EditRequest { edit, at: Some(end), ..editing(&thread) };
    engine.engine.edit_once(request, false, &|_, _, _| None).await.expect("nothing is due");
    let detail = engine.detail(&thread).await;
    assert_eq!((detail.summary.status.as_str(), &detail.state["got"]["by"]), ("succeeded", &json!("hand")));
    assert_eq!(runs.of("pay"), 2);
}
