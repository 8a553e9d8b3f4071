//! How everything stands: for programs, for Prometheus, and on the first page.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{DEADLINE, Place, Reply, Server, eventually};
use super::postgres::{on, worker};
use crate::support::postgres::Database;

/// One sample of Prometheus' text format: the name, the labels, the value.
type Sample = (String, BTreeMap<String, String>, f64);

/// Reads Prometheus' text format (version 0.0.4), and is strict about it.
fn samples(reply: &Reply) -> Vec<Sample> {
    assert_eq!((reply.status, reply.header("content-type")), (200, "text/plain; version=0.0.4; charset=utf-8"));
    let (mut helped, mut typed) = (BTreeSet::new(), BTreeMap::new());
    let (mut samples, mut seen): (Vec<Sample>, BTreeSet<String>) = (Vec::new(), BTreeSet::new());
    for line in reply.text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help");
            assert!(help.len() > 10 && helped.insert(name.to_owned()), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert!(helped.contains(name), "help comes first: {line}");
            assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
            assert!(typed.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            assert!(seen.insert(series.to_owned()), "twice: {line}");
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, labels.strip_suffix('}').expect("closed")),
                None => (series, ""),
            };
            assert!(name.starts_with("countersign_"), "{line}");
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
                name.strip_suffix(suffix).filter(|family| typed.get(*family).is_some_and(|kind| kind == "histogram"))
            });
            let kind = typed.get(family.unwrap_or(name)).unwrap_or_else(|| panic!("no type: {line}"));
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            let labels = labels.split(',').filter(|label| !label.is_empty()).map(|label| {
                let (name, value) = label.split_once("=\"").expect("a label");
                (name.to_owned(), value.strip_suffix('"').expect("quoted").to_owned())
            });
            samples.push((name.to_owned(), labels.collect(), value.parse().expect("a number")));
        }
    }
    samples
}

/// The value of the one sample with these labels among others.
#[track_caller]
fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |sample: &&Sample| {
        sample.0 == name && labels.iter().all(|(name, value)| sample.1.get(*name).is_some_and(|own| own == value))
    };
    let found: Vec<_> = samples.iter().filter(has).collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
    found[0].2
}

#[tokio::test]
async fn prometheus_reads_what_is_so_and_what_was_done() {
    let place = Place::new();
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    server.api.delivered(&question).await;
    server.api.answer(&question, json!({"approved": true})).await.is(202);
    server.api.rested(&thread).await;
    let parked = server.api.expense("420.00").await;
    let open = server.api.question(&parked).await;
    server.api.get(&format!("interrupts/{open}")).await.is(200);
    server.api.get("no-such-thing").await.problem(404, "no-such-route");

    let samples = eventually("a look that has seen it all", || async {
        let samples = samples(&server.api.get("/metrics").await);
        let expense = [("graph", "expense")];
        let open = samples.iter().any(|(name, ..)| name == "countersign_requests_open")
            && value(&samples, "countersign_requests_open", &expense) > 0.0;
        if open { Ok(samples) } else { Err(format!("{samples:?}")) }
    })
    .await;
    let of = |name: &str, labels: &[(&str, &str)]| value(&samples, &format!("countersign_{name}"), labels);
    for (status, count) in [("succeeded", 1.0), ("parked", 1.0), ("held", 0.0), ("queued", 0.0)] {
        assert_eq!(of("threads", &[("graph", "expense"), ("status", status)]), count, "{status}");
    }
    assert_eq!(of("requests_open_younger", &[("younger_than", "1h")]), 1.0);
    assert!((0.0..60.0).contains(&of("requests_oldest_seconds", &[("graph", "expense")])));
    assert_eq!(of("points_open", &[("kind", "approval")]), 1.0);
    assert_eq!((of("workers", &[("state", "alive")]), of("workers", &[("state", "lost")])), (1.0, 0.0));
    assert_eq!(of("workers_serving", &[("kind", "advance")]), 1.0);
    assert_eq!(of("work_due", &[("graph", "expense"), ("kind", "advance")]), 0.0);
    assert_eq!(of("runs_started_total", &[]), 2.0);
    assert_eq!(of("rests_total", &[("status", "succeeded")]), 1.0);
    assert_eq!(of("rests_total", &[("status", "parked")]), 2.0);
    assert_eq!((of("answers_total", &[]), of("answer_to_resume_seconds_count", &[])), (1.0, 1.0));
    assert!(of("delivery_attempts_total", &[("outcome", "sent")]) >= 1.0);
    assert_eq!(of("supersteps_total", &[]), 2.0, "the first thread's; the other has finished none");
    assert!(of("commits_total", &[]) >= 6.0);
    assert!(of("commands_total", &[]) >= of("commits_total", &[]));
    // Read one after the other, while the process goes on.
    assert!(of("commit_seconds_count", &[]) >= of("commits_total", &[]));
    assert_eq!(of("commit_seconds_bucket", &[("le", "+Inf")]), of("commit_seconds_count", &[]));
    assert!(of("claim_to_commit_seconds_count", &[]) >= 3.0);
    // Routes, not addresses.
    let shown = [("method", "GET"), ("route", "/api/v1/interrupts/{id}"), ("status", "200")];
    assert!(of("http_requests_total", &shown) >= 1.0);
    assert!(of("http_requests_total", &[("route", "/api/{*rest}"), ("status", "404")]) >= 1.0);
    let labels = samples.iter().flat_map(|(_, labels, _)| labels.values());
    let secret: Vec<_> = labels.filter(|value| value.contains(&open) || value.contains(&thread)).collect();
    assert!(secret.is_empty(), "{secret:?}");
}

