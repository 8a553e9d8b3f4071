//! Who may call what.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Api, Place, Reply, expense, identities};

/// Every route that the description names, as method and path, with ids put in.
async fn routes(api: &Api, thread: &str, interrupt: &str) -> Vec<(Method, String)> {
    let document = api.get("openapi.json").await.is(200);
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        let id = if path.contains("/interrupts/") { interrupt } else { thread };
        for method in operations.as_object().expect("operations").keys() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method");
            routes.push((method, path.replace("{id}", id).replace("{name}", "reader")));
        }
    }
    assert!(routes.len() >= 16, "{routes:?}");
    routes
}

#[tokio::test]
async fn without_a_good_token_every_route_says_401_and_nothing_else() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.expense("420.00").await;
    let question = api.question(&thread).await;
    let before = api.get(&format!("threads/{thread}")).await.is(200);
    let json = ("content-type", "application/json");
    for (method, path) in routes(api, &thread, &question).await {
        if path.starts_with("/health/") {
            api.with_token(None).get(&path).await.is(200);
            continue;
        }
        let stranger = api.with_token(None);
        for authorization in [
            None,
            Some("Bearer wrong".to_owned()),
            Some("Bearer ".to_owned()),
            Some(format!("Bearer {}x", server.token)),
            Some(format!("Basic {}", server.token)),
            Some(server.token.clone()),
        ] {
            let mut headers = vec![json];
            headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
            // A body that would do something, and one that is none.
            for body in [json!({"answer": {"approved": true}}).to_string(), "{".to_owned()] {
                let reply = stranger.send(method.clone(), &path, &headers, body.into()).await;
                assert!(!reply.text.contains("Ines"), "{method} {path}: {}", reply.text);
                assert!(reply.header("www-authenticate").starts_with("Bearer"), "{method} {path}");
                reply.problem(401, "unauthenticated");
            }
        }
    }
    assert_eq!(api.get(&format!("threads/{thread}")).await.is(200), before);
    assert_eq!(api.count().await, 1);
    let lower = api.with_token(None);
    let headers = [("authorization", &*format!("bearer {}", server.token))];
    lower.send(Method::GET, "overview", &headers, Vec::new()).await.is(200);
}

#[tokio::test]
async fn a_token_may_do_what_its_scopes_say() {
    let place = Place::new();
    let reader = place.token("reader", &["threads:read"], None).await;
    let writer = place.token("writer", &["threads:write"], None).await;
    let answerer = place.token("answerer", &["answer", "threads:read"], None).await;
    let speaker = place.token("speaker", &["answer", "answer:on_behalf"], None).await;
    let operator = place.token("operator", &["operate"], None).await;
    let server = place.up().await;
    let api = &server.api;
    let [reader, writer, answerer, speaker, operator] =
        [reader, writer, answerer, speaker, operator].map(|token| api.with_token(Some(&token)));
    let thread = api.expense("420.00").await;
    let question = api.question(&thread).await;
    let state = api.get(&format!("threads/{thread}")).await.is(200);

    let start = json!({"graph": "expense", "input": expense("420.00")});
    let answer = json!({"answer": {"approved": true}});
    let on_behalf = json!({"answer": {"approved": true}, "on_behalf_of": "person:admin@localhost"});
    let resume = json!({"answers": {question.clone(): {"approved": true}}});
    let at = |verb: &str| format!("threads/{thread}/{verb}");
    let refusals: Vec<(&Api, String, Option<&Value>, &str)> = vec![
        (&writer, "threads".into(), None, "threads:read"),
        (&writer, format!("threads/{thread}"), None, "threads:read"),
        (&writer, at("history"), None, "threads:read"),
        (&writer, at("audit"), None, "threads:read"),
        (&writer, "interrupts".into(), None, "threads:read"),
        (&writer, format!("interrupts/{question}"), None, "threads:read"),
        (&writer, format!("interrupts/{question}/deliveries"), None, "threads:read"),
        (&writer, "overview".into(), None, "threads:read"),
        (&writer, "graphs".into(), None, "threads:read"),
        (&reader, "threads".into(), Some(&start), "threads:write"),
        (&reader, at("cancel"), Some(&Value::Null), "threads:write"),
        (&reader, at("runs"), Some(&start), "threads:write"),
        (&reader, format!("interrupts/{question}/answer"), Some(&answer), "answer"),
        (&writer, format!("interrupts/{question}/answer"), Some(&answer), "answer"),
        (&answerer, format!("interrupts/{question}/answer"), Some(&on_behalf), "answer:on_behalf"),
        (&writer, at("resume"), Some(&resume), "answer"),
        (&answerer, at("retry"), Some(&Value::Null), "operate"),
        (&answerer, at("pause"), Some(&Value::Null), "operate"),
    ];
    for (caller, path, body, scope) in &refusals {
        let reply = match body {
            // `runs` reads its body before anything else.
            Some(_) if path.ends_with("/runs") => caller.post(path, &json!({"input": {}})).await,
            Some(body) => caller.post(path, body).await,
            None => caller.get(path).await,
        };
        let problem = reply.problem(403, "missing-scope");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.contains(&format!("`{scope}`")), "{path}: {detail}");
    }
    let released = answerer.post(&at("resume"), &json!({"continue": true})).await.problem(403, "missing-scope");
    assert!(released["detail"].as_str().is_some_and(|text| text.contains("operate")), "{released}");
    // A service holds no role, so its own answer does not count.
    answerer.post(&format!("interrupts/{question}/answer"), &answer).await.problem(403, "not-an-approver");
    assert_eq!(api.get(&at("")[..at("").len() - 1]).await.is(200), state);
    assert_eq!(api.count().await, 1);

    reader.get("threads").await.is(200);
    writer.post("threads", &start).await.is(202);
    operator.post(&at("retry"), &Value::Null).await.problem(409, "nothing-to-retry");
    speaker.post(&format!("interrupts/{question}/answer"), &on_behalf).await.is(202);
    let done = api.rested(&thread).await;
    assert_eq!(done["status"], "succeeded");
    let decided = api.get(&format!("interrupts/{question}")).await.is(200);
    assert_eq!(decided["decision"]["by"], json!(["person:admin@localhost"]));
}

