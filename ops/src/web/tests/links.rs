//! Personal links: looking decides nothing, posting decides once.

use countersign_kernel::graph::{END_NAME, START};
use countersign_kernel::principal::Principal;
use serde_json::json;

use super::*;

#[tokio::test]
async fn looking_decides_nothing_and_is_kept_by_nobody() {
    let pages = Pages::new().await;
    let view = pages.start("expense", "e-1", expense("500")).await;
    let link = pages.link("ann", &view);
    for method in [Method::GET, Method::HEAD, Method::GET] {
        let reply = pages.send(method.clone(), &link, &[], "").await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.body.is_empty(), method == Method::HEAD);
        assert_eq!(reply.header("cache-control"), "no-store");
        assert_eq!(reply.header("referrer-policy"), "no-referrer");
        assert_eq!(reply.header("x-frame-options"), "DENY");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert!(reply.header("x-robots-tag").contains("noindex"));
        let policy = reply.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("script-src"), "{policy}");
        assert_eq!(reply.header("set-cookie"), "");
    }
    let reply = pages.get(&link).await.expect(
        StatusCode::OK,
        &[
            "Pay 500.00 EUR to",
            "It is paid at once.",
            "Nothing is paid and the case ends.",
            "Purpose",
            "Fair",
            "Approve",
        ],
    );
    assert!(reply.body.contains("&#60;script&#62;") && !reply.body.contains("<script"), "{}", reply.body);
    let after = pages.interrupt(&view.id).await;
    assert_eq!((after.status.as_str(), after.request.expect("request").votes.len()), ("open", 0));
}

#[tokio::test]
async fn posting_decides_once_and_says_so_to_everybody() {
    let pages = Pages::new().await;
    let view = pages.start("expense", "e-1", expense("500")).await;
    let (ann, bob) = (pages.link("ann", &view), pages.link("bob", &view));
    let form = pages.get(&ann).await.hidden();

    let yes = format!("{form}&approved=true&reason=Good+%F0%9F%91%8D");
    let reply = pages.post(&ann, &yes).await.expect(StatusCode::SEE_OTHER, &[]);
    assert_eq!(reply.header("location"), ann);
    let decided = pages.interrupt(&view.id).await.answered.expect("decided");
    assert_eq!(decided.value, Some(json!({"approved": true, "reason": "Good 👍"})));
    assert_eq!(decided.by, [Principal::person("ann@example.com")]);
    pages.get(&ann).await.expect(StatusCode::OK, &["Approved", "Ann (ann@example.com)", "Good 👍", "on record"]);
    pages.get(&bob).await.expect(StatusCode::OK, &["Approved", "Ann (ann@example.com)"]);
    assert!(!pages.get(&bob).await.body.contains("<form"));

    // The same again is fine, something else is not, and others are too late.
    pages.post(&ann, &yes).await.expect(StatusCode::SEE_OTHER, &[]);
    pages
        .post(&ann, &format!("{form}&approved=false"))
        .await
        .expect(StatusCode::CONFLICT, &["You have answered already", "Approved"]);
    for answer in ["approved=true", "approved=false", ""] {
        pages
            .post(&bob, &format!("{form}&{answer}"))
            .await
            .expect(StatusCode::CONFLICT, &["Decided by somebody else", "Ann (ann@example.com)", "Approved"]);
    }
    assert_eq!(pages.interrupt(&view.id).await.answered, Some(decided));
}

#[tokio::test]
async fn two_votes_are_gathered() {
    let pages = Pages::new().await;
    let view = pages.start("pair", "p-1", json!({})).await;
    let (ann, bob) = (pages.link("ann", &view), pages.link("bob", &view));
    let form = pages.get(&ann).await.expect(StatusCode::OK, &["0 of 2 votes so far"]).hidden();
    pages.post(&ann, &format!("{form}&approved=true")).await.expect(StatusCode::SEE_OTHER, &[]);
    let recorded = pages.get(&ann).await.expect(StatusCode::OK, &["Recorded: your vote is in", "1 of 2 votes are in"]);
    assert!(!recorded.body.contains("Approve</button>"));
    pages
        .post(&ann, &format!("{form}&approved=false"))
        .await
        .expect(StatusCode::CONFLICT, &["You have answered already", "Recorded"]);
    pages.get(&bob).await.expect(StatusCode::OK, &["1 of 2 votes so far", "Ann (ann@example.com)", "Approve"]);
    pages.post(&bob, &format!("{form}&approved=true")).await.expect(StatusCode::SEE_OTHER, &[]);
    pages.get(&ann).await.expect(StatusCode::OK, &["Approved", "Ann (ann@example.com), Bob (bob@example.com)"]);
}

