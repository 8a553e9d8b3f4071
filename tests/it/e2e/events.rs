//! Streams of events over HTTP: whole, in order, taken up where they broke off
//! (K22).

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::kit::{Api, DEADLINE, Place, Server, eventually};

/// A stream of events, as a client reads it.
struct Stream {
    response: reqwest::Response,
    text: String,
}

/// One event, with what its fields say beside the data.
#[derive(Debug, Clone, PartialEq)]
struct Sent {
    id: i64,
    kind: String,
    data: Value,
}

impl Stream {
    /// Opens a stream; `seen` is the last event that came before.
    async fn open(server: &Server, thread: &str, query: &str, seen: Option<i64>) -> Self {
        let response = request(server, thread, query, seen).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The next event; `None` at the end, also if the other side has gone.
    async fn next(&mut self) -> Option<Sent> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let event = read(block);
                self.text = rest.to_owned();
                match event {
                    Some(event) => return Some(event),
                    None => continue,
                }
            }
            let chunk = tokio::time::timeout(DEADLINE, self.response.chunk()).await.expect("in time").ok()??;
            self.text.push_str(std::str::from_utf8(&chunk).expect("no letter is cut"));
        }
    }

    /// All up to the end.
    async fn rest(mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

async fn request(server: &Server, thread: &str, query: &str, seen: Option<i64>) -> reqwest::Response {
    let url = format!("{}/api/v1/threads/{thread}/events?{query}", server.api.base());
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut request = http.get(url).bearer_auth(&server.token).header("accept", "text/event-stream");
    if let Some(seen) = seen {
        request = request.header("last-event-id", seen);
    }
    request.send().await.expect("a response")
}

fn read(block: &str) -> Option<Sent> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let data: Value = serde_json::from_str(field("data")?).expect("JSON");
    let sent = Sent { id: field("id")?.parse().expect("a number"), kind: field("event")?.to_owned(), data };
    assert_eq!((&sent.data["id"], &sent.data["kind"]), (&json!(sent.id), &json!(sent.kind)), "the data says it too");
    Some(sent)
}

const ALL: &str = "modes=tasks,updates,values,interrupts,custom,status";

/// Asserts that the numbers are 1, 2, 3…
#[track_caller]
fn no_gaps(events: &[Sent]) {
    let ids: Vec<i64> = events.iter().map(|event| event.id).collect();
    assert!((1..).zip(&ids).all(|(number, id)| number == *id), "{ids:?}");
}

fn facts<'e>(events: &'e [Sent], kind: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event.kind == kind).map(|event| &event.data["data"]).collect()
}

/// The states at the checkpoints of a thread, oldest first.
async fn history(api: &Api, thread: &str) -> Vec<(Value, Value)> {
    let page = api.get(&format!("threads/{thread}/history?limit=500")).await.is(200);
    let items = page["items"].as_array().expect("a list").iter().rev();
    items.map(|item| (item["checkpoint_id"].clone(), item["state"].clone())).collect()
}

