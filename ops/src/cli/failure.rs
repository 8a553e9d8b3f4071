//! Why a command did not do what it was asked.

use std::error::Error;
use std::fmt;

use serde_json::{Value, json};

use super::client::ClientError;
use super::exit::Exit;

/// A failure with its exit code and, where the server said it, its problem
/// document.
#[derive(Debug, Clone, PartialEq)]
pub struct CliError {
    /// How the process ends.
    pub exit: Exit,
    /// What happened and what to do, for people.
    pub message: String,
    /// What the server said (RFC 9457).
    pub problem: Option<Value>,
}

impl CliError {
    /// A failure without a problem document.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), problem: None }
    }

    /// A failure that is `error` and its causes.
    #[must_use]
    pub fn because(exit: Exit, error: &(dyn Error + 'static)) -> Self {
        Self::new(exit, chain(error))
    }

    /// The failure as `--json` prints it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({"error": {"exit_code": self.exit.code(), "message": self.message, "problem": self.problem}})
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for CliError {}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::Setup(_) => Exit::Failure,
            ClientError::Unreachable { .. } | ClientError::Lost { .. } => Exit::NoServer,
            ClientError::Unexpected { .. } => Exit::Failure,
            ClientError::Refused(problem) => match problem.status {
                404 => Exit::NotFound,
                400..=499 => Exit::Refused,
                _ => Exit::Failure,
            },
        };
        let problem = match &error {
            ClientError::Refused(problem) => serde_json::to_value(problem).ok(),
            _ => None,
        };
        Self { exit, message: chain(&error), problem }
    }
}

/// An error and its causes in one line, without repeating what a text already
/// says.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::client::Problem;

    fn refused(status: u16) -> ClientError {
        ClientError::Refused(Box::new(Problem { status, ..Problem::default() }))
    }

    #[test]
    fn what_the_server_said_decides_the_exit_code() {
        for (status, exit) in [
            (404, Exit::NotFound),
            (401, Exit::Refused),
            (409, Exit::Refused),
            (413, Exit::Refused),
            (422, Exit::Refused),
            (500, Exit::Failure),
        ] {
            assert_eq!(CliError::from(refused(status)).exit, exit, "{status}");
        }
        let unreachable = ClientError::Unreachable { server: "http://x".into(), reason: "refused".into() };
        assert_eq!(CliError::from(unreachable).exit, Exit::NoServer);
    }
}
