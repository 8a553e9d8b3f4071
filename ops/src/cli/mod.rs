//! The command line `countersign`.
//!
//! `up`, `worker`, `migrate`, `check` and `config` work in this process; everything else
//! is an HTTP client of the API. Results go to standard output, messages to
//! standard error; [`Exit`] says how it ended.

mod answer;
mod args;
mod check;
pub mod client;
mod course;
mod each;
mod exit;
mod failure;
mod flow;
mod flow_args;
mod input;
mod interrupts;
mod logging;
mod output;
mod pages;
mod points;
mod run;
mod schedules;
mod server;
mod sign_in;
mod signal;
mod signals;
mod store;
#[cfg(test)]
mod tests;
mod thread_args;
mod threads;
mod up;
mod wait;
mod watch;
mod worker;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser as _;
use serde_json::json;

pub use self::args::{
    Answer, Cli, Command, Global, Interrupts, ListInterrupts, Run, Schedules, SendSignal, ShowConfig, SignIn, Up, Wait,
    Worker,
};
pub use self::exit::Exit;
pub use self::failure::CliError;
pub use self::flow_args::{DeadLetters, Limits, PauseFlow, ResumeFlow, SetLimits, Switch};
pub use self::output::Output;
use self::server::Session;
pub use self::store::{CopyStore, StoreWork};
pub use self::thread_args::{EditState, History, ListThreads, Replay, Resume, ThreadState, Threads};
pub use self::watch::Watch;
use crate::app::{self, Flows};
use crate::config::{Config, DEFAULT_FILE, Log, Variables};

/// Runs the program with these arguments and variables, and says how it ended.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>, env: &dyn Variables) -> Exit {
    main_with(arguments, env, || Ok(Vec::new()))
}

/// As [`main`], for a program with flows of its own beside those that ship. A
/// flow of the same name replaces the shipped one.
#[must_use]
pub fn main_with(arguments: impl IntoIterator<Item = OsString>, env: &dyn Variables, flows: Flows) -> Exit {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // `--help` and `--version` arrive here too, and are no failures.
            let _gone = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Ok };
        }
    };
    let output = Output::new(cli.global.json);
    let ended = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::because(Exit::Failure, &error))
        .and_then(|runtime| runtime.block_on(dispatch(cli, output, env, flows)));
    ended.unwrap_or_else(|error| {
        output.note(&format!("countersign: {error}"));
        output.detail(&error.to_json());
        error.exit
    })
}

