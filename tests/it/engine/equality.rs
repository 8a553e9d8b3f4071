//! The engine over a store and the driver in memory are one machine: whatever
//! is asked of both, they stand alike, restarts of the engine included.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersign_kernel::context::{Context, Slot};
use countersign_kernel::driver::{Driver, RunRequest};
use countersign_kernel::graph::{CompiledGraph, GraphBuilder, START};
use countersign_kernel::ids::{CheckpointId, InterruptId, ThreadId};
use countersign_kernel::machine::{Amend, Edit, Point, Rest, Resume};
use countersign_kernel::node::{Goto, NodeResult};
use countersign_worker::store::Store;
use countersign_worker::store::views::InterruptView;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::{Map, Value, json};

use super::graphs::{CONTINUE, NOTHING, RESUME_ALL, RETRY};
use crate::support::flows::{fails, flow, got, part, with};
use crate::support::{Runs, TestEngine, World, operator};

/// What a node does.
#[derive(Debug, Clone)]
enum Kind {
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
struct Node {
    kind: Kind,
    /// A stop before it.
    stops: bool,
}

/// Layers of parallel nodes; a layer starts when the one before has joined.
type Layers = Vec<Vec<Node>>;

/// What is asked of both.
#[derive(Debug, Clone)]
enum Ask {
    /// Answers those open points whose bit is set; at least one.
    Answer(u16),
    Flags(Resume),
    /// Starts over from the checkpoint that is so many back.
    Replay(usize),
    /// Starts over from one of the checkpoints that sub-graphs have rested at.
    ReplayInside(usize),
    /// New input, which drops what waits.
    Input,
    /// Edits the thread as the first node that has still to run.
    Skip,
    /// Edits the first sub-graph as the first node that has still to run there.
    SkipInside,
    /// More state, and the first node of the first layer once more.
    Amend,
}

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

fn graphs() -> impl Strategy<Value = Layers> {
    let inner =
        prop_oneof![4 => leaf(), 1 => layers(leaf()).prop_map(Kind::Sub), 1 => layers(leaf()).prop_map(Kind::Call)];
    layers(prop_oneof![2 => leaf(), 3 => layers(inner).prop_map(Kind::Sub)])
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let ask = prop_oneof![
        6 => any::<u16>().prop_map(Ask::Answer),
        2 => prop_oneof![Just(CONTINUE), Just(RETRY), Just(RESUME_ALL)].prop_map(Ask::Flags),
        1 => (0..6_usize).prop_map(Ask::Replay),
        1 => (0..6_usize).prop_map(Ask::ReplayInside),
        1 => Just(Ask::Input),
        1 => Just(Ask::Skip),
        1 => Just(Ask::SkipInside),
        1 => Just(Ask::Amend),
    ];
    prop::collection::vec(ask, 1..8)
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
                async move { Ok(countersign_kernel::node::Outcome { goto, ..Default::default() }) }
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

fn compiled(layers: &Layers, runs: &Runs) -> CompiledGraph {
    flow("flow", |g| build(g, layers, "", "log", runs))
}

/// Answers with what depends on the question alone; a stop with data or none.
fn reply(kind: &str, payload: &Value, data: bool) -> Value {
    match kind {
        "break" | "pause" if data => json!({"got": {"data": true}}),
        "break" | "pause" => Value::Null,
        _ => json!({"to": payload}),
    }
}

/// Keys that nobody wrote, with their neutral values.
fn whole(mut state: Map<String, Value>, keys: &[(&str, Value)]) -> Map<String, Value> {
    for (key, neutral) in keys {
        state.entry(*key).or_insert_with(|| neutral.clone());
    }
    let mut sorted: Vec<_> = state.into_iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    sorted.into_iter().collect()
}

/// How a thread stands, as both can say it.
#[derive(Debug, PartialEq)]
struct Stand {
    rest: &'static str,
    points: Vec<(String, String, String)>,
    state: Map<String, Value>,
    live: Map<String, Value>,
    next: Vec<String>,
    frames: Vec<(String, Map<String, Value>, Vec<String>)>,
    failures: Vec<(Vec<String>, String)>,
    history: Vec<(u64, String, Map<String, Value>, Vec<String>)>,
    runs: BTreeMap<String, u32>,
}

fn of_root(state: Map<String, Value>) -> Map<String, Value> {
    whole(state, &[("got", json!({})), ("log", json!([]))])
}

fn of_part(state: Map<String, Value>) -> Map<String, Value> {
    whole(state, &[("got", json!({})), ("inside", json!([]))])
}

fn driver_stand(driver: &Driver, runs: &Runs) -> Stand {
    let points = driver.points();
    let mut points: Vec<_> = points
        .iter()
        .map(|point| (point.address.to_string(), point.kind.as_str().to_owned(), point.payload.to_string()))
        .collect();
    points.sort();
    let failures = driver.failures();
    let rest = match driver.rest() {
        // A stop hides no failure (R12).
        Rest::Parked if !failures.is_empty() && driver.errors().values().next().is_some() => "failed",
        Rest::Parked => "parked",
        Rest::Failed => "failed",
        Rest::Succeeded => "succeeded",
    };
    let frames = driver.frames().into_iter().map(|frame| (frame.path.join("/"), of_part(frame.values), frame.next));
    let history = driver.history().into_iter().map(|entry| {
        let (superstep, source) = (entry.checkpoint.superstep, entry.checkpoint.source.as_str().to_owned());
        (superstep, source, of_root(entry.values), entry.next)
    });
    Stand {
        rest,
        points,
        state: of_root(driver.state()),
        live: of_root(driver.live_state()),
        next: driver.next().into_iter().map(str::to_owned).collect(),
        frames: frames.collect(),
        failures,
        history: history.collect(),
        runs: runs.all(),
    }
}

async fn engine_stand(engine: &TestEngine, thread: &ThreadId, runs: &Runs) -> Stand {
    engine.idles().await;
    let view = engine.view(thread).await;
    let detail = view.detail;
    let mut points: Vec<_> = detail
        .interrupts
        .iter()
        .map(|view| (view.address.clone(), view.kind.clone(), view.payload.to_string()))
        .collect();
    points.sort();
    let rest = ["parked", "failed", "succeeded"].into_iter().find(|rest| *rest == detail.summary.status);
    let history = engine.store.history(thread, None, None, 1_000).await.expect("there");
    let history = history.into_iter().map(|entry| (entry.superstep, entry.source, of_root(entry.state), entry.next));
    Stand {
        rest: rest.unwrap_or("no rest"),
        points,
        state: of_root(detail.state),
        live: of_root(view.values),
        next: view.next,
        frames: view
            .frames
            .into_iter()
            .map(|frame| (frame.path.join("/"), of_part(frame.values), frame.next))
            .collect(),
        failures: view.failures,
        history: history.collect(),
        runs: runs.all(),
    }
}

/// One thread twice.
struct Both {
    driver: Driver,
    in_memory: Runs,
    world: World,
    engine: TestEngine,
    thread: ThreadId,
    stored: Runs,
    /// Checkpoints of sub-graphs, as the driver and as the engine know them.
    rested: Vec<(CheckpointId, CheckpointId)>,
}

impl Both {
    async fn start(layers: &Layers) -> Self {
        let (in_memory, stored) = (Runs::default(), Runs::default());
        let driver = Driver::start(Arc::new(compiled(layers, &in_memory)), json!({})).await.expect("good input");
        let world = {
            let (layers, stored) = (layers.clone(), stored.clone());
            World::one(move || compiled(&layers, &stored)).without_sweep()
        };
        let engine = world.engine().await;
        let thread = engine.start("flow", json!({})).await;
        Self { driver, in_memory, world, engine, thread, stored, rested: Vec::new() }
    }

    async fn compare(&mut self, after: &str) -> TestCaseResult {
        let (expected, found) =
            (driver_stand(&self.driver, &self.in_memory), engine_stand(&self.engine, &self.thread, &self.stored).await);
        prop_assert_eq!(found, expected, "the engine and the driver, after {}", after);
        let (mut theirs, ours) = (BTreeMap::new(), self.engine.view(&self.thread).await.frames);
        if let Some(position) = self.driver.position() {
            position.each_frame(&mut |_, _, frame| {
                theirs.insert(frame.place.id.clone(), frame.checkpoint.id.clone());
            });
        }
        for (theirs, ours) in
            self.driver.frames().iter().filter_map(|frame| theirs.get(&Some(frame.id.clone()))).zip(ours)
        {
            let rested = (theirs.clone(), ours.checkpoint);
            if !self.rested.contains(&rested) {
                self.rested.push(rested);
            }
        }
        Ok(())
    }

    /// The open points in one order, each as both know it.
    async fn points(&self) -> Vec<(Point, InterruptView)> {
        let mut points = self.driver.points();
        points.sort_by_key(|point| (point.address.to_string(), point.payload.to_string()));
        let mut views = self.engine.detail(&self.thread).await.interrupts;
        views.sort_by_key(|view| (view.address.clone(), view.payload.to_string()));
        points.into_iter().zip(views).collect()
    }

    async fn answer(&mut self, mask: u16) {
        let points = self.points().await;
        let chosen = |i: usize| mask & (1 << (i % 16)) != 0 || i == usize::from(mask) % points.len().max(1);
        let chosen: Vec<_> = points.iter().enumerate().filter(|(i, _)| chosen(*i)).map(|(_, both)| both).collect();
        if chosen.is_empty() {
            return;
        }
        let answers = |id: fn(&(Point, InterruptView)) -> InterruptId| -> Vec<(InterruptId, Value)> {
            let data = mask & (1 << 15) != 0;
            chosen.iter().map(|both| (id(both), reply(&both.1.kind, &both.1.payload, data))).collect()
        };
        self.driver.answer_ids(answers(|(point, _)| point.id.clone()), operator().name()).await.expect("open");
        self.engine.resume(&self.thread, answers(|(_, view)| view.id.clone()), NOTHING).await.expect("open");
    }

    async fn carry_out(&mut self, ask: &Ask) -> TestCaseResult {
        match ask {
            Ask::Answer(mask) => self.answer(*mask).await,
            Ask::Flags(resume) => {
                let driver = self.driver.run(RunRequest { resume: *resume, ..RunRequest::default() }).await;
                let engine = self.engine.resume(&self.thread, [], *resume).await;
                prop_assert_eq!(engine.is_ok(), driver.is_ok(), "{:?}: {:?} and {:?}", resume, engine, driver);
            }
            Ask::Replay(back) => {
                let (theirs, ours) = (self.driver.history(), self.engine.history(&self.thread).await);
                let (theirs, ours) = (theirs.get(*back), ours.get(*back));
                if let (Some(theirs), Some(ours)) = (theirs, ours) {
                    let at = Some(theirs.checkpoint.id.clone());
                    let driver = self.driver.run(RunRequest { at, ..RunRequest::default() }).await;
                    let engine = self.engine.replay(&self.thread, &ours.checkpoint).await;
                    prop_assert_eq!(engine.is_ok(), driver.is_ok(), "replay: {:?} and {:?}", engine, driver);
                }
            }
            Ask::ReplayInside(which) => {
                if let Some((theirs, ours)) = self.rested.get(*which % self.rested.len().max(1)).cloned() {
                    let driver = self.driver.run(RunRequest { at: Some(theirs), ..RunRequest::default() }).await;
                    let engine = self.engine.replay(&self.thread, &ours).await;
                    prop_assert_eq!(engine.is_ok(), driver.is_ok(), "replay inside: {:?} and {:?}", engine, driver);
                }
            }
            Ask::Input => {
                let input = json!({"got": {"input": true}, "log": ["input"]});
                let request = RunRequest { input: Some(input.clone()), discard: true, ..RunRequest::default() };
                self.driver.run(request).await.expect("good input");
                let engine = &self.engine.engine;
                engine.restart(&self.thread, &input, true, &operator(), &|_, _, _| None).await.expect("good input");
            }
            Ask::Skip => {
                let node = self.driver.next().first().map(|node| (*node).to_owned());
                let values = json!({"got": {"skipped": node}});
                let edit = Edit { values: values.as_object().cloned(), as_node: node.clone() };
                let driver = self.driver.edit(&edit, None, None);
                let engine = self.engine.edit(&self.thread, None, values, node.as_deref()).await;
                prop_assert_eq!(engine.is_ok(), driver.is_ok(), "edit: {:?} and {:?}", engine, driver);
            }
            Ask::SkipInside => {
                let (theirs, ours) = (self.driver.frames(), self.engine.view(&self.thread).await.frames);
                if let (Some(theirs), Some(ours)) = (theirs.last(), ours.last()) {
                    let node = theirs.next.first().cloned();
                    let values = json!({"got": {"skipped": node}});
                    let edit = Edit { values: values.as_object().cloned(), as_node: node.clone() };
                    let driver = self.driver.edit(&edit, None, Some(&theirs.id));
                    let engine = self.engine.edit(&self.thread, Some(&ours.frame), values, node.as_deref()).await;
                    prop_assert_eq!(engine.is_ok(), driver.is_ok(), "edit inside: {:?} and {:?}", engine, driver);
                }
            }
            Ask::Amend => {
                let update = json!({"got": {"amended": true}, "log": ["amended"]});
                let amend = Amend { update: update.as_object().cloned().expect("an object"), goto: vec!["n00".into()] };
                let driver = self.driver.run(RunRequest { amend, ..RunRequest::default() }).await;
                let engine = self.engine.amend(&self.thread, update, vec!["n00".into()], NOTHING).await;
                prop_assert_eq!(engine.is_ok(), driver.is_ok(), "amend: {:?} and {:?}", engine, driver);
            }
        }
        Ok(())
    }

    async fn restart(self) -> Self {
        let Self { driver, in_memory, world, engine, thread, stored, rested } = self;
        engine.crash().await;
        let engine = world.engine().await;
        Self { driver, in_memory, world, engine, thread, stored, rested }
    }
}

async fn play(layers: &Layers, asked: &[Ask], restarts: &[bool]) -> TestCaseResult {
    let mut both = Both::start(layers).await;
    both.compare("the start").await?;
    let mut restarts = restarts.iter().copied().cycle();
    for ask in asked {
        both.carry_out(ask).await?;
        both.compare(&format!("{ask:?}")).await?;
        if restarts.next().unwrap_or(true) {
            both = both.restart().await;
            both.compare("a restart").await?;
        }
    }
    for _ in 0..60 {
        match both.driver.rest() {
            Rest::Succeeded => break,
            Rest::Parked => both.answer(u16::MAX).await,
            Rest::Failed if both.driver.points().is_empty() => both.carry_out(&Ask::Flags(RETRY)).await?,
            Rest::Failed => both.answer(u16::MAX).await,
        }
        both.compare("an answer to all").await?;
    }
    prop_assert_eq!(both.driver.rest(), Rest::Succeeded);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_asked_of_both_they_stand_alike(
        layers in graphs(),
        asked in asks(),
        restarts in prop::collection::vec(any::<bool>(), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(play(&layers, &asked, &restarts))?;
    }
}
