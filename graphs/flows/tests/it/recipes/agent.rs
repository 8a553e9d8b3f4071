//! Tool-call review: a batch of calls, each decided on its own.

use std::collections::BTreeSet;

use countersign_flows::recipes::{Model, agent};
use countersign_kernel::machine::Rest;

use super::*;

struct Case {
    run: Driver,
    world: Arc<World>,
    model: Arc<Script>,
    flow: Arc<CompiledGraph>,
}

/// One call that needs nobody, four that wait, then another turn.
fn begun() -> Case {
    let (world, tools) = world();
    let transfer = |id: &'static str, amount: u32| (id, "transfer", json!({"to": "Acme", "amount": amount}));
    let first = says(&[
        ("c0", "search", json!({"for": "Acme"})),
        transfer("c1", 10),
        transfer("c2", 200),
        ("c3", "phone", json!({"whom": "Acme"})),
        ("c4", "close", json!({})),
    ]);
    let turns = [first, says(&[("c5", "search", json!({})), transfer("c6", 1)]), says(&[])];
    let model = Arc::new(Script::new(turns));
    let flow = Arc::new(agent(Arc::clone(&model) as Arc<dyn Model>, tools).expect("sound"));
    let run = start(Arc::clone(&flow), json!({"messages": [{"role": "user", "text": "Settle it."}]}));
    Case { run, world, model, flow }
}

/// The points of the four calls, in their order.
fn waiting(run: &Driver) -> [InterruptId; 4] {
    let points = run.points();
    ["c1", "c2", "c3", "c4"].map(|call| {
        let point = points.iter().find(|point| point.address.to_string().ends_with(call));
        point.expect("it waits").id.clone()
    })
}

fn verdicts() -> [Value; 4] {
    [
        json!({"decision": "approve"}),
        json!({"decision": "approve", "arg.amount": 20}),
        json!({"decision": "answer", "text": "They agree."}),
        json!({"decision": "reject", "text": "Not yet."}),
    ]
}

const RESULTS: [&str; 5] = [
    "c0: \"search done\"",
    "c1: \"transfer done\"",
    "c2: \"transfer done\" (a person changed the arguments to {\"to\":\"Acme\",\"amount\":20})",
    "c3: They agree.",
    "c4: A person rejected this call: Not yet.",
];

#[test]
fn each_call_is_decided_on_its_own_and_the_model_hears_of_all() {
    let Case { mut run, world, model, .. } = begun();
    let at = ["transfer[1]:c1", "transfer[2]:c2", "phone[3]:c3", "close[4]:c4"];
    assert_eq!(places(&run), at.map(|at| format!("agent/tools@1/{at}")));
    assert_eq!((world.count("search"), model.turns()), (1, 1));

    let ids = waiting(&run);
    let [approve, change, reply, reject] = verdicts();
    answer_ids(&mut run, &[(&ids[1], change)]).expect("open");
    assert_eq!(world.calls()[1..], [("transfer".to_owned(), json!({"to": "Acme", "amount": 20}))]);
    let left: BTreeSet<InterruptId> = run.points().into_iter().map(|point| point.id).collect();
    let others = [&ids[0], &ids[2], &ids[3]].map(Clone::clone);
    assert_eq!(left, others.into(), "the others wait as before");
    answer_ids(&mut run, &[(&ids[3], reject), (&ids[0], approve)]).expect("open");
    assert_eq!((world.count("transfer"), model.turns()), (2, 1), "no turn before all are decided");

    answer_ids(&mut run, &[(&ids[2], reply)]).expect("open");
    assert_eq!((model.told(), model.turns()), (RESULTS.map(str::to_owned).to_vec(), 2));
    assert_eq!((world.count("search"), world.count("transfer"), world.count("phone")), (2, 2, 0));
    assert_eq!(places(&run), ["agent/tools@3/transfer[1]:c6"], "the calls of the next turn");

    answer(&mut run, json!({"decision": "approve"})).expect("open");
    assert_eq!((run.rest(), model.turns(), world.count("close")), (Rest::Succeeded, 3, 0));
}

#[test]
fn it_goes_on_after_a_restart_at_every_answer() {
    let Case { mut run, world, model, flow } = begun();
    let ids = waiting(&run);
    for (id, verdict) in ids.iter().zip(verdicts()) {
        run = run.reopen(Arc::clone(&flow));
        answer_ids(&mut run, &[(id, verdict)]).expect("open");
    }
    assert_eq!((model.told(), model.turns()), (RESULTS.map(str::to_owned).to_vec(), 2));
    let keys = world.keys();
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "each call ran once");
}

#[test]
fn a_wrong_answer_refuses_all_of_the_request() {
    let Case { mut run, world, .. } = begun();
    let before = run.points();
    let approve = json!({"decision": "approve"});
    let ids = waiting(&run);
    let refused = answer_ids(&mut run, &[(&ids[0], approve.clone()), (&ids[3], Value::Null)]);
    assert_eq!(faults(refused), [""]);
    let refused = answer_ids(&mut run, &[(&ids[0], approve), (&ids[2], json!({"decision": "edit"}))]);
    assert_eq!(faults(refused), ["/decision"]);
    assert_eq!((run.points(), world.count("transfer")), (before, 0));
}

#[test]
fn a_call_that_fails_is_made_again_and_the_others_are_not() {
    let Case { mut run, world, model, .. } = begun();
    let ids = waiting(&run);
    let [approve, change, reply, reject] = verdicts();
    world.fail_next(1);
    answer_ids(&mut run, &[(&ids[0], approve), (&ids[1], change), (&ids[2], reply)]).expect("open");
    assert_eq!((run.rest(), run.points().len(), world.count("transfer")), (Rest::Failed, 1, 2));
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), world.count("transfer"), model.turns()), (Rest::Parked, 3, 1));
    answer_ids(&mut run, &[(&ids[3], reject)]).expect("still open");
    assert_eq!(model.told(), RESULTS);
}