async fn dispatch(cli: Cli, output: Output, env: &dyn Variables, flows: Flows) -> Result<Exit, CliError> {
    let Cli { global, command } = cli;
    if matches!(command, Command::Config(ShowConfig { check: false })) {
        output.result(&json!({"reference": DEFAULT_FILE}), || DEFAULT_FILE.trim_end().to_owned());
        return Ok(Exit::Ok);
    }
    let mut config = load(&global, env)?;
    match command {
        Command::Config(_) => {
            output.result(&json!({"valid": true}), || "the configuration is valid".to_owned());
            Ok(Exit::Ok)
        }
        Command::Up(args) => {
            logging::start(&config.log);
            config.listen = args.listen.unwrap_or(config.listen);
            up::run(&config, output, &args, flows).await
        }
        Command::Worker(args) => {
            logging::start(&config.log);
            worker::run(&config, output, &args, flows).await
        }
        Command::Migrate => {
            logging::start(&quiet(&config));
            let applied = Box::pin(app::migrate(&config)).await.map_err(|error| match error {
                app::StartError::AlreadyRunning { address } => CliError::new(
                    Exit::NoServer,
                    format!("a server runs on {} at {address}; stop it first", config.data_dir.display()),
                ),
                other => CliError::because(Exit::Failure, &other),
            })?;
            output.result(&json!({"applied": applied}), || match applied.as_slice() {
                [] => "the database is up to date".to_owned(),
                names => format!("applied: {}", names.join(", ")),
            });
            Ok(Exit::Ok)
        }
        Command::Check => {
            logging::start(&quiet(&config));
            check::run(&config, &global, output, flows).await
        }
        Command::Run(args) => {
            let work = async |session: &Session| run::run(&session.client, output, &args).await;
            with_server(&config, &global, env, output, flows, work).await
        }
        Command::Answer(args) => {
            let work = async |session: &Session| answer::run(&session.client, output, &args).await;
            with_server(&config, &global, env, output, flows, work).await
        }
        Command::Threads(args) => {
            let work = async |session: &Session| threads::run(&session.client, output, &args).await;
            with_server(&config, &global, env, output, flows, work).await
        }
        Command::Interrupts(args) => {
            let work = async |session: &Session| interrupts::run(&session.client, output, &args).await;
            with_server(&config, &global, env, output, flows, work).await
        }
        Command::Schedules(args) => {
            let work = async |session: &Session| schedules::run(&session.client, output, &args).await;
            with_server(&config, &global, env, output, flows, work).await
        }
        Command::Signal(args) => {
            let work = async |session: &Session| signal::run(&session.client, output, &args).await;
            with_server(&config, &global, env, output, flows, work).await
        }
        Command::Store(args) => {
            logging::start(&quiet(&config));
            store::run(&config, output, &args).await
        }
        Command::Pause(args) => {
            let work = async |session: &Session| flow::pause(&session.client, output, &args).await;
            with_server(&config, &global, env, output, flows, work).await
        }
        Command::Resume(args) => {
            let work = async |session: &Session| flow::resume(&session.client, output, &args).await;
            with_server(&config, &global, env, output, flows, work).await
        }
        Command::Pauses => {
            let work = async |session: &Session| flow::pauses(&session.client, output).await;
            with_server(&config, &global, env, output, flows, work).await
        }
        Command::Limits(args) => {
            let work = async |session: &Session| flow::limits(&session.client, output, &args).await;
            with_server(&config, &global, env, output, flows, work).await
        }
        Command::DeadLetters(args) => {
            let work = async |session: &Session| flow::dead_letters(&session.client, output, &args).await;
            with_server(&config, &global, env, output, flows, work).await
        }
        Command::SignIn(args) => {
            logging::start(&quiet(&config));
            let session = Session::with_running(&config, &global, env)?;
            sign_in::run(&session.client, output, &args).await
        }
    }
}

/// The configuration, with what the command line says on top.
fn load(global: &Global, env: &dyn Variables) -> Result<Config, CliError> {
    let file =
        global.config.clone().or_else(|| env.get("COUNTERSIGN_CONFIG").filter(|p| !p.is_empty()).map(PathBuf::from));
    let mut config =
        Config::load(file.as_deref(), env).map_err(|errors| CliError::new(Exit::Usage, errors.to_string()))?;
    if let Some(data) = &global.data {
        config.data_dir.clone_from(data);
    }
    Ok(config)
}

/// Commands that end by themselves report only what is wrong.
fn quiet(config: &Config) -> Log {
    Log { filter: "warn".to_owned(), ..config.log.clone() }
}

/// Does `work` with a server, and stops the server afterwards if it is ours;
/// also if a signal comes first.
async fn with_server(
    config: &Config,
    global: &Global,
    env: &dyn Variables,
    output: Output,
    flows: Flows,
    work: impl AsyncFnOnce(&Session) -> Result<Exit, CliError>,
) -> Result<Exit, CliError> {
    logging::start(&quiet(config));
    let session = tokio::select! {
        session = Session::open(config, global, env, flows) => session?,
        () = signals::next() => return Err(stopped()),
    };
    let ended = tokio::select! {
        ended = work(&session) => ended,
        () = signals::next() => Err(stopped()),
    };
    if ended.as_ref().is_err_and(|error| error.exit == Exit::Interrupted) {
        output.note("Stopping; a second signal stops at once.");
    }
    tokio::select! {
        () = session.close() => ended,
        () = signals::next() => Err(stopped()),
    }
}

fn stopped() -> CliError {
    CliError::new(Exit::Interrupted, "stopped by a signal; what was accepted is kept, run it again to go on")
}
