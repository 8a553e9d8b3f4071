//! Time travel where it is hardest: forks of forks, breakpoints, failures,
//! depths, and everything at once.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::kit::{Api, Place, eventually};

fn yes() -> Value {
    json!({"approved": true})
}

/// Each checkpoint has what its parent had and at most one item more.
fn assert_lines(history: &[Value]) {
    let by_id: BTreeMap<&str, &Value> =
        history.iter().map(|entry| (entry["checkpoint_id"].as_str().expect("an id"), entry)).collect();
    assert_eq!(by_id.len(), history.len());
    let log = |entry: &Value| entry["state"]["log"].as_array().cloned().unwrap_or_default();
    for entry in history {
        let Some(parent) = entry["parent_id"].as_str() else { continue };
        let (own, before) = (log(entry), log(by_id[parent]));
        assert!(own.starts_with(&before) && own.len() <= before.len() + 1, "{own:?} after {before:?}");
    }
    // The present line is the newest checkpoint and its ancestors.
    let mut line = Vec::new();
    let mut next = history.first().and_then(|entry| entry["checkpoint_id"].as_str());
    while let Some(id) = next {
        line.push(id);
        next = by_id[id]["parent_id"].as_str();
    }
    let current: Vec<&str> = history
        .iter()
        .filter(|entry| entry["current"] == true)
        .map(|entry| entry["checkpoint_id"].as_str().expect("an id"))
        .collect();
    assert_eq!(current, line);
}

#[tokio::test]
async fn forks_of_forks_keep_each_line_as_it_was() {
    let place = Place::with_flows();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.start("trip", json!({"budget": 1})).await;
    api.question(&thread).await;
    let mut known: BTreeMap<String, Value> = BTreeMap::new();
    // A small generator of its own: the same steps in every run.
    let mut seed: u64 = 20_261_130;
    let mut pick = |of: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).expect("small") % of
    };
    for round in 0..40 {
        let history = api.history(&thread).await;
        assert_lines(&history);
        for entry in &history {
            let id = entry["checkpoint_id"].as_str().expect("an id").to_owned();
            let state = known.entry(id).or_insert_with(|| entry["state"].clone());
            assert_eq!(*state, entry["state"], "a checkpoint never changes");
        }
        let due: Vec<&Value> = history.iter().filter(|entry| entry["next"] != json!([])).collect();
        let at = due[pick(due.len())]["checkpoint_id"].clone();
        let runs = format!("threads/{thread}/runs");
        match pick(4) {
            0 => {
                api.post(&runs, &json!({"checkpoint_id": at, "re_execute": true, "continue": true})).await.is(202);
            }
            1 => {
                let input = json!({"checkpoint_id": at, "re_execute": true, "input": {"budget": round}});
                api.post(&runs, &input).await.is(202);
            }
            2 => {
                let edit = json!({"at": at, "values": {"log": [format!("edit {round}")]}, "as_node": "gather", "re_execute": true});
                api.post(&format!("threads/{thread}/state"), &edit).await.is(200);
                api.post(&format!("threads/{thread}/resume"), &json!({"continue": true})).await.is(202);
            }
            _ => {
                let input = json!({"input": {"budget": round}, "on_waiting": "discard"});
                api.post(&runs, &input).await.is(202);
            }
        }
        let rests = api.rested(&thread).await;
        if rests["status"] == "parked" && pick(2) == 0 {
            let question = rests["interrupts"][0]["id"].as_str().expect("an id");
            api.answer(question, json!({"approved": pick(2) == 0})).await.is(202);
            assert_eq!(api.rested(&thread).await["status"], "succeeded");
        }
    }
    assert_lines(&api.history(&thread).await);
    let before = (api.rested(&thread).await, api.history(&thread).await);
    server.kill().await;
    let server = place.up().await;
    assert_eq!(
        (server.api.rested(&thread).await, server.api.history(&thread).await),
        before,
        "a restart changes nothing"
    );
    server.api.audited(&thread).await;
}

