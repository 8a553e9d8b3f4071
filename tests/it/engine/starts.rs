//! Threads that start within a limit, or with an edit; what a client is told of
//! them.

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::ThreadId;
use countersign_kernel::machine::{Edit, Resume};
use countersign_kernel::state::Reducer;
use countersign_worker::engine::{Edited, RequestError};
use countersign_worker::store::{Refusal, StoreError};
use serde_json::{Value, json};

use super::graphs::{CONTINUE, NOTHING};
use crate::support::flows::{asks, flow, logs, part};
use crate::support::{Runs, TestEngine, World, ann};

engine!(
    a_start_may_have_a_limit_of_its_own_and_what_follows_has_not,
    a_thread_may_start_with_an_edit_and_runs_nothing_before_it_is_told_to,
    an_edit_after_which_nothing_is_due_ends_its_thread,
    history_shows_the_value_that_a_key_has_before_anybody_wrote_it,
    a_container_that_takes_no_data_is_known_and_says_so,
);

/// `a`, `b`, `c`, each of which logs its name.
fn three(runs: &Runs) -> CompiledGraph {
    flow("flow", |g| {
        g.key("n", Reducer::Sum);
        g.node("a", logs("log", "a", runs)).node("b", logs("log", "b", runs)).node("c", logs("log", "c", runs));
        g.edge(START, "a").edge("a", "b").edge("b", "c");
    })
}

fn world() -> (World, Runs) {
    let runs = Runs::default();
    let world = World::one({
        let runs = runs.clone();
        move || three(&runs)
    });
    (world, runs)
}

fn thread() -> ThreadId {
    ThreadId::parse("t").expect("a thread id")
}

async fn kinds(engine: &TestEngine) -> Vec<(String, Value)> {
    let open = engine.parked(&thread()).await;
    open.into_iter().map(|view| (view.kind, view.payload["reason"].clone())).collect()
}

async fn a_start_may_have_a_limit_of_its_own_and_what_follows_has_not() {
    let (world, runs) = world();
    let engine = world.engine().await;
    let by = ann();
    let started = engine.engine.start_within("flow", &json!({}), Some(thread()), Some(2), &by, &|_, _, _| None).await;
    started.expect("started");
    assert_eq!(kinds(&engine).await, [("pause".to_owned(), json!("recursion_limit"))]);
    assert_eq!((runs.of("b"), runs.of("c")), (1, 0));
    engine.resume(&thread(), [], CONTINUE).await.expect("released");
    assert_eq!(engine.rests(&thread(), "succeeded").await.state["log"], json!(["a", "b", "c"]));
}

async fn a_thread_may_start_with_an_edit_and_runs_nothing_before_it_is_told_to() {
    let (world, runs) = world();
    let engine = world.engine().await;
    let values = json!({"log": ["edited"]}).as_object().cloned();
    let edit = Edit { values, as_node: Some("a".to_owned()) };
    let edited = engine.engine.start_by_edit("flow", &edit, thread(), &ann()).await.expect("started");
    let Edited::New { checkpoint, status, next } = edited else { panic!("new") };
    assert_eq!((status, next), ("parked", vec!["b".to_owned()]));
    assert_eq!(kinds(&engine).await, [("pause".to_owned(), json!("edited"))]);
    let history = engine.history(&thread()).await;
    assert_eq!((history.len(), &history[0].checkpoint, history[0].parent.as_ref()), (1, &checkpoint, None));

    let again = engine.engine.start_by_edit("flow", &edit, thread(), &ann()).await;
    assert!(matches!(again, Err(RequestError::Store(StoreError::Refused(Refusal::ThreadExists { .. })))), "{again:?}");
    let unknown = Edit { values: None, as_node: Some("x".to_owned()) };
    let refused = engine.engine.start_by_edit("flow", &unknown, ThreadId::parse("u").expect("an id"), &ann()).await;
    assert!(matches!(refused, Err(RequestError::Edit(_))), "{refused:?}");

    engine.crash().await;
    let engine = world.engine().await;
    engine.resume(&thread(), [], CONTINUE).await.expect("released");
    let done = engine.rests(&thread(), "succeeded").await;
    assert_eq!((done.state["log"].clone(), runs.of("a")), (json!(["edited", "b", "c"]), 0));
}

async fn an_edit_after_which_nothing_is_due_ends_its_thread() {
    let (world, runs) = world();
    let engine = world.engine().await;
    let edit = Edit { values: None, as_node: Some("c".to_owned()) };
    engine.engine.start_by_edit("flow", &edit, thread(), &ann()).await.expect("started");
    engine.rests(&thread(), "succeeded").await;
    assert!(runs.all().is_empty());
}

async fn history_shows_the_value_that_a_key_has_before_anybody_wrote_it() {
    let runs = Runs::default();
    let world = World::one(move || {
        let inner = part("inner", |g| _ = g.node("asks", asks("asks", &runs)).edge(START, "asks"));
        flow("flow", |g| _ = g.key("total", Reducer::Sum).subgraph("inner", inner).edge(START, "inner"))
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    let history = async |frame| {
        let page = engine.engine.history(&thread, frame, None, 10).await.expect("there");
        page.into_iter().map(|entry| Value::Object(entry.state)).collect::<Vec<_>>()
    };
    let view = engine.view(&thread).await;
    assert_eq!(history(None).await, [json!({"got": {}, "log": [], "total": 0})]);
    assert_eq!(history(None).await, [Value::Object(view.values)], "as the thread itself shows it");
    let frame = &view.frames[0];
    assert_eq!(history(Some(&frame.frame)).await, [json!({"got": {}, "inside": []})]);
    assert_eq!(history(Some(&frame.frame)).await, [Value::Object(frame.values.clone())]);
}

async fn a_container_that_takes_no_data_is_known_and_says_so() {
    let runs = Runs::default();
    let world = World::one(move || flow("flow", |g| _ = g.node("asks", asks("asks", &runs)).edge(START, "asks")));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let point = engine.parked(&thread).await.remove(0).id;
    let container = engine.view(&thread).await.parents[&point][0].id.clone();
    for data in [json!(null), json!("data"), json!({"n": 1})] {
        let refused = engine.resume(&thread, [(container.clone(), data)], NOTHING).await;
        let Err(RequestError::Store(StoreError::Refused(refusal))) = refused else { panic!("{refused:?}") };
        assert_eq!(refusal, Refusal::NotAnswerable { interrupt: container.clone() });
    }
    let nobody = countersign_kernel::ids::InterruptId::parse("0".repeat(32)).expect("an id");
    let refused = engine.resume(&thread, [(nobody.clone(), json!(1))], Resume::default()).await;
    let Err(RequestError::Store(StoreError::Refused(refusal))) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal, Refusal::UnknownInterrupt(nobody));
}
