//! Messages whose sender does not come back.

use countersign_worker::store::Overviews as _;
use countersign_worker::store::Store;
use serde_json::json;

use super::graphs::{Does, in_a_row};
use crate::support::{Gate, Outbox, Runs, World, eventually};

engine!(a_channel_that_panics_is_tried_again_and_given_up, a_message_that_kills_its_worker_is_not_sent_for_ever,);
with_redis!(a_channel_that_panics_is_tried_again_and_given_up, a_message_that_kills_its_worker_is_not_sent_for_ever,);

fn world(outbox: &Outbox) -> World {
    World::one(|| in_a_row(&Runs::default(), &Gate::closed(), &[("pay", Does::Ask)]))
        .sending_through(outbox)
        .configured(|config| config.delivery_attempts = 2)
}

async fn a_channel_that_panics_is_tried_again_and_given_up() {
    let outbox = Outbox::saying(|_| panic!("out of paper"));
    let world = world(&outbox);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    let failed = eventually("both deliveries fail", async || {
        let all = engine.store.deliveries(None, Some("failed"), 10).await.expect("listed");
        (all.len() == 2).then_some(all)
    })
    .await;
    assert!(failed.iter().all(|view| view.attempts == 2), "{failed:?}");
    assert!(failed.iter().all(|view| view.detail.as_deref() == Some("the channel panicked")), "{failed:?}");
    assert_eq!(outbox.attempts().len(), 4);
}

async fn a_message_that_kills_its_worker_is_not_sent_for_ever() {
    let gate = Gate::closed();
    let outbox = Outbox::taking().held_at(&gate);
    let world = world(&outbox);
    for life in 1..=2 {
        let engine = world.engine().await;
        if life == 1 {
            let thread = engine.start("flow", json!({})).await;
            engine.parked(&thread).await;
        }
        gate.arrived(2 * life).await;
        engine.crash().await;
    }
    let engine = world.engine().await;
    let failed = eventually("both deliveries fail", async || {
        let all = engine.store.deliveries(None, Some("failed"), 10).await.expect("listed");
        (all.len() == 2).then_some(all)
    })
    .await;
    assert!(failed.iter().all(|view| view.possibly_twice), "{failed:?}");
    assert_eq!(outbox.attempts().len(), 4, "no third copy");
    assert_eq!(engine.store.counts().await.expect("counts").dead_letters, 2);
}
