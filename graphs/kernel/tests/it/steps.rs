//! `cx.step`: an effect's result is kept (R10), its key is one per step.

use std::fmt::Error;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use countersign_kernel::address::Address;
use countersign_kernel::context::{Context, Slot};
use countersign_kernel::graph::START;
use countersign_kernel::ids::FrameId;
use countersign_kernel::machine::{Next, Rest};
use countersign_kernel::node::{NodeError, NodeResult};
use countersign_kernel::ports::{EffectError, Effects, FrameStep};
use countersign_kernel::state::Writes;
use serde_json::{Value, json};

use crate::ids::{host, position};
use crate::support::*;

/// Calls an outside system under `name`, which counts its calls.
async fn call(cx: &Context, name: &str, runs: &Runs) -> NodeResult<u32> {
    cx.step(name, |_| async move { Ok::<_, Error>(runs.hit(name)) }).await
}

#[test]
fn results_are_kept_across_questions_failures_and_retries() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let first = call(&cx, "first", &runs).await?;
        cx.interrupt("go?").await?;
        let second = call(&cx, "second", &runs).await?;
        if runs.hit("attempt") < 3 {
            return Err(NodeError::failed("not yet"));
        }
        Ok(got("n", &json!([first, second])))
    })));
    answer(&mut run, "go");
    for _ in 0..2 {
        assert_eq!((run.rest(), run.errors()["n"]), (Rest::Failed, "not yet"));
        resume(&mut run, RETRY);
    }
    assert_eq!((run.rest(), &run.state()["got"]["n"]), (Rest::Succeeded, &json!([1, 1])));
    assert_eq!((runs.of("first"), runs.of("second")), (1, 1));
}

#[test]
fn a_failed_effect_leaves_no_result() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let runs = &runs;
        let paid = cx.step("pay", |_| async move {
            if runs.hit("pay") == 1 { Err(NodeError::failed("no line")) } else { Ok("paid".to_owned()) }
        });
        Ok(Writes::none().with("last", &paid.await?))
    })));
    assert_eq!((run.rest(), run.errors()["n"]), (Rest::Failed, "no line"));
    resume(&mut run, RETRY);
    assert_eq!((&run.state()["last"], runs.of("pay")), (&json!("paid"), 2));
}

#[test]
fn a_name_used_twice_counts_as_two_steps_in_order() {
    let runs = Runs::default();
    let mut run = start(single(with(&runs, |cx, runs| async move {
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(call(&cx, "pay", &runs).await?);
        }
        cx.interrupt("go?").await?;
        seen.push(call(&cx, "pay", &runs).await?);
        Ok(Writes::none().with("last", &seen))
    })));
    assert_eq!(runs.of("pay"), 3);
    answer(&mut run, "go");
    assert_eq!((&run.state()["last"], runs.of("pay")), (&json!([1, 2, 3, 4]), 4));
}

#[test]
fn no_name_is_taken_for_another() {
    // Names as awkward as they come, some like the kernel's own spellings.
    let names = ["pay", "pay", "pay#1", "pay#1", "pay#1#0", "", "", "#1", "=", "#", "=#1", "="];
    let runs = Runs::default();
    let mut run = start(single(with(&runs, move |cx, runs| async move {
        let mut keys = Vec::new();
        for name in names {
            let key = cx.step(name, |key| async move { Ok::<_, Error>(key.to_string()) }).await?;
            runs.hit(&key);
            keys.push(key);
        }
        Ok(Writes::none().with("last", &keys))
    })));
    assert_eq!(runs.all().len(), names.len(), "as many keys as steps");
    assert_eq!(run.rest(), Rest::Succeeded);

    // In a slot, a step's name is not taken for the slot's own result.
    run = start(single(with(&(), |cx, ()| async move {
        let slots = vec![Slot::new("x", ())];
        let results: Vec<Value> = cx
            .batch("tools", slots, |cx, ()| async move {
                for name in ["=", "#", ""] {
                    cx.step(name, |_| async { Ok::<_, Error>("step".to_owned()) }).await?;
                }
                cx.interrupt("x?").await
            })
            .await?;
        Ok(Writes::none().with("last", &results))
    })));
    answer(&mut run, "slot");
    assert_eq!((run.rest(), &run.state()["last"]), (Rest::Succeeded, &json!(["slot"])));
}

