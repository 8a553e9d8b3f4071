//! Starting a server, seeing that it answers, and stopping it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{Failed, say};

/// How long a server may take until it answers.
const START_MAX: Duration = Duration::from_secs(60);

/// How long a server may take to stop before it is killed.
const STOP_MAX: Duration = Duration::from_secs(15);

/// How often we look.
const PAUSE: Duration = Duration::from_millis(20);

/// How many ports are tried: somebody else may take one between our finding it
/// free and the server's opening it.
const PORTS_MAX: usize = 5;

/// How many lines of a log are shown.
const TAIL: usize = 20;

/// How to start a server.
pub(super) struct Plan<'a> {
    /// As people write it.
    pub(super) name: &'static str,
    /// The program, for a port; it writes its log to its output.
    pub(super) command: &'a dyn Fn(u16) -> Command,
    /// Where the log goes.
    pub(super) log: PathBuf,
    /// What the log says when the server is ready. Without it, somebody else's
    /// server on the port could be taken for ours.
    pub(super) ready: &'static str,
    /// Whether a server on the port answers.
    pub(super) answers: &'a dyn Fn(u16) -> bool,
}

/// A server that answered. It is stopped when this is dropped.
pub(super) struct Running {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

/// How an attempt ended.
enum Attempt {
    Answers,
    Ended(ExitStatus),
    TooLate,
}

impl Plan<'_> {
    /// Starts the server on a free port and waits until it answers.
    pub(super) fn start(self) -> Result<(Running, u16), Failed> {
        let failed = |why: String| Failed(format!("{} does not start: {why}", self.name));
        let broken = |error: std::io::Error| failed(error.to_string());
        let mut left = PORTS_MAX;
        loop {
            left -= 1;
            let port = free_port().map_err(broken)?;
            let log = File::create(&self.log).map_err(broken)?;
            let mut command = (self.command)(port);
            command.stdin(Stdio::null()).stdout(log.try_clone().map_err(broken)?).stderr(log);
            let mut child = command.spawn().map_err(broken)?;
            let why = match self.wait(&mut child, port) {
                Ok(Attempt::Answers) => return Ok((Running { name: self.name, child, log: self.log }, port)),
                Ok(Attempt::Ended(_)) if left > 0 && port_was_taken(&read(&self.log)) => continue,
                Ok(Attempt::Ended(status)) => format!("it ended with {status}"),
                Ok(Attempt::TooLate) => format!("it does not answer within {} s", START_MAX.as_secs()),
                Err(error) => error.to_string(),
            };
            stop(self.name, &mut child);
            return Err(failed(format!("{why}; its log ends with:\n{}", tail(&read(&self.log)))));
        }
    }

    fn wait(&self, child: &mut Child, port: u16) -> std::io::Result<Attempt> {
        let began = Instant::now();
        while began.elapsed() < START_MAX {
            if let Some(status) = child.try_wait()? {
                return Ok(Attempt::Ended(status));
            }
            if read(&self.log).contains(self.ready) && (self.answers)(port) {
                return Ok(Attempt::Answers);
            }
            thread::sleep(PAUSE);
        }
        Ok(Attempt::TooLate)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(Some(status)) = self.child.try_wait() {
            say(&format!("{} had ended with {status}; its log ends with:\n{}", self.name, tail(&read(&self.log))));
        } else {
            stop(self.name, &mut self.child);
        }
    }
}

/// Asks a server to end at once, which SIGINT does for both; kills it if it
/// does not.
fn stop(name: &str, child: &mut Child) {
    let ask = ["-c", r#"kill -s INT "$1""#, "sh", &child.id().to_string()].map(str::to_owned);
    let began = Instant::now();
    // Nobody else has waited for the child, so its number is still its own.
    if matches!(child.try_wait(), Ok(None))
        && Command::new("sh").args(ask).status().is_ok_and(|status| status.success())
    {
        while began.elapsed() < STOP_MAX {
            if matches!(child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(PAUSE);
        }
        say(&format!("{name} does not stop and is killed"));
    }
    if let Err(error) = child.kill().and_then(|()| child.wait()) {
        say(&format!("{name} may still run: {error}"));
    }
}

/// A port that nobody listens on now.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Whether a log says that somebody else had the port.
fn port_was_taken(log: &str) -> bool {
    log.to_lowercase().contains("address already in use")
}

fn read(log: &Path) -> String {
    fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The last lines of a text.
pub(super) fn tail(text: &str) -> String {
    let lines: Vec<_> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::place::Folder;
    use super::*;

    fn plan<'a>(place: &Folder, command: &'a dyn Fn(u16) -> Command) -> Plan<'a> {
        let log = place.path().join("log");
        Plan { name: "The server", command, log, ready: "open", answers: &|_| true }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_server_runs_until_it_is_dropped() {
        let place = Folder::new(&std::env::temp_dir()).expect("a folder");
        let (server, port) =
            plan(&place, &|_| shell("echo open; exec sleep 600")).start().unwrap_or_else(|Failed(why)| panic!("{why}"));
        assert_ne!(port, 0);
        let alive = format!("kill -0 {}", server.child.id());
        assert!(shell(&alive).stderr(Stdio::null()).status().expect("a shell").success());
        drop(server);
        assert!(!shell(&alive).stderr(Stdio::null()).status().expect("a shell").success());
    }

    #[test]
    fn a_server_that_ends_is_quoted() {
        let place = Folder::new(&std::env::temp_dir()).expect("a folder");
        let Err(Failed(why)) = plan(&place, &|_| shell("echo no room >&2; exit 3")).start() else {
            panic!("it did not start");
        };
        assert!(why.contains("The server does not start") && why.contains('3') && why.contains("no room"), "{why}");
    }

    #[test]
    fn another_port_is_tried_where_one_is_taken() {
        let place = Folder::new(&std::env::temp_dir()).expect("a folder");
        let mark = place.path().join("mark");
        let script = format!(
            "if [ -e {0} ]; then echo open; exec sleep 600; fi; touch {0}; echo Address already in use; exit 1",
            mark.display()
        );
        let started = plan(&place, &|_| shell(&script)).start();
        assert!(mark.exists() && started.is_ok());
    }

    #[test]
    fn only_the_last_lines_are_shown() {
        let text: String = (0..100).map(|line| format!("{line}\n")).collect();
        let shown = tail(&text);
        assert_eq!(shown.lines().count(), TAIL);
        assert!(shown.starts_with("80") && shown.ends_with("99"), "{shown}");
        assert_eq!(tail("\n"), "");
    }

    #[test]
    fn both_servers_words_for_a_taken_port_are_known() {
        assert!(port_was_taken("LOG:  could not bind IPv4 address \"127.0.0.1\": Address already in use"));
        assert!(port_was_taken(
            "# Warning: Could not create server TCP listening socket: bind: Address already in use"
        ));
        assert!(!port_was_taken("FATAL:  data directory has invalid permissions"));
    }
}
