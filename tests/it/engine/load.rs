//! Many threads at once.

use futures_util::future::join_all;
use serde_json::json;

use super::graphs::{Does, in_a_row};
use crate::support::{Gate, Runs, World, ann, eventually};

engine!(two_hundred_threads_at_once_all_finish, a_hundred_threads_answered_as_they_park_all_finish,);
with_redis!(two_hundred_threads_at_once_all_finish, a_hundred_threads_answered_as_they_park_all_finish,);

fn world(runs: &Runs, nodes: &'static [(&'static str, Does)]) -> World {
    let runs = runs.clone();
    World::one(move || in_a_row(&runs, &Gate::closed(), nodes)).carried()
}

async fn two_hundred_threads_at_once_all_finish() {
    let runs = Runs::default();
    let world = world(&runs, &[("a", Does::Work), ("b", Does::Work), ("c", Does::Work)]);
    let engine = world.engine().await;
    let threads = join_all((0..200).map(|_| engine.start("flow", json!({})))).await;
    eventually("all finish", async || {
        let counts = engine.engine.store().counts().await.expect("counts").threads;
        (counts == [("succeeded".to_owned(), 200)]).then_some(())
    })
    .await;
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("c")), (200, 200, 200));
    assert_eq!(engine.detail(&threads[199]).await.state["log"], json!(["a", "b", "c"]));
    engine.idles().await;
    assert_eq!(world.jobs().await, 0, "no job row is left");
}

async fn a_hundred_threads_answered_as_they_park_all_finish() {
    let runs = Runs::default();
    let world = world(&runs, &[("a", Does::Ask), ("b", Does::Ask)]);
    let engine = world.engine().await;
    // Each in turn, as people work through an inbox; the others go on meanwhile.
    let threads = join_all((0..100).map(|_| engine.start("flow", json!({})))).await;
    for _ in 0..2 {
        for thread in &threads {
            let open = engine.parked(thread).await;
            engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
        }
    }
    for thread in &threads {
        assert_eq!(engine.rests(thread, "succeeded").await.state["log"], json!(["a", "b"]));
    }
    assert_eq!((runs.of("a"), runs.of("b")), (200, 200));
}
