//! What tests of graphs inside graphs share.

use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::ThreadId;
use countersign_worker::store::views::InterruptView;
use serde_json::Value;

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