#[tokio::test]
async fn a_stream_tells_a_run_whole_and_its_values_are_those_of_the_history() {
    let place = Place::new();
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    // Ends by itself when the thread waits.
    let until_rest = Stream::open(&server, &thread, ALL, None).await.rest().await;
    no_gaps(&until_rest);
    assert_eq!(facts(&until_rest, "status").last(), Some(&&json!({"status": "parked"})), "a stop is no error");
    let question = server.api.question(&thread).await;
    let opened = facts(&until_rest, "interrupts");
    assert_eq!(
        (opened.len(), &opened[0]["interrupt_id"], &opened[0]["state"]),
        (1, &json!(question), &json!("opened"))
    );
    assert_eq!((&opened[0]["kind"], &opened[0]["payload"]["type"]), (&json!("approval"), &json!("approval")));

    let follow = format!("{ALL}&follow=true");
    let mut stream = Stream::open(&server, &thread, &follow, None).await;
    let mut all = Vec::new();
    while all.len() < until_rest.len() {
        all.push(stream.next().await.expect("the thread only waits"));
    }
    assert_eq!(all, until_rest);
    server.api.answer(&question, json!({"approved": true})).await.is(202);
    all.extend(stream.rest().await);
    no_gaps(&all);
    let statuses: Vec<_> = facts(&all, "status").iter().map(|status| status["status"].clone()).collect();
    assert_eq!(statuses, ["queued", "running", "parked", "queued", "running", "succeeded"]);
    let closed = facts(&all, "interrupts");
    assert_eq!(closed.last(), Some(&&json!({"state": "closed", "interrupt_id": question, "status": "answered"})));

    let told: Vec<_> =
        facts(&all, "values").iter().map(|at| (at["checkpoint_id"].clone(), at["values"].clone())).collect();
    assert_eq!(told, history(&server.api, &thread).await);
    let last = told.last().expect("values").1.clone();
    assert_eq!(last, server.api.rested(&thread).await["state"]);
    // Every finished task once, and what they wrote is what has become.
    let wrote = facts(&all, "updates");
    let done: Vec<_> = facts(&all, "tasks").into_iter().filter(|task| task["state"] == "done").collect();
    assert_eq!(
        wrote.iter().map(|w| &w["address"]).collect::<Vec<_>>(),
        done.iter().map(|d| &d["address"]).collect::<Vec<_>>()
    );
    assert!(wrote.iter().any(|update| update["writes"]["outcome"] == "paid"), "{wrote:?}");
    let hows: Vec<_> = facts(&all, "tasks").iter().filter_map(|task| task["how"].as_str()).collect();
    assert_eq!((hows[0], hows.contains(&"target")), ("fresh", true), "{hows:?}");

    // Only some kinds, and a page of the same.
    let some = Stream::open(&server, &thread, "modes=status,custom", None).await.rest().await;
    assert!(some.iter().all(|event| event.kind == "status") && some.len() == 6);
    let by_default = Stream::open(&server, &thread, "", None).await.rest().await;
    assert_eq!(by_default, all.iter().filter(|event| event.kind != "values").cloned().collect::<Vec<_>>());
    let json = [("accept", "application/json")];
    let (mut after, mut paged) = (0, Vec::new());
    loop {
        let path = format!("threads/{thread}/events?{ALL}&limit=3&after={after}");
        let page = server.api.send(reqwest::Method::GET, &path, &json, Vec::new()).await.is(200);
        paged.extend(page["events"].as_array().expect("a list").clone());
        let next = page["next_after"].as_i64().expect("a number");
        if next == after {
            break;
        }
        after = next;
    }
    assert_eq!(paged, all.iter().map(|event| event.data.clone()).collect::<Vec<_>>());
}

#[tokio::test]
async fn who_loses_the_connection_takes_it_up_and_gets_each_event_once_also_across_kills() {
    let place = Place::with_flows();
    let mut server = place.up().await;
    let thread = server.api.start("parcel", json!({})).await;
    let query = format!("{ALL}&follow=true");
    let mut got: Vec<Sent> = Vec::new();
    // Drops the connection after every second event.
    let parked = |got: &[Sent]| got.last().is_some_and(|event| event.data["data"]["status"] == "parked");
    while !parked(&got) {
        let mut stream = Stream::open(&server, &thread, &query, got.last().map(|event| event.id)).await;
        for _ in 0..2 {
            if !parked(&got) {
                got.push(stream.next().await.expect("it waits for more"));
            }
        }
    }
    no_gaps(&got);
    // Killed while a reader waits.
    let mut waiting = Stream::open(&server, &thread, &query, got.last().map(|event| event.id)).await;
    server.kill().await;
    assert_eq!(waiting.next().await, None);
    server = place.up().await;
    let question = server.api.question(&thread).await;
    server.api.answer(&question, json!({"approved": true})).await.is(202);
    // Killed in the middle of a node of the sub-graph.
    let mut stream = Stream::open(&server, &thread, &query, got.last().map(|event| event.id)).await;
    eventually("the seal is put on", || async { if place.ran("seal") > 0 { Ok(()) } else { Err(String::new()) } })
        .await;
    server.kill().await;
    while let Some(event) = stream.next().await {
        got.push(event);
    }
    no_gaps(&got);
    server = place.up().await;
    place.open();
    got.extend(Stream::open(&server, &thread, &query, got.last().map(|event| event.id)).await.rest().await);
    no_gaps(&got);
    assert_eq!(facts(&got, "status").last(), Some(&&json!({"status": "succeeded"})));
    let again = Stream::open(&server, &thread, ALL, None).await.rest().await;
    assert_eq!(again, got, "the same for who reads it now");
    // Each finished task once, however often its body ran.
    let updated: Vec<_> = facts(&got, "updates").iter().map(|update| update["address"].to_string()).collect();
    assert_eq!(updated.iter().collect::<BTreeSet<_>>().len(), updated.len(), "{updated:?}");
    assert!(place.ran("seal") >= 2);
    let told: Vec<_> = facts(&got, "values").into_iter().filter(|at| at["frame_id"].is_null()).collect();
    let told: Vec<_> = told.iter().map(|at| (at["checkpoint_id"].clone(), at["values"].clone())).collect();
    assert_eq!(told, history(&server.api, &thread).await);
    // A stream that is over is not taken up again.
    let over = request(&server, &thread, &query, got.last().map(|event| event.id)).await;
    assert_eq!(over.status(), 204);
    let over = request(&server, &thread, "modes=custom&follow=true", Some(1)).await;
    assert_eq!(over.status(), 204, "nor if only other kinds are left");
}

