//! Waiting for time (K21): no process has to live for it, and no two act on it.

use std::time::Duration;

use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::InterruptId;
use countersign_kernel::ports::Clock as _;
use countersign_kernel::principal::{Principal, role};
use countersign_kernel::question::{OnDeadline, approval};
use countersign_worker::engine::RequestError;
use countersign_worker::queue::JobKind;
use countersign_worker::store::{Refusal, Store, StoreError};
use serde_json::{Value, json};

use crate::support::flows::{asks, flow, got, with, works};
use crate::support::{Runs, TestEngine, World, ann, eventually, operator};

engine!(
    a_sleep_outlives_its_process_and_leaves_its_siblings_alone,
    a_sleep_inside_a_batch_and_in_a_row_is_counted_from_where_it_began,
    a_deadline_acts_once_however_many_processes_there_are,
    a_deadline_acts_in_time,
    a_deadline_that_fails_the_node_says_so_and_is_not_tried_again,
    a_deadline_that_only_waits_changes_nothing,
    a_late_answer_learns_of_the_deadline,
    ten_hundred_sleeps_that_end_together_all_wake,
    whom_timers_are_none_of_its_business_leaves_them,
);

const DAY: Duration = Duration::from_hours(24);

fn sleeps(node: &'static str, time: Duration, runs: &Runs) -> countersign_kernel::node::SharedBody {
    with(runs, move |cx, runs| async move {
        runs.hit(node);
        cx.sleep(time).await?;
        Ok(got(node, &json!("awake")))
    })
}

/// Asks the managers, who have `time`.
fn within(time: Duration, then: OnDeadline, runs: &Runs) -> CompiledGraph {
    let body = with(runs, move |cx, runs| {
        let then = then.clone();
        async move {
            runs.hit("asks");
            let decision = cx.ask(approval("Pay?").to(role("manager")).within(time, then)).await?;
            Ok(got("asks", &json!({"approved": decision.approved, "by": decision.by})))
        }
    });
    flow("flow", |g| {
        g.node("asks", body.clone()).edge(START, "asks");
    })
}

/// Two nodes side by side that sleep and ask.
fn beside(runs: &Runs) -> CompiledGraph {
    flow("flow", |g| {
        g.node("sleeps", sleeps("sleeps", DAY, runs))
            .node("asks", asks("asks", runs))
            .node("done", works("done", runs));
        g.edge(START, "sleeps").edge(START, "asks").join(["sleeps", "asks"], "done");
    })
}

fn only(runs: &Runs, graph: impl Fn(&Runs) -> CompiledGraph + Send + Sync + 'static) -> World {
    let runs = runs.clone();
    World::one(move || graph(&runs))
}

/// Has the engine look at the timers, and waits until it has: a thread of its
/// own sleeps and wakes.
async fn looked(world: &World, engine: &TestEngine) {
    let probe = engine.start("probe", json!({})).await;
    let due = engine.parked(&probe).await[0].deadline.expect("it sleeps");
    world.clock.by(due.since(world.clock.now()));
    engine.rests(&probe, "succeeded").await;
}

async fn a_sleep_outlives_its_process_and_leaves_its_siblings_alone() {
    let runs = Runs::default();
    let world = {
        let runs = runs.clone();
        World::new(move || {
            let probe = flow("probe", |g| {
                g.node("sleeps", sleeps("probe", Duration::from_mins(1), &runs)).edge(START, "sleeps");
            });
            vec![beside(&runs), probe]
        })
    };
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let before = engine.parked(&thread).await;
    assert_eq!(before.iter().map(|view| view.kind.as_str()).collect::<Vec<_>>(), ["interrupt", "sleep"]);
    let due = before[1].deadline.expect("until then");
    engine.idles().await;
    engine.crash().await;

    world.clock.by(DAY / 2);
    let engine = world.engine().await;
    engine.vote(&before[0].id, &operator(), json!("yes")).await.expect("accepted");
    looked(&world, &engine).await;
    let after = engine.parked(&thread).await;
    assert_eq!((after.len(), &after[0].id, after[0].deadline), (1, &before[1].id, Some(due)));
    assert_eq!((runs.of("sleeps"), runs.of("asks"), runs.of("done")), (1, 2, 0));

    world.clock.by(DAY);
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"], json!({"asks": "yes", "sleeps": "awake", "done": "done"}));
    assert_eq!((runs.of("sleeps"), runs.of("asks"), runs.of("done")), (2, 2, 1));
    let woken = engine.store.audit(&thread).await.expect("there");
    let woken: Vec<_> = woken.iter().filter(|entry| entry.action == "woken").collect();
    assert_eq!((woken.len(), woken[0].actor.as_deref()), (1, Some("service:the timer")));
    assert!(woken[0].at >= due, "never early");
}

