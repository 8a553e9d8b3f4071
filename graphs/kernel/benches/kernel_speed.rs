//! What the kernel itself costs, in memory and on the typed API:
//! `cargo bench -p countersign-kernel --bench kernel_speed`.
//!
//! Two shapes of 1,000 tasks, once over [`Position`] alone (what any driver
//! pays) and once over [`Driver`] (which keeps every checkpoint as well): time
//! and allocations per task, the best of several runs, starting the thread
//! included. Then a loop of 10,000 supersteps whose state grows by an item
//! each: what one costs early and late must be the same, since a superstep
//! costs what it changes.

use std::alloc::System;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as Waking, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use countersign_kernel::address::Address;
use countersign_kernel::driver::{Driver, RunRequest};
use countersign_kernel::ids::FrameId;
use countersign_kernel::limits::Limits;
use countersign_kernel::machine::{Next, Position, Rest, Settled};
use countersign_kernel::ports::{Clock, EffectError, Effects, FrameStep, Host, Ids, StopSignal, Timers};
use countersign_kernel::prelude::*;
use countersign_kernel::time::Timestamp;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending, ready};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static MEMORY: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TASKS: usize = 1_000;
const RUNS: usize = 15;
const SUPERSTEPS: usize = 10_100;
const WINDOW: usize = 100;

#[derive(State)]
struct Work {
    #[state(default)]
    step: u64,
    #[reduce(sum)]
    total: i64,
    #[reduce(append)]
    seen: Vec<u64>,
}

async fn step(_: &Context, work: &Work) -> NodeResult<WorkUpdate> {
    Ok(Work::update().step(work.step + 1))
}

async fn part(_: &Context, _: &Work) -> NodeResult<WorkUpdate> {
    Ok(Work::update().total(1))
}

async fn sent(cx: &Context, _: &Work) -> NodeResult<WorkUpdate> {
    let amount: u32 = cx.argument_as()?;
    Ok(Work::update().total(i64::from(amount)))
}

async fn round(_: &Context, work: &Work) -> NodeResult<WorkUpdate> {
    Ok(Work::update().step(work.step + 1).seen(work.step))
}

fn compiled(flow: Graph<Work>) -> Arc<CompiledGraph> {
    let limits = Limits { supersteps_per_run: u32::MAX, ..Limits::default() };
    Arc::new(flow.compile().expect("sound").with_limits(limits))
}

/// Node names live as long as the program.
fn name(prefix: &str, n: usize) -> &'static str {
    Box::leak(format!("{prefix}{n}").into_boxed_str())
}

/// One node after the other.
fn chain() -> Arc<CompiledGraph> {
    let mut flow = Graph::<Work>::new("chain", 1);
    let mut before = None;
    for n in 0..TASKS {
        let node = flow.node(name("step", n), step);
        match before.replace(node) {
            None => flow.start(node),
            Some(from) => flow.edge(from, node),
        };
    }
    compiled(flow)
}

/// As many nodes side by side.
fn wide() -> Arc<CompiledGraph> {
    let mut flow = Graph::<Work>::new("wide", 1);
    for n in 0..TASKS {
        let node = flow.node(name("part", n), part);
        flow.start(node);
    }
    compiled(flow)
}

/// As many tasks of one node, each with an argument.
fn fan() -> Arc<CompiledGraph> {
    let mut flow = Graph::<Work>::new("fan", 1);
    let node = flow.node("sent", sent);
    flow.start_with(move |_| Target::send_each(node, 0..1_000_u32));
    compiled(flow)
}

fn looping() -> Arc<CompiledGraph> {
    let mut flow = Graph::<Work>::new("loop", 1);
    let node = flow.node("round", round);
    flow.start(node);
    flow.after(node, move |work| if work.step < SUPERSTEPS as u64 { node.into() } else { Target::end() });
    compiled(flow)
}

/// Nothing here waits for anything outside.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut waking = Waking::from_waker(futures_util::task::noop_waker_ref());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut waking) {
            return output;
        }
    }
}

/// The world outside: counts, and keeps nothing.
#[derive(Default)]
struct Nothing(AtomicU64);

impl Ids for Nothing {
    fn uuid(&self) -> String {
        format!("{:032x}", self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn salt(&self) -> [u8; 16] {
        [0; 16]
    }
}

impl Clock for Nothing {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(0)
    }
}

impl Timers for Nothing {
    fn wait(&self, _: Duration) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }

    fn limit(&self, _: Duration) -> BoxFuture<'static, ()> {
        pending().boxed()
    }
}

