//! A process that dies at any of its writes, on either side of it: the thread
//! ends as it would have without, and nothing is done more often than it must.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use countersign_kernel::context::Slot;
use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::ThreadId;
use countersign_kernel::node::NodeError;
use countersign_kernel::question::{OnDeadline, approval};
use countersign_kernel::state::Writes;
use countersign_worker::engine::{RequestError, Started};
use countersign_worker::store::commands::IdempotencyEntry;
use countersign_worker::store::{Refusal, Store, StoreError};
use futures_util::stream::{self, StreamExt};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::random::{compiled, graphs, steady};
use crate::support::flows::{asks, flow, got, logs, part, pays, pays_at_once, sends, with, works};
use crate::support::{Dies, Fate, On, Runs, TestEngine, World, ann, eventually_or, operator};

engine!(
    a_process_that_dies_at_any_write_of_a_graph_two_levels_deep_costs_nothing,
    a_process_that_dies_at_any_write_of_sent_graphs_costs_nothing,
    a_process_that_dies_at_any_write_of_a_body_that_calls_graphs_costs_nothing,
    a_process_that_dies_at_any_write_between_stops_and_failures_costs_nothing,
    a_process_that_dies_at_any_write_around_sleeps_deadlines_and_signals_costs_nothing,
);

/// A checkpoint: superstep, source, state and next nodes.
type Past = (u64, String, Map<String, Value>, Vec<String>);

/// All that a thread leaves behind, apart from ids and times.
#[derive(Debug, PartialEq)]
struct End {
    state: Map<String, Value>,
    /// Superstep, source, state and next nodes of each checkpoint.
    history: Vec<Past>,
    /// Address, payload and status of each point.
    points: Vec<(String, String, String)>,
    actions: BTreeMap<String, usize>,
    rows: Vec<i64>,
}

/// A thread played to its end, whoever dies on the way.
struct Played {
    end: End,
    /// How often each body ran, and each effect under each of its keys.
    bodies: BTreeMap<String, u32>,
    effects: BTreeMap<String, BTreeSet<String>>,
    writes: u32,
}

/// Makes a graph whose bodies count.
type Flow = Arc<dyn Fn(&Runs) -> CompiledGraph + Send + Sync>;

const TABLES: [&str; 6] = ["checkpoints", "frames", "state_values", "state_items", "steps", "answers"];

async fn play(graph: &Flow, fate: Fate) -> Played {
    let runs = Runs::default();
    let world = {
        let (runs, graph) = (runs.clone(), Arc::clone(graph));
        World::one(move || graph(&runs)).meeting(&fate)
    };
    let thread = ThreadId::parse("t").expect("an id");
    let mut engine = world.engine().await;
    let mut died = false;
    loop {
        let ended = tokio::select! {
            () = fate.death(), if !died => {
                died = true;
                engine.crash().await;
                engine = world.engine().await;
                false
            }
            // The last write can be read before whoever made it has died of it.
            ended = async {
                let ended = one_more(&engine, &thread, &runs).await;
                if ended {
                    engine.idles().await;
                }
                ended
            } => ended,
        };
        if ended {
            break;
        }
    }
    let end = end_of(&world, &engine, &thread).await;
    let (effects, bodies): (Vec<_>, Vec<_>) = runs.all().into_iter().partition(|(name, _)| name.contains(' '));
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, count) in effects {
        let (effect, key) = name.rsplit_once(' ').expect("an effect and its key");
        // At least once, and a crash in between is one more attempt.
        assert!(count <= 1 + u32::from(died), "{name} was done {count} times");
        keys.entry(effect.to_owned()).or_default().insert(key.to_owned());
    }
    Played { end, bodies: bodies.into_iter().collect(), effects: keys, writes: fate.writes() }
}

