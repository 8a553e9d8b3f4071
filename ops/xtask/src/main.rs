//! Everything a developer does, by name: `cargo xtask help`.

mod conformance;
mod lint;
mod process;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::Parser;

use self::process::{Failed, cargo};

/// Everything a developer does, by name.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// All tests: the one test command.
    Test(test::Options),
    /// Formatting, clippy, documentation, house rules.
    Lint,
    /// The house rules alone.
    Tidy,
    /// What has to hold before a change goes in: lint, then test.
    Ci,
    /// Recorded scenarios of reference systems, on the kernel or on the worker.
    Conformance(conformance::Options),
    /// The server with sample threads, on a data folder of its own.
    Demo,
}

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::Test(options) => test::run(&options),
        Task::Lint => lint::run(),
        Task::Tidy => tidy::run(),
        Task::Ci => lint::run().and_then(|()| test::run(&test::Options::default())),
        Task::Conformance(options) => return conformance::run(&options),
        Task::Demo => cargo(["run", "-p", "countersign", "--", "up", "--demo", "--data", "target/demo"]).done(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(what)) => {
            process::say(&format!("failed: {what}"));
            ExitCode::FAILURE
        }
    }
}
