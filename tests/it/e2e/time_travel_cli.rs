//! The commands that look into the past of a thread and change its course.

use serde_json::{Value, json};

use super::kit::{Ended, Place};

#[track_caller]
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

#[track_caller]
fn done(ended: Ended) -> Ended {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

async fn trip(place: &Place) -> (String, String) {
    let started = done(place.run(&["run", "trip", "--input", r#"{"budget": 100}"#]).await);
    let thread = started.line();
    (text(&thread["thread_id"]), text(&thread["interrupts"][0]["id"]))
}

#[tokio::test]
async fn a_thread_is_run_again_from_its_past() {
    let place = Place::with_flows();
    let (thread, question) = trip(&place).await;
    done(place.run(&["answer", &question, r#"{"approved": true}"#]).await);
    let history = done(place.run(&["threads", "history", &thread]).await);
    let next: Vec<_> = history.lines.iter().map(|line| line["next"].clone()).collect();
    assert_eq!(next, [json!([]), json!(["book"]), json!(["ask"]), json!(["gather"])]);
    let from = text(&history.lines[2]["checkpoint_id"]);
    assert_eq!(done(place.run(&["threads", "history", &thread, "--limit", "1"]).await).lines.len(), 1);

    let refused = place.run(&["threads", "replay", &thread, &from]).await;
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("pay at trip/book@2") && refused.stderr.contains("--re-execute"), "{refused:?}");
    let error = &refused.line()["error"];
    assert_eq!(error["problem"]["type"], "urn:countersign:problem:re-executes");
    let replayed = done(place.run(&["threads", "replay", &thread, &from, "--re-execute"]).await);
    assert_eq!(replayed.line()["status"], "parked");
    let second = text(&replayed.line()["interrupts"][0]["id"]);
    assert_ne!(second, question);
    done(place.run(&["answer", &second, r#"{"approved": false}"#]).await);
    let shown = done(place.run(&["threads", "show", &thread]).await);
    assert_eq!(shown.line()["state"]["outcome"], "called off");
    let table = done(place.run_plain(&["threads", "history", &thread]).await);
    assert_eq!(table.stdout.lines().filter(|line| line.ends_with("left")).count(), 2, "{}", table.stdout);
    assert_eq!((place.ran("gather"), place.ran("pay")), (1, 1));
    for (words, code) in [
        (["threads", "replay", &thread, "nope"], 4),
        (["threads", "replay", "nope", &from], 4),
        (["threads", "replay", &thread, "../x"], 4),
    ] {
        assert_eq!(place.run(&words).await.code, Some(code), "{words:?}");
    }
    let end = text(&done(place.run(&["threads", "history", &thread]).await).lines[0]["checkpoint_id"]);
    assert_eq!(place.run(&["threads", "replay", &thread, &end]).await.code, Some(5), "nothing to run");
}

#[tokio::test]
async fn a_state_is_shown_and_edited() {
    let place = Place::with_flows();
    let (thread, question) = trip(&place).await;
    let shown = done(place.run(&["threads", "state", "get", &thread]).await);
    let head = text(&shown.line()["checkpoint_id"]);
    assert_eq!((&shown.line()["values"]["budget"], &shown.line()["next"]), (&json!(100), &json!(["ask"])));
    let edit = ["threads", "state", "edit", thread.as_str()];
    let with = |more: &[&str]| [&edit[..], more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let run = async |words: Vec<String>| place.run(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for (words, code) in [
        (with(&["--values", "[]"]), 2),
        (with(&["--values", r#"{"nope": 1}"#]), 5),
        (with(&["--as-node", "nope"]), 5),
        (with(&["--as-node", "ask", "--seen", "nope"]), 5),
        (with(&[]), 2),
    ] {
        let ended = run(words.clone()).await;
        assert_eq!(ended.code, Some(code), "{words:?}: {ended:?}");
    }
    let file = place.file("values.json", r#"{"approved": true, "budget": 70}"#);
    let edited = done(run(with(&["--values", &file, "--as-node", "ask", "--seen", &head])).await);
    assert_eq!((&edited.line()["next"], &edited.line()["status"]), (&json!(["book"]), &json!("parked")));
    assert_eq!(place.run(&["answer", &question, r#"{"approved": true}"#]).await.code, Some(5), "superseded");
    let old = done(place.run(&["threads", "state", "get", &thread, "--at", &head]).await);
    assert_eq!(old.line()["values"]["budget"], json!(100));
    let plain = done(place.run_plain(&["threads", "state", "get", &thread]).await);
    assert!(plain.stdout.contains("budget: 70") && plain.stdout.contains("next        book"), "{}", plain.stdout);
    let resumed = done(place.run(&["threads", "resume", &thread, "--continue"]).await);
    assert_eq!(resumed.line()["state"]["outcome"], "booked for 70");
    assert_eq!((place.ran("ask"), place.ran("pay")), (1, 1));
    let again = place.run(&["threads", "resume", &thread, "--continue"]).await;
    assert_eq!(again.code, Some(5), "{again:?}");
}

/// `null`, `true` and numbers are values and name no files.
#[tokio::test]
async fn a_scalar_on_the_command_line_is_json() {
    let place = Place::with_flows();
    for (word, value) in [("true", json!(true)), ("2.5", json!(2.5)), (" null ", json!(null))] {
        let started = done(place.run(&["run", "toolbox", "--input", "{}"]).await);
        let (thread, question) = (text(&started.line()["thread_id"]), &started.line()["interrupts"][0]);
        let parents = question["parents"].as_array().expect("a list");
        let container = parents.iter().find(|parent| parent["takes_data"] == true).expect("a container");
        let setting = json!({text(&container["id"]): 1}).to_string();
        done(place.run(&["threads", "resume", &thread, "--answers", &setting]).await);
        done(place.run(&["answer", &text(&question["id"]), word]).await);
        let ended = done(place.run(&["threads", "show", &thread]).await);
        assert_eq!(ended.line()["state"], json!({"first": value, "setting": 1}), "{word}");
    }
    let started = done(place.run(&["run", "gated", "--input", r#"{"budget": 1}"#]).await);
    let (thread, stop) = (text(&started.line()["thread_id"]), text(&started.line()["interrupts"][0]["id"]));
    let edit = place.run(&["threads", "state", "edit", &thread, "--values", "null"]).await;
    assert_eq!(edit.code, Some(2), "{edit:?}");
    assert!(
        edit.line()["error"]["message"].as_str().is_some_and(|said| said.contains("an object of keys")),
        "{edit:?}"
    );
    done(place.run(&["answer", &stop, "null"]).await);
    assert_eq!(done(place.run(&["threads", "show", &thread]).await).line()["status"], "succeeded");
}

#[tokio::test]
async fn a_resume_amends() {
    let place = Place::with_flows();
    let started = done(place.run(&["run", "fan", "--input", "{}"]).await);
    let (thread, question) = (text(&started.line()["thread_id"]), text(&started.line()["interrupts"][0]["id"]));
    let words = [
        "threads",
        "resume",
        &thread,
        "--update",
        r#"{"rate": 2}"#,
        "--goto",
        "extra",
        "--send",
        "worker=4",
        "--send",
        "worker=5",
    ];
    let rests = done(place.run(&words).await);
    assert_eq!(rests.line()["status"], "parked");
    let live = json!(["left", "right", "extra", "worked 4 at 2", "worked 5 at 2"]);
    assert_eq!(rests.line()["values"]["log"], live);
    let shown = done(place.run_plain(&["threads", "show", &thread]).await);
    assert!(shown.stdout.contains("worked 5 at 2"), "the live state: {}", shown.stdout);
    let answers = json!({question: {"approved": true}}).to_string();
    let words = ["threads", "resume", &thread, "--answers", &answers, "--update", r#"{"rate": 8}"#];
    let ended = done(place.run(&words).await);
    assert_eq!(ended.line()["state"]["log"][3], "gate true at 8");
    assert_eq!(place.run(&["threads", "resume", &thread]).await.code, Some(2), "nothing that wakes");
}

#[tokio::test]
async fn a_subgraph_is_shown_and_edited_and_a_pause_comes_now() {
    let place = Place::with_flows();
    let server = place.up().await;
    let started = done(place.run(&["run", "parcel", "--input", "{}"]).await);
    let thread = text(&started.line()["thread_id"]);
    let frame = text(&started.line()["frames"][0]["id"]);
    let shown = done(place.run_plain(&["threads", "show", &thread]).await);
    for part in ["inside parcel/check@1", &frame, "weight: 7"] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    let inside = done(place.run(&["threads", "state", "get", &thread, "--frame", &frame]).await);
    assert_eq!(inside.line()["values"]["weight"], json!(7));
    let other = place.run(&["threads", "state", "get", &thread, "--frame", &"0".repeat(32)]).await;
    assert!(other.code == Some(4) && other.stderr.contains(&frame), "{other:?}");
    assert_eq!(done(place.run(&["threads", "history", &thread, "--frame", &frame]).await).lines.len(), 2);
    let words =
        ["threads", "state", "edit", &thread, "--frame", &frame, "--values", r#"{"weight": 9}"#, "--as-node", "weigh"];
    done(place.run(&words).await);
    let asks = done(place.run(&["threads", "resume", &thread, "--continue"]).await);
    let point = &asks.line()["interrupts"][0];
    assert_eq!(point["payload"]["title"], "Accept 9 kg?");
    done(place.run(&["answer", &text(&point["id"]), r#"{"approved": true}"#, "--detach"]).await);
    super::kit::eventually("it seals", || async { if place.ran("seal") == 1 { Ok(()) } else { Err(String::new()) } })
        .await;
    done(place.run(&["threads", "pause", &thread, "--now"]).await);
    assert_eq!(server.api.rested(&thread).await["interrupts"][0]["kind"], "pause");
    place.open();
    let ended = done(place.run(&["threads", "resume", &thread, "--continue"]).await);
    assert_eq!(ended.line()["state"], json!({"weight": 9, "shipped": true}));
    assert_eq!((place.ran("weigh"), place.ran("seal"), place.ran("ship")), (1, 2, 1));
}
