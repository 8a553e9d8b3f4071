//! Measuring: the program that does it, built for release, and the Postgres
//! that it measures on.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::process::{Failed, cargo};
use crate::servers::Servers;

/// What to measure; docs/bench.md says what it is.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only on this database; on both, without it.
    #[arg(long, value_parser = PossibleValuesParser::new(["sqlite", "postgres"]))]
    backend: Option<String>,
    /// Only this workload; may be given several times. All, without it.
    #[arg(long, value_parser = PossibleValuesParser::new(["limit", "w1", "w2", "w3", "w4", "w5"]))]
    workload: Vec<String>,
    /// Figures as JSON, one object a line; the table goes to standard error.
    #[arg(long)]
    json: bool,
    /// Processes per figure, each on a fresh database; 3, without it.
    #[arg(long)]
    repetitions: Option<u32>,
    /// With 1,000,000 parked threads too, on Postgres; takes long.
    #[arg(long)]
    million: bool,
    /// Where SQLite files go; the system's folder for temporary files, without it.
    #[arg(long)]
    data: Option<PathBuf>,
}

impl Options {
    /// As the program takes them.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut option = |name: &str, value: Option<String>| {
            words.push(name.to_owned());
            words.extend(value);
        };
        if let Some(backend) = &self.backend {
            option("--backend", Some(backend.clone()));
        }
        for workload in &self.workload {
            option("--workload", Some(workload.clone()));
        }
        if self.json {
            option("--json", None);
        }
        if let Some(repetitions) = self.repetitions {
            option("--repetitions", Some(repetitions.to_string()));
        }
        if self.million {
            option("--million", None);
        }
        if let Some(data) = &self.data {
            option("--data", Some(data.display().to_string()));
        }
        words
    }

    pub(crate) fn needs_postgres(&self) -> bool {
        self.backend.as_deref() != Some("sqlite")
    }
}

/// Measures. A bar that is missed is printed and is no failure.
pub(crate) fn run(options: &Options) -> Result<(), Failed> {
    // Built before the server runs, which would share the cores with it.
    let package = ["--quiet", "--release", "--locked", "--package", "countersign-bench"];
    cargo(["build"].into_iter().chain(package)).done()?;
    let servers = if options.needs_postgres() { Servers::measured()? } else { Servers::none() };
    let words = options.words();
    let words = ["run"].into_iter().chain(package).chain(["--"]).chain(words.iter().map(String::as_str));
    servers.tell(cargo(words)).done()
}
