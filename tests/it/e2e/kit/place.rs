//! A folder with a configuration, and the program run in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use countersign_kernel::time::Timestamp;

use countersign_worker::store::views::TokenRecord;
use countersign_worker::store::{EffectLedger, LedgerEntry, SqlStore, Store as _};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::binary::{program, with_flows};
use super::{Api, Letter};

/// A folder of its own, with what the program is started with there.
pub(crate) struct Place {
    folder: TempDir,
    program: &'static Path,
    variables: Vec<(String, String)>,
}

impl Place {
    /// An empty folder; the program listens on a free port of loopback.
    pub(crate) fn new() -> Self {
        Self::of(program())
    }

    /// An empty folder for the program with the tests' own flows.
    pub(crate) fn with_flows() -> Self {
        Self::of(with_flows())
    }

    fn of(program: &'static Path) -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a folder"), program, variables: Vec::new() };
        place.with("COUNTERSIGN_LISTEN", "127.0.0.1:0").with("COUNTERSIGN_LOG_FILTER", "info")
    }

    /// With a `countersign.toml`.
    pub(crate) fn configured(toml: &str) -> Self {
        let place = Self::new();
        place.configure(toml);
        place
    }

    /// Writes `countersign.toml`.
    pub(crate) fn configure(&self, toml: &str) {
        std::fs::write(self.path().join("countersign.toml"), toml).expect("written");
    }

    /// With a variable, which wins over an earlier one of that name.
    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.set(name, value);
        self
    }

    /// Sets a variable for what is started from now on.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.variables.push((name.to_owned(), value.into()));
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A file of the data folder.
    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.path().join("data").join(name)
    }

    /// Writes a file; returns its path as a word of a command line.
    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, content).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("COUNTERSIGN_") {
                command.env_remove(name);
            }
        }
        command.envs(self.variables.iter().cloned()).args(words).current_dir(self.path());
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Starts `countersign up` and reads where it listens.
    pub(crate) async fn up(&self) -> Server {
        self.up_with(&[]).await
    }

    /// As [`up`](Self::up), for a place where something else may still have
    /// the folder or the address: a command that found no server and works on
    /// the folder itself, or a test that was given the port in between.
    pub(crate) async fn up_again(&self) -> Server {
        super::eventually("a server that starts", || self.try_up(&[])).await
    }

    /// As [`up`](Self::up), with more words.
    pub(crate) async fn up_with(&self, words: &[&str]) -> Server {
        self.try_up(words).await.expect("where it listens")
    }

    /// Why it did not start is what it says of itself.
    async fn try_up(&self, words: &[&str]) -> Result<Server, String> {
        let log = std::fs::File::options().create(true).append(true).open(self.path().join("up.log")).expect("a log");
        let words: Vec<&str> = ["--json", "up"].iter().chain(words).copied().collect();
        let mut child = self.command(&words).stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let line = tokio::time::timeout(super::DEADLINE, lines.next_line()).await.expect("in time").expect("readable");
        let Some(line) = line else { panic!("`up` ended: {}", self.log()) };
        let shown: Value = serde_json::from_str(&line).expect("JSON");
        let Some(base) = shown["base_url"].as_str().map(str::to_owned) else { return Err(shown.to_string()) };
        let token_file = self.path().join(shown["token_file"].as_str().expect("the token's file"));
        let token = std::fs::read_to_string(token_file).expect("a token").trim().to_owned();
        Ok(Server { child, shown, api: Api::new(&base, Some(&token)), token })
    }

    /// What `up` has reported.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("up.log")).unwrap_or_default()
    }

    /// Runs a command to its end, with `--json`.
    pub(crate) async fn run(&self, words: &[&str]) -> Ended {
        Ended::of(self.start(words)).await
    }

    /// Runs a command to its end, as people do.
    pub(crate) async fn run_plain(&self, words: &[&str]) -> Ended {
        let mut command = self.command(words);
        Ended::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")).await
    }

    /// Starts a command with `--json` and lets it run; see [`Ended::of`].
    pub(crate) fn start(&self, words: &[&str]) -> Child {
        let words: Vec<&str> = std::iter::once("--json").chain(words.iter().copied()).collect();
        self.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    }

    /// SIGKILL to a command, and waits until it is gone.
    pub(crate) async fn kill(mut command: Child) {
        command.kill().await.expect("killed");
    }

    /// What the demo ledger has booked.
    pub(crate) async fn ledger(&self) -> Vec<LedgerEntry> {
        let ledger = EffectLedger::open(&self.data("ledger.db")).await.expect("a ledger");
        ledger.entries().await.expect("readable")
    }

    /// How often each body of the tests' own flows has run, by what it notes.
    pub(crate) fn journal(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for line in std::fs::read_to_string(self.path().join("journal.txt")).unwrap_or_default().lines() {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
        counts
    }

    /// How often one body has run.
    pub(crate) fn ran(&self, what: &str) -> u32 {
        self.journal().get(what).copied().unwrap_or_default()
    }

    /// Lets those bodies go on that wait for it.
    pub(crate) fn open(&self) {
        self.file("open", "");
    }

    /// The mails in the folder, in no order.
    pub(crate) fn mails(&self) -> Vec<Letter> {
        let Ok(entries) = std::fs::read_dir(self.data("mailbox")) else { return Vec::new() };
        let mails = entries.map(|entry| entry.expect("an entry").path());
        mails
            .filter(|path| path.extension().is_some_and(|extension| extension == "eml"))
            .map(|path| Letter::read(&std::fs::read(path).expect("a mail")))
            .collect()
    }

    /// Puts an API token into the database; `up` must not be running.
    pub(crate) async fn token(&self, name: &str, scopes: &[&str], graphs: Option<&[&str]>) -> String {
        std::fs::create_dir_all(self.path().join("data")).expect("a folder");
        let store = SqlStore::open(&self.data("countersign.db")).await.expect("a store");
        let token = format!("test-token-of-{name}-{}", "0".repeat(16));
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let record = TokenRecord { name: name.to_owned(), scopes: words(scopes), graphs: graphs.map(words) };
        let hash = countersign::api::hash_token(&token);
        store.put_token(&record, &hash, Timestamp::from_micros(0)).await.expect("kept");
        store.close().await;
        token
    }
}

