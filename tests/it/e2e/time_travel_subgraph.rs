//! Sub-graphs over HTTP: their questions, state, history and past; and a
//! process killed in the middle of one.

use serde_json::{Value, json};

use super::kit::{Api, Place, eventually};

fn yes() -> Value {
    json!({"approved": true})
}

/// A parcel that waits for the question inside its sub-graph; its frame.
async fn waiting(api: &Api) -> (String, String, Value) {
    let thread = api.start("parcel", json!({})).await;
    let question = api.question(&thread).await;
    let shown = api.get(&format!("threads/{thread}")).await.is(200);
    let frames = shown["frames"].as_array().expect("a list");
    assert_eq!(frames.len(), 1, "{shown}");
    (thread, question, frames[0].clone())
}

#[tokio::test]
async fn a_question_in_a_subgraph_is_listed_shown_and_answered() {
    let place = Place::with_flows();
    place.open();
    let server = place.up().await;
    let api = &server.api;
    let (thread, question, frame) = waiting(api).await;
    assert_eq!((&frame["path"], &frame["graph"]), (&json!(["check"]), &json!("check")));
    assert_eq!((&frame["address"], &frame["next"]), (&json!("parcel/check@1"), &json!(["accept"])));
    assert_eq!(frame["values"]["weight"], json!(7));
    let shown = api.get(&format!("threads/{thread}")).await.is(200);
    assert_eq!((&shown["next"], &shown["values"]["weight"]), (&json!(["check"]), &Value::Null));
    let point = &shown["interrupts"][0];
    assert_eq!((&point["frame"], &point["address"]), (&frame["id"], &json!("parcel/check@1/accept@1")));
    let around: Vec<_> = point["parents"].as_array().expect("a list").iter().map(|parent| &parent["address"]).collect();
    assert_eq!(around, ["parcel/check@1", "parcel"]);
    let listed = api.get("interrupts?status=open&graph=parcel").await.is(200);
    assert_eq!((&listed["items"][0]["id"], &listed["items"][0]["frame"]), (&json!(question), &frame["id"]));

    let id = frame["id"].as_str().expect("an id");
    let history = api.get(&format!("threads/{thread}/history?frame={id}")).await.is(200);
    let next: Vec<_> = history["items"].as_array().expect("a list").iter().map(|entry| &entry["next"]).collect();
    assert_eq!(next, [&json!(["accept"]), &json!(["weigh"])]);
    api.answer(&question, yes()).await.is(202);
    let done = api.rested(&thread).await;
    assert_eq!((&done["status"], &done["frames"]), (&json!("succeeded"), &json!([])));
    assert_eq!(done["state"], json!({"weight": 7, "shipped": true}));
    let journal = json!({"accept": 2, "prepare": 1, "seal": 1, "sealed": 1, "ship": 1, "weigh": 1});
    assert_eq!(json!(place.journal()), journal);
}

#[tokio::test]
async fn the_state_of_a_subgraph_is_edited_while_it_waits() {
    let place = Place::with_flows();
    place.open();
    let server = place.up().await;
    let api = &server.api;
    let (thread, question, frame) = waiting(api).await;
    let state = format!("threads/{thread}/state");
    let edit = json!({
        "frame": frame["id"], "checkpoint_id": frame["checkpoint_id"], "values": {"weight": 9}, "as_node": "weigh",
    });
    let edited = api.post(&state, &edit).await.is(200);
    assert_eq!((&edited["next"], &edited["status"]), (&json!(["accept"]), &json!("parked")));
    api.post(&state, &edit).await.problem(409, "thread-changed");
    let problem = api.post(&state, &json!({"frame": frame["id"], "values": {"shipped": true}})).await;
    assert_eq!(problem.problem(422, "invalid-values")["errors"][0]["pointer"], "/shipped");

    let shown = api.rested(&thread).await;
    assert_eq!(shown["frames"][0]["values"]["weight"], json!(9));
    assert_eq!(shown["frames"][0]["checkpoint_id"], edited["checkpoint_id"]);
    let points = shown["interrupts"].as_array().expect("a list");
    assert_eq!((points.len(), &points[0]["kind"], &points[0]["frame"]), (1, &json!("pause"), &frame["id"]));
    let old = api.get(&format!("interrupts/{question}")).await.is(200);
    assert_eq!((&old["status"], &old["closed_by"]), (&json!("superseded"), &json!("edited")));
    api.post(&format!("threads/{thread}/resume"), &json!({"continue": true})).await.is(202);
    let second = api.question(&thread).await;
    let asked = api.get(&format!("interrupts/{second}")).await.is(200);
    assert_eq!(asked["payload"]["title"], "Accept 9 kg?");
    api.answer(&second, yes()).await.is(202);
    assert_eq!(api.rested(&thread).await["state"], json!({"weight": 9, "shipped": true}));
    assert_eq!((place.ran("weigh"), place.ran("prepare"), place.ran("ship")), (1, 1, 1));
    api.audited(&thread).await;
}

