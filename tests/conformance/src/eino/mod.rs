//! Scenarios of the format in `recordings/eino.md`, part 2.
//!
//! An app of a scenario becomes a graph of ours, written on the public API as
//! any user could: scripts as components that suspend, tool batches as batches,
//! composites and agents as parts with segments of their own, graphs inside
//! bodies as frames (R15). What the format counts is counted outside the kernel.
//! Our kernel is held to `expect`, overridden by `kernel`; the K8
//! switch is not built, so Eino's own `ran` is not compared where it differs.

mod agent;
mod app;
mod body;
mod composite;
mod expect;
mod flow;
mod graph;
mod ledger;
mod memory;
mod model;
mod place;
mod rulings;
mod run;
mod script;
mod shared;
mod stored;
mod subject;
mod tools;

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use serde_json::Value;

use self::memory::Memory;
use self::model::{FORMAT, File, Scenario};
use self::stored::Stored;
use crate::report::{Backend, Format, Level, ScenarioResult, Verdict};
use crate::stored::On;

/// The file's name, in every layout.
const FILE: &str = "eino-scenarios.json";

/// A scenario that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs the scenarios of `dir`. `only` names one of them, or a part of their
/// names.
///
/// A folder without the file has none. A file or a scenario that cannot be read
/// is a failed result.
pub async fn run(dir: &Path, backend: Backend, only: Option<&str>) -> Vec<ScenarioResult> {
    let path = dir.join(FILE);
    if !path.exists() {
        return Vec::new();
    }
    let scenarios = match read(&path) {
        Ok(scenarios) => scenarios,
        Err(problem) => return vec![result(FILE.to_owned(), Verdict::failed(problem))],
    };
    let name = |value: &Value| value.get("id").and_then(Value::as_str).unwrap_or(FILE).to_owned();
    let exact = scenarios.iter().any(|scenario| Some(name(scenario).as_str()) == only);
    let wanted = |name: &str| only.is_none_or(|only| if exact { name == only } else { name.contains(only) });
    let runs = scenarios.iter().filter(|scenario| wanted(&name(scenario))).map(|scenario| async move {
        let run = tokio::time::timeout(LONGEST, one(scenario, backend)).await;
        let verdict = run.unwrap_or_else(|_| Verdict::failed(format!("not at rest after {LONGEST:?}")));
        result(name(scenario), verdict)
    });
    stream::iter(runs).buffered(crate::AT_ONCE).collect().await
}

async fn one(value: &Value, backend: Backend) -> Verdict {
    let scenario = match Scenario::read(value) {
        Ok(scenario) => scenario,
        Err(problem) => return Verdict::failed(format!("it cannot be read: {problem}")),
    };
    match backend {
        Backend::Memory => run::run(&scenario, async |app| Ok(Memory::new(app))).await,
        Backend::Sqlite => run::run(&scenario, async |app| Stored::open(On::Sqlite, app).await).await,
        Backend::Postgres => run::run(&scenario, async |app| Stored::open(On::Postgres, app).await).await,
        Backend::Redis => run::run(&scenario, async |app| Stored::open(On::Redis, app).await).await,
    }
}

fn read(path: &PathBuf) -> Result<Vec<Value>, String> {
    let text = std::fs::read_to_string(path).map_err(|problem| problem.to_string())?;
    let file: File = serde_json::from_str(&text).map_err(|problem| problem.to_string())?;
    if file.format != FORMAT {
        return Err(format!("the format is `{}`, not `{FORMAT}`", file.format));
    }
    Ok(file.scenarios)
}

fn result(name: String, verdict: Verdict) -> ScenarioResult {
    ScenarioResult { name, format: Format::Eino, level: Level::Core, verdict }
}

#[cfg(test)]
mod tests;
