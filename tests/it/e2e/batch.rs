//! Many answers in one request.

use serde_json::{Map, Value, json};

use super::kit::{Api, Place, expense};

/// Starts expenses, and returns what each asks.
async fn questions(api: &Api, count: usize) -> Vec<(String, String)> {
    let mut asked = Vec::new();
    for _ in 0..count {
        let thread = api.expense("420.00").await;
        let question = api.question(&thread).await;
        asked.push((thread, question));
    }
    asked
}

fn answers<'a>(ids: impl IntoIterator<Item = &'a String>, answer: &Value) -> Value {
    let answers: Map<String, Value> = ids.into_iter().map(|id| (id.clone(), answer.clone())).collect();
    Value::Object(answers)
}

#[tokio::test]
async fn fifty_threads_are_answered_by_one_request_and_the_same_again_changes_nothing() {
    let place = Place::new();
    let server = place.up().await;
    let asked = questions(&server.api, 50).await;
    let body = json!({"answers": answers(asked.iter().map(|(_, id)| id), &json!({"approved": true}))});
    let reply = server.api.post_once("friday", "resume", &body).await.is(202);
    let counts = |reply: &Value| {
        ["decided", "waiting", "repeated", "refused", "left_out", "threads"]
            .map(|name| reply[name].as_u64().expect("a number"))
    };
    assert_eq!(counts(&reply), [50, 0, 0, 0, 0, 50], "{reply}");
    let one = &reply["outcomes"][&asked[7].1];
    assert_eq!(*one, json!({"status": "decided", "thread_id": asked[7].0, "repeated": false, "have": 1, "need": 1}));
    for (thread, _) in &asked {
        assert_eq!(server.api.rested(thread).await["status"], "succeeded");
        let actions = server.api.audited(thread).await;
        assert_eq!(actions.iter().filter(|action| *action == "decided").count(), 1, "{actions:?}");
    }
    assert_eq!(place.ledger().await.len(), 50);
    // Under its key the same reply; without it, what is so now.
    assert_eq!(server.api.post_once("friday", "resume", &body).await.is(202), reply);
    let again = server.api.post("resume", &body).await.is(200);
    assert_eq!(counts(&again), [50, 0, 50, 0, 0, 50], "{again}");
    let other = json!({"answers": answers([&asked[0].1], &json!({"approved": false}))});
    server.api.post_once("friday", "resume", &other).await.problem(422, "idempotency-key-reused");
    assert_eq!(place.ledger().await.len(), 50);
}

#[tokio::test]
async fn as_a_whole_nothing_is_recorded_if_one_is_refused_and_by_itself_each_is() {
    let place = Place::new();
    let server = place.up().await;
    let asked = questions(&server.api, 3).await;
    let yes = json!({"approved": true});
    let mut mixed = answers(asked.iter().map(|(_, id)| id), &yes);
    mixed[&asked[1].1] = json!({"approved": "perhaps"});
    mixed["0".repeat(32)] = yes.clone();
    mixed["no id"] = yes.clone();
    let refused = server.api.post("resume", &json!({"answers": mixed})).await.problem(422, "batch-refused");
    let refused = refused["refused"].as_object().expect("each").clone();
    assert_eq!(refused.len(), 3, "{refused:?}");
    let kinds =
        [(asked[1].1.clone(), "invalid-answer"), ("0".repeat(32), "unknown-interrupt"), ("no id".into(), "unknown-id")];
    for (id, kind) in &kinds {
        assert_eq!(refused[id]["type"], format!("urn:countersign:problem:{kind}"), "{refused:?}");
    }
    assert_eq!(server.api.get("overview?fresh=true").await.is(200)["requests_open"], 3, "nothing was recorded");

    let each = server.api.post("resume", &json!({"answers": mixed, "validate": "each"})).await.is(202);
    assert_eq!((&each["decided"], &each["refused"], &each["threads"]), (&json!(2), &json!(3), &json!(2)), "{each}");
    let problem = &each["outcomes"][&asked[1].1]["problem"];
    let alone = server.api.answer(&asked[1].1, json!({"approved": "perhaps"})).await.problem(422, "invalid-answer");
    assert_eq!(*problem, alone, "the same words as alone");
    server.api.answer(&asked[1].1, yes.clone()).await.is(202);
    // Somebody else's decision is told as it is to a single answer.
    let late = json!({"answers": answers([&asked[0].1], &json!({"approved": false})), "validate": "each"});
    let late = server.api.post("resume", &late).await.is(200);
    let kind = &late["outcomes"][&asked[0].1]["problem"]["type"];
    let alone = server.api.answer(&asked[0].1, json!({"approved": false})).await;
    assert_eq!((alone.status, kind), (409, &alone.body["type"]), "{late}");
}

