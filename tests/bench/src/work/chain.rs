//! W1: 100 nodes in a row, or one node 100 times, each appends 100 bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{AT_ONCE, Values, all_rested, drive_all, percentile, rate};
use crate::Fault;
use crate::desk::{Desk, Moment};
use crate::flows;
use crate::world::{Wiring, World};

const STEPS: u32 = 100;
const SIZE: usize = 100;
/// Runs of which the middle one counts: one takes well below a second.
const RUNS: u64 = 15;
/// Rounds of which the middle one counts.
const ROUNDS: u64 = 3;

async fn world(wiring: &Wiring) -> Result<World, Fault> {
    let desk = Desk::new(STEPS, SIZE)?;
    World::start(wiring, &desk, vec![flows::chain(&desk)?, flows::looping(&desk)?]).await
}

/// One run alone, from the call that starts it to its result.
pub(super) async fn one(wiring: &Wiring, graph: &'static str) -> Result<Values, Fault> {
    let world = world(wiring).await?;
    drive_all(&world, graph, 0..3, Moment::Ending, 1).await?;
    let mut times = Vec::new();
    for run in 3..3 + RUNS {
        world.quiet().await?;
        let started = Instant::now();
        world.drive(graph, run, Moment::Ending).await?;
        times.push(started.elapsed());
        finished(&world, run..run + 1).await?;
    }
    let middle = Duration::from_secs_f64(percentile(&mut times, 50) / 1000.0);
    world.stop().await?;
    Ok(vec![("steps_per_s_1", rate(STEPS, middle))])
}

/// Many runs at once.
pub(super) async fn many(wiring: &Wiring, graph: &'static str) -> Result<Values, Fault> {
    let world = world(wiring).await?;
    let runs = AT_ONCE as u64;
    drive_all(&world, graph, 0..8, Moment::Ending, 8).await?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        world.quiet().await?;
        let first = 8 + round * runs;
        let started = Instant::now();
        drive_all(&world, graph, first..first + runs, Moment::Ending, AT_ONCE).await?;
        times.push(started.elapsed());
        finished(&world, first..first + runs).await?;
    }
    let middle = Duration::from_secs_f64(percentile(&mut times, 50) / 1000.0);
    world.stop().await?;
    Ok(vec![("steps_per_s_64", rate(STEPS * u32::try_from(AT_ONCE)?, middle))])
}

/// Sees that the runs did all of their work.
async fn finished(world: &World, runs: std::ops::Range<u64>) -> Result<(), Fault> {
    for detail in all_rested(world, runs, "succeeded").await? {
        let items = detail.state.get("items").and_then(|items| items.as_array()).map_or(0, Vec::len);
        if items != Arc::as_ref(&world.desk).len() {
            return Err(format!("a run ended with {items} items").into());
        }
    }
    Ok(())
}
