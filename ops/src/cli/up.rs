//! `up`: everything in one process, until it is told to stop.

use serde_json::json;

use super::args::Up;
use super::exit::Exit;
use super::failure::{CliError, chain};
use super::output::Output;
use super::signals;
use crate::app;
use crate::config::{Config, StorePlace};

/// Runs until a signal. The first one stops gracefully, a second one at once.
pub(super) async fn run(config: &Config, output: Output, args: &Up, flows: app::Flows) -> Result<Exit, CliError> {
    let options = app::Options { demo: args.demo, port: app::Port::Configured };
    let flows = flows().map_err(|error| CliError::because(Exit::Failure, &error))?;
    let running = Box::pin(app::start_with(config, options, flows)).await.map_err(|error| match error {
        app::StartError::AlreadyRunning { address } => CliError::new(
            Exit::NoServer,
            format!("a server runs on {} already, at {address}; stop it or use --data", config.data_dir.display()),
        ),
        other => CliError::new(Exit::NoServer, chain(&other)),
    })?;
    let shown = json!({
        "base_url": running.base_url,
        "sign_in_link": running.sign_in_link,
        "data_dir": config.data_dir,
        "store": config.store.place.shown(&config.data_dir),
        "queue": config.queue.place.shown(),
        "token_file": config.token_file(),
        "mailbox_dir": config.email.smtp.is_none().then(|| config.mailbox_dir()),
    });
    output.result(&shown, || where_to_look(config, &running));
    if !config.listen.ip().is_loopback() {
        output.note("This address can be reached from other machines, without TLS: put a proxy in front.");
    }
    signals::next().await;
    output.note("Stopping; a second signal stops at once.");
    tokio::select! {
        () = running.stop() => Ok(Exit::Ok),
        () = signals::next() => Err(CliError::new(Exit::Interrupted, "stopped at once; what was under way goes on at the next start")),
    }
}

fn where_to_look(config: &Config, running: &app::Running) -> String {
    let url = running.base_url.trim_end_matches('/');
    let mails = match &config.email.smtp {
        Some(smtp) => format!("through {}:{}", smtp.host, smtp.port),
        None => format!("{url}/mailbox (files in {})", config.mailbox_dir().display()),
    };
    let store = match &config.store.place {
        StorePlace::Folder => String::new(),
        place => format!("  Store    {}\n", place.shown(&config.data_dir)),
    };
    let queue = config.queue.place.shown().map(|queue| format!("  Queue    {queue}\n")).unwrap_or_default();
    format!(
        "Countersign {version} runs. Stop it with Ctrl-C.\n\n  \
           Pages    {url}\n  \
           Sign in  {sign_in}\n  \
           API      {url}/api/v1 (token in {token})\n  \
           Mails    {mails}\n  \
           Data     {data}\n{store}{queue}",
        version = env!("CARGO_PKG_VERSION"),
        sign_in = running.sign_in_link,
        token = config.token_file().display(),
        data = config.data_dir.display(),
    )
}
