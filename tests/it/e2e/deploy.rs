//! What `ops/deploy` has is about what there is.

use std::collections::BTreeSet;

use super::kit::Place;

const ALERTS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../ops/deploy/prometheus/alerts.yml"));

/// The words of the rules that begin as our metrics do.
fn named(rules: &str) -> BTreeSet<&str> {
    let words = rules.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("countersign_")).collect()
}

#[tokio::test]
async fn every_metric_of_the_alert_rules_is_there() {
    let place = Place::new();
    let server = place.up().await;
    // A flow and its samples are there once it has a thread.
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    server.api.delivered(&question).await;
    server.api.get("overview").await.is(200);
    let text = super::kit::eventually("the flow is counted", || async {
        let text = server.api.get("/metrics").await.text;
        if text.contains("countersign_requests_oldest_seconds{") { Ok(text) } else { Err(text) }
    })
    .await;
    let wanted = named(ALERTS);
    assert!(wanted.len() >= 12, "{wanted:?}");
    let typed: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let missing: Vec<_> = wanted
        .iter()
        .filter(|name| {
            let family = name.strip_suffix("_bucket").unwrap_or(name);
            !typed.contains(family)
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {typed:?}");
    // Also the labels that they choose by.
    for label in ["state=\"lost\"", "state=\"waiting\"", "status=\"held\"", "status=\"failed\""] {
        assert!(text.contains(label) && ALERTS.contains(label), "{label}");
    }
}
