//! On the worker and a real database everything comes out as it does on the
//! kernel alone.

use std::path::Path;

use countersign_conformance::report::{Backend, ScenarioResult, Verdict, failures, text};
use countersign_conformance::{recordings, run};

/// What came of a scenario, without the ids in a difference.
fn outcome(result: &ScenarioResult) -> (&str, &'static str, &str) {
    let name = result.name.as_str();
    match &result.verdict {
        Verdict::Pass => (name, "passes", ""),
        Verdict::PassSafe => (name, "passes, safe", ""),
        Verdict::Deviates { reason, .. } => (name, "deviates", reason),
        Verdict::Skipped { reason } => (name, "skipped", reason),
        Verdict::Failed { .. } => (name, "failed", ""),
    }
}

async fn comes_out_as_in_memory(backend: Backend, dir: &Path, least: usize) {
    let stored = run(dir, backend, None).await;
    assert!(stored.len() >= least, "only {} scenarios were found", stored.len());
    assert_eq!(failures(&stored), 0, "\n{}", text(&stored));
    let memory = run(dir, Backend::Memory, None).await;
    assert_eq!(stored.iter().map(outcome).collect::<Vec<_>>(), memory.iter().map(outcome).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recording_comes_out_on_sqlite_as_in_memory() {
    comes_out_as_in_memory(Backend::Sqlite, &recordings(), 322).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recording_comes_out_on_postgres_as_in_memory() {
    comes_out_as_in_memory(Backend::Postgres, &recordings(), 322).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_from_the_rules_comes_out_on_either_as_in_memory() {
    for backend in [Backend::Sqlite, Backend::Postgres] {
        comes_out_as_in_memory(backend, &recordings().with_file_name("derived"), 17).await;
    }
}
