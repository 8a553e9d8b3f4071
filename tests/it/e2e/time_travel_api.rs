//! History, edits, replays and forks over HTTP: what was done stays done, what
//! is left says so.

use serde_json::{Value, json};

use super::kit::{Api, Place, Server};

fn yes() -> Value {
    json!({"approved": true})
}

async fn trip(api: &Api, budget: i64) -> (String, String) {
    let thread = api.start("trip", json!({"budget": budget})).await;
    let question = api.question(&thread).await;
    (thread, question)
}

async fn place() -> (Place, Server) {
    let place = Place::with_flows();
    let server = place.up().await;
    (place, server)
}

#[tokio::test]
async fn a_replay_repeats_nothing_that_was_done_before_and_asks_before_it_repeats_steps() {
    let (place, server) = place().await;
    let api = &server.api;
    let (thread, first) = trip(api, 100).await;
    api.answer(&first, yes()).await.is(202);
    assert_eq!(api.rested(&thread).await["state"]["outcome"], "booked for 100");
    let done = json!({"gather": 1, "ask": 2, "book": 1, "pay": 1});
    assert_eq!(json!(place.journal()), json!({"ask": 2, "book": 1, "gather": 1, "pay": 1}), "{done}");

    let before_asking = api.checkpoint(&thread, &["ask"]).await;
    let shown = api.get(&format!("threads/{thread}/checkpoints/{before_asking}")).await.is(200);
    let steps = json!([{"address": "trip/book@2", "name": "pay"}]);
    assert_eq!((&shown["steps"], &shown["next"], &shown["frame"]), (&steps, &json!(["ask"]), &Value::Null));
    assert_eq!((&shown["values"]["log"], &shown["source"]), (&json!(["gathered"]), &json!("loop")));
    assert!(shown["parent_id"].is_string() && shown["around"] == json!([]), "{shown}");
    api.get(&format!("threads/{thread}/checkpoints/nope")).await.problem(404, "unknown-checkpoint");

    let runs = format!("threads/{thread}/runs");
    let replay = json!({"checkpoint_id": before_asking});
    let refused = api.post(&runs, &replay).await.problem(409, "re-executes");
    assert_eq!(refused["steps"], steps);
    assert_eq!(api.rested(&thread).await["status"], "succeeded", "nothing was started");

    // Started over, and answered differently: a fork.
    let replay = json!({"checkpoint_id": before_asking, "re_execute": true});
    api.post_once("k-1", &runs, &replay).await.is(202);
    let second = api.question(&thread).await;
    assert_ne!(first, second, "a new question");
    assert_eq!(api.get(&format!("interrupts/{first}")).await.is(200)["status"], "answered", "what was decided stays");
    api.answer(&second, json!({"approved": false})).await.is(202);
    let done = api.rested(&thread).await;
    assert_eq!((&done["state"]["outcome"], &done["runs"][0]["kind"]), (&json!("called off"), &json!("replay")));
    assert_eq!(json!(place.journal()), json!({"ask": 4, "book": 1, "call_off": 1, "gather": 1, "pay": 1}));
    // The same request again is the same reply, and starts nothing.
    assert_eq!(api.post_once("k-1", &runs, &replay).await.is(202)["run_id"], done["runs"][0]["run_id"]);
    assert_eq!(api.rested(&thread).await, done);
    let other = json!({"checkpoint_id": before_asking, "re_execute": false});
    api.post_once("k-1", &runs, &other).await.problem(422, "idempotency-key-reused");

    let lines: Vec<_> =
        api.history(&thread).await.iter().map(|entry| (entry["next"].clone(), entry["current"].clone())).collect();
    let entry = |next: &[&str], current: bool| (json!(next), json!(current));
    let expected = [
        entry(&[], true),
        entry(&["call_off"], true),
        entry(&["ask"], true),
        entry(&[], false),
        entry(&["book"], false),
        entry(&["ask"], true),
        entry(&["gather"], true),
    ];
    assert_eq!(lines, expected);
    let actions = api.audited(&thread).await;
    assert_eq!(actions.iter().filter(|action| *action == "replayed").count(), 1, "{actions:?}");
}

