//! Recorded scenarios of reference systems, on the kernel or on the worker.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;

use crate::process::{Failed, root, say};
use crate::servers::{Kind, Servers};

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Folder with scenarios; the project's own recordings, without it.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// What they run on: memory, sqlite, postgres or redis (over Postgres).
    #[arg(long, default_value = "memory")]
    backend: String,
    /// Only the scenario of this name, or those whose names contain it.
    #[arg(long)]
    only: Option<String>,
    /// All results as one JSON document, then the last line.
    #[arg(long)]
    json: bool,
}

/// What was asked for does not exist.
const UNAVAILABLE: u8 = 2;

/// Runs the scenarios. The last printed line is `N passed, M failed`; nothing
/// is said after it, and the exit status is the runner's: 1 if any failed, 2
/// if what was asked for does not exist.
pub(crate) fn run(options: &Options) -> ExitCode {
    let servers = match options.backend.as_str() {
        "postgres" => Servers::of(&[Kind::Postgres]),
        "redis" => Servers::of(&[Kind::Postgres, Kind::Redis]),
        _ => Ok(Servers::none()),
    };
    let servers = match servers {
        Ok(servers) => servers,
        Err(Failed(what)) => {
            say(&format!("failed: {what}"));
            return ExitCode::from(UNAVAILABLE);
        }
    };
    let mut command = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    command.args(["run", "--quiet", "--package", "countersign-conformance", "--manifest-path"]);
    command.arg(root().join("Cargo.toml")).arg("--").args(["--backend", &options.backend]);
    if let Some(dir) = &options.dir {
        command.arg("--dir").arg(dir);
    }
    if let Some(only) = &options.only {
        command.args(["--only", only]);
    }
    if options.json {
        command.arg("--json");
    }
    command.envs(servers.variables().iter().map(|(name, url)| (name, url)));
    match command.status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(problem) => {
            say(&format!("cargo cannot be run: {problem}"));
            ExitCode::FAILURE
        }
    }
}
