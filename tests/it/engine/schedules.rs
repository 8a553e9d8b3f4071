//! Threads that are started by the clock: one per tick, whoever is there.

use std::time::Duration;

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::ThreadId;
use countersign_kernel::ports::Clock as _;
use countersign_kernel::time::Timestamp;
use countersign_worker::engine::{RequestError, ScheduleError};
use countersign_worker::store::commands::{CatchUp, ScheduleSpec};
use countersign_worker::store::{ScheduleView, Schedules as _};
use serde_json::{Value, json};

use crate::support::flows::{flow, got, with};
use crate::support::{Runs, TestEngine, World, eventually, operator};

engine!(
    a_tick_starts_one_thread_however_many_processes_there_are,
    after_a_downtime_the_newest_tick_comes_if_it_is_not_too_old,
    after_a_downtime_all_ticks_of_the_window_come,
    a_thread_that_is_slower_than_its_schedule_costs_no_tick,
    a_changed_expression_begins_anew_and_an_equal_one_does_not,
    during_a_pause_nothing_comes_and_nothing_is_caught_up_with,
    a_schedule_is_fired_by_hand_beside_its_ticks,
    a_schedule_that_cannot_be_is_refused_before_any_is_put,
    a_thread_that_has_the_name_of_a_tick_keeps_it_and_the_next_tick_comes,
);

const HOUR: Duration = Duration::from_hours(1);

fn spec(name: &str, expression: &str) -> ScheduleSpec {
    ScheduleSpec {
        name: name.to_owned(),
        graph: "flow".into(),
        input: json!({}),
        expression: expression.to_owned(),
        zone: "Europe/Berlin".into(),
        catch_up: CatchUp::Newest,
        catch_within: 2 * HOUR,
        jitter: Duration::ZERO,
        paused: false,
    }
}

fn counts(runs: &Runs) -> CompiledGraph {
    let body = with(runs, |_, runs| async move {
        runs.hit("ran");
        Ok(got("ran", &json!(true)))
    });
    flow("flow", |g| {
        g.node("n", body.clone()).edge(START, "n");
    })
}

fn world(runs: &Runs) -> World {
    let runs = runs.clone();
    World::one(move || counts(&runs))
}

async fn view(engine: &TestEngine, name: &str) -> ScheduleView {
    let known = engine.store.schedules().await.expect("listed");
    known.into_iter().find(|view| view.spec.name == name).expect("it is there")
}

/// Lets time pass up to the next tick of a schedule; returns that.
async fn up_to_next(world: &World, engine: &TestEngine, name: &str) -> Timestamp {
    let next = view(engine, name).await.next;
    world.clock.by(next.at.since(world.clock.now()));
    next.instant
}

/// Waits until the last tick of a schedule is this one; returns its thread.
async fn ticked(engine: &TestEngine, name: &str, instant: Timestamp) -> ThreadId {
    eventually("it ticked", async || {
        let view = view(engine, name).await;
        view.last_thread.filter(|_| view.last_tick == Some(instant))
    })
    .await
}

async fn a_tick_starts_one_thread_however_many_processes_there_are() {
    let runs = Runs::default();
    let world = world(&runs).among_others(1000 * HOUR);
    let engines = [world.engine().await, world.engine().await, world.engine().await];
    let names = ["a", "b", "c", "d"];
    let hourly = |name: &&str| ScheduleSpec { jitter: Duration::from_secs(30), ..spec(name, "0 * * * *") };
    engines[0].engine.set_schedules(names.iter().map(hourly).collect()).await.expect("put");
    for round in 1..=5_u32 {
        let mut next = Vec::new();
        for name in names {
            next.push(view(&engines[1], name).await.next);
        }
        let last = next.iter().map(|next| next.at).max().expect("four");
        world.clock.by(last.since(world.clock.now()));
        for (name, next) in names.into_iter().zip(&next) {
            let thread = ticked(&engines[2], name, next.instant).await;
            engines[1].rests(&thread, "succeeded").await;
        }
        assert_eq!(runs.of("ran"), round * 4);
    }
    assert_eq!((world.count("ticks").await, world.count("threads").await), (20, 20));
    let by = world.texts("SELECT DISTINCT started_by FROM threads ORDER BY started_by").await;
    assert_eq!(by, names.map(|name| format!("service:the schedule {name}")));
}

