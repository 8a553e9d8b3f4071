//! The limit: what the database does of bare transactions, each of which
//! inserts a row of 400 bytes and updates one row of another table, with the
//! settings that the store uses.

pub(super) mod postgres;
pub(super) mod sqlite;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::rate;
use crate::Fault;
use crate::desk::Chance;

/// Tasks that commit at once.
const TASKS: i64 = 64;
/// Most rows in one transaction of the writer.
const BATCH: usize = 256;
/// How long it commits before the clock starts.
const WARM: Duration = Duration::from_millis(300);
/// How long the clock runs.
const MEASURED: Duration = Duration::from_secs(3);

/// Into how many windows that is cut.
const WINDOWS: u32 = 15;

/// A row to commit.
struct Row {
    run: i64,
    seq: i64,
    payload: Arc<str>,
}

type Waiting = (Row, oneshot::Sender<()>);

/// 400 bytes.
fn payload() -> Arc<str> {
    let mut chance = Chance::new();
    (0..400).map(|_| char::from(b'a' + u8::try_from(chance.below(26)).unwrap_or_default())).collect::<String>().into()
}

/// Commits one after another for as long as it is measured.
async fn one_by_one(mut commit: impl AsyncFnMut(Row) -> Result<(), Fault>) -> Result<f64, Fault> {
    let payload = payload();
    let mut seq = 0;
    let begun = Instant::now();
    while begun.elapsed() < WARM {
        seq += 1;
        commit(Row { run: 0, seq, payload: Arc::clone(&payload) }).await?;
    }
    // The middle of many short windows: whatever else the machine does comes and
    // goes.
    let mut rates = Vec::new();
    for _ in 0..WINDOWS {
        let (started, mut count) = (Instant::now(), 0);
        while started.elapsed() < MEASURED / WINDOWS {
            seq += 1;
            count += 1;
            commit(Row { run: 0, seq, payload: Arc::clone(&payload) }).await?;
        }
        rates.push(rate(count, started.elapsed()));
    }
    Ok(median(&mut rates))
}

/// Many tasks that commit, each after its last commit is durable, through one
/// writer that takes all that wait.
async fn gathered(mut commit: impl AsyncFnMut(&[Row]) -> Result<(), Fault>) -> Result<f64, Fault> {
    let (send, mut incoming) = mpsc::channel::<Waiting>(4096);
    let mut tasks = JoinSet::new();
    for run in 0..TASKS {
        tasks.spawn(task(run, send.clone()));
    }
    drop(send);
    let (begun, mut window) = (Instant::now(), Instant::now());
    let (mut rates, mut count) = (Vec::new(), 0);
    while rates.len() < WINDOWS as usize
        && let Some(first) = incoming.recv().await
    {
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(more) = incoming.try_recv()
        {
            batch.push(more);
        }
        let (rows, replies): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        commit(&rows).await?;
        count += u32::try_from(rows.len())?;
        for reply in replies {
            // A task that has gone waits for nothing.
            let _gone = reply.send(());
        }
        if begun.elapsed() < WARM {
            (window, count) = (Instant::now(), 0);
        } else if window.elapsed() >= MEASURED / WINDOWS {
            rates.push(rate(count, window.elapsed()));
            (window, count) = (Instant::now(), 0);
        }
    }
    drop(incoming);
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(median(&mut rates))
}

/// Commits until nobody takes it any more.
async fn task(run: i64, send: mpsc::Sender<Waiting>) {
    let (payload, mut seq) = (payload(), 0);
    loop {
        seq += 1;
        let (reply, durable) = oneshot::channel();
        let row = Row { run, seq, payload: Arc::clone(&payload) };
        if send.send((row, reply)).await.is_err() || durable.await.is_err() {
            return;
        }
    }
}

/// The middle one.
fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}
