//! Lists, page by page, and histories.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::kit::{Api, Place, expense, identities};

const PEOPLE: &str = r#"
[[people]]
email = "mia@example.com"
name = "Mia"
roles = ["manager"]
[[people]]
email = "finn@example.com"
name = "Finn"
roles = ["finance"]
"#;

/// Goes through a list and returns the ids in order.
async fn walk(api: &Api, list: &str, member: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let join = if list.contains('?') { '&' } else { '?' };
        let path = cursor.map_or(list.to_owned(), |cursor| format!("{list}{join}cursor={cursor}"));
        let page = api.get(&path).await.is(200);
        let items = page["items"].as_array().expect("a list");
        ids.extend(items.iter().map(|item| item[member].as_str().expect("an id").to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return ids,
        }
        assert!(ids.len() < 1_000, "it never ends");
    }
}

#[tokio::test]
async fn pages_have_no_gaps_and_no_repeats() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let starts = (0..120).map(|i| {
        let api = api.clone();
        async move { api.expense(if i % 3 == 0 { "420.00" } else { "20.00" }).await }
    });
    let started: BTreeSet<String> = futures_util::future::join_all(starts).await.into_iter().collect();
    assert_eq!(started.len(), 120);
    for thread in &started {
        api.rested(thread).await;
    }
    for limit in [7, 40, 119, 120, 121, 500] {
        let ids = walk(api, &format!("threads?limit={limit}"), "thread_id").await;
        assert_eq!(ids.len(), 120, "limit {limit}");
        assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), started, "limit {limit}");
    }
    let parked = walk(api, "threads?status=parked&graph=expense&limit=9", "thread_id").await;
    assert_eq!(parked.len(), 40);
    let asked = walk(api, "interrupts?status=open&limit=9", "id").await;
    assert_eq!(asked.iter().collect::<BTreeSet<_>>().len(), 40);
    assert_eq!(asked.len(), 40);
    assert_eq!(walk(api, "threads?graph=payment", "thread_id").await.len(), 0);

    // Newest first, 50 unless said; what is started meanwhile moves nothing.
    let first = api.get("threads").await.is(200);
    assert_eq!(first["items"].as_array().map(Vec::len), Some(50));
    let times: Vec<&str> =
        first["items"].as_array().expect("a list").iter().filter_map(|t| t["created_at"].as_str()).collect();
    assert!(times.windows(2).all(|pair| pair[0] >= pair[1]), "{times:?}");
    let newest = api.expense("20.00").await;
    let cursor = first["next_cursor"].as_str().expect("more");
    let second = api.get(&format!("threads?cursor={cursor}")).await.is(200);
    let (one, two) = (identities(&first["items"], "thread_id"), identities(&second["items"], "thread_id"));
    assert!(one.is_disjoint(&two) && !two.contains(&newest));
    assert_eq!(one.union(&two).count(), 100);

    // A cursor is ours, of this list, and unchanged.
    let mut tampered: Vec<String> = vec!["x".into(), String::new(), format!("{cursor}x"), cursor[1..].to_owned()];
    let middle = cursor.len() / 2;
    let other = if cursor.as_bytes()[middle] == b'A' { 'B' } else { 'A' };
    tampered.push(format!("{}{other}{}", &cursor[..middle], &cursor[middle + 1..]));
    for bad in tampered {
        api.get(&format!("threads?cursor={bad}")).await.problem(400, "invalid-cursor");
    }
    api.get(&format!("interrupts?cursor={cursor}")).await.problem(400, "invalid-cursor");
}

