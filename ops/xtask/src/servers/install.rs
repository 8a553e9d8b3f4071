//! Installing what is missing, where that is possible.

use std::process::{Command, Stdio};

use super::place::is_root;
use super::{Kind, find};
use crate::process::{Failed, say};

/// Installs by apt-get, without a question and without starting any service.
const APT: &str = include_str!("apt.sh");

/// Sees that the servers' programs are there. Root on Debian or its kin gets
/// them installed; others are told what to install.
pub(super) fn ensure(kinds: &[Kind]) -> Result<(), Failed> {
    let missing = missing(kinds);
    if missing.is_empty() {
        return Ok(());
    }
    if !is_root() || find::program("apt-get").is_none() {
        return Err(Failed(advice(&missing)));
    }
    let packages: Vec<_> = missing.iter().map(|kind| package(*kind)).collect();
    say(&format!("the tests need {}: installing {} by apt-get", names(&missing), packages.join(" ")));
    let status = Command::new("sh")
        .args(["-c", APT, "apt.sh"])
        .args(packages)
        .stdin(Stdio::null())
        .status()
        .map_err(|error| Failed(format!("sh cannot be run: {error}")))?;
    let missing = self::missing(kinds);
    match (status.success(), missing.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => Err(Failed(advice(&missing))),
        (false, _) => Err(Failed(format!("apt-get ended with {status}; {}", advice(&missing)))),
    }
}

fn missing(kinds: &[Kind]) -> Vec<Kind> {
    let found = |kind: Kind| match kind {
        Kind::Postgres | Kind::StockPostgres => find::postgres().is_some(),
        Kind::Redis => find::program("redis-server").is_some(),
    };
    kinds.iter().copied().filter(|kind| !found(*kind)).collect()
}

/// Debian's package.
const fn package(kind: Kind) -> &'static str {
    match kind {
        Kind::Postgres | Kind::StockPostgres => "postgresql",
        Kind::Redis => "redis-server",
    }
}

fn names(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" and ")
}

/// What somebody has to do whom we cannot help.
fn advice(missing: &[Kind]) -> String {
    let mut text = format!("the tests need {}, and cannot find it.", names(missing));
    for kind in missing {
        let (programs, tests, more) = match kind {
            Kind::Postgres => (
                "`initdb` and `postgres`",
                "the tests of the store and of the queue on Postgres",
                " with the extensions hstore and pgcrypto (`postgresql-contrib` on some systems)",
            ),
            Kind::Redis => ("`redis-server`", "the tests of the queue on Redis", ""),
            Kind::StockPostgres => ("`initdb` and `postgres`", "measuring on Postgres", ""),
        };
        text += &format!(
            "\n  {}: for {tests}. Install `{}`{more}, which\n    has {programs}, or name a server in {}.",
            kind.name(),
            package(*kind),
            kind.variable()
        );
    }
    text += "\n  No service has to run: the tests start servers of their own. On Debian or Ubuntu, root gets them\n  \
             installed by `cargo xtask test`.";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_names_the_package_the_tests_and_the_way_around() {
        let text = advice(&[Kind::Redis]);
        for word in ["Redis", "redis-server", "the queue on Redis", "COUNTERSIGN_TEST_REDIS"] {
            assert!(text.contains(word), "{word} in {text}");
        }
        assert!(!text.contains("Postgres"), "{text}");
    }

    #[test]
    fn the_advice_names_all_that_is_missing() {
        let text = advice(&Kind::ALL);
        for word in ["Postgres and Redis", "initdb", "hstore", "pgcrypto", "COUNTERSIGN_TEST_POSTGRES"] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }
}