/// How far apart ticks are, in hours.
async fn hours_between(world: &World) -> Vec<i64> {
    let ticks = world.texts("SELECT CAST(instant AS TEXT) FROM ticks ORDER BY instant").await;
    let ticks: Vec<i64> = ticks.iter().map(|text| text.parse().expect("a number")).collect();
    ticks.windows(2).map(|pair| (pair[1] - pair[0]) / 3_600_000_000).collect()
}

async fn after_a_downtime_the_newest_tick_comes_if_it_is_not_too_old() {
    let runs = Runs::default();
    let world = world(&runs);
    let engine = world.engine().await;
    engine.engine.set_schedules(vec![spec("hourly", "0 * * * *")]).await.expect("put");
    let first = up_to_next(&world, &engine, "hourly").await;
    ticked(&engine, "hourly", first).await;
    engine.idles().await;
    engine.crash().await;

    // Ten ticks are missed, two of them within the window.
    world.clock.by(10 * HOUR + HOUR / 2);
    let engine = world.engine().await;
    engine.engine.set_schedules(vec![spec("hourly", "0 * * * *")]).await.expect("the same");
    let newest = eventually("the newest came", async || {
        let view = view(&engine, "hourly").await;
        (view.last_tick != Some(first)).then_some(view)
    })
    .await;
    assert_eq!(newest.next.instant.since(newest.last_tick.expect("one")), HOUR);
    assert_eq!(hours_between(&world).await, [10]);
    engine.idles().await;
    engine.crash().await;

    // A daily one that is missed by more than its window does not come.
    let engine = world.engine().await;
    engine.engine.set_schedules(vec![spec("daily", "30 2 * * *")]).await.expect("put");
    let missed = view(&engine, "daily").await.next.instant;
    engine.crash().await;
    world.clock.by(missed.since(world.clock.now()) + 3 * HOUR);
    let engine = world.engine().await;
    let next = eventually("it went on", async || {
        let view = view(&engine, "daily").await;
        (view.next.instant != missed).then_some(view)
    })
    .await;
    assert_eq!((next.last_tick, world.count("ticks").await), (None, 2));
    assert_eq!(world.count("schedules").await, 1, "the other one is not defined any more");
}

async fn after_a_downtime_all_ticks_of_the_window_come() {
    let runs = Runs::default();
    let world = world(&runs);
    let all = || ScheduleSpec { catch_up: CatchUp::All, catch_within: 5 * HOUR, ..spec("all", "0 * * * *") };
    let engine = world.engine().await;
    engine.engine.set_schedules(vec![all()]).await.expect("put");
    let first = view(&engine, "all").await.next.instant;
    engine.crash().await;
    world.clock.by(first.since(world.clock.now()) + 10 * HOUR + HOUR / 2);
    let engine = world.engine().await;
    eventually("they came", async || (world.count("ticks").await == 5).then_some(())).await;
    eventually("each ran", async || (runs.of("ran") == 5).then_some(())).await;
    assert_eq!(hours_between(&world).await, [1, 1, 1, 1]);
    assert!(view(&engine, "all").await.next.instant > world.clock.now());
}

