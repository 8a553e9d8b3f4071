//! The section of the store: which database.

use std::fmt;
use std::path::{Path, PathBuf};

use countersign_notifier::Secret;

use super::reader::Section;

/// Where truth is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// Which database.
    pub place: StorePlace,
    /// How many connections this process may have to a server at most.
    pub connections: u32,
}

/// Which database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorePlace {
    /// The SQLite file in the data folder.
    Folder,
    /// A SQLite file elsewhere.
    File(PathBuf),
    /// A database on a Postgres server.
    Postgres(PostgresUrl),
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self { place: StorePlace::Folder, connections: 10 }
    }
}

/// The SQLite file in a data folder.
pub const DATABASE_FILE: &str = "countersign.db";

/// What is expected of the URL.
const REMEDY: &str = "write postgres://user@host:5432/database or sqlite:path/of/file.db";

impl StoreSettings {
    /// One connection listens, one writes, two read; fewer wait for each other.
    const CONNECTIONS_MIN: u64 = 4;

    pub(super) fn read(mut section: Section<'_>) -> Self {
        let default = Self::default();
        // The URL may hold a password, so no fault quotes it.
        let place = match section.text("url") {
            None => default.place,
            Some(url) => StorePlace::parse(&url.value).unwrap_or_else(|problem| {
                section.reader().fault(url.place, problem, REMEDY);
                default.place
            }),
        };
        let connections = section.whole("connections", default.connections.into(), Self::CONNECTIONS_MIN..=1_000);
        section.finish();
        Self { place, connections: u32::try_from(connections).unwrap_or(default.connections) }
    }
}

impl StorePlace {
    /// The database that a URL names.
    ///
    /// # Errors
    /// Why it names none, without what the URL says: it may hold a password.
    pub fn of_url(url: &str) -> Result<Self, String> {
        Self::parse(url).map_err(|problem| format!("{problem}; {REMEDY}"))
    }

    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let scheme = url.split_once(':').map(|(scheme, rest)| (scheme.to_ascii_lowercase(), rest));
        match scheme {
            Some((scheme, _)) if matches!(scheme.as_str(), "postgres" | "postgresql") => {
                PostgresUrl::parse(url).map(Self::Postgres)
            }
            Some((scheme, file)) if scheme == "sqlite" => {
                let file = file.strip_prefix("//").unwrap_or(file);
                if file.is_empty() || file.starts_with(':') || file.contains('?') {
                    return Err("it names no file".to_owned());
                }
                Ok(Self::File(PathBuf::from(file)))
            }
            Some((scheme, _)) if scheme == "redis" => {
                Err("Redis can carry jobs (`queue.url`), and cannot keep them".to_owned())
            }
            // What is no scheme may be anything.
            Some((scheme, _)) if scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
                Err(format!("there is no store of the kind `{scheme}:`"))
            }
            _ => Err("this is no URL".to_owned()),
        }
    }

    /// The database as it may be shown: without a password.
    #[must_use]
    pub fn shown(&self, data_dir: &Path) -> String {
        match self {
            Self::Folder => format!("sqlite:{}", data_dir.join(DATABASE_FILE).display()),
            Self::File(file) => format!("sqlite:{}", file.display()),
            Self::Postgres(url) => url.to_string(),
        }
    }
}

/// The URL of a database on a Postgres server. Shown without its password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    whole: Secret,
    shown: String,
}

/// What may stand behind the `?`. The driver passes over what it does not know
/// and logs it, with its value.
const PARAMETERS: [&str; 12] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];

impl PostgresUrl {
    fn parse(text: &str) -> Result<Self, String> {
        let url = reqwest::Url::parse(text).map_err(|error| format!("the URL cannot be read: {error}"))?;
        for (key, _) in url.query_pairs() {
            let known = PARAMETERS.contains(&&*key) || (key.starts_with("options[") && key.ends_with(']'));
            if !known {
                return Err("the URL has a parameter behind the `?` that Postgres does not know".to_owned());
            }
        }
        let parameter =
            |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        let user = parameter("user").unwrap_or_else(|| url.username().to_owned());
        let host = parameter("host").or_else(|| url.host_str().map(str::to_owned)).unwrap_or_default();
        let port = parameter("port").or_else(|| url.port().map(|port| port.to_string()));
        let database = parameter("dbname").unwrap_or_else(|| url.path().trim_start_matches('/').to_owned());
        let shown = format!(
            "postgres://{user}{at}{host}{port}/{database}",
            at = if user.is_empty() { "" } else { "@" },
            port = port.map(|port| format!(":{port}")).unwrap_or_default(),
        );
        Ok(Self { whole: Secret::new(text), shown })
    }

    /// The whole of it, for the driver.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.whole.expose()
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_which_database() {
        let parse = |url: &str| StorePlace::parse(url);
        assert_eq!(parse("sqlite:a/b.db"), Ok(StorePlace::File("a/b.db".into())));
        assert_eq!(parse("sqlite:///a/b.db"), Ok(StorePlace::File("/a/b.db".into())));
        for (url, shown) in [
            ("postgres://ann:hunter2@db.example.com:5433/cases", "postgres://ann@db.example.com:5433/cases"),
            ("postgresql://db/cases?sslmode=disable", "postgres://db/cases"),
            (
                "postgres:///cases?host=/run/postgresql&user=ann&password=hunter2",
                "postgres://ann@/run/postgresql/cases",
            ),
        ] {
            let place = parse(url).expect(url);
            assert_eq!(place.shown(Path::new("data")), shown);
            assert!(matches!(&place, StorePlace::Postgres(known) if known.expose() == url), "{url}");
            assert!(!format!("{place:?}").contains("hunter2"), "{place:?}");
        }
    }

    #[test]
    fn what_is_no_store_is_told_without_what_it_says() {
        for url in [
            "redis://:hunter2@cache",
            "mysql://ann:hunter2@db/cases",
            "hunter2",
            "hunter2 is my:password",
            "postgres://ann:hunter2@db:port/cases",
            "postgres://db/cases?pasword=hunter2",
            "sqlite:",
            "sqlite::memory:",
            "sqlite:a.db?mode=hunter2",
        ] {
            let problem = StorePlace::parse(url).expect_err(url);
            assert!(!problem.contains("hunter2"), "{problem}");
        }
        assert_eq!(StorePlace::parse("mysql://db"), Err("there is no store of the kind `mysql:`".to_owned()));
    }
}
