//! The page of a request with samples, some of them hostile. The pages are
//! left in `target/web-samples`, to be looked at.

use askama::Template;
use countersign_kernel::fault::Fault;
use countersign_kernel::question::{Answered, Ask};
use countersign_kernel::time::Timestamp;
use countersign_worker::store::commands::Via;
use countersign_worker::store::views::RequestView;

use super::*;
use crate::web::answer::Posted;
use crate::web::decide::{Case, Visit, Visitor};
use crate::web::decision::{Banner, DecisionPage, PointPage};
use crate::web::over::Successor;
use crate::web::session::Session;
use crate::web::site::Site;

pub(super) const NOW: Timestamp = Timestamp::from_micros(1_796_047_500_000_000);
pub(super) const HOSTILE: &str = "\"'><script>alert(1)</script>&\u{202e}evil שלום עליכם 👩‍👩‍👧‍👦 {{ title }}";

fn folder() -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/web-samples");
    std::fs::create_dir_all(&folder).expect("folder");
    folder
}

/// Checks a page and keeps it, with the style sheet inside.
pub(super) fn keep(name: &str, html: &str) {
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

/// As [`keep`], for the page that has a script: ours, by its address, and no other.
pub(super) fn keep_home(name: &str, html: &str) {
    let (before, rest) = html.split_once("<script src=\"/assets/live.js?v=").expect("a script");
    let (_, after) = rest.split_once("\" defer></script>").expect("closed");
    keep(name, &format!("{before}{after}"));
}

pub(super) fn keep_page(name: &str, page: &impl Template) {
    keep(name, &page.render().expect("renders"));
}

pub(super) fn site(pages: &Pages, signed_in: bool) -> Site {
    let session =
        Session { principal: Principal::person(ADMINISTRATOR), name: "Anna Müller".to_owned(), administrator: true };
    Site::new(&pages.state, signed_in.then_some(session))
}

struct Sample<'a> {
    pages: &'a Pages,
    case: Case,
}

fn sample<'a, A>(pages: &'a Pages, ask: &Ask<A>) -> Sample<'a> {
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
        frame: None,
        graph: "supplier_payment".to_owned(),
        address: "ask".to_owned(),
        kind: request.question.kind().to_owned(),
        status: "open".to_owned(),
        payload: request.to_payload(),
        deadline: None,
        asked_at: NOW,
        closed_at: None,
        closed_by: None,
        request: Some(standing.clone()),
        answered: None,
    };
    Sample { pages, case: Case { view, request, standing, admitted: true, successor: None, ended: false } }
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
    let html = sample(pages, &payment()).keep("approval", None, &[], &[]);
    for part in
        ["name=\"approved\" value=\"true\"", "value=\"false\"", "name=\"reason\"", "name=\"revision\" value=\"3\""]
    {
        assert!(html.contains(part), "{part} in {html}");
    }
    let html = sample(pages, &input("What is the cost centre?")).keep("input", None, &[], &[]);
    assert!(html.contains("type=\"text\"") && html.contains(" required"), "{html}");
    let html = sample(pages, &select("Which colour?", colours)).keep("select", None, &[], &[]);
    assert_eq!(html.matches("type=\"radio\"").count(), 3, "{html}");
    let html =
        sample(pages, &multi_select("Which toppings?", colours)).keep("multi_select", None, &[("values", "red")], &[]);
    assert_eq!((html.matches("type=\"checkbox\"").count(), html.matches(" checked").count()), (3, 1), "{html}");
    let html =
        sample(pages, &modal("How to go on?", [("retry", "Try again"), ("skip", "Leave it out"), ("stop", "Stop")]))
            .keep("modal", None, &[], &[]);
    assert_eq!(html.matches("name=\"action\"").count(), 3, "{html}");
    let html = sample(pages, &unlock("Release the shipment?", "dock-7")).keep("unlock", None, &[], &[]);
    assert!(html.contains("dock-7") && html.matches("<button").count() == 1, "{html}");
    let html = sample(pages, &form::<Value>("Complete the transfer", schema())).keep("form", None, &[], &[]);
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
        sample(pages, &form::<Value>("Complete the transfer", schema())).keep("form_faults", None, &posted, &faults);
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

/// What the flow proposes stands in the form, as words and nothing else.
#[tokio::test]
async fn the_defaults_of_a_form_stand_in_it() {
    let pages = &Pages::new().await;
    let schema = json!({
        "type": "object",
        "required": ["insured"],
        "properties": {
            "line": {"type": "string", "maxLength": 80, "default": HOSTILE},
            "text": {"type": "string", "default": "</textarea><script>alert(1)</script>"},
            "amount": {"type": "number", "default": 12.5},
            "copies": {"type": "integer", "default": 0},
            "due": {"type": "string", "format": "date", "default": "2027-01-02"},
            "speed": {"type": "string", "enum": ["normal", "<b>instant</b>"], "default": "<b>instant</b>"},
            "insured": {"type": "boolean", "default": false},
            "gift": {"type": "boolean", "default": true},
            "note": {"type": "string", "maxLength": 80, "default": null}
        }
    });
    let ask = form::<Value>("Complete the transfer", schema);
    let html = sample(pages, &ask).keep("form_defaults", None, &[], &[]);
    let hostile = "value=\"&#34;&#39;&#62;&#60;script&#62;alert(1)&#60;/script&#62;&#38;";
    for part in [
        hostile,
        "&#60;/textarea&#62;&#60;script&#62;alert(1)&#60;/script&#62;</textarea>",
        "value=\"12.5\"",
        "value=\"0\"",
        "value=\"2027-01-02\"",
        "value=\"&#60;b&#62;instant&#60;/b&#62;\" selected",
        "value=\"false\" checked",
        "value=\"true\" checked",
    ] {
        assert!(html.contains(part), "{part} in {html}");
    }
    assert_eq!((html.matches(" checked").count(), html.matches(" selected").count()), (2, 1), "{html}");
    assert!(!html.contains("null"), "no default is none: {html}");

    // What was sent is what stands there afterwards, also if that is nothing.
    let posted = [("field.line", ""), ("field.amount", "7"), ("field.speed", ""), ("field.insured", "true")];
    let html = sample(pages, &ask).keep("form_defaults_posted", None, &posted, &[Fault::at("", "no")]);
    assert!(!html.contains(hostile) && !html.contains("12.5") && html.contains("value=\"7\""), "{html}");
    assert!(!html.contains("instant&#60;/b&#62;\" selected") && !html.contains("value=\"false\" checked"), "{html}");
}

