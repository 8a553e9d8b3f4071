//! W4: 100 tasks side by side, 10 of which ask; answered by one map after a
//! restart of the worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use countersign_kernel::ids::InterruptId;
use countersign_kernel::machine::Resume;
use countersign_worker::engine::ResumeRequest;
use serde_json::Value;

use super::Values;
use crate::Fault;
use crate::desk::Desk;
use crate::flows;
use crate::machine::ms;
use crate::world::{Wiring, World, approver, yes};

const TASKS: u32 = 100;
const ASKING: usize = 10;
/// The run that is measured, and those that warm up.
const RUN: u64 = 0;
const WARM: std::ops::Range<u64> = 1..6;

async fn world(wiring: &Wiring, desk: &Arc<Desk>) -> Result<World, Fault> {
    World::start(wiring, desk, vec![flows::fan_out(desk, TASKS)?]).await
}

pub(super) async fn measure(wiring: &Wiring) -> Result<Values, Fault> {
    let desk = Desk::new(TASKS, 100)?;
    let world = self::world(wiring, &desk).await?;
    for run in WARM {
        park(&world, run).await?;
    }
    world.quiet().await?;
    let _warm = desk.counts();
    let started = Instant::now();
    let answers = park(&world, RUN).await?;
    let parked = started.elapsed();
    let mut counts = desk.counts();
    world.stop().await?;

    let world = self::world(wiring, &desk).await?;
    let mut first = None;
    for run in WARM {
        let detail = world.rested(run, "parked").await?;
        let answers = detail.interrupts.iter().map(|point| (point.id.clone(), yes())).collect();
        let begun = Instant::now();
        resume(&world, run, answers).await?;
        first.get_or_insert(begun.elapsed());
    }
    world.quiet().await?;
    let _warm = desk.counts();
    let begun = Instant::now();
    resume(&world, RUN, answers).await?;
    let resumed = begun.elapsed();
    for (part, more) in desk.counts() {
        *counts.entry(part).or_default() += more;
    }
    let runs = |asking: bool| -> u32 { (0..TASKS).filter(|n| flows::asks(*n) == asking).map(|n| counts[&n]).sum() };
    let values = vec![
        ("parked_ms", ms(parked)),
        ("resume_ms", ms(resumed)),
        ("first_resume_ms", first.map_or(0.0, ms)),
        ("other90_runs", f64::from(runs(false))),
        ("asking10_runs", f64::from(runs(true))),
    ];
    world.stop().await?;
    Ok(values)
}

/// Starts a run and waits until it is parked; returns the answers to come.
async fn park(world: &World, run: u64) -> Result<BTreeMap<InterruptId, Value>, Fault> {
    let mut news = world.watch(run)?;
    world.begin("fan_out", run, None).await?;
    let parked = world.await_status(run, &mut news, "parked").await?;
    let answers: BTreeMap<_, _> = parked.interrupts.iter().map(|point| (point.id.clone(), yes())).collect();
    if answers.len() == ASKING { Ok(answers) } else { Err(format!("{} tasks ask", answers.len()).into()) }
}

/// Answers all by one map and waits for the result.
async fn resume(world: &World, run: u64, answers: BTreeMap<InterruptId, Value>) -> Result<(), Fault> {
    let mut news = world.watch(run)?;
    let request = ResumeRequest {
        answers,
        resume: Resume::default(),
        principal: approver(),
        ..ResumeRequest::new(World::thread(run)?)
    };
    world.engine.resume(request).await?;
    world.await_status(run, &mut news, "succeeded").await?;
    Ok(())
}
