//! Several calls in one node (K16, K7).

use std::fmt::Error;

use countersign_kernel::context::Slot;
use countersign_kernel::driver::Driver;
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::machine::Rest;
use countersign_kernel::node::NodeError;
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use crate::support::*;

/// Slots of the given labels; each asks `<label>?` unless the label is `-`.
fn asking_batch(labels: &'static [&'static str], runs: &Runs) -> CompiledGraph {
    single(with(runs, move |cx, runs| async move {
        runs.hit("body");
        let slots = labels.iter().enumerate().map(|(i, label)| Slot::new(*label, (i, *label))).collect();
        let results: Vec<Value> = cx
            .batch("tools", slots, |cx, (i, label)| {
                let runs = runs.clone();
                async move {
                    runs.hit(format!("{label}{i}"));
                    if label == "-" { Ok(json!("done")) } else { cx.interrupt(format!("{label}?")).await }
                }
            })
            .await?;
        Ok(Writes::none().with("last", &results))
    }))
}

#[test]
fn three_slots_get_three_ids_and_each_its_own_answer() {
    let runs = Runs::default();
    let mut run = start(asking_batch(&["x", "y", "z"], &runs));
    let points = run.points();
    let addresses: Vec<String> = points.iter().map(|point| point.address.to_string()).collect();
    assert_eq!(addresses, ["g/n@0/tools[0]:x", "g/n@0/tools[1]:y", "g/n@0/tools[2]:z"]);
    answer_ids(&mut run, &[(&points[2].id, json!("Z")), (&points[0].id, json!("X")), (&points[1].id, json!("Y"))])
        .expect("open");
    assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!(["X", "Y", "Z"])));
}

#[test]
fn slots_stand_in_call_order_whatever_tools_they_call() {
    let tools = ["write", "read", "write", "ask", "read", "a", "z", "m", "write", "b", "ask", "a"];
    let called: Vec<String> = tools.iter().enumerate().map(|(i, tool)| format!("{tool}{i}")).collect();
    let mut run = start(single(with(&(), move |cx, ()| async move {
        let slots = tools.iter().enumerate().map(|(i, tool)| Slot::new("call", format!("{tool}{i}")).named(*tool));
        let results: Vec<Value> =
            cx.batch("tools", slots.collect(), |cx, call: String| async move { cx.interrupt(call).await }).await?;
        Ok(Writes::none().with("last", &results))
    })));
    let asked = |run: &Driver| run.points().into_iter().map(|point| point.payload).collect::<Vec<_>>();
    assert_eq!(json!(asked(&run)), json!(called));
    let addresses: Vec<_> = tools.iter().enumerate().map(|(i, tool)| format!("g/n@0/{tool}[{i}]:call")).collect();
    assert_eq!(run.points().iter().map(|point| point.address.to_string()).collect::<Vec<_>>(), addresses);

    // Also those that are left, and the results.
    let points = run.points();
    answer_ids(&mut run, &[(&points[10].id, json!("ask10")), (&points[2].id, json!("write2"))]).expect("open");
    let left: Vec<_> = called.iter().filter(|call| !matches!(call.as_str(), "ask10" | "write2")).collect();
    assert_eq!(json!(asked(&run)), json!(left));
    let answers: Vec<_> = run.points().into_iter().map(|point| (point.id, point.payload)).collect();
    let answers: Vec<_> = answers.iter().rev().map(|(id, call)| (id, call.clone())).collect();
    answer_ids(&mut run, &answers).expect("open");
    assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!(called)));
}

#[test]
fn equal_labels_and_payloads_are_told_apart_by_the_slot() {
    let runs = Runs::default();
    let mut run = start(asking_batch(&["x", "x"], &runs));
    let points = run.points();
    assert_eq!(points[0].payload, points[1].payload);
    assert_ne!(points[0].id, points[1].id);
    answer_ids(&mut run, &[(&points[1].id, json!("second"))]).expect("open");
    assert_eq!(run.points(), points[..1]);
    answer(&mut run, "first");
    assert_eq!(run.state()["last"], json!(["first", "second"]));
}

#[test]
fn finished_slots_are_not_repeated_and_waiting_ones_not_run() {
    let runs = Runs::default();
    let mut run = start(asking_batch(&["-", "x", "-", "y"], &runs));
    let [x, y] = [point(&run, "x?"), point(&run, "y?")];
    answer_ids(&mut run, &[(&y.id, json!("Y"))]).expect("open");
    assert_eq!(run.points(), [x]);
    assert_eq!((runs.of("-0"), runs.of("x1"), runs.of("-2"), runs.of("y3")), (1, 1, 1, 2));
    answer(&mut run, "X");
    assert_eq!((runs.of("-0"), runs.of("x1"), runs.of("-2"), runs.of("y3")), (1, 2, 1, 2));
    assert_eq!(run.state()["last"], json!(["done", "X", "done", "Y"]));
    assert_eq!(runs.of("body"), 3);
}