#[tokio::test]
async fn requests_in_every_state() {
    let pages = &Pages::new().await;
    sample(pages, &payment()).keep("changed", Some(Banner::changed()), &[], &[]);
    let yes = json!({"approved": true, "reason": "Agreed with purchasing."});
    sample(pages, &payment()).answered(yes.clone(), &["ann@example.com"]).keep("approved", None, &[], &[]);
    let no = json!({"approved": false, "reason": "Not before the goods are here."});
    let rejected = sample(pages, &payment()).answered(no, &["bob@example.com"]);
    rejected.keep("rejected_conflict", Some(Banner::decided_by_others()), &[], &[]);
    let mut voted = sample(pages, &payment().need(2));
    voted.case.standing.have = 1;
    voted.case.standing.votes = vec![(Principal::person("bob@example.com"), yes, NOW)];
    let html = voted.keep("second_vote", None, &[], &[]);
    assert!(html.contains("1 of 2 votes so far") && html.contains("Bob"), "{html}");
    voted.case.standing.votes[0].0 = Principal::person("ann@example.com");
    voted.keep("recorded", None, &[], &[]);
    for status in ["superseded", "withdrawn", "released"] {
        let mut over = sample(pages, &payment());
        over.case.view.status = status.to_owned();
        over.case.view.closed_at = Some(NOW);
        let html = over.keep(status, None, &[], &[]);
        assert!(html.contains("No longer needed") && !html.contains("<form class=\"card decide"), "{html}");
    }
    for (by, admitted, said) in [
        ("edited", true, "has changed the data of the case"),
        ("replayed", false, "start over from an earlier point"),
        ("restarted", true, "given new input"),
        ("cancelled", true, "was cancelled"),
    ] {
        let mut over = sample(pages, &payment());
        over.case.view.status = "superseded".to_owned();
        over.case.view.closed_at = Some(NOW);
        over.case.view.closed_by = Some(by.to_owned());
        let title = "Pay 12,116.50 EUR to Nordlicht Druck GmbH?".to_owned();
        over.case.successor = (by != "cancelled").then(|| Successor { id: "0".repeat(32), title, admitted });
        over.case.ended = by == "cancelled";
        let html = over.keep(&format!("superseded_{by}"), Some(Banner::not_recorded_over()), &[], &[]);
        assert_eq!(html.contains("nothing is left to decide"), by == "cancelled", "{html}");
        assert!(html.contains(said) && html.contains("No answer to it was recorded"), "{html}");
        assert_eq!(html.contains("has a link of its own"), by != "cancelled" && admitted, "{html}");
        assert!(!html.contains("/interrupts/0"), "a link leads nowhere else: {html}");
    }
    let tour: [(Sample<'_>, Value, &str); 5] = [
        (sample(pages, &select("?", [("a", "Alpha")])), json!({"value": "a"}), "Alpha"),
        (sample(pages, &multi_select("?", [("a", "Alpha")])), json!({"values": []}), "none"),
        (sample(pages, &modal("?", [("a", "Alpha")])), json!({"action": "a"}), "Alpha"),
        (sample(pages, &unlock("?", "k")), json!({}), "Unlocked"),
        (sample(pages, &form::<Value>("?", schema())), json!({"iban": "DE02", "insured": true}), "DE02"),
    ];
    for (number, (sample, value, part)) in tour.into_iter().enumerate() {
        let html = sample.answered(value, &["ann@example.com"]).keep(&format!("answered_{number}"), None, &[], &[]);
        assert!(html.contains(part), "{part} in {html}");
    }
    let mut point = sample(pages, &payment()).case.view;
    (point.kind, point.request, point.payload) = ("break".to_owned(), None, json!({"why": HOSTILE}));
    keep_page("point", &PointPage::new(&pages.state, site(pages, true), &point, None));
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
    let html = sample(pages, &words).keep("hostile", None, &[("values", HOSTILE)], &faults);
    assert!(html.contains("&#60;script&#62;") && html.contains("{{ title }}"), "{html}");
    let named = json!({"type": "object", "properties": {HOSTILE: {"type": "string", "description": HOSTILE}}});
    let html = sample(pages, &form::<Value>(HOSTILE, named)).keep(
        "hostile_form",
        None,
        &[(&format!("field.{HOSTILE}"), HOSTILE)],
        &[Fault::at_member(HOSTILE, HOSTILE)],
    );
    assert!(html.contains("aria-invalid"), "{html}");
    sample(pages, &approval(HOSTILE))
        .answered(json!({"approved": false, "reason": HOSTILE}), &["<b>@example.com"])
        .keep("hostile_answered", Some(Banner::decided_by_you()), &[], &[]);
}
