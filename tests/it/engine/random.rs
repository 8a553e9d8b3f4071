//! Random graphs: layers of nodes that work, ask, send, call and contain.

use countersign_kernel::context::{Context, Slot};
use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::node::{Goto, NodeError, NodeResult, Outcome};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::Runs;
use crate::support::flows::{fails, flow, got, part, with};

/// What a node does.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    Work,
    /// Asks that many questions in turn.
    Ask(u8),
    /// A batch of slots that each ask that many.
    Batch(Vec<u8>),
    /// Fails once.
    Fail,
    /// Sends that many tasks, each of which asks.
    Fan(u8),
    /// A graph.
    Sub(Layers),
    /// A body that calls a graph.
    Call(Layers),
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    kind: Kind,
    /// A stop before it.
    stops: bool,
}

/// Layers of parallel nodes; a layer starts when the one before has joined.
pub(super) type Layers = Vec<Vec<Node>>;

fn node(kind: impl Strategy<Value = Kind>) -> impl Strategy<Value = Node> {
    (kind, prop::bool::weighted(0.1)).prop_map(|(kind, stops)| Node { kind, stops })
}

fn leaf() -> impl Strategy<Value = Kind> {
    prop_oneof![
        2 => Just(Kind::Work),
        4 => (1..3_u8).prop_map(Kind::Ask),
        1 => prop::collection::vec(0..3_u8, 1..4).prop_map(Kind::Batch),
        1 => Just(Kind::Fail),
        1 => (1..4_u8).prop_map(Kind::Fan),
    ]
}

fn layers(kind: impl Strategy<Value = Kind> + 'static) -> impl Strategy<Value = Layers> {
    prop::collection::vec(prop::collection::vec(node(kind), 1..3), 1..4)
}

pub(super) fn graphs() -> impl Strategy<Value = Layers> {
    let inner =
        prop_oneof![4 => leaf(), 1 => layers(leaf()).prop_map(Kind::Sub), 1 => layers(leaf()).prop_map(Kind::Call)];
    layers(prop_oneof![2 => leaf(), 3 => layers(inner).prop_map(Kind::Sub)])
}

async fn ask_all(cx: &Context, who: &str, questions: u8) -> NodeResult<Vec<Value>> {
    let mut answers = Vec::new();
    for question in 0..questions {
        answers.push(cx.interrupt(format!("{who}/{question}")).await?);
    }
    Ok(answers)
}

/// The name to wait for, which for a fan is that of the tasks it sends.
fn add(g: &mut GraphBuilder, name: &str, full: &str, node: &Node, list: &'static str, runs: &Runs) -> String {
    if node.stops {
        g.break_before(name);
    }
    let shared = (runs.clone(), full.to_owned(), node.kind.clone());
    match &node.kind {
        Kind::Sub(layers) => {
            g.subgraph(name, part(&format!("g{name}"), |g| build(g, layers, full, "inside", runs)));
        }
        Kind::Call(layers) => {
            let child = part(&format!("g{name}"), |g| build(g, layers, full, "inside", runs));
            let body = with(&(runs.clone(), full.to_owned(), child), move |cx, (runs, full, child)| async move {
                runs.hit(&full);
                let end = cx.graph("called", &child, json!({})).await?;
                Ok(got(&full, &json!([end["got"], end["inside"]])).with(list, &[full]))
            });
            g.node(name, body);
        }
        Kind::Fail => {
            let name: &'static str = Box::leak(full.to_owned().into_boxed_str());
            g.node(full.rsplit('.').next().unwrap_or(full), fails(name, 1, runs));
        }
        Kind::Fan(count) => {
            let target = format!("{name}t");
            let (sent, count) = (target.clone(), *count);
            let fan = with(&(runs.clone(), full.to_owned()), move |_, (runs, full)| {
                runs.hit(full);
                let goto = (0..count).map(|i| Goto::Send { node: sent.clone(), argument: json!(i) }).collect();
                async move { Ok(Outcome { goto, ..Default::default() }) }
            });
            let task = with(&(runs.clone(), full.to_owned()), move |cx, (runs, full)| async move {
                let who = format!("{full}#{}", cx.argument().cloned().unwrap_or_default());
                runs.hit(&who);
                let answers = ask_all(&cx, &who, 1).await?;
                Ok(got(&who, &Value::Array(answers)).with(list, &[who]))
            });
            g.node(name, fan).node(&target, task);
            return target;
        }
        Kind::Work | Kind::Ask(_) | Kind::Batch(_) => {
            let body = with(&shared, move |cx, (runs, full, kind)| async move {
                runs.hit(&full);
                let made = match kind {
                    Kind::Work => {
                        let paid = format!("{full}.paid");
                        let hits = runs.clone();
                        let pay = cx.step("pay", async move |_| Ok::<_, NodeError>(hits.hit(paid)));
                        pay.await.map(|_| Vec::new())?
                    }
                    Kind::Ask(questions) => ask_all(&cx, &full, questions).await?,
                    Kind::Batch(slots) => {
                        let slots = slots.iter().enumerate();
                        let slots = slots.map(|(i, n)| Slot::new("s", (format!("{full}.{i}"), *n))).collect();
                        cx.batch("part", slots, |cx, (who, questions)| {
                            runs.hit(&who);
                            async move { ask_all(&cx, &who, questions).await.map(Value::Array) }
                        })
                        .await?
                    }
                    _ => Vec::new(),
                };
                Ok(got(&full, &Value::Array(made)).with(list, &[full]))
            });
            g.node(name, body);
        }
    }
    name.to_owned()
}

fn build(g: &mut GraphBuilder, layers: &Layers, path: &str, list: &'static str, runs: &Runs) {
    let mut before: Vec<String> = Vec::new();
    for (depth, layer) in layers.iter().enumerate() {
        let mut last = Vec::new();
        for (i, node) in layer.iter().enumerate() {
            let name = format!("n{depth}{i}");
            last.push(add(g, &name, &format!("{path}.{name}"), node, list, runs));
            if before.is_empty() {
                g.edge(START, &name);
            } else {
                g.join(before.clone(), &name);
            }
        }
        before = last;
    }
}

pub(super) fn compiled(layers: &Layers, runs: &Runs) -> CompiledGraph {
    flow("flow", |g| build(g, layers, "", "log", runs))
}

/// The same graph, with nothing in it that fails the first time.
pub(super) fn steady(layers: Layers) -> Layers {
    let steady_node = |node: Node| Node {
        kind: match node.kind {
            Kind::Fail => Kind::Work,
            Kind::Sub(layers) => Kind::Sub(steady(layers)),
            Kind::Call(layers) => Kind::Call(steady(layers)),
            other => other,
        },
        ..node
    };
    layers.into_iter().map(|layer| layer.into_iter().map(steady_node).collect()).collect()
}
