//! The commands, one by one: what they print and how they end.

use serde_json::{Value, json};

use super::kit::{Place, expense};

fn input(amount: &str) -> String {
    expense(amount).to_string()
}

#[tokio::test]
async fn run_shows_the_thread_and_ends_by_its_end() {
    let place = Place::new();
    let paid = place.run(&["run", "expense", "--input", &input("48.20")]).await;
    assert_eq!(paid.code, Some(0), "{paid:?}");
    let thread = paid.line();
    assert_eq!((&thread["status"], &thread["state"]["outcome"]), (&json!("succeeded"), &json!("paid")));
    let parked = place.run(&["run", "expense", "--input", &input("420.00"), "--thread-id", "case-1"]).await;
    assert_eq!(parked.code, Some(0), "{parked:?}");
    assert_eq!((&parked.line()["status"], &parked.line()["open"]), (&json!("parked"), &json!(1)));
    // Again: it shows the same; with other input it is a conflict.
    let again = place.run(&["run", "expense", "--input", &input("420.00"), "--thread-id", "case-1"]).await;
    assert_eq!((again.code, again.line()), (Some(0), parked.line()));
    let other = place.run(&["run", "expense", "--input", &input("421.00"), "--thread-id", "case-1"]).await;
    assert_eq!(other.code, Some(5), "{other:?}");
    assert_eq!(other.line()["error"]["problem"]["type"], "urn:countersign:problem:thread-exists");
    // From a file, and without waiting.
    let file = place.file("input.json", &input("20.00"));
    let detached = place.run(&["run", "expense", "--input", &file, "--detach"]).await;
    assert_eq!(detached.code, Some(0), "{detached:?}");
    assert_eq!(detached.line()["status"], "queued");

    let interrupt = parked.line()["interrupts"][0]["id"].as_str().expect("an id").to_owned();
    let answered = place.run(&["answer", &interrupt, r#"{"approved": true}"#]).await;
    assert_eq!((answered.code, &answered.line()["status"]), (Some(0), &json!("decided")));
    let shown = place.run(&["threads", "show", "case-1"]).await;
    assert_eq!((shown.code, &shown.line()["status"]), (Some(0), &json!("succeeded")));
    let again = place.run(&["answer", &interrupt, r#"{"approved": true}"#]).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    let other = place.run(&["answer", &interrupt, r#"{"approved": false}"#]).await;
    assert_eq!(other.code, Some(5), "{other:?}");
    // What was detached has been done by whoever came next.
    assert_eq!(place.ledger().await.len(), 3);
}

#[tokio::test]
async fn what_goes_wrong_has_its_exit_code_and_says_why() {
    let place = Place::new();
    place.file("broken.json", "{");
    place.file("empty.csv", "");
    place.file("rows.csv", "a,b\n1,2\n");
    let zeros = "0".repeat(32);
    let cases: [(&[&str], i32); 16] = [
        (&["run", "nope", "--input", "{}"], 4),
        (&["run", "nope", "--each", "rows.csv"], 4),
        (&["threads", "show", "nope"], 4),
        (&["answer", &zeros, "{}"], 4),
        (&["run", "expense", "--input", "{}"], 5),
        (&["run", "expense", "--input", "{"], 2),
        (&["run", "expense", "--input", "broken.json"], 2),
        (&["run", "expense", "--input", "missing.json"], 2),
        (&["run", "payment", "--each", "missing.csv"], 2),
        (&["run", "payment", "--each", "empty.csv"], 2),
        (&["run", "payment", "--each", "rows.csv", "--key", "c"], 2),
        (&["answer", "--each", "rows.csv"], 2),
        (&["--config", "missing.toml", "threads", "list"], 2),
        (&["--server", "nonsense", "threads", "list"], 1),
        (&["run", "payment", "--each", "rows.csv"], 3),
        (&["answer", "not-an-id", "{}"], 4),
    ];
    for (words, code) in cases {
        let ended = place.run(words).await;
        assert_eq!(ended.code, Some(code), "{words:?}: {ended:?}");
        assert!(!ended.stderr.is_empty(), "{words:?} says nothing");
        if code != 3 {
            let error = &ended.lines.last().unwrap_or(&Value::Null)["error"];
            assert_eq!(error["exit_code"], code, "{words:?}: {ended:?}");
        }
    }
    for words in [&["run"][..], &["threads", "list", "--status", "sleeping"]] {
        let usage = place.run(words).await;
        assert_eq!(usage.code, Some(2), "{usage:?}");
    }
    let known = place.run(&["run", "nope", "--input", "{}"]).await;
    for graph in ["expense", "hitl_tour", "payment", "wire_batch"] {
        assert!(known.stderr.contains(graph), "{}", known.stderr);
    }
    assert_eq!(place.run(&["threads", "list"]).await.lines, [] as [Value; 0], "nothing was started");
}

#[tokio::test]
async fn everything_wrong_with_the_configuration_is_said_at_once() {
    let place = Place::configured("listen = \"here\"\ncolour = 1\n[worker]\nconcurrency = 0\n[email]\nfrom = \"x\"\n");
    let place = place.with("COUNTERSIGN_LISTEN", "").with("COUNTERSIGN_LIMITS_BODY_BYTES", "many");
    for words in [&["up"][..], &["threads", "list"], &["config", "--check"]] {
        let ended = place.run(words).await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        for part in ["listen", "colour", "concurrency", "from", "COUNTERSIGN_LIMITS_BODY_BYTES"] {
            assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
        }
    }
    assert!(!place.path().join("data").exists(), "nothing was made");
}

#[tokio::test]
async fn threads_are_listed_and_shown() {
    let place = Place::new();
    let file = place.file("rows.jsonl", &format!("{}\n{}\n{}\n", input("10"), input("420"), input("430")));
    let started = place.run(&["run", "expense", "--each", &file]).await;
    assert_eq!(started.code, Some(0), "{started:?}");
    assert_eq!(started.summary()["threads"], json!({"parked": 2, "succeeded": 1}));
    assert_eq!(place.run(&["threads", "list"]).await.lines.len(), 3);
    let parked = place.run(&["threads", "list", "--status", "parked"]).await;
    assert_eq!(parked.lines.len(), 2);
    assert!(parked.lines.iter().all(|thread| thread["status"] == "parked"));
    assert_eq!(place.run(&["threads", "list", "--graph", "payment"]).await.lines.len(), 0);
    assert_eq!(place.run(&["threads", "list", "--limit", "1"]).await.lines.len(), 1);
    let table = place.run_plain(&["threads", "list"]).await;
    assert_eq!(table.stdout.lines().count(), 4, "{}", table.stdout);
    let id = parked.lines[0]["thread_id"].as_str().expect("an id");
    let shown = place.run_plain(&["threads", "show", id]).await;
    let interrupt = place.run(&["threads", "show", id]).await.line()["interrupts"][0]["id"].clone();
    let command = format!("countersign answer {} '", interrupt.as_str().expect("an id"));
    assert!(shown.stdout.contains(&command), "it says how to answer: {}", shown.stdout);
}

#[tokio::test]
async fn a_second_up_refuses_and_names_the_first() {
    let place = Place::new();
    let server = place.up().await;
    let second = place.run(&["up"]).await;
    assert_eq!(second.code, Some(6), "{second:?}");
    assert!(second.stderr.contains(server.address()), "{}", second.stderr);
    let migrate = place.run(&["migrate"]).await;
    assert_eq!(migrate.code, Some(6), "{migrate:?}");
    assert!(migrate.stderr.contains(server.address()), "{}", migrate.stderr);
    server.api.get("overview").await.is(200);
    // A killed process leaves no lock behind.
    server.kill().await;
    let server = place.up().await;
    server.api.get("overview").await.is(200);
}

#[tokio::test]
async fn commands_talk_to_the_server_that_runs() {
    let place = Place::new();
    let server = place.up().await;
    let ran = place.run(&["run", "expense", "--input", &input("420.00")]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let thread = ran.line()["thread_id"].as_str().expect("an id");
    assert_eq!(server.api.get(&format!("threads/{thread}")).await.is(200)["status"], "parked");
    // From elsewhere, by address and token.
    let elsewhere = Place::new().with("COUNTERSIGN_SERVER", server.api.base());
    let refused = elsewhere.run(&["threads", "list"]).await;
    assert_eq!(refused.code, Some(5), "without a token: {refused:?}");
    let elsewhere = elsewhere.with("COUNTERSIGN_TOKEN", server.token.clone());
    assert_eq!(elsewhere.run(&["threads", "list"]).await.lines.len(), 1);
    assert!(!elsewhere.path().join("data").exists(), "nothing was started there");
    let base = server.api.base().to_owned();
    server.kill().await;
    let gone = elsewhere.run(&["--server", &base, "threads", "list"]).await;
    assert_eq!(gone.code, Some(6), "{gone:?}");
}

#[tokio::test]
async fn migrate_says_what_it_did() {
    let place = Place::new();
    let first = place.run(&["migrate"]).await;
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.line()["applied"].as_array().is_some_and(|names| !names.is_empty()), "{first:?}");
    let second = place.run(&["migrate"]).await;
    assert_eq!((second.code, &second.line()["applied"]), (Some(0), &json!([])));
}

#[cfg(unix)]
#[tokio::test]
async fn up_prints_where_to_look_and_keeps_its_secrets() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    let server = place.up().await;
    for member in ["base_url", "sign_in_link", "data_dir", "token_file", "mailbox_dir"] {
        assert!(server.shown[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {}", server.shown);
    }
    for name in ["token", "secret.json"] {
        let mode = std::fs::metadata(place.data(name)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let token = server.token.clone();
    server.kill().await;
    assert_eq!(place.up().await.token, token, "the token stays");
}

#[tokio::test]
async fn the_demo_starts_its_threads_once() {
    let place = Place::new();
    let server = place.up_with(&["--demo"]).await;
    let count = server.api.count().await;
    assert_eq!(count, 8);
    let threads = server.api.get("threads").await.is(200);
    for thread in threads["items"].as_array().expect("a list") {
        let rested = server.api.rested(thread["thread_id"].as_str().expect("an id")).await;
        assert!(matches!(rested["status"].as_str(), Some("parked" | "succeeded")), "{rested}");
    }
    server.kill().await;
    let server = place.up_with(&["--demo"]).await;
    assert_eq!(server.api.count().await, count);
}
