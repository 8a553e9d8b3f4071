//! Configuration: `countersign.toml`, overridden by the environment.
//!
//! [`DEFAULT_FILE`] is the reference; a test holds it to the defaults in code.
//! Loading reports everything that is wrong in one go. This is the one place
//! that reads the environment.

mod channels;
mod directory;
mod fault;
mod network;
mod queue;
mod reader;
mod retention;
mod schedules;
mod sections;
mod store;
#[cfg(test)]
mod tests;
mod variables;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use countersign_kernel::ports::Person;
use countersign_worker::store::commands::ScheduleSpec;
use toml::Table;

pub use self::channels::{Email, Smtp, Webhook};
pub use self::directory::{ADMINISTRATOR, ConfiguredDirectory, EVERY_ROLE};
pub use self::fault::{ConfigErrors, ConfigFault};
pub use self::network::Network;
use self::network::base_url;
pub use self::queue::{QueuePlace, QueueSettings, RedisUrl};
use self::reader::{Reader, Section};
pub use self::retention::Retention;
pub use self::sections::{Limits, LinkSettings, Log, LogFormat, Metrics, Worker};
pub use self::store::{DATABASE_FILE, PostgresUrl, StorePlace, StoreSettings};
pub use self::variables::{Environment, Variables};

/// Every setting with its default and its meaning, as a file to start from.
pub const DEFAULT_FILE: &str = include_str!("default.toml");

/// The file that is read when none is named.
pub const FILE_NAME: &str = "countersign.toml";

/// The configuration of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where the API and the pages listen.
    pub listen: SocketAddr,
    /// The folder of everything that is kept.
    pub data_dir: PathBuf,
    /// Where people reach the pages, if not at `listen`; see
    /// [`Config::public_url`].
    pub base_url: Option<String>,
    /// Whose forwarding headers are believed.
    pub trusted_proxies: Vec<Network>,
    /// What is reported on standard error.
    pub log: Log,
    /// Which database.
    pub store: StoreSettings,
    /// What carries jobs.
    pub queue: QueueSettings,
    /// What is refused for its size.
    pub limits: Limits,
    /// How the worker takes jobs.
    pub worker: Worker,
    /// How much of the past is kept.
    pub retention: Retention,
    /// Where metrics are served apart.
    pub metrics: Metrics,
    /// Personal links.
    pub links: LinkSettings,
    /// How mails are sent.
    pub email: Email,
    /// Endpoints that are told of every question.
    pub webhooks: Vec<Webhook>,
    /// Who is who.
    pub people: Vec<Person>,
    /// What the clock starts.
    pub schedules: Vec<ScheduleSpec>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8420)),
            data_dir: PathBuf::from("./data"),
            base_url: None,
            trusted_proxies: Vec::new(),
            log: Log::default(),
            store: StoreSettings::default(),
            queue: QueueSettings::default(),
            limits: Limits::default(),
            worker: Worker::default(),
            retention: Retention::default(),
            metrics: Metrics::default(),
            links: LinkSettings::default(),
            email: Email::default(),
            webhooks: Vec::new(),
            people: Vec::new(),
            schedules: Vec::new(),
        }
    }
}

/// The variables of this process, for [`Config::load`].
#[must_use]
pub fn environment() -> Environment {
    Environment
}

