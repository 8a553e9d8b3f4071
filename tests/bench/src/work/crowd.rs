//! W5: what many parked threads cost those that resume. One process parks them;
//! another, which has seen nothing of that, resumes some.

use std::time::Instant;

use super::{Values, drive_all, percentile, rate};
use crate::Fault;
use crate::desk::{Chance, Desk, Moment};
use crate::flows;
use crate::machine::{ms, rss_mib};
use crate::world::{Wiring, World};

/// Starts in flight.
const AT_ONCE: usize = 256;
const PICKED: usize = 100;
/// Threads beside those that are counted, to warm up on.
const WARM: u64 = 20;

async fn world(wiring: &Wiring) -> Result<World, Fault> {
    let desk = Desk::new(2, 100)?;
    World::start(wiring, &desk, vec![flows::asking(&desk)?]).await
}

/// Parks `count` threads through the worker, and some more.
pub(super) async fn fill(wiring: &Wiring, count: u64) -> Result<Values, Fault> {
    let world = world(wiring).await?;
    let started = Instant::now();
    drive_all(&world, "asking", 0..count + WARM, Moment::Asking, AT_ONCE).await?;
    let time = started.elapsed();
    world.quiet().await?;
    world.stop().await?;
    Ok(vec![("filled_per_s", rate(u32::try_from(count)?, time))])
}

/// Resumes some of `count` parked threads, one after another.
pub(super) async fn pick(wiring: &Wiring, count: u64) -> Result<Values, Fault> {
    let world = world(wiring).await?;
    for run in count..count + WARM {
        resume(&world, run).await?;
    }
    let mut runs: Vec<u64> = Vec::new();
    let mut chance = Chance::new();
    while runs.len() < PICKED {
        let run = chance.below(usize::try_from(count)?) as u64;
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    let mut times = Vec::new();
    for run in runs {
        times.push(resume(&world, run).await?);
    }
    let memory = rss_mib()?;
    world.stop().await?;
    let slowest = times.iter().max().copied().map_or(0.0, ms);
    Ok(vec![
        ("p50_ms", percentile(&mut times, 50)),
        ("p99_ms", percentile(&mut times, 99)),
        ("max_ms", slowest),
        ("rss_mib", memory),
    ])
}

/// How long it takes from the answer until the final state has been read.
async fn resume(world: &World, run: u64) -> Result<std::time::Duration, Fault> {
    let detail = world.rested(run, "parked").await?;
    let point = detail.interrupts.first().ok_or("a parked thread waits for nothing")?;
    let resting = world.await_rest(run, Moment::Ending)?;
    let begun = Instant::now();
    world.approve(&point.id).await?;
    resting.durable().await?;
    world.rested(run, "succeeded").await?;
    Ok(begun.elapsed())
}
