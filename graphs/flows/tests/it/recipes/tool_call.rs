//! One tool call: run as it is or changed, answered, rejected.

use countersign_flows::recipes::tool_call;
use countersign_kernel::machine::Rest;
use countersign_kernel::question::Question;

use super::*;

fn begun() -> (Driver, Arc<World>, Arc<dyn Outside>) {
    let (world, outside) = world();
    let arguments = json!({"to": "Acme", "amount": 250, "note": "March", "tags": ["a"]});
    let input = json!({"call": {"id": "c1", "tool": "transfer", "arguments": arguments}});
    (start(tool_call(Arc::clone(&outside)).expect("sound"), input), world, outside)
}

fn transfer(to: &str, amount: u32) -> Vec<(String, Value)> {
    vec![("transfer".to_owned(), json!({"to": to, "amount": amount, "note": "March", "tags": ["a"]}))]
}

#[test]
fn the_form_names_what_may_be_changed_and_shows_everything() {
    let (run, ..) = begun();
    let request = asked(&run).remove(0);
    assert_eq!(request.title, "Run transfer?");
    let Question::Form { schema } = &request.question else { panic!("{request:?}") };
    let fields: Vec<&String> = schema["properties"].as_object().expect("fields").keys().collect();
    assert_eq!(fields, ["decision", "text", "arg.to", "arg.amount"]);
    let amount = json!({"type": "integer", "title": "Change amount to", "default": 250});
    assert_eq!(schema["properties"]["arg.amount"], amount);
    let shown: Vec<(&str, &str)> = request.details.iter().map(|d| (d.label.as_str(), d.value.as_str())).collect();
    assert_eq!(shown, [("Call", "c1"), ("to", "Acme"), ("amount", "250"), ("note", "March"), ("tags", r#"["a"]"#)]);
}

#[test]
fn approved_it_runs_as_it_is() {
    let (mut run, world, _) = begun();
    answer(&mut run, json!({"decision": "approve"})).expect("it fits");
    assert_eq!((run.rest(), world.calls()), (Rest::Succeeded, transfer("Acme", 250)));
    assert_eq!(run.state()["result"], "transfer done");
}

#[test]
fn changed_it_runs_with_what_the_approver_wrote() {
    let (mut run, world, outside) = begun();
    world.fail_next(1);
    answer(&mut run, json!({"decision": "approve", "arg.amount": 25})).expect("it fits");
    assert_eq!((run.rest(), &run.state()["call"]["arguments"]["amount"]), (Rest::Failed, &json!(25)));
    let mut run = run.reopen(tool_call(outside).expect("sound"));
    resume(&mut run, RETRY);
    let twice = [transfer("Acme", 25), transfer("Acme", 25)].concat();
    assert_eq!((run.rest(), world.calls()), (Rest::Succeeded, twice));
    assert_eq!(world.keys()[0], world.keys()[1]);
}

#[test]
fn answered_or_rejected_it_does_not_run() {
    let (mut run, world, _) = begun();
    answer(&mut run, json!({"decision": "answer", "text": "Paid by hand."})).expect("it fits");
    assert_eq!((run.rest(), &run.state()["result"]), (Rest::Succeeded, &json!("Paid by hand.")));
    assert!(world.calls().is_empty());

    let (mut run, world, _) = begun();
    answer(&mut run, json!({"decision": "reject", "text": "Wrong payee."})).expect("it fits");
    assert_eq!((run.rest(), &run.state()["rejected"]), (Rest::Succeeded, &json!("Wrong payee.")));
    assert!(world.calls().is_empty());
}

#[test]
fn other_arguments_and_other_types_are_refused() {
    let (mut run, world, _) = begun();
    let before = run.points();
    assert_eq!(faults(answer(&mut run, Value::Null)), [""]);
    assert_eq!(faults(answer(&mut run, json!({"arg.amount": 25}))), ["/decision"]);
    assert_eq!(faults(answer(&mut run, json!({"decision": "approve", "arg.note": "April"}))), ["/arg.note"]);
    assert_eq!(faults(answer(&mut run, json!({"decision": "approve", "arg.amount": "25"}))), ["/arg.amount"]);
    resume(&mut run, RESUME_ALL);
    assert_eq!((run.points(), world.calls()), (before, vec![]));
}

#[test]
fn a_rejection_without_a_reason_is_asked_again() {
    let (mut run, world, outside) = begun();
    let message = |run: &Driver| asked(run).remove(0).message;
    answer(&mut run, json!({"decision": "reject", "text": "  "})).expect("it fits the form");
    assert_eq!(message(&run).as_deref(), Some("Write the answer, or the reason, as the text."));
    let mut run = run.reopen(tool_call(outside).expect("sound"));
    answer(&mut run, json!({"decision": "approve", "text": "fine"})).expect("it fits the form");
    assert_eq!(message(&run).as_deref(), Some("A call that runs answers by itself: leave the text empty."));
    answer(&mut run, json!({"decision": "reject", "text": "Wrong payee."})).expect("it fits");
    assert_eq!((run.rest(), world.calls()), (Rest::Succeeded, vec![]));
}
