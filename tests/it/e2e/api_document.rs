//! The description of the API, and the probes.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::Value;

use super::kit::Place;

const ROUTES: [&str; 45] = [
    "get /api/v1/threads",
    "post /api/v1/threads",
    "get /api/v1/threads/{id}",
    "get /api/v1/threads/{id}/history",
    "get /api/v1/threads/{id}/checkpoints/{checkpoint_id}",
    "post /api/v1/threads/{id}/state",
    "post /api/v1/threads/{id}/runs",
    "post /api/v1/threads/{id}/resume",
    "post /api/v1/threads/{id}/retry",
    "post /api/v1/threads/{id}/pause",
    "post /api/v1/threads/{id}/cancel",
    "get /api/v1/threads/{id}/audit",
    "post /api/v1/threads/{id}/signals/{name}",
    "get /api/v1/schedules",
    "post /api/v1/schedules/{name}/pause",
    "post /api/v1/schedules/{name}/resume",
    "post /api/v1/schedules/{name}/fire",
    "get /api/v1/threads/{id}/events",
    "get /api/v1/interrupts",
    "get /api/v1/interrupts/{id}",
    "post /api/v1/interrupts/{id}/answer",
    "get /api/v1/interrupts/{id}/deliveries",
    "post /api/v1/resume",
    "get /api/v1/overview",
    "get /api/v1/graphs",
    "get /api/v1/pauses",
    "put /api/v1/pauses/graphs/{graph}",
    "delete /api/v1/pauses/graphs/{graph}",
    "put /api/v1/pauses/graphs/{graph}/nodes/{node}",
    "delete /api/v1/pauses/graphs/{graph}/nodes/{node}",
    "put /api/v1/pauses/channels/{channel}",
    "delete /api/v1/pauses/channels/{channel}",
    "get /api/v1/operations",
    "get /api/v1/limits",
    "put /api/v1/limits/{graph}",
    "delete /api/v1/limits/{graph}",
    "get /api/v1/dead-letters",
    "post /api/v1/dead-letters/retry",
    "get /api/v1/tokens",
    "put /api/v1/tokens/{name}",
    "delete /api/v1/tokens/{name}",
    "post /api/v1/sign-in-links",
    "get /metrics",
    "get /health/live",
    "get /health/ready",
];

fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths.iter().flat_map(|(path, operations)| {
        let operations = operations.as_object().expect("operations");
        operations.iter().map(move |(method, operation)| (format!("{method} {path}"), operation))
    });
    operations.collect()
}

#[tokio::test]
async fn the_description_names_every_route_once() {
    let place = Place::new();
    let server = place.up().await;
    let reply = server.api.with_token(None).get("openapi.json").await;
    assert_eq!(reply.header("content-type"), "application/json");
    let document = reply.is(200);
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")), "{}", document["openapi"]);
    assert_eq!(document["info"]["title"], "Countersign");
    let operations = operations(&document);
    let named: BTreeSet<&str> = operations.iter().map(|(route, _)| route.as_str()).collect();
    assert_eq!(named, ROUTES.into_iter().collect());
    let ids: BTreeSet<&str> = operations.iter().filter_map(|(_, it)| it["operationId"].as_str()).collect();
    assert_eq!(ids.len(), operations.len(), "every operation has an id of its own: {ids:?}");
}

#[tokio::test]
async fn the_description_is_consistent_in_itself() {
    let place = Place::new();
    let server = place.up().await;
    let document = server.api.get("openapi.json").await.is(200);
    let components = |reference: &str| document.pointer(reference.trim_start_matches('#')).is_some();
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        assert!(components(&reference), "{reference} leads nowhere");
    }
    for (route, operation) in operations(&document) {
        assert!(operation["responses"].as_object().is_some_and(|responses| !responses.is_empty()), "{route}");
        let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        for parameter in parameters {
            let name = parameter["name"].as_str().expect("a name");
            let (place, required) = if route.contains(&format!("{{{name}}}")) {
                ("path", true)
            } else if matches!(name, "Idempotency-Key" | "Last-Event-ID") {
                ("header", false)
            } else {
                ("query", false)
            };
            assert_eq!(parameter["in"], place, "{route}: {name}");
            assert_eq!(parameter["required"].as_bool().unwrap_or(false), required, "{route}: {name}");
        }
        assert_eq!(route.contains("{id}"), parameters.iter().any(|p| p["name"] == "id"), "{route}");
    }
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            references.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| collect(member, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}

#[tokio::test]
async fn probes_need_no_token() {
    let place = Place::new();
    let server = place.up().await;
    let stranger = server.api.with_token(None);
    for (path, status) in [("/health/live", "live"), ("/health/ready", "ready")] {
        assert_eq!(stranger.get(path).await.is(200)["status"], status);
        assert_eq!(stranger.send(Method::HEAD, path, &[], Vec::new()).await.status, 200);
        assert_eq!(stranger.send(Method::POST, path, &[], Vec::new()).await.status, 405);
    }
}

#[tokio::test]
async fn what_is_reported_holds_no_secret() {
    let place = Place::new().with("COUNTERSIGN_LOG_FILTER", "trace");
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    server.api.delivered(&question).await;
    let token = place.mails()[0].path().trim_start_matches("/d/").to_owned();
    server.api.with_token(None).get(&format!("/d/{token}")).await;
    let sign_in = server.shown["sign_in_link"].as_str().expect("a link").rsplit_once('/').expect("a path").1.to_owned();
    server.api.with_token(None).get(&format!("/signin/{sign_in}")).await;
    server.api.get("overview").await.is(200);
    let api_token = server.token.clone();
    server.kill().await;
    let log = place.log();
    assert!(log.contains(&thread), "something was reported");
    for secret in [token, sign_in, api_token] {
        assert!(secret.len() > 20);
        assert!(!log.contains(&secret), "a secret is in the log");
    }
}