#[tokio::test]
async fn a_replay_stops_at_the_same_breakpoint_or_releases_it() {
    let place = Place::with_flows();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.start("gated", json!({"budget": 1})).await;
    let stop = api.question(&thread).await;
    let from = api.checkpoint(&thread, &["book"]).await;
    let runs = format!("threads/{thread}/runs");
    assert_eq!(api.post(&runs, &json!({"checkpoint_id": from})).await.is(202)["status"], "parked");
    let again = api.question(&thread).await;
    assert_ne!(stop, again, "a stop of its own");
    let old = api.get(&format!("interrupts/{stop}")).await.is(200);
    assert_eq!((&old["status"], &old["replaced_by"]), (&json!("superseded"), &json!(again)));
    let rests = api.rested(&thread).await;
    let statuses: Vec<_> = rests["runs"].as_array().expect("runs").iter().map(|run| run["status"].clone()).collect();
    assert_eq!(statuses, ["parked", "parked"]);
    assert_eq!(place.ran("book"), 0);
    api.post(&runs, &json!({"checkpoint_id": from, "continue": true})).await.is(202);
    assert_eq!(api.rested(&thread).await["state"]["outcome"], "booked for 1");
    // From before it, it stops there as well.
    let from = api.checkpoint(&thread, &["gather"]).await;
    api.post(&runs, &json!({"checkpoint_id": from, "re_execute": true, "continue": true})).await.is(202);
    let third = api.question(&thread).await;
    assert_eq!(api.get(&format!("interrupts/{third}")).await.is(200)["kind"], "break");
    assert_eq!((place.ran("gather"), place.ran("book")), (2, 1));
    api.audited(&thread).await;
}

/// What was paid is not paid again without a word: neither by a replay, nor by
/// an edit that drops the superstep in which it was paid.
#[tokio::test]
async fn steps_of_the_waiting_superstep_are_not_repeated_unasked() {
    let place = Place::with_flows();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.start("wire_batch", json!({})).await;
    assert_eq!((api.asked(&thread).await.len(), place.ledger().await.len()), (2, 3));
    let head = api.get(&format!("threads/{thread}")).await.is(200)["checkpoint_id"].clone();
    let (state, runs) = (format!("threads/{thread}/state"), format!("threads/{thread}/runs"));
    for (path, body) in [
        (&runs, json!({"checkpoint_id": head})),
        (&state, json!({"as_node": "START"})),
        (&state, json!({"as_node": "START", "at": head})),
    ] {
        let steps = api.post(path, &body).await.problem(409, "re-executes")["steps"].clone();
        assert_eq!(steps.as_array().map(Vec::len), Some(3), "{steps}");
    }
    assert_eq!(api.asked(&thread).await.len(), 2, "nothing changed");
    api.post(&state, &json!({"as_node": "START", "re_execute": true})).await.is(200);
    api.post(&format!("threads/{thread}/resume"), &json!({"continue": true})).await.is(202);
    assert_eq!((api.asked(&thread).await.len(), place.ledger().await.len()), (2, 6), "as was said");

    // Steps inside a sub-graph, also when the superstep around it is amended.
    let thread = api.start("parcel", json!({})).await;
    let question = api.question(&thread).await;
    let shown = api.rested(&thread).await;
    let steps = json!([{"address": "parcel/check@1/weigh@0", "name": "scale"}]);
    let path = |id: &Value| format!("threads/{thread}/checkpoints/{}", id.as_str().expect("an id"));
    assert_eq!(api.get(&path(&shown["checkpoint_id"])).await.is(200)["steps"], steps);
    let inner = &shown["frames"][0];
    assert_eq!(api.get(&path(&inner["checkpoint_id"])).await.is(200)["steps"], json!([]));
    api.post(&format!("threads/{thread}/resume"), &json!({"update": {"shipped": false}})).await.is(202);
    let amended = api.rested(&thread).await;
    assert_ne!(amended["checkpoint_id"], shown["checkpoint_id"]);
    assert_eq!((&amended["interrupts"][0]["id"], &amended["frames"]), (&json!(question), &shown["frames"]));
    assert_eq!(api.get(&path(&amended["checkpoint_id"])).await.is(200)["steps"], steps);
    let replay = json!({"checkpoint_id": amended["checkpoint_id"]});
    let refused = api.post(&format!("threads/{thread}/runs"), &replay).await.problem(409, "re-executes");
    assert_eq!(refused["steps"], steps);
}

/// A thread that goes back to a line that it had left leaves the one that it is
/// on, and what was paid there.
#[tokio::test]
async fn steps_of_the_line_that_is_left_are_not_repeated_unasked() {
    let place = Place::with_flows();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.start("trip", json!({"budget": 1})).await;
    api.answer(&api.question(&thread).await, json!({"approved": false})).await.is(202);
    api.rested(&thread).await;
    let (state, runs) = (format!("threads/{thread}/state"), format!("threads/{thread}/runs"));
    let (ask, call_off) = (api.checkpoint(&thread, &["ask"]).await, api.checkpoint(&thread, &["call_off"]).await);
    api.post(&runs, &json!({"checkpoint_id": ask})).await.is(202);
    api.answer(&api.question(&thread).await, yes()).await.is(202);
    let booked = api.rested(&thread).await;
    assert_eq!((&booked["state"]["outcome"], place.ran("pay")), (&json!("booked for 1"), 1));

    let steps = json!([{"address": "trip/book@2", "name": "pay"}]);
    let replay = json!({"checkpoint_id": call_off});
    let edit = json!({"at": call_off, "values": {"budget": 2}, "as_node": "gather"});
    for (path, body) in [(&runs, replay), (&state, edit)] {
        assert_eq!(api.post(path, &body).await.problem(409, "re-executes")["steps"], steps);
    }
    let shown = api.get(&format!("threads/{thread}/checkpoints/{call_off}")).await.is(200);
    assert_eq!((&shown["steps"], api.rested(&thread).await), (&steps, booked), "said before, and nothing changed");
    api.post(&runs, &json!({"checkpoint_id": call_off, "re_execute": true})).await.is(202);
    assert_eq!(api.rested(&thread).await["state"]["outcome"], "called off");
}

