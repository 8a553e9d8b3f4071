//! Mails over SMTP, to servers of every kind of protection.

use std::collections::BTreeSet;

use mailin_embedded::AuthMechanism;
use serde_json::{Value, json};

use super::kit::{Api, Authority, Place, Protection, Smtp, SmtpSetup, eventually};

const PEOPLE: [(&str, &str); 3] = [
    ("zoe@example.com", "Zoë Ångström-Łukasiewicz"),
    ("taro@example.com", "山田 太郎"),
    ("ada@example.com", "🦊 Ada 👩🏽‍💻, the \"Fox\""),
];

fn managers(people: &[(&str, &str)]) -> String {
    let person = |(email, name): &(&str, &str)| {
        format!("[[people]]\nemail = \"{email}\"\nname = '{name}'\nroles = [\"manager\"]\n")
    };
    let sender = "[email]\nfrom = \"desk@example.com\"\nfrom_name = \"Freigaben Süd\"\n";
    std::iter::once(sender.to_owned()).chain(people.iter().map(person)).collect()
}

/// Everybody asked gets a mail of their own that says everything.
async fn arrives(setup: SmtpSetup<'_>) {
    let mut place = Place::configured(&managers(&PEOPLE));
    let smtp = Smtp::start(&place, setup);
    smtp.serve(&mut place);
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let delivered = server.api.delivered(&question).await;
    assert_eq!(delivered.len(), 3);
    for delivery in &delivered {
        assert_eq!((&delivery["status"], &delivery["attempts"]), (&json!("sent"), &json!(1)), "{delivery}");
        assert_eq!((&delivery["possibly_twice"], &delivery["channel"]), (&json!(false), &json!("email")), "{delivery}");
    }
    let mails = smtp.mails();
    let told: BTreeSet<_> = mails.iter().map(|mail| (mail.to.as_str(), mail.name.as_str())).collect();
    assert_eq!(told, PEOPLE.into_iter().collect(), "one mail per person, names as written");
    assert_eq!(mails.len(), 3);
    let trail = format!("request.{question}@example.com");
    for mail in &mails {
        assert_eq!(mail.subject, "Pay 420.00 EUR to Ines Moreau?");
        for part in ["Ines Moreau", "Fair", "420.00 EUR", "nothing is paid and the case ends", "it is paid at once"] {
            assert!(mail.text.contains(part), "{part}: {}", mail.text);
            assert!(mail.html.contains(part), "{part}: {}", mail.html);
        }
        assert!(mail.link().starts_with(server.api.base()), "{}", mail.link());
        assert_eq!((mail.references.as_str(), mail.in_reply_to.as_str()), (trail.as_str(), trail.as_str()));
        assert!(mail.raw.is_ascii() && mail.raw.split(|b| *b == b'\n').all(|line| line.len() <= 998));
    }
    let different = |part: fn(&super::kit::Letter) -> String| mails.iter().map(part).collect::<BTreeSet<_>>().len();
    assert_eq!(different(|mail| mail.link()), 3, "everybody has a link of their own");
    assert_eq!(different(|mail| mail.message_id.clone()), 3);
    assert!(server.shown["mailbox_dir"].is_null() && place.mails().is_empty(), "no copies in a folder");
}

#[tokio::test]
async fn in_the_clear() {
    arrives(SmtpSetup::default()).await;
}

#[tokio::test]
async fn over_starttls_signed_in_by_plain() {
    let authority = Authority::new();
    let protection = Protection::StartTls(&authority);
    arrives(SmtpSetup { protection, auth: Some(AuthMechanism::Plain), ..SmtpSetup::default() }).await;
}

#[tokio::test]
async fn over_starttls_signed_in_by_login() {
    let authority = Authority::new();
    let protection = Protection::StartTls(&authority);
    arrives(SmtpSetup { protection, auth: Some(AuthMechanism::Login), ..SmtpSetup::default() }).await;
}

#[tokio::test]
async fn over_tls_from_the_start() {
    let authority = Authority::new();
    // `mailin` offers no signing in on what it takes for a bare connection.
    arrives(SmtpSetup { protection: Protection::Tls(&authority), ..SmtpSetup::default() }).await;
}

