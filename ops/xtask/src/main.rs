//! Everything a developer does, by name: `cargo xtask help`.

mod bench;
mod conformance;
mod lint;
mod process;
mod servers;
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
    /// The servers that tests talk to, for tests run by hand; until Ctrl-C.
    Servers,
    /// Keeps servers until its input ends; `servers` and `test` start it.
    #[command(hide = true)]
    Keep {
        /// Which.
        kinds: Vec<servers::Kind>,
    },
    /// Formatting, clippy, documentation, house rules.
    Lint,
    /// The house rules alone.
    Tidy,
    /// What has to hold before a change goes in: lint, then test.
    Ci,
    /// Recorded scenarios of reference systems, on the kernel or on the worker.
    Conformance(conformance::Options),
    /// Measures the worker against the bars, and bare transactions beside it.
    Bench(bench::Options),
    /// The server with sample threads, on a data folder of its own.
    Demo,
}

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::Test(options) => test::run(&options),
        Task::Servers => servers::run(),
        Task::Keep { kinds } => servers::keep::run(&kinds),
        Task::Lint => lint::run(),
        Task::Tidy => tidy::run(),
        Task::Ci => lint::run().and_then(|()| test::run(&test::Options::default())),
        Task::Conformance(options) => return conformance::run(&options),
        Task::Bench(options) => bench::run(&options),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_is_handed_to_the_test_runner() {
        for words in [&["test", "--", "--no-capture", "name"][..], &["test", "--no-capture", "name"]] {
            let task = Task::try_parse_from(["xtask"].iter().chain(words)).expect("a task");
            let Task::Test(options) = task else { panic!("another task: {task:?}") };
            assert_eq!(options.rest, ["--no-capture", "name"]);
        }
    }

    #[test]
    fn a_bench_is_of_what_is_named() {
        let words = ["xtask", "bench", "--backend", "sqlite", "--workload", "w1", "--workload", "limit", "--json"];
        let task = Task::try_parse_from(words).expect("a task");
        let Task::Bench(options) = task else { panic!("another task: {task:?}") };
        assert_eq!(options.words(), ["--backend", "sqlite", "--workload", "w1", "--workload", "limit", "--json"]);
        assert!(!options.needs_postgres());
        assert!(Task::try_parse_from(["xtask", "bench", "--backend", "mysql"]).is_err());
    }

    #[test]
    fn the_keeper_is_told_what_to_keep() {
        let task = Task::try_parse_from(["xtask", "keep", "redis", "postgres"]).expect("a task");
        assert!(matches!(task, Task::Keep { kinds } if kinds == [servers::Kind::Redis, servers::Kind::Postgres]));
    }
}