#[test]
fn the_key_is_the_same_at_every_attempt_and_for_no_other_step() {
    let keys = Runs::default();
    let body = |node: &'static str| {
        with(&keys, move |cx, keys| async move {
            for name in ["pay", "tell"] {
                let keys = &keys;
                let told = cx.step(name, |key| async move {
                    let attempt = keys.hit(key.as_str());
                    if attempt == 1 { Err(NodeError::failed(node)) } else { Ok(attempt) }
                });
                told.await?;
            }
            Ok(Writes::none().with("sum", &1))
        })
    };
    let mut run = start(graph(|g| {
        g.node("a", body("a")).node("b", body("b")).edge(START, "a").edge(START, "b");
        // Once more around: another superstep is another occurrence.
        g.branch("a", |view| {
            let rounds = view.values().get("sum").and_then(Value::as_i64).unwrap_or(0);
            Ok(if rounds < 3 { vec!["a".into()] } else { vec![] })
        });
    }));
    while run.rest() == Rest::Failed {
        resume(&mut run, RETRY);
    }
    assert_eq!(run.state()["sum"], 3);
    assert_eq!(keys.all().len(), 6, "two steps of a twice and of b once");
    assert!(keys.all().values().all(|attempts| *attempts == 2));
}

/// Refuses to store, a given number of times, or to let anything begin.
struct Refusing {
    stores: Mutex<u32>,
    lapsed: bool,
}

#[async_trait]
impl Effects for Refusing {
    fn may_begin(&self) -> Result<(), EffectError> {
        if self.lapsed { Err(EffectError::LeaseLost) } else { Ok(()) }
    }

    async fn record(&self, _: Option<&FrameId>, _: &Address, _: &str, _: &Value) -> Result<(), EffectError> {
        let mut left = self.stores.lock().expect("not poisoned");
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        Err(EffectError::Store("the disk is full".into()))
    }

    async fn frame(&self, _: FrameStep<'_>) -> Result<(), EffectError> {
        Ok(())
    }

    async fn emit(&self, _: &Address, _: &Value) -> Result<(), EffectError> {
        Ok(())
    }
}

#[test]
fn a_result_that_could_not_be_stored_is_no_result() {
    let keys = Runs::default();
    let graph = single(with(&keys, |cx, keys| async move {
        let keys = &keys;
        let paid = cx.step("pay", |key| async move { Ok::<_, Error>(keys.hit(key.as_str())) }).await?;
        Ok(Writes::none().with("last", &paid))
    }));
    let mut position = position(&graph, [0; 16]);
    let host = host(Arc::new(Refusing { stores: Mutex::new(1), lapsed: false }));
    let mut errors = Vec::new();
    for _ in 0..2 {
        let cx = Context::new(position.scope(&graph, 0, Arc::clone(&host)));
        let result = now(graph.node("n").expect("a node").run(cx.clone()));
        position.complete(&graph, 0, cx.finish(), result);
        errors.push(position.tasks[0].record.error.clone());
    }
    assert_eq!(errors, [Some("the disk is full".to_owned()), None]);
    assert_eq!(position.next(), Next::Settle);
    assert_eq!(keys.all().into_values().collect::<Vec<_>>(), [2], "two attempts under one key");
}

#[test]
fn no_step_begins_without_a_lease_to_be_trusted() {
    let keys = Runs::default();
    let graph = single(with(&keys, |cx, keys| async move {
        let keys = &keys;
        let paid = cx.step("pay", |key| async move { Ok::<_, Error>(keys.hit(key.as_str())) }).await?;
        Ok(Writes::none().with("last", &paid))
    }));
    let mut position = position(&graph, [0; 16]);
    let cx = Context::new(position.scope(&graph, 0, host(Arc::new(Refusing { stores: Mutex::new(0), lapsed: true }))));
    let result = now(graph.node("n").expect("a node").run(cx));
    assert!(matches!(result, Err(NodeError::LeaseLost)), "{result:?}");
    assert_eq!(keys.all().len(), 0, "nothing was done");
}
