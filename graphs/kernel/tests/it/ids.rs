//! Ids and records: stable while a point waits, new for the next (K1 to K3, R7).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use countersign_kernel::address::Address;
use countersign_kernel::context::Context;
use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::{FrameId, InterruptId};
use countersign_kernel::machine::{CheckpointBody, Next, Outside, Position, Rest, TaskRecord};
use countersign_kernel::ports::{Clock, EffectError, Effects, FrameStep, Host, Ids, StopSignal, Timers};
use countersign_kernel::question::Answered;
use countersign_kernel::state::Writes;
use countersign_kernel::time::Timestamp;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending, ready};
use serde_json::{Value, json};

use crate::support::*;

/// Ids that count up, and one instant.
#[derive(Default)]
pub(crate) struct Fixed(AtomicU64);

impl Fixed {
    pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    pub(crate) fn outside(&self) -> Outside<'_> {
        Outside { ids: self, clock: self }
    }
}

impl Ids for Fixed {
    fn uuid(&self) -> String {
        format!("c{}", self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn salt(&self) -> [u8; 16] {
        [0; 16]
    }
}

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        Self::NOW
    }
}

/// Keeps nothing: what matters is in the record.
struct Kept;

#[async_trait::async_trait]
impl Effects for Kept {
    async fn record(&self, _: Option<&FrameId>, _: &Address, _: &str, _: &Value) -> Result<(), EffectError> {
        Ok(())
    }

    async fn frame(&self, _: FrameStep<'_>) -> Result<(), EffectError> {
        Ok(())
    }

    async fn emit(&self, _: &Address, _: &Value) -> Result<(), EffectError> {
        Ok(())
    }
}

/// No time passes.
struct NoTime;

impl Timers for NoTime {
    fn wait(&self, _: Duration) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }

    fn limit(&self, _: Duration) -> BoxFuture<'static, ()> {
        pending().boxed()
    }
}

/// What a body can reach, with ids that count up and one instant.
pub(crate) fn host(effects: Arc<dyn Effects>) -> Arc<Host> {
    let fixed = Arc::new(Fixed::default());
    let stop = StopSignal::default();
    Arc::new(Host { effects, ids: fixed.clone(), clock: fixed, timers: Arc::new(NoTime), stop })
}

/// A started thread of which nothing has run yet.
pub(crate) fn position(graph: &CompiledGraph, salt: [u8; 16]) -> Position {
    Position::start(graph, salt, &json!({}), Fixed::default().outside()).expect("good input").0
}

/// Runs what is due once.
pub(crate) fn attempt(graph: &CompiledGraph, position: &mut Position) {
    let Next::Run(tasks) = position.next() else { panic!("nothing to run") };
    for index in tasks {
        let cx = Context::new(position.scope(graph, index, host(Arc::new(Kept))));
        let node = graph.node(&position.tasks[index].plan.node).expect("a node");
        let result = now(node.run(cx.clone()));
        position.complete(graph, index, cx.finish(), result);
    }
}

/// What a store would keep, through JSON and back.
fn reloaded(position: &Position) -> Position {
    let body = serde_json::to_string(&position.body()).expect("encodes");
    let body: CheckpointBody = serde_json::from_str(&body).expect("reads back");
    let records: BTreeMap<String, TaskRecord> = position
        .tasks
        .iter()
        .map(|task| {
            let text = serde_json::to_string(&task.record).expect("encodes");
            (task.plan.key.clone(), serde_json::from_str(&text).expect("reads back"))
        })
        .collect();
    let values = position.state.values().clone();
    Position::restore(position.salt, position.place.clone(), position.checkpoint.clone(), body, values, records)
}

fn three_asking(runs: &Runs) -> CompiledGraph {
    graph(|g| {
        for node in ["a", "b", "c"] {
            g.node(node, asking(node, runs)).edge(START, node);
        }
    })
}

