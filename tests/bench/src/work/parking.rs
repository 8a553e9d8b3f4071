//! W2: append, ask, park; be answered, append, end. No recipients, so no
//! deliveries; through the queue as in production.

use std::ops::Range;
use std::time::{Duration, Instant};

use countersign_kernel::ids::InterruptId;
use tokio::task::JoinSet;

use super::{AT_ONCE, Values, all_rested, drive_all, joined, percentile, rate};
use crate::Fault;
use crate::desk::{Desk, Moment};
use crate::flows;
use crate::world::{Wiring, World};

const GRAPH: &str = "asking";
const RUNS: u64 = 500;
const WARM: u64 = 32;

async fn world(wiring: &Wiring) -> Result<World, Fault> {
    let desk = Desk::new(2, 100)?;
    let world = World::start(wiring, &desk, vec![flows::asking(&desk)?]).await?;
    // Warms up.
    drive_all(&world, GRAPH, 0..WARM, Moment::Asking, AT_ONCE).await?;
    for (run, interrupt) in waiting(&world, 0..WARM).await? {
        answered(&world, run, &interrupt).await?;
    }
    world.quiet().await?;
    Ok(world)
}

/// The runs with what they wait for.
async fn waiting(world: &World, runs: Range<u64>) -> Result<Vec<(u64, InterruptId)>, Fault> {
    let details = all_rested(world, runs.clone(), "parked").await?;
    let points = runs.zip(details).map(|(run, detail)| match detail.interrupts.as_slice() {
        [only] => Ok((run, only.id.clone())),
        more => Err(format!("run {run} waits for {} answers", more.len()).into()),
    });
    points.collect()
}

/// Answers, and ends when the end of the run is durable.
async fn answered(world: &World, run: u64, interrupt: &InterruptId) -> Result<(), Fault> {
    let resting = world.await_rest(run, Moment::Ending)?;
    world.approve(interrupt).await?;
    resting.durable().await
}

const ALL: Range<u64> = WARM..WARM + RUNS;

/// Starts, 64 in flight, each until it is parked.
pub(super) async fn park(wiring: &Wiring) -> Result<Values, Fault> {
    let world = world(wiring).await?;
    let started = Instant::now();
    drive_all(&world, GRAPH, ALL, Moment::Asking, AT_ONCE).await?;
    let time = started.elapsed();
    waiting(&world, ALL).await?;
    world.stop().await?;
    Ok(vec![("parked_per_s", rate(u32::try_from(RUNS)?, time))])
}

/// Answers one after another, each from just before it is given until the
/// final state has been read.
pub(super) async fn resume(wiring: &Wiring) -> Result<Values, Fault> {
    let world = world(wiring).await?;
    drive_all(&world, GRAPH, ALL, Moment::Asking, AT_ONCE).await?;
    let points = waiting(&world, ALL).await?;
    world.quiet().await?;
    let (mut known, mut durable) = (Vec::new(), Vec::new());
    for (run, interrupt) in &points {
        let begun = Instant::now();
        answered(&world, *run, interrupt).await?;
        durable.push(begun.elapsed());
        world.rested(*run, "succeeded").await?;
        known.push(begun.elapsed());
    }
    world.stop().await?;
    Ok(vec![
        ("resume_p50_ms", percentile(&mut known, 50)),
        ("resume_p99_ms", percentile(&mut known, 99)),
        ("durable_p50_ms", percentile(&mut durable, 50)),
        ("durable_p99_ms", percentile(&mut durable, 99)),
    ])
}

/// All answers at once.
pub(super) async fn resume_all(wiring: &Wiring) -> Result<Values, Fault> {
    let world = world(wiring).await?;
    drive_all(&world, GRAPH, ALL, Moment::Asking, AT_ONCE).await?;
    let points = waiting(&world, ALL).await?;
    world.quiet().await?;
    let time = at_once(&world, points).await?;
    all_rested(&world, ALL, "succeeded").await?;
    world.stop().await?;
    Ok(vec![("resumed_per_s", rate(u32::try_from(RUNS)?, time))])
}

async fn at_once(world: &World, points: Vec<(u64, InterruptId)>) -> Result<Duration, Fault> {
    let started = Instant::now();
    let mut flying = JoinSet::new();
    for (run, interrupt) in points {
        let world = world.clone();
        flying.spawn(async move { answered(&world, run, &interrupt).await });
    }
    while !flying.is_empty() {
        joined(flying.join_next().await)?;
    }
    Ok(started.elapsed())
}
