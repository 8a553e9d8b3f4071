//! What tests of graphs inside graphs share.

use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::{CheckpointId, FrameId, InterruptId, ThreadId};
use countersign_worker::engine::RequestError;
use countersign_worker::store::views::InterruptView;
use countersign_worker::store::{Refusal, Store, StoreError};
use serde_json::{Value, json};

use crate::support::{TestEngine, World, operator};

pub(super) fn world(graph: impl Fn() -> CompiledGraph + Send + Sync + 'static) -> World {
    World::one(graph).carried()
}

/// The same folder after the process was killed.
pub(super) async fn restarted(world: &World, engine: TestEngine) -> TestEngine {
    engine.idles().await;
    engine.crash().await;
    world.engine().await
}

/// The open points by what they ask.
pub(super) async fn open(engine: &TestEngine, thread: &ThreadId, status: &str) -> Vec<(String, InterruptView)> {
    let views = engine.rests(thread, status).await.interrupts;
    let mut open: Vec<_> =
        views.into_iter().map(|view| (view.payload.as_str().unwrap_or(&view.kind).to_owned(), view)).collect();
    open.sort_by(|a, b| a.0.cmp(&b.0));
    open
}

pub(super) fn names(open: &[(String, InterruptView)]) -> Vec<&str> {
    open.iter().map(|(name, _)| name.as_str()).collect()
}

pub(super) async fn answer(engine: &TestEngine, view: &InterruptView, answer: Value) {
    engine.vote(&view.id, &operator(), answer).await.expect("accepted");
}

/// The checkpoint of a superstep of the thread, on the newest line that has it.
pub(super) async fn at(engine: &TestEngine, thread: &ThreadId, superstep: u64) -> CheckpointId {
    let history = engine.history(thread).await;
    history.into_iter().find(|entry| entry.superstep == superstep).expect("it went that far").checkpoint
}

/// The checkpoint of a superstep of a sub-graph.
pub(super) async fn inside(engine: &TestEngine, thread: &ThreadId, frame: &FrameId, superstep: u64) -> CheckpointId {
    let history = engine.store.history(thread, Some(frame), None, 100).await.expect("there");
    history.into_iter().find(|entry| entry.superstep == superstep).expect("it went that far").checkpoint
}

/// Whoever answers what was dropped is told so.
pub(super) async fn superseded(engine: &TestEngine, id: &InterruptId) {
    let late = engine.vote(id, &operator(), json!("late")).await;
    let Err(RequestError::Store(StoreError::Refused(Refusal::Superseded { interrupt, status }))) = late else {
        panic!("{late:?}")
    };
    assert_eq!((&interrupt, status.as_str()), (id, "superseded"));
}
