//! Pauses, limits, priorities, cancels and dead letters, over all processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use countersign_kernel::ids::ThreadId;
use countersign_kernel::ports::DeliveryError;
use countersign_kernel::prelude::*;
use countersign_worker::engine::{Retried, StartRequest, Started};
use countersign_worker::queue::JobKind;
use countersign_worker::store::commands::{FlowLimits, HeldBack, SwitchOf};
use countersign_worker::store::dead_letters::DeadLetterFilter;
use countersign_worker::store::{Cancelled, Controls as _, DeadLetters as _, Store as _};
use futures_util::future::join_all;
use serde_json::json;

use super::graphs::{Does, in_a_row, side_by_side};
use crate::support::{DEADLINE, Gate, On, Outbox, Runs, TestEngine, World, ann, eventually, operator};

engine!(
    a_running_thread_of_a_paused_graph_stops_at_its_next_border,
    a_paused_node_lets_its_siblings_run_and_waits_visibly,
    an_answer_runs_beside_a_paused_node,
    what_a_pause_held_back_is_taken_up_when_it_ends_though_the_queue_is_lost,
    a_place_under_a_limit_goes_to_the_next_at_once,
    a_thread_that_is_more_urgent_goes_first,
    a_graph_says_how_urgent_its_threads_are_and_which_are_limited_together,
    a_body_hears_of_a_cancel_and_ends_by_itself,
    a_body_that_does_not_listen_is_dropped_after_the_grace,
    a_body_that_cannot_be_dropped_commits_nothing,
    dead_letters_are_tried_again_in_bulk,
    a_thread_that_was_held_is_tried_again_with_fresh_attempts,
);

fn world(runs: &Runs, gate: &Gate, nodes: &'static [(&'static str, Does)]) -> World {
    let (runs, gate) = (runs.clone(), gate.clone());
    World::one(move || in_a_row(&runs, &gate, nodes))
}

fn the_flow() -> SwitchOf {
    SwitchOf::Graph("flow".into())
}

fn node(name: &str) -> SwitchOf {
    SwitchOf::Node { graph: "flow".into(), node: name.into() }
}

async fn pause(engine: &TestEngine, of: SwitchOf) {
    engine.engine.set_switch(of, "the bank is closed".into(), None, &operator()).await.expect("paused");
}

async fn resume(engine: &TestEngine, of: SwitchOf) {
    assert!(engine.engine.end_switch(&of, &operator()).await.expect("resumed"));
}

/// Waits until the thread is queued and stands behind something.
async fn stands(engine: &TestEngine, thread: &ThreadId) -> HeldBack {
    eventually("it stands back", async || {
        let summary = engine.detail(thread).await.summary;
        summary.held_back.filter(|_| summary.status == "queued")
    })
    .await
}

async fn a_running_thread_of_a_paused_graph_stops_at_its_next_border() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("hangs", Does::Gated), ("next", Does::Work)]);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    pause(&engine, the_flow()).await;
    let later = engine.start("flow", json!({})).await;
    gate.open();
    for thread in [&thread, &later] {
        assert_eq!(stands(&engine, thread).await, HeldBack::Graph("flow".into()));
    }
    engine.idles().await;
    assert_eq!((runs.of("hangs"), runs.of("next")), (1, 0), "what it did is kept, and it goes no further");
    engine.crash().await;

    // The pause outlives the process.
    let engine = world.engine().await;
    eventually("swept", async || (engine.engine.busy() == 0).then_some(())).await;
    assert_eq!(runs.of("next"), 0);
    resume(&engine, the_flow()).await;
    for thread in [&thread, &later] {
        engine.rests(thread, "succeeded").await;
    }
    assert_eq!((runs.of("hangs"), runs.of("next")), (2, 2));
}

async fn a_paused_node_lets_its_siblings_run_and_waits_visibly() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = {
        let (runs, gate) = (runs.clone(), gate.clone());
        World::one(move || side_by_side(&runs, &gate, &[("a", Does::Work), ("b", Does::Work)]))
    };
    let engine = world.engine().await;
    pause(&engine, node("b")).await;
    let thread = engine.start("flow", json!({})).await;
    assert_eq!(stands(&engine, &thread).await, HeldBack::Nodes("flow".into(), vec!["b".into()]));
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("last")), (1, 0, 0));
    let attempts = world.count("threads WHERE attempts > 0").await;
    assert_eq!(attempts, 0, "standing back is no lost worker");
    resume(&engine, node("b")).await;
    engine.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("a"), runs.of("b"), runs.of("last")), (1, 1, 1));
}

