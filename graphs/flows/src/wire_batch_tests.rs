//! Tests of the flow `wire_batch`.

use countersign_kernel::machine::{Point, Rest};
use futures_util::FutureExt;

use super::*;
use crate::InMemoryLedger;

fn start(input: Value) -> (Driver, Arc<InMemoryLedger>) {
    let ledger = Arc::new(InMemoryLedger::new());
    let flow = wire_batch(Arc::clone(&ledger) as Arc<dyn Ledger>).expect("sound");
    (Driver::start(flow, input).now_or_never().expect("in memory").expect("good input"), ledger)
}

fn decide(run: &mut Driver, point: &Point, who: &str, approved: bool) {
    let answer = [(point.id.clone(), json!({"approved": approved}))];
    run.answer_ids(answer, who).now_or_never().expect("in memory").expect("an open approval");
}

fn asked(run: &Driver) -> Vec<(String, String)> {
    let mut asked = Vec::new();
    for point in run.points() {
        let request = point.request().expect("an approval");
        asked.push((request.policy.approvers[0].to_string(), point.address.to_string()));
    }
    asked
}

fn outcomes(run: &Driver) -> Vec<(Value, Value)> {
    let results = run.state()["results"].as_array().cloned().unwrap_or_default();
    results.into_iter().map(|sent| (sent["id"].clone(), sent["outcome"].clone())).collect()
}

#[test]
fn three_go_out_at_once_and_two_wait_for_different_people() {
    let (mut run, ledger) = start(json!({}));
    assert_eq!(ledger.payments().len(), 3);
    assert_eq!(
        asked(&run),
        [
            ("role:treasury".to_owned(), "wire_batch/send@0/transfer[1]:W-2".to_owned()),
            ("role:compliance".to_owned(), "wire_batch/send@0/transfer[3]:W-4".to_owned()),
        ]
    );
    let points = run.points();

    decide(&mut run, &points[1], "cleo@example.com", true);
    assert_eq!(ledger.payments().len(), 4);
    assert_eq!(run.points(), points[..1], "the other one waits as before");

    decide(&mut run, &points[0], "theo@example.com", true);
    assert_eq!((run.rest(), &run.state()["outcome"]), (Rest::Succeeded, &json!("paid")));
    let sent = ["W-1", "W-2", "W-3", "W-4", "W-5"].map(|id| (json!(id), json!("paid")));
    assert_eq!(outcomes(&run), sent);
    assert_eq!((ledger.payments().len(), ledger.attempts()), (5, 5), "none was sent twice");
}

#[test]
fn a_no_drops_that_transfer_only() {
    let (mut run, ledger) = start(Value::Null);
    for point in run.points() {
        decide(&mut run, &point, "theo@example.com", point.address.to_string().ends_with("W-4"));
    }
    assert_eq!(outcomes(&run)[1], (json!("W-2"), json!("rejected")));
    assert_eq!(outcomes(&run)[3], (json!("W-4"), json!("paid")));
    assert_eq!((run.rest(), ledger.payments().len()), (Rest::Succeeded, 4));
}

#[test]
fn large_and_abroad_needs_both_and_two_people() {
    let transfer = |id: &str| json!({"id": id, "to": "Cork", "amount": 10000, "currency": "EUR", "abroad": true});
    let (mut run, ledger) = start(json!({"transfers": [transfer("a"), transfer("b")]}));
    let [a, b] = [run.points()[0].clone(), run.points()[1].clone()];
    decide(&mut run, &a, "theo@example.com", true);
    let [next, waiting] = [run.points()[0].clone(), run.points()[1].clone()];
    assert_eq!((&waiting, ledger.attempts()), (&b, 0));
    let policy = next.request().expect("an approval").policy;
    assert_eq!(
        (policy.approvers, policy.excluding),
        (vec![role("compliance")], vec![Principal::person("theo@example.com")])
    );

    decide(&mut run, &b, "theo@example.com", false);
    decide(&mut run, &next, "cleo@example.com", false);
    assert_eq!((run.rest(), &run.state()["outcome"]), (Rest::Succeeded, &json!("rejected")));
    assert_eq!(run.state()["results"][0]["decisions"].as_array().map(Vec::len), Some(2));
    assert_eq!(ledger.attempts(), 0);
}

#[test]
fn bad_input_is_refused_with_every_fault() {
    let pointers = |input: Value| -> Vec<String> {
        read(&input).expect_err("bad").into_iter().map(|fault| fault.pointer).collect()
    };
    assert_eq!(pointers(json!({"transfers": []})), ["/transfers"]);
    assert_eq!(pointers(json!({"transfers": 5, "x": 1})), ["/transfers", "/transfers", "/x"]);
    assert_eq!(pointers(json!([])), [""]);
    let transfers = json!([
        {"id": "a", "to": "A", "amount": "1", "currency": "EUR"},
        {"id": "a", "to": "A", "amount": "-1", "currency": "EUR", "abroad": "yes"},
        7,
    ]);
    assert_eq!(
        pointers(json!({"transfers": transfers})),
        ["/transfers/1/amount", "/transfers/1/abroad", "/transfers/1/id", "/transfers/2"]
    );
}
