//! What one process measures, by the name of its task.

mod chain;
mod crowd;
mod fan_out;
mod growth;
mod limit;
mod parking;

use std::time::Duration;

use countersign_worker::store::views::ThreadDetail;
use tokio::task::JoinSet;

use crate::Fault;
use crate::desk::Moment;
use crate::machine::ms;
use crate::place::At;
use crate::world::{Wiring, World};

/// What was measured: names and values.
pub(crate) type Values = Vec<(&'static str, f64)>;

/// Runs that are in flight at once where many are.
const AT_ONCE: usize = 64;

/// Measures a task.
pub(crate) async fn measure(task: &str, wiring: &Wiring) -> Result<Values, Fault> {
    let (name, argument) = task.split_once(':').unwrap_or((task, ""));
    match (name, argument) {
        ("limit_seq", _) => match &wiring.at {
            At::Sqlite(path) => limit::sqlite::seq(path).await,
            At::Postgres(url) => limit::postgres::seq(url).await,
        },
        ("limit_batch", _) => match &wiring.at {
            At::Sqlite(path) => limit::sqlite::batch(path).await,
            At::Postgres(url) => limit::postgres::batch(url).await,
        },
        ("one_run", "chain") => chain::one(wiring, "chain").await,
        ("one_run", "loop") => chain::one(wiring, "loop").await,
        ("many_runs", "chain") => chain::many(wiring, "chain").await,
        ("many_runs", "loop") => chain::many(wiring, "loop").await,
        ("park", _) => parking::park(wiring).await,
        ("resume", _) => parking::resume(wiring).await,
        ("resume_all", _) => parking::resume_all(wiring).await,
        ("growth", _) => growth::measure(wiring).await,
        ("fan_out", _) => fan_out::measure(wiring).await,
        ("fill", count) => crowd::fill(wiring, count.parse()?).await,
        ("pick", count) => crowd::pick(wiring, count.parse()?).await,
        _ => Err(format!("there is no task `{task}`").into()),
    }
}

/// Drives runs to the commit after their moment, so many in flight at once.
async fn drive_all(
    world: &World,
    graph: &'static str,
    runs: std::ops::Range<u64>,
    moment: Moment,
    at_once: usize,
) -> Result<(), Fault> {
    let mut flying = JoinSet::new();
    for run in runs {
        if flying.len() >= at_once {
            joined(flying.join_next().await)?;
        }
        let world = world.clone();
        flying.spawn(async move { world.drive(graph, run, moment).await });
    }
    while !flying.is_empty() {
        joined(flying.join_next().await)?;
    }
    Ok(())
}

fn joined(ended: Option<Result<Result<(), Fault>, tokio::task::JoinError>>) -> Result<(), Fault> {
    match ended {
        Some(ended) => ended?,
        None => Ok(()),
    }
}

/// Each run as it rests.
async fn all_rested(world: &World, runs: std::ops::Range<u64>, status: &str) -> Result<Vec<ThreadDetail>, Fault> {
    let mut details = Vec::new();
    for run in runs {
        details.push(world.rested(run, status).await?);
    }
    Ok(details)
}

/// The middle one, or what `p` percent do not exceed.
fn percentile(times: &mut [Duration], p: usize) -> f64 {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    times.get((last * p).div_ceil(100)).copied().map_or(0.0, ms)
}

/// How many a second.
fn rate(count: u32, time: Duration) -> f64 {
    f64::from(count) / time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_seen() {
        let mut times: Vec<_> = (1..=101).rev().map(Duration::from_millis).collect();
        assert_eq!((percentile(&mut times, 50), percentile(&mut times, 99)), (51.0, 100.0));
        assert_eq!(percentile(&mut [], 50), 0.0);
    }
}