async fn an_answer_runs_beside_a_paused_node() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = {
        let (runs, gate) = (runs.clone(), gate.clone());
        World::one(move || side_by_side(&runs, &gate, &[("asks", Does::Ask), ("b", Does::Work)]))
    };
    let engine = world.engine().await;
    pause(&engine, node("b")).await;
    let thread = engine.start("flow", json!({})).await;
    stands(&engine, &thread).await;
    let open = engine.detail(&thread).await.interrupts;
    engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
    eventually("the answer is run with", async || (runs.of("asks") == 2).then_some(())).await;
    stands(&engine, &thread).await;
    assert_eq!((runs.of("b"), runs.of("last")), (0, 0));
    resume(&engine, node("b")).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"]["asks"], json!(true));
    assert_eq!((runs.of("asks"), runs.of("b")), (2, 1));
}

async fn what_a_pause_held_back_is_taken_up_when_it_ends_though_the_queue_is_lost() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("a", Does::Ask), ("b", Does::Work)]).carried();
    let engine = world.engine().await;
    let parked = engine.start("flow", json!({})).await;
    let open = engine.parked(&parked).await;
    let until = engine.engine.clock().now().after(Duration::from_secs(2));
    let by = operator();
    engine.engine.set_switch(the_flow(), "for a moment".into(), Some(until), &by).await.expect("paused");
    engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
    let threads = join_all((0..5).map(|_| engine.start("flow", json!({})))).await;
    world.lose_jobs().await;
    assert_eq!(stands(&engine, &parked).await, HeldBack::Graph("flow".into()));
    // By itself.
    engine.rests(&parked, "succeeded").await;
    assert!(engine.engine.clock().now() >= until);
    for thread in &threads {
        engine.parked(thread).await;
    }
    assert_eq!((runs.of("a"), runs.of("b")), (7, 1));
}

/// How many bodies ran side by side at most.
#[derive(Debug, Clone, Default)]
struct Crowd(Arc<(AtomicU32, AtomicU32)>);

impl Crowd {
    async fn join(&self) {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> u32 {
        self.0.1.load(Ordering::SeqCst)
    }
}

#[derive(State)]
struct Empty {
    done: Option<bool>,
}

async fn crowded(cx: &Context, _: &Empty) -> NodeResult<EmptyUpdate> {
    cx.resource::<Crowd>()?.join().await;
    cx.step("recorded", async |_| Ok::<_, NodeError>(true)).await?;
    Ok(Empty::update().done(Some(true)))
}

fn crowd_flow(crowd: &Crowd) -> CompiledGraph {
    let mut flow = Graph::<Empty>::new("flow", 1);
    let node = flow.node("crowded", crowded);
    flow.start(node).end(node);
    flow.priority(7).limit_key(|input| input["customer"].as_str().map(str::to_owned));
    flow.input(|_| Ok(Empty::update()));
    flow.provide(crowd.clone());
    flow.compile().expect("a sound flow")
}

async fn limit(engine: &TestEngine, limits: FlowLimits) {
    engine.engine.set_limits("flow", limits, &operator()).await.expect("limited");
}

async fn a_place_under_a_limit_goes_to_the_next_at_once() {
    let crowd = Crowd::default();
    let world = {
        let crowd = crowd.clone();
        World::one(move || crowd_flow(&crowd))
    };
    let idle = world.idle().await;
    limit(&idle, FlowLimits { running: Some(2), ..FlowLimits::default() }).await;
    idle.crash().await;
    // Nobody sweeps: a place that becomes free is passed on.
    let world = world.without_sweep();
    let engine = world.engine().await;
    let threads = join_all((0..20).map(|_| engine.start("flow", json!({})))).await;
    for thread in &threads {
        engine.rests(thread, "succeeded").await;
    }
    assert!(crowd.most() <= 2, "{} at a time", crowd.most());
}

async fn a_graph_says_how_urgent_its_threads_are_and_which_are_limited_together() {
    let crowd = Crowd::default();
    let world = {
        let crowd = crowd.clone();
        World::one(move || crowd_flow(&crowd))
    };
    let engine = world.engine().await;
    limit(&engine, FlowLimits { key_running: Some(1), ..FlowLimits::default() }).await;
    let thread = engine.start("flow", json!({"customer": "acme"})).await;
    let summary = engine.rests(&thread, "succeeded").await.summary;
    assert_eq!((summary.priority, summary.limit_key.as_deref()), (7, Some("acme")));
    let input = json!({"customer": "acme"});
    let (by, key) = (ann(), Some("other".to_owned()));
    let request = StartRequest { priority: Some(-3), limit_key: key, ..StartRequest::new("flow", &input, &by) };
    let Ok(Started::New { thread, .. }) = engine.engine.start_as(request, &|_, _, _| None).await else {
        panic!("not started");
    };
    let summary = engine.rests(&thread, "succeeded").await.summary;
    assert_eq!((summary.priority, summary.limit_key.as_deref()), (-3, Some("other")), "who starts it says otherwise");
    let threads = join_all((0..8).map(|_| engine.start("flow", input.clone()))).await;
    for thread in &threads {
        engine.rests(thread, "succeeded").await;
    }
    assert_eq!(crowd.most(), 1);
}

async fn a_thread_that_is_more_urgent_goes_first() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("hangs", Does::Gated)]).configured(|config| config.concurrency = 1);
    let engine = world.engine().await;
    let first = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    let (input, by) = (json!({}), ann());
    let mut threads = Vec::new();
    for priority in [-1, 0, 1, 0] {
        let request = StartRequest { priority: Some(priority), ..StartRequest::new("flow", &input, &by) };
        match engine.engine.start_as(request, &|_, _, _| None).await {
            Ok(Started::New { thread, .. }) => threads.push(thread),
            other => panic!("not started: {other:?}"),
        }
    }
    gate.open();
    let mut ended = Vec::new();
    for thread in std::iter::once(&first).chain(&threads) {
        let run = engine.rests(thread, "succeeded").await.runs[0].finished_at.expect("ended");
        ended.push((run, thread.clone()));
    }
    ended.sort();
    let order: Vec<_> = ended.into_iter().map(|(_, thread)| thread).collect();
    let [low, normal, high, later] = <[_; 4]>::try_from(threads).expect("four");
    assert_eq!(order, [first, high, normal, later, low]);
}

