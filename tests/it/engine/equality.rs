//! The engine over a store and the driver in memory are one machine: whatever
//! is asked of both, they stand alike, restarts of the engine included.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersign_kernel::driver::{Driver, RunRequest};
use countersign_kernel::ids::{CheckpointId, InterruptId, ThreadId};
use countersign_kernel::machine::{Amend, Edit, Point, Rest, Resume};
use countersign_worker::store::Store;
use countersign_worker::store::views::InterruptView;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::{Map, Value, json};

use super::graphs::{CONTINUE, NOTHING, RESUME_ALL, RETRY};
use super::random::{Layers, compiled, graphs};
use crate::support::{On, Runs, TestEngine, World, operator};

/// What is asked of both.
/// A checkpoint: superstep, source, state and next nodes.
type Past = (u64, String, Map<String, Value>, Vec<String>);

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
    history: Vec<Past>,
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
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_asked_of_both_they_stand_alike(
        layers in graphs(),
        asked in asks(),
        restarts in prop::collection::vec(any::<bool>(), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        for on in On::EACH {
            runtime.block_on(on.run(play(&layers, &asked, &restarts)))?;
        }
    }
}
