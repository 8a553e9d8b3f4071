//! Every template with samples, some of them hostile. The pages are left in
//! `target/web-samples`, to be looked at.

use askama::Template;
use countersign_kernel::fault::Fault;
use countersign_kernel::question::{Answered, Ask};
use countersign_kernel::time::Timestamp;
use countersign_notifier::LinkFault;
use countersign_worker::store::commands::Via;
use countersign_worker::store::views::RequestView;

use super::*;
use crate::web::answer::Posted;
use crate::web::decide::{Case, Visit, Visitor};
use crate::web::decision::{Banner, DecisionPage, PointPage};
use crate::web::home::{CountView, HomePage, ThreadRow, WaitingRow};
use crate::web::mailbox::{MailPage, MailRow, MailboxPage};
use crate::web::problem::Problem;
use crate::web::session::{Session, SignedPage};
use crate::web::site::Site;
use crate::web::thread::{DeliveryRow, HistoryRow, RunRow, ThreadPage, WaitView};
use crate::web::time::Moment;

const NOW: Timestamp = Timestamp::from_micros(1_796_047_500_000_000);
const HOSTILE: &str = "\"'><script>alert(1)</script>&\u{202e}evil שלום עליכם 👩‍👩‍👧‍👦 {{ title }}";

fn folder() -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/web-samples");
    std::fs::create_dir_all(&folder).expect("folder");
    folder
}

/// Checks a page and keeps it, with the style sheet inside.
fn keep(name: &str, html: &str) {
    assert!(html.starts_with("<!doctype html>\n<html lang=\"en\">"), "{name}: {html}");
    for one in ["<title>", "<h1", "<main", "name=\"viewport\""] {
        assert_eq!(html.matches(one).count(), 1, "{name} has not one `{one}`: {html}");
    }
    for bad in ["<script", " style=", " onclick", "<title> ·"] {
        assert!(!html.contains(bad), "{name} has `{bad}`: {html}");
    }
    for id in html.split(" for=\"").skip(1).filter_map(|rest| rest.split_once('"')) {
        assert!(html.contains(&format!("id=\"{}\"", id.0)), "{name}: a label for nothing, {}", id.0);
    }
    let (start, rest) = html.split_once("<link rel=\"stylesheet\"").expect("a style sheet");
    let style = include_str!("../../../templates/style.css");
    let end = rest.split_once('>').expect("closed").1;
    std::fs::write(folder().join(format!("{name}.html")), format!("{start}<style>{style}</style>{end}")).expect("kept");
}

fn keep_page(name: &str, page: &impl Template) {
    keep(name, &page.render().expect("renders"));
}

fn site(pages: &Pages, signed_in: bool) -> Site {
    let session =
        Session { principal: Principal::person(ADMINISTRATOR), name: "Anna Müller".to_owned(), administrator: true };
    Site::new(&pages.state, signed_in.then_some(session))
}

struct Sample<'a> {
    pages: &'a Pages,
    case: Case,
}

fn sample<A>(pages: &Pages, ask: Ask<A>) -> Sample<'_> {
    let request = ask.request();
    let standing = RequestView {
        revision: 3,
        content_hash: request.content_hash(),
        have: 0,
        need: request.policy.need,
        votes: Vec::new(),
    };
    let view = InterruptView {
        id: InterruptId::parse("80fcfb93000000000000000000000abc").expect("id"),
        thread: ThreadId::parse("invoice-2026-0417").expect("id"),
        graph: "supplier_payment".to_owned(),
        address: "ask".to_owned(),
        kind: request.question.kind().to_owned(),
        status: "open".to_owned(),
        payload: request.to_payload(),
        deadline: None,
        asked_at: NOW,
        closed_at: None,
        request: Some(standing.clone()),
        answered: None,
    };
    Sample { pages, case: Case { view, request, standing, admitted: true } }
}

