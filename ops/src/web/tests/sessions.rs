//! Signing in, and the pages behind it.

use super::*;

const PROTECTED: [&str; 6] = ["/", "/threads/e-1", "/interrupts/ID", "/mailbox", "/mailbox/x", "/mailbox/x/html"];

#[tokio::test]
async fn signed_out_visitors_learn_how_to_sign_in() {
    let pages = Pages::new().await;
    let view = pages.start("expense", "e-1", expense("500")).await;
    for path in PROTECTED {
        let path = path.replace("ID", view.id.as_str());
        for cookie in ["", "countersign_session=x", "other=1; countersign_session="] {
            let reply = pages.get_as(cookie, &path).await;
            let reply = reply.expect(StatusCode::UNAUTHORIZED, &["Please sign in", "countersign up"]);
            assert!(!reply.body.contains("500.00"), "{}", reply.body);
            assert!(!reply.header("www-authenticate").is_empty());
        }
    }
    let path = format!("/interrupts/{}", view.id);
    pages.post_as("", &path, "approved=true").await.expect(StatusCode::UNAUTHORIZED, &[]);
    // A link from another site does not carry the cookie.
    let reply = pages.send(Method::GET, &path, &[("sec-fetch-site", "cross-site")], "").await;
    reply.expect(StatusCode::UNAUTHORIZED, &["open this page again"]);
}

#[tokio::test]
async fn a_sign_in_link_gives_a_cookie_for_that_person_only() {
    let pages = Pages::at("https://sign.example.com/ops", true).await;
    let ann = Principal::person("ann@example.com");
    let link = sign_in_link(&pages.state, &ann, DAY);
    let path = link.strip_prefix("https://sign.example.com/ops").expect("below");
    let reply = pages.get(path).await.expect(StatusCode::SEE_OTHER, &[]);
    assert_eq!(reply.header("location"), "/ops/");
    let cookie = reply.header("set-cookie");
    for part in ["countersign_session=", "HttpOnly", "SameSite=Strict", "Secure", "Path=/ops", "Max-Age=43200"] {
        assert!(cookie.contains(part), "{part} in {cookie}");
    }
    let cookie = cookie.split_once(';').expect("attributes").0;
    let home = pages.get_as(cookie, "/").await;
    home.expect(StatusCode::OK, &["Signed in as", "Ann", "href=\"/ops/assets/style.css?v="]);

    // From another site the cookie would not travel along the redirect.
    let reply = pages.send(Method::GET, path, &[("sec-fetch-site", "cross-site")], "").await;
    assert!(reply.header("set-cookie").contains("countersign_session="));
    reply.expect(StatusCode::OK, &["You are signed in", "href=\"/ops/\""]);

    // Each token is for its purpose, its time and somebody known.
    let token = cookie.split_once('=').expect("pair").1;
    pages.get(&format!("/signin/{token}")).await.expect(StatusCode::FORBIDDEN, &["not valid"]);
    let sign_in = path.rsplit_once('/').expect("path").1;
    let swapped = format!("countersign_session={sign_in}");
    pages.get_as(&swapped, "/").await.expect(StatusCode::UNAUTHORIZED, &[]);
    pages.get("/signin/x").await.expect(StatusCode::NOT_FOUND, &["incomplete"]);
    let nobody = sign_in_link(&pages.state, &Principal::person("gone@example.com"), DAY);
    let nobody = nobody.strip_prefix("https://sign.example.com/ops").expect("below");
    pages.get(nobody).await.expect(StatusCode::FORBIDDEN, &["Nobody to sign in"]);
    let at_once = sign_in_link(&pages.state, &ann, Duration::ZERO);
    let made = pages.state.now();
    while pages.state.now() <= made {
        tokio::task::yield_now().await;
    }
    let at_once = at_once.strip_prefix("https://sign.example.com/ops").expect("below");
    let reply = pages.get(at_once).await.expect(StatusCode::GONE, &["has expired", "countersign up"]);
    assert_eq!(reply.header("set-cookie"), "");

    let reply = pages.post_as(cookie, "/signout", "").await.expect(StatusCode::OK, &["You are signed out"]);
    assert!(reply.header("set-cookie").contains("Max-Age=0"));
    let foreign = [("cookie", cookie), ("origin", "https://evil.example")];
    pages.send(Method::POST, "/signout", &foreign, "").await.expect(StatusCode::FORBIDDEN, &[]);
}

