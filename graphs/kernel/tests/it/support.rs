//! What the tests share: graphs from closures, and counting.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use countersign_kernel::context::Context;
use countersign_kernel::driver::{Driver, Refused, RunRequest};
use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::ids::{CheckpointId, InterruptId};
use countersign_kernel::machine::{Amend, Edit, EditRefused, Point, Resume};
use countersign_kernel::node::{Goto, NodeResult, Outcome, SharedBody, body_fn};
use countersign_kernel::ports::Clock;
use countersign_kernel::state::{Reducer, Writes};
use countersign_kernel::time::Timestamp;
use futures_util::FutureExt;
use serde_json::{Map, Value, json};

const NOTHING: Resume = Resume { release: false, retry: false, resume_all: false, supersteps: None };
pub(crate) const CONTINUE: Resume = Resume { release: true, ..NOTHING };
pub(crate) const RETRY: Resume = Resume { retry: true, ..NOTHING };
pub(crate) const RESUME_ALL: Resume = Resume { resume_all: true, ..NOTHING };

/// Polls once: nothing in these tests waits for anything outside.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("nothing here waits for I/O")
}

/// The name that a refusal says is no node's, and what it says.
#[track_caller]
pub(crate) fn unknown_node<T: std::fmt::Debug>(refused: Result<T, Refused>) -> (String, String) {
    match refused {
        Err(Refused::Edit(edit @ EditRefused::UnknownNode { .. })) => {
            let message = edit.to_string();
            let EditRefused::UnknownNode { node, .. } = edit else { return Default::default() };
            (node, message)
        }
        other => panic!("{other:?}"),
    }
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

/// As [`with`], for a body that also says where to go.
pub(crate) fn leading<T, F, Fut>(shared: &T, body: F) -> SharedBody
where
    T: Clone + Send + Sync + 'static,
    F: Fn(Context, T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<Outcome>> + Send + 'static,
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
    named("g", build)
}

/// As [`graph`], under another name.
pub(crate) fn named(name: &str, build: impl FnOnce(&mut GraphBuilder)) -> CompiledGraph {
    let mut graph = GraphBuilder::new(name, 1);
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

/// Instants that count up, and an end to a thread that would run for ever.
#[derive(Default)]
struct Patience(AtomicI64);

impl Clock for Patience {
    fn now(&self) -> Timestamp {
        let asked = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(asked < 50_000, "the thread runs in circles");
        Timestamp::from_micros(asked)
    }
}

/// A thread that never ran.
pub(crate) fn thread(graph: impl Into<Arc<CompiledGraph>>) -> Driver {
    Driver::new(graph).with_host(|host| host.clock = Arc::new(Patience::default()))
}

pub(crate) fn start(graph: impl Into<Arc<CompiledGraph>>) -> Driver {
    start_with(graph, json!({}))
}

pub(crate) fn start_with(graph: impl Into<Arc<CompiledGraph>>, input: Value) -> Driver {
    let mut run = thread(graph);
    request(&mut run, RunRequest { input: Some(input), ..RunRequest::default() }).expect("good input");
    run
}

pub(crate) fn request(run: &mut Driver, request: RunRequest) -> Result<(), Refused> {
    now(run.run(request))
}

/// Fresh input that drops what waits.
pub(crate) fn restart(run: &mut Driver, input: Value) {
    request(run, RunRequest { input: Some(input), discard: true, ..RunRequest::default() }).expect("good input");
}

/// Starts over from a checkpoint.
pub(crate) fn replay(run: &mut Driver, at: &CheckpointId) -> Result<(), Refused> {
    request(run, RunRequest { at: Some(at.clone()), ..RunRequest::default() })
}

/// Resumes with more state and more tasks.
pub(crate) fn amend(run: &mut Driver, update: Value, goto: Vec<Goto>, resume: Resume) -> Result<(), Refused> {
    let amend = Amend { update: object(update), goto };
    request(run, RunRequest { amend, resume, ..RunRequest::default() })
}

/// Edits the newest checkpoint, as a node or as the one that ran last.
pub(crate) fn edit(run: &mut Driver, values: Value, node: Option<&str>) -> Result<CheckpointId, Refused> {
    run.edit(&edit_of(values, node), None, None)
}

pub(crate) fn edit_of(values: Value, node: Option<&str>) -> Edit {
    let values = (!values.is_null()).then(|| object(values));
    Edit { values, as_node: node.map(str::to_owned) }
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other} is no object"),
    }
}

pub(crate) fn send(node: &str, argument: Value) -> Goto {
    Goto::Send { node: node.to_owned(), argument }
}

/// The names and messages of the tasks of the root frame that failed.
pub(crate) fn errors(run: &Driver) -> Vec<(&str, &str)> {
    run.errors().into_iter().collect()
}

/// What the open points are: their addresses.
pub(crate) fn addresses(run: &Driver) -> Vec<String> {
    run.points().iter().map(|point| point.address.to_string()).collect()
}

pub(crate) fn answer(run: &mut Driver, value: impl Into<Value>) {
    now(run.answer(value.into())).expect("one open point");
}

pub(crate) fn answer_ids(run: &mut Driver, answers: &[(&InterruptId, Value)]) -> Result<(), Refused> {
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
