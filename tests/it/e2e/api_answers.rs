//! Answering, resuming, pausing, cancelling over the API.

use serde_json::{Value, json};

use super::kit::{Api, Place, expense};

const TWO: &str = r#"
[[people]]
email = "mia@example.com"
name = "Mia"
roles = ["manager", "finance"]
[[people]]
email = "finn@example.com"
name = "Finn"
roles = ["finance"]
"#;

fn yes() -> Value {
    json!({"approved": true})
}

async fn on_behalf(api: &Api, interrupt: &str, who: &str) -> super::kit::Reply {
    let body = json!({"answer": yes(), "on_behalf_of": who});
    api.post(&format!("interrupts/{interrupt}/answer"), &body).await
}

#[tokio::test]
async fn an_answer_counts_once_and_stays() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.expense("420.00").await;
    let question = api.question(&thread).await;
    let shown = api.get(&format!("interrupts/{question}")).await.is(200);
    assert_eq!(
        (&shown["status"], &shown["kind"], &shown["thread_id"]),
        (&json!("open"), &json!("approval"), &json!(thread))
    );
    assert_eq!((&shown["address"], &shown["deadline"]), (&json!("expense/manager@0"), &Value::Null));

    // Wrong shapes: every fault with its place, nothing recorded.
    for (wrong, pointer) in [
        (json!({"approved": "yes"}), "/approved"),
        (json!({}), "/approved"),
        (json!({"approved": true, "extra": 1}), "/extra"),
        (json!({"approved": false, "reason": 7}), "/reason"),
        (json!([true]), ""),
        (Value::Null, ""),
    ] {
        let problem = api.answer(&question, wrong.clone()).await.problem(422, "invalid-answer");
        let errors = problem["errors"].as_array().expect("a list");
        assert!(errors.iter().any(|error| error["pointer"] == pointer), "{wrong}: {problem}");
        assert_eq!(api.question(&thread).await, question);
    }
    let both = api.answer(&question, json!({"approved": 1, "extra": 1})).await.problem(422, "invalid-answer");
    assert_eq!(both["errors"].as_array().map(Vec::len), Some(2), "{both}");
    let body = json!({"answer": yes(), "revision": 2});
    let problem = api.post(&format!("interrupts/{question}/answer"), &body).await.problem(409, "request-changed");
    assert_eq!(problem["revision"], 1);
    api.post(&format!("interrupts/{question}/answer"), &json!({"answers": yes()})).await.problem(422, "invalid-body");

    let reply = api.answer(&question, yes()).await.is(202);
    assert_eq!(
        reply,
        json!({"interrupt_id": question, "thread_id": thread, "status": "decided", "have": 1, "need": 1})
    );
    assert_eq!(api.answer(&question, yes()).await.is(200)["status"], "decided");
    let problem = api.answer(&question, json!({"approved": false})).await.problem(409, "already-answered");
    assert_eq!((&problem["by"], &problem["answer"]), (&json!(["person:admin@localhost"]), &yes()));
    assert!(problem["at"].as_str().is_some_and(|at| at.ends_with('Z')), "{problem}");
    let done = api.rested(&thread).await;
    assert_eq!((&done["status"], &done["state"]["outcome"]), (&json!("succeeded"), &json!("paid")));
    assert_eq!(api.answer(&question, yes()).await.status, 200);
    api.answer(&question, json!({"approved": false})).await.problem(409, "already-answered");
    assert_eq!(place.ledger().await.len(), 1);
    let actions = api.audited(&thread).await;
    assert_eq!(actions.iter().filter(|action| *action == "decided").count(), 1, "{actions:?}");
}