#[test]
fn a_slot_that_fails_leaves_the_others_their_results() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let slots = ["ok", "bad", "ask"].map(|label| Slot::new(label, label)).into();
        let results: Vec<Value> = cx
            .batch("tools", slots, |cx, label| {
                let runs = runs.clone();
                async move {
                    match (label, runs.hit(label)) {
                        ("bad", 1) => Err(NodeError::failed("out of paper")),
                        ("ask", _) => cx.interrupt("ask?").await,
                        (_, attempt) => Ok(json!(attempt)),
                    }
                }
            })
            .await?;
        Ok(Writes::none().with("last", &results))
    })));
    assert_eq!((run.rest(), run.errors()["n"]), (Rest::Failed, "out of paper"));
    assert_eq!(open(&run), ["ask?"], "what was asked stays open");
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), open(&run)), (Rest::Parked, vec!["ask?".to_owned()]));
    assert_eq!((runs.of("ok"), runs.of("bad"), runs.of("ask")), (1, 2, 1));
    answer(&mut run, "A");
    assert_eq!(run.state()["last"], json!([1, 2, "A"]));
}

#[test]
fn a_label_that_changes_between_runs_changes_nothing() {
    // Call ids of a model are such labels: another one each time (K16).
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let attempt = runs.hit("body");
        let slots = (0..2).map(|i| Slot::new(format!("call_{attempt}_{i}"), i)).collect();
        let results: Vec<Value> = cx
            .batch("tools", slots, |cx, i| {
                let runs = runs.clone();
                async move {
                    runs.hit(format!("slot{i}"));
                    cx.interrupt(format!("{i}?")).await
                }
            })
            .await?;
        Ok(Writes::none().with("last", &results))
    })));
    let before = run.points();
    answer_ids(&mut run, &[(&before[0].id, json!("first"))]).expect("open");
    assert_eq!(run.points(), before[1..]);
    answer(&mut run, "second");
    assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!(["first", "second"])));
    assert_eq!((runs.of("slot0"), runs.of("slot1")), (2, 2));
}

/// A batch of two slots, each a batch of two that ask `<outer><inner>?`.
fn nested(runs: &Runs) -> CompiledGraph {
    single(with(runs, |cx, runs| async move {
        let slots = ["a", "b"].map(|outer| Slot::new(outer, outer)).into();
        let results: Vec<Vec<Value>> = cx
            .batch("outer", slots, |cx, outer| {
                let runs = runs.clone();
                async move {
                    runs.hit(outer);
                    let slots = ["1", "2"].map(|inner| Slot::new(inner, format!("{outer}{inner}"))).into();
                    cx.batch("inner", slots, |cx, name: String| {
                        let runs = runs.clone();
                        async move {
                            runs.hit(&name);
                            cx.interrupt(format!("{name}?")).await
                        }
                    })
                    .await
                }
            })
            .await?;
        Ok(Writes::none().with("last", &results))
    }))
}

#[test]
fn a_batch_in_a_slot_is_entered_only_on_the_way_to_an_answer() {
    let runs = Runs::default();
    let mut run = start(nested(&runs));
    assert_eq!(open(&run), ["a1?", "a2?", "b1?", "b2?"]);
    let b2 = point(&run, "b2?");
    answer_ids(&mut run, &[(&b2.id, json!("B2"))]).expect("open");
    assert_eq!(open(&run), ["a1?", "a2?", "b1?"]);
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("b1"), runs.of("b2")), (1, 2, 1, 2));
    let answers: Vec<_> = run.points().into_iter().map(|point| (point.id, point.payload)).collect();
    let answers: Vec<_> = answers.iter().map(|(id, payload)| (id, payload.clone())).collect();
    answer_ids(&mut run, &answers).expect("open");
    assert_eq!(run.state()["last"], json!([["a1?", "a2?"], ["b1?", "B2"]]));
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("b2")), (2, 3, 2));
}

