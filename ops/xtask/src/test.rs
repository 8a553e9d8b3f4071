//! The one test command.

use clap::Args;

use crate::process::{Failed, cargo, say};
use crate::servers::Servers;

/// What to test.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Only this package.
    #[arg(short, long)]
    package: Option<String>,
    /// Handed to the test runner: a part of a test's name, say.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) rest: Vec<String>,
}

/// Packages whose tests talk to no server.
const ALONE: [&str; 4] = ["countersign-derive", "countersign-flows", "countersign-kernel", "xtask"];

/// Unit and integration tests, then the examples in the documentation.
pub(crate) fn run(options: &Options) -> Result<(), Failed> {
    let servers = match options.package.as_deref() {
        Some(package) if ALONE.contains(&package) => Servers::none(),
        _ => Servers::start()?,
    };
    let scope: Vec<&str> = match &options.package {
        Some(package) => vec!["--package", package],
        None => vec!["--workspace"],
    };
    let rest = options.rest.iter().map(String::as_str);
    let program = match options.package.as_deref() {
        None | Some("countersign-tests") => program()?,
        Some(_) => String::new(),
    };
    if cargo(["nextest", "--version"]).works() {
        // Crates without any test are no mistake.
        let words = ["nextest", "run", "--locked", "--no-tests", "warn"];
        servers
            .tell(cargo(words.into_iter().chain(scope.iter().copied()).chain(rest)).env(PROGRAM, &program))
            .done()?;
    } else {
        say("cargo-nextest is not installed: going on with `cargo test`, which has no time limit per test.");
        say("To install it: `cargo install --locked cargo-nextest`.");
        let words = ["test", "--locked", "--lib", "--bins", "--tests", "--no-fail-fast"];
        servers
            .tell(cargo(words.into_iter().chain(scope.iter().copied()).chain(rest)).env(PROGRAM, &program))
            .done()?;
    }
    if !options.rest.is_empty() {
        say("with a filter, the examples in the documentation are left out");
        return Ok(());
    }
    if options.package.is_some()
        && !cargo(["test", "--doc", "--no-run"].into_iter().chain(scope.iter().copied())).works()
    {
        // A package without a library has no examples.
        return Ok(());
    }
    servers.tell(cargo(["test", "--doc", "--locked"].into_iter().chain(scope))).done()
}

/// Tells the end-to-end tests where the program is.
const PROGRAM: &str = "COUNTERSIGN_BIN";

/// Builds the program that the end-to-end tests run, as it is shipped: without
/// what only tests need. Returns where it is.
fn program() -> Result<String, Failed> {
    let words = ["build", "--locked", "--package", "countersign", "--message-format", "json-render-diagnostics"];
    let messages = cargo(words).output()?;
    let built = String::from_utf8_lossy(&messages).lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(str::to_owned)
    });
    built.ok_or_else(|| Failed("cargo does not say where it put the program".to_owned()))
}