#[tokio::test]
async fn threads_of_other_graphs_do_not_exist_for_a_limited_token() {
    let place = Place::new();
    let scopes = ["threads:read", "threads:write", "answer", "answer:on_behalf", "operate"];
    let one = place.token("one", &scopes, Some(&["payment"])).await;
    let two = place.token("two", &scopes, Some(&["payment", "wire_batch"])).await;
    let server = place.up().await;
    let api = &server.api;
    let (one, two) = (api.with_token(Some(&one)), api.with_token(Some(&two)));
    let thread = api.expense("420.00").await;
    let question = api.question(&thread).await;
    let before = api.get(&format!("threads/{thread}")).await.is(200);

    let start = json!({"graph": "expense", "input": expense("420.00")});
    one.post("threads", &start).await.problem(404, "unknown-graph");
    for path in ["", "/history", "/audit"] {
        one.get(&format!("threads/{thread}{path}")).await.problem(404, "unknown-thread");
    }
    for verb in ["retry", "pause", "cancel"] {
        one.post(&format!("threads/{thread}/{verb}"), &Value::Null).await.problem(404, "unknown-thread");
    }
    one.post(&format!("threads/{thread}/runs"), &json!({"input": {}})).await.problem(404, "unknown-thread");
    one.post(&format!("threads/{thread}/resume"), &json!({"resume_all": true})).await.problem(404, "unknown-thread");
    one.get(&format!("interrupts/{question}")).await.problem(404, "unknown-interrupt");
    one.get(&format!("interrupts/{question}/deliveries")).await.problem(404, "unknown-interrupt");
    let answer = json!({"answer": {"approved": true}, "on_behalf_of": "person:admin@localhost"});
    one.post(&format!("interrupts/{question}/answer"), &answer).await.problem(404, "unknown-interrupt");
    one.get("threads?graph=expense").await.problem(404, "unknown-graph");
    assert_eq!(one.get("threads").await.is(200)["items"], json!([]));
    assert_eq!(one.get("interrupts").await.is(200)["items"], json!([]));
    assert_eq!(identities(&one.get("graphs").await.is(200), "name"), ["payment".to_owned()].into());
    assert_eq!(api.get("overview").await.is(200)["requests_open"], 1);
    let hidden = one.get("overview").await.is(200);
    assert_eq!((&hidden["requests_open"], &hidden["threads"]["parked"]), (&json!(0), &json!(0)));
    assert_eq!(hidden["deliveries"], json!({"pending": 0, "failed": 0}));
    two.get("threads").await.problem(400, "graph-needed");
    assert_eq!(two.get("threads?graph=payment").await.is(200)["items"], json!([]));
    assert_eq!(api.get(&format!("threads/{thread}")).await.is(200), before);
    assert_eq!(api.count().await, 1);

    // A thread of a hidden graph does not show by its id being taken.
    let taken = json!({"graph": "payment", "thread_id": thread, "input": payment()});
    let problem = one.post("threads", &taken).await.problem(409, "thread-exists");
    assert_eq!(problem["same_input"], false);
    let own = one.post("threads", &json!({"graph": "payment", "input": payment()})).await.is(202);
    assert_eq!(one.rested(own["thread_id"].as_str().expect("an id")).await["status"], "succeeded");
}

