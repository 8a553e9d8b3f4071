//! The whole server in one process: a placeholder until the parts are wired.

use crate::config::Config;

/// What to start.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether to start some sample threads.
    pub demo: bool,
    /// Where to listen.
    pub port: Port,
}

/// Where to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// At the configured address.
    Configured,
    /// On loopback, at a port that the system chooses.
    Ephemeral,
}

/// A server of this process.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub base_url: String,
    /// An API token of the local administrator.
    pub token: String,
    /// Signs the local administrator in.
    pub sign_in_link: String,
}

impl Running {
    /// Stops gracefully.
    pub async fn stop(self) {}
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another server owns the data folder.
    #[error("a server runs on this folder already, at {address}")]
    AlreadyRunning {
        /// Where it listens, as a URL.
        address: String,
    },
    /// This build cannot.
    #[error("this build has no server yet")]
    NotBuilt,
}

/// Starts everything.
///
/// # Errors
/// The server cannot start.
pub async fn start(_config: &Config, _options: Options) -> Result<Running, StartError> {
    Err(StartError::NotBuilt)
}

/// Brings the database up to date; the names of what was applied.
///
/// # Errors
/// Another server owns the folder, or the database cannot be opened.
pub async fn migrate(_config: &Config) -> Result<Vec<String>, StartError> {
    Err(StartError::NotBuilt)
}
