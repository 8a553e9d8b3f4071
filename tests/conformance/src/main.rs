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
    /// What they run on: memory, sqlite, postgres or redis (over Postgres).
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

/// The variables that name the servers which a backend needs.
fn servers(backend: Backend) -> &'static [&'static str] {
    match backend {
        Backend::Memory | Backend::Sqlite => &[],
        Backend::Postgres => &["COUNTERSIGN_TEST_POSTGRES"],
        Backend::Redis => &["COUNTERSIGN_TEST_POSTGRES", "COUNTERSIGN_TEST_REDIS"],
    }
}

fn is_named(server: &str) -> bool {
    std::env::var_os(server).is_some_and(|url| !url.is_empty())
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let dir = options.dir.unwrap_or_else(countersign_conformance::recordings);
    if let Some(server) = servers(options.backend).iter().find(|server| !is_named(server)) {
        let _gone = writeln!(std::io::stderr(), "{server} names no server; `cargo xtask conformance` starts one");
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
