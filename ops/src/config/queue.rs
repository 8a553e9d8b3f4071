//! The section of the queue: what carries jobs between processes.

use std::path::Path;

use countersign_notifier::Secret;
use countersign_worker::queue::Redis;

use super::StorePlace;
use super::reader::Section;

/// What carries jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    /// Where.
    pub place: QueuePlace,
    /// What the names of all that is kept in a Redis begin with.
    pub prefix: String,
}

/// Where jobs are on their way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueuePlace {
    /// In the store's database.
    Store,
    /// In a Redis, which gets them out of the store's database.
    Redis(RedisUrl),
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self { place: QueuePlace::Store, prefix: "countersign".to_owned() }
    }
}

/// What is expected of the URL.
const REMEDY: &str = "write redis://host:6379 or rediss://user:password@host:6379/0, or remove it: jobs are in the \
                      database of `store.url` then";

impl QueueSettings {
    pub(super) fn read(mut section: Section<'_>, store: &StorePlace, data_dir: &Path) -> Self {
        let default = Self::default();
        let prefix = section.parsed(
            "prefix",
            |prefix| Redis::new("redis://localhost", prefix).map(|_| prefix.to_owned()),
            "write a short name, as in team-a",
        );
        let prefix = prefix.unwrap_or(default.prefix);
        // The URL may hold a password, so no fault quotes it.
        let place = match section.text("url") {
            None => default.place,
            Some(url) => QueuePlace::parse(&url.value, &prefix, store, data_dir).unwrap_or_else(|problem| {
                section.reader().fault(url.place, problem, REMEDY);
                default.place
            }),
        };
        section.finish();
        Self { place, prefix }
    }

    /// The Redis that carries jobs, if one does.
    #[must_use]
    pub fn redis(&self) -> Option<Redis> {
        match &self.place {
            QueuePlace::Store => None,
            // It was read once already.
            QueuePlace::Redis(url) => Redis::new(url.whole.expose(), &self.prefix).ok(),
        }
    }
}

impl QueuePlace {
    fn parse(url: &str, prefix: &str, store: &StorePlace, data_dir: &Path) -> Result<Self, String> {
        if matches!(url.split_once(':'), Some(("redis" | "rediss", _))) {
            let redis = Redis::new(url, prefix).map_err(|error| format!("this is no URL of a Redis: {error}"))?;
            return Ok(Self::Redis(RedisUrl { whole: Secret::new(url), shown: redis.to_string() }));
        }
        match StorePlace::parse(url) {
            Ok(place) if place.shown(data_dir) == store.shown(data_dir) => Ok(Self::Store),
            Ok(_) => Err("jobs that are in a database are in that of `store.url`, and this is another one".to_owned()),
            Err(_) => Err("no queue of this kind is known".to_owned()),
        }
    }

    /// The queue as it may be shown: without a password. `None` when it is in the
    /// store's database.
    #[must_use]
    pub fn shown(&self) -> Option<&str> {
        match self {
            Self::Store => None,
            Self::Redis(url) => Some(&url.shown),
        }
    }
}

/// The URL of a Redis. Shown without its password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisUrl {
    whole: Secret,
    shown: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str, store: &str) -> Result<QueuePlace, String> {
        let store = StorePlace::parse(store).expect("a store");
        QueuePlace::parse(url, "countersign", &store, Path::new("data"))
    }

    #[test]
    fn jobs_are_in_the_stores_database_or_in_a_redis() {
        let (file, server) = ("sqlite:a.db", "postgres://ann:hunter2@db/cases");
        for (url, store) in [(file, file), (server, server)] {
            assert_eq!(parse(url, store), Ok(QueuePlace::Store));
        }
        for (url, store) in [(file, server), (server, file), ("postgres://ann@db/others", server)] {
            let problem = parse(url, store).expect_err(url);
            assert!(problem.contains("`store.url`") && !problem.contains("hunter2"), "{problem}");
        }
        for (url, shown) in
            [("redis://cache", "redis://cache:6379/0"), ("rediss://ann:hunter2@cache:6380/2", "rediss://cache:6380/2")]
        {
            let place = parse(url, server).expect(url);
            assert_eq!(place.shown(), Some(shown));
            assert!(!format!("{place:?}").contains("hunter2"), "{place:?}");
        }
        for url in ["amqp://ann:hunter2@mq", "hunter2", "redis://:hunter2@cache/x", "redis:"] {
            let problem = parse(url, server).expect_err(url);
            assert!(!problem.contains("hunter2"), "{problem}");
        }
    }
}
