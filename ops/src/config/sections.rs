//! The sections of numbers and names: limits, worker, links, log.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::reader::Section;

/// What is refused for its size (R30).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest request body.
    pub body_bytes: u64,
    /// The largest request body with many answers.
    pub batch_body_bytes: u64,
    /// The largest payload of a question.
    pub payload_bytes: u64,
    /// The largest answer.
    pub answer_bytes: u64,
    /// The largest value of one key of a thread's state.
    pub state_key_bytes: u64,
    /// The most tasks side by side in one superstep.
    pub tasks_per_superstep: u64,
    /// The most supersteps of one run.
    pub supersteps_per_run: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            batch_body_bytes: 16 << 20,
            payload_bytes: 256 << 10,
            answer_bytes: 64 << 10,
            state_key_bytes: 4 << 20,
            tasks_per_superstep: 10_000,
            supersteps_per_run: 1_000,
        }
    }
}

/// SQLite's limit for one value, by its default settings.
const BYTES_MAX: u64 = 1_000_000_000;

impl Limits {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let default = Self::default();
        let limits = Self {
            body_bytes: section.whole("body_bytes", default.body_bytes, 1_024..=BYTES_MAX),
            batch_body_bytes: section.whole("batch_body_bytes", default.batch_body_bytes, 1_024..=BYTES_MAX),
            payload_bytes: section.whole("payload_bytes", default.payload_bytes, 1_024..=BYTES_MAX),
            answer_bytes: section.whole("answer_bytes", default.answer_bytes, 64..=BYTES_MAX),
            state_key_bytes: section.whole("state_key_bytes", default.state_key_bytes, 1_024..=BYTES_MAX),
            tasks_per_superstep: section.whole("tasks_per_superstep", default.tasks_per_superstep, 1..=1_000_000),
            supersteps_per_run: section.whole("supersteps_per_run", default.supersteps_per_run, 1..=1_000_000_000),
        };
        if limits.answer_bytes > limits.body_bytes {
            section.reader().fault(
                section.place("answer_bytes"),
                format!("an answer of {} bytes does not fit into a body", limits.answer_bytes),
                format!("lower it, or raise `limits.body_bytes` ({})", limits.body_bytes),
            );
        }
        section.finish();
        limits
    }
}

/// How the worker takes jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker {
    /// How many threads run at the same time in this process.
    pub concurrency: usize,
    /// How long a thread stays with a process that stopped answering.
    pub lease: Duration,
    /// How often the queue is looked at when nothing wakes the worker.
    pub poll_interval: Duration,
    /// How often a thread may lose its worker without progress before it is
    /// held.
    pub max_attempts: u32,
    /// Whether events are kept for those who watch threads.
    pub events: bool,
    /// How long.
    pub keep_events: Duration,
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            concurrency: 64,
            lease: Duration::from_secs(15),
            poll_interval: Duration::from_millis(500),
            max_attempts: 5,
            events: true,
            keep_events: Duration::from_hours(168),
        }
    }
}

impl Worker {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let default = Self::default();
        let concurrency = section.whole("concurrency", 64, 1..=10_000);
        let worker = Self {
            concurrency: usize::try_from(concurrency).unwrap_or(default.concurrency),
            lease: Duration::from_secs(section.whole("lease_seconds", default.lease.as_secs(), 1..=3_600)),
            poll_interval: Duration::from_millis(section.whole("poll_interval_ms", 500, 10..=60_000)),
            max_attempts: u32::try_from(section.whole("max_attempts", 5, 1..=1_000)).unwrap_or(default.max_attempts),
            events: section.flag("events", default.events),
            keep_events: Duration::from_hours(section.whole("keep_events_hours", 168, 1..=87_600)),
        };
        section.finish();
        worker
    }
}

/// Where metrics are served apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Where `/metrics` and the probes listen, beside the address of the pages if
    /// there are any.
    pub listen: Option<SocketAddr>,
}

impl Metrics {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let listen = section.parsed("listen", str::parse, "write an IP address and a port, as in 127.0.0.1:9420");
        section.finish();
        Self { listen }
    }
}

/// Personal links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSettings {
    /// How long a link works.
    pub valid_for: Duration,
    /// The file of the keys that links are signed with, if not the one that the
    /// data folder makes.
    pub secret_file: Option<PathBuf>,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self { valid_for: Duration::from_hours(720), secret_file: None }
    }
}

impl LinkSettings {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let hours = section.whole("valid_for_hours", 720, 1..=87_600);
        let secret_file = section.text("secret_file").map(|found| PathBuf::from(found.value));
        section.finish();
        Self { valid_for: Duration::from_hours(hours), secret_file }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// What is reported on standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Levels, as `tracing` writes them: `info`, `warn,countersign=debug`.
    pub filter: String,
    /// How lines look.
    pub format: LogFormat,
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "warn,countersign=info".to_owned(), format: LogFormat::Text }
    }
}

impl Log {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let default = Self::default();
        let filter = |text: &str| tracing_subscriber::EnvFilter::try_new(text).map(|_| text.to_owned());
        let format = |text: &str| match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("there is no such format"),
        };
        let log = Self {
            filter: section
                .parsed("filter", filter, "write a level (error, warn, info, debug, trace) or `module=level,…`")
                .unwrap_or(default.filter),
            format: section.parsed("format", format, "write `text` or `json`").unwrap_or(default.format),
        };
        section.finish();
        log
    }
}