#[tokio::test]
async fn a_limit_holds_over_two_processes_and_each_of_them_finishes() {
    On::Postgres.run(holds_over_two_processes()).await;
}

async fn holds_over_two_processes() {
    let crowd = Crowd::default();
    let world = {
        let crowd = crowd.clone();
        World::one(move || crowd_flow(&crowd)).carried().among_others(DEADLINE)
    };
    let both = [world.engine().await, world.engine().await];
    limit(&both[0], FlowLimits { running: Some(3), key_running: Some(2), ..FlowLimits::default() }).await;
    // Until both have learned of it.
    for engine in &both {
        eventually("swept", async || engine.store.limits().await.ok().filter(|limits| !limits.is_empty())).await;
    }
    let threads =
        join_all((0..40).map(|n| both[n % 2].start("flow", json!({"customer": format!("c-{}", n % 3)})))).await;
    for thread in &threads {
        both[0].rests(thread, "succeeded").await;
    }
    assert!(crowd.most() <= 3, "{}", crowd.most());
}

#[tokio::test]
async fn a_pause_set_in_one_process_holds_in_another() {
    On::Postgres.run(holds_in_another()).await;
}

async fn holds_in_another() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("hangs", Does::Gated), ("next", Does::Work)]).carried().among_others(DEADLINE);
    let (runner, asked) = (world.engine().await, world.idle().await);
    let thread = runner.start("flow", json!({})).await;
    gate.arrived(1).await;
    pause(&asked, node("next")).await;
    let standing = || async { runner.store.switches(runner.engine.clock().now()).await.expect("read") };
    assert_eq!(standing().await.len(), 1);
    // The runner learns of it with a sweep, some twenty milliseconds each.
    let swept = runner.engine.clock().now().after(Duration::from_millis(500));
    eventually("a sweep", async || (runner.engine.clock().now() > swept).then_some(())).await;
    gate.open();
    assert_eq!(stands(&runner, &thread).await, HeldBack::Nodes("flow".into(), vec!["next".into()]));
    resume(&asked, node("next")).await;
    runner.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("hangs"), runs.of("next")), (1, 1));
}