async fn a_sleep_inside_a_batch_and_in_a_row_is_counted_from_where_it_began() {
    use countersign_kernel::context::Slot;
    let runs = Runs::default();
    let world = only(&runs, |runs| {
        let body = with(runs, |cx, runs| async move {
            let runs = &runs;
            let slots = [1_u32, 2, 3].map(|days| Slot::new(format!("{days}"), days)).to_vec();
            let slept = cx
                .batch("sleeps", slots, |cx, days| async move {
                    runs.hit(format!("slot {days}"));
                    cx.sleep(DAY * days).await?;
                    Ok(days)
                })
                .await?;
            cx.sleep(DAY).await?;
            Ok(got("slept", &json!(slept)))
        });
        flow("flow", |g| {
            g.node("n", body.clone()).edge(START, "n");
        })
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    for left in [3, 2, 1] {
        let open = eventually("as many slots sleep", async || {
            let detail = engine.detail(&thread).await;
            let parked = detail.summary.status == "parked" && detail.interrupts.len() == left;
            parked.then_some(detail.interrupts)
        })
        .await;
        let next = open.iter().filter_map(|view| view.deadline).min().expect("one is next");
        world.clock.by(next.since(world.clock.now()));
    }
    let last = eventually("the last sleep", async || {
        let detail = engine.detail(&thread).await;
        let own = |view: &&countersign_worker::store::views::InterruptView| view.address.ends_with("n@0");
        let own = detail.interrupts.iter().find(own).cloned();
        own.filter(|_| detail.summary.status == "parked")
    })
    .await;
    // From when it was first called, which was after the batch.
    assert!(last.deadline.expect("it sleeps").since(last.asked_at) >= DAY);
    world.clock.by(DAY);
    let done = engine.rests(&thread, "succeeded").await;
    assert_eq!(done.state["got"]["slept"], json!([1, 2, 3]));
    assert_eq!((runs.of("slot 1"), runs.of("slot 2"), runs.of("slot 3")), (2, 2, 2));
}

async fn a_deadline_acts_once_however_many_processes_there_are() {
    let runs = Runs::default();
    let world = only(&runs, |runs| within(DAY, OnDeadline::Reject, runs)).among_others(Duration::from_hours(1000));
    let engines = [world.engine().await, world.engine().await, world.engine().await];
    let mut threads = Vec::new();
    for _ in 0..20 {
        threads.push(engines[0].start("flow", json!({})).await);
    }
    for thread in &threads {
        engines[0].parked(thread).await;
    }
    world.clock.by(DAY);
    for thread in &threads {
        let done = engines[1].rests(thread, "succeeded").await;
        assert_eq!(done.state["got"]["asks"], json!({"approved": false, "by": [Principal::deadline()]}));
        let audit = engines[2].store.audit(thread).await.expect("there");
        assert_eq!(audit.iter().filter(|entry| entry.action == "decided").count(), 1);
    }
    assert_eq!(runs.of("asks"), 40, "asked and resumed once each");
}

async fn a_deadline_acts_in_time() {
    let (runs, time) = (Runs::default(), Duration::from_millis(300));
    let world = only(&runs, move |runs| within(time, OnDeadline::Reject, runs));
    // As in production: nobody looks more often than once a second, unasked.
    let world = world.configured(|config| config.sweep_every = Duration::from_secs(3600));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.rests(&thread, "succeeded").await;
    let decided = engine.store.audit(&thread).await.expect("there");
    let decided = decided.iter().find(|entry| entry.action == "decided").expect("by the deadline").clone();
    let due = decided.detail.expect("there")["due_at"].as_i64().expect("a time");
    let late = decided.at.as_micros() - due;
    assert!((0..2_000_000).contains(&late), "{late} µs late");
}

async fn a_deadline_that_fails_the_node_says_so_and_is_not_tried_again() {
    let runs = Runs::default();
    let world = only(&runs, |runs| within(DAY, OnDeadline::Fail, runs));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    engine.parked(&thread).await;
    world.clock.by(DAY);
    let failed = engine.rests(&thread, "failed").await;
    assert_eq!(failed.summary.error.as_deref(), Some("asks: `Pay?` was not decided in time"));
    assert_eq!(runs.of("asks"), 2);
}

async fn a_deadline_that_only_waits_changes_nothing() {
    let runs = Runs::default();
    let world = only(&runs, |runs| within(DAY, OnDeadline::Wait, runs));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let open = engine.parked(&thread).await;
    world.clock.by(DAY);
    eventually("it is on record", async || {
        let audit = engine.store.audit(&thread).await.expect("there");
        audit.iter().any(|entry| entry.action == "deadline_passed").then_some(())
    })
    .await;
    assert_eq!(engine.parked(&thread).await[0].id, open[0].id);
    engine.vote(&open[0].id, &ann(), json!({"approved": true})).await.expect("still open");
    engine.rests(&thread, "succeeded").await;
}

async fn a_late_answer_learns_of_the_deadline() {
    let runs = Runs::default();
    let world = only(&runs, |runs| within(DAY, OnDeadline::Reject, runs));
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    let id: InterruptId = engine.parked(&thread).await[0].id.clone();
    world.clock.by(DAY);
    engine.rests(&thread, "succeeded").await;
    match engine.vote(&id, &ann(), json!({"approved": true})).await {
        Err(RequestError::Store(StoreError::Refused(Refusal::AlreadyAnswered { answered, .. }))) => {
            assert_eq!(answered.by, [Principal::deadline()]);
        }
        other => panic!("{other:?}"),
    }
}

async fn ten_hundred_sleeps_that_end_together_all_wake() {
    let runs = Runs::default();
    let world = only(&runs, |runs| {
        let each = with(runs, |cx, runs| async move {
            cx.sleep_until(countersign_kernel::time::Timestamp::from_micros(cx.argument_as::<i64>()?)).await?;
            runs.hit("awake");
            Ok(countersign_kernel::state::Writes::none())
        });
        let sends = with(&(), move |cx, ()| async move {
            let until = cx.now().after(DAY).as_micros();
            let send = |_| countersign_kernel::node::Goto::Send { node: "each".into(), argument: Value::from(until) };
            Ok(countersign_kernel::node::Outcome { goto: (0..1000).map(send).collect(), ..Default::default() })
        });
        flow("flow", |g| {
            g.node("sends", sends.clone()).node("each", each.clone()).edge(START, "sends");
        })
    });
    let engine = world.engine().await;
    let thread = engine.start("flow", json!({})).await;
    assert_eq!(engine.parked(&thread).await.len(), 1000);
    world.clock.by(DAY);
    engine.rests(&thread, "succeeded").await;
    assert_eq!(runs.of("awake"), 1000);
    assert_eq!(world.count("timers WHERE status = 'fired'").await, 1000);
}

async fn whom_timers_are_none_of_its_business_leaves_them() {
    let runs = Runs::default();
    let build = |runs: &Runs| within(DAY, OnDeadline::Reject, runs);
    let mut world = only(&runs, build)
        .configured(|config| config.serves.kinds = vec![JobKind::Advance, JobKind::Deliver])
        .among_others(Duration::from_hours(1000));
    let advances = world.engine().await;
    let thread = advances.start("flow", json!({})).await;
    advances.parked(&thread).await;
    world.config.serves.kinds = vec![JobKind::Timer];
    world.clock.by(DAY);
    let fires = world.engine().await;
    advances.rests(&thread, "succeeded").await;
    assert_eq!((runs.of("asks"), fires.engine.busy()), (2, 0));
}
