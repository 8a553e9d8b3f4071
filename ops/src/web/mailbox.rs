//! Mails that went to a folder. They carry personal links, so only the
//! administrator sees them.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::http::header::{CONTENT_SECURITY_POLICY, X_FRAME_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use countersign_notifier::{Mail, MailSummary};

use super::page::render;
use super::problem::{Problem, Segment};
use super::session::Administrator;
use super::site::Site;
use super::time::Moment;
use crate::state::AppState;

/// Mails shown, the newest first.
const MAILS_SHOWN: usize = 200;

/// Anybody can put a file into the folder: a mail runs nothing, loads nothing
/// and sends nothing. Its links lead out of the frame.
const MAIL_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; \
                           base-uri 'none'; frame-ancestors 'self'; sandbox allow-popups \
                           allow-popups-to-escape-sandbox allow-top-navigation-by-user-activation";
const TARGET: &str = "<base target=\"_top\">";

#[derive(Template)]
#[template(path = "mailbox.html")]
pub(super) struct MailboxPage {
    pub(super) site: Site,
    /// `None` when mails go to a server.
    pub(super) mails: Option<Vec<MailRow>>,
}

#[derive(Template)]
#[template(path = "mail.html")]
pub(super) struct MailPage {
    pub(super) site: Site,
    pub(super) mail: MailRow,
    pub(super) text: String,
    pub(super) html: bool,
    pub(super) links: Vec<String>,
}

/// The head of a mail.
#[derive(Debug, Clone)]
pub(super) struct MailRow {
    pub(super) id: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) subject: String,
    pub(super) date: Moment,
}

impl MailRow {
    fn new(summary: MailSummary) -> Self {
        let subject = if summary.subject.is_empty() { "(no subject)".to_owned() } else { summary.subject };
        let date = Moment::of(summary.date);
        Self { id: summary.id, from: summary.from, to: summary.to, subject, date }
    }
}

/// `GET /mailbox`.
pub(super) async fn list(
    _: Administrator,
    State(state): State<AppState>,
    Extension(site): Extension<Site>,
) -> Result<Response, Problem> {
    let mails = match &state.mailbox {
        Some(mailbox) => Some(mailbox.list(MAILS_SHOWN).await?.into_iter().map(MailRow::new).collect()),
        None => None,
    };
    Ok(render(StatusCode::OK, &MailboxPage { site, mails }))
}

/// `GET /mailbox/{id}`.
pub(super) async fn show(
    _: Administrator,
    State(state): State<AppState>,
    Extension(site): Extension<Site>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let mail = find(&state, &id).await?;
    let page = MailPage {
        site,
        mail: MailRow::new(mail.summary),
        text: mail.text,
        html: mail.html.is_some(),
        links: mail.links,
    };
    Ok(render(StatusCode::OK, &page))
}

/// `GET /mailbox/{id}/html`: the HTML of a mail, for a frame.
pub(super) async fn html(
    _: Administrator,
    State(state): State<AppState>,
    Segment(id): Segment,
) -> Result<Response, Problem> {
    let html = find(&state, &id).await?.html.ok_or(Problem::NoMail)?;
    let headers = [
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(MAIL_POLICY)),
        (X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN")),
        (axum::http::header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    Ok((headers, Html(leading_out(&html))).into_response())
}

async fn find(state: &AppState, id: &str) -> Result<Mail, Problem> {
    let mailbox = state.mailbox.as_ref().ok_or(Problem::NoMail)?;
    mailbox.read(id).await?.ok_or(Problem::NoMail)
}

/// The same HTML, whose links open outside the frame.
pub(super) fn leading_out(html: &str) -> String {
    // ASCII lower case keeps every position.
    match html.to_ascii_lowercase().find("<head>") {
        Some(at) => {
            let (before, after) = html.split_at(at + "<head>".len());
            format!("{before}{TARGET}{after}")
        }
        None => format!("{TARGET}{html}"),
    }
}