async fn a_thread_that_is_slower_than_its_schedule_costs_no_tick() {
    let (runs, gate) = (Runs::default(), crate::support::Gate::closed());
    let world = {
        let (runs, gate) = (runs.clone(), gate.clone());
        World::one(move || {
            let body = with(&(runs.clone(), gate.clone()), |_, (runs, gate)| async move {
                runs.hit("ran");
                gate.pass().await;
                Ok(got("ran", &Value::Null))
            });
            flow("flow", |g| {
                g.node("n", body).edge(START, "n");
            })
        })
    };
    let engine = world.engine().await;
    engine.engine.set_schedules(vec![spec("slow", "* * * * *")]).await.expect("put");
    let mut threads = Vec::new();
    for _ in 0..3 {
        let instant = up_to_next(&world, &engine, "slow").await;
        threads.push(ticked(&engine, "slow", instant).await);
    }
    gate.open();
    for thread in &threads {
        engine.rests(thread, "succeeded").await;
    }
    assert!(threads.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(world.count("ticks").await, 3);
}

async fn a_changed_expression_begins_anew_and_an_equal_one_does_not() {
    let runs = Runs::default();
    let world = world(&runs);
    let engine = world.idle().await;
    let set = async |expression: &str| {
        engine.engine.set_schedules(vec![spec("s", expression)]).await.expect("put");
        view(&engine, "s").await.next.instant
    };
    let first = set("0 * * * *").await;
    world.clock.by(5 * HOUR);
    assert_eq!(set("0 * * * *").await, first, "what was missed is still known");
    let other = set("30 * * * *").await;
    assert!(other > world.clock.now() && other.since(world.clock.now()) <= HOUR);
}

async fn during_a_pause_nothing_comes_and_nothing_is_caught_up_with() {
    let runs = Runs::default();
    let world = world(&runs);
    let engine = world.engine().await;
    let paused = ScheduleSpec { paused: true, ..spec("paused", "0 * * * *") };
    engine.engine.set_schedules(vec![paused.clone(), spec("other", "0 * * * *")]).await.expect("put");
    for _ in 0..3 {
        let instant = up_to_next(&world, &engine, "other").await;
        ticked(&engine, "other", instant).await;
    }
    assert_eq!(view(&engine, "paused").await.last_tick, None);
    engine.engine.pause_schedule("paused", false).await.expect("it goes on");
    let next = view(&engine, "paused").await.next.instant;
    assert!(next > world.clock.now());
    // A restart with the same definition does not pause it again.
    engine.engine.set_schedules(vec![paused, spec("other", "0 * * * *")]).await.expect("put");
    up_to_next(&world, &engine, "paused").await;
    ticked(&engine, "paused", next).await;
    assert_eq!(world.count("ticks WHERE schedule = 'paused'").await, 1);
    let unknown = engine.engine.pause_schedule("unknown", true).await;
    assert!(matches!(unknown, Err(ScheduleError::Unknown(name)) if name == "unknown"));
}

async fn a_schedule_is_fired_by_hand_beside_its_ticks() {
    let runs = Runs::default();
    let world = world(&runs);
    let engine = world.engine().await;
    engine.engine.set_schedules(vec![spec("s", "0 3 * * *")]).await.expect("put");
    let next = view(&engine, "s").await.next;
    let thread = engine.engine.fire_schedule("s", &operator()).await.expect("started");
    engine.rests(&thread, "succeeded").await;
    assert_eq!(view(&engine, "s").await.next, next, "its ticks are as they were");
    let by = world.texts("SELECT by_hand FROM ticks").await;
    assert_eq!(by, [operator().to_string()]);
    assert_eq!(engine.detail(&thread).await.summary.started_by, operator());
}

async fn a_schedule_that_cannot_be_is_refused_before_any_is_put() {
    let runs = Runs::default();
    let world = world(&runs);
    let engine = world.idle().await;
    let good = spec("good", "0 * * * *");
    for bad in [
        ScheduleSpec { expression: "61 * * * *".into(), ..spec("bad", "") },
        ScheduleSpec { zone: "Mars/Base".into(), ..spec("bad", "0 * * * *") },
        ScheduleSpec { graph: "nope".into(), ..spec("bad", "0 * * * *") },
        ScheduleSpec { input: json!({"unknown": 1}), ..spec("bad", "0 * * * *") },
    ] {
        let refused = engine.engine.set_schedules(vec![good.clone(), bad.clone()]).await;
        assert!(refused.is_err(), "{bad:?}");
    }
    assert_eq!(world.count("schedules").await, 0);
    let unknown = engine.engine.set_schedules(vec![ScheduleSpec { graph: "nope".into(), ..good }]).await;
    assert!(matches!(unknown, Err(ScheduleError::Request(RequestError::UnknownGraph { .. }))));
}

async fn a_thread_that_has_the_name_of_a_tick_keeps_it_and_the_next_tick_comes() {
    let runs = Runs::default();
    let world = world(&runs);
    let engine = world.engine().await;
    engine.engine.set_schedules(vec![spec("s", "0 * * * *")]).await.expect("put");
    let next = view(&engine, "s").await.next.instant;
    up_to_next(&world, &engine, "s").await;
    let taken = ticked(&engine, "s", next).await;
    engine.rests(&taken, "succeeded").await;
    // As if nobody had recorded the tick, and somebody had the name.
    let put_back = format!("UPDATE schedules SET next_tick = {0}, next_at = {0}", next.as_micros());
    world.sql("DELETE FROM ticks").await;
    world.sql(&put_back).await;
    eventually("it came again", async || (world.count("ticks").await == 1).then_some(())).await;
    assert_eq!(view(&engine, "s").await.last_thread, Some(taken));
    let after = up_to_next(&world, &engine, "s").await;
    ticked(&engine, "s", after).await;
    assert_eq!((world.count("ticks").await, world.count("threads").await), (2, 2));
}
