//! On the worker and a real SQLite file everything comes out as it does on the
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

async fn comes_out_as_in_memory(dir: &Path, least: usize) {
    let stored = run(dir, Backend::Sqlite, None).await;
    assert!(stored.len() >= least, "only {} scenarios were found", stored.len());
    assert_eq!(failures(&stored), 0, "\n{}", text(&stored));
    let memory = run(dir, Backend::Memory, None).await;
    for (stored, memory) in stored.iter().zip(&memory) {
        assert_eq!(outcome(stored), outcome(memory));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recording_comes_out_as_in_memory() {
    comes_out_as_in_memory(&recordings(), 322).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_from_the_rules_comes_out_as_in_memory() {
    comes_out_as_in_memory(&recordings().with_file_name("derived"), 17).await;
}
