//! The servers that tests talk to: a Postgres and a Redis of their own.
//!
//! They are the children of a second process of ours, the [keeper](keep), whose
//! standard input we hold. When it ends, the keeper stops them and deletes what
//! they wrote. It ends with us, whatever ends us, so no signal has to be
//! caught; and the keeper is in a process group of its own, so that Ctrl-C
//! reaches the tests before it.

mod find;
mod install;
pub(crate) mod keep;
mod place;
mod postgres;
mod probe;
mod redis;
mod running;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use clap::ValueEnum;

use crate::process::{Failed, Step, say};

/// A server that tests need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// For the store and its queue.
    Postgres,
    /// For the queue.
    Redis,
    /// A Postgres with the settings that it ships with, to be measured.
    StockPostgres,
}

impl Kind {
    /// What tests need.
    const ALL: [Self; 2] = [Self::Postgres, Self::Redis];

    /// As people write it.
    const fn name(self) -> &'static str {
        match self {
            Self::Postgres | Self::StockPostgres => "Postgres",
            Self::Redis => "Redis",
        }
    }

    /// As the keeper is told.
    const fn word(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::StockPostgres => "stock-postgres",
        }
    }

    /// Tells the tests, or the program that measures, where the server is. Whoever has set it already wants
    /// that server to be used, and none to be started.
    const fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "COUNTERSIGN_TEST_POSTGRES",
            Self::Redis => "COUNTERSIGN_TEST_REDIS",
            Self::StockPostgres => "COUNTERSIGN_BENCH_POSTGRES",
        }
    }
}

/// The servers, for as long as this lives.
pub(crate) struct Servers {
    keeper: Option<Child>,
    variables: Vec<(&'static str, String)>,
}

impl Servers {
    /// None, for tests that need none.
    pub(crate) const fn none() -> Self {
        Self { keeper: None, variables: Vec::new() }
    }

    /// Starts what the environment does not name already, and installs it
    /// before if it has to and may.
    pub(crate) fn start() -> Result<Self, Failed> {
        Self::of(&Kind::ALL)
    }

    /// Starts a Postgres that is as durable as it ships, unless the environment
    /// names one.
    pub(crate) fn measured() -> Result<Self, Failed> {
        Self::of(&[Kind::StockPostgres])
    }

    /// As [`start`](Self::start), of these kinds.
    pub(crate) fn of(kinds: &[Kind]) -> Result<Self, Failed> {
        let mut servers = Self::none();
        let mut wanted = Vec::new();
        for kind in kinds.iter().copied() {
            match std::env::var_os(kind.variable()).filter(|url| !url.is_empty()) {
                Some(url) => servers.variables.push((kind.variable(), url.to_string_lossy().into_owned())),
                None => wanted.push(kind),
            }
        }
        if !wanted.is_empty() {
            install::ensure(&wanted)?;
            servers.begin(&wanted)?;
        }
        Ok(servers)
    }

    /// Starts the keeper and waits until its servers answer.
    fn begin(&mut self, wanted: &[Kind]) -> Result<(), Failed> {
        let failed = |why: String| Failed(format!("the servers for the tests do not start: {why}"));
        let own = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(own);
        command.arg(keep::COMMAND).args(wanted.iter().map(|kind| kind.word()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut keeper = command.spawn().map_err(|error| failed(error.to_string()))?;
        let urls = keeper.stdout.take();
        self.keeper = Some(keeper);
        let mut urls = urls.into_iter().flat_map(|pipe| BufReader::new(pipe).lines());
        for kind in wanted {
            match urls.next() {
                Some(Ok(url)) => self.variables.push((kind.variable(), url)),
                Some(Err(error)) => return Err(failed(error.to_string())),
                None => return Err(failed("see above".to_owned())),
            }
        }
        Ok(())
    }

    /// What tells a program where the servers are.
    pub(crate) fn variables(&self) -> &[(&'static str, String)] {
        &self.variables
    }

    /// Tells a program where the servers are.
    pub(crate) fn tell(&self, step: Step) -> Step {
        self.variables.iter().fold(step, |step, (name, url)| step.env(name, url))
    }

    /// The lines that tell a shell where the servers are.
    fn exports(&self) -> String {
        self.variables.iter().map(|(name, url)| format!("export {name}='{url}'\n")).collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            if let Err(error) = keeper.wait() {
                say(&format!("the servers for the tests may still run: {error}"));
            }
        }
    }
}

/// Starts the servers for somebody who runs the tests by hand, until Ctrl-C or
/// the end of the input.
pub(crate) fn run() -> Result<(), Failed> {
    let servers = Servers::start()?;
    let mut out = std::io::stdout().lock();
    out.write_all(servers.exports().as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failed(format!("the output is closed: {error}")))?;
    say("the servers run until Ctrl-C; give the lines above to the shell that runs the tests");
    keep::until_input_ends();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_for_a_shell() {
        let url = "postgres://countersign@127.0.0.1:5/postgres".to_owned();
        let servers = Servers { keeper: None, variables: vec![(Kind::Postgres.variable(), url)] };
        assert_eq!(
            servers.exports(),
            "export COUNTERSIGN_TEST_POSTGRES='postgres://countersign@127.0.0.1:5/postgres'\n"
        );
    }

    #[test]
    fn the_keeper_understands_what_it_is_told() {
        for kind in Kind::ALL.into_iter().chain([Kind::StockPostgres]) {
            assert_eq!(Kind::from_str(kind.word(), false), Ok(kind));
        }
    }
}