#[tokio::test]
async fn of_two_edits_of_a_subgraph_at_once_one_counts() {
    let place = Place::with_flows();
    let server = place.up().await;
    let api = &server.api;
    let (thread, _, frame) = waiting(api).await;
    let edits = (0..8).map(|weight| {
        let (api, state) = (api.clone(), format!("threads/{thread}/state"));
        let edit = json!({
            "frame": frame["id"], "checkpoint_id": frame["checkpoint_id"], "values": {"weight": weight},
            "as_node": "weigh",
        });
        async move { api.post(&state, &edit).await.status }
    });
    let mut statuses = futures_util::future::join_all(edits).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200], vec![409; 7]].concat());
}

#[tokio::test]
async fn a_subgraph_starts_over_from_a_checkpoint_of_its_own() {
    let place = Place::with_flows();
    place.open();
    let server = place.up().await;
    let api = &server.api;
    let (thread, first, frame) = waiting(api).await;
    let id = frame["id"].as_str().expect("an id");
    api.answer(&first, json!({"approved": false})).await.is(202);
    assert_eq!(api.rested(&thread).await["status"], "succeeded");
    let history = api.get(&format!("threads/{thread}/history?frame={id}")).await.is(200);
    let items = history["items"].as_array().expect("a list");
    let inner = items.iter().find(|entry| entry["next"] == json!(["accept"])).expect("before the question");
    let inner = inner["checkpoint_id"].as_str().expect("an id");
    let shown = api.get(&format!("threads/{thread}/checkpoints/{inner}")).await.is(200);
    assert_eq!((&shown["frame"], &shown["values"]["weight"]), (&frame["id"], &json!(7)));
    assert_eq!(shown["around"].as_array().map(Vec::len), Some(1), "{shown}");

    let problem = api.post(&format!("threads/{thread}/state"), &json!({"at": inner, "as_node": "weigh"})).await;
    problem.problem(422, "inner-checkpoint");
    let runs = format!("threads/{thread}/runs");
    api.post(&runs, &json!({"checkpoint_id": inner, "input": {}})).await.problem(422, "inner-checkpoint");
    api.post(&runs, &json!({"checkpoint_id": inner})).await.is(202);
    let second = api.question(&thread).await;
    assert_ne!(first, second);
    api.answer(&second, yes()).await.is(202);
    assert_eq!(api.rested(&thread).await["state"], json!({"weight": 7, "shipped": true}));
    assert_eq!((place.ran("prepare"), place.ran("weigh"), place.ran("ship")), (1, 1, 2));
    api.audited(&thread).await;
}

#[tokio::test]
async fn killed_in_the_middle_of_a_subgraph() {
    let place = Place::with_flows();
    let server = place.up().await;
    let (thread, question, _) = waiting(&server.api).await;
    server.kill().await;
    let server = place.up().await;
    assert_eq!(server.api.question(&thread).await, question, "parked in it, and still");
    server.api.answer(&question, yes()).await.is(202);
    eventually("it seals", || async {
        if place.ran("seal") == 1 { Ok(()) } else { Err(format!("{:?}", place.journal())) }
    })
    .await;
    server.kill().await;
    place.open();
    let server = place.up().await;
    let done = server.api.rested(&thread).await;
    assert_eq!((&done["status"], &done["state"]), (&json!("succeeded"), &json!({"weight": 7, "shipped": true})));
    let journal = json!({"accept": 2, "prepare": 1, "seal": 2, "sealed": 1, "ship": 1, "weigh": 1});
    assert_eq!(json!(place.journal()), journal, "only what was under way ran again");
    server.api.audited(&thread).await;
}
