//! What the tests share: graphs from closures, and counting.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use countersign_kernel::context::Context;
use countersign_kernel::driver::{Driver, DriverError};
use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::ids::InterruptId;
use countersign_kernel::machine::{Point, Resume};
use countersign_kernel::node::{NodeResult, SharedBody, body_fn};
use countersign_kernel::state::{Reducer, Writes};
use futures_util::FutureExt;
use serde_json::Value;

pub(crate) const CONTINUE: Resume = Resume { release: true, retry: false, resume_all: false };
pub(crate) const RETRY: Resume = Resume { release: false, retry: true, resume_all: false };
pub(crate) const RESUME_ALL: Resume = Resume { release: false, retry: false, resume_all: true };

/// Polls once: nothing in these tests waits for anything outside.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("nothing here waits for I/O")
}

/// Counts by name; clones share the counts.
#[derive(Clone, Default)]
pub(crate) struct Runs(Arc<Mutex<BTreeMap<String, u32>>>);

impl Runs {
    pub(crate) fn hit(&self, name: impl Into<String>) -> u32 {
        let mut runs = self.0.lock().expect("not poisoned");
        let count = runs.entry(name.into()).or_insert(0);
        *count += 1;
        *count
    }

    pub(crate) fn of(&self, name: &str) -> u32 {
        self.0.lock().expect("not poisoned").get(name).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> BTreeMap<String, u32> {
        self.0.lock().expect("not poisoned").clone()
    }
}

/// A body that gets the context and a shared thing.
pub(crate) fn with<T, F, Fut>(shared: &T, body: F) -> SharedBody
where
    T: Clone + Send + Sync + 'static,
    F: Fn(Context, T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<Writes>> + Send + 'static,
{
    let shared = shared.clone();
    body_fn(move |cx| body(cx, shared.clone()))
}

/// A body that asks `<node>?` and writes the answer to the merge key `got`.
pub(crate) fn asking(node: &'static str, runs: &Runs) -> SharedBody {
    with(runs, move |cx, runs| async move {
        runs.hit(node);
        let answer = cx.interrupt(format!("{node}?")).await?;
        Ok(got(node, &answer))
    })
}

/// A body that only counts.
pub(crate) fn counting(node: &'static str, runs: &Runs) -> SharedBody {
    with(runs, move |_, runs| async move {
        runs.hit(node);
        Ok(Writes::none().with("log", &[node]))
    })
}

/// A write of one member to the merge key `got`.
pub(crate) fn got(member: &str, value: &Value) -> Writes {
    Writes::none().with("got", &BTreeMap::from([(member, value)]))
}

/// A graph with the keys `got` (merge), `log` (append), `sum` and `last`.
pub(crate) fn graph(build: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    let mut graph = GraphBuilder::new("g", 1);
    graph.key("got", Reducer::Merge).key("log", Reducer::Append).key("sum", Reducer::Sum).key("last", Reducer::Last);
    build(&mut graph);
    graph.compile().expect("a sound graph")
}

/// One node, `n`.
pub(crate) fn single(body: SharedBody) -> CompiledGraph {
    graph(|g| {
        g.node("n", body).edge(START, "n");
    })
}

pub(crate) fn start(graph: CompiledGraph) -> Driver {
    start_with(graph, serde_json::json!({}))
}

pub(crate) fn start_with(graph: CompiledGraph, input: Value) -> Driver {
    now(Driver::start(graph, input)).expect("good input")
}

pub(crate) fn answer(run: &mut Driver, value: impl Into<Value>) {
    now(run.answer(value.into())).expect("one open point");
}

pub(crate) fn answer_ids(run: &mut Driver, answers: &[(&InterruptId, Value)]) -> Result<(), DriverError> {
    now(run.answer_ids(answers.iter().map(|(id, value)| ((*id).clone(), value.clone())), "ann@example.com"))
}

pub(crate) fn resume(run: &mut Driver, how: Resume) {
    now(run.resume(how));
}

/// The open point whose payload is the text `payload`.
pub(crate) fn point(run: &Driver, payload: &str) -> Point {
    let mut points = run.points();
    points.retain(|point| point.payload == payload);
    assert_eq!(points.len(), 1, "open points with the payload {payload}");
    points.remove(0)
}

/// The payloads of the open points, as texts.
pub(crate) fn open(run: &Driver) -> Vec<String> {
    run.points().iter().map(|point| point.payload.as_str().unwrap_or("-").to_owned()).collect()
}
