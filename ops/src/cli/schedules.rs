//! `schedules`: threads that are started by the clock.

use serde_json::Value;

use super::args::Schedules;
use super::client::Client;
use super::exit::Exit;
use super::failure::CliError;
use super::output::{Output, plain, table};
use super::threads::scalar;

pub(super) async fn run(client: &Client, output: Output, args: &Schedules) -> Result<Exit, CliError> {
    let (name, what) = match args {
        Schedules::List => return list(client, output).await,
        Schedules::Pause { schedule } => (schedule, "pause"),
        Schedules::Resume { schedule } => (schedule, "resume"),
        Schedules::Fire { schedule } => (schedule, "fire"),
    };
    let reply = client.schedule(name, what).await?;
    output.result(&reply, || match what {
        "fire" => format!("started: thread {}", plain(&scalar(&reply["thread_id"]))),
        "pause" => format!("paused: {}", plain(name)),
        _ => format!("goes on: {}", plain(name)),
    });
    Ok(Exit::Ok)
}

async fn list(client: &Client, output: Output) -> Result<Exit, CliError> {
    let found = client.schedules().await?;
    if output.is_json() {
        found.iter().for_each(|schedule| output.detail(schedule));
        return Ok(Exit::Ok);
    }
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    output.result(&Value::Null, || match rows.as_slice() {
        [] => "no schedules".to_owned(),
        rows => table(&["SCHEDULE", "GRAPH", "CRON", "ZONE", "NEXT", "LAST THREAD"], rows),
    });
    Ok(Exit::Ok)
}

fn row(schedule: &Value) -> Vec<String> {
    let next = if schedule["paused"] == true { "paused".to_owned() } else { scalar(&schedule["next_at"]) };
    let [name, graph, cron, zone, thread] =
        ["name", "graph", "cron", "zone", "last_thread"].map(|key| plain(&scalar(&schedule[key])));
    vec![name, graph, cron, zone, next, thread]
}
