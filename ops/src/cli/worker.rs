//! `worker`: works without serving anything, until it is told to stop.

use countersign_worker::queue::JobKind;
use serde_json::json;

use super::args::Worker;
use super::exit::Exit;
use super::failure::{CliError, chain};
use super::output::Output;
use super::signals;
use crate::app;
use crate::config::Config;

/// Runs until a signal. The first one stops gracefully, a second one at once.
pub(super) async fn run(config: &Config, output: Output, args: &Worker, flows: app::Flows) -> Result<Exit, CliError> {
    let flows = flows().map_err(|error| CliError::because(Exit::Failure, &error))?;
    let kinds = kinds(args);
    let working = Box::pin(app::start_worker(config, &kinds, flows)).await.map_err(|error| {
        let exit = if matches!(error, app::StartError::OneProcess { .. }) { Exit::Usage } else { Exit::NoServer };
        CliError::new(exit, chain(&error))
    })?;
    let queues: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    let store = config.store.place.shown(&config.data_dir);
    output.result(&json!({"queues": queues, "store": store}), || {
        format!("Countersign works on {store} ({}). Stop it with Ctrl-C.", queues.join(", "))
    });
    if kinds.contains(&JobKind::Deliver) && config.base_url.is_none() {
        let url = config.public_url(config.listen);
        output.note(&format!("Links in mails lead to {url}; set `base_url` if the pages are elsewhere."));
    }
    signals::next().await;
    output.note("Stopping; a second signal stops at once.");
    tokio::select! {
        () = working.stop() => Ok(Exit::Ok),
        () = signals::next() => Err(CliError::new(
            Exit::Interrupted,
            "stopped at once; another process goes on with what was under way when its lease has lapsed",
        )),
    }
}

/// What is named, each once; everything if nothing is.
fn kinds(args: &Worker) -> Vec<JobKind> {
    JobKind::ALL.into_iter().filter(|kind| args.queues.is_empty() || args.queues.contains(kind)).collect()
}
