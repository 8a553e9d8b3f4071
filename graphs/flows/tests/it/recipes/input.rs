//! Input: what is missing is asked for until it is right.

use countersign_flows::recipes::bank_details;
use countersign_kernel::machine::Rest;

use super::*;

const GOOD: &str = "DE89370400440532013000";

fn begun(input: Value) -> (Driver, Arc<World>, Arc<dyn Outside>) {
    let (world, outside) = world();
    (start(bank_details(Arc::clone(&outside)).expect("sound"), input), world, outside)
}

fn registered(iban: &str) -> Vec<(String, Value)> {
    vec![("register".to_owned(), json!({"name": "Papier Union", "iban": iban}))]
}

fn messages(run: &Driver) -> Vec<String> {
    asked(run).into_iter().filter_map(|request| request.message).collect()
}

#[test]
fn nobody_is_asked_for_what_is_there() {
    for written in [GOOD, " de89 3704 0044 0532 0130 00 "] {
        let (run, world, _) = begun(json!({"name": "Papier Union", "iban": written}));
        assert_eq!((run.rest(), world.calls()), (Rest::Succeeded, registered(GOOD)));
    }
}

#[test]
fn what_is_missing_is_asked_for() {
    let (mut run, world, _) = begun(json!({"name": "Papier Union"}));
    assert_eq!(titles(&run), ["The IBAN of Papier Union?"]);
    assert_eq!(messages(&run), ["It is on their invoices."]);
    answer(&mut run, json!({"value": "GB82 WEST 1234 5698 7654 32"})).expect("a text");
    assert_eq!((run.rest(), world.calls()), (Rest::Succeeded, registered("GB82WEST12345698765432")));
}

#[test]
fn a_wrong_answer_is_asked_again_with_its_fault() {
    let (mut run, world, outside) = begun(json!({"name": "Papier Union"}));
    let mut ids = vec![run.points()[0].id.clone()];
    for (wrong, fault) in [
        ("DE89370400440532013001", "“DE89370400440532013001” cannot be used: its check digits are wrong."),
        ("on file", "“on file” cannot be used: an IBAN has 15 to 34 letters and digits."),
    ] {
        answer(&mut run, json!({"value": wrong})).expect("a text");
        assert_eq!((run.rest(), messages(&run)), (Rest::Parked, vec![fault.to_owned()]));
        ids.push(run.points()[0].id.clone());
        run = run.reopen(bank_details(Arc::clone(&outside)).expect("sound"));
    }
    assert!(ids[0] != ids[1] && ids[1] != ids[2], "each is a question of its own");
    answer(&mut run, json!({"value": GOOD})).expect("a text");
    assert_eq!((run.rest(), world.calls()), (Rest::Succeeded, registered(GOOD)));
}

#[test]
fn a_wrong_value_in_the_input_is_asked_about() {
    let (run, world, _) = begun(json!({"name": "Papier Union", "iban": "?"}));
    assert_eq!(messages(&run), ["“?” cannot be used: an IBAN has 15 to 34 letters and digits."]);
    assert!(world.calls().is_empty());
}

#[test]
fn an_answer_without_a_text_is_refused_at_the_door() {
    let (mut run, _, _) = begun(json!({"name": "Papier Union"}));
    let before = run.points();
    assert_eq!(faults(answer(&mut run, Value::Null)), [""]);
    assert_eq!(faults(answer(&mut run, json!({"value": 89}))), ["/value"]);
    assert_eq!(faults(answer(&mut run, json!({"iban": GOOD}))), ["/iban", "/value"]);
    resume(&mut run, RESUME_ALL);
    assert_eq!(run.points(), before);
}

#[test]
fn an_operator_may_fill_it_in_as_the_node() {
    let (mut run, world, _) = begun(json!({"name": "Papier Union"}));
    edit(&mut run, json!({"iban": GOOD}), Some("collect"));
    assert_eq!(run.next(), ["register"]);
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), world.calls(), run.visits("collect")), (Rest::Succeeded, registered(GOOD), 1));
}

#[test]
fn an_edit_of_the_state_answers_it_too() {
    let (mut run, world, _) = begun(json!({"name": "Papier Union"}));
    edit(&mut run, json!({"iban": GOOD}), None);
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), world.calls(), run.visits("collect")), (Rest::Succeeded, registered(GOOD), 2));
}
