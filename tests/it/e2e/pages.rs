//! The way of a decision link: from the mail to the end of the thread.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::{Api, Place, Reply};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// The hidden fields of a form on a page.
pub(super) fn hidden(page: &str) -> String {
    let mut fields = Vec::new();
    for input in page.split("<input type=\"hidden\" name=\"").skip(1) {
        let (name, rest) = input.split_once('"').expect("a name");
        let value = rest.split('"').nth(1).expect("a value");
        fields.push(format!("{name}={value}"));
    }
    assert!(!fields.is_empty(), "{page}");
    fields.join("&")
}

pub(super) async fn press(api: &Api, path: &str, form: &str) -> Reply {
    api.send(Method::POST, path, &[FORM], form.as_bytes().to_vec()).await
}

#[tokio::test]
async fn looking_decides_nothing_and_pressing_the_button_does() {
    let place = Place::new();
    let server = place.up().await;
    let stranger = server.api.with_token(None);
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    server.api.delivered(&question).await;
    let path = place.mails()[0].path();
    let before = server.api.get(&format!("interrupts/{question}")).await.is(200);

    let page = stranger.get(&path).await;
    assert_eq!((page.status, page.header("referrer-policy")), (200, "no-referrer"), "{}", page.text);
    assert!(page.header("content-type").starts_with("text/html"));
    for part in ["Pay 420.00 EUR to Ines Moreau?", "Fair", "t is paid at once", "othing is paid and the case ends"] {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }
    assert!(!page.text.contains("<script"), "it works without script");
    let prefetch = [("purpose", "prefetch"), ("sec-purpose", "prefetch"), ("user-agent", "MailScanner")];
    for _ in 0..10 {
        assert_eq!(stranger.send(Method::GET, &path, &prefetch, Vec::new()).await.status, 200);
        let head = stranger.send(Method::HEAD, &path, &prefetch, Vec::new()).await;
        assert_eq!((head.status, head.text.as_str()), (200, ""));
        assert_eq!(stranger.send(Method::GET, &format!("{path}?approved=true"), &[], Vec::new()).await.status, 200);
    }
    for method in [Method::PUT, Method::DELETE, Method::OPTIONS] {
        assert_eq!(stranger.send(method, &path, &[], Vec::new()).await.status, 405);
    }
    assert_eq!(server.api.get(&format!("interrupts/{question}")).await.is(200), before, "nothing was decided");

    let form = hidden(&page.text);
    assert_eq!(press(&stranger, &path, &form).await.status, 422, "no button was pressed");
    let pressed = press(&stranger, &path, &format!("{form}&approved=true")).await;
    assert_eq!(pressed.status, 303, "{}", pressed.text);
    let done = server.api.rested(&thread).await;
    assert_eq!((&done["status"], &done["state"]["outcome"]), (&json!("succeeded"), &json!("paid")));
    let decided = stranger.get(&path).await;
    assert_eq!(decided.status, 200);
    assert!(decided.text.contains("Approved") && !decided.text.contains("<form"), "{}", decided.text);
    let again = press(&stranger, &path, &format!("{form}&approved=true")).await;
    assert!(matches!(again.status, 303 | 409), "{}: {}", again.status, again.text);
    let other = press(&stranger, &path, &format!("{form}&approved=false")).await;
    assert_eq!(other.status, 409, "{}", other.text);
    let decision = &server.api.get(&format!("interrupts/{question}")).await.is(200)["decision"];
    assert_eq!(
        (&decision["answer"], &decision["by"]),
        (&json!({"approved": true}), &json!(["person:admin@localhost"]))
    );
    assert_eq!(place.ledger().await.len(), 1);
    server.api.audited(&thread).await;
}

#[tokio::test]
async fn links_that_are_not_good_say_so_and_decide_nothing() {
    let place = Place::new();
    let server = place.up().await;
    let stranger = server.api.with_token(None);
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    server.api.delivered(&question).await;
    let path = place.mails()[0].path();
    let form = format!("{}&approved=true", hidden(&stranger.get(&path).await.text));

    let foreign = Place::new();
    let other = foreign.up().await;
    let asked = other.api.expense("420.00").await;
    other.api.delivered(&other.api.question(&asked).await).await;
    let foreign = foreign.mails()[0].path();
    let middle = path.len() / 2;
    let swapped = if path.as_bytes()[middle] == b'A' { 'B' } else { 'A' };
    let tampered = format!("{}{swapped}{}", &path[..middle], &path[middle + 1..]);
    let end = &path[path.len() - 8..];
    let cases = [
        (tampered, 403),
        (path[..path.len() - 8].to_owned(), 403),
        (format!("{path}{end}"), 403),
        (foreign, 410),
        ("/d/x".to_owned(), 404),
        (format!("/d/{}", "A".repeat(4_000)), 404),
    ];
    for (bad, status) in cases {
        for reply in [stranger.get(&bad).await, press(&stranger, &bad, &form).await] {
            assert!(
                reply.status == status || matches!((status, reply.status), (403, 404 | 410)),
                "{bad}: {}: {}",
                reply.status,
                reply.text
            );
            assert!(!reply.text.contains("Ines"), "it tells nothing: {}", reply.text);
            assert!(reply.header("content-type").starts_with("text/html"), "{bad}");
        }
    }
    assert_eq!(server.api.question(&thread).await, question);

    // What no longer waits says so.
    server.api.post(&format!("threads/{thread}/cancel"), &Value::Null).await.is(200);
    assert_eq!(stranger.get(&path).await.status, 410);
    assert_eq!(press(&stranger, &path, &form).await.status, 410);
    assert!(place.ledger().await.is_empty());
}

#[tokio::test]
async fn whoever_asked_first_cannot_decide_the_second_question_by_an_old_link() {
    let place = Place::configured(
        "[[people]]\nemail = \"mia@example.com\"\nname = \"Mia\"\nroles = [\"manager\", \"finance\"]\n\
         [[people]]\nemail = \"finn@example.com\"\nname = \"Finn\"\nroles = [\"finance\"]\n",
    );
    let server = place.up().await;
    let stranger = server.api.with_token(None);
    let thread = server.api.expense("2350.00").await;
    let first = server.api.question(&thread).await;
    server.api.delivered(&first).await;
    let mails = place.mails();
    assert_eq!(mails.iter().map(|mail| mail.to.as_str()).collect::<Vec<_>>(), ["mia@example.com"]);
    let path = mails[0].path();
    let form = format!("{}&approved=true", hidden(&stranger.get(&path).await.text));
    assert_eq!(press(&stranger, &path, &form).await.status, 303);
    let second = server.api.question(&thread).await;
    server.api.delivered(&second).await;
    let told: Vec<String> = place.mails().into_iter().map(|mail| mail.to).collect();
    assert_eq!(told.iter().filter(|to| *to == "finn@example.com").count(), 1, "{told:?}");
    assert_eq!(told.len(), 2, "{told:?}");
    // The old page, sent once more, answers nothing new.
    assert!(matches!(press(&stranger, &path, &form).await.status, 303 | 409));
    assert_eq!(server.api.question(&thread).await, second);
    let finn = place.mails().into_iter().find(|mail| mail.to == "finn@example.com").expect("his mail").path();
    let page = stranger.get(&finn).await.text;
    assert!(page.contains("mia@example.com"), "it says who approved before: {page}");
    assert_eq!(press(&stranger, &finn, &format!("{}&approved=false", hidden(&page))).await.status, 303);
    assert_eq!(server.api.rested(&thread).await["state"]["outcome"], "rejected");
    assert!(place.ledger().await.is_empty());
}
