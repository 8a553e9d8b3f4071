//! The runner fails when anything that was recorded is changed.

use super::*;

/// The members of an expectation that are compared whenever they are there.
const ALWAYS: [&str; 6] = ["status", "ran", "runs", "breakpoint", "accepted", "refused"];

fn merged(step: &Value) -> Value {
    let mut members = step["expect"].as_object().expect("an expectation").clone();
    members.extend(step.get("kernel").and_then(Value::as_object).cloned().unwrap_or_default());
    Value::Object(members)
}

/// Another value for a member of an expectation.
fn other(member: &str, value: &Value) -> Value {
    let mut value = value.clone();
    match member {
        "status" => return json!(if value == "done" { "interrupted" } else { "done" }),
        "ran" => value["nobody"] = json!(["fresh"]),
        "runs" => match value.as_object_mut().and_then(|runs| runs.values_mut().next()) {
            Some(count) => *count = json!(count.as_u64().unwrap_or(0) + 1),
            None => value["nobody"] = json!(1),
        },
        "breakpoint" => return json!({"before": ["nobody"], "after": []}),
        "accepted" => return json!(2),
        "refused" => return json!({"*": "invalid_data"}),
        "output" => return json!("something else"),
        "error_contains" => return json!("something else"),
        "kept" => value["nobody"] = json!("x"),
        "address" => value[0] = json!("runnable:other"),
        "info" => return json!("something else"),
        "parents" => value[0]["address"] = json!([]),
        other => panic!("{other}"),
    }
    value
}

/// Every way to change one expectation of the kernel's that must be noticed.
fn changes(step: &Value) -> Vec<(String, Value)> {
    let expect = merged(step);
    let refused = expect.get("refused").is_some();
    let mut compared: Vec<&str> = ALWAYS.into_iter().filter(|member| expect.get(member).is_some()).collect();
    compared.extend(["kept", "error_contains"].into_iter().filter(|member| expect.get(member).is_some()));
    compared.push("breakpoint");
    if expect["status"] == "done" && !refused && expect.get("output").is_some() {
        compared.push("output");
    }
    let mut changes: Vec<(String, Value)> = compared
        .into_iter()
        .map(|member| (member.to_owned(), json!({member: other(member, &expect[member])})))
        .collect();
    let points = expect.get("pending").and_then(Value::as_array).cloned().unwrap_or_default();
    for (index, point) in points.iter().enumerate() {
        let mut fewer = points.clone();
        fewer.remove(index);
        changes.push((format!("pending without {index}"), json!({"pending": fewer})));
        for member in ["address", "info", "parents"].into_iter().filter(|member| point.get(member).is_some()) {
            let mut changed = points.clone();
            changed[index][member] = other(member, &point[member]);
            changes.push((format!("{member} of {index}"), json!({"pending": changed})));
        }
        // An id that must stay must not change, and the other way round.
        for (kept, changed) in [("prev", "not"), ("same_id_as", "not"), ("not", "prev")] {
            if let Some(name) = point.get(kept) {
                let mut swapped = points.clone();
                swapped[index].as_object_mut().expect("a point").remove(kept);
                swapped[index][changed] = name.clone();
                changes.push((format!("{kept} of {index}"), json!({"pending": swapped})));
            }
        }
    }
    changes
}

#[tokio::test]
async fn every_change_of_a_recorded_expectation_is_noticed() {
    let mut tried = 0;
    for scenario in recorded() {
        let steps = scenario["steps"].as_array().expect("steps").clone();
        for (index, step) in steps.iter().enumerate().filter(|(_, step)| step["only"] != "eino") {
            for (what, change) in changes(step) {
                let mut changed = scenario.clone();
                let mut kernel = step.get("kernel").cloned().unwrap_or_else(|| json!({}));
                kernel.as_object_mut().expect("members").extend(change.as_object().expect("members").clone());
                changed["steps"][index]["kernel"] = kernel;
                if change.get("pending").is_some() && rulings::ruling("E20", index).is_some() && scenario["id"] == "E20"
                {
                    // A ruling puts something else in place of what was changed.
                    continue;
                }
                let verdict = one(&changed, Backend::Memory).await;
                assert!(verdict.is_failure(), "{} step {}: {what}: {verdict:?}", scenario["id"], index + 1);
                tried += 1;
            }
        }
    }
    assert!(tried > 700, "{tried} changes");
}