/// A body that listens, one that does not, and one that cannot.
#[derive(Debug, Clone, Default)]
struct Ears {
    heard: Arc<AtomicBool>,
    blocks: Arc<AtomicBool>,
}

async fn listens(cx: &Context, _: &Empty) -> NodeResult<EmptyUpdate> {
    let ears = cx.resource::<Ears>()?;
    cx.resource::<Runs>()?.hit("arrived");
    cx.cancelled().await;
    assert!(cx.is_cancelled());
    ears.heard.store(true, Ordering::SeqCst);
    Ok(Empty::update().done(Some(true)))
}

async fn blocks(cx: &Context, _: &Empty) -> NodeResult<EmptyUpdate> {
    let ears = cx.resource::<Ears>()?;
    cx.resource::<Runs>()?.hit("arrived");
    // As bad as a body can be: it keeps its thread.
    while ears.blocks.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    cx.resource::<Runs>()?.hit("woke");
    cx.step("effect", async |_| Ok::<_, NodeError>(true)).await?;
    Ok(Empty::update().done(Some(true)))
}

fn ears_flow(runs: &Runs, ears: &Ears, deaf: bool) -> CompiledGraph {
    let mut flow = Graph::<Empty>::new("flow", 1);
    let first = if deaf { flow.node("deaf", blocks) } else { flow.node("listens", listens) };
    let next = flow.node("next", async |cx: &Context, _: &Empty| {
        cx.resource::<Runs>()?.hit("next");
        Ok(Empty::update())
    });
    flow.start(first).edge(first, next).end(next);
    flow.provide(runs.clone()).provide(ears.clone());
    flow.compile().expect("a sound flow")
}

fn ears_world(runs: &Runs, ears: &Ears, deaf: bool) -> World {
    let (runs, ears) = (runs.clone(), ears.clone());
    World::one(move || ears_flow(&runs, &ears, deaf))
}

async fn arrived(runs: &Runs) {
    eventually("the body runs", async || (runs.of("arrived") == 1).then_some(())).await;
}

async fn a_body_hears_of_a_cancel_and_ends_by_itself() {
    let (runs, ears) = (Runs::default(), Ears::default());
    let world = ears_world(&runs, &ears, false).configured(|config| config.cancel_grace = DEADLINE);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    arrived(&runs).await;
    assert_eq!(engine.engine.cancel(&thread, &operator()).await.expect("taken"), Cancelled::Requested);
    engine.rests(&thread, "cancelled").await;
    assert!(ears.heard.load(Ordering::SeqCst));
    assert_eq!(runs.of("next"), 0, "it goes no further");
}

async fn a_body_that_does_not_listen_is_dropped_after_the_grace() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("hangs", Does::Gated), ("next", Does::Work)])
        .configured(|config| config.cancel_grace = Duration::from_millis(20));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    assert_eq!(engine.engine.cancel(&thread, &operator()).await.expect("taken"), Cancelled::Requested);
    gate.dropped(1).await;
    engine.rests(&thread, "cancelled").await;
    assert_eq!(engine.detail(&thread).await.state.get("log"), None, "nothing of it is kept");
    assert_eq!(runs.of("next"), 0);
}

async fn a_body_that_cannot_be_dropped_commits_nothing() {
    let (runs, ears) = (Runs::default(), Ears::default());
    ears.blocks.store(true, Ordering::SeqCst);
    let world = ears_world(&runs, &ears, true).configured(|config| config.cancel_grace = Duration::from_millis(20));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    arrived(&runs).await;
    engine.engine.cancel(&thread, &operator()).await.expect("taken");
    engine.rests(&thread, "cancelled").await;
    assert_eq!(runs.of("woke"), 0, "it is cancelled over its head");
    ears.blocks.store(false, Ordering::SeqCst);
    eventually("it wakes up", async || (runs.of("woke") == 1).then_some(())).await;
    engine.idles().await;
    assert_eq!((world.count("steps").await, runs.of("next")), (0, 0), "what it did afterwards is void");
    assert_eq!(engine.detail(&thread).await.summary.status, "cancelled");
    assert_eq!(engine.store.verify_audit(&thread).await.expect("verified"), None);
}

#[tokio::test]
async fn a_cancel_reaches_the_process_that_runs_the_thread() {
    On::Postgres.run(reaches_the_process()).await;
}