#[async_trait]
impl Effects for Nothing {
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

fn host() -> Arc<Host> {
    let nothing = Arc::new(Nothing::default());
    Arc::new(Host {
        effects: nothing.clone(),
        ids: nothing.clone(),
        clock: nothing.clone(),
        timers: nothing,
        stop: StopSignal::default(),
    })
}

fn started(graph: &CompiledGraph, host: &Host) -> Position {
    Position::start(graph, [0; 16], &json!({}), host.outside()).expect("good input").0
}

/// Runs until it rests; tells how long each superstep took.
fn advance(graph: &CompiledGraph, position: &mut Position, host: &Arc<Host>, mut took: impl FnMut(Duration)) {
    let mut since = Instant::now();
    loop {
        match position.next() {
            Next::Run(tasks) => {
                for index in tasks {
                    let cx = Context::new(position.scope(graph, index, Arc::clone(host)));
                    let node = graph.node(&position.tasks[index].plan.node).expect("a node");
                    let result = block_on(node.run(cx.clone()));
                    position.complete(graph, index, cx.finish(), result);
                }
            }
            Next::Settle => {
                let settled = position.settle(graph, host.outside());
                assert!(matches!(settled, Settled::Advanced(_)));
                took(since.elapsed());
                since = Instant::now();
            }
            Next::Rest(rest) => {
                assert_eq!(rest, Rest::Succeeded);
                return;
            }
        }
    }
}

/// Microseconds and allocations per task: the best run of several.
fn per_task(run: impl Fn()) -> (f64, f64) {
    let mut best = (f64::INFINITY, f64::INFINITY);
    for _ in 0..RUNS {
        let region = Region::new(MEMORY);
        let since = Instant::now();
        run();
        let took = since.elapsed().as_secs_f64() * 1e6 / TASKS as f64;
        let stats = region.change();
        let allocations = (stats.allocations + stats.reallocations) as f64 / TASKS as f64;
        best = (best.0.min(took), best.1.min(allocations));
    }
    best
}

/// Microseconds of one superstep, early and late in a loop.
struct Best {
    early: f64,
    late: f64,
}

impl Default for Best {
    fn default() -> Self {
        Self { early: f64::INFINITY, late: f64::INFINITY }
    }
}

impl Best {
    fn note(&mut self, early: f64, late: f64) {
        (self.early, self.late) = (self.early.min(early), self.late.min(late));
    }
}

fn median(durations: &mut [Duration]) -> f64 {
    durations.sort_unstable();
    durations[durations.len() / 2].as_secs_f64() * 1e6
}

/// The middle of the times of the supersteps before and after number `at`.
fn around(times: &[Duration], at: usize) -> f64 {
    median(&mut times[at - WINDOW / 2..at + WINDOW / 2].to_vec())
}

/// The loop in portions of a window each: what one superstep cost in each.
fn driven(graph: &Arc<CompiledGraph>) -> Vec<f64> {
    let mut run = Driver::new(Arc::clone(graph));
    let portion = |input: Option<Value>| {
        let resume = countersign_kernel::machine::Resume { release: input.is_none(), ..Default::default() };
        RunRequest { input, resume, supersteps: Some(WINDOW as u32), ..RunRequest::default() }
    };
    let mut input = Some(json!({}));
    let mut costs = Vec::new();
    while costs.len() < SUPERSTEPS / WINDOW {
        let request = portion(input.take());
        let since = Instant::now();
        block_on(run.run(request)).expect("goes on");
        costs.push(since.elapsed().as_secs_f64() * 1e6 / WINDOW as f64);
    }
    costs
}

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn main() {
    println!(
        "{TASKS} tasks, per task:         us (position)  us (driver)  allocations (position)  allocations (driver)"
    );
    for (shape, graph) in [("chain", chain()), ("wide, by edges", wide()), ("wide, sent", fan())] {
        let bare = per_task(|| {
            let host = host();
            let mut position = started(&graph, &host);
            advance(&graph, &mut position, &host, |_| ());
        });
        let driven = per_task(|| {
            let run = block_on(Driver::start(Arc::clone(&graph), json!({}))).expect("good input");
            assert_eq!(run.rest(), Rest::Succeeded);
        });
        println!("{shape:24} {:18.2} {:12.2} {:23.1} {:21.1}", bare.0, driven.0, bare.1, driven.1);
    }

    let (graph, host) = (looping(), host());
    let mut bare = Best::default();
    let mut kept = Best::default();
    for _ in 0..5 {
        let mut times = Vec::with_capacity(SUPERSTEPS);
        let mut position = started(&graph, &host);
        advance(&graph, &mut position, &host, |took| times.push(took));
        bare.note(around(&times, 100), around(&times, 10_000));
        // The first portion starts the thread as well.
        let costs = driven(&graph);
        let lowest = |portions: &[f64]| portions.iter().copied().fold(f64::INFINITY, f64::min);
        kept.note(lowest(&costs[1..4]), lowest(&costs[costs.len() - 3..]));
    }
    println!("\none superstep of a loop:   us at 100    us at 10,000    ratio");
    for (name, Best { early, late }) in [("position", bare), ("driver", kept)] {
        println!("{name:10} {early:25.2} {late:15.2} {:8.2}", late / early);
    }
}
