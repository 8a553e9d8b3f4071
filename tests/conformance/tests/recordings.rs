//! The recordings that belong to the project, and proof that the runner can
//! fail.

use std::path::Path;

use countersign_conformance::deviations::Deviations;
use countersign_conformance::langgraph::model::Scenario;
use countersign_conformance::langgraph::play::Profile;
use countersign_conformance::langgraph::{attempt, open, run};
use countersign_conformance::recordings;
use countersign_conformance::report::{Backend, Verdict, failures, text};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn every_recording_holds_in_memory() {
    let results = run(&recordings(), Backend::Memory, None).await;
    assert!(results.len() >= 278, "only {} scenarios were found", results.len());
    assert_eq!(failures(&results), 0, "\n{}", text(&results));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_from_the_rules_holds_in_memory() {
    let results = run(&recordings().with_file_name("derived"), Backend::Memory, None).await;
    assert!(results.len() >= 15, "only {} scenarios were found", results.len());
    assert!(results.iter().all(|result| result.verdict == Verdict::Pass), "\n{}", text(&results));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_deviations_names_nothing_that_does_not_deviate() {
    let results = run(&recordings(), Backend::Memory, None).await;
    let deviates = |name: &str| {
        results.iter().any(|result| result.name == name && matches!(result.verdict, Verdict::Deviates { .. }))
    };
    for deviation in Deviations::own().expect("a list").iter() {
        for name in &deviation.names {
            assert!(deviates(name), "{name} does not deviate any more");
        }
    }
}

fn recorded(name: &str) -> Value {
    let file = recordings().join("scenarios").join(format!("{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(file).expect("a recording")).expect("JSON")
}

async fn plays(scenario: &Value) -> Result<(), String> {
    let scenario: Scenario = serde_json::from_value(scenario.clone()).expect("a scenario");
    attempt(&scenario, Profile::Recorded, &[], &|program| open(Backend::Memory, program)).await.map(|_| ())
}

/// Each part of an expectation, made wrong, is found, and named.
#[tokio::test]
async fn a_wrong_expectation_is_found() {
    for (name, action, at, wrong, member) in [
        ("interrupt.basic", 0, "/expect/values", json!({"log": ["a"]}), "values"),
        ("interrupt.basic", 0, "/expect/next", json!([]), "next"),
        ("interrupt.basic", 0, "/expect/status", json!("pending"), "status"),
        ("interrupt.basic", 0, "/expect/interrupts/0/payload", json!("p"), "interrupts"),
        ("interrupt.basic", 0, "/expect/interrupts", json!([]), "interrupts"),
        ("interrupt.basic", 0, "/expect/error", json!({"class": "other"}), "error"),
        ("interrupt.basic", 0, "/expect/visits/ask", json!([0, 0]), "visits of ask"),
        ("interrupt.basic", 0, "/expect/visits", json!({}), "visits of"),
        ("error.keeps_checkpoint", 0, "/expect/error", Value::Null, "error"),
        ("subgraph.interrupt", 0, "/expect/subgraphs", json!({}), "subgraphs"),
        ("subgraph.interrupt", 0, "/expect/interrupts/0/path", json!(["sub"]), "interrupts"),
    ] {
        let mut scenario = recorded(name);
        assert_eq!(plays(&scenario).await, Ok(()), "{name} as recorded");
        let place = format!("/actions/{action}{at}");
        *scenario.pointer_mut(&place).unwrap_or_else(|| panic!("{name} has no {place}")) = wrong;
        let difference = plays(&scenario).await.expect_err("the expectation is wrong");
        assert!(difference.contains(&format!("\n  {member}")), "{name} {place}: {difference}");
        assert!(difference.starts_with(&format!("action {action}: ")), "{difference}");
    }
}

#[tokio::test]
async fn a_wrong_history_is_found() {
    let name = "history.loop_and_update";
    let last = recorded(name)["actions"].as_array().expect("actions").len() - 1;
    for (member, wrong) in [("parent", json!(0)), ("next", json!(["x"])), ("values", json!({}))] {
        let mut scenario = recorded(name);
        scenario["actions"][last]["expect"]["history"][1][member] = wrong;
        let difference = plays(&scenario).await.expect_err("the expectation is wrong");
        assert!(difference.contains("history, entry 1"), "{difference}");
    }
    let mut scenario = recorded(name);
    scenario["actions"][last]["expect"]["history"].as_array_mut().expect("a list").remove(0);
    assert!(plays(&scenario).await.is_err());
}

/// In a folder of somebody else a deviation of a choice scenario is named and
/// does not fail; one of a core scenario, and a file that is none, fail.
#[tokio::test]
async fn folders_of_others_are_judged_by_level() {
    let folder = tempfile::tempdir().expect("a folder");
    let put = |file: &str, scenario: &Value| {
        std::fs::write(folder.path().join(file), scenario.to_string()).expect("a file");
    };
    let mut scenario = recorded("interrupt.basic");
    scenario["actions"][0]["expect"]["next"] = json!([]);
    scenario["name"] = json!("theirs.core");
    put("core.json", &scenario);
    scenario["name"] = json!("theirs.choice");
    scenario["level"] = json!("choice");
    put("choice.json", &scenario);
    put("none.json", &json!({"format": 1}));
    let results = run(folder.path(), Backend::Memory, None).await;
    let verdict = |name: &str| {
        let result = results.iter().find(|result| result.name.ends_with(name));
        result.unwrap_or_else(|| panic!("no result for {name}")).verdict.clone()
    };
    assert!(matches!(verdict("theirs.core"), Verdict::Failed { .. }));
    assert!(matches!(verdict("theirs.choice"), Verdict::Deviates { reason, .. } if reason == "not in the list"));
    assert!(matches!(verdict("none.json"), Verdict::Failed { .. }));
    assert_eq!(results.len(), 3);
}

#[tokio::test]
async fn an_empty_folder_has_no_scenarios_and_a_missing_one_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(run(folder.path(), Backend::Memory, None).await.is_empty());
    let missing = run(Path::new("no/such/folder"), Backend::Memory, None).await;
    assert_eq!(failures(&missing), 1);
}
