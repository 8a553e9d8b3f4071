//! The component style: `cx.suspend` and `cx.resumption` (K5, K6, K10).

use countersign_kernel::context::{Resumption, Slot};
use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::machine::Rest;
use countersign_kernel::node::{NodeError, SharedBody};
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use crate::support::*;

/// Suspends with a count of its runs as private state; when it is answered,
/// writes what it learnt.
fn component(name: &'static str, runs: &Runs) -> SharedBody {
    with(runs, move |cx, runs| async move {
        runs.hit(name);
        match cx.resumption::<u32, i64>()? {
            Resumption::Fresh => Err(cx.suspend(format!("{name}?"), &1)),
            Resumption::Waiting(count) => Err(cx.suspend("ignored: the point keeps what it said", &(count + 1))),
            Resumption::Answered(count, data) => Ok(got(name, &json!([count, data]))),
        }
    })
}

fn alone(runs: &Runs) -> CompiledGraph {
    single(component("n", runs))
}

#[test]
fn an_answer_makes_a_target_with_its_private_state() {
    let mut run = start(alone(&Runs::default()));
    assert_eq!((open(&run), run.points()[0].number), (vec!["n?".to_owned()], 0));
    answer(&mut run, 42);
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([1, 42])));
}

#[test]
fn a_bare_answer_and_data_of_another_type_are_a_target_without_data() {
    for data in [Value::Null, json!("forty-two"), json!({"n": 1})] {
        let mut run = start(alone(&Runs::default()));
        answer(&mut run, data);
        assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([1, null])));
    }
}

#[test]
fn holding_keeps_the_id_and_takes_the_new_private_state() {
    let runs = Runs::default();
    let mut run = start(alone(&runs));
    let before = run.points();
    for _ in 0..3 {
        resume(&mut run, RESUME_ALL);
        assert_eq!((run.rest(), run.points()), (Rest::Parked, before.clone()));
    }
    answer(&mut run, 7);
    assert_eq!((&run.state()["got"]["n"], runs.of("n")), (&json!([4, 7]), 5));
}

#[test]
fn a_component_that_is_not_a_target_does_not_run() {
    let runs = Runs::default();
    let mut run = start(graph(|g| {
        for node in ["a", "b"] {
            g.node(node, component(node, &runs)).edge(START, node);
        }
    }));
    let (a, b) = (point(&run, "a?"), point(&run, "b?"));
    answer_ids(&mut run, &[(&b.id, json!(2))]).expect("open");
    assert_eq!((run.points(), runs.of("a"), runs.of("b")), (vec![a], 1, 2));
    answer(&mut run, 1);
    assert_eq!(run.state()["got"], json!({"a": [1, 1], "b": [1, 2]}));
}

#[test]
fn asking_again_after_an_answer_is_a_new_question() {
    let mut run = start(single(with(&(), |cx, ()| async move {
        match cx.resumption::<Vec<i64>, i64>()? {
            Resumption::Fresh => Err(cx.suspend("next?", &Vec::<i64>::new())),
            Resumption::Waiting(seen) => Err(cx.suspend("next?", &seen)),
            Resumption::Answered(mut seen, data) => {
                seen.extend(data);
                if seen.len() < 3 { Err(cx.suspend("next?", &seen)) } else { Ok(got("n", &json!(seen))) }
            }
        }
    })));
    let mut ids = Vec::new();
    for number in 1..=3_u32 {
        let point = point(&run, "next?");
        assert_eq!(point.number, number - 1);
        assert!(!ids.contains(&point.id), "an answered point's id does not come back");
        ids.push(point.id);
        answer(&mut run, number);
    }
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([1, 2, 3])));
}

#[test]
fn a_component_in_a_slot_keeps_a_state_of_its_own() {
    let mut run = start(single(with(&(), |cx, ()| async move {
        let slots = [10, 20].map(|n| Slot::new(n.to_string(), n)).into();
        let results: Vec<i64> = cx
            .batch("parts", slots, |cx, n: i64| async move {
                match cx.resumption::<i64, i64>()? {
                    Resumption::Answered(kept, data) => Ok(kept + data.unwrap_or(0)),
                    Resumption::Fresh | Resumption::Waiting(_) => Err(cx.suspend(n.to_string(), &n)),
                }
            })
            .await?;
        Ok(Writes::none().with("last", &results))
    })));
    let (ten, twenty) = (point(&run, "10"), point(&run, "20"));
    answer_ids(&mut run, &[(&twenty.id, json!(2))]).expect("open");
    answer_ids(&mut run, &[(&ten.id, json!(1))]).expect("open");
    assert_eq!(run.state()["last"], json!([11, 22]));
}

#[test]
fn what_cannot_be_encoded_fails_where_it_was_made() {
    let run = start(single(with(&(), |cx, ()| async move {
        let key_is_no_text = std::collections::BTreeMap::from([(vec![1], 1)]);
        Err(cx.suspend("?", &key_is_no_text))
    })));
    assert_eq!(run.rest(), Rest::Failed);
    assert!(run.errors()["n"].starts_with("the private state cannot be encoded"), "{:?}", run.errors());
    assert!(run.points().is_empty());
}

#[test]
fn a_failure_after_an_answer_comes_back_as_a_target() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        match cx.resumption::<(), i64>()? {
            Resumption::Fresh | Resumption::Waiting(()) => Err(cx.suspend("n?", &())),
            Resumption::Answered((), _) if runs.hit("answered") == 1 => Err(NodeError::failed("once")),
            Resumption::Answered((), data) => Ok(got("n", &json!(data))),
        }
    })));
    answer(&mut run, 5);
    assert_eq!((run.rest(), run.points().len()), (Rest::Failed, 0));
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!(5)));
}