async fn reaches_the_process() {
    let (runs, ears) = (Runs::default(), Ears::default());
    let world = ears_world(&runs, &ears, false).carried().among_others(DEADLINE);
    let world = world.configured(|config| config.cancel_grace = DEADLINE);
    let (runner, asked) = (world.engine().await, world.idle().await);
    let thread = runner.start("flow", json!({})).await;
    arrived(&runs).await;
    assert_eq!(asked.engine.cancel(&thread, &operator()).await.expect("taken"), Cancelled::Requested);
    runner.rests(&thread, "cancelled").await;
    assert!(ears.heard.load(Ordering::SeqCst));
}

async fn dead_letters_are_tried_again_in_bulk() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let broken = Arc::new(AtomicBool::new(true));
    let outbox = {
        let broken = Arc::clone(&broken);
        Outbox::saying(move |_| match broken.load(Ordering::SeqCst) {
            true => Err(DeliveryError { message: "550 no".into(), retryable: false }),
            false => Ok(countersign_kernel::ports::Receipt { detail: "250 taken".into() }),
        })
    };
    let world = world(&runs, &gate, &[("asks", Does::Ask)]).sending_through(&outbox);
    let engine = world.engine().await;
    let threads = join_all((0..3).map(|_| engine.start("flow", json!({})))).await;
    for thread in &threads {
        engine.parked(thread).await;
    }
    let dead = async |filter: &DeadLetterFilter| engine.store.dead_letters(filter, None, 100).await.expect("listed");
    let all = DeadLetterFilter::default();
    let letters = eventually("all have failed", async || Some(dead(&all).await).filter(|dead| dead.len() == 6)).await;
    assert!(letters.iter().all(|letter| letter.kind == JobKind::Deliver && letter.channel.as_deref() == Some("email")));
    assert!(letters.iter().all(|letter| letter.reason == "550 no" && letter.graph == "flow"));
    for (filter, count) in [
        (DeadLetterFilter { kind: Some(JobKind::Advance), ..all.clone() }, 0),
        (DeadLetterFilter { channel: Some("webhook".into()), ..all.clone() }, 0),
        (DeadLetterFilter { graphs: Some(vec!["other".into()]), ..all.clone() }, 0),
        (DeadLetterFilter { before: Some(letters[0].died_at), ..all.clone() }, 0),
        (DeadLetterFilter { thread: Some(threads[1].clone()), ..all.clone() }, 2),
        (DeadLetterFilter { id: Some(letters[0].id.clone()), ..all.clone() }, 1),
    ] {
        assert_eq!(dead(&filter).await.len(), count, "{filter:?}");
    }

    // Nobody waits for those of a thread that was answered.
    let open = engine.detail(&threads[0]).await.interrupts;
    engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("accepted");
    engine.rests(&threads[0], "succeeded").await;
    broken.store(false, Ordering::SeqCst);
    let filter = DeadLetterFilter { kind: Some(JobKind::Deliver), ..all.clone() };
    let retried = engine.engine.retry_dead_letters(&filter, &operator()).await.expect("tried again");
    assert_eq!(retried, Retried { retried: 4, dropped: 2, more: false });
    assert_eq!(dead(&all).await, []);
    eventually("all are sent", async || (world.count("deliveries WHERE status = 'sent'").await == 4).then_some(()))
        .await;
    assert_eq!(world.count("deliveries WHERE status = 'sent' AND attempts = 1").await, 4, "fresh attempts");
    assert_eq!(world.count("audit WHERE action = 'delivery_retried'").await, 4);
}

async fn a_thread_that_was_held_is_tried_again_with_fresh_attempts() {
    let (runs, gate) = (Runs::default(), Gate::closed());
    let world = world(&runs, &gate, &[("hangs", Does::Gated)]).configured(|config| config.max_attempts = 1);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    engine.crash().await;
    let engine = world.engine().await;
    engine.rests(&thread, "held").await;
    let filter = DeadLetterFilter { kind: Some(JobKind::Advance), ..DeadLetterFilter::default() };
    let letters = engine.store.dead_letters(&filter, None, 10).await.expect("listed");
    assert_eq!((letters.len(), &letters[0].thread, letters[0].attempts), (1, &thread, 1));
    gate.open();
    let retried = engine.engine.retry_dead_letters(&filter, &operator()).await.expect("tried again");
    assert_eq!(retried, Retried { retried: 1, dropped: 0, more: false });
    engine.rests(&thread, "succeeded").await;
    assert_eq!(runs.of("hangs"), 2);
}
