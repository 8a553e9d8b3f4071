//! Hundreds of payments, and the server killed again and again meanwhile.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use serde_json::{Value, json};

use super::kit::{Ended, PayFile, Place, Server, eventually, paid_once};

const ROWS: usize = 400;

/// Three numbers of `0..below`, rising, different at every run.
fn moments(below: usize) -> Vec<u64> {
    let hasher = RandomState::new();
    let mut moments: Vec<u64> = (0..3_u64)
        .map(|i| {
            let mut hasher = hasher.build_hasher();
            hasher.write_u64(i);
            hasher.finish() % below as u64
        })
        .collect();
    moments.sort_unstable();
    moments
}

/// Runs a command to a good end, and kills the server whenever `look` at its
/// counts says that a moment has come. The command may have to be repeated.
async fn killed_at(
    place: &Place,
    mut server: Server,
    words: &[&str],
    moments: &[u64],
    look: impl Fn(&Value) -> u64,
) -> (Server, Ended) {
    let mut command = tokio::spawn(Ended::of(place.start(words)));
    for moment in moments {
        eventually(&format!("{moment} of {moments:?}"), || async {
            let counts = server.api.get("overview").await.is(200);
            let seen = look(&counts);
            if seen >= *moment || command.is_finished() { Ok(()) } else { Err(counts.to_string()) }
        })
        .await;
        server.kill().await;
        server = place.up_again().await;
        if command.is_finished() {
            command = tokio::spawn(Ended::of(place.start(words)));
        }
    }
    let mut ended = command.await.expect("it ran");
    for _ in 0..3 {
        if ended.code == Some(0) {
            break;
        }
        ended = Ended::of(place.start(words)).await;
    }
    assert_eq!(ended.code, Some(0), "killed at {moments:?}: {}", ended.stderr);
    (server, ended)
}

#[tokio::test]
async fn every_payment_is_paid_once_however_often_the_server_is_killed() {
    let mut place = Place::new();
    let file = PayFile::first(ROWS);
    let asked = file.asked();
    let path = place.file("payments.csv", &file.text);
    let server = place.up().await;
    // At the same address after each kill: a command that waits goes on.
    let address = server.address().to_owned();
    place.set("COUNTERSIGN_LISTEN", address);

    let all = |counts: &Value| -> u64 {
        counts["threads"].as_object().expect("counts").values().filter_map(Value::as_u64).sum()
    };
    let run = ["run", "payment", "--each", &path];
    let started = moments(ROWS);
    let (server, ended) = killed_at(&place, server, &run, &started, all).await;
    let summary = ended.summary();
    assert_eq!(summary["threads"], json!({"parked": asked, "succeeded": ROWS - asked}), "killed at {started:?}");
    assert_eq!(server.api.count().await, ROWS as u64);
    let again = paid_once(&place.ledger().await, &file.unasked());

    let mut lines = String::new();
    let open = server.api.get("interrupts?status=open&limit=500").await.is(200);
    let open = open["items"].as_array().expect("a list").clone();
    assert_eq!(open.len(), asked, "one question per payment that needs one");
    for interrupt in &open {
        lines.push_str(&format!("{}\n", json!({"interrupt": interrupt["id"], "answer": {"approved": true}})));
    }
    let path = place.file("answers.jsonl", &lines);
    let paid =
        |counts: &Value| counts["threads"]["succeeded"].as_u64().unwrap_or(0).saturating_sub((ROWS - asked) as u64);
    let answered = moments(asked);
    let (server, ended) = killed_at(&place, server, &["answer", "--each", &path], &answered, paid).await;
    let threads = &ended.summary()["threads"];
    assert_eq!((&threads["succeeded"], &threads["failed"], &threads["held"]), (&json!(ROWS), &json!(0), &json!(0)));
    let more = paid_once(&place.ledger().await, &file.rows);
    println!("killed at {started:?} and {answered:?}: {again} and {more} bookings were asked for again");

    // One mail each: a repeated delivery replaces its file.
    assert_eq!(place.mails().len(), asked);
    let overview = server.api.get("overview").await.is(200);
    assert_eq!(overview["deliveries"]["sent"], json!(asked), "{overview}");
    assert_eq!((&overview["dead_letters"], &overview["requests_open"]), (&json!(0), &json!(0)), "{overview}");
    for interrupt in open.iter().step_by(5) {
        let thread = interrupt["thread_id"].as_str().expect("an id");
        let actions = server.api.audited(thread).await;
        assert_eq!(actions.iter().filter(|action| *action == "decided").count(), 1, "{actions:?}");
        assert_eq!(actions.iter().filter(|action| *action == "started").count(), 1, "{actions:?}");
    }
    let threads = server.api.get("threads?limit=500").await.is(200);
    for thread in threads["items"].as_array().expect("a list").iter().step_by(40) {
        server.api.audited(thread["thread_id"].as_str().expect("an id")).await;
    }
}

#[tokio::test]
async fn a_command_that_works_alone_may_be_killed_too() {
    let rows = 200;
    let place = Place::new();
    let file = PayFile::first(rows);
    let path = place.file("payments.csv", &file.text);
    let run = ["run", "payment", "--each", &path];
    // The ledger is made at the first start.
    place.run(&["threads", "list"]).await;
    let killed = moments(file.unasked().len() * 3 / 4);
    for moment in &killed {
        let command = place.start(&run);
        eventually(&format!("{moment} bookings"), || async {
            let booked = place.ledger().await.len() as u64;
            if booked >= *moment { Ok(()) } else { Err(booked.to_string()) }
        })
        .await;
        Place::kill(command).await;
    }
    let ended = place.run(&run).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let threads = json!({"parked": file.asked(), "succeeded": rows - file.asked()});
    assert_eq!(ended.summary()["threads"], threads, "killed at {killed:?}");
    let again = paid_once(&place.ledger().await, &file.unasked());
    println!("killed at {killed:?}: {again} bookings were asked for again");
    assert_eq!(place.mails().len(), file.asked());
    let server = place.up().await;
    assert_eq!(server.api.count().await, rows as u64);
}