impl Sample<'_> {
    fn keep(&self, name: &str, banner: Option<Banner>, posted: &[(&str, &str)], faults: &[Fault]) -> String {
        let visit = Visit {
            state: self.pages.state.clone(),
            site: site(self.pages, false),
            interrupt: self.case.view.id.clone(),
            visitor: Visitor {
                principal: Principal::person("ann@example.com"),
                via: Via { channel: "link", identified: "link" },
                announced: Some((self.case.view.thread.clone(), self.case.standing.content_hash.clone())),
                administrator: false,
            },
        };
        let posted = posted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let html =
            DecisionPage::new(&visit, &self.case, banner, &Posted::new(posted), faults).render().expect("renders");
        keep(name, &html);
        html
    }

    fn answered(mut self, value: Value, by: &[&str]) -> Self {
        self.case.view.status = "answered".to_owned();
        let by = by.iter().map(|who| Principal::person(who)).collect();
        self.case.view.answered = Some(Answered { value: Some(value), by, at: NOW });
        self
    }
}

fn payment() -> Ask<Decision> {
    approval("Pay 12,480.00 EUR to Nordlicht Druck GmbH?")
        .message("The invoice is 3% above the order.\nThe supplier explained the difference by the price of paper.")
        .detail("Invoice", "2026-0417")
        .detail("Supplier", "Nordlicht Druck GmbH, Kiel")
        .detail("Order", "12,116.50 EUR")
        .detail("Due", "2026-12-04")
        .requested_by("Jörg Petersen, Purchasing")
        .to(role("manager"))
        .on_yes("the transfer is sent at once")
        .on_no("the invoice goes back to purchasing")
}

fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["iban", "amount", "speed", "insured"],
        "properties": {
            "iban": {"type": "string", "title": "IBAN", "maxLength": 34, "description": "As on the invoice"},
            "amount": {"type": "number", "title": "Amount in EUR"},
            "copies": {"type": "integer", "title": "Copies"},
            "due": {"type": "string", "format": "date", "title": "Due on"},
            "speed": {"type": "string", "enum": ["normal", "instant"], "title": "Speed"},
            "insured": {"type": "boolean", "title": "Insured"},
            "gift": {"type": "boolean", "title": "A gift"},
            "note": {"type": "string", "title": "Note", "maxLength": 500}
        }
    })
}

#[tokio::test]
async fn requests_of_every_kind() {
    let pages = &Pages::new().await;
    let colours = [("red", "Red"), ("green", "Green, like the fields"), ("blue", "Blue")];
    let html = sample(pages, payment()).keep("approval", None, &[], &[]);
    for part in
        ["name=\"approved\" value=\"true\"", "value=\"false\"", "name=\"reason\"", "name=\"revision\" value=\"3\""]
    {
        assert!(html.contains(part), "{part} in {html}");
    }
    let html = sample(pages, input("What is the cost centre?")).keep("input", None, &[], &[]);
    assert!(html.contains("type=\"text\"") && html.contains(" required"), "{html}");
    let html = sample(pages, select("Which colour?", colours)).keep("select", None, &[], &[]);
    assert_eq!(html.matches("type=\"radio\"").count(), 3, "{html}");
    let html =
        sample(pages, multi_select("Which toppings?", colours)).keep("multi_select", None, &[("values", "red")], &[]);
    assert_eq!((html.matches("type=\"checkbox\"").count(), html.matches(" checked").count()), (3, 1), "{html}");
    let html =
        sample(pages, modal("How to go on?", [("retry", "Try again"), ("skip", "Leave it out"), ("stop", "Stop")]))
            .keep("modal", None, &[], &[]);
    assert_eq!(html.matches("name=\"action\"").count(), 3, "{html}");
    let html = sample(pages, unlock("Release the shipment?", "dock-7")).keep("unlock", None, &[], &[]);
    assert!(html.contains("dock-7") && html.matches("<button").count() == 1, "{html}");
    let html = sample(pages, form::<Value>("Complete the transfer", schema())).keep("form", None, &[], &[]);
    for part in ["type=\"date\"", "step=\"1\"", "step=\"any\"", "maxlength=\"34\"", "<select", "<textarea", "No answer"]
    {
        assert!(html.contains(part), "{part} in {html}");
    }
    // The radios of "insured" are required, those of "gift" are not.
    assert_eq!(html.matches("type=\"radio\"").count(), 5, "{html}");
    let faults = [
        Fault::at("/iban", "longer than 34 characters"),
        Fault::at("/speed", "must be filled in"),
        Fault::at("", "too much"),
    ];
    let posted = [
        ("field.iban", "DE<b>02"),
        ("field.insured", "false"),
        ("field.speed", ""),
        ("field.note", "a\r\n</textarea>"),
    ];
    let html =
        sample(pages, form::<Value>("Complete the transfer", schema())).keep("form_faults", None, &posted, &faults);
    for part in [
        "value=\"DE&#60;b&#62;02\"",
        "aria-invalid=\"true\"",
        "href=\"#field-0\"",
        "Longer than 34",
        "value=\"false\" checked",
    ] {
        assert!(html.contains(part), "{part} in {html}");
    }
}