impl Config {
    /// Reads `file`, or [`FILE_NAME`] in the working directory if it exists,
    /// and the variables that `env` knows.
    ///
    /// # Errors
    /// All faults: a file that cannot be read, unknown keys, values that
    /// cannot be used, each with its place and what to do.
    pub fn load(file: Option<&Path>, env: &dyn Variables) -> Result<Self, ConfigErrors> {
        let path = file.unwrap_or(Path::new(FILE_NAME));
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &name, env),
            Err(error) if file.is_none() && error.kind() == std::io::ErrorKind::NotFound => Self::parse("", &name, env),
            Err(error) => {
                let reader = Reader::new(&name, env);
                reader.fault(&name, format!("the file cannot be read: {error}"), "name a readable file");
                Self::read(reader, Table::new()).0
            }
        }
    }

    /// The configuration that `text` and the variables describe; `name` is
    /// what faults call the file.
    ///
    /// # Errors
    /// All faults, as [`Config::load`] reports them.
    pub fn parse(text: &str, name: &str, env: &dyn Variables) -> Result<Self, ConfigErrors> {
        Self::parse_asked(text, name, env).0
    }

    fn parse_asked(text: &str, name: &str, env: &dyn Variables) -> (Result<Self, ConfigErrors>, Vec<String>) {
        let reader = Reader::new(name, env);
        let table = text.trim_start_matches('\u{feff}').parse::<Table>().unwrap_or_else(|error| {
            // Not the error's own text, which quotes the line: it may hold a
            // secret.
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            reader.fault(format!("{name}, line {line}"), error.message(), "correct the line; the format is TOML");
            Table::new()
        });
        Self::read(reader, table)
    }

    fn read(reader: Reader<'_>, table: Table) -> (Result<Self, ConfigErrors>, Vec<String>) {
        let config = Self::read_root(reader.root(table));
        variables::note_unknown(&reader);
        let (faults, asked) = reader.into_parts();
        (ConfigErrors::unless_none(faults, config), asked)
    }

    fn read_root(mut root: Section<'_>) -> Self {
        let default = Self::default();
        let listen = root.parsed("listen", str::parse, "write an IP address and a port, as in 127.0.0.1:8420");
        let data_dir = root.text("data_dir").map(|found| PathBuf::from(found.value));
        let base_url = root.parsed("base_url", base_url, "write scheme and host, as in https://approvals.example.com");
        let proxies = root.texts("trusted_proxies");
        let trusted_proxies = proxies.value.iter().filter_map(|text| match text.parse() {
            Ok(network) => Some(network),
            Err(error) => {
                root.reader().fault(&proxies.place, error, "write addresses or networks, as in 10.0.0.0/8");
                None
            }
        });
        let trusted_proxies = trusted_proxies.collect();
        let data_dir = data_dir.unwrap_or(default.data_dir);
        let store = StoreSettings::read(root.section("store"));
        let queue = QueueSettings::read(root.section("queue"), &store.place, &data_dir);
        let config = Self {
            listen: listen.unwrap_or(default.listen),
            data_dir,
            base_url,
            trusted_proxies,
            log: Log::read(root.section("log")),
            store,
            queue,
            limits: Limits::read(root.section("limits")),
            worker: Worker::read(root.section("worker")),
            retention: Retention::read(root.section("retention")),
            metrics: Metrics::read(root.section("metrics")),
            links: LinkSettings::read(root.section("links")),
            email: Email::read(root.section("email")),
            webhooks: Webhook::read(root.entries("webhooks")),
            people: channels::read_people(root.entries("people")),
            schedules: schedules::read(root.entries("schedules")),
        };
        root.finish();
        config
    }

    /// Where links in mails point: the configured base URL, else the
    /// configured address, else (port 0) the address that was `bound`. So the
    /// links of a command that ran without a server work once `up` runs.
    #[must_use]
    pub fn public_url(&self, bound: SocketAddr) -> String {
        if let Some(url) = &self.base_url {
            return url.clone();
        }
        let port = if self.listen.port() == 0 { bound.port() } else { self.listen.port() };
        if self.listen.ip().is_unspecified() {
            // "All addresses" is none that a browser can open.
            return format!("http://localhost:{port}");
        }
        format!("http://{}", SocketAddr::new(self.listen.ip(), port))
    }

    /// The folder that mails go to without a mail server.
    #[must_use]
    pub fn mailbox_dir(&self) -> PathBuf {
        self.data_dir.join("mailbox")
    }

    /// The file of the local administrator's API token.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.data_dir.join("token")
    }

    /// The people and endpoints as a directory.
    #[must_use]
    pub fn directory(&self) -> ConfiguredDirectory {
        ConfiguredDirectory::new(self.people.clone(), &self.webhooks)
    }
}