#[tokio::test]
async fn numbers_are_for_those_who_may_see_them() {
    let place = Place::new();
    let all = place.token("reader", &["threads:read"], None).await;
    let operator = place.token("operator", &["operate"], None).await;
    let writer = place.token("writer", &["threads:write"], None).await;
    let one = place.token("one", &["threads:read"], Some(&["payment"])).await;
    let server = place.up().await;
    let api = |token: &str| server.api.with_token(Some(token));
    let stranger = server.api.with_token(None);
    stranger.get("/metrics").await.problem(401, "unauthenticated");
    stranger.get("overview").await.problem(401, "unauthenticated");
    api(&writer).get("/metrics").await.problem(403, "missing-scope");
    api(&writer).get("overview").await.problem(403, "missing-scope");
    api(&one).get("/metrics").await.problem(403, "beyond-own-graphs");
    samples(&api(&all).get("/metrics").await);
    samples(&api(&operator).get("/metrics").await);
    for path in ["/", "/overview/events"] {
        assert_eq!(stranger.get(path).await.status, 401, "{path}");
    }

    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    server.api.delivered(&question).await;
    let everything = server.api.get("overview?fresh=true").await.is(200);
    assert_eq!(everything["graphs"]["expense"]["threads"]["parked"], 1, "{everything}");
    assert_eq!((&everything["points"]["approval"], &everything["requests_by_age"][0]["count"]), (&json!(1), &json!(1)));
    assert_eq!(everything["workers"].as_array().map(Vec::len), Some(1), "{everything}");
    assert_eq!(everything["workers"][0]["pages"], true);
    assert_eq!(everything["warnings"], json!([]), "{everything}");

    let hidden = api(&one).get("overview?fresh=true").await.is(200);
    assert_eq!((&hidden["graphs"], &hidden["points"]), (&json!({}), &json!({})), "{hidden}");
    assert_eq!((&hidden["workers"], &hidden["last_minute"]), (&Value::Null, &Value::Null));
    assert_eq!((&hidden["requests_open"], &hidden["threads"]["parked"]), (&json!(0), &json!(0)));
    assert_eq!(hidden["deliveries"], json!({"pending": 0, "failed": 0}));
    for queue in hidden["queues"].as_array().expect("a list") {
        assert_eq!((&queue["due"], &queue["jobs_waiting"]), (&json!(0), &Value::Null), "{queue}");
    }
    server.api.get("overview?graph=x").await.problem(400, "invalid-query");
}

/// The cookie of the administrator.
async fn signed_in(server: &Server) -> String {
    let link = server.shown["sign_in_link"].as_str().expect("a link");
    let path = link.strip_prefix(server.api.base()).expect("our own").to_owned();
    let opened = server.api.with_token(None).get(&path).await;
    opened.header("set-cookie").split(';').next().expect("a cookie").to_owned()
}

/// The stream behind an open page.
struct Live {
    response: reqwest::Response,
    text: String,
}

impl Live {
    async fn open(server: &Server, cookie: &str, seen: Option<&str>) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        let mut request = http.get(format!("{}/overview/events", server.api.base())).header("cookie", cookie);
        if let Some(seen) = seen {
            request = request.header("last-event-id", seen);
        }
        let response = request.send().await.expect("a response");
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"text/event-stream".parse().expect("a value"))
        );
        Self { response, text: String::new() }
    }

    /// The next event: its id, and the regions that have changed.
    async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let event = field("id: ").zip(field("data: "));
                self.text = rest.to_owned();
                if let Some((id, data)) = event {
                    let data: Value = serde_json::from_str(&data).expect("JSON");
                    return (id, data["regions"].clone());
                }
            }
            let chunk = tokio::time::timeout(DEADLINE, self.response.chunk()).await.expect("in time");
            let chunk = chunk.expect("a whole stream").expect("more");
            self.text.push_str(std::str::from_utf8(&chunk).expect("no letter is cut"));
        }
    }
}

