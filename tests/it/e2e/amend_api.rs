//! Amendments, data for stops and containers, and pauses over HTTP.

use serde_json::{Value, json};

use super::kit::{Place, eventually};

fn yes() -> Value {
    json!({"approved": true})
}

#[tokio::test]
async fn an_update_in_a_resume_is_seen_by_what_it_wakes() {
    let place = Place::with_flows();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.start("fan", json!({})).await;
    let question = api.question(&thread).await;
    let resume = format!("threads/{thread}/resume");
    for (wrong, name) in [
        (json!({"answers": {question.clone(): yes()}, "update": {"nope": 1}}), "invalid-values"),
        (json!({"answers": {question.clone(): yes()}, "update": {"rate": "x"}}), "invalid-values"),
        (json!({"answers": {question.clone(): yes()}, "goto": ["nowhere"]}), "unknown-node"),
        (json!({"answers": {question.clone(): yes()}, "send": [{"to": "nowhere"}]}), "unknown-node"),
        (json!({"answers": {question.clone(): {"approved": 1}}, "update": {"rate": 3}}), "invalid-answer"),
        (json!({"answers": {question.clone(): yes()}, "goto": "extra"}), "invalid-body"),
        (json!({"answers": {question.clone(): yes()}, "recursion_limit": 0}), "invalid-limit"),
        (json!({"recursion_limit": 5}), "empty-resume"),
    ] {
        api.post(&resume, &wrong).await.problem(422, name);
    }
    let before = api.rested(&thread).await;
    assert_eq!((&before["values"]["rate"], &before["interrupts"][0]["id"]), (&Value::Null, &json!(question)));

    let body = json!({"answers": {question.clone(): yes()}, "update": {"rate": 3}});
    let reply = api.post_once("amend", &resume, &body).await.is(202);
    let done = api.rested(&thread).await;
    assert_eq!(done["state"], json!({"rate": 3, "log": ["left", "right", "gate true at 3"]}));
    assert_eq!(api.post_once("amend", &resume, &body).await.is(202), reply);
    assert_eq!(api.rested(&thread).await, done);
    assert_eq!(
        json!(place.journal()),
        json!({"gate": 2, "left": 1, "right": 1}),
        "siblings and those before stay done"
    );
    let sources: Vec<_> = api.history(&thread).await.iter().map(|entry| entry["source"].clone()).collect();
    assert_eq!(sources, ["loop", "amend", "loop", "input"]);
}

#[tokio::test]
async fn tasks_are_added_beside_those_that_wait() {
    let place = Place::with_flows();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.start("fan", json!({})).await;
    let question = api.question(&thread).await;
    let amend = json!({
        "update": {"rate": 2}, "goto": ["extra", "gate"],
        "send": [{"to": "worker", "argument": 4}, {"to": "worker", "argument": 5}],
    });
    api.post(&format!("threads/{thread}/resume"), &amend).await.is(202);
    let rests = eventually("the added tasks are done", || async {
        let shown = api.rested(&thread).await;
        if place.ran("worker") == 2 && place.ran("extra") == 1 { Ok(shown) } else { Err(shown.to_string()) }
    })
    .await;
    assert_eq!((&rests["status"], &rests["next"]), (&json!("parked"), &json!(["gate"])));
    assert_eq!(rests["interrupts"][0]["id"], json!(question), "what waits keeps its question");
    assert_eq!(place.ran("gate"), 1, "and is not run");
    assert_eq!(rests["state"]["log"], json!(["left", "right"]), "the superstep is not over");
    let live = json!(["left", "right", "extra", "worked 4 at 2", "worked 5 at 2"]);
    assert_eq!(rests["values"]["log"], live, "what is done already");
    api.answer(&question, yes()).await.is(202);
    let done = api.rested(&thread).await;
    let log = json!(["left", "right", "extra", "gate true at 2", "worked 4 at 2", "worked 5 at 2"]);
    assert_eq!((&done["status"], &done["state"]["log"]), (&json!("succeeded"), &log));
    api.audited(&thread).await;
}

