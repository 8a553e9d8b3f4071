//! How the program ends, for scripts.

use std::process::ExitCode;

/// The exit codes; `--help` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// It did not work, for a reason that has no code of its own.
    Failure = 1,
    /// The command line, the configuration or an input cannot be understood.
    Usage = 2,
    /// Of many rows some failed; the others are done.
    SomeRowsFailed = 3,
    /// There is no such graph, thread or question.
    NotFound = 4,
    /// The server refused: a conflict, an invalid input or answer, no right.
    Refused = 5,
    /// The server cannot be reached or started.
    NoServer = 6,
    /// The time given with `--timeout` is over; the work goes on in the server.
    TimedOut = 7,
    /// Stopped by a signal.
    Interrupted = 130,
}

/// The list that ends `--help`; a test holds it to [`Exit`].
pub(super) const HELP: &str = "\
Exit codes:
    0  done
    1  failure
    2  the command line, the configuration or an input cannot be understood
    3  some of many rows failed; the others are done
    4  no such graph, thread or question
    5  refused: a conflict, an invalid input or answer, no right
    6  the server cannot be reached or started
    7  the time given with --timeout is over; the work goes on
  130  stopped by a signal

Environment: COUNTERSIGN_SERVER (like --server), COUNTERSIGN_TOKEN (an API token;
by default the one in <data>/token), COUNTERSIGN_CONFIG (like --config), and every
setting that `countersign config` shows.";

impl Exit {
    /// The number that the process returns.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_exactly_the_codes() {
        let all = [
            Exit::Ok,
            Exit::Failure,
            Exit::Usage,
            Exit::SomeRowsFailed,
            Exit::NotFound,
            Exit::Refused,
            Exit::NoServer,
            Exit::TimedOut,
            Exit::Interrupted,
        ];
        let listed: Vec<u8> = HELP.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
        assert_eq!(listed, all.map(Exit::code));
    }
}