fn payment() -> Value {
    json!({"trans_no": "1", "supplier_name": "Thames Water", "amount": "10"})
}

async fn make(api: &Api, name: &str, body: &Value) -> Reply {
    let json = ("content-type", "application/json");
    api.send(Method::PUT, &format!("tokens/{name}"), &[json], body.to_string().into_bytes()).await
}

#[tokio::test]
async fn tokens_are_made_replaced_and_revoked() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let body = json!({"scopes": ["threads:read"], "graphs": ["payment"]});
    let made = make(api, "reader", &body).await.is(201);
    let first = made["token"].as_str().expect("the text, once").to_owned();
    let reader = api.with_token(Some(&first));
    assert_eq!(identities(&reader.get("graphs").await.is(200), "name"), ["payment".to_owned()].into());
    let listed = api.get("tokens").await;
    assert!(!listed.text.contains(&first), "the text is shown once");
    assert!(identities(&listed.is(200), "name").contains("reader"));

    // Only the administrator's own scope makes tokens.
    make(&reader, "other", &body).await.problem(403, "missing-scope");
    reader.get("tokens").await.problem(403, "missing-scope");
    reader.send(Method::DELETE, "tokens/reader", &[], Vec::new()).await.problem(403, "missing-scope");
    for bad in [json!({}), json!({"scopes": ["everything"]}), json!({"scopes": [], "graph": "x"})] {
        make(api, "other", &bad).await.problem(422, "invalid-body");
    }
    make(api, "other", &json!({"scopes": [], "graphs": ["nope"]})).await.problem(422, "unknown-graph");
    make(api, "admin", &body).await.problem(422, "reserved-name");
    make(api, "a%2Fb", &body).await.problem(404, "unknown-id");
    assert_eq!(identities(&api.get("tokens").await.is(200), "name").len(), 2);

    // Tokens concern every graph, and so who makes them must.
    let limited = make(api, "limited", &json!({"scopes": ["admin"], "graphs": ["payment"]})).await.is(201);
    let limited = api.with_token(limited["token"].as_str());
    make(&limited, "wide", &json!({"scopes": ["admin"]})).await.problem(403, "beyond-own-graphs");
    make(&limited, "narrow", &body).await.problem(403, "beyond-own-graphs");
    limited.get("tokens").await.problem(403, "beyond-own-graphs");
    limited.send(Method::DELETE, "tokens/reader", &[], Vec::new()).await.problem(403, "beyond-own-graphs");
    reader.get("graphs").await.is(200);

    let second = make(api, "reader", &body).await.is(201)["token"].as_str().expect("a text").to_owned();
    reader.get("graphs").await.problem(401, "unauthenticated");
    let reader = api.with_token(Some(&second));
    reader.get("graphs").await.is(200);
    assert_eq!(api.send(Method::DELETE, "tokens/reader", &[], Vec::new()).await.status, 204);
    reader.get("graphs").await.problem(401, "unauthenticated");
    api.send(Method::DELETE, "tokens/reader", &[], Vec::new()).await.problem(404, "unknown-token");
    api.send(Method::DELETE, "tokens/admin", &[], Vec::new()).await.problem(422, "reserved-name");
    server.kill().await;
    let database = std::fs::read(place.data("countersign.db")).expect("a database");
    for text in [first, second] {
        assert!(!database.windows(text.len()).any(|part| part == text.as_bytes()), "tokens are kept hashed");
    }
}