#[tokio::test]
async fn a_signed_in_person_sees_and_decides_what_is_theirs() {
    let pages = Pages::new().await;
    let view = pages.start("expense", "e-1", expense("500")).await;
    let path = format!("/interrupts/{}", view.id);
    let ann = pages.cookie(&Principal::person("ann@example.com")).await;
    let cy = pages.cookie(&Principal::person("cy@example.com")).await;
    let admin = pages.administrator().await;

    pages.get_as(&ann, "/").await.expect(StatusCode::OK, &["Pay 500.00 EUR", &path, "requests open", "e-1", "parked"]);
    pages.get_as(&cy, "/").await.expect(StatusCode::OK, &["Nothing waits for you"]);
    pages.get_as(&cy, &path).await.expect(StatusCode::FORBIDDEN, &["Not yours to decide"]);
    // With people configured the administrator looks on.
    let looked = pages.get_as(&admin, &path).await.expect(StatusCode::OK, &["you are not among those who decide it"]);
    assert!(!looked.body.contains("Approve</button>"));

    let page = pages.get_as(&ann, &path).await.expect(StatusCode::OK, &["Approve", "/threads/e-1"]);
    assert_eq!(page.header("referrer-policy"), "same-origin");
    let yes = format!("{}&approved=true", page.hidden());
    for (cookie, status) in [(&cy, StatusCode::FORBIDDEN), (&admin, StatusCode::FORBIDDEN)] {
        pages.post_as(cookie, &path, &yes).await.expect(status, &["Not yours to decide"]);
    }
    let kind = ("content-type", "application/x-www-form-urlencoded");
    for elsewhere in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.example"), ("x-other", "1")] {
        let headers = [("cookie", ann.as_str()), kind, elsewhere];
        let reply = pages.send(Method::POST, &path, &headers, &yes).await;
        reply.expect(StatusCode::FORBIDDEN, &["Not sent from our page"]);
    }
    pages.post_as(&ann, &path, "approved=true").await.expect(StatusCode::CONFLICT, &["please look again"]);
    assert_eq!(pages.interrupt(&view.id).await.status, "open");

    let reply = pages.post_as(&ann, &path, &yes).await.expect(StatusCode::SEE_OTHER, &[]);
    assert_eq!(reply.header("location"), path);
    pages.get_as(&ann, &path).await.expect(StatusCode::OK, &["Approved", "Ann (ann@example.com)"]);
    let audit = pages.state.engine.store().audit(&view.thread).await.expect("audit");
    let decided = audit.iter().find(|entry| entry.action == "decided").expect("on record");
    let detail = decided.detail.as_ref().expect("facts");
    assert_eq!((&detail["channel"], &detail["identified"]), (&json!("page"), &json!("session")));
    for path in ["/interrupts/x", "/interrupts/00000000000000000000000000000000", "/threads/none", "/threads/a%20b"] {
        pages.get_as(&ann, path).await.expect(StatusCode::NOT_FOUND, &["No such"]);
    }
}

#[tokio::test]
async fn without_people_the_administrator_decides_everything() {
    let pages = Pages::at("http://127.0.0.1:8420", false).await;
    let view = pages.start("expense", "e-1", expense("500")).await;
    let admin = pages.administrator().await;
    pages.get_as(&admin, "/").await.expect(StatusCode::OK, &["Pay 500.00 EUR"]);
    let path = format!("/interrupts/{}", view.id);
    let form = pages.get_as(&admin, &path).await.hidden();
    pages.post_as(&admin, &path, &format!("{form}&approved=false")).await.expect(StatusCode::SEE_OTHER, &[]);
    pages.get_as(&admin, &path).await.expect(StatusCode::OK, &["Rejected", "Administrator"]);
}