#[tokio::test]
async fn an_edit_can_end_a_run_and_bring_a_cancelled_one_back() {
    let place = Place::with_flows();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.start("trip", json!({"budget": 1})).await;
    let question = api.question(&thread).await;
    let state = format!("threads/{thread}/state");
    api.post(&state, &json!({"as_node": "END", "values": {"budget": 2}})).await.problem(422, "invalid-values");
    let ended = api.post(&state, &json!({"as_node": "END"})).await.is(200);
    assert_eq!((&ended["status"], &ended["next"]), (&json!("succeeded"), &json!([])));
    let rests = api.rested(&thread).await;
    assert_eq!((&rests["status"], &rests["open"], &rests["next"]), (&json!("succeeded"), &json!(0), &json!([])));
    api.answer(&question, yes()).await.problem(409, "superseded");
    api.post(&format!("threads/{thread}/resume"), &json!({"continue": true})).await.problem(409, "thread-ended");

    let thread = api.start("trip", json!({"budget": 1})).await;
    let question = api.question(&thread).await;
    api.post(&format!("threads/{thread}/cancel"), &Value::Null).await.is(200);
    let old = api.get(&format!("interrupts/{question}")).await.is(200);
    assert_eq!((&old["closed_by"], &old["replaced_by"]), (&json!("cancelled"), &Value::Null));
    let from = api.checkpoint(&thread, &["ask"]).await;
    api.post(&format!("threads/{thread}/runs"), &json!({"checkpoint_id": from})).await.is(202);
    let second = api.question(&thread).await;
    api.answer(&second, yes()).await.is(202);
    assert_eq!(api.rested(&thread).await["state"]["outcome"], "booked for 1");
    api.audited(&thread).await;
}

#[tokio::test]
async fn a_failure_is_mended_by_an_amendment_or_skipped_by_an_edit() {
    let place = Place::with_flows();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.start("shaky", json!({})).await;
    let failed = api.rested(&thread).await;
    assert_eq!((&failed["status"], &failed["failed_tasks"]), (&json!("failed"), &json!(1)));
    assert_eq!((&failed["errors"][0]["path"], &failed["errors"][0]["task"]), (&json!(["fails"]), &json!("fails")));
    assert!(failed["errors"][0]["message"].as_str().is_some_and(|text| text.contains("not positive")), "{failed}");
    assert_eq!(failed["values"]["log"], json!(["first 0"]), "the finished sibling counts already");
    assert_eq!(failed["next"], json!(["fails"]));
    let resume = json!({"update": {"n": 1}, "retry": true});
    api.post(&format!("threads/{thread}/resume"), &resume).await.is(202);
    let done = api.rested(&thread).await;
    assert_eq!((&done["status"], &done["errors"]), (&json!("succeeded"), &json!([])));
    assert_eq!(done["state"]["log"], json!(["mended", "first 0", "second 1"]));
    assert_eq!((place.ran("first"), place.ran("fails"), place.ran("second")), (1, 2, 1));

    let thread = api.start("shaky", json!({})).await;
    assert_eq!(api.rested(&thread).await["status"], "failed");
    let edited = api.post(&format!("threads/{thread}/state"), &json!({"values": {"n": 5}, "as_node": "START"})).await;
    assert_eq!(edited.is(200)["next"], json!(["fails", "steady"]));
    let rests = api.rested(&thread).await;
    assert_eq!((&rests["status"], &rests["error"], &rests["errors"]), (&json!("parked"), &Value::Null, &json!([])));
    api.post(&format!("threads/{thread}/resume"), &json!({"continue": true})).await.is(202);
    assert_eq!(api.rested(&thread).await["state"]["log"], json!(["mended", "first 5", "second 5"]));
    api.audited(&thread).await;
}