#[tokio::test]
async fn of_many_answers_at_once_exactly_one_counts() {
    let place = Place::new();
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let answers = (0..16).map(|i| {
        let (api, question) = (server.api.clone(), question.clone());
        async move { api.answer(&question, json!({"approved": true, "reason": format!("r{i}")})).await.status }
    });
    let mut statuses: Vec<u16> = futures_util::future::join_all(answers).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![202], vec![409; 15]].concat());
    assert_eq!(server.api.rested(&thread).await["status"], "succeeded");
    assert_eq!(place.ledger().await.len(), 1);
}

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let missing = "0".repeat(32);
    api.answer(&missing, yes()).await.problem(404, "unknown-interrupt");
    api.get(&format!("interrupts/{missing}")).await.problem(404, "unknown-interrupt");
    api.get(&format!("interrupts/{missing}/deliveries")).await.problem(404, "unknown-interrupt");
    for malformed in ["x", "%00", "..%2f..", &"0".repeat(31), &"Z".repeat(32)] {
        api.answer(malformed, yes()).await.problem(404, "unknown-id");
        api.get(&format!("interrupts/{malformed}")).await.problem(404, "unknown-id");
    }
    for path in ["", "/history", "/audit"] {
        api.get(&format!("threads/nope{path}")).await.problem(404, "unknown-thread");
        api.get(&format!("threads/a%2Fb{path}")).await.problem(404, "unknown-id");
    }
    for verb in ["retry", "pause", "cancel"] {
        api.post(&format!("threads/nope/{verb}"), &json!({})).await.problem(404, "unknown-thread");
    }
    api.post("threads/nope/resume", &json!({"continue": true})).await.problem(404, "unknown-thread");
    api.post("threads/nope/runs", &json!({"input": {}})).await.problem(404, "unknown-thread");
    assert_eq!(api.count().await, 0);
}

#[tokio::test]
async fn the_second_approver_is_somebody_else_on_every_route() {
    let place = Place::configured(TWO);
    let server = place.up().await;
    let api = &server.api;
    let thread = api.expense("2350.00").await;
    let first = api.question(&thread).await;
    // Having the token is holding no role.
    api.answer(&first, yes()).await.problem(403, "not-an-approver");
    on_behalf(api, &first, "person:finn@example.com").await.problem(403, "not-an-approver");
    on_behalf(api, &first, "person:stranger@example.com").await.problem(403, "not-an-approver");
    on_behalf(api, &first, "person:Mia@Example.com").await.is(202);
    let second = api.question(&thread).await;
    assert_ne!(first, second);
    let problem = on_behalf(api, &second, "person:mia@example.com").await.problem(403, "excluded");
    assert_eq!(problem["principal"], "person:mia@example.com");
    let resume = json!({"answers": {second.clone(): yes()}});
    api.post(&format!("threads/{thread}/resume"), &resume).await.problem(403, "not-an-approver");
    let told: Vec<_> = api.delivered(&second).await.iter().map(|delivery| delivery["recipient"].clone()).collect();
    assert_eq!(told, ["person:finn@example.com"], "who may not decide is not asked");
    assert_eq!(api.question(&thread).await, second);
    on_behalf(api, &second, "person:finn@example.com").await.is(202);
    assert_eq!(api.rested(&thread).await["state"]["outcome"], "paid");
    assert_eq!(place.ledger().await.len(), 1);
}

#[tokio::test]
async fn new_input_for_a_waiting_thread_is_refused_or_discards() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.expense("420.00").await;
    let question = api.question(&thread).await;
    let runs = format!("threads/{thread}/runs");
    for body in [json!({"input": expense("500")}), json!({"input": expense("500"), "on_waiting": "refuse"})] {
        api.post(&runs, &body).await.problem(409, "thread-interrupted");
    }
    api.post(&runs, &json!({"input": expense("500"), "on_waiting": "maybe"})).await.problem(422, "invalid-body");
    let discard = |input: Value| json!({"input": input, "on_waiting": "discard"});
    api.post(&runs, &discard(json!({}))).await.problem(422, "invalid-input");
    assert_eq!(api.question(&thread).await, question);
    let reply = api.post(&runs, &discard(expense("500"))).await.is(202);
    assert_eq!(reply["thread_id"], json!(thread));
    let next = api.question(&thread).await;
    assert_ne!(next, question);
    assert_eq!(api.get(&format!("interrupts/{question}")).await.is(200)["status"], "superseded");
    let problem = api.answer(&question, yes()).await.problem(409, "superseded");
    assert_eq!(problem["became"], "superseded");
    api.answer(&next, yes()).await.is(202);
    let done = api.rested(&thread).await;
    assert_eq!((&done["status"], &done["state"]["amount"]), (&json!("succeeded"), &json!("500.00")));
    api.post(&runs, &json!({"input": expense("20")})).await.is(202);
    assert_eq!(api.rested(&thread).await["state"]["amount"], "20.00");
    assert_eq!(place.ledger().await.len(), 2);
    api.audited(&thread).await;
}

