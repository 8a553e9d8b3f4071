//! Waiting for an event, in memory: time passes when the test says so.

use countersign_flows::recipes::order;
use countersign_kernel::machine::Rest;
use countersign_kernel::occurrence::PointKind;

use super::*;

fn begun(world: &Arc<World>) -> Driver {
    start(order(Arc::clone(world) as Arc<dyn Outside>).expect("sound"), json!({"order": "O-1"}))
}

#[test]
fn a_payment_that_is_confirmed_ships_the_order_a_day_later() {
    let world = Arc::new(World::default());
    let mut run = begun(&world);
    let waits = run.points();
    assert_eq!((waits.len(), waits[0].signal(), waits[0].due.is_some()), (1, Some("payment.confirmed"), true));
    now(run.signal("payment.confirmed", json!({"reference": "P-9"}))).expect("it runs");
    assert_eq!((run.points()[0].kind, world.count("ship")), (PointKind::Sleep, 0));
    assert!(now(run.pass_time()));
    assert_eq!((run.rest(), world.count("ship"), world.count("cancel_order")), (Rest::Succeeded, 1, 0));
    assert_eq!(run.state()["payment"], json!({"reference": "P-9"}));
}

#[test]
fn an_order_that_nobody_pays_is_given_up_and_a_late_payment_changes_nothing() {
    let world = Arc::new(World::default());
    let mut run = begun(&world);
    run = run.reopen(order(Arc::clone(&world) as Arc<dyn Outside>).expect("sound"));
    assert!(now(run.pass_time()));
    assert_eq!((run.rest(), world.count("ship"), world.count("cancel_order")), (Rest::Succeeded, 0, 1));
    now(run.signal("payment.confirmed", json!({"reference": "P-9"}))).expect("kept");
    assert_eq!((run.rest(), world.count("ship")), (Rest::Succeeded, 0));
}

#[test]
fn a_confirmation_that_does_not_fit_fails_the_node_by_its_name() {
    let mut run = begun(&Arc::new(World::default()));
    now(run.signal("payment.confirmed", json!({"amount": 1}))).expect("it runs");
    assert!(run.errors()["pay"].contains("the signal `payment.confirmed` does not fit"), "{:?}", run.errors());
}