/// Starts the thread, or does the next thing that it waits for. Says whether
/// it has succeeded.
async fn one_more(engine: &TestEngine, thread: &ThreadId, runs: &Runs) -> bool {
    match engine.engine.start("flow", &json!({}), Some(thread.clone()), &ann()).await {
        Ok(Started::New { .. }) => return false,
        Err(RequestError::Store(StoreError::Refused(Refusal::ThreadExists { .. }))) => {}
        other => panic!("not started: {other:?}"),
    }
    let rested = eventually_or("the thread rests", || async {
        let detail = engine.detail(thread).await;
        let rests = !matches!(detail.summary.status.as_str(), "queued" | "running");
        if rests { Ok(detail) } else { Err(format!("but {:?}", detail.summary)) }
    })
    .await;
    let mut open = rested.interrupts;
    open.sort_by(|a, b| a.address.cmp(&b.address));
    let any = !open.is_empty();
    // What waits for time needs nobody.
    open.retain(|view| view.deadline.is_none());
    match (rested.summary.status.as_str(), open.first()) {
        ("succeeded", _) => return true,
        ("parked", None) if any => tokio::time::sleep(Duration::from_millis(1)).await,
        ("parked" | "failed", Some(view)) if view.kind == "signal" => {
            // Whoever dies hears nothing, and sends it again under the same key.
            let entry = IdempotencyEntry {
                scope: "test".into(),
                key: view.id.as_str().into(),
                request_hash: "the same".into(),
                status: 202,
                body: "{}".into(),
            };
            let payload = view.payload.clone();
            let sent = engine.engine.signal(thread, "go", payload, &operator(), Some(entry)).await;
            sent.expect("accepted");
        }
        ("failed", None) => {
            runs.hit("mended");
            engine.engine.retry(thread, &operator()).await.expect("accepted");
        }
        ("parked" | "failed", Some(view)) => {
            let stops = matches!(view.kind.as_str(), "break" | "pause");
            let answer = if stops { Value::Null } else { json!({"to": view.payload}) };
            engine.vote(&view.id, &operator(), answer).await.expect("accepted");
        }
        (status, _) => panic!("{status}: {:#?} {:#?}", rested.summary, engine.store.load(thread).await),
    }
    false
}

async fn end_of(world: &World, engine: &TestEngine, thread: &ThreadId) -> End {
    let history = engine.history(thread).await;
    let filter = countersign_worker::store::views::InterruptFilter {
        thread: Some(thread.clone()),
        ..countersign_worker::store::views::InterruptFilter::default()
    };
    let points = engine.store.interrupts(&filter, None, 1_000).await.expect("listed");
    let mut points: Vec<_> =
        points.into_iter().map(|view| (view.address, view.payload.to_string(), view.status)).collect();
    points.sort();
    let mut actions = BTreeMap::new();
    for entry in engine.store.audit(thread).await.expect("there") {
        *actions.entry(entry.action).or_insert(0) += 1;
    }
    assert_eq!(engine.store.verify_audit(thread).await.expect("verified"), None);
    let mut rows = Vec::new();
    for table in TABLES {
        rows.push(world.count(table).await);
    }
    End {
        state: engine.detail(thread).await.state,
        history: history.into_iter().map(|entry| (entry.superstep, entry.source, entry.state, entry.next)).collect(),
        points,
        actions,
        rows,
    }
}

/// Plays a graph undisturbed, and once for each of its writes and sides, or
/// [some of them](On::one_of).
async fn survives(graph: fn(&Runs) -> CompiledGraph) {
    let graph: Flow = Arc::new(graph);
    let calm = play(&graph, Fate::kind()).await;
    assert!(calm.writes > 5, "{} writes", calm.writes);
    let deaths = (0..calm.writes).flat_map(|n| [(n, Dies::Before), (n, Dies::After)]).step_by(On::one_of() as usize);
    let graph = &graph;
    let mut disturbed = stream::iter(deaths)
        .map(|(n, dies)| async move { (n, dies, play(graph, Fate::at(n, dies)).await) })
        .buffer_unordered(4);
    while let Some((n, dies, played)) = disturbed.next().await {
        alike(&played, &calm, &format!("dead {dies:?} write {n} of {}", calm.writes));
    }
}

