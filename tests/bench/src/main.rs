//! Measures the worker on both databases: `cargo xtask bench`.
//!
//! The program starts itself anew for each figure, on a fresh database
//! ([`rounds`]); what such a process measures is in [`work`]. What is measured
//! and how is in docs/bench.md.

mod bars;
mod desk;
mod figures;
mod flows;
mod machine;
mod place;
mod report;
mod rounds;
mod work;
mod world;

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use self::place::Backend;

/// What went wrong, in words; there is nobody to handle it.
type Fault = Box<dyn Error + Send + Sync>;

/// Measures the worker: medians of several processes, each on a fresh database.
#[derive(Debug, Parser)]
#[command(name = "countersign-bench")]
struct Options {
    /// Only on this database; on both, without it.
    #[arg(long)]
    backend: Option<Backend>,
    /// Only this workload; may be given several times. All, without it.
    #[arg(long)]
    workload: Vec<Workload>,
    /// Figures as JSON, one object a line; the table goes to standard error.
    #[arg(long)]
    json: bool,
    /// Processes per figure.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repetitions: u32,
    /// With 1,000,000 parked threads too, on Postgres; takes long.
    #[arg(long)]
    million: bool,
    /// The Postgres server, as a role that creates databases.
    #[arg(long, env = "COUNTERSIGN_BENCH_POSTGRES")]
    postgres: Option<String>,
    /// Where SQLite files go; the system's folder for temporary files, without it.
    #[arg(long)]
    data: Option<PathBuf>,
    /// How many connections to Postgres the worker may have open.
    #[arg(long, default_value_t = 16)]
    connections: u32,
    /// What one process measures; the program starts itself with it.
    #[arg(long, hide = true, requires = "at")]
    task: Option<String>,
    /// The database of that process.
    #[arg(long, hide = true)]
    at: Option<String>,
    /// Whether that process keeps no events.
    #[arg(long, hide = true)]
    without_events: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Workload {
    /// Bare transactions.
    Limit,
    /// A chain of nodes; measures the limit too, for the ratio.
    W1,
    /// Park and resume.
    W2,
    /// Growth.
    W3,
    /// Fan-out.
    W4,
    /// Many parked threads.
    W5,
}

impl Workload {
    /// As figures name it.
    const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::W1 => "w1",
            Self::W2 => "w2",
            Self::W3 => "w3",
            Self::W4 => "w4",
            Self::W5 => "w5",
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let done = match (&options.task, &options.at) {
        (Some(task), Some(at)) => measure(task, at, &options).await,
        _ => Box::pin(rounds::run(&options)).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            let _gone = writeln!(std::io::stderr().lock(), "bench: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// What a process of one figure does.
async fn measure(task: &str, at: &str, options: &Options) -> Result<(), Fault> {
    let wiring = world::Wiring { at: at.parse()?, events: !options.without_events, connections: options.connections };
    let values = Box::pin(work::measure(task, &wiring)).await?;
    let mut out = std::io::stdout().lock();
    for (metric, value) in values {
        writeln!(out, "{}", serde_json::json!({"metric": metric, "value": value}))?;
    }
    Ok(())
}
