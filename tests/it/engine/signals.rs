//! Signals to real threads: nothing lost, nothing twice.

use std::time::Duration;

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::state::Writes;
use countersign_worker::store::{Accepted, Store};
use serde_json::{Value, json};

use crate::support::flows::{flow, got, with};
use crate::support::{Runs, TestEngine, World, operator};

engine!(
    a_signal_wakes_its_point_and_carries_its_data,
    signals_that_come_early_are_taken_in_order_without_a_park,
    a_signal_to_a_running_thread_is_taken_up,
    a_signal_outlives_the_process_that_accepted_it,
    a_flow_waits_for_a_signal_as_long_as_it_says,
    hundreds_of_signals_to_one_loop_are_each_taken_once,
);

const DAY: Duration = Duration::from_hours(24);

impl TestEngine {
    async fn signal(&self, thread: &countersign_kernel::ids::ThreadId, name: &str, payload: Value) {
        let sent = self.engine.signal(thread, name, payload, &operator(), None).await.expect("accepted");
        assert!(matches!(sent, Accepted::Committed(_)));
    }
}

fn only(runs: &Runs, graph: impl Fn(&Runs) -> CompiledGraph + Send + Sync + 'static) -> World {
    let runs = runs.clone();
    World::one(move || graph(&runs))
}

/// Waits for `paid` twice, in a row.
fn twice(runs: &Runs) -> CompiledGraph {
    let body = with(runs, |cx, runs| async move {
        runs.hit("waits");
        let first: Value = cx.signal("paid").await?;
        let second: Value = cx.signal("paid").await?;
        Ok(got("paid", &json!([first, second])))
    });
    flow("flow", |g| {
        g.node("waits", body.clone()).edge(START, "waits");
    })
}

async fn a_signal_wakes_its_point_and_carries_its_data() {
    let runs = Runs::default();
    let world = only(&runs, twice).carried();
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let first = engine.parked(&thread).await.remove(0);
    assert_eq!((first.kind.as_str(), &first.payload), ("signal", &json!({"signal": "paid"})));
    assert_eq!(world.count("deliveries").await, 0, "nobody is told");
    engine.signal(&thread, "other", json!(0)).await;
    engine.signal(&thread, "paid", json!({"n": 1})).await;
    let second = crate::support::eventually("it waits for the next", async || {
        let open = engine.parked(&thread).await;
        (open[0].id != first.id).then(|| open[0].clone())
    });
    assert_eq!(second.await.payload, json!({"signal": "paid"}));
    engine.signal(&thread, "paid", Value::Null).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"]["paid"], runs.of("waits")), (&json!([{"n": 1}, null]), 3));
}

async fn signals_that_come_early_are_taken_in_order_without_a_park() {
    let runs = Runs::default();
    let world = only(&runs, twice);
    // Nobody runs the thread when they come.
    let idle = world.idle().await;
    let thread = idle.start("flow", json!({})).await;
    for n in 1..=3 {
        idle.signal(&thread, "paid", json!(n)).await;
    }
    idle.crash().await;
    let engine = world.engine().await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"]["paid"], runs.of("waits")), (&json!([1, 2]), 3));
    assert_eq!(world.count("signals WHERE interrupt IS NULL").await, 1);
    assert_eq!(engine.store.verify_audit(&thread).await.expect("verified"), None);
}

async fn a_signal_to_a_running_thread_is_taken_up() {
    let (runs, gate) = (Runs::default(), crate::support::Gate::closed());
    let world = {
        let (runs, gate) = (runs.clone(), gate.clone());
        World::one(move || {
            let body = with(&(runs.clone(), gate.clone()), |cx, (runs, gate)| async move {
                if runs.hit("waits") == 1 {
                    gate.pass().await;
                }
                Ok(got("paid", &cx.signal::<Value>("paid").await?))
            });
            flow("flow", |g| {
                g.node("waits", body).edge(START, "waits");
            })
        })
    };
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    gate.arrived(1).await;
    engine.signal(&thread, "paid", json!(7)).await;
    gate.open();
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"]["paid"], runs.of("waits")), (&json!(7), 2));
}

async fn a_signal_outlives_the_process_that_accepted_it() {
    let runs = Runs::default();
    let world = only(&runs, twice);
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    engine.idles().await;
    engine.crash().await;
    let idle = world.idle().await;
    idle.signal(&thread, "paid", json!(1)).await;
    idle.signal(&thread, "paid", json!(2)).await;
    idle.crash().await;
    world.lose_jobs().await;
    let engine = world.engine().await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"]["paid"], json!([1, 2]));
}

async fn a_flow_waits_for_a_signal_as_long_as_it_says() {
    let runs = Runs::default();
    let world = only(&runs, |runs| {
        let body = with(runs, |cx, runs| async move {
            runs.hit("waits");
            let paid: Option<u32> = cx.signal_within("paid", DAY).await?;
            let later: Option<u32> = cx.signal_within("paid", DAY).await?;
            Ok(got("paid", &json!([paid, later])))
        });
        flow("flow", |g| {
            g.node("waits", body.clone()).edge(START, "waits");
        })
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let first = engine.parked(&thread).await.remove(0);
    assert!(first.deadline.is_some());
    world.clock.by(DAY);
    crate::support::eventually("the time is up", async || {
        let open = engine.parked(&thread).await;
        (open[0].id != first.id).then_some(())
    })
    .await;
    engine.signal(&thread, "paid", json!(7)).await;
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!((&done.state["got"]["paid"], runs.of("waits")), (&json!([null, 7]), 3));
    assert_eq!(world.count("timers WHERE status = 'dropped'").await, 1);
}

async fn hundreds_of_signals_to_one_loop_are_each_taken_once() {
    const COUNT: usize = 300;
    let runs = Runs::default();
    let world = only(&runs, |runs| {
        let body = with(runs, |cx, runs| async move {
            let n: u32 = cx.signal("n").await?;
            runs.hit(format!("n {n}"));
            Ok(Writes::none().with("log", &[n]))
        });
        flow("flow", |g| {
            g.node("waits", body.clone()).edge(START, "waits").branch("waits", |state| {
                let taken = state.values().get("log").and_then(Value::as_array).map_or(0, Vec::len);
                let next = if taken < COUNT { "waits" } else { countersign_kernel::graph::END_NAME };
                Ok(vec![next.into()])
            });
        })
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let sends = (0..COUNT).map(|n| engine.signal(&thread, "n", json!(n)));
    futures_util::future::join_all(sends).await;
    let done = engine.rests(&thread, "succeeded").await;
    let mut taken: Vec<u64> = done.state["log"].as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
    taken.sort_unstable();
    assert_eq!(taken, (0..COUNT as u64).collect::<Vec<_>>());
    assert_eq!(world.count("signals WHERE interrupt IS NULL").await, 0);
}