#[tokio::test]
async fn a_stop_two_graphs_down_takes_data_for_its_own_graph() {
    let place = Place::with_flows();
    let mut server = place.up().await;
    for route in ["resume", "answer"] {
        let api = &server.api;
        let thread = api.start("nested", json!({"n": 1})).await;
        let stop = api.question(&thread).await;
        let shown = api.rested(&thread).await;
        let paths: Vec<_> =
            shown["frames"].as_array().expect("frames").iter().map(|frame| frame["path"].clone()).collect();
        assert_eq!(paths, [json!(["middle"]), json!(["middle", "inner"])]);
        let inner = &shown["frames"][1];
        assert_eq!((&shown["interrupts"][0]["frame"], &inner["next"]), (&inner["id"], &json!(["second"])));
        let resume = format!("threads/{thread}/resume");
        let wrong = json!({"answers": {stop.clone(): {"rate": 1}}});
        api.post(&resume, &wrong).await.problem(422, "invalid-values");
        server.kill().await;
        server = place.up().await;
        let api = &server.api;
        if route == "resume" {
            api.post(&resume, &json!({"answers": {stop.clone(): {"n": 7}}})).await.is(202);
        } else {
            api.answer(&stop, json!({"n": 7})).await.is(202);
        }
        let done = api.rested(&thread).await;
        assert_eq!((&done["status"], &done["state"]["n"]), (&json!("succeeded"), &json!(7)), "{done}");
        assert_eq!(done["state"]["log"], json!(["inside: inside: first 1, second 7"]));
        assert_ne!(api.get(&format!("interrupts/{stop}")).await.is(200)["status"], "open");
        api.audited(&thread).await;
    }
    assert_eq!((place.ran("first"), place.ran("second")), (2, 2));
}

/// An answer and an edit at once: one of them is first, and the other is told.
#[tokio::test]
async fn an_answer_and_an_edit_at_once_do_not_mix() {
    let place = Place::with_flows();
    let server = place.up().await;

    for _ in 0..25 {
        let api = server.api.clone();
        let thread = api.start("trip", json!({"budget": 1})).await;
        let question = api.question(&thread).await;
        let (state, answering) = (format!("threads/{thread}/state"), api.clone());
        let edit = json!({"values": {"budget": 2}});
        let (answered, edited) =
            futures_util::future::join(async { answering.answer(&question, yes()).await.status }, async {
                api.post(&state, &edit).await.status
            })
            .await;
        let rests = api.rested(&thread).await;
        let status = api.get(&format!("interrupts/{question}")).await.is(200)["status"].clone();
        match (answered, edited) {
            // The answer was first; the edit may still come after its run.
            (202, 409) => {
                assert_eq!((&rests["status"], &status), (&json!("succeeded"), &json!("answered")));
                assert_eq!(rests["state"]["outcome"], "booked for 1");
            }
            (202, 200) => assert_eq!((&status, &rests["state"]["budget"]), (&json!("answered"), &json!(2))),
            (409, 200) => {
                assert_eq!((&rests["status"], &status), (&json!("parked"), &json!("superseded")));
                assert_eq!(rests["state"]["budget"], json!(2));
            }
            other => panic!("{other:?}"),
        }
        api.audited(&thread).await;
    }
}

async fn replayed(api: &Api, thread: &str, from: &str) -> u16 {
    api.post(&format!("threads/{thread}/runs"), &json!({"checkpoint_id": from})).await.status
}

#[tokio::test]
async fn killed_between_a_replay_and_its_run() {
    let place = Place::with_flows();
    let server = place.up().await;
    let mut asked = Vec::new();
    for _ in 0..10 {
        let thread = server.api.start("trip", json!({"budget": 1})).await;
        let question = server.api.question(&thread).await;
        let from = server.api.checkpoint(&thread, &["ask"]).await;
        asked.push((thread, question, from));
    }
    let replays = asked.iter().map(|(thread, _, from)| replayed(&server.api, thread, from));
    assert!(futures_util::future::join_all(replays).await.iter().all(|status| *status == 202));
    server.kill().await;
    let server = place.up().await;
    for (thread, question, _) in &asked {
        let second = eventually("it asks again", || async {
            let rests = server.api.rested(thread).await;
            match rests["interrupts"][0]["id"].as_str() {
                Some(id) if id != question => Ok(id.to_owned()),
                _ => Err(rests.to_string()),
            }
        })
        .await;
        server.api.answer(question, yes()).await.problem(409, "superseded");
        server.api.answer(&second, yes()).await.is(202);
        assert_eq!(server.api.rested(thread).await["state"]["outcome"], "booked for 1");
        server.api.audited(thread).await;
    }
    assert_eq!((place.ran("gather"), place.ran("pay")), (10, 10));
}