#[tokio::test]
async fn an_open_page_is_told_what_changes() {
    let place = Place::new();
    let server = place.up().await;
    let cookie = signed_in(&server).await;
    let page = server.api.with_token(None).send(Method::GET, "/", &[("cookie", &cookie)], Vec::new()).await;
    assert!(
        page.text.contains("Nothing waits for you.") && page.text.contains("data-live=\"standing\""),
        "{}",
        page.text
    );
    // The only page with a script, and that from here.
    assert!(page.header("content-security-policy").contains("script-src 'self'; connect-src 'self'"));
    let script =
        page.text.split_once("<script src=\"").expect("a script").1.split_once('"').expect("quoted").0.to_owned();
    let script = server.api.with_token(None).get(&script).await;
    assert_eq!((script.status, script.header("content-type")), (200, "text/javascript; charset=utf-8"));

    let mut live = Live::open(&server, &cookie, None).await;
    let (_, first) = live.next().await;
    let names: Vec<&str> = first.as_object().expect("regions").keys().map(String::as_str).collect();
    assert_eq!(names, ["trouble", "waiting", "standing", "latest"]);
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let id = tokio::time::timeout(DEADLINE, async {
        loop {
            let (id, regions) = live.next().await;
            if regions["waiting"].as_str().is_some_and(|html| html.contains(&format!("/interrupts/{question}"))) {
                return id;
            }
        }
    });
    let id = id.await.expect("the question appears");
    assert!(!id.is_empty());
}

#[tokio::test]
async fn who_comes_again_with_what_is_still_so_gets_nothing_until_it_changes() {
    let place = Place::new().with("COUNTERSIGN_WORKER_LEASE_SECONDS", "3600");
    let server = place.up().await;
    let cookie = signed_in(&server).await;
    // A heartbeat comes once in twenty minutes here, so that nothing changes.
    eventually("the process is listed", || async {
        let overview = server.api.get("overview?fresh=true").await.is(200);
        if overview["workers"] == json!([]) { Err(overview.to_string()) } else { Ok(()) }
    })
    .await;
    let (id, _) = Live::open(&server, &cookie, None).await.next().await;
    let mut again = Live::open(&server, &cookie, Some(&id)).await;
    let nothing = tokio::time::timeout(Duration::from_millis(2_500), again.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    let thread = server.api.expense("420.00").await;
    server.api.question(&thread).await;
    let (other, regions) = again.next().await;
    assert_ne!(other, id);
    assert!(regions["latest"].as_str().is_some_and(|html| html.contains(&thread)), "{regions}");
}

#[tokio::test]
async fn a_process_is_listed_lost_when_it_dies_and_gone_when_it_stops() {
    let database = Database::fresh().await;
    let place = on(&database);
    let server = place.up().await;
    let states = async || {
        let overview = server.api.get("overview?fresh=true").await.is(200);
        let workers = overview["workers"].as_array().expect("a list").clone();
        let mut states: Vec<String> = workers
            .iter()
            .map(|worker| format!("{} {}", worker["pages"], worker["state"].as_str().expect("a word")))
            .collect();
        states.sort();
        (states, overview["warnings"].clone())
    };
    let reaches = async |wanted: &[&str]| {
        eventually(&format!("{wanted:?}"), || async {
            let (states, warnings) = states().await;
            if states == wanted { Ok(warnings) } else { Err(format!("{states:?}")) }
        })
        .await
    };
    reaches(&["true alive"]).await;
    let killed = worker(&place, &["--queues", "deliver"]).await;
    reaches(&["false alive", "true alive"]).await;
    Place::kill(killed).await;
    let warnings = reaches(&["false lost", "true alive"]).await;
    assert_eq!(
        (warnings.as_array().map(Vec::len), &warnings[0]["kind"]),
        (Some(1), &json!("lost_worker")),
        "{warnings}"
    );
    let stopped = worker(&place, &[]).await;
    reaches(&["false alive", "false lost", "true alive"]).await;
    let pid = stopped.id().expect("it runs").to_string();
    let signalled = tokio::process::Command::new("kill").args(["-TERM", &pid]).status().await.expect("it runs");
    assert!(signalled.success());
    reaches(&["false lost", "true alive"]).await;
}

#[tokio::test]
async fn what_goes_wrong_is_said_with_what_to_do() {
    let place = Place::new()
        .with("COUNTERSIGN_EMAIL_SMTP_HOST", "127.0.0.1")
        .with("COUNTERSIGN_EMAIL_SMTP_PORT", "1")
        .with("COUNTERSIGN_EMAIL_SMTP_SECURITY", "none");
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let warning = eventually("the mail fails", || async {
        let overview = server.api.get("overview?fresh=true").await.is(200);
        let warning = overview["warnings"][0].clone();
        if warning["kind"] == "delivery" { Ok(warning) } else { Err(overview.to_string()) }
    })
    .await;
    assert_eq!(warning["title"], "1 message through email not sent yet");
    let affected = &warning["affected"][0];
    assert_eq!((&affected["thread_id"], &affected["interrupt_id"]), (&json!(thread), &json!(question)));
    assert!(affected["detail"].as_str().is_some_and(|error| !error.is_empty()), "{warning}");
    let cookie = signed_in(&server).await;
    let page = server.api.with_token(None).send(Method::GET, "/", &[("cookie", &cookie)], Vec::new()).await;
    let (trouble, waiting) = (page.text.find("Needs attention"), page.text.find("Waiting for you"));
    assert!(trouble.is_some() && trouble < waiting, "{}", page.text);
    assert!(page.text.contains(&format!("href=\"/interrupts/{question}\">{thread}</a>")), "{}", page.text);
}