#[tokio::test]
async fn the_events_of_a_sub_graph_name_its_frame() {
    let place = Place::with_flows();
    place.open();
    let server = place.up().await;
    let thread = server.api.start("parcel", json!({})).await;
    let question = server.api.question(&thread).await;
    server.api.answer(&question, json!({"approved": true})).await.is(202);
    server.api.rested(&thread).await;
    let events = Stream::open(&server, &thread, ALL, None).await.rest().await;
    no_gaps(&events);
    let inside = |kind: &str| {
        facts(&events, kind).into_iter().filter(|data| !data["frame_id"].is_null()).cloned().collect::<Vec<_>>()
    };
    let frames: BTreeSet<_> = ["tasks", "updates", "values", "interrupts"]
        .into_iter()
        .flat_map(inside)
        .map(|data| data["frame_id"].as_str().expect("an id").to_owned())
        .collect();
    assert_eq!(frames.len(), 1, "{frames:?}");
    let wrote: Vec<_> =
        inside("updates").iter().map(|update| (update["node"].clone(), update["writes"].clone())).collect();
    let expected =
        [("weigh", json!({"weight": 7})), ("accept", json!({"accepted": true})), ("seal", json!({"sealed": true}))];
    assert_eq!(wrote, expected.map(|(node, writes)| (json!(node), writes)));
    let values = inside("values");
    assert_eq!(values.len(), 4, "the input and three supersteps");
    assert_eq!(values[3]["values"], json!({"weight": 7, "accepted": true, "sealed": true}));
    let around = facts(&events, "updates").into_iter().find(|update| update["node"] == "check").expect("the node");
    assert_eq!((&around["frame_id"], &around["writes"]), (&Value::Null, &json!({"weight": 7})));
}

#[tokio::test]
async fn what_a_body_says_arrives_while_it_runs() {
    let place = Place::with_flows();
    let server = place.up().await;
    let thread = server.api.start("tale", json!({})).await;
    let mut stream = Stream::open(&server, &thread, "modes=custom,updates,status", None).await;
    let mut seen = Vec::new();
    while facts(&seen, "custom").len() < 3 {
        seen.push(stream.next().await.expect("it goes on"));
    }
    let said: Vec<_> = facts(&seen, "custom").into_iter().cloned().collect();
    let expected = |words: i64| json!({"address": "tale/tell@0", "payload": {"words": words}});
    assert_eq!(said, [expected(1), expected(2), expected(3)]);
    assert_eq!(server.api.get(&format!("threads/{thread}")).await.is(200)["status"], "running");
    assert!(facts(&seen, "updates").is_empty());
    place.open();
    seen.extend(stream.rest().await);
    let wrote: Vec<_> = facts(&seen, "updates").iter().map(|update| update["writes"]["chapters"].clone()).collect();
    assert_eq!(wrote, [json!(["Once upon a time there was a long first chapter."]), json!(["The end."])]);
    assert_eq!(seen.last().map(|event| &event.data["data"]), Some(&json!({"status": "succeeded"})));
}

