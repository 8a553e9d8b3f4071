//! Runs the scenarios and says how many pass. The last line is always
//! `N passed, M failed`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use countersign_conformance::report::{Backend, failures, json, last_line, text};

/// Runs recorded scenarios of reference systems on the kernel or on the worker.
#[derive(Debug, Parser)]
#[command(name = "conformance")]
struct Options {
    /// Folder with scenarios; the project's own recordings, without it.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// What they run on: memory, sqlite or postgres.
    #[arg(long, default_value_t = Backend::Memory)]
    backend: Backend,
    /// Only the scenario of this name, or those whose names contain it.
    #[arg(long)]
    only: Option<String>,
    /// All results as one JSON document, then the last line.
    #[arg(long)]
    json: bool,
}

/// What was asked for does not exist.
const UNAVAILABLE: u8 = 2;

/// Names the Postgres server.
const SERVER: &str = "COUNTERSIGN_TEST_POSTGRES";

fn has_server() -> bool {
    std::env::var_os(SERVER).is_some_and(|url| !url.is_empty())
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let dir = options.dir.unwrap_or_else(countersign_conformance::recordings);
    if options.backend == Backend::Postgres && !has_server() {
        let _gone = writeln!(std::io::stderr(), "{SERVER} names no server; `cargo xtask conformance` starts one");
        return ExitCode::from(UNAVAILABLE);
    }
    if !dir.is_dir() {
        let _gone = writeln!(std::io::stderr(), "{} is no folder", dir.display());
        return ExitCode::from(UNAVAILABLE);
    }
    let results = countersign_conformance::run(&dir, options.backend, options.only.as_deref()).await;
    if let (Some(only), true) = (&options.only, results.is_empty()) {
        let _gone = writeln!(std::io::stderr(), "no scenario is called `{only}`, nor has it in its name");
        return ExitCode::from(UNAVAILABLE);
    }
    let report = if options.json { json(&results) + "\n" + &last_line(&results) } else { text(&results) };
    let written = std::io::stdout().lock().write_all(report.as_bytes());
    if written.is_err() || failures(&results) > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