#[tokio::test]
async fn every_kind_is_answered_through_its_form() {
    let pages = Pages::new().await;
    pages.start("hitl_tour", "t-1", json!({})).await;
    let steps = [
        ("input", "value=", "value=Zo%C3%AB"),
        ("select", "value=purple", "value=blue"),
        ("multi_select", "values=glue", "values=basil&values=olives"),
        ("approval", "reason=perhaps", "approved=true"),
        ("modal", "action=", "action="),
        ("unlock", "", ""),
        ("form", "field.street=&field.quantity=1.5&field.wanted_on=soon", "form"),
    ];
    for (kind, bad, good) in steps {
        let view = pages.waiting("t-1").await;
        assert_eq!(view.kind, kind);
        let link = pages.link("ann", &view);
        let page = pages.get(&link).await.expect(StatusCode::OK, &["<form", "Your decision"]);
        let form = page.hidden();
        if !bad.is_empty() {
            let reply = pages.post(&link, &format!("{form}&{bad}")).await;
            reply.expect(StatusCode::UNPROCESSABLE_ENTITY, &["Not recorded yet", "role=\"alert\""]);
        }
        let good = match kind {
            "modal" => {
                let value = page.body.split_once("name=\"action\" value=\"").expect("a button").1;
                format!("action={}", value.split_once('"').expect("quoted").0)
            }
            "form" => "field.street=Main+1&field.quantity=2&field.gift=true&field.wanted_on=2027-01-02".to_owned(),
            _ => good.to_owned(),
        };
        pages.post(&link, &format!("{form}&{good}")).await.expect(StatusCode::SEE_OTHER, &[]);
        pages.get(&link).await.expect(StatusCode::OK, &["Decided", "on record"]);
    }
}

#[tokio::test]
async fn what_was_typed_is_kept_beside_what_is_wrong() {
    let pages = Pages::new().await;
    let view = pages.start("expense", "e-1", expense("500")).await;
    let link = pages.link("ann", &view);
    let form = pages.get(&link).await.hidden();
    pages
        .post(&link, &format!("{form}&reason=%3C%2Ftextarea%3E+because"))
        .await
        .expect(StatusCode::UNPROCESSABLE_ENTITY, &["&#60;/textarea&#62; because", "approve or reject"]);
    let long = "x".repeat(70_000);
    pages
        .post(&link, &format!("{form}&approved=true&reason={long}"))
        .await
        .expect(StatusCode::UNPROCESSABLE_ENTITY, &["The answer is longer than"]);
    let huge = "x".repeat(1 << 21);
    pages.post(&link, &format!("reason={huge}")).await.expect(StatusCode::PAYLOAD_TOO_LARGE, &["Too much text"]);
    pages
        .send(Method::POST, &link, &[("content-type", "application/json")], "{\"approved\":true}")
        .await
        .expect(StatusCode::UNSUPPORTED_MEDIA_TYPE, &["Not a form"]);
    assert_eq!(pages.interrupt(&view.id).await.status, "open");
}

#[tokio::test]
async fn bad_links_each_have_their_page_and_tell_nothing() {
    let pages = Pages::new().await;
    let view = pages.start("expense", "e-1", expense("500")).await;
    let good = pages.link("ann", &view);
    let expired = LinkClaim {
        expires_at: countersign_kernel::time::Timestamp::from_micros(1_000_000),
        ..pages.claim("ann", &view)
    };
    let elsewhere = LinkClaim { thread: ThreadId::parse("other").expect("id"), ..pages.claim("ann", &view) };
    let unknown = LinkClaim { interrupt: InterruptId::parse("0".repeat(32)).expect("id"), ..pages.claim("ann", &view) };
    let signed = |kid: &str, epoch: u32| {
        let links = Links::new(&*pages.state.base_url, keys(kid, epoch), DAY);
        links.url(&pages.claim("ann", &view)).strip_prefix(&*pages.state.base_url).expect("below").to_owned()
    };
    let changed = format!("{}AAAA", &good[..good.len() - 4]);
    let cases = [
        (good[..good.len() - 40].to_owned(), StatusCode::FORBIDDEN, "not valid"),
        (changed, StatusCode::FORBIDDEN, "was changed after it was made"),
        ("/d/nonsense".to_owned(), StatusCode::NOT_FOUND, "incomplete"),
        ("/d/%FF%00".to_owned(), StatusCode::NOT_FOUND, "No such page"),
        (pages.path_of(&expired), StatusCode::GONE, "valid until 1970-01-01 00:00 UTC"),
        (signed("k2", 0), StatusCode::GONE, "no longer in use"),
        (signed("k1", 1), StatusCode::GONE, "restore"),
        (pages.path_of(&elsewhere), StatusCode::NOT_FOUND, "No such request"),
        (pages.path_of(&unknown), StatusCode::NOT_FOUND, "No such request"),
        (pages.link("cy", &view), StatusCode::FORBIDDEN, "Not yours to decide"),
        (pages.link("stranger", &view), StatusCode::FORBIDDEN, "Not yours to decide"),
    ];
    let form = pages.get(&good).await.hidden();
    for (path, status, words) in cases {
        for reply in [pages.get(&path).await, pages.post(&path, &format!("{form}&approved=true")).await] {
            let reply = reply.expect(status, &[words]);
            for secret in ["500.00", "Fair", "e-1", "ann@example.com", "script"] {
                assert!(!reply.body.contains(secret), "{path}: `{secret}` in {}", reply.body);
            }
            assert_eq!(reply.header("cache-control"), "no-store", "{path}");
            assert_eq!(reply.header("referrer-policy"), "no-referrer", "{path}");
        }
    }
    assert_eq!(pages.interrupt(&view.id).await.status, "open");
}

