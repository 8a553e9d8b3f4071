//! The runner on the project's recordings, on changed ones, and on scenarios
//! of our own for what the recordings leave out.

mod changed;
mod more_agents;
mod more_graphs;
mod more_requests;

use serde_json::json;

use super::*;
use crate::report::text;

fn recorded() -> Vec<Value> {
    read(&crate::recordings().join(FILE)).expect("the recordings")
}

/// Runs an app of our own and asserts that its steps hold.
#[track_caller]
fn assert_holds(app: &Value, steps: &[Value]) {
    let scenario = json!({"id": "own", "title": "own", "rules": [], "sure": "", "app": app, "steps": steps});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let verdict = runtime.block_on(async { tokio::time::timeout(LONGEST, one(&scenario, Backend::Memory)).await });
    let verdict = verdict.expect("no body hangs");
    assert_eq!(verdict, Verdict::Pass, "{}", text(&[result("own".into(), verdict.clone())]));
    let scenario = Scenario::read(&scenario).expect("readable");
    let restarted = run::run(&scenario, async |app| Ok(Memory::restarting(app)));
    let verdict = runtime.block_on(async { tokio::time::timeout(LONGEST, restarted).await });
    let verdict = verdict.expect("no body hangs");
    assert_eq!(verdict, Verdict::Pass, "{}", text(&[result("own, restarted".into(), verdict.clone())]));
    let stored = run::run(&scenario, async |app| Stored::open(On::Sqlite, app).await);
    let verdict = runtime.block_on(async { tokio::time::timeout(LONGEST, stored).await });
    let verdict = verdict.expect("no body hangs");
    assert_eq!(verdict, Verdict::Pass, "{}", text(&[result("own, on sqlite".into(), verdict.clone())]));
}

/// A graph app.
fn graph(nodes: &Value, edges: &Value) -> Value {
    json!({"kind": "graph", "graph": {"name": "root", "nodes": nodes, "edges": edges}})
}

fn agent(agent: &Value) -> Value {
    json!({"kind": "agent", "agent": agent})
}

/// A script that asks `info` and says what it was told.
fn asking(info: &str) -> Value {
    json!({"fresh": [{"interrupt": {"info": info, "state": "s"}}], "target": [{"return": "ok(${data})"}],
        "target_bare": [{"return": "bare"}]})
}

fn saying(value: &str) -> Value {
    json!({"fresh": [{"return": value}]})
}

fn body(script: &Value) -> Value {
    json!({"kind": "body", "script": script})
}

fn input(input: &str) -> Value {
    json!({"run": {"input": input}})
}

fn answer(name: &str, data: &str) -> Value {
    json!({"resume": {"targets": {name: {"data": data}}}})
}

fn step(action: &Value, expect: &Value) -> Value {
    json!({"do": action, "expect": expect})
}

/// An expected point.
fn waits(name: &str, address: &[&str], info: &str) -> Value {
    json!({"ref": name, "address": address, "info": info})
}

#[tokio::test]
async fn every_recorded_scenario_holds_in_memory() {
    let results = super::run(&crate::recordings(), Backend::Memory, None).await;
    assert_eq!(results.len(), 44);
    let failed = results.iter().filter(|result| result.verdict.is_failure()).count();
    assert_eq!(failed, 0, "\n{}", text(&results));
    let deviating: Vec<&str> = results
        .iter()
        .filter(|result| matches!(result.verdict, Verdict::Deviates { .. }))
        .map(|result| result.name.as_str())
        .collect();
    assert_eq!(deviating, ["E20"], "every ruling is needed, and no more");
}

#[tokio::test]
async fn every_recorded_scenario_holds_with_a_restart_before_each_step() {
    let mut results = Vec::new();
    for value in recorded() {
        let scenario = Scenario::read(&value).expect("readable");
        let verdict = run::run(&scenario, async |app| Ok(Memory::restarting(app))).await;
        results.push(result(scenario.id, verdict));
    }
    let failed = results.iter().filter(|result| result.verdict.is_failure()).count();
    assert_eq!(failed, 0, "\n{}", text(&results));
}

#[tokio::test]
async fn every_recorded_scenario_holds_on_sqlite_with_a_restart_before_each_step() {
    hold_with_a_restart_before_each_step(On::Sqlite).await;
}

#[tokio::test]
async fn every_recorded_scenario_holds_on_postgres_with_a_restart_before_each_step() {
    hold_with_a_restart_before_each_step(On::Postgres).await;
}

async fn hold_with_a_restart_before_each_step(on: On) {
    let scenarios = recorded();
    let runs = scenarios.iter().map(|value| async {
        let scenario = Scenario::read(value).expect("readable");
        let verdict = run::run(&scenario, async |app| Stored::restarting(on, app).await).await;
        result(scenario.id, verdict)
    });
    let results: Vec<_> = stream::iter(runs).buffered(crate::AT_ONCE).collect().await;
    let failed = results.iter().filter(|result| result.verdict.is_failure()).count();
    assert_eq!(failed, 0, "\n{}", text(&results));
}

#[tokio::test]
async fn one_scenario_is_run_by_its_name_and_several_by_a_part() {
    let names = async |only: &str| {
        let results = super::run(&crate::recordings(), Backend::Memory, Some(only)).await;
        results.into_iter().map(|result| result.name).collect::<Vec<_>>()
    };
    assert_eq!(names("E04").await, ["E04"]);
    assert_eq!(names("E0").await.len(), 9);
    assert_eq!(names("none").await, [""; 0]);
    assert_eq!(super::run(Path::new("nowhere"), Backend::Memory, None).await, []);
}

#[test]
fn dag_mode_is_skipped_however_deep_it_is() {
    let dag = json!({"mode": "dag", "nodes": {"a": body(&saying("A"))}, "edges": [["START", "a"], ["a", "END"]]});
    let embedded = json!({"kind": "embedded", "checkpointed": true, "info": null, "graph": dag});
    for app in [
        json!({"kind": "graph", "graph": dag}),
        graph(&json!({"e": embedded}), &json!([["START", "e"], ["e", "END"]])),
        agent(&json!({"type": "sequential", "name": "s", "agents": [
            {"type": "model", "name": "m", "turns": [], "tools": {"t": {"graph": dag}}}]})),
    ] {
        let scenario = json!({"id": "D", "title": "d", "rules": [], "sure": "", "app": app, "steps": []});
        let verdict = futures_util::FutureExt::now_or_never(one(&scenario, Backend::Memory)).expect("no waiting");
        assert!(matches!(verdict, Verdict::Skipped { .. }), "{verdict:?}");
    }
}