/// A thread whose process died came to the same end, and did nothing more
/// often than it had to.
fn alike(played: &Played, calm: &Played, died: &str) {
    assert_eq!((&played.end.actions, &played.end.rows), (&calm.end.actions, &calm.end.rows), "{died}: {TABLES:?}");
    assert_eq!(played.end.points, calm.end.points, "{died}");
    assert_eq!(played.end, calm.end, "{died}");
    let names = |effects: &BTreeMap<String, BTreeSet<String>>| -> Vec<(String, usize)> {
        effects.iter().map(|(name, keys)| (name.clone(), keys.len())).collect()
    };
    assert_eq!(names(&played.effects), names(&calm.effects), "{died}: each effect has its key");
    for (body, count) in &played.bodies {
        let calm = calm.bodies.get(body).copied().unwrap_or(0);
        assert!(*count <= calm + 1, "{died}: {body} ran {count} times, not {calm}");
    }
    assert!(calm.bodies.iter().all(|(body, count)| played.bodies.get(body) >= Some(count)));
}

/// Steps, lists and a question two graphs deep, and work on both sides.
fn two_deep(runs: &Runs) -> CompiledGraph {
    let inner = part("inner", |g| {
        g.node("early", logs("inside", "early", runs)).node("asks", pays("asks", runs));
        g.node("late", logs("inside", "late", runs));
        g.edge(START, "early").edge("early", "asks").edge("asks", "late");
    });
    let outer = part("outer", |g| {
        g.node("first", pays_at_once("first", runs)).subgraph("inner", inner).node("beside", works("beside", runs));
        g.edge(START, "first").edge("first", "inner").edge("first", "beside");
    });
    flow("flow", |g| {
        g.node("before", logs("log", "before", runs))
            .subgraph("outer", outer)
            .node("after", pays_at_once("after", runs));
        g.edge(START, "before").edge("before", "outer").edge("outer", "after");
    })
}

async fn a_process_that_dies_at_any_write_of_a_graph_two_levels_deep_costs_nothing() {
    survives(two_deep).await;
}

/// Three sent graphs that each pay, ask and pay.
fn fan(runs: &Runs) -> CompiledGraph {
    let child = part("child", |g| {
        let ask = with(runs, |cx, runs| async move {
            let n = cx.state().values().get("n").cloned().unwrap_or_default();
            runs.hit(format!("ask{n}"));
            let hits = runs.clone();
            let before = format!("pay {n}");
            cx.step("pay", async move |key| {
                hits.hit(format!("{before} {key}"));
                Ok::<_, NodeError>(())
            })
            .await?;
            let answer = cx.interrupt(format!("{n}?")).await?;
            Ok(got(&n.to_string(), &answer).with("inside", &[n]))
        });
        g.node("ask", ask).node("end", pays_at_once("end", runs)).edge(START, "ask").edge("ask", "end");
    });
    flow("flow", |g| {
        g.node("fan", sends("child", 3)).subgraph("child", child).node("end", logs("log", "end", runs));
        g.edge(START, "fan").edge("child", "end");
    })
}

async fn a_process_that_dies_at_any_write_of_sent_graphs_costs_nothing() {
    survives(fan).await;
}

/// A body that calls a graph twice, with a batch in between.
fn calling(runs: &Runs) -> CompiledGraph {
    let child = part("child", |g| {
        g.node("one", pays_at_once("one", runs)).node("two", asks("two", runs)).edge(START, "one").edge("one", "two");
    });
    flow("flow", |g| {
        let body = with(&(runs.clone(), child), |cx, (runs, child)| async move {
            runs.hit("calls");
            let first = cx.graph("child", &child, json!({})).await?;
            let slots = (0..3).map(|n| Slot::new(format!("slot {n}"), n)).collect();
            let parts: Vec<Value> = cx
                .batch("part", slots, |cx, n| {
                    runs.hit(format!("part{n}"));
                    async move { if n == 1 { cx.interrupt("part?").await } else { Ok(json!(n)) } }
                })
                .await?;
            let second = cx.graph("child", &child, json!({})).await?;
            Ok(got("calls", &json!([first["got"], parts, second["got"]])))
        });
        g.node("calls", body).node("end", logs("log", "end", runs)).edge(START, "calls").edge("calls", "end");
    })
}