/// A running `countersign up`. Killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// What it printed.
    pub(crate) shown: Value,
    /// Talks to it as the local administrator.
    pub(crate) api: Api,
    /// The local administrator's token.
    pub(crate) token: String,
}

impl Server {
    /// SIGKILL, and waits until the process is gone.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    /// Where it listens, `127.0.0.1:…`.
    pub(crate) fn address(&self) -> &str {
        self.api.base().trim_start_matches("http://")
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its exit code; none after a signal.
    pub(crate) code: Option<i32>,
    /// Its output, line by line as JSON where it is.
    pub(crate) lines: Vec<Value>,
    /// Its output.
    pub(crate) stdout: String,
    /// Its messages.
    pub(crate) stderr: String,
}

impl Ended {
    /// Waits for a command's end.
    pub(crate) async fn of(child: Child) -> Self {
        let output = tokio::time::timeout(super::DEADLINE * 3, child.wait_with_output()).await;
        let output = output.expect("in time").expect("it ran");
        let stdout = String::from_utf8(output.stdout).expect("UTF-8");
        Self {
            code: output.status.code(),
            lines: stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
            stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The one line that it printed.
    #[track_caller]
    pub(crate) fn line(&self) -> &Value {
        assert_eq!(self.lines.len(), 1, "{self:?}");
        &self.lines[0]
    }

    /// The summary of an `--each`.
    #[track_caller]
    pub(crate) fn summary(&self) -> &Value {
        &self.lines.last().unwrap_or_else(|| panic!("no output: {self:?}"))["summary"]
    }
}
