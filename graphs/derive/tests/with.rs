//! Reducers of a flow's own on typed fields: `#[reduce(with = "…")]`.

use std::collections::BTreeSet;

use countersign_kernel::machine::Rest;
use countersign_kernel::prelude::*;
use futures_util::FutureExt as _;
use serde_json::{Value, json};

mod rules {
    use std::collections::BTreeSet;

    pub(super) fn unite(mut all: BTreeSet<String>, more: BTreeSet<String>) -> BTreeSet<String> {
        all.extend(more);
        all
    }

    pub(super) fn rising(now: i64, next: i64) -> Result<i64, String> {
        assert_ne!(next, 13, "no such round");
        if next > now { Ok(next) } else { Err(format!("round {next} is over")) }
    }
}

#[derive(State)]
struct Tender {
    #[reduce(with = "std::cmp::min")]
    lowest: i64,
    #[reduce(with = "Option::max")]
    best: Option<i64>,
    #[reduce(with = "rules::unite")]
    #[state(default)]
    bidders: BTreeSet<String>,
    #[state(default)]
    #[reduce(with = "rules :: rising")]
    round: i64,
}

fn bid(by: &str, amount: i64) -> TenderUpdate {
    Tender::update().lowest(amount).best(Some(amount)).bidders([by.to_owned()].into())
}

async fn ann(_: &Context, _: &Tender) -> NodeResult<TenderUpdate> {
    Ok(bid("Ann", 7))
}

async fn bob(_: &Context, _: &Tender) -> NodeResult<TenderUpdate> {
    Ok(bid("Bob", 5))
}

async fn rise(_: &Context, tender: &Tender) -> NodeResult<TenderUpdate> {
    // What was reduced is what the next node reads.
    let by = i64::try_from(tender.bidders.len()).unwrap_or(0) + tender.best.unwrap_or(0) - tender.lowest;
    Ok(Tender::update().round(tender.round + by))
}

async fn stay(_: &Context, tender: &Tender) -> NodeResult<TenderUpdate> {
    Ok(Tender::update().round(tender.round))
}

fn tender(rises: bool) -> CompiledGraph {
    let mut g = Graph::<Tender>::new("tender", 1);
    let (ann, bob) = (g.node("ann", ann), g.node("bob", bob));
    let last = if rises { g.node("last", rise) } else { g.node("last", stay) };
    g.start(ann).start(bob).join([ann, bob], last).end(last);
    g.compile().expect("sound")
}

fn run(rises: bool, input: Value) -> Result<Driver, Vec<Fault>> {
    Driver::start(tender(rises), input).now_or_never().expect("nothing here waits for I/O")
}

#[test]
fn input_and_writes_go_through_the_function_and_the_first_value_as_it_is() {
    let first = run(true, json!({"lowest": 6})).expect("good input");
    assert_eq!(first.rest(), Rest::Succeeded, "{:?}", first.errors());
    let expected = json!({"bidders": ["Ann", "Bob"], "best": 7, "lowest": 5, "round": 4});
    assert_eq!(Value::Object(first.state()), expected);

    let more = run(true, json!({"lowest": -1, "best": 9, "bidders": ["Cy"], "round": 2})).expect("good input");
    let expected = json!({"bidders": ["Ann", "Bob", "Cy"], "best": 9, "lowest": -1, "round": 15});
    assert_eq!(Value::Object(more.state()), expected);
}

#[test]
fn a_write_that_it_refuses_fails_its_node_and_an_input_is_refused() {
    let stayed = run(false, json!({"lowest": 6, "round": 2})).expect("good input");
    let errors: Vec<_> = stayed.errors().into_iter().collect();
    assert_eq!((stayed.rest(), errors), (Rest::Failed, vec![("last", "key `round`: round 2 is over")]));
    let faults = run(true, json!({"lowest": 6, "round": -2})).map(|run| run.state()).expect_err("it may only rise");
    assert_eq!(faults[0].message, "key `round`: round -2 is over");
    let faults = run(true, json!({"lowest": 6, "round": 13})).map(|run| run.state()).expect_err("a panic");
    assert!(faults[0].message.starts_with("key `round`: the reducer panicked: "), "{faults:?}");
    let faults = run(true, json!({"round": 1})).map(|run| run.state()).expect_err("no offer");
    assert_eq!(faults, [Fault::at_member("lowest", "is missing")]);
}

#[test]
fn it_is_known_by_its_path_and_starts_from_its_default_if_that_is_said() {
    let graph = tender(true);
    let keys: Vec<_> = graph
        .keys()
        .map(|key| (key.name.as_str(), format!("{:?}", key.reducer), key.required, key.reducer.neutral()))
        .collect();
    let expected = [
        ("best", "Custom(Option::max)", false, None),
        ("bidders", "Custom(rules::unite)", false, Some(json!([]))),
        ("lowest", "Custom(std::cmp::min)", true, None),
        ("round", "Custom(rules::rising)", false, Some(json!(0))),
    ];
    assert_eq!(keys, expected.map(|(name, reducer, required, neutral)| (name, reducer.to_owned(), required, neutral)));
}