#[tokio::test]
async fn whoever_decided_the_first_stage_is_excluded_from_the_second() {
    let pages = Pages::new().await;
    let first = pages.start("expense", "e-1", expense("5000")).await;
    let bob = pages.link("bob", &first);
    let form = pages.get(&bob).await.hidden();
    pages.post(&bob, &format!("{form}&approved=true")).await.expect(StatusCode::SEE_OTHER, &[]);
    let second = pages.waiting("e-1").await;
    // The old page answers the first stage only.
    pages.post(&bob, &format!("{form}&approved=true")).await.expect(StatusCode::SEE_OTHER, &[]);
    pages.post(&bob, &format!("{form}&approved=false")).await.expect(StatusCode::CONFLICT, &[]);
    for who in ["bob", "ann"] {
        let link = pages.link(who, &second);
        pages.get(&link).await.expect(StatusCode::FORBIDDEN, &["Not yours to decide"]);
        pages.post(&link, "approved=true").await.expect(StatusCode::FORBIDDEN, &["Not yours to decide"]);
    }
    assert_eq!(pages.interrupt(&second.id).await.status, "open");
}

#[tokio::test]
async fn nothing_is_recorded_on_what_was_not_shown() {
    let pages = Pages::new().await;
    let view = pages.start("expense", "e-1", expense("500")).await;
    let claim = LinkClaim { content_hash: "9f".repeat(32), ..pages.claim("ann", &view) };
    let old = pages.path_of(&claim);
    let form = pages.get(&old).await.expect(StatusCode::OK, &["Changed since the message", "500.00"]).hidden();
    for stale in [
        "approved=true".to_owned(),
        format!("revision=1&content_hash={}&approved=true", claim.content_hash),
        form.replace("revision=1", "revision=7") + "&approved=true",
        form.replace("revision=1", "revision=x") + "&approved=true",
    ] {
        pages.post(&old, &stale).await.expect(StatusCode::CONFLICT, &["please look again", "<form"]);
    }
    assert_eq!(pages.interrupt(&view.id).await.status, "open");
    // What the page showed may be decided.
    pages.post(&old, &format!("{form}&approved=false")).await.expect(StatusCode::SEE_OTHER, &[]);
    pages.get(&old).await.expect(StatusCode::OK, &["Rejected"]);
}

#[tokio::test]
async fn a_request_that_no_longer_waits_says_so() {
    let pages = Pages::new().await;
    let view = pages.start("expense", "e-1", expense("500")).await;
    let link = pages.link("ann", &view);
    let form = pages.get(&link).await.hidden();
    let by = Principal::person("starter@example.com");
    pages.state.engine.cancel(&view.thread, &by).await.expect("cancelled");
    pages.get(&link).await.expect(StatusCode::GONE, &["No longer needed"]);
    pages
        .post(&link, &format!("{form}&approved=true"))
        .await
        .expect(StatusCode::GONE, &["nothing was recorded", "No longer needed"]);
    let said = "The case has ended: nothing is left to decide";
    let page = pages.get(&link).await.expect(StatusCode::GONE, &["The case was cancelled", said]);
    assert!(!page.body.contains("asked again"), "{}", page.body);
}

/// Whoever was asked before an edit is not promised a question that does not
/// come any more.
#[tokio::test]
async fn a_request_of_a_case_that_has_ended_promises_no_other() {
    let pages = Pages::new().await;
    let by = Principal::person("starter@example.com");
    for (thread, cancelled) in [("e-1", true), ("e-2", false)] {
        let view = pages.start("expense", thread, expense("500")).await;
        let link = pages.link("ann", &view);
        pages.edit(thread, json!({"amount": "600.00"}), Some(START)).await;
        let said = "has changed the data of the case";
        pages.get(&link).await.expect(StatusCode::GONE, &[said, "you will be asked again"]);
        if cancelled {
            pages.state.engine.cancel(&view.thread, &by).await.expect("cancelled");
        } else {
            pages.edit(thread, Value::Null, Some(END_NAME)).await;
        }
        let page = pages.get(&link).await.expect(StatusCode::GONE, &[said, "nothing is left to decide"]);
        assert!(!page.body.contains("asked again"), "{}", page.body);
    }
}