#[tokio::test]
async fn requests_in_every_state() {
    let pages = &Pages::new().await;
    sample(pages, payment()).keep("changed", Some(Banner::changed()), &[], &[]);
    let yes = json!({"approved": true, "reason": "Agreed with purchasing."});
    sample(pages, payment()).answered(yes.clone(), &["ann@example.com"]).keep("approved", None, &[], &[]);
    let no = json!({"approved": false, "reason": "Not before the goods are here."});
    let rejected = sample(pages, payment()).answered(no, &["bob@example.com"]);
    rejected.keep("rejected_conflict", Some(Banner::decided_by_others()), &[], &[]);
    let mut voted = sample(pages, payment().need(2));
    voted.case.standing.have = 1;
    voted.case.standing.votes = vec![(Principal::person("bob@example.com"), yes.clone(), NOW)];
    let html = voted.keep("second_vote", None, &[], &[]);
    assert!(html.contains("1 of 2 votes so far") && html.contains("Bob"), "{html}");
    voted.case.standing.votes[0].0 = Principal::person("ann@example.com");
    voted.keep("recorded", None, &[], &[]);
    for status in ["superseded", "withdrawn", "released"] {
        let mut over = sample(pages, payment());
        over.case.view.status = status.to_owned();
        over.case.view.closed_at = Some(NOW);
        let html = over.keep(status, None, &[], &[]);
        assert!(html.contains("No longer needed") && !html.contains("<form class=\"card decide"), "{html}");
    }
    let tour: [(Sample<'_>, Value, &str); 5] = [
        (sample(pages, select("?", [("a", "Alpha")])), json!({"value": "a"}), "Alpha"),
        (sample(pages, multi_select("?", [("a", "Alpha")])), json!({"values": []}), "none"),
        (sample(pages, modal("?", [("a", "Alpha")])), json!({"action": "a"}), "Alpha"),
        (sample(pages, unlock("?", "k")), json!({}), "Unlocked"),
        (sample(pages, form::<Value>("?", schema())), json!({"iban": "DE02", "insured": true}), "DE02"),
    ];
    for (number, (sample, value, part)) in tour.into_iter().enumerate() {
        let html = sample.answered(value, &["ann@example.com"]).keep(&format!("answered_{number}"), None, &[], &[]);
        assert!(html.contains(part), "{part} in {html}");
    }
    let mut point = sample(pages, payment()).case.view;
    (point.kind, point.request, point.payload) = ("break".to_owned(), None, json!({"why": HOSTILE}));
    keep_page("point", &PointPage::new(&pages.state, site(pages, true), &point));
}

#[tokio::test]
async fn hostile_words_stay_words() {
    let pages = &Pages::new().await;
    let long = "x".repeat(300);
    let choices = [(HOSTILE, HOSTILE), ("long", &long)];
    let asked = |ask: Ask<Vec<String>>| {
        ask.message(HOSTILE)
            .detail(HOSTILE, &long)
            .detail(&long, HOSTILE)
            .detail("مرحبا بالعالم", "هذا نص من اليمين إلى اليسار مع 123 EUR")
            .requested_by(HOSTILE)
            .on_yes(HOSTILE)
            .on_silence(&long)
    };
    let words = asked(multi_select(format!("{HOSTILE} {long}"), choices));
    let faults = [Fault::at("/values", HOSTILE), Fault::at("", HOSTILE)];
    let html = sample(pages, words).keep("hostile", None, &[("values", HOSTILE)], &faults);
    assert!(html.contains("&#60;script&#62;") && html.contains("{{ title }}"), "{html}");
    let named = json!({"type": "object", "properties": {HOSTILE: {"type": "string", "description": HOSTILE}}});
    let html = sample(pages, form::<Value>(HOSTILE, named)).keep(
        "hostile_form",
        None,
        &[(&format!("field.{HOSTILE}"), HOSTILE)],
        &[Fault::at_member(HOSTILE, HOSTILE)],
    );
    assert!(html.contains("aria-invalid"), "{html}");
    sample(pages, approval(HOSTILE))
        .answered(json!({"approved": false, "reason": HOSTILE}), &["<b>@example.com"])
        .keep("hostile_answered", Some(Banner::decided_by_you()), &[], &[]);
}

fn moment() -> Moment {
    Moment::of(NOW)
}

fn line(status: &str, open: u32) -> ThreadRow {
    ThreadRow {
        thread: "invoice-2026-0417".to_owned(),
        graph: "supplier_payment".to_owned(),
        status: status.to_owned(),
        open,
        updated_at: moment(),
    }
}

fn home(pages: &Pages) -> HomePage {
    let row = |title: &str, votes: Option<&str>| WaitingRow {
        id: "80fcfb93000000000000000000000abc".to_owned(),
        kind: "Approval",
        title: title.to_owned(),
        requested_by: Some("Jörg Petersen".to_owned()),
        graph: "supplier_payment".to_owned(),
        thread: "invoice-2026-0417".to_owned(),
        asked_at: moment(),
        deadline: votes.map(|_| moment()),
        votes: votes.map(str::to_owned),
    };
    let count = |number, label: &str, alarming| CountView { number, label: label.to_owned(), alarming };
    HomePage {
        site: site(pages, true),
        waiting: vec![row("Pay 12,480.00 EUR to Nordlicht Druck GmbH?", Some("1 of 2 votes")), row(HOSTILE, None)],
        more: true,
        counts: vec![
            count(1204, "requests open", false),
            count(1210, "threads parked", false),
            count(98, "threads succeeded", false),
            count(1, "threads failed", true),
            count(0, "dead letters", false),
        ],
        threads: vec![line("parked", 1), line("succeeded", 0), line("failed", 2), line("running", 0)],
    }
}

#[tokio::test]
async fn the_pages_of_a_session() {
    let pages = &Pages::new().await;
    keep_page("home", &home(pages));
    let empty = HomePage { waiting: Vec::new(), counts: Vec::new(), threads: Vec::new(), more: false, ..home(pages) };
    keep_page("home_empty", &empty);
    let delivery = |status: &str, detail: Option<&str>| DeliveryRow {
        channel: "email".to_owned(),
        to: "Ann (ann@example.com)".to_owned(),
        status: status.to_owned(),
        attempts: 2,
        possibly_twice: detail.is_some(),
        detail: detail.map(str::to_owned),
        at: moment(),
    };
    let run = RunRow {
        run: "0192f3c4a1b27c3d8e4f5a6b7c8d9e0f".to_owned(),
        kind: "start".to_owned(),
        status: "parked".to_owned(),
        created_at: moment(),
        finished_at: None,
    };
    let step = HistoryRow {
        seq: 3,
        superstep: 2,
        source: "loop".to_owned(),
        next: "manager".to_owned(),
        created_at: moment(),
    };
    let thread = ThreadPage {
        site: site(pages, true),
        line: line("parked", 1),
        graph_version: 2,
        started_by: "service erp".to_owned(),
        created_at: moment(),
        error: Some(HOSTILE.to_owned()),
        held_reason: Some("stopped after 5 attempts without progress".to_owned()),
        errors: vec![("pay#1".to_owned(), "the bank did not answer".to_owned())],
        next: vec!["manager".to_owned()],
        waits: vec![WaitView {
            id: "80fcfb93000000000000000000000abc".to_owned(),
            kind: "Approval",
            title: "Pay 12,480.00 EUR to Nordlicht Druck GmbH?".to_owned(),
            address: "supplier_payment/manager".to_owned(),
            asked_at: moment(),
            deadline: Some(moment()),
            votes: Some("0 of 1 votes".to_owned()),
            deliveries: vec![delivery("sent", None), delivery("failed", Some("550 no such mailbox here"))],
        }],
        waits_more: 3,
        state: vec![
            ("amount".to_owned(), "12480.00".to_owned(), false),
            ("purpose".to_owned(), HOSTILE.to_owned(), false),
            (
                "lines".to_owned(),
                serde_json::to_string_pretty(&json!([{"text": "Paper", "amount": 12}])).expect("json"),
                true,
            ),
        ],
        runs: vec![run],
        history: vec![step.clone(), HistoryRow { seq: 2, ..step }],
    };
    keep_page("thread", &thread);
    let mail = MailRow {
        id: "m1".to_owned(),
        from: "Countersign <countersign@localhost>".to_owned(),
        to: "Anna Müller <anna@example.com>".to_owned(),
        subject: "Pay 12,480.00 EUR to Nordlicht Druck GmbH?".to_owned(),
        date: moment(),
    };
    let mails = vec![mail.clone(), MailRow { subject: HOSTILE.to_owned(), ..mail.clone() }];
    keep_page("mailbox", &MailboxPage { site: site(pages, true), mails: Some(mails) });
    keep_page("mailbox_empty", &MailboxPage { site: site(pages, true), mails: Some(Vec::new()) });
    keep_page("mailbox_none", &MailboxPage { site: site(pages, true), mails: None });
    let links = vec!["https://example.com/d/abc".to_owned()];
    keep_page("mail", &MailPage { site: site(pages, true), mail, text: HOSTILE.repeat(9), html: true, links });
    keep_page("signed_in", &SignedPage { site: site(pages, false), name: Some(HOSTILE.to_owned()) });
    keep_page("signed_out", &SignedPage { site: site(pages, false), name: None });
}

#[tokio::test]
async fn every_problem_has_a_page_that_says_what_to_do() {
    let pages = &Pages::new().await;
    let faults = [
        LinkFault::Malformed,
        LinkFault::Tampered,
        LinkFault::UnknownKey,
        LinkFault::Replaced,
        LinkFault::Expired { at: NOW },
    ];
    let mut problems = vec![
        Problem::Nobody,
        Problem::NotAsked,
        Problem::NoRequest,
        Problem::NoThread,
        Problem::NoMail,
        Problem::NoPage,
        Problem::WrongMethod,
        Problem::SignedOut,
        Problem::NotAdministrator,
        Problem::FromElsewhere,
        Problem::TooLarge,
        Problem::NoForm(StatusCode::UNSUPPORTED_MEDIA_TYPE),
        Problem::Failed,
    ];
    problems
        .extend(faults.iter().cloned().flat_map(|fault| [Problem::Link(fault.clone()), Problem::SignInLink(fault)]));
    for (number, problem) in problems.iter().enumerate() {
        let response = problem.page(&site(pages, number % 2 == 0), true);
        assert_eq!(response.status(), problem.status());
        assert!(problem.status().is_client_error() || problem.status().is_server_error());
        let body = to_bytes(response.into_body(), usize::MAX).await.expect("body");
        let html = String::from_utf8(body.to_vec()).expect("text");
        assert!(html.contains("What to do next"), "{problem:?}");
        keep(&format!("problem_{number:02}"), &html);
    }
}

#[test]
fn links_of_mails_lead_out_of_their_frame() {
    use crate::web::mailbox::leading_out;
    assert_eq!(leading_out("<p>x"), "<base target=\"_top\"><p>x");
    assert_eq!(leading_out("<!doctype html><HTML><Head>ü"), "<!doctype html><HTML><Head><base target=\"_top\">ü");
}
