//! The process killed at every point that matters; a restart picks up all.

use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection as _, Executor as _};

use super::kit::{Place, Silent, Smtp, SmtpSetup, eventually, identities};

const PEOPLE: &str = r#"
[[people]]
email = "mia@example.com"
name = "Mia"
roles = ["manager"]
[[people]]
email = "max@example.com"
name = "Max"
roles = ["manager"]
"#;

fn yes() -> Value {
    json!({"approved": true})
}

/// Keeps everybody else from writing a database of a place until it is ended.
pub(super) async fn hold(place: &Place, name: &str) -> SqliteConnection {
    let options =
        SqliteConnectOptions::new().filename(place.data(name)).busy_timeout(std::time::Duration::from_secs(30));
    let mut held = SqliteConnection::connect_with(&options).await.expect("a connection");
    held.execute("BEGIN EXCLUSIVE").await.expect("the lock");
    held
}

pub(super) async fn free(mut held: SqliteConnection) {
    held.execute("ROLLBACK").await.expect("given back");
    held.close().await.expect("closed");
}

#[tokio::test]
async fn killed_while_parked() {
    let place = Place::new();
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    server.api.delivered(&question).await;
    let before = server.api.get(&format!("threads/{thread}")).await.is(200);
    let mails = place.mails();
    assert_eq!(mails.len(), 1);
    server.kill().await;
    let server = place.up().await;
    assert_eq!(server.api.get(&format!("threads/{thread}")).await.is(200), before, "nothing moved");
    assert_eq!(place.mails(), mails, "nobody was told again");
    let page = server.api.with_token(None).get(&mails[0].path()).await;
    assert_eq!(page.status, 200, "the link still works: {}", page.text);
    server.kill().await;
    let server = place.up().await;
    server.api.answer(&question, yes()).await.is(202);
    let done = server.api.rested(&thread).await;
    assert_eq!((&done["status"], &done["state"]["outcome"]), (&json!("succeeded"), &json!("paid")));
    let booked = place.ledger().await;
    assert_eq!((booked.len(), booked[0].attempts), (1, 1));
    server.api.audited(&thread).await;
}

#[tokio::test]
async fn killed_between_park_and_notification() {
    let mut place = Place::configured(PEOPLE);
    let mut silent = Silent::start().await;
    silent.serve(&mut place);
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    silent.connected(2).await;
    let deliveries = format!("interrupts/{question}/deliveries");
    let list = server.api.get(&deliveries).await.is(200);
    let statuses: Vec<_> = list.as_array().expect("a list").iter().map(|delivery| &delivery["status"]).collect();
    assert_eq!(statuses, ["sending", "sending"], "parked, and nobody told yet");
    server.kill().await;

    let smtp = Smtp::start(&place, SmtpSetup::default());
    smtp.serve(&mut place);
    let server = place.up().await;
    let delivered = server.api.delivered(&question).await;
    for delivery in &delivered {
        assert_eq!(delivery["status"], "sent", "{delivery}");
        assert_eq!((&delivery["attempts"], &delivery["possibly_twice"]), (&json!(2), &json!(true)), "{delivery}");
    }
    let mails = smtp.mails();
    let mut told: Vec<_> = mails.iter().map(|mail| mail.to.as_str()).collect();
    told.sort_unstable();
    assert_eq!(told, ["max@example.com", "mia@example.com"], "one mail per person");
    assert_eq!(server.api.question(&thread).await, question);
    server.api.audited(&thread).await;
}

#[tokio::test]
async fn killed_after_the_mail_was_taken_and_before_it_was_confirmed() {
    let mut place = Place::configured(PEOPLE);
    let mute = Smtp::start(&place, SmtpSetup { mute: true, ..SmtpSetup::default() });
    mute.serve(&mut place);
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let first = mute.arrived(2).await;
    server.kill().await;

    let smtp = Smtp::start(&place, SmtpSetup::default());
    smtp.serve(&mut place);
    let server = place.up().await;
    let delivered = server.api.delivered(&question).await;
    assert!(delivered.iter().all(|d| d["status"] == "sent" && d["possibly_twice"] == true), "{delivered:?}");
    let second = smtp.mails();
    let ids = |mails: &[super::kit::Letter]| {
        let mut ids: Vec<_> = mails.iter().map(|mail| (mail.to.clone(), mail.message_id.clone())).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids(&first), ids(&second), "the second copy can be told from a second mail");
}

