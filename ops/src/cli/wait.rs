//! Waiting until what was started has come to rest.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::{Client, Overview};
use super::each::Progress;
use super::exit::Exit;
use super::failure::CliError;

/// The pauses between two looks: short at first, for a single thread.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What to wait for. In each case also for the messages on their way.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope<'a> {
    /// One thread.
    Thread(&'a str),
    /// All threads of a graph.
    Graph(&'a str),
    /// All threads.
    Everything,
}

/// Waits until nothing in `scope` is queued or running and no message is
/// pending.
pub(super) async fn until_rest(
    client: &Client,
    scope: Scope<'_>,
    limit: Option<Duration>,
    progress: &Progress,
) -> Result<Overview, CliError> {
    let began = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        let overview = client.overview().await?;
        let threads = &overview.threads;
        let moving = threads.queued + threads.running;
        let rests = moving == 0 || at_rest(client, scope).await?;
        if rests && overview.deliveries.pending == 0 {
            return Ok(overview);
        }
        let state = format!("{moving} threads to go, {} messages to send", overview.deliveries.pending);
        if let Some(limit) = limit
            && began.elapsed() + pause > limit
        {
            tokio::time::sleep(limit.saturating_sub(began.elapsed())).await;
            let message = format!("not at rest after {} s: {state}; the work goes on in the server", limit.as_secs());
            return Err(CliError::new(Exit::TimedOut, message));
        }
        progress.say(state);
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(PAUSE_MAX);
    }
}

async fn at_rest(client: &Client, scope: Scope<'_>) -> Result<bool, CliError> {
    match scope {
        Scope::Everything => Ok(false),
        Scope::Thread(id) => Ok(!is_moving(&client.thread(id).await?)),
        Scope::Graph(graph) => {
            // Queued before running: a thread goes from one to the other, and
            // back only after a park, which an answer ends.
            for status in ["queued", "running", "queued"] {
                if !client.threads(Some(status), Some(graph), 1, None).await?.items.is_empty() {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

/// Whether a thread is queued or running.
fn is_moving(thread: &Value) -> bool {
    matches!(thread["status"].as_str(), Some("queued" | "running"))
}
