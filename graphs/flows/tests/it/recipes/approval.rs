//! Approval: nothing happens without a yes, and it happens once.

use countersign_flows::recipes::close_account;
use countersign_kernel::driver::Refused;
use countersign_kernel::machine::Rest;

use super::*;

fn begun() -> (Driver, Arc<World>, Arc<dyn Outside>) {
    let (world, outside) = world();
    let flow = close_account(Arc::clone(&outside)).expect("sound");
    (start(flow, json!({"account": "A-7", "reason": "moved abroad"})), world, outside)
}

#[test]
fn a_yes_lets_the_machine_act_once() {
    let (mut run, world, _) = begun();
    let request = &asked(&run)[0];
    assert_eq!(request.title, "Close the account A-7?");
    assert_eq!(request.outcomes.no.as_deref(), Some("it stays open and the case ends"));
    assert!(world.calls().is_empty());

    answer(&mut run, json!({"approved": true, "reason": "as agreed"})).expect("an approval");
    assert_eq!(run.rest(), Rest::Succeeded);
    assert_eq!(world.calls(), [("close_account".to_owned(), json!({"account": "A-7"}))]);
    assert_eq!(run.state()["decision"]["by"], json!(["person:ann@example.com"]));
    assert_eq!(run.state()["confirmation"], "close_account done");
}

#[test]
fn a_no_ends_the_case() {
    let (mut run, world, _) = begun();
    answer(&mut run, json!({"approved": false, "reason": "there is a balance"})).expect("an approval");
    assert_eq!((run.rest(), run.visits("act")), (Rest::Succeeded, 0));
    assert_eq!(run.state()["decision"]["reason"], "there is a balance");
    assert!(world.calls().is_empty());
}

#[test]
fn nothing_but_an_answer_of_the_right_shape_is_a_decision() {
    let (mut run, world, _) = begun();
    let before = run.points();
    assert_eq!(faults(answer(&mut run, Value::Null)), [""]);
    assert_eq!(faults(answer(&mut run, json!({}))), ["/approved"]);
    assert_eq!(faults(answer(&mut run, json!({"approved": "yes", "account": "A-8"}))), ["/account", "/approved"]);
    resume(&mut run, RESUME_ALL);
    resume(&mut run, CONTINUE);
    assert_eq!((run.points(), run.rest()), (before, Rest::Parked));
    assert!(world.calls().is_empty());
}

#[test]
fn it_waits_through_a_restart() {
    let (run, world, outside) = begun();
    let before = run.points();
    let mut run = run.reopen(close_account(outside).expect("sound"));
    assert_eq!(run.points(), before, "the links that were sent still work");
    answer(&mut run, json!({"approved": true})).expect("an approval");
    assert_eq!((run.rest(), world.calls().len()), (Rest::Succeeded, 1));
}

#[test]
fn an_act_that_failed_is_tried_again_without_asking_again() {
    let (mut run, world, outside) = begun();
    world.fail_next(1);
    answer(&mut run, json!({"approved": true})).expect("an approval");
    assert_eq!((run.rest(), run.errors()["act"]), (Rest::Failed, "no reply: the line is dead"));
    let mut run = run.reopen(close_account(outside).expect("sound"));
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), run.visits("ask"), run.visits("act")), (Rest::Succeeded, 2, 2));
    let keys = world.keys();
    assert_eq!((keys.len(), &keys[0]), (2, &keys[1]), "one key, so the other side can tell");
}

#[test]
fn who_says_yes_says_it_to_what_is_shown() {
    let (mut run, world, _) = begun();
    let first = run.points().remove(0);
    edit(&mut run, json!({"account": "A-8"}), None);
    resume(&mut run, CONTINUE);
    assert_eq!(titles(&run), ["Close the account A-8?"]);
    let yes = json!({"approved": true});
    assert_eq!(answer_ids(&mut run, &[(&first.id, yes.clone())]), Err(Refused::NotOpen(first.id)));
    answer(&mut run, yes).expect("the new question");
    assert_eq!(world.calls(), [("close_account".to_owned(), json!({"account": "A-8"}))]);
}
