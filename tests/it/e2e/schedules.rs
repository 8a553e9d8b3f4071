//! Schedules with the real program: configured, listed, paused, fired.

use serde_json::{Value, json};

use super::kit::{Place, eventually};

const DAILY: &str = r#"
[[schedules]]
name = "nightly"
graph = "patient"
input = '{"seconds": 3600}'
cron = "30 2 * * *"
zone = "Europe/Berlin"
jitter_seconds = 60

[[schedules]]
name = "often"
graph = "patient"
input = '{"seconds": 3600}'
cron = "* * * * *"
paused = true
"#;

#[tokio::test]
async fn schedules_are_listed_paused_and_fired() {
    let place = Place::with_flows();
    place.configure(DAILY);
    let server = place.up().await;
    let api = &server.api;
    let listed = api.get("schedules").await.is(200);
    let [nightly, often] = listed.as_array().expect("a list").as_slice() else { panic!("{listed}") };
    assert_eq!(
        (&nightly["name"], &nightly["zone"], &nightly["paused"]),
        (&json!("nightly"), &json!("Europe/Berlin"), &json!(false))
    );
    let tick = nightly["next_tick"].as_str().expect("an instant");
    assert!(tick.contains("T00:30:00") || tick.contains("T01:30:00") || tick.contains("T01:00:00"), "{tick}");
    assert_eq!((&often["paused"], &often["next_tick"]), (&json!(true), &Value::Null));

    let fired = api.post("schedules/nightly/fire", &Value::Null).await.is(202);
    let thread = fired["thread_id"].as_str().expect("an id");
    let shown = eventually("it waits", async || {
        let shown = api.get(&format!("threads/{thread}")).await.is(200);
        if shown["status"] == "parked" { Ok(shown) } else { Err(shown.to_string()) }
    })
    .await;
    assert_eq!(shown["graph"], "patient");
    assert_eq!(api.get("schedules").await.is(200)[0]["last_thread"], thread);
    api.post("schedules/nightly/pause", &Value::Null).await.is(200);
    assert_eq!(api.get("schedules").await.is(200)[0]["paused"], true);
    let resumed = place.run(&["schedules", "resume", "nightly"]).await;
    assert_eq!((resumed.code, &resumed.line()["paused"]), (Some(0), &json!(false)), "{resumed:?}");
    assert_eq!(place.run(&["schedules", "list"]).await.code, Some(0));
    assert_eq!(place.run(&["schedules", "fire", "nobody"]).await.code, Some(4));

    // Who may do what.
    api.post("schedules/nobody/pause", &Value::Null).await.problem(404, "unknown-schedule");
    api.with_token(None).get("schedules").await.problem(401, "unauthenticated");
    let reads = place.token("reads", &["threads:read"], None).await;
    api.with_token(Some(&reads)).get("schedules").await.is(200);
    api.with_token(Some(&reads)).post("schedules/nightly/fire", &Value::Null).await.problem(403, "missing-scope");
    let others = place.token("others", &["operate", "threads:read"], Some(&["expense"])).await;
    assert_eq!(api.with_token(Some(&others)).get("schedules").await.is(200), json!([]));
    api.with_token(Some(&others)).post("schedules/nightly/fire", &Value::Null).await.problem(404, "unknown-schedule");
}

#[tokio::test]
async fn a_schedule_that_cannot_be_keeps_the_server_from_starting_and_says_why() {
    let place = Place::with_flows();
    let schedule = |lines: &str| format!("[[schedules]]\nname = \"s\"\n{lines}\n");
    for (lines, said) in [
        ("graph = \"patient\"\ncron = \"0 61 * * *\"", "no cron expression of five fields"),
        ("graph = \"patient\"\ncron = \"0 1 * * *\"\nzone = \"Mars/Base\"", "no time zone of the IANA database"),
        ("graph = \"nope\"\ncron = \"0 1 * * *\"", "there is no graph `nope`"),
        ("graph = \"patient\"\ncron = \"0 1 * * *\"\ninput = '{\"seconds\": \"x\"}'", "does not fit"),
        ("cron = \"0 1 * * *\"", "a schedule needs it"),
    ] {
        place.configure(&schedule(lines));
        let ended = place.run(&["threads", "list"]).await;
        let told = format!("{ended:?}");
        assert!(ended.code != Some(0) && told.contains(said), "{lines}: {told}");
    }
}
