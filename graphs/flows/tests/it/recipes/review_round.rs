//! A review as a sub-graph, twice in one flow.

use countersign_flows::recipes::contract;
use countersign_kernel::machine::Rest;

use super::*;

fn begun() -> Driver {
    start(contract().expect("sound"), json!({"title": "Lease", "text": "Five years."}))
}

const YES: fn() -> Value = || json!({"approved": true});

#[test]
fn two_rounds_and_a_signature() {
    let mut run = begun();
    assert_eq!((titles(&run), places(&run)), (vec!["Accept “Lease”?".into()], vec!["contract/legal@0/judge@0".into()]));
    assert_eq!(asked(&run)[0].policy.approvers[0].to_string(), "role:legal");
    answer(&mut run, YES()).expect("open");
    assert_eq!(places(&run), ["contract/finance@1/judge@0"]);
    assert_eq!(asked(&run)[0].policy.approvers[0].to_string(), "role:finance");
    answer(&mut run, YES()).expect("open");
    assert_eq!(titles(&run), ["Sign “Lease”?"]);
    answer(&mut run, json!({})).expect("open");
    assert_eq!((run.rest(), &run.state()["signed"]), (Rest::Succeeded, &json!(["person:ann@example.com"])));
}

#[test]
fn a_remark_leads_to_the_author_and_back_with_the_new_text() {
    let mut run = begun();
    answer(&mut run, json!({"approved": false, "reason": "too long"})).expect("open");
    let request = asked(&run).remove(0);
    assert_eq!((request.title.as_str(), request.details[0].value.as_str()), ("Rewrite “Lease”?", "too long"));
    answer(&mut run, json!({"text": "Two years."})).expect("open");
    assert_eq!(
        (places(&run), asked(&run)[0].message.as_deref()),
        (vec!["contract/legal@0/judge@2".into()], Some("Two years."))
    );
    answer(&mut run, YES()).expect("open");
    assert_eq!(
        (run.state()["text"].as_str(), asked(&run)[0].message.as_deref()),
        (Some("Two years."), Some("Two years."))
    );
}

#[test]
fn who_gives_up_ends_the_case() {
    let mut run = begun();
    answer(&mut run, json!({"approved": false})).expect("open");
    assert_eq!(asked(&run)[0].details[0].value, "no reason given");
    answer(&mut run, json!({})).expect("an empty form");
    assert_eq!((run.rest(), &run.state()["accepted"]), (Rest::Succeeded, &json!(false)));
    assert_eq!((run.visits("finance"), run.visits("sign")), (0, 0));
}

#[test]
fn a_wrong_answer_changes_nothing() {
    let mut run = begun();
    let before = run.points();
    assert_eq!(faults(answer(&mut run, Value::Null)), [""]);
    assert_eq!(faults(answer(&mut run, json!({"text": "Two years."}))), ["/text", "/approved"]);
    resume(&mut run, RESUME_ALL);
    assert_eq!(run.points(), before);
}

#[test]
fn it_waits_inside_through_a_restart_at_every_answer() {
    let mut run = begun();
    for reply in [json!({"approved": false, "reason": "?"}), json!({"text": "Two years."}), YES(), YES(), json!({})] {
        let before = run.points();
        run = run.reopen(contract().expect("sound"));
        assert_eq!(run.points(), before);
        answer(&mut run, reply).expect("open");
    }
    assert_eq!((run.rest(), run.state()["text"].as_str()), (Rest::Succeeded, Some("Two years.")));
}

#[test]
fn an_operator_may_edit_the_text_inside_the_round() {
    let mut run = begun();
    let frame = run.frames().remove(0);
    assert_eq!((frame.path, &frame.next), (vec!["legal".to_owned()], &vec!["judge".to_owned()]));
    let values = json!({"text": "One year."}).as_object().cloned();
    run.edit(&Edit { values, as_node: None }, None, Some(&frame.id)).expect("an unfinished frame");
    resume(&mut run, CONTINUE);
    assert_eq!(asked(&run)[0].message.as_deref(), Some("One year."));
}
