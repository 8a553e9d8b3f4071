//! `worker`: works without serving anything, until it is told to stop.

use countersign_worker::queue::JobKind;
use countersign_worker::store::commands::Serves;
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
    let serves = Serves::kinds(&kinds(args)).of((!args.graphs.is_empty()).then(|| args.graphs.clone()));
    let working = Box::pin(app::start_worker(config, &serves, flows)).await.map_err(|error| {
        use app::StartError::{OneProcess, UnknownGraph};
        let exit = if matches!(error, OneProcess { .. } | UnknownGraph { .. }) { Exit::Usage } else { Exit::NoServer };
        CliError::new(exit, chain(&error))
    })?;
    let queues: Vec<&str> = serves.kinds.iter().map(|kind| kind.name()).collect();
    let (store, queue) = (config.store.place.shown(&config.data_dir), config.queue.place.shown());
    output.result(&json!({"queues": queues, "graphs": serves.graphs, "store": store, "queue": queue}), || {
        let graphs = serves.graphs.as_ref().map(|graphs| format!(" of {}", graphs.join(", "))).unwrap_or_default();
        let over = queue.map(|queue| format!(" over {queue}")).unwrap_or_default();
        format!("Countersign works on {store}{over} ({}{graphs}). Stop it with Ctrl-C.", queues.join(", "))
    });
    if serves.kinds.contains(&JobKind::Deliver) && config.base_url.is_none() {
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
