//! Recorded scenarios of reference systems, run on the public API.
//!
//! `recordings/README.md` describes the format of [`langgraph`]'s files,
//! `recordings/eino.md` that of [`eino`]'s. `deviations.toml` lists where the
//! kernel differs on purpose, and why.

use std::path::{Path, PathBuf};

mod data;
pub mod deviations;
pub mod eino;
pub mod langgraph;
pub mod report;
pub mod stored;

use self::report::{Backend, ScenarioResult};

/// Scenarios that run side by side: each has threads and a data file, or a
/// database, of its own.
const AT_ONCE: usize = 8;

/// The recordings that belong to the project.
#[must_use]
pub fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings")
}

/// Whether `dir` is the project's own folder: there, every deviation has to be
/// in the list.
#[must_use]
pub fn is_ours(dir: &Path) -> bool {
    let own = recordings();
    matches!((dir.canonicalize(), own.canonicalize()), (Ok(dir), Ok(own)) if dir.starts_with(&own))
}

/// Runs every scenario of both formats in `dir` whose name is `only`, or
/// contains it if none is called just that.
///
/// Files lie in the layout of `recordings`, or directly in `dir`; any of them
/// may be missing.
pub async fn run(dir: &Path, backend: Backend, only: Option<&str>) -> Vec<ScenarioResult> {
    let mut results = langgraph::run(dir, backend, only).await;
    results.extend(eino::run(dir, backend, only).await);
    results
}