#[tokio::test]
async fn queries_are_checked() {
    let place = Place::new();
    let server = place.up().await;
    for query in [
        "threads?colour=red",
        "threads?limit=0",
        "threads?limit=501",
        "threads?limit=-1",
        "threads?limit=many",
        "threads?limit=",
        "threads?status=sleeping",
        "threads?status=parked&status=queued",
        "interrupts?status=parked",
        "interrupts?approver=mia",
        "interrupts?approver=",
        "interrupts?colour=red",
    ] {
        server.api.get(query).await.problem(400, "invalid-query");
    }
    let thread = server.api.expense("20.00").await;
    for query in ["limit=0", "limit=501", "colour=red"] {
        server.api.get(&format!("threads/{thread}/history?{query}")).await.problem(400, "invalid-query");
    }
}

#[tokio::test]
async fn everybody_finds_what_they_are_asked() {
    let place = Place::configured(PEOPLE);
    let server = place.up().await;
    let api = &server.api;
    let small = api.expense("420.00").await;
    let large = api.expense("2350.00").await;
    let first = api.question(&small).await;
    let second = api.question(&large).await;
    let managers: BTreeSet<String> = [first.clone(), second.clone()].into();
    let asked = |approver: &str| {
        let path = format!("interrupts?status=open&approver={approver}");
        async move { identities(&api.get(&path).await.is(200)["items"], "id") }
    };
    assert_eq!(asked("person:mia@example.com").await, managers);
    assert_eq!(asked("person:MIA@example.com").await, managers);
    assert_eq!(asked("role:manager").await, managers);
    assert_eq!(asked("person:finn@example.com").await, BTreeSet::new());
    let body = json!({"answer": {"approved": true}, "on_behalf_of": "person:mia@example.com"});
    api.post(&format!("interrupts/{second}/answer"), &body).await.is(202);
    let third = api.question(&large).await;
    assert_eq!(asked("person:finn@example.com").await, [third.clone()].into());
    assert_eq!(asked("person:mia@example.com").await, [first].into());
    assert_eq!(asked("person:nobody@example.com").await, BTreeSet::new());
    let answered = api.get("interrupts?status=answered").await.is(200);
    assert_eq!(identities(&answered["items"], "id"), [second].into());
    let of_graph = api.get("interrupts?graph=wire_batch").await.is(200);
    assert_eq!(of_graph["items"], json!([]));
}

#[tokio::test]
async fn the_history_shows_every_checkpoint() {
    let place = Place::new();
    let server = place.up().await;
    let api = &server.api;
    let thread = api.expense("420.00").await;
    let question = api.question(&thread).await;
    let path = format!("threads/{thread}/history");
    let parked = api.get(&path).await.is(200);
    assert_eq!(parked["items"].as_array().map(Vec::len), Some(1), "{parked}");
    assert_eq!((&parked["items"][0]["next"], &parked["items"][0]["parent_id"]), (&json!(["manager"]), &Value::Null));
    api.answer(&question, json!({"approved": true})).await.is(202);
    let done = api.rested(&thread).await;
    let history = api.get(&path).await.is(200);
    let items = history["items"].as_array().expect("a list");
    assert_eq!(items.len(), 3, "{history}");
    assert_eq!(items[0]["checkpoint_id"], done["checkpoint_id"]);
    assert_eq!((&items[0]["next"], &items[1]["next"]), (&json!([]), &json!(["pay"])));
    assert_eq!((&items[0]["state"], &items[2]["state"]["amount"]), (&done["state"], &json!("420.00")));
    assert!(items[2]["state"].get("receipt").is_none_or(Value::is_null));
    for pair in items.windows(2) {
        assert_eq!(pair[0]["parent_id"], pair[1]["checkpoint_id"]);
    }
    let ids = walk(api, &format!("{path}?limit=1"), "checkpoint_id").await;
    let whole: Vec<String> =
        items.iter().map(|item| item["checkpoint_id"].as_str().expect("an id").to_owned()).collect();
    assert_eq!(ids, whole);
    let runs = format!("threads/{thread}/runs");
    api.post(&runs, &json!({"input": expense("30")})).await.is(202);
    api.rested(&thread).await;
    assert_eq!(api.get(&path).await.is(200)["items"].as_array().map(Vec::len), Some(5));
}
