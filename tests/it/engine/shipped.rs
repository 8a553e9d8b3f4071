//! A flow that ships, with the people it needs.

use std::sync::Arc;

use countersign_flows::{InMemoryLedger, Ledger, expense};
use countersign_worker::engine::RequestError;
use countersign_worker::store::{Refusal, StoreError};
use serde_json::json;

use crate::support::{World, ann, bob, cy};

engine!(a_large_expense_needs_a_manager_and_somebody_else_of_finance,);

async fn a_large_expense_needs_a_manager_and_somebody_else_of_finance() {
    let ledger = Arc::new(InMemoryLedger::new());
    let world = World::one({
        let ledger = Arc::clone(&ledger);
        move || expense(Arc::clone(&ledger) as Arc<dyn Ledger>).expect("a sound flow")
    })
    .carried();
    let engine = world.engine().await;
    let input = json!({"amount": "2350.00", "currency": "EUR", "requester": "Dora", "purpose": "Fair"});
    let thread = engine.start("expense", input).await;

    let first = engine.parked(&thread).await.remove(0);
    assert!(refused(engine.vote(&first.id, &cy(), json!({"approved": true}))).await, "finance is not asked yet");
    engine.vote(&first.id, &ann(), json!({"approved": true, "reason": "needed"})).await.expect("accepted");

    let second = engine.parked(&thread).await.remove(0);
    assert_ne!(second.id, first.id);
    assert!(refused(engine.vote(&second.id, &ann(), json!({"approved": true}))).await, "she decided before");
    assert!(refused(engine.vote(&second.id, &bob(), json!({"approved": true}))).await, "a manager only");
    assert!(ledger.payments().is_empty());
    engine.crash().await;

    let engine = world.engine().await;
    engine.vote(&second.id, &cy(), json!({"approved": true})).await.expect("accepted");
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["outcome"], done.state["decisions"].as_array().map(Vec::len)), (&json!("paid"), Some(2)));
    assert_eq!((ledger.payments().len(), ledger.attempts()), (1, 1));
    let store = engine.engine.store();
    assert_eq!(store.verify_audit(&thread).await.expect("verified"), None);
    let decided = store.audit(&thread).await.expect("there").into_iter().filter(|entry| entry.action == "decided");
    assert_eq!(
        decided.map(|entry| entry.actor.expect("kept")).collect::<Vec<_>>(),
        [ann().to_string(), cy().to_string()]
    );
}

async fn refused<T>(vote: impl Future<Output = Result<T, RequestError>>) -> bool {
    matches!(vote.await, Err(RequestError::Store(StoreError::Refused(Refusal::NotAllowed { .. }))))
}
