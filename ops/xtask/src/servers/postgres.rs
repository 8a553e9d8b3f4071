//! A Postgres server: quick, and worth nothing after a crash; or as it ships.

use std::path::Path;

use super::place::Place;
use super::running::{Plan, Running, tail};
use super::{find, probe};
use crate::process::Failed;

/// The role that owns everything.
const ROLE: &str = "countersign";

/// Where it listens: on a port that nobody else has, and nowhere else.
const PLACE: [&str; 2] = ["listen_addresses=127.0.0.1", "unix_socket_directories="];

/// What differs from the defaults for tests: many at once, nothing to survive.
pub(super) const QUICK: [&str; 5] =
    ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=400", "shared_buffers=128MB"];

/// Extensions that tests create; they are a package of their own on some
/// systems.
const EXTENSIONS: [&str; 2] = ["hstore", "pgcrypto"];

/// Makes a database cluster and starts the server with these settings beside the
/// defaults. Returns its URL too.
pub(super) fn start(place: &Place, settings: &[&str]) -> Result<(Running, String), Failed> {
    let programs = find::postgres().ok_or_else(|| Failed("`initdb` and `postgres` are not found".to_owned()))?;
    let data = place.make("postgres")?;
    initialize(place, &programs, &data)?;
    let plan = Plan {
        name: "Postgres",
        command: &|port| {
            let mut command = place.command(&programs.join("postgres"));
            command.arg("-D").arg(&data).arg("-p").arg(port.to_string());
            command.args(PLACE.iter().chain(settings).flat_map(|setting| ["-c", setting]));
            command
        },
        log: place.join("postgres.log"),
        ready: "database system is ready to accept connections",
        answers: &|port| probe::postgres(port, ROLE, "select 1").is_ok_and(|rows| rows == ["1"]),
    };
    let (server, port) = plan.start()?;
    let has = probe::postgres(port, ROLE, "select name from pg_available_extensions")
        .map_err(|error| Failed(format!("Postgres does not say which extensions it has: {error}")))?;
    let lacks: Vec<_> = EXTENSIONS.into_iter().filter(|name| !has.iter().any(|has| has == name)).collect();
    if !lacks.is_empty() {
        return Err(Failed(format!(
            "Postgres lacks the extensions {}: install its package `postgresql-contrib`",
            lacks.join(" and ")
        )));
    }
    Ok((server, format!("postgres://{ROLE}@127.0.0.1:{port}/postgres")))
}

fn initialize(place: &Place, programs: &Path, data: &Path) -> Result<(), Failed> {
    let output = place
        .command(&programs.join("initdb"))
        .args(["--username", ROLE, "--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--pgdata"])
        .arg(data)
        .output()
        .map_err(|error| Failed(format!("initdb cannot be run: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(Failed(format!(
        "initdb ended with {}; it said last:\n{}",
        output.status,
        tail(&String::from_utf8_lossy(&said))
    )))
}
