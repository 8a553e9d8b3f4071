//! Log lines, on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Starts logging, once per process.
pub(super) fn start(log: &Log) {
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // A line that cannot be written is lost. Saying so on the same stream
        // fails too, and panics in whatever work was to be reported.
        .log_internal_errors(false)
        .with_env_filter(EnvFilter::new(&log.filter));
    // Fails only if somebody started it before.
    let _present = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
