//! Stops in sub-graphs whose supersteps were kept before their process died.

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::occurrence::PointKind;
use countersign_worker::store::Store;
use serde_json::json;

use super::graphs::CONTINUE;
use crate::support::flows::{asks, flow, logs, part};
use crate::support::{Dies, Fate, On, Runs, TestEngine, World};

engine!(a_continue_releases_one_stop_and_what_is_open_is_listed_whoever_dies,);

/// A graph `inner` that stops before `second` and before `third`, beside a
/// question.
fn stops_inside(runs: &Runs) -> CompiledGraph {
    let inner = part("inner", |g| {
        for node in ["first", "second", "third"] {
            g.node(node, logs("inside", node, runs));
        }
        g.edge(START, "first").edge("first", "second").edge("second", "third");
        g.break_before("second").break_before("third");
    });
    flow("flow", |g| {
        g.subgraph("inner", inner).node("asks", asks("asks", runs));
        g.edge(START, "inner").edge(START, "asks");
    })
}

/// Waits until the thread is parked, in another process if this one dies, and
/// gives the open stops. The store lists all that is open and nothing else.
async fn parks(
    world: &World,
    mut engine: TestEngine,
    thread: &ThreadId,
    fate: &Fate,
) -> (TestEngine, Vec<InterruptId>) {
    let died = tokio::select! {
        _ = engine.rests(thread, "parked") => false,
        () = fate.death() => true,
    };
    if died {
        engine.crash().await;
        engine = world.engine().await;
        engine.rests(thread, "parked").await;
    }
    let view = engine.view(thread).await;
    let mut listed: Vec<_> = view.detail.interrupts.iter().map(|listed| listed.id.clone()).collect();
    let mut open: Vec<_> = view.points.iter().map(|point| point.id.clone()).collect();
    listed.sort();
    open.sort();
    assert_eq!((&listed, view.detail.summary.open as usize), (&open, open.len()));
    let stops = view.points.into_iter().filter(|point| point.kind == PointKind::Break);
    (engine, stops.map(|point| point.id).collect())
}

/// The superstep of a sub-graph is kept while its task runs: a stop in it is
/// durable, or over, before the store has heard of it, and a release must not
/// be for the next stop as well.
async fn a_continue_releases_one_stop_and_what_is_open_is_listed_whoever_dies() {
    for n in (0..).step_by(On::one_of().div_ceil(2) as usize) {
        let mut writes = 0;
        for dies in [Dies::Before, Dies::After] {
            let (runs, fate) = (Runs::default(), Fate::at(n, dies));
            let world = World::one(move || stops_inside(&runs)).meeting(&fate);
            let mut engine = world.engine().await;
            let thread = engine.start("flow", json!({})).await;
            let mut stops = Vec::new();
            for released in 0..3 {
                let open;
                (engine, open) = parks(&world, engine, &thread, &fate).await;
                assert_eq!(open.len(), usize::from(released < 2), "{n} {dies:?}: {released} released");
                assert!(open.iter().all(|id| !stops.contains(id)), "{n} {dies:?}: another one");
                for id in &stops {
                    assert_eq!(engine.store.interrupt(id).await.expect("there").status, "released", "{n} {dies:?}");
                }
                stops.extend(open);
                if released < 2 {
                    engine.resume(&thread, [], CONTINUE).await.expect("released");
                }
            }
            writes = fate.writes();
            engine.crash().await;
        }
        if writes < n {
            return;
        }
    }
}
