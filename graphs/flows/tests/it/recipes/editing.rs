//! Editing: named parts can be corrected, and nothing else.

use countersign_flows::recipes::letter;
use countersign_kernel::machine::Rest;
use countersign_kernel::question::Question;

use super::*;

fn begun() -> (Driver, Arc<World>, Arc<dyn Outside>) {
    let (world, outside) = world();
    let flow = letter(Arc::clone(&outside)).expect("sound");
    (
        start(flow, json!({"to": "Ines Moreau", "subject": "Your refund", "body": "Deer Ines, it is on its way."})),
        world,
        outside,
    )
}

fn sent(subject: &str, body: &str) -> Vec<(String, Value)> {
    vec![("send_letter".to_owned(), json!({"to": "Ines Moreau", "subject": subject, "body": body}))]
}

#[test]
fn the_form_holds_what_is_there_and_shows_the_rest() {
    let (run, ..) = begun();
    let request = asked(&run).remove(0);
    let Question::Form { schema } = &request.question else { panic!("{request:?}") };
    assert_eq!(schema["properties"]["subject"]["default"], "Your refund");
    assert_eq!(schema["properties"]["body"]["default"], "Deer Ines, it is on its way.");
    assert!(schema["properties"].get("to").is_none());
    assert_eq!(request.details[0].value, "Ines Moreau");
}

#[test]
fn as_it_stands_it_is_sent_as_it_stands() {
    for reply in [
        json!({"decision": "send"}),
        json!({"decision": "send", "subject": "Your refund", "body": "Deer Ines, it is on its way."}),
    ] {
        let (mut run, world, _) = begun();
        answer(&mut run, reply).expect("it fits");
        assert_eq!(world.calls(), sent("Your refund", "Deer Ines, it is on its way."));
        assert_eq!(run.state()["corrections"], json!([]));
    }
}

#[test]
fn what_is_sent_is_what_the_approver_wrote_and_the_change_is_on_record() {
    let (mut run, world, _) = begun();
    answer(&mut run, json!({"decision": "send", "body": "Dear Ines, it is on its way."})).expect("it fits");
    assert_eq!(world.calls(), sent("Your refund", "Dear Ines, it is on its way."));
    let correction =
        json!({"part": "body", "before": "Deer Ines, it is on its way.", "by": ["person:ann@example.com"]});
    assert_eq!((run.rest(), &run.state()["corrections"]), (Rest::Succeeded, &json!([correction])));
}

#[test]
fn a_letter_can_be_discarded() {
    let (mut run, world, _) = begun();
    answer(&mut run, json!({"decision": "discard"})).expect("it fits");
    assert_eq!((run.rest(), run.visits("send"), world.calls()), (Rest::Succeeded, 0, vec![]));
}

#[test]
fn only_the_named_parts_can_be_edited_and_only_within_bounds() {
    let (mut run, world, _) = begun();
    let before = run.points();
    assert_eq!(faults(answer(&mut run, Value::Null)), [""]);
    assert_eq!(faults(answer(&mut run, json!({"body": "Dear Ines"}))), ["/decision"]);
    assert_eq!(faults(answer(&mut run, json!({"decision": "send", "to": "Somebody Else"}))), ["/to"]);
    let long = "x".repeat(121);
    assert_eq!(faults(answer(&mut run, json!({"decision": "burn", "subject": long}))), ["/decision", "/subject"]);
    assert_eq!((run.points(), world.calls()), (before, vec![]));
}

#[test]
fn it_waits_through_a_restart() {
    let (run, world, outside) = begun();
    let before = run.points();
    let mut run = run.reopen(letter(outside).expect("sound"));
    assert_eq!(run.points(), before);
    answer(&mut run, json!({"decision": "send", "subject": "Refund"})).expect("it fits");
    assert_eq!(world.calls(), sent("Refund", "Deer Ines, it is on its way."));
}
