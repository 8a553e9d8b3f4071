//! Signing people in, and what they are asked.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Api, Place, identities};

const PEOPLE: &str = r#"
[[people]]
email = "mia@example.com"
name = "Mia"
roles = ["manager", "finance"]
[[people]]
email = "finn@example.com"
name = "Finn"
roles = ["finance"]
"#;

/// What the first page says to whoever opens a link.
async fn first_page(api: &Api, link: &str) -> String {
    let stranger = api.with_token(None);
    let path = link.strip_prefix(api.base()).expect("a link to this server");
    let opened = stranger.get(path).await;
    assert_eq!(opened.status, 303, "{}", opened.text);
    let cookie = opened.header("set-cookie").split(';').next().expect("a cookie").to_owned();
    let page = stranger.send(Method::GET, "/", &[("cookie", &cookie)], Vec::new()).await;
    assert_eq!(page.status, 200, "{}", page.text);
    page.text
}

#[tokio::test]
async fn a_link_signs_in_whom_the_server_knows() {
    let place = Place::configured(PEOPLE).with("COUNTERSIGN_LOG_FILTER", "trace");
    let reader = place.token("reader", &["threads:read", "answer", "operate"], None).await;
    let limited = place.token("limited", &["admin"], Some(&["payment"])).await;
    let server = place.up().await;
    let api = &server.api;
    let ask = async |body: Value| api.post("sign-in-links", &body).await;

    let reply = ask(json!({"person": "person:Mia@example.com"})).await;
    assert_eq!(reply.header("cache-control"), "no-store");
    let made = reply.is(201);
    assert_eq!(made["person"], "person:mia@example.com");
    assert!(made["expires_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{made}");
    let link = made["link"].as_str().expect("a link");
    assert!(first_page(api, link).await.contains("Mia"));
    let plain = ask(json!({"person": "finn@example.com", "valid_hours": 168})).await.is(201);
    assert!(first_page(api, plain["link"].as_str().expect("a link")).await.contains("Finn"));
    let admin = ask(json!({"person": "admin@localhost", "valid_hours": 1})).await.is(201);
    assert_eq!(admin["person"], "person:admin@localhost");
    assert!(admin["expires_at"].as_str() < made["expires_at"].as_str());
    assert!(made["expires_at"].as_str() < plain["expires_at"].as_str());

    for nobody in ["ann@example.com", "person:", "", "service:reader", "role:finance"] {
        ask(json!({"person": nobody})).await.problem(422, "unknown-person");
    }
    for bad in [
        json!({}),
        json!({"person": "mia@example.com", "valid_hours": 0}),
        json!({"person": "mia@example.com", "valid_hours": 169}),
        json!({"person": "mia@example.com", "valid_hours": -1}),
        json!({"person": "mia@example.com", "hours": 1}),
    ] {
        ask(bad).await.problem(422, "invalid-body");
    }
    let body = json!({"person": "mia@example.com"});
    api.with_token(Some(&reader)).post("sign-in-links", &body).await.problem(403, "missing-scope");
    api.with_token(Some(&limited)).post("sign-in-links", &body).await.problem(403, "beyond-own-graphs");
    let token = link.rsplit_once('/').expect("a path").1.to_owned();
    server.kill().await;
    let log = place.log();
    assert!(log.contains("person:mia@example.com"), "that a link was made is reported");
    assert!(!log.contains(&token), "the link is not");
}

#[tokio::test]
async fn sign_in_prints_a_link_of_the_server_that_runs() {
    let place = Place::configured(PEOPLE);
    let nobody = place.run(&["sign-in"]).await;
    assert_eq!(nobody.code, Some(6), "{nobody:?}");
    assert!(nobody.stderr.contains("countersign up"), "it says what to do: {}", nobody.stderr);
    assert!(!place.path().join("data").exists(), "nothing was started");

    let server = place.up().await;
    let admin = place.run(&["sign-in"]).await;
    assert_eq!((admin.code, &admin.line()["person"]), (Some(0), &json!("person:admin@localhost")), "{admin:?}");
    let mia = place.run_plain(&["sign-in", "mia@example.com", "--hours", "1"]).await;
    assert_eq!(mia.code, Some(0), "{mia:?}");
    assert_eq!(mia.stdout.lines().count(), 1, "the link alone: {}", mia.stdout);
    assert!(first_page(&server.api, mia.stdout.trim()).await.contains("Mia"));
    let unknown = place.run(&["sign-in", "ann@example.com"]).await;
    assert_eq!(unknown.code, Some(5), "{unknown:?}");
    assert_eq!(unknown.line()["error"]["problem"]["type"], "urn:countersign:problem:unknown-person");
    assert_eq!(place.run(&["sign-in", "--hours", "169"]).await.code, Some(2));
    server.kill().await;
    assert_eq!(place.run(&["sign-in"]).await.code, Some(6), "a killed server is none");
}

#[tokio::test]
async fn what_waits_is_listed_and_answered_from_the_list() {
    let place = Place::configured(PEOPLE);
    let server = place.up().await;
    let api = &server.api;
    let mut asked = Vec::new();
    for amount in ["420.00", "430.00", "2350.00"] {
        let thread = api.expense(amount).await;
        asked.push(api.question(&thread).await);
    }
    let list = async |words: &[&str]| {
        let ended = place.run(&[&["interrupts", "list"], words].concat()).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended
    };
    let open = list(&[]).await;
    let ids = identities(&json!(open.lines), "interrupt");
    assert_eq!(ids, asked.iter().cloned().collect());
    for line in &open.lines {
        assert_eq!(
            (&line["interrupt"], &line["status"], &line["kind"]),
            (&line["id"], &json!("open"), &json!("approval"))
        );
    }
    let two = list(&["--limit", "2"]).await;
    assert_eq!(two.lines, open.lines[..2], "oldest first");
    assert!(two.stderr.contains("more than 2"), "a list that is cut says so: {}", two.stderr);
    let three = list(&["--limit", "3"]).await;
    assert_eq!((three.lines.len(), three.stderr.as_str()), (3, ""));
    assert_eq!(list(&["--graph", "payment"]).await.lines, [] as [Value; 0]);
    assert_eq!(list(&["--approver", "person:nobody@example.com"]).await.lines, [] as [Value; 0]);
    assert_eq!(list(&["--approver", "person:mia@example.com", "--graph", "expense"]).await.lines.len(), 3);
    for bad in [["--status", "parked"], ["--approver", "mia"]] {
        assert_eq!(place.run(&[&["interrupts", "list"], &bad[..]].concat()).await.code, Some(2), "{bad:?}");
    }
    let table = place.run_plain(&["interrupts", "list"]).await;
    assert_eq!(table.stdout.lines().count(), 4, "{}", table.stdout);
    assert!(table.stdout.contains("420.00"), "it has the titles: {}", table.stdout);

    let first = asked[0].as_str();
    let shown = place.run(&["interrupts", "show", first]).await;
    assert_eq!((shown.code, &shown.line()["id"]), (Some(0), &json!(first)), "{shown:?}");
    let shown = place.run_plain(&["interrupts", "show", first]).await;
    assert!(shown.stdout.contains(&format!("countersign answer {first} '")), "{}", shown.stdout);
    for unknown in ["..", "nope", &"0".repeat(32)] {
        assert_eq!(place.run(&["interrupts", "show", unknown]).await.code, Some(4), "{unknown}");
    }

    // Lines of the list, with an answer added, are answers. The administrator
    // of this configuration holds no role, so somebody else's yes is refused.
    let answers: String = open.lines.iter().map(|line| answered(line).to_string() + "\n").collect();
    let file = place.file("yes.jsonl", &answers);
    let refused = place.run(&["answer", "--each", &file, "--detach"]).await;
    assert_eq!((refused.code, &refused.summary()["failed_rows"]), (Some(3), &json!(3)), "{refused:?}");
    let on_behalf = json!({"answer": {"approved": true}, "on_behalf_of": "person:mia@example.com"});
    api.post(&format!("interrupts/{first}/answer"), &on_behalf).await.is(202);
    assert_eq!(list(&["--status", "answered"]).await.line()["interrupt"], first);
    assert_eq!(list(&[]).await.lines.len(), 2);
}

fn answered(line: &Value) -> Value {
    let mut line = line.clone();
    line["answer"] = json!({"approved": true});
    line
}

#[tokio::test]
async fn who_comes_too_late_is_told_who_decided_what_and_when() {
    let place = Place::new();
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let open = place.run(&["interrupts", "list"]).await;
    let yes = place.file("yes.jsonl", &answered(open.line()).to_string());
    let ended = place.run(&["answer", "--each", &yes]).await;
    assert_eq!((ended.code, &ended.summary()["decided"]), (Some(0), &json!(1)), "{ended:?}");
    let decision = server.api.get(&format!("interrupts/{question}")).await.is(200)["decision"].clone();
    let at = decision["at"].as_str().expect("an instant");
    let expected = format!("person:admin@localhost decided {} at {at}", decision["answer"]);

    let late = place.run(&["answer", &question, r#"{"approved": false}"#]).await;
    assert_eq!(late.code, Some(5), "{late:?}");
    assert!(late.stderr.contains(&expected), "{expected}: {}", late.stderr);
    assert_eq!(late.line()["error"]["problem"]["by"], json!(["person:admin@localhost"]));
    let no = place.file("no.csv", &format!("interrupt,answer\n{question},\"{{\"\"approved\"\": false}}\"\n"));
    let late = place.run(&["answer", "--each", &no]).await;
    assert_eq!((late.code, &late.lines[0]["error"]), (Some(3), &json!(expected)), "{late:?}");
}
