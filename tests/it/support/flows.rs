//! Flows made of closures, for tests that need sub-graphs, sends and steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersign_kernel::context::Context;
use countersign_kernel::graph::{CompiledGraph, GraphBuilder};
use countersign_kernel::node::{Goto, NodeError, NodeResult, Outcome, SharedBody, body_fn};
use countersign_kernel::state::{Reducer, Writes};
use serde_json::Value;

use super::{Gate, Runs};

/// A body that gets the context and a shared thing.
pub(crate) fn with<T, F, Fut, O>(shared: &T, body: F) -> SharedBody
where
    T: Clone + Send + Sync + 'static,
    F: Fn(Context, T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<O>> + Send + 'static,
    O: Into<Outcome> + 'static,
{
    let shared = shared.clone();
    body_fn(move |cx| body(cx, shared.clone()))
}

/// A graph with the keys `got` (merge), which graphs share with those around
/// them, and `log` (append), which is the thread's own.
pub(crate) fn flow(name: &str, build: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    let mut graph = GraphBuilder::new(name, 1);
    graph.key("got", Reducer::Merge).key("log", Reducer::Append);
    build(&mut graph);
    graph.compile().expect("a sound flow")
}

/// A graph to be a part of others, with the keys `got` (merge), `inside`
/// (append) and `n` (last value); the thread has the first of them alone.
pub(crate) fn part(name: &str, build: impl FnOnce(&mut GraphBuilder)) -> Arc<CompiledGraph> {
    let mut graph = GraphBuilder::new(name, 1);
    graph.key("got", Reducer::Merge).key("inside", Reducer::Append).key("n", Reducer::Last);
    build(&mut graph);
    Arc::new(graph.compile().expect("a sound part"))
}

/// One member of the key `got`.
pub(crate) fn got(member: &str, value: &Value) -> Writes {
    Writes::none().with("got", &BTreeMap::from([(member, value)]))
}

/// Finishes at once.
pub(crate) fn works(node: &'static str, runs: &Runs) -> SharedBody {
    with(runs, move |_, runs| async move {
        runs.hit(node);
        Ok(got(node, &Value::from("done")))
    })
}

/// Finishes at once, and says so at the end of the list `key`.
pub(crate) fn logs(key: &'static str, node: &'static str, runs: &Runs) -> SharedBody {
    with(runs, move |_, runs| async move {
        runs.hit(node);
        Ok(Writes::none().with(key, &[node]))
    })
}

/// Asks `<node>?` and keeps the answer.
pub(crate) fn asks(node: &'static str, runs: &Runs) -> SharedBody {
    with(runs, move |cx, runs| async move {
        runs.hit(node);
        let answer = cx.interrupt(format!("{node}?")).await?;
        Ok(got(node, &answer))
    })
}

/// An effect once, then the question, then another effect.
pub(crate) fn pays(node: &'static str, runs: &Runs) -> SharedBody {
    with(runs, move |cx, runs| async move {
        runs.hit(node);
        let effect = |when: &str| {
            let (runs, name) = (runs.clone(), format!("{when} {node}"));
            async move |key| {
                runs.hit(format!("{name} {key}"));
                Ok::<_, NodeError>(name)
            }
        };
        cx.step("before", effect("before")).await?;
        let answer = cx.interrupt(format!("{node}?")).await?;
        cx.step("after", effect("after")).await?;
        Ok(got(node, &answer))
    })
}

/// An effect, once, and nothing asked.
pub(crate) fn pays_at_once(node: &'static str, runs: &Runs) -> SharedBody {
    with(runs, move |cx, runs| async move {
        runs.hit(node);
        let effect = async |key| {
            runs.hit(format!("pay {node} {key}"));
            Ok::<_, NodeError>(())
        };
        cx.step("pay", effect).await?;
        Ok(Writes::none())
    })
}

/// Fails until it has run `times` times.
pub(crate) fn fails(node: &'static str, times: u32, runs: &Runs) -> SharedBody {
    with(runs, move |_, runs| async move {
        if runs.hit(node) <= times {
            return Err(NodeError::failed(format!("{node} has no line")));
        }
        Ok(got(node, &Value::from("at last")))
    })
}

/// Stops at the gate.
pub(crate) fn hangs(node: &'static str, runs: &Runs, gate: &Gate) -> SharedBody {
    with(&(runs.clone(), gate.clone()), move |_, (runs, gate)| async move {
        runs.hit(node);
        gate.pass().await;
        Ok(got(node, &Value::from("passed")))
    })
}

/// Sends one task of `node` for each number up to `count`.
pub(crate) fn sends(node: &'static str, count: u32) -> SharedBody {
    with(&(), move |_, ()| async move {
        let sends = (0..count).map(|i| Goto::Send { node: node.to_owned(), argument: serde_json::json!({"n": i}) });
        Ok(Outcome { goto: sends.collect(), ..Outcome::default() })
    })
}