#[tokio::test]
async fn who_may_not_see_it_or_asks_for_nonsense_is_told_so() {
    let place = Place::new();
    let other = place.token("other", &["threads:read"], Some(&["payment"])).await;
    let writer = place.token("writer", &["threads:write"], None).await;
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let path = format!("threads/{thread}/events");
    let api = &server.api;
    for modes in ["", "update", "tasks,,status", "values,omens"] {
        let problem = api.get(&format!("{path}?modes={modes}")).await.problem(422, "unknown-mode");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("interrupts")), "{problem}");
    }
    for query in ["after=x", "follow=perhaps", "limit=0", "limit=501", "since=3"] {
        api.get(&format!("{path}?{query}")).await.problem(400, "invalid-query");
    }
    let unread = [("last-event-id", "seven")];
    api.send(reqwest::Method::GET, &path, &unread, Vec::new()).await.problem(400, "invalid-event-id");
    api.get("threads/none/events").await.problem(404, "unknown-thread");
    api.with_token(Some(&other)).get(&path).await.problem(404, "unknown-thread");
    api.with_token(Some(&writer)).get(&path).await.problem(403, "missing-scope");
    api.with_token(None).get(&path).await.problem(401, "unauthenticated");
    // The header wins over the query.
    let page = [("accept", "application/json"), ("last-event-id", "2")];
    api.asked(&thread).await;
    let reply = api.send(reqwest::Method::GET, &format!("{path}?after=0&limit=1"), &page, Vec::new()).await.is(200);
    assert_eq!(reply["events"][0]["id"], 3, "{reply}");
}

#[tokio::test]
async fn the_command_prints_events_and_goes_on_after_a_restart_of_the_server() {
    let mut place = Place::with_flows();
    let server = place.up().await;
    let thread = server.api.start("tale", json!({})).await;
    let short = server.api.start("gated", json!({"budget": 5})).await;
    let ended = place.run(&["threads", "watch", &short, "--modes", "status,interrupts"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.lines.last().map(|line| &line["data"]), Some(&json!({"status": "parked"})), "{ended:?}");
    let plain = place.run_plain(&["threads", "watch", &short, "--after", "1"]).await;
    assert!(
        plain.stdout.lines().count() > 4 && plain.stdout.contains("tasks       gated/gather@0 started (fresh)"),
        "{plain:?}"
    );
    let refused = place.run(&["threads", "watch", &short, "--modes", "omens"]).await;
    assert!(refused.code.is_some_and(|code| code != 0) && refused.stderr.contains("omens"), "{refused:?}");

    let kinds = ALL.trim_start_matches("modes=");
    let mut watch = place.start(&["threads", "watch", &thread, "--follow", "--modes", kinds]);
    let mut lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    let mut printed = Vec::new();
    let mut print = async || {
        let line = tokio::time::timeout(DEADLINE, lines.next_line()).await.expect("in time").expect("readable");
        let line = line.map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
        printed.extend(line.clone());
        line
    };
    let mut said = 0;
    while said < 3 {
        said += usize::from(print().await.expect("it goes on")["kind"] == "custom");
    }
    let address = server.address().to_owned();
    server.kill().await;
    place.set("COUNTERSIGN_LISTEN", address);
    let server = place.up_again().await;
    while said < 6 {
        said += usize::from(print().await.expect("it goes on")["kind"] == "custom");
    }
    place.open();
    while print().await.is_some() {}
    assert!(watch.wait().await.expect("it ran").success());
    let ids: Vec<_> = printed.iter().map(|line| line["id"].as_i64().expect("a number")).collect();
    assert!((1..).zip(&ids).all(|(number, id)| number == *id), "{ids:?}");
    assert_eq!(printed.last().map(|line| &line["data"]), Some(&json!({"status": "succeeded"})));
    assert_eq!(server.api.rested(&thread).await["status"], "succeeded");
}
