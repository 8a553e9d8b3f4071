//! All other pages with samples, some of them hostile.

use askama::Template as _;
use countersign_kernel::time::Timestamp;
use countersign_notifier::LinkFault;
use countersign_worker::queue::{JobKind, QueueDepth};
use countersign_worker::store::commands::Serves;
use countersign_worker::store::overview::{
    ChannelOverview, DeadLetter, DeliveryFailure, DueWork, GraphOverview, OpenPoints, Overview, Trouble,
};
use countersign_worker::store::views::ThreadSummary;
use countersign_worker::store::workers::{Heartbeat, Numbers, WorkerView};

use super::templates::{HOSTILE, NOW, keep, keep_home, keep_page, site};
use super::*;
use crate::overview::Look;
use crate::web::assets;
use crate::web::checkpoint::{AgainForm, CheckpointPage};
use crate::web::home::{HomePage, ThreadRow, Waiting, WaitingRow, regions};
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

fn waiting() -> Vec<WaitingRow> {
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
    vec![row("Pay 12,480.00 EUR to Nordlicht Druck GmbH?", Some("1 of 2 votes")), row(HOSTILE, None)]
}

/// The first page for the administrator.
fn home(pages: &Pages, overview: Overview, latest: Vec<ThreadSummary>, waiting: Vec<WaitingRow>) -> HomePage {
    let site = site(pages, true);
    let look = Look::sample(overview, latest, NOW);
    let session = site.session.clone().expect("signed in");
    let waiting = Waiting { prefix: site.prefix.clone(), more: !waiting.is_empty(), waiting };
    let regions = regions(&site, &session, &look, &waiting);
    HomePage { at: Moment::of(NOW), script: assets::script_version(), regions, site }
}

fn summary(thread: &str, status: &str) -> ThreadSummary {
    ThreadSummary {
        thread: ThreadId::parse(thread).expect("id"),
        graph: "supplier_payment".to_owned(),
        graph_version: 3,
        status: status.to_owned(),
        open: u32::from(status == "parked"),
        failed_tasks: 0,
        error: None,
        held_reason: None,
        priority: 0,
        limit_key: None,
        held_back: None,
        started_by: Principal::person("ann@example.com"),
        created_at: NOW,
        updated_at: NOW,
    }
}

fn ago(seconds: i64) -> Timestamp {
    Timestamp::from_micros(NOW.as_micros() - seconds * 1_000_000)
}

fn worker(name: &str, serves: Serves, pages: bool, silent: i64) -> WorkerView {
    let beat = Heartbeat {
        name: name.to_owned(),
        host: "alpha.example.com".to_owned(),
        pid: 4711,
        version: "0.1.0".to_owned(),
        pages,
        serves,
        started_at: ago(90_000),
        every: Duration::from_secs(5),
        running: 12,
        waiting: 340,
        done: Numbers::new(),
        last_minute: [("runs_started".to_owned(), 1_204), ("answers".to_owned(), 37)].into(),
    };
    WorkerView { beat, seen_at: ago(silent) }
}

/// A busy day on which things go wrong, some of them with hostile words.
fn troubled() -> Overview {
    let thread = |name: &str| ThreadId::parse(name).expect("id");
    let trouble =
        |name: &str, reason: &str| Trouble { thread: thread(name), reason: reason.to_owned(), since: ago(500) };
    let email = ChannelOverview {
        pending: 3,
        retrying: 41,
        failed: 2,
        last_failure: Some(DeliveryFailure {
            thread: thread("invoice-2026-0417"),
            interrupt: InterruptId::parse("80fcfb93000000000000000000000abc").expect("id"),
            error: format!("550 5.1.1 no such mailbox {HOSTILE}"),
        }),
    };
    let letter = DeadLetter {
        thread: thread("invoice-2026-0417"),
        kind: "deliver".to_owned(),
        subject: None,
        reason: format!("550 5.1.1 no such mailbox {HOSTILE}"),
        attempts: 20,
        died_at: ago(600),
    };
    let payments = GraphOverview {
        threads: [
            ("queued", 5_120),
            ("running", 64),
            ("parked", 100_310),
            ("held", 7),
            ("failed", 1),
            ("succeeded", 98),
        ]
        .map(|(status, number)| (status.to_owned(), number))
        .into(),
        held_back: 20,
        due: [(JobKind::Advance, DueWork { count: 5_120, since: ago(260) })].into(),
        points: [(
            "approval".to_owned(),
            OpenPoints { count: 1_204, younger: [12, 400, 900, 1_100], oldest: ago(900_000), newest: ago(1) },
        )]
        .into(),
        held: (0..7)
            .map(|n| trouble(&format!("invoice-2026-04{n:02}"), "this build has no graph `supplier_payment`"))
            .collect(),
        failed: vec![trouble("invoice-2026-0500", HOSTILE)],
        channels: [("email".to_owned(), email)].into(),
        dead: 9,
        dead_letters: vec![letter],
    };
    let queue = |kind, waiting, fetched| QueueDepth {
        kind,
        waiting,
        fetched,
        oldest_run_at: Some(ago(260)),
        oldest_waiting_run_at: Some(ago(260)),
        oldest_fetched_at: None,
    };
    Overview {
        graphs: [("supplier_payment".to_owned(), payments)].into(),
        deliveries: [("sent".to_owned(), 9_000), ("pending".to_owned(), 44), ("failed".to_owned(), 2)].into(),
        queues: vec![queue(JobKind::Advance, 5_120, 64), queue(JobKind::Deliver, 44, 0)],
        workers: vec![
            worker("worker-0a1b2c3d4e5f", Serves::default(), true, 3),
            worker(
                "worker-1a1b2c3d4e5f",
                Serves::kinds(&[JobKind::Advance]).of(Some(vec!["expense".into()])),
                false,
                75,
            ),
        ],
    }
}

#[tokio::test]
async fn the_first_page_says_what_is_wrong_before_all_else() {
    let pages = &Pages::new().await;
    let latest = ["parked", "succeeded", "failed", "running"].map(|status| summary("invoice-2026-0417", status));
    let html = home(pages, troubled(), latest.into(), waiting()).render().expect("renders");
    keep_home("home", &html);
    let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("`{text}` is not in {html}"));
    let order = [
        "Needs attention",
        "7 threads held",
        "href=\"/threads/invoice-2026-0400\"",
        "and 2 more",
        "2 messages through email given up, 41 not sent yet",
        "href=\"/interrupts/80fcfb93000000000000000000000abc\"",
        "1 process lost",
        "5,120 <code>advance</code> jobs due, the oldest for 4 min",
        "1 thread failed",
        "Waiting for you",
        "At a glance",
        "<h2 id=\"queues\">",
        "under 1 day</th>",
        "1,204 runs started",
        "lost for 75 s",
        "Dead letters",
        "Latest threads",
    ];
    let places: Vec<usize> = order.iter().map(|text| place(text)).collect();
    assert!(places.is_sorted(), "{places:?}");
    // Every table says what it is, and no colour alone means anything.
    assert_eq!(html.matches("<table").count(), html.matches("<caption").count());
    assert!(html.contains("needs attention</span>"));
}

#[tokio::test]
async fn the_first_page_of_an_empty_store() {
    let pages = &Pages::new().await;
    let html = home(pages, Overview::default(), Vec::new(), Vec::new()).render().expect("renders");
    keep_home("home_empty", &html);
    assert!(!html.contains("Needs attention") && html.contains("Nothing waits for you."), "{html}");
}

#[tokio::test]
async fn the_pages_of_a_session() {
    let pages = &Pages::new().await;
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
        held_back: None,
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
