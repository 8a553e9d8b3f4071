//! W3: one run of 2,000 steps, each appends 200 bytes to one list.

use std::sync::Arc;
use std::time::Instant;

use super::{Values, drive_all};
use crate::Fault;
use crate::desk::{Desk, Moment};
use crate::flows;
use crate::machine::ms;
use crate::world::{Wiring, World};

const STEPS: u32 = 2_000;
const WINDOW: usize = 100;
/// More than it needs, so that it does not pause on the way.
const SUPERSTEPS: u32 = 3_000;
/// Entries of a history that are read at once.
const PAGE: u32 = 200;

async fn world(wiring: &Wiring, desk: &Arc<Desk>) -> Result<World, Fault> {
    World::start(wiring, desk, vec![flows::looping(desk)?, flows::asking(desk)?]).await
}

pub(super) async fn measure(wiring: &Wiring) -> Result<Values, Fault> {
    let desk = Desk::new(STEPS, 200)?;
    let world = self::world(wiring, &desk).await?;
    world.stop().await?;
    let empty = wiring.at.size_mib().await?;
    let world = self::world(wiring, &desk).await?;
    // Warms up on the flow that only asks, which leaves next to nothing.
    drive_all(&world, "asking", 1_000..1_008, Moment::Asking, 1).await?;
    world.quiet().await?;
    let resting = world.await_rest(0, Moment::Ending)?;
    let started = Instant::now();
    world.begin("loop", 0, Some(SUPERSTEPS)).await?;
    resting.durable().await?;
    let all = started.elapsed();
    world.rested(0, "succeeded").await?;

    let times = desk.times();
    if times.len() != STEPS as usize {
        return Err(format!("{} steps ran", times.len()).into());
    }
    let window = |from: usize| ms(times[from + WINDOW].duration_since(times[from])) / 100.0;
    let (first, last) = (window(0), window(times.len() - WINDOW - 1));

    let begun = Instant::now();
    let read = history(&world).await?;
    let reading = begun.elapsed();
    if read <= STEPS {
        return Err(format!("the history has {read} entries").into());
    }
    world.stop().await?;
    let size = wiring.at.size_mib().await?;
    Ok(vec![
        ("first100_ms", first),
        ("last100_ms", last),
        ("last100_over_first100", last / first),
        ("db_mib", size),
        ("db_empty_mib", empty),
        ("all_s", all.as_secs_f64()),
        ("history_steps", f64::from(read)),
        ("history_ms", ms(reading)),
    ])
}

/// Reads every checkpoint, and sees that each has the state of its time.
async fn history(world: &World) -> Result<u32, Fault> {
    let (thread, mut before, mut read) = (World::thread(0)?, None, 0);
    loop {
        let page = world.engine.store().history(&thread, None, before, PAGE).await?;
        for entry in &page {
            let items = entry.state.get("items").and_then(|items| items.as_array()).map_or(0, Vec::len);
            if items as u64 > u64::from(STEPS) || (entry.seq > 0 && items == 0 && entry.superstep > 1) {
                return Err(format!("checkpoint {} has {items} items", entry.seq).into());
            }
        }
        read += u32::try_from(page.len())?;
        match page.last() {
            Some(last) if last.seq > 0 => before = Some(last.seq),
            _ => return Ok(read),
        }
    }
}