#[test]
fn a_slot_that_swallows_the_signal_still_waits() {
    for resume_all in [false, true] {
        let runs = Runs::default();
        let mut run = start(single(with(&runs, |cx, runs| async move {
            let results: Vec<Option<Value>> = cx
                .batch("tools", vec![Slot::new("x", ())], |cx, ()| {
                    runs.hit("x");
                    async move { Ok(cx.interrupt("x?").await.ok()) }
                })
                .await?;
            Ok(Writes::none().with("last", &results))
        })));
        if resume_all {
            resume(&mut run, RESUME_ALL);
        }
        assert_eq!(open(&run), ["x?"]);
        answer(&mut run, "X");
        assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!(["X"])));
    }
}

#[test]
fn a_slot_that_swallows_the_signal_of_its_own_batch_still_waits() {
    let mut run = start(single(with(&(), |cx, ()| async move {
        let results: Vec<Option<Vec<Value>>> = cx
            .batch("outer", vec![Slot::new("x", ())], |cx, ()| async move {
                let inner =
                    cx.batch("inner", vec![Slot::new("y", ())], |cx, ()| async move { cx.interrupt("y?").await });
                Ok(inner.await.ok())
            })
            .await?;
        Ok(Writes::none().with("last", &results))
    })));
    answer(&mut run, "Y");
    assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!([["Y"]])));
}

#[test]
fn two_batches_of_one_name_and_steps_in_slots_do_not_meet() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let mut all: Vec<Vec<String>> = Vec::new();
        for round in 0..2 {
            let slots = vec![Slot::new("x", ()), Slot::new("y", ())];
            let keys = cx
                .batch("pay", slots, |cx, ()| {
                    let runs = runs.clone();
                    async move {
                        let key = cx.step("pay", |key| async move { Ok::<_, Error>(key.to_string()) }).await?;
                        runs.hit(&key);
                        cx.interrupt(format!("{round}?")).await?;
                        Ok(key)
                    }
                })
                .await?;
            all.push(keys);
        }
        Ok(Writes::none().with("last", &all))
    })));
    for _ in 0..2 {
        let points = run.points();
        assert_eq!(points.len(), 2);
        answer_ids(&mut run, &[(&points[0].id, json!(1)), (&points[1].id, json!(1))]).expect("open");
    }
    assert_eq!(run.rest(), Rest::Succeeded);
    assert_eq!(runs.all().len(), 4, "four keys for four slots");
    assert!(runs.all().values().all(|runs| *runs == 2), "each slot ran once to ask and once with its answer");
}

#[test]
fn a_slot_that_gives_up_at_a_resume_all_has_nothing_open_any_more() {
    let mut run = start(single(with(&(), |cx, ()| async move {
        let slots = ["x", "y"].map(|label| Slot::new(label, label)).into();
        let results: Vec<Value> = cx
            .batch("tools", slots, |cx, label| async move {
                if label == "x" && cx.is_resume_all() {
                    return Ok(json!("gave up"));
                }
                cx.interrupt(format!("{label}?")).await
            })
            .await?;
        Ok(Writes::none().with("last", &results))
    })));
    let y = point(&run, "y?");
    resume(&mut run, RESUME_ALL);
    assert_eq!(run.points(), [y]);
    answer(&mut run, "Y");
    assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!(["gave up", "Y"])));
}

#[test]
fn a_retry_reaches_a_failed_slot_beside_a_parked_one_at_any_depth() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let results: Vec<Vec<Value>> = cx
            .batch("outer", vec![Slot::new("x", ())], |cx, ()| {
                let runs = runs.clone();
                async move {
                    let slots = ["ask", "bad"].map(|label| Slot::new(label, label)).into();
                    cx.batch("inner", slots, |cx, label| {
                        let attempt = runs.hit(label);
                        async move {
                            match label {
                                "ask" => cx.interrupt("ask?").await,
                                _ if attempt == 1 => Err(NodeError::failed("once")),
                                _ => Ok(json!(attempt)),
                            }
                        }
                    })
                    .await
                }
            })
            .await?;
        Ok(Writes::none().with("last", &results))
    })));
    assert_eq!(run.rest(), Rest::Failed);
    resume(&mut run, RETRY);
    assert_eq!((run.rest(), runs.of("ask"), runs.of("bad")), (Rest::Parked, 1, 2));
    answer(&mut run, "A");
    assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!([["A", 2]])));
}

#[test]
fn a_slot_that_only_claims_to_wait_is_a_failure() {
    let run = start(single(with(&(), |cx, ()| async move {
        let results: Vec<Value> =
            cx.batch("tools", vec![Slot::new("x", ())], |_, ()| async { Err(NodeError::Interrupted) }).await?;
        Ok(Writes::none().with("last", &results))
    })));
    assert_eq!((run.rest(), run.points().len()), (Rest::Failed, 0));
}