#[tokio::test]
async fn a_wrong_password_is_final_and_visible() {
    let mut place = Place::configured(&managers(&PEOPLE[..1]));
    let authority = Authority::new();
    let protection = Protection::StartTls(&authority);
    let setup = SmtpSetup { protection, auth: Some(AuthMechanism::Plain), ..SmtpSetup::default() };
    let smtp = Smtp::start(&place, setup);
    smtp.serve(&mut place);
    place.set("COUNTERSIGN_EMAIL_SMTP_PASSWORD", "hunter2");
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let delivered = server.api.delivered(&question).await;
    assert_eq!((&delivered[0]["status"], &delivered[0]["attempts"]), (&json!("failed"), &json!(1)), "{delivered:?}");
    assert!(delivered[0]["detail"].as_str().is_some_and(|text| text.contains("535")), "{delivered:?}");
    assert!(!delivered[0]["finished_at"].is_null());
    let overview = server.api.get("overview").await.is(200);
    assert_eq!((&overview["dead_letters"], &overview["deliveries"]["failed"]), (&json!(1), &json!(1)), "{overview}");
    assert!(server.api.audited(&thread).await.contains(&"delivery_failed".to_owned()));
    assert!(smtp.mails().is_empty());
    assert!(!place.log().contains("hunter2"));
    // Nobody was told, and it can be decided all the same.
    let body = json!({"answer": {"approved": true}, "on_behalf_of": "person:zoe@example.com"});
    server.api.post(&format!("interrupts/{question}/answer"), &body).await.is(202);
    assert_eq!(server.api.rested(&thread).await["status"], "succeeded");
}

/// The one delivery of a question, once an attempt has failed.
async fn failed_once(api: &Api, question: &str) -> Value {
    let path = format!("interrupts/{question}/deliveries");
    eventually("a first attempt", || async {
        let list = api.get(&path).await.is(200);
        let delivery = &list[0];
        if delivery["status"] == "pending" && delivery["attempts"] == 1 {
            Ok(delivery.clone())
        } else {
            Err(list.to_string())
        }
    })
    .await
}

#[tokio::test]
async fn a_server_that_is_down_gets_the_mail_once_it_is_up() {
    let mut place = Place::configured(&managers(&PEOPLE[..1]));
    let down = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = down.local_addr().expect("an address").port();
    drop(down);
    place.set("COUNTERSIGN_EMAIL_SMTP_HOST", "localhost");
    place.set("COUNTERSIGN_EMAIL_SMTP_PORT", port.to_string());
    place.set("COUNTERSIGN_EMAIL_SMTP_SECURITY", "none");
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let delivery = failed_once(&server.api, &question).await;
    assert!(delivery["detail"].as_str().is_some_and(|text| !text.contains("/d/")), "{delivery}");
    let smtp = Smtp::start(&place, SmtpSetup { port, ..SmtpSetup::default() });
    smtp.arrived(1).await;
    let delivered = server.api.delivered(&question).await;
    assert_eq!((&delivered[0]["status"], &delivered[0]["attempts"]), (&json!("sent"), &json!(2)), "{delivered:?}");
    assert_eq!(delivered[0]["possibly_twice"], false, "nothing had been handed over");
    assert_eq!(smtp.mails().len(), 1);
    assert_eq!(server.api.get("overview").await.is(200)["dead_letters"], 0);
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_gets_nothing() {
    let mut place = Place::configured(&managers(&PEOPLE[..1]));
    let authority = Authority::new();
    let protection = Protection::StartTls(&authority);
    let smtp = Smtp::start(&place, SmtpSetup { protection, ..SmtpSetup::default() });
    smtp.serve(&mut place);
    place.set("COUNTERSIGN_EMAIL_SMTP_CA_FILE", "");
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let delivery = failed_once(&server.api, &question).await;
    assert!(delivery["detail"].as_str().is_some_and(|text| text.contains("certificate")), "{delivery}");
    assert!(smtp.mails().is_empty());
}