#[tokio::test]
async fn killed_between_answer_and_resume() {
    let place = Place::new();
    let server = place.up().await;
    let starts = (0..30).map(|i| {
        let api = server.api.clone();
        let row = json!({"trans_no": format!("T-{i}"), "supplier_name": "Willmott Dixon", "amount": "18,240.00"});
        async move {
            let thread = api.start("payment", row).await;
            let question = api.question(&thread).await;
            (thread, question)
        }
    });
    let asked = join_all(starts).await;
    let answers = asked.iter().map(|(_, question)| server.api.answer(question, yes()));
    for reply in join_all(answers).await {
        reply.is(202);
    }
    server.kill().await;
    let server = place.up().await;
    for (thread, _) in &asked {
        let done = server.api.rested(thread).await;
        assert_eq!((&done["status"], &done["state"]["outcome"]), (&json!("succeeded"), &json!("paid")));
        server.api.audited(thread).await;
    }
    let booked = place.ledger().await;
    assert_eq!(booked.len(), 30, "one effect per payment");
    let attempts: i64 = booked.iter().map(|entry| entry.attempts).sum();
    assert!((30..=60).contains(&attempts), "{attempts} attempts");
    for (_, question) in &asked {
        assert_eq!(server.api.answer(question, yes()).await.status, 200, "the answer is on record");
    }
}

#[tokio::test]
async fn killed_in_the_middle_of_a_node() {
    let place = Place::new();
    let server = place.up().await;
    let ledger = hold(&place, "ledger.db").await;
    let thread = server.api.expense("48.20").await;
    let path = format!("threads/{thread}");
    eventually("the node runs", || async {
        let shown = server.api.get(&path).await.is(200);
        if shown["status"] == "running" { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    server.kill().await;
    free(ledger).await;
    assert!(place.ledger().await.is_empty(), "it did not come to the effect");
    let server = place.up().await;
    assert_eq!(server.api.rested(&thread).await["status"], "succeeded");
    let booked = place.ledger().await;
    assert_eq!((booked.len(), booked[0].attempts), (1, 1));
    server.api.audited(&thread).await;
}

#[tokio::test]
async fn killed_between_the_effect_and_its_commit() {
    let place = Place::new();
    let server = place.up().await;
    let ledger = hold(&place, "ledger.db").await;
    let thread = server.api.expense("48.20").await;
    let path = format!("threads/{thread}");
    eventually("the node runs", || async {
        let shown = server.api.get(&path).await.is(200);
        if shown["status"] == "running" { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    // The effect may happen now, and nobody can write down that it did.
    let store = hold(&place, "countersign.db").await;
    free(ledger).await;
    eventually("the effect", || async {
        let booked = place.ledger().await;
        if booked.len() == 1 { Ok(()) } else { Err(format!("{booked:?}")) }
    })
    .await;
    server.kill().await;
    free(store).await;
    let server = place.up().await;
    let done = server.api.rested(&thread).await;
    assert_eq!((&done["status"], &done["state"]["outcome"]), (&json!("succeeded"), &json!("paid")));
    let booked = place.ledger().await;
    assert_eq!(booked.len(), 1, "one effect");
    assert_eq!(booked[0].attempts, 2, "and the second attempt shows");
    server.api.audited(&thread).await;
}

#[tokio::test]
async fn killed_in_a_batch_the_finished_slots_stay_finished() {
    let place = Place::new();
    let server = place.up().await;
    let thread = server.api.start("wire_batch", json!({})).await;
    let asked = server.api.asked(&thread).await;
    assert_eq!((asked.len(), place.ledger().await.len()), (2, 3));
    server.kill().await;
    let server = place.up().await;
    server.api.answer(&asked[0], yes()).await.is(202);
    server.kill().await;
    let server = place.up().await;
    assert_eq!(server.api.asked(&thread).await, asked[1..]);
    server.kill().await;
    let server = place.up().await;
    server.api.answer(&asked[1], yes()).await.is(202);
    let done = server.api.rested(&thread).await;
    assert_eq!(done["status"], "succeeded");
    assert_eq!(identities(&done["state"]["results"], "id").len(), 5);
    let booked = place.ledger().await;
    assert_eq!(booked.len(), 5, "one effect per transfer");
    let untouched = booked.iter().filter(|entry| entry.attempts == 1).count();
    assert!(untouched >= 3, "the finished three were not repeated: {booked:?}");
    server.api.audited(&thread).await;
}
