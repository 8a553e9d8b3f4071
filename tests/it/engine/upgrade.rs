//! Threads that an earlier release parked go on under this one.

use std::sync::Arc;

use countersign_flows::{InMemoryLedger, Ledger};
use countersign_kernel::ids::ThreadId;
use countersign_kernel::policy::Voter;
use countersign_kernel::ports::Ids;
use countersign_kernel::principal::Principal;
use countersign_worker::queue::JobId;
use countersign_worker::store::Store;
use countersign_worker::store::commands::{RecordVote, Via};
use countersign_worker::store::views::InterruptView;
use countersign_worker::system::SystemIds;
use serde_json::{Value, json};

use crate::contract::upgrade::MIGRATION_0001;
use crate::support::{On, TestEngine, World, ann, cy};

fn thread(name: &str) -> ThreadId {
    ThreadId::parse(name).expect("an id")
}

/// A vote of somebody who holds a role that the people of the tests do not.
async fn vote(engine: &TestEngine, view: &InterruptView, role: &str, answer: Value) {
    let vote = RecordVote {
        interrupt: view.id.clone(),
        voter: Voter { principal: Principal::person("dora@example.com"), roles: vec![role.to_owned()] },
        operator: false,
        answer,
        replace: false,
        revision: None,
        content_hash: None,
        via: Via { channel: "api", identified: "token" },
        job: JobId::new(1, u128::from_be_bytes(SystemIds.salt())),
        now: engine.engine.clock().now(),
    };
    engine.store.record_vote(vote).await.expect("accepted");
}

#[tokio::test]
async fn threads_that_were_parked_at_migration_0001_are_answered_and_end() {
    // No release that used Postgres stopped there.
    On::Sqlite.run(are_answered_and_end()).await;
}

async fn are_answered_and_end() {
    let ledger = Arc::new(InMemoryLedger::new());
    let world = World::new({
        let ledger = Arc::clone(&ledger);
        move || countersign_flows::all(Arc::clone(&ledger) as Arc<dyn Ledger>).expect("sound flows")
    })
    .holding(MIGRATION_0001)
    .await;
    let engine = world.engine().await;
    engine.idles().await;
    assert!(ledger.payments().is_empty(), "opening the file runs nothing");

    let open = engine.parked(&thread("asks-a-manager")).await.remove(0);
    engine.vote(&open.id, &ann(), json!({"approved": true})).await.expect("accepted");
    assert_eq!(engine.rests(&thread("asks-a-manager"), "succeeded").await.state["outcome"], "paid");

    // A manager decided before the upgrade, and is excluded after it.
    let open = engine.parked(&thread("asks-finance")).await.remove(0);
    assert!(engine.vote(&open.id, &ann(), json!({"approved": true})).await.is_err());
    engine.vote(&open.id, &cy(), json!({"approved": true})).await.expect("accepted");
    let done = engine.rests(&thread("asks-finance"), "succeeded").await;
    assert_eq!((&done.state["outcome"], done.state["decisions"].as_array().map(Vec::len)), (&json!("paid"), Some(2)));

    // Slots that had finished stay finished, the others are answered one by one.
    let before = ledger.payments().len();
    for role in ["compliance", "treasury"] {
        let open = engine.parked(&thread("batch")).await;
        let asked = open.iter().find(|view| view.address.contains(if role == "treasury" { "W-2" } else { "W-4" }));
        vote(&engine, asked.expect("it waits"), role, json!({"approved": true})).await;
        engine.idles().await;
    }
    let done = engine.rests(&thread("batch"), "succeeded").await;
    assert_eq!(done.state["results"].as_array().map(Vec::len), Some(5));
    assert_eq!(ledger.payments().len() - before, 2, "what was sent before is not sent again");

    // The third of four questions of one body; the first two were answered.
    for (kind, answer) in [("multi_select", json!({"values": ["basil"]})), ("approval", json!({"approved": false}))] {
        let open = engine.parked(&thread("tour")).await.remove(0);
        assert_eq!(open.kind, kind);
        vote(&engine, &open, "approver", answer).await;
        engine.idles().await;
    }
    let done = engine.rests(&thread("tour"), "succeeded").await;
    let answers = ["name", "colour", "toppings", "outcome"].map(|key| done.state[key].clone());
    assert_eq!(answers, [json!("Ann"), json!("green"), json!(["basil"]), json!("stopped")]);

    // The one that had ended starts over on its old state.
    let input = json!({"amount": "20.00", "currency": "EUR", "requester": "Ines", "purpose": "Bus"});
    let small = thread("small");
    engine.engine.restart(&small, &input, false, &ann(), &|_, _, _| None).await.expect("accepted");
    assert_eq!(engine.rests(&small, "succeeded").await.state["purpose"], "Bus");
    for name in ["asks-a-manager", "asks-finance", "batch", "tour", "small"] {
        assert_eq!(engine.store.verify_audit(&thread(name)).await.expect("verified"), None, "{name}");
    }
}