#[tokio::test]
async fn a_breakpoint_takes_data_and_releases_with_it() {
    let place = Place::with_flows();
    let reader = place.token("reader", &["threads:read", "answer"], None).await;
    let server = place.up().await;
    let api = &server.api;
    for route in ["resume", "answer", "plain", "continue"] {
        let thread = api.start("gated", json!({"budget": 1})).await;
        let stop = api.question(&thread).await;
        let shown = api.get(&format!("interrupts/{stop}")).await.is(200);
        assert_eq!((&shown["kind"], &shown["payload"]["before"]), (&json!("break"), &json!(["book"])));
        let resume = format!("threads/{thread}/resume");
        let wrong = json!({"answers": {stop.clone(): {"nope": 1}}});
        api.post(&resume, &wrong).await.problem(422, "invalid-values");
        let data = json!({"answers": {stop.clone(): {"budget": 50}}});
        let reader = api.with_token(Some(&reader));
        reader.post(&resume, &data).await.problem(403, "operator-only");
        reader.answer(&stop, json!({"budget": 50})).await.problem(403, "operator-only");
        assert_eq!(api.question(&thread).await, stop, "nothing happened");
        let expected = match route {
            "resume" => {
                api.post(&resume, &data).await.is(202);
                "booked for 50"
            }
            "answer" => {
                assert_eq!(api.answer(&stop, json!({"budget": 50})).await.is(202)["status"], "decided");
                "booked for 50"
            }
            "plain" => {
                api.answer(&stop, Value::Null).await.is(202);
                "booked for 1"
            }
            _ => {
                api.post(&resume, &json!({"continue": true})).await.is(202);
                "booked for 1"
            }
        };
        let done = api.rested(&thread).await;
        assert_eq!((&done["status"], &done["state"]["outcome"]), (&json!("succeeded"), &json!(expected)), "{route}");
        let closed = api.get(&format!("interrupts/{stop}")).await.is(200);
        assert!(matches!(closed["status"].as_str(), Some("released" | "answered")), "{route}: {closed}");
        api.audited(&thread).await;
    }
    assert_eq!((place.ran("gather"), place.ran("book"), place.ran("pay")), (4, 4, 4));
}

#[tokio::test]
async fn a_container_is_named_and_takes_data() {
    let place = Place::with_flows();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.start("toolbox", json!({})).await;
    let question = api.question(&thread).await;
    let shown = api.get(&format!("threads/{thread}")).await.is(200);
    let parents = shown["interrupts"][0]["parents"].as_array().expect("a list");
    let takes: Vec<&Value> = parents.iter().filter(|parent| parent["takes_data"] == true).collect();
    assert_eq!(takes.len(), 1, "{parents:?}");
    assert_eq!(takes[0]["info"]["title"], "The settings of the tools");
    let container = takes[0]["id"].as_str().expect("an id");
    let other = parents.iter().find(|parent| parent["takes_data"] == false).expect("the graph")["id"].clone();
    let resume = format!("threads/{thread}/resume");
    let bare = json!({"answers": {container: null, question.clone(): "swing"}});
    api.post(&resume, &bare).await.problem(409, "not-answerable");
    let unknown = json!({"answers": {other.as_str().expect("an id"): 1}});
    let refused = api.post(&resume, &unknown).await;
    assert!(matches!(refused.status, 404 | 409), "{}", refused.text);
    assert_eq!(api.question(&thread).await, question);
    let both = json!({"answers": {container: {"force": 3}, question.clone(): "swing"}});
    api.post(&resume, &both).await.is(202);
    let done = api.rested(&thread).await;
    let state = json!({"first": "swing", "setting": {"force": 3}});
    assert_eq!((&done["status"], &done["state"]), (&json!("succeeded"), &state));
    assert_eq!(place.ran("tools"), 2);
}

#[tokio::test]
async fn a_pause_comes_at_the_border_or_now() {
    let place = Place::with_flows();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.start("parcel", json!({})).await;
    let question = api.question(&thread).await;
    let pause = format!("threads/{thread}/pause");
    api.post(&pause, &json!({"mode": "soon"})).await.problem(422, "invalid-body");
    api.post(&pause, &json!({"now": true})).await.problem(422, "invalid-body");
    api.answer(&question, yes()).await.is(202);
    eventually("it seals", || async { if place.ran("seal") == 1 { Ok(()) } else { Err(String::new()) } }).await;
    api.post(&pause, &json!({"mode": "now"})).await.is(202);
    let rests = api.rested(&thread).await;
    assert_eq!((&rests["status"], &rests["interrupts"][0]["kind"]), (&json!("parked"), &json!("pause")), "{rests}");
    assert_eq!((place.ran("seal"), place.ran("sealed")), (1, 0));
    // What was dropped may have done something that nobody recorded.
    let edit = json!({"as_node": "START"});
    let refused = api.post(&format!("threads/{thread}/state"), &edit).await.problem(409, "re-executes");
    let begun = json!({"address": "seal", "name": "begun, not recorded"});
    assert!(refused["steps"].as_array().is_some_and(|steps| steps.contains(&begun)), "{refused}");
    place.open();
    api.post(&format!("threads/{thread}/resume"), &json!({"continue": true})).await.is(202);
    assert_eq!(api.rested(&thread).await["status"], "succeeded");
    assert_eq!((place.ran("seal"), place.ran("sealed"), place.ran("weigh")), (2, 1, 1));
    // Without a body, and after the end.
    let bare = api.send(reqwest::Method::POST, &pause, &[], Vec::new()).await;
    bare.problem(409, "thread-ended");
}
