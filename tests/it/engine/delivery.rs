//! Messages to people, as the engine sends them.

use countersign_kernel::ports::{DeliveryError, Receipt};
use countersign_worker::store::Overviews as _;
use countersign_worker::store::Store;
use countersign_worker::store::views::DeliveryView;
use serde_json::json;

use super::graphs::{Does, in_a_row};
use crate::support::{Gate, Outbox, Runs, TestEngine, World, ann, bob, eventually};

engine!(
    each_manager_is_told_once,
    a_delivery_that_can_be_tried_again_is,
    a_delivery_that_fails_for_good_is_a_dead_letter_and_the_request_waits_on,
    a_delivery_is_given_up_after_its_attempts,
    a_sender_that_died_sends_again_and_says_so,
    nobody_is_told_of_what_was_decided_meanwhile,
);
with_redis!(
    each_manager_is_told_once,
    a_delivery_that_can_be_tried_again_is,
    a_delivery_that_fails_for_good_is_a_dead_letter_and_the_request_waits_on,
    a_delivery_is_given_up_after_its_attempts,
    a_sender_that_died_sends_again_and_says_so,
    nobody_is_told_of_what_was_decided_meanwhile,
);

fn world(outbox: &Outbox) -> World {
    World::one(|| in_a_row(&Runs::default(), &Gate::closed(), &[("pay", Does::Ask)])).sending_through(outbox)
}

/// The deliveries, once all of them have ended as `status`.
async fn ended(engine: &TestEngine, status: &str, count: usize) -> Vec<DeliveryView> {
    let what = format!("{count} deliveries are {status}");
    eventually(&what, async || {
        let all = engine.store.deliveries(None, Some(status), 10).await.expect("listed");
        (all.len() == count).then_some(all)
    })
    .await
}

async fn each_manager_is_told_once() {
    let outbox = Outbox::taking();
    let world = world(&outbox).carried();
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    let sent = ended(&engine, "sent", 2).await;
    assert!(sent.iter().all(|view| view.attempts == 1 && view.detail.as_deref() == Some("250 taken")));
    let attempts = outbox.attempts();
    let mut who: Vec<_> = attempts.iter().map(|notice| notice.recipient.principal.clone()).collect();
    who.sort();
    assert_eq!(who, [ann(), bob()]);
    assert!(attempts.iter().all(|notice| notice.interrupt == open[0].id && notice.request.title == "pay?"));
    engine.crash().await;

    let engine = world.engine().await;
    engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
    engine.rests(&thread, "succeeded").await;
    engine.idles().await;
    assert_eq!(outbox.attempts().len(), 2);
}

async fn a_delivery_that_can_be_tried_again_is() {
    for carried in [true, false] {
        let outbox = Outbox::saying(|notice| match notice.attempt {
            3 => Ok(Receipt { detail: "250 at last".into() }),
            _ => Err(DeliveryError { message: "451 later".into(), retryable: true }),
        });
        let world = world(&outbox);
        let world = if carried { world.carried() } else { world };
        let engine = world.engine().await;
        let thread = engine.start("flow", json!({})).await;
        engine.parked(&thread).await;
        let sent = ended(&engine, "sent", 2).await;
        assert!(sent.iter().all(|view| view.attempts == 3 && !view.possibly_twice));
        assert_eq!(outbox.attempts().len(), 6);
    }
}

async fn a_delivery_that_fails_for_good_is_a_dead_letter_and_the_request_waits_on() {
    let outbox = Outbox::saying(|_| Err(DeliveryError { message: "550 unknown".into(), retryable: false }));
    let world = world(&outbox);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    let failed = ended(&engine, "failed", 2).await;
    assert!(failed.iter().all(|view| view.attempts == 1 && view.detail.as_deref() == Some("550 unknown")));
    assert_eq!(engine.store.counts().await.expect("counts").dead_letters, 2);
    let actions: Vec<_> =
        engine.store.audit(&thread).await.expect("there").into_iter().map(|entry| entry.action).collect();
    assert_eq!(actions, ["started", "delivery_failed", "delivery_failed"]);
    engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("still answerable");
    engine.rests(&thread, "succeeded").await;
}

async fn a_delivery_is_given_up_after_its_attempts() {
    let outbox = Outbox::saying(|_| Err(DeliveryError { message: "451 later".into(), retryable: true }));
    let world = world(&outbox).configured(|config| config.delivery_attempts = 3);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    let failed = ended(&engine, "failed", 2).await;
    assert!(failed.iter().all(|view| view.attempts == 3));
    assert_eq!(outbox.attempts().len(), 6);
}

async fn a_sender_that_died_sends_again_and_says_so() {
    let gate = Gate::closed();
    let outbox = Outbox::taking().held_at(&gate);
    let world = world(&outbox);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    gate.arrived(2).await;
    engine.crash().await;

    gate.open();
    let engine = world.engine().await;
    let sent = ended(&engine, "sent", 2).await;
    assert!(sent.iter().all(|view| view.attempts == 2 && view.possibly_twice));
    let attempts = outbox.attempts();
    assert_eq!(attempts.len(), 4);
    let ids: std::collections::BTreeSet<_> = attempts.into_iter().map(|notice| notice.delivery).collect();
    assert_eq!(ids.len(), 2, "under the same identity");
}

async fn nobody_is_told_of_what_was_decided_meanwhile() {
    // One message at a time, and the first hangs.
    let gate = Gate::closed();
    let outbox = Outbox::saying(|_| Err(DeliveryError { message: "451 later".into(), retryable: true })).held_at(&gate);
    let world = world(&outbox).configured(|config| config.deliveries = 1);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    gate.arrived(1).await;
    engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
    engine.rests(&thread, "succeeded").await;
    gate.open();
    let skipped = ended(&engine, "skipped", 2).await;
    let mut attempts: Vec<_> = skipped.iter().map(|view| view.attempts).collect();
    attempts.sort_unstable();
    assert_eq!((attempts, outbox.attempts().len()), (vec![0, 1], 1), "nor told again by a retry");
}