#[tokio::test]
async fn who_may_decide_is_judged_on_this_route_too() {
    let place = Place::new();
    let reader = place.token("reader", &["threads:read"], None).await;
    let service = place.token("service", &["answer"], None).await;
    let desk = place.token("desk", &["answer", "answer:on_behalf"], None).await;
    let limited = place.token("limited", &["answer", "answer:on_behalf"], Some(&["payment"])).await;
    let server = place.up().await;
    let (_, question) = questions(&server.api, 1).await.remove(0);
    let body = |more: Value| {
        let mut body = json!({"answers": answers([&question], &json!({"approved": true})), "validate": "each"});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    let by = |token: &str| server.api.with_token(Some(token));
    let behalf = json!({"on_behalf_of": "person:admin@localhost"});
    server.api.with_token(None).post("resume", &body(json!({}))).await.problem(401, "unauthenticated");
    by(&reader).post("resume", &body(json!({}))).await.problem(403, "missing-scope");
    by(&service).post("resume", &body(behalf.clone())).await.problem(403, "missing-scope");
    let kind = |reply: &Value| reply["outcomes"][&question]["problem"]["type"].clone();
    let own = by(&service).post("resume", &body(json!({}))).await.is(200);
    let alone = by(&service).answer(&question, json!({"approved": true})).await;
    assert_eq!((alone.status, kind(&own)), (403, alone.body["type"].clone()), "a service is nobody's role: {own}");
    let hidden = by(&limited).post("resume", &body(behalf.clone())).await.is(200);
    assert_eq!(kind(&hidden), "urn:countersign:problem:unknown-interrupt", "{hidden}");
    let named = by(&desk).post("resume", &body(behalf)).await.is(202);
    assert_eq!(named["outcomes"][&question]["status"], "decided", "{named}");
}

#[tokio::test]
async fn ten_thousand_fit_and_one_more_does_not() {
    let place = Place::new();
    let server = place.up().await;
    let ids: Vec<String> = (0..10_001).map(|number| format!("{number:032x}")).collect();
    // Together more than other bodies may have.
    let answer = json!({"approved": true, "reason": "x".repeat(100)});
    let body = json!({"answers": answers(&ids[..10_000], &answer), "validate": "each"});
    assert!(body.to_string().len() > 1 << 20);
    let reply = server.api.post("resume", &body).await.is(200);
    assert_eq!((&reply["refused"], reply["outcomes"].as_object().map(Map::len)), (&json!(10_000), Some(10_000)));
    let more = json!({"answers": answers(&ids, &answer), "validate": "each"});
    server.api.post("resume", &more).await.problem(422, "number-of-answers");
    server.api.post("resume", &json!({"answers": {}})).await.problem(422, "number-of-answers");
    server.api.post("resume", &json!({"answers": {}, "validate": "some"})).await.problem(422, "invalid-body");
    let large = json!({"graph": "expense", "input": expense(&"9".repeat(2 << 20))});
    server.api.post("threads", &large).await.problem(413, "body-too-large");
}
