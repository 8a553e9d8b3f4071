//! All other pages with samples, some of them hostile.

use askama::Template as _;
use countersign_notifier::LinkFault;

use super::templates::{HOSTILE, NOW, keep, keep_page, site};
use super::*;
use crate::web::checkpoint::{AgainForm, CheckpointPage};
use crate::web::home::{CountView, HomePage, ThreadRow, WaitingRow};
use crate::web::mailbox::{MailPage, MailRow, MailboxPage};
use crate::web::problem::Problem;
use crate::web::session::SignedPage;
use crate::web::thread::{DeliveryRow, FrameCard, HistoryRow, RunRow, StateRow, ThreadPage, WaitView};
use crate::web::time::Moment;

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

fn row(key: &str, value: &str) -> StateRow {
    StateRow { key: key.to_owned(), value: value.to_owned(), structured: false }
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
        mail: detail.is_none().then(|| "0192f3c4-a1b2-7c3d-8e4f-5a6b7c8d9e0f".to_owned()),
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
        checkpoint: "0192f3c4-a1b2-7c3d-8e4f-5a6b7c8d9e0f".to_owned(),
        seq: 3,
        superstep: 2,
        source: "run again",
        next: "manager".to_owned(),
        created_at: moment(),
        current: true,
    };
    let state = vec![
        row("amount", "12480.00"),
        row("purpose", HOSTILE),
        StateRow {
            structured: true,
            ..row("lines", &serde_json::to_string_pretty(&json!([{"text": "Paper", "amount": 12}])).expect("json"))
        },
    ];
    let frame = FrameCard {
        graph: HOSTILE.to_owned(),
        address: "supplier_payment/check@1".to_owned(),
        next: "bank, office".to_owned(),
        state: state.clone(),
        history: vec![HistoryRow { source: "superstep", ..step.clone() }],
    };
    let thread = ThreadPage {
        site: site(pages, true),
        operator: true,
        line: line("parked", 1),
        graph_version: 2,
        started_by: "service erp".to_owned(),
        created_at: moment(),
        error: Some(HOSTILE.to_owned()),
        held_reason: Some("stopped after 5 attempts without progress".to_owned()),
        errors: vec![("pay#1".to_owned(), "the bank did not answer".to_owned())],
        next: vec!["manager".to_owned()],
        waits: vec![
            WaitView {
                id: "80fcfb93000000000000000000000abc".to_owned(),
                kind: "Approval",
                title: "Pay 12,480.00 EUR to Nordlicht Druck GmbH?".to_owned(),
                address: "supplier_payment/manager".to_owned(),
                asked_at: moment(),
                deadline: Some(moment()),
                says: None,
                votes: Some("0 of 1 votes".to_owned()),
                deliveries: vec![delivery("sent", None), delivery("failed", Some("550 no such mailbox here"))],
            },
            WaitView {
                id: "90fcfb93000000000000000000000abc".to_owned(),
                kind: "Stopped",
                title: "supplier_payment/check@1".to_owned(),
                address: "supplier_payment/check@1".to_owned(),
                asked_at: moment(),
                deadline: None,
                says: Some(HOSTILE.to_owned()),
                votes: None,
                deliveries: Vec::new(),
            },
        ],
        waits_more: 3,
        state: state.clone(),
        frames: vec![frame],
        runs: vec![run],
        history: vec![step.clone(), HistoryRow { seq: 2, source: "superstep", current: false, ..step.clone() }, step],
    };
    keep_page("thread", &thread);
    let html = thread.render().expect("renders");
    assert_eq!(html.matches("supplier_payment/check@1").count(), 2, "once as a point, once as a sub-graph: {html}");
    assert!(html.contains("/mailbox/0192f3c4-a1b2-7c3d-8e4f-5a6b7c8d9e0f\">the mail</a>"), "{html}");
    assert_eq!(html.matches(&moment().exact).count(), 5, "runs and history: {html}");
    let steps = vec![("pay".to_owned(), "supplier_payment/pay@2".to_owned()), (HOSTILE.to_owned(), HOSTILE.to_owned())];
    let page = |again, refused| CheckpointPage {
        site: site(pages, true),
        thread: "invoice-2026-0417".to_owned(),
        graph: "supplier_payment".to_owned(),
        checkpoint: "0192f3c4-a1b2-7c3d-8e4f-5a6b7c8d9e0f".to_owned(),
        seq: 3,
        superstep: 2,
        source: "superstep",
        made: moment(),
        inner: false,
        next: vec!["manager".to_owned()],
        state: state.clone(),
        again,
        refused,
    };
    let again = AgainForm { busy: false, open: 2, steps };
    let refused = page(Some(again), Some("Look again once it rests."));
    keep_page("checkpoint", &refused);
    let html = refused.render().expect("renders");
    assert!(html.contains("edit invoice-2026-0417 \\\n    --at 0192"), "{html}");
    assert!(html.contains(" \\\n    --re-execute \\\n    --values"), "{html}");
    keep_page("checkpoint_plain", &page(Some(AgainForm { busy: false, open: 0, steps: Vec::new() }), None));
    keep_page("checkpoint_busy", &page(Some(AgainForm { busy: true, open: 1, steps: Vec::new() }), None));
    keep_page("checkpoint_reader", &page(None, None));
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
        Problem::NoCheckpoint,
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
