//! A node that asks only as long as the state says so: editing the state, or
//! taking the node's place, passes it without an answer (rules 56, 61, R3).

use countersign_kernel::driver::Refused;
use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::machine::{Rest, Resume};
use serde_json::{Value, json};

use crate::support::*;

/// `pay` asks if `last`, the amount, is above 100.
fn paying(runs: &Runs) -> CompiledGraph {
    graph(|g| {
        let pay = with(runs, |cx, runs| async move {
            runs.hit("pay");
            let amount = cx.state().values().get("last").and_then(Value::as_i64).unwrap_or(0);
            if amount > 100 {
                let answer = cx.interrupt(format!("pay {amount}?")).await?;
                return Ok(got("paid", &json!([amount, answer])));
            }
            Ok(got("paid", &json!(amount)))
        });
        g.node("first", counting("first", runs)).node("pay", pay).node("after", counting("after", runs));
        g.edge(START, "first").edge("first", "pay").edge("pay", "after");
    })
}

#[test]
fn a_small_amount_is_not_asked_about_and_a_large_one_is() {
    let runs = Runs::default();
    let run = start_with(paying(&runs), json!({"last": 100}));
    assert_eq!((run.rest(), &run.state()["got"]["paid"]), (Rest::Succeeded, &json!(100)));
    let mut run = start_with(paying(&runs), json!({"last": 101}));
    assert_eq!(open(&run), ["pay 101?"]);
    answer(&mut run, "yes");
    assert_eq!(run.state()["got"]["paid"], json!([101, "yes"]));
}

#[test]
fn editing_the_state_and_going_on_passes_without_an_answer() {
    for reopen in [false, true] {
        let runs = Runs::default();
        let mut run = start_with(paying(&runs), json!({"last": 900}));
        let asked = run.points().remove(0);
        edit(&mut run, json!({"last": 90}), None).expect("`first` ran last");
        if reopen {
            run = run.reopen(paying(&runs));
        }
        assert_eq!(answer_ids(&mut run, &[(&asked.id, json!("yes"))]), Err(Refused::NotOpen(asked.id)));
        resume(&mut run, CONTINUE);
        assert_eq!((run.rest(), &run.state()["got"]["paid"]), (Rest::Succeeded, &json!(90)));
        assert_eq!((runs.of("first"), runs.of("pay"), runs.of("after")), (1, 2, 1));
    }
}

#[test]
fn editing_it_to_another_large_amount_asks_afresh() {
    let runs = Runs::default();
    let mut run = start_with(paying(&runs), json!({"last": 900}));
    let asked = run.points().remove(0);
    edit(&mut run, json!({"last": 500}), None).expect("`first` ran last");
    resume(&mut run, CONTINUE);
    assert_eq!(open(&run), ["pay 500?"]);
    assert_ne!(run.points()[0].id, asked.id);
    answer(&mut run, "yes");
    assert_eq!(run.state()["got"]["paid"], json!([500, "yes"]));
}

#[test]
fn an_update_as_that_node_passes_it() {
    let runs = Runs::default();
    let mut run = start_with(paying(&runs), json!({"last": 900}));
    edit(&mut run, json!({"got": {"paid": "by hand"}}), Some("pay")).expect("a node");
    assert_eq!(run.next(), ["after"]);
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), &run.state()["got"]["paid"]), (Rest::Succeeded, &json!("by hand")));
    assert_eq!((runs.of("pay"), runs.of("after")), (1, 1));
}

#[test]
fn continue_alone_does_not_pass_it() {
    let runs = Runs::default();
    let mut run = start_with(paying(&runs), json!({"last": 900}));
    let asked = run.points();
    resume(&mut run, CONTINUE);
    assert_eq!((run.rest(), run.points(), runs.of("pay")), (Rest::Parked, asked, 1));
}

#[test]
fn an_amendment_is_seen_when_the_node_runs_next_and_wakes_it_not() {
    let runs = Runs::default();
    let mut run = start_with(paying(&runs), json!({"last": 900}));
    let asked = run.points();
    amend(&mut run, json!({"last": 90}), vec![], Resume::default()).expect("something waits");
    assert_eq!((run.points(), runs.of("pay")), (asked, 1));
    // Run although nobody answered, it does not ask any more.
    resume(&mut run, RESUME_ALL);
    assert_eq!((run.rest(), &run.state()["got"]["paid"], runs.of("pay")), (Rest::Succeeded, &json!(90), 2));
}

#[test]
fn a_body_that_asks_no_more_finishes_with_the_answer_unused() {
    let runs = Runs::default();
    let mut run = start_with(paying(&runs), json!({"last": 900}));
    amend(&mut run, json!({"last": 90}), vec![], Resume::default()).expect("something waits");
    answer(&mut run, "yes");
    assert_eq!((run.rest(), &run.state()["got"]["paid"], runs.of("pay")), (Rest::Succeeded, &json!(90), 2));
}