#[tokio::test]
async fn a_thread_shows_its_state_and_its_past() {
    let pages = Pages::new().await;
    let view = pages.start("expense", "e-1", expense("500")).await;
    let ann = pages.cookie(&Principal::person("ann@example.com")).await;
    let deciding = format!("/interrupts/{}", view.id);
    let page = pages.get_as(&ann, "/threads/e-1").await.expect(
        StatusCode::OK,
        &["parked", "version 1", &deciding, "requester", "500.00", "Deliveries", "ann@example.com", "email", "start"],
    );
    assert!(!page.body.contains("<script"), "{}", page.body);
}

#[tokio::test]
async fn mails_are_for_the_administrator_and_run_nothing() {
    let pages = Pages::new().await;
    std::fs::create_dir_all(pages.mailbox()).expect("folder");
    let mail = "From: Desk <desk@example.com>\r\nTo: =?utf-8?q?J=C3=B6rg?= <j@example.com>\r\nSubject: Pay?\r\n\
                MIME-Version: 1.0\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n--b\r\n\
                Content-Type: text/plain\r\n\r\nSee http://127.0.0.1:8420/d/abc\r\n--b\r\n\
                Content-Type: text/html\r\n\r\n<html><HEAD><title>x</title></HEAD><a href=/d/abc>Go</a></html>\r\n--b--\r\n";
    std::fs::write(pages.mailbox().join("m1.eml"), mail).expect("written");
    let ann = pages.cookie(&Principal::person("ann@example.com")).await;
    for path in ["/mailbox", "/mailbox/m1", "/mailbox/m1/html"] {
        pages.get_as(&ann, path).await.expect(StatusCode::FORBIDDEN, &["For the administrator only"]);
    }
    let admin = pages.administrator().await;
    pages.get_as(&admin, "/mailbox").await.expect(StatusCode::OK, &["Pay?", "Jörg", "/mailbox/m1"]);
    let shown = ["sandbox=\"allow-popups", "/mailbox/m1/html", "See http://127.0.0.1:8420/d/abc", "href=\"http://127."];
    pages.get_as(&admin, "/mailbox/m1").await.expect(StatusCode::OK, &shown);
    let html = pages.get_as(&admin, "/mailbox/m1/html").await;
    let policy = html.header("content-security-policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("sandbox allow-popups"), "{policy}");
    assert!(!policy.contains("allow-scripts") && !policy.contains("allow-same-origin"), "{policy}");
    assert_eq!(html.header("x-frame-options"), "SAMEORIGIN");
    html.expect(StatusCode::OK, &["<HEAD><base target=\"_top\"><title>x</title>"]);
    for path in ["/mailbox/m2", "/mailbox/..%2Ftest", "/mailbox/m2/html"] {
        pages.get_as(&admin, path).await.expect(StatusCode::NOT_FOUND, &["No such mail"]);
    }
    let none = router(AppState { mailbox: None, ..pages.state.clone() });
    let pages = Pages { router: none, ..pages };
    pages.get_as(&admin, "/mailbox").await.expect(StatusCode::OK, &["configured mail server"]);
}

#[tokio::test]
async fn files_are_cached_and_other_addresses_have_a_page() {
    let pages = Pages::new().await;
    let style = pages.get("/assets/style.css").await.expect(StatusCode::OK, &["--accent"]);
    assert!(style.header("cache-control").contains("immutable"));
    assert_eq!(style.header("content-type"), "text/css; charset=utf-8");
    let tag = style.header("etag");
    let again = pages.send(Method::GET, "/assets/style.css", &[("if-none-match", tag)], "").await;
    assert_eq!((again.status, again.body.as_str()), (StatusCode::NOT_MODIFIED, ""));
    assert_eq!(pages.get("/favicon.ico").await.header("content-type"), "image/svg+xml");
    pages.get("/nowhere").await.expect(StatusCode::NOT_FOUND, &["No such page", "<html lang=\"en\">"]);
    pages.post("/", "").await.expect(StatusCode::METHOD_NOT_ALLOWED, &["Not like this"]);
}