#[tokio::test]
async fn history_in_pages_is_the_history() {
    let (_place, server) = place().await;
    let api = &server.api;
    let (thread, _) = trip(api, 100).await;
    for _ in 0..3 {
        let from = api.checkpoint(&thread, &["gather"]).await;
        api.post(&format!("threads/{thread}/runs"), &json!({"checkpoint_id": from})).await.is(202);
        api.question(&thread).await;
    }
    let whole = api.history(&thread).await;
    assert_eq!(whole.len(), 8);
    assert!(whole.iter().any(|entry| entry["current"] == false), "{whole:?}");
    for limit in [1, 3] {
        let (mut paged, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = api.get(&format!("threads/{thread}/history?limit={limit}{cursor}")).await.is(200);
            paged.extend(page["items"].as_array().expect("a list").iter().cloned());
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(paged, whole);
    }
    let other = api.get(&format!("threads/{thread}/history?limit=1")).await.is(200);
    let cursor = other["next_cursor"].as_str().expect("a cursor");
    let frame = "0".repeat(32);
    api.get(&format!("threads/{thread}/history?frame={frame}&cursor={cursor}")).await.problem(400, "invalid-cursor");
    let (foreign, _) = trip(api, 100).await;
    api.get(&format!("threads/{foreign}/history?cursor={cursor}")).await.problem(400, "invalid-cursor");
    api.get(&format!("threads/{thread}/history?frame={frame}")).await.problem(404, "unknown-frame");
}

#[tokio::test]
async fn what_a_replay_leaves_is_superseded_and_says_where_to_go() {
    let (place, server) = place().await;
    let api = &server.api;
    let (thread, first) = trip(api, 100).await;
    api.delivered(&first).await;
    let link = place.mails()[0].path();
    let from = api.checkpoint(&thread, &["ask"]).await;
    api.post(&format!("threads/{thread}/runs"), &json!({"checkpoint_id": from})).await.is(202);
    let second = api.question(&thread).await;
    assert_ne!(first, second);

    let old = api.get(&format!("interrupts/{first}")).await.is(200);
    assert_eq!((&old["status"], &old["closed_by"]), (&json!("superseded"), &json!("replayed")));
    assert_eq!(old["replaced_by"], json!(second));
    let problem = api.answer(&first, yes()).await.problem(409, "superseded");
    assert_eq!((&problem["closed_by"], &problem["replaced_by"]), (&json!("replayed"), &json!(second)));
    assert_eq!(problem["at"], old["closed_at"]);
    let resume = json!({"answers": {first.clone(): yes()}});
    let problem = api.post(&format!("threads/{thread}/resume"), &resume).await.problem(409, "superseded");
    assert_eq!(problem["replaced_by"], json!(second));
    let page = api.with_token(None).get(&link).await;
    assert_eq!(page.status, 410, "{}", page.text);
    for part in
        ["Replaced by a new request", "start over from an earlier point", "No answer to it was recorded", "asked again"]
    {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }
    assert!(!page.text.contains("<form class=\"card decide") && !page.text.contains(&second), "{}", page.text);
    assert_eq!(api.question(&thread).await, second, "nothing was recorded");
    api.answer(&second, yes()).await.is(202);
    assert_eq!(api.rested(&thread).await["state"]["outcome"], "booked for 100");
    assert_eq!(place.ran("gather"), 1);
}

#[tokio::test]
async fn an_edit_as_a_waiting_node_skips_it() {
    let (place, server) = place().await;
    let api = &server.api;
    let (thread, question) = trip(api, 100).await;
    let head = api.get(&format!("threads/{thread}")).await.is(200)["checkpoint_id"].clone();
    let state = format!("threads/{thread}/state");
    let edit = json!({"values": {"approved": true}, "as_node": "ask", "checkpoint_id": head});
    let edited = api.post(&state, &edit).await.is(200);
    assert_eq!((&edited["status"], &edited["next"]), (&json!("parked"), &json!(["book"])));
    assert_eq!(edited["thread_id"], json!(thread));
    let rests = api.rested(&thread).await;
    assert_eq!((&rests["checkpoint_id"], &rests["values"]["approved"]), (&edited["checkpoint_id"], &json!(true)));
    let points = rests["interrupts"].as_array().expect("a list");
    assert_eq!((points.len(), &points[0]["kind"]), (1, &json!("pause")), "nothing runs by itself: {rests}");
    let old = api.get(&format!("interrupts/{question}")).await.is(200);
    assert_eq!((&old["status"], &old["closed_by"]), (&json!("superseded"), &json!("edited")));
    api.answer(&question, yes()).await.problem(409, "superseded");

    // Compare and set: what was seen is not the newest any more.
    api.post(&state, &edit).await.problem(409, "thread-changed");
    api.post(&format!("threads/{thread}/resume"), &json!({"continue": true})).await.is(202);
    let done = api.rested(&thread).await;
    assert_eq!((&done["status"], &done["state"]["outcome"]), (&json!("succeeded"), &json!("booked for 100")));
    assert_eq!(json!(place.journal()), json!({"ask": 1, "book": 1, "gather": 1, "pay": 1}));
    assert!(api.audited(&thread).await.contains(&"edited".to_owned()));
}

#[tokio::test]
async fn a_state_edited_before_the_question_is_asked_about() {
    let (place, server) = place().await;
    let api = &server.api;
    let (thread, first) = trip(api, 100).await;
    let head = api.get(&format!("threads/{thread}")).await.is(200)["checkpoint_id"].clone();
    let state = format!("threads/{thread}/state");
    let edit = json!({"values": {"budget": 80}, "checkpoint_id": head});
    let made = api.post_once("edit-1", &state, &edit).await.is(200);
    assert_eq!(made["next"], json!(["ask"]), "as the node that ran last");
    assert_eq!(api.post_once("edit-1", &state, &edit).await.is(200), made, "the same again changes nothing");
    assert_eq!(api.history(&thread).await.len(), 3);
    api.post(&format!("threads/{thread}/resume"), &json!({"continue": true})).await.is(202);
    let second = api.question(&thread).await;
    assert_ne!(first, second);
    let asked = api.get(&format!("interrupts/{second}")).await.is(200);
    assert_eq!(asked["payload"]["title"], "Travel for 80?");
    api.answer(&second, yes()).await.is(202);
    assert_eq!(api.rested(&thread).await["state"]["outcome"], "booked for 80");
    assert_eq!(place.ran("gather"), 1);
}

#[tokio::test]
async fn an_older_checkpoint_is_edited_and_the_thread_goes_on_from_there() {
    let (place, server) = place().await;
    let api = &server.api;
    let (thread, question) = trip(api, 100).await;
    api.answer(&question, json!({"approved": false})).await.is(202);
    assert_eq!(api.rested(&thread).await["state"]["outcome"], "called off");
    let at = api.checkpoint(&thread, &["ask"]).await;
    let edited =
        api.post(&format!("threads/{thread}/state"), &json!({"values": {"budget": 5}, "at": at})).await.is(200);
    assert_eq!((&edited["next"], &edited["status"]), (&json!(["ask"]), &json!("parked")));
    let rests = api.rested(&thread).await;
    assert_eq!((&rests["state"]["budget"], &rests["state"]["outcome"]), (&json!(5), &Value::Null), "that line's state");
    api.post(&format!("threads/{thread}/resume"), &json!({"continue": true})).await.is(202);
    let second = api.question(&thread).await;
    api.answer(&second, yes()).await.is(202);
    assert_eq!(api.rested(&thread).await["state"]["outcome"], "booked for 5");
    assert_eq!(place.ran("gather"), 1);
    // New input at an older checkpoint: its state, from the start of the flow.
    let again = json!({"checkpoint_id": at, "input": {"budget": 6}, "re_execute": true});
    api.post(&format!("threads/{thread}/runs"), &again).await.is(202);
    let third = api.question(&thread).await;
    assert_eq!(api.get(&format!("interrupts/{third}")).await.is(200)["payload"]["title"], "Travel for 6?");
    let rests = api.rested(&thread).await;
    assert_eq!((&rests["state"]["log"], &rests["runs"][0]["kind"]), (&json!(["gathered", "gathered"]), &json!("fork")));
    api.audited(&thread).await;
}

#[tokio::test]
async fn every_fault_of_an_edit_is_named_and_nothing_changes() {
    let (_place, server) = place().await;
    let api = &server.api;
    let (thread, question) = trip(api, 100).await;
    let before = api.rested(&thread).await;
    let state = format!("threads/{thread}/state");
    let faults = |problem: &Value| -> Vec<String> {
        let errors = problem["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|error| error["pointer"].as_str().expect("a pointer").to_owned()).collect()
    };
    let edit = json!({"values": {"nope": 1, "a/b": 2, "budget": 3}});
    assert_eq!(faults(&api.post(&state, &edit).await.problem(422, "invalid-values")), ["/nope", "/a~1b"]);
    let edit = json!({"values": {"budget": "much", "approved": "perhaps", "log": 1, "nope": 1, "outcome": "fine"}});
    let refused = api.post(&state, &edit).await.problem(422, "invalid-values");
    assert_eq!(faults(&refused), ["/nope", "/log", "/budget", "/approved"]);
    let input = json!({"input": {"budget": "much", "log": "long", "approved": 1}, "on_waiting": "discard"});
    let refused = api.post(&format!("threads/{thread}/runs"), &input).await.problem(422, "invalid-input");
    assert_eq!(faults(&refused), ["/log", "/budget", "/approved"]);
    let amend = json!({"update": {"budget": "much", "approved": 1}});
    let refused = api.post(&format!("threads/{thread}/resume"), &amend).await.problem(422, "invalid-values");
    assert_eq!(faults(&refused), ["/budget", "/approved"]);
    let problem = api.post(&state, &json!({"as_node": "fly"})).await.problem(422, "unknown-node");
    assert_eq!(problem["node"], "fly");
    api.post(&state, &json!({"as_node": "ask", "at": "nope"})).await.problem(404, "unknown-checkpoint");
    let frame = "0".repeat(32);
    api.post(&state, &json!({"as_node": "ask", "frame": frame})).await.problem(404, "unknown-frame");
    api.post(&state, &json!({"as_node": "ask", "frame": frame, "at": "x"})).await.problem(422, "at-or-frame");
    api.post(&state, &json!({"as_node": "ask", "checkpoint_id": "nope"})).await.problem(409, "thread-changed");
    for wrong in [json!({"values": [1]}), json!({"value": {}}), json!({"frame": "x"}), json!([])] {
        api.post(&state, &wrong).await.problem(422, "invalid-body");
    }
    api.post("threads/nope/state", &json!({"as_node": "ask"})).await.problem(404, "unknown-thread");
    let runs = format!("threads/{thread}/runs");
    api.post(&runs, &json!({})).await.problem(422, "empty-run");
    api.post(&runs, &json!({"input": {}, "re_execute": true})).await.problem(422, "no-checkpoint");
    api.post(&runs, &json!({"checkpoint_id": "nope"})).await.problem(404, "unknown-checkpoint");
    let refuse = json!({"checkpoint_id": before["checkpoint_id"], "on_waiting": "refuse"});
    api.post(&runs, &refuse).await.problem(422, "always-discards");
    for limit in [0, 1_001] {
        let body = json!({"input": {"budget": 1}, "on_waiting": "discard", "recursion_limit": limit});
        api.post(&runs, &body).await.problem(422, "invalid-limit");
    }
    assert_eq!(api.rested(&thread).await, before);
    assert_eq!(api.question(&thread).await, question);

    let fan = api.start("fan", json!({})).await;
    api.question(&fan).await;
    let problem = api.post(&format!("threads/{fan}/state"), &json!({"values": {"rate": 1}})).await;
    assert_eq!(problem.problem(422, "ambiguous-node")["nodes"], json!(["left", "right"]));
}

#[tokio::test]
async fn nothing_moves_a_thread_while_it_runs() {
    let (place, server) = place().await;
    let api = &server.api;
    let thread = api.start("parcel", json!({})).await;
    let question = api.question(&thread).await;
    api.answer(&question, yes()).await.is(202);
    super::kit::eventually("it seals", || async { if place.ran("seal") == 1 { Ok(()) } else { Err(String::new()) } })
        .await;
    let running = api.get(&format!("threads/{thread}")).await.is(200);
    assert_eq!(running["status"], "running");
    let edit = json!({"values": {"weight": 1}, "as_node": "prepare"});
    api.post(&format!("threads/{thread}/state"), &edit).await.problem(409, "thread-busy");
    let from = api.checkpoint(&thread, &["check"]).await;
    let replay = json!({"checkpoint_id": from, "re_execute": true});
    api.post(&format!("threads/{thread}/runs"), &replay).await.problem(409, "thread-busy");
    let amend = json!({"update": {"weight": 1}});
    api.post(&format!("threads/{thread}/resume"), &amend).await.problem(409, "thread-busy");
    place.open();
    assert_eq!(api.rested(&thread).await["state"], json!({"weight": 7, "shipped": true}));
    assert_eq!((place.ran("weigh"), place.ran("ship")), (1, 1));
}

#[tokio::test]
async fn a_run_pauses_at_its_own_limit_of_supersteps() {
    let (place, server) = place().await;
    let api = &server.api;
    let (thread, question) = trip(api, 100).await;
    let body = json!({"input": {"budget": 2}, "on_waiting": "discard", "recursion_limit": 1});
    api.post(&format!("threads/{thread}/runs"), &body).await.is(202);
    let rests = api.rested(&thread).await;
    let points = rests["interrupts"].as_array().expect("a list");
    assert_eq!((points.len(), &points[0]["kind"]), (1, &json!("pause")), "{rests}");
    assert_eq!(points[0]["payload"], json!({"reason": "recursion_limit", "supersteps": 1}));
    assert_eq!((place.ran("gather"), place.ran("ask")), (2, 1));
    let old = api.get(&format!("interrupts/{question}")).await.is(200);
    assert_eq!((&old["status"], &old["closed_by"]), (&json!("superseded"), &json!("restarted")));
    api.post(&format!("threads/{thread}/resume"), &json!({"continue": true})).await.is(202);
    assert_eq!(api.rested(&thread).await["interrupts"][0]["payload"]["title"], "Travel for 2?");
}

#[tokio::test]
async fn changing_the_course_is_for_operators() {
    let place = Place::with_flows();
    let writer = place.token("writer", &["threads:read", "threads:write", "answer"], None).await;
    let operator = place.token("operator", &["threads:read", "operate", "answer"], None).await;
    let foreign = place.token("foreign", &["admin"], Some(&["gated"])).await;
    let server = place.up().await;
    let (writer, operator) = (server.api.with_token(Some(&writer)), server.api.with_token(Some(&operator)));
    let (thread, _) = trip(&server.api, 100).await;
    let from = writer.checkpoint(&thread, &["ask"]).await;
    let changes = [
        ("state", json!({"values": {"budget": 1}})),
        ("runs", json!({"checkpoint_id": from})),
        ("resume", json!({"update": {"budget": 1}})),
        ("resume", json!({"goto": ["book"]})),
        ("resume", json!({"send": [{"to": "book"}]})),
        ("pause", json!({"mode": "now"})),
    ];
    for (what, body) in &changes {
        let path = format!("threads/{thread}/{what}");
        writer.post(&path, body).await.problem(403, "missing-scope");
        server.api.with_token(Some(&foreign)).post(&path, body).await.problem(404, "unknown-thread");
        server.api.with_token(None).post(&path, body).await.problem(401, "unauthenticated");
    }
    operator.post(&format!("threads/{thread}/state"), &changes[0].1).await.is(200);
    operator
        .post(&format!("threads/{thread}/runs"), &json!({"input": {"budget": 1}}))
        .await
        .problem(403, "missing-scope");
    operator.post(&format!("threads/{thread}/runs"), &changes[1].1).await.is(202);
    server.api.question(&thread).await;
}