#[test]
fn ids_are_new_for_every_round_of_a_loop() {
    let mut run = start(graph(|g| {
        let ask = with(&(), |cx, ()| async move {
            let answer = cx.interrupt("again?").await?;
            Ok(Writes::none().with("last", &answer))
        });
        g.node("a", ask).edge(START, "a");
        g.branch("a", |view| {
            Ok(if view.values().get("last") == Some(&json!("stop")) { vec![] } else { vec!["a".into()] })
        });
    }));
    let mut seen: Vec<(InterruptId, String)> = Vec::new();
    for value in ["on", "on", "stop"] {
        let point = point(&run, "again?");
        assert_eq!(point.number, 0);
        seen.push((point.id, point.address.to_string()));
        answer(&mut run, value);
    }
    assert_eq!(run.rest(), Rest::Succeeded);
    assert_eq!(seen.iter().map(|(_, address)| address.as_str()).collect::<Vec<_>>(), ["g/a@0", "g/a@1", "g/a@2"]);
    assert!(seen[0].0 != seen[1].0 && seen[1].0 != seen[2].0 && seen[0].0 != seen[2].0);
}

#[test]
fn ids_of_another_thread_are_others() {
    let graph = three_asking(&Runs::default());
    let ids = |salt| {
        let mut position = position(&graph, salt);
        attempt(&graph, &mut position);
        position.points().into_iter().map(|point| point.id).collect::<Vec<_>>()
    };
    let (mine, again, other) = (ids([1; 16]), ids([1; 16]), ids([2; 16]));
    assert_eq!(mine, again);
    assert_eq!(mine.len(), 3);
    assert!(mine.iter().all(|id| !other.contains(id)));
}

#[test]
fn a_position_comes_back_from_a_store_as_it_was() {
    let runs = Runs::default();
    let graph = three_asking(&runs);
    let mut position = position(&graph, [9; 16]);
    attempt(&graph, &mut position);
    let points = position.points();
    let answered = |text: &str| Answered { value: Some(json!(text)), by: Vec::new(), at: Fixed::NOW };
    position.answer(&points[1].id, answered("B")).expect("open");
    attempt(&graph, &mut position);

    // Stored and loaded between every two steps: a restart each time.
    let mut position = reloaded(&position);
    assert_eq!(position.points(), [points[0].clone(), points[2].clone()]);
    assert_eq!(position.next(), Next::Rest(Rest::Parked), "nothing runs that was not answered");
    for (id, text) in [(&points[2].id, "C"), (&points[0].id, "A")] {
        position.answer(id, answered(text)).expect("open");
        attempt(&graph, &mut position);
        position = reloaded(&position);
    }
    assert!(position.answer(&points[0].id, answered("again")).is_err());
    assert_eq!(position.next(), Next::Settle);
    position.settle(&graph, Fixed::default().outside());
    assert_eq!(position.state.values().get("got"), Some(&json!({"a": "A", "b": "B", "c": "C"})));
    assert_eq!(runs.all().into_values().collect::<Vec<_>>(), [2, 2, 2]);
    assert_eq!(position.next(), Next::Rest(Rest::Succeeded));
}

#[test]
fn fresh_input_keeps_the_state_and_drops_what_waited() {
    let runs = Runs::default();
    let graph = three_asking(&runs);
    let mut position = position(&graph, [0; 16]);
    attempt(&graph, &mut position);
    let old = position.points();
    let changes = position.restart(&graph, &json!({"last": "new"}), Fixed::default().outside()).expect("good input");
    assert_eq!(changes.len(), 1);
    assert!(position.points().is_empty());
    attempt(&graph, &mut position);
    assert!(position.points().iter().all(|point| old.iter().all(|was| was.id != point.id)));

    let before = position.points();
    let faults = position.restart(&graph, &json!({"unknown": 1}), Fixed::default().outside()).expect_err("bad input");
    assert_eq!((faults[0].pointer.as_str(), position.points()), ("/unknown", before));
    assert_eq!(position.state.values().get("last"), Some(&json!("new")));
}