async fn a_process_that_dies_at_any_write_of_a_body_that_calls_graphs_costs_nothing() {
    survives(calling).await;
}

/// Stops and a failure inside, beside a question, in a loop of two rounds.
fn stopping(runs: &Runs) -> CompiledGraph {
    let sub = part("sub", |g| {
        let breaks = with(runs, |_, runs| async move {
            runs.hit("breaks");
            // Until somebody has looked into it.
            if runs.of("mended") == 0 { Err(NodeError::failed("no line")) } else { Ok(Writes::none()) }
        });
        g.node("a", logs("inside", "a", runs)).node("breaks", breaks).node("c", works("c", runs));
        g.edge(START, "a").edge("a", "breaks").edge("breaks", "c").break_before("breaks").break_after("c");
    });
    flow("flow", |g| {
        let count = with(runs, |cx, runs| async move {
            runs.hit("count");
            let log = cx.state().values().get("log").and_then(Value::as_array).map_or(0, Vec::len);
            Ok(Writes::none().with("log", &[log]))
        });
        g.node("count", count).subgraph("sub", sub).node("plain", asks("plain", runs));
        g.edge(START, "count").edge("count", "sub").edge("count", "plain").join(["sub", "plain"], "again");
        g.node("again", works("again", runs));
        g.branch("again", |state| {
            let rounds = state.values().get("log").and_then(Value::as_array).map_or(0, Vec::len);
            Ok(if rounds < 2 { vec!["count".into()] } else { Vec::new() })
        });
    })
}

async fn a_process_that_dies_at_any_write_between_stops_and_failures_costs_nothing() {
    survives(stopping).await;
}

/// Sleeps, a deadline and signals, in the thread and in a graph inside it.
fn waiting(runs: &Runs) -> CompiledGraph {
    const SHORT: Duration = Duration::from_millis(2);
    let inner = part("inner", |g| {
        let sleeps = with(runs, |cx, runs| async move {
            runs.hit("inside");
            cx.sleep(SHORT).await?;
            let said: Value = cx.signal("go").await?;
            Ok(got("inside", &said))
        });
        g.node("sleeps", sleeps).node("end", pays_at_once("end", runs)).edge(START, "sleeps").edge("sleeps", "end");
    });
    flow("flow", |g| {
        let waits = with(runs, |cx, runs| async move {
            let runs = &runs;
            runs.hit("waits");
            let effect = async |key| {
                runs.hit(format!("before {key}"));
                Ok::<_, NodeError>(())
            };
            cx.step("before", effect).await?;
            cx.sleep(SHORT).await?;
            cx.signal::<Value>("go").await?;
            let unheard: Option<Value> = cx.signal_within("unheard", SHORT).await?;
            Ok(got("waits", &json!(unheard)))
        });
        let decides = with(runs, |cx, runs| async move {
            runs.hit("decides");
            let decision = cx.ask(approval("Pay?").within(SHORT, OnDeadline::Reject)).await?;
            Ok(got("decides", &json!(decision)))
        });
        g.node("waits", waits).node("decides", decides).subgraph("inner", inner).node("pays", pays("pays", runs));
        g.edge(START, "waits").edge("waits", "decides").edge("waits", "inner").edge("waits", "pays");
    })
}

async fn a_process_that_dies_at_any_write_around_sleeps_deadlines_and_signals_costs_nothing() {
    survives(waiting).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_process_that_dies_at_some_write_of_some_graph_costs_nothing(
        layers in graphs().prop_map(steady),
        deaths in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let graph: Flow = Arc::new(move |runs| compiled(&layers, runs));
        let dying = async || {
            let calm = play(&graph, Fate::kind()).await;
            for (write, before) in &deaths {
                let n = u32::try_from(write.index(calm.writes as usize)).expect("few");
                let dies = if *before { Dies::Before } else { Dies::After };
                let played = play(&graph, Fate::at(n, dies)).await;
                alike(&played, &calm, &format!("dead {dies:?} write {n} of {}", calm.writes));
            }
        };
        for on in On::EACH {
            runtime.block_on(on.run(dying()));
        }
    }
}
