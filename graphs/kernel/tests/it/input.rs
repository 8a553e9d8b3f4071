//! What a graph says to bad input: everything at once, by name.

use countersign_kernel::driver::Driver;
use countersign_kernel::fault::Fault;
use countersign_kernel::graph::START;
use countersign_kernel::machine::Rest;
use countersign_kernel::prelude::*;
use serde_json::{Value, json};

use crate::support::{graph, now, with};

#[derive(State)]
struct Leave {
    person: String,
    days: u32,
    reason: Option<String>,
    #[state(default)]
    half: bool,
    #[reduce(append)]
    notes: Vec<String>,
}

async fn note(_: &Context, leave: &Leave) -> NodeResult<LeaveUpdate> {
    let reason = leave.reason.as_deref().unwrap_or("no reason");
    let half = if leave.half { "half " } else { "" };
    Ok(Leave::update().notes(format!("{}: {} {half}days, {reason}", leave.person, leave.days)))
}

fn leave() -> CompiledGraph {
    let mut flow = Graph::<Leave>::new("leave", 1);
    let note = flow.node("note", note);
    flow.start(note).end(note);
    flow.compile().expect("sound")
}

fn refused(input: Value) -> Vec<String> {
    let faults: Vec<Fault> = now(Driver::start(leave(), input)).expect_err("bad input");
    faults.into_iter().map(|fault| fault.pointer).collect()
}

#[test]
fn good_input_becomes_the_state() {
    let run = now(Driver::start(leave(), json!({"person": "Ann", "days": 3, "notes": ["first"]}))).expect("good input");
    assert_eq!(run.rest(), Rest::Succeeded);
    assert_eq!(run.state()["notes"], json!(["first", "Ann: 3 days, no reason"]));
}

#[test]
fn missing_and_unknown_keys_are_all_named_at_once() {
    assert_eq!(refused(json!({})), ["/days", "/person"]);
    assert_eq!(refused(json!({"person": "Ann", "days": 1, "dais": 1, "a/b~": 1})), ["/dais", "/a~1b~0"]);
    assert_eq!(refused(json!({"dais": 1, "person": "Ann"})), ["/dais", "/days"]);
}

#[test]
fn values_of_another_type_are_named() {
    assert_eq!(refused(json!({"person": "Ann", "days": -1})), ["/days"]);
    assert_eq!(refused(json!({"person": "Ann", "days": 1, "half": "yes"})), ["/half"]);
    assert_eq!(refused(json!({"person": "Ann", "days": 1, "notes": "one"})), ["/notes"]);
    assert_eq!(refused(json!({"person": "Ann", "days": 1, "notes": [1]})), ["/notes"]);
    for input in [json!(null), json!("Ann"), json!([{"person": "Ann", "days": 1}])] {
        assert_eq!(refused(input), [""]);
    }
}

#[test]
fn all_that_does_not_fit_is_named_at_once() {
    let faulty = json!({"person": 7, "days": "many", "half": "yes", "notes": "one", "reason": 1, "dais": 1});
    assert_eq!(refused(faulty), ["/dais", "/notes", "/person", "/days", "/reason", "/half"]);
    // A key has one fault, the first; what is missing is named beside what does not fit.
    assert_eq!(refused(json!({"half": 0, "notes": {}, "days": -1})), ["/notes", "/person", "/days", "/half"]);
    let faults = now(Driver::start(leave(), json!({"person": "Ann", "days": 1.5, "notes": 1}))).expect_err("bad input");
    let messages: Vec<_> = faults.iter().map(|fault| fault.message.as_str()).collect();
    assert!(messages[0].contains("a list to append") && messages[1].contains("expected u32"), "{messages:?}");
}

#[test]
fn a_start_that_leads_nowhere_is_refused() {
    let graph = graph(|g| {
        g.node("n", with(&(), |_, ()| async move { Ok(countersign_kernel::state::Writes::none()) }));
        g.branch(START, |_| Ok(vec!["nowhere".into()]));
    });
    let faults = now(Driver::start(graph, json!({}))).expect_err("nowhere");
    assert!(faults[0].message.contains("`nowhere`"), "{faults:?}");
}

#[test]
fn a_flow_reads_its_input_itself_if_it_says_so() {
    let flow = || {
        let mut flow = Graph::<Leave>::new("leave", 1);
        let note = flow.node("note", note);
        flow.start_with(move |leave| if leave.days == 0 { Target::end() } else { note.into() });
        flow.input(|input| match input.as_str().and_then(|text| text.split_once(' ')) {
            Some((person, days)) => {
                let days = days.parse().map_err(|_| vec![Fault::at("", "expected days")])?;
                Ok(Leave::update().person(person.to_owned()).days(days).half(true))
            }
            None => Err(vec![Fault::at("", "expected `<person> <days>`")]),
        });
        flow.compile().expect("sound")
    };
    let run = now(Driver::start(flow(), json!("Ann 2"))).expect("good input");
    assert_eq!(run.state()["notes"], json!(["Ann: 2 half days, no reason"]));
    let run = now(Driver::start(flow(), json!("Ann 0"))).expect("good input");
    assert_eq!((run.rest(), run.visits("note"), run.checkpoints()), (Rest::Succeeded, 0, 1));
    assert_eq!(now(Driver::start(flow(), json!({}))).expect_err("bad input")[0].message, "expected `<person> <days>`");
}
