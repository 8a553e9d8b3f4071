//! A Redis server that keeps everything in memory.

use super::place::Place;
use super::running::{Plan, Running};
use super::{find, probe};
use crate::process::Failed;

/// Starts the server. Returns its URL too.
pub(super) fn start(place: &Place) -> Result<(Running, String), Failed> {
    let program = find::program("redis-server").ok_or_else(|| Failed("`redis-server` is not found".to_owned()))?;
    let data = place.make("redis")?;
    let plan = Plan {
        name: "Redis",
        command: &|port| {
            let mut command = place.command(&program);
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            command.arg("--dir").arg(&data);
            command
        },
        log: place.join("redis.log"),
        ready: "Ready to accept connections",
        answers: &|port| probe::redis(port).is_ok(),
    };
    let (server, port) = plan.start()?;
    Ok((server, format!("redis://127.0.0.1:{port}")))
}