#[tokio::test]
async fn a_resume_is_all_or_nothing() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.start("wire_batch", json!({})).await;
    let asked = api.asked(&thread).await;
    assert_eq!(asked.len(), 2);
    assert_eq!(place.ledger().await.len(), 3, "the three that need nobody");
    let resume = format!("threads/{thread}/resume");
    let answers = |first: Value, second: Value| json!({"answers": {asked[0].clone(): first, asked[1].clone(): second}});
    api.post(&resume, &answers(yes(), json!({"approved": "x"}))).await.problem(422, "invalid-answer");
    let mixed = json!({"answers": {asked[0].clone(): yes(), "0".repeat(32): yes()}});
    api.post(&resume, &mixed).await.problem(404, "unknown-interrupt");
    let mixed = json!({"answers": {asked[0].clone(): yes(), "bad id": yes()}});
    api.post(&resume, &mixed).await.problem(404, "unknown-interrupt");
    let mixed = json!({"answers": {asked[0].clone(): yes()}, "retry": true, "update": {"nope": 1}});
    api.post(&resume, &mixed).await.problem(422, "invalid-values");
    api.post(&resume, &json!({"retry": true})).await.problem(409, "nothing-to-retry");
    api.post(&resume, &json!({})).await.problem(422, "empty-resume");
    api.post(&resume, &json!({"continue": true})).await.problem(409, "nothing-to-continue");
    api.post(&format!("threads/{thread}/retry"), &json!({})).await.problem(409, "nothing-to-retry");
    for (amendment, value, problem) in [
        ("update", json!({"nope": 1}), "invalid-values"),
        ("goto", json!(["nope"]), "unknown-node"),
        ("send", json!([{"to": "nope"}]), "unknown-node"),
        ("send", json!({"to": "wires"}), "invalid-body"),
    ] {
        let body = json!({"answers": {asked[0].clone(): yes()}, amendment: value});
        api.post(&resume, &body).await.problem(422, problem);
    }
    assert_eq!(api.asked(&thread).await, asked, "nothing was recorded");
    api.post(&resume, &answers(yes(), json!({"approved": false}))).await.is(202);
    let done = api.rested(&thread).await;
    assert_eq!(done["status"], "succeeded");
    let booked = place.ledger().await;
    assert_eq!(booked.len(), 4);
    assert!(booked.iter().all(|entry| entry.attempts == 1), "the finished three were not repeated: {booked:?}");
    api.post(&resume, &json!({"continue": true})).await.problem(409, "thread-ended");
    let actions = api.audited(&thread).await;
    assert_eq!(actions.iter().filter(|action| *action == "decided").count(), 2, "{actions:?}");
}

#[tokio::test]
async fn a_pause_holds_until_it_is_released() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.expense("420.00").await;
    let question = api.question(&thread).await;
    api.post(&format!("threads/{thread}/pause"), &json!({})).await.is(202);
    api.answer(&question, yes()).await.is(202);
    let paused = api.rested(&thread).await;
    assert_eq!(paused["status"], "parked", "{paused}");
    let points = paused["interrupts"].as_array().expect("a list");
    assert_eq!((points.len(), &points[0]["kind"]), (1, &json!("pause")), "{paused}");
    assert!(place.ledger().await.is_empty());
    api.post(&format!("threads/{thread}/resume"), &json!({"continue": true})).await.is(202);
    assert_eq!(api.rested(&thread).await["status"], "succeeded");
    assert_eq!(place.ledger().await.len(), 1);
    api.audited(&thread).await;
}

#[tokio::test]
async fn a_cancelled_thread_stays_so() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.expense("420.00").await;
    let question = api.question(&thread).await;
    let cancel = format!("threads/{thread}/cancel");
    assert_eq!(api.post(&cancel, &json!({})).await.is(200)["status"], "cancelled");
    assert_eq!(api.post(&cancel, &json!({})).await.is(200)["status"], "cancelled");
    let ended = api.rested(&thread).await;
    assert_eq!((&ended["status"], &ended["open"]), (&json!("cancelled"), &json!(0)));
    let point = api.get(&format!("interrupts/{question}")).await.is(200);
    assert_ne!(point["status"], "open");
    assert_eq!(api.answer(&question, yes()).await.status, 409);
    api.post(&format!("threads/{thread}/pause"), &json!({})).await.problem(409, "thread-ended");
    assert!(place.ledger().await.is_empty());
    assert!(api.audited(&thread).await.contains(&"cancel_requested".to_owned()));
}
