//! What a mail says, and in which form.

use askama::Template;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_kernel::ports::{DeliveryError, Notice, Occasion};
use countersign_kernel::question::Question;
use countersign_kernel::time::Timestamp;
use lettre::Message;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Body, Mailbox, MultiPart, MultiPartKind, SinglePart};
use sha2::{Digest, Sha256};

use crate::clock::{readable, system_time};
use crate::failure::permanent;

/// Characters of a subject; what is longer ends in an ellipsis.
const SUBJECT: usize = 400;

/// All that goes into one mail, beside its sender and recipient.
pub(super) struct Sheet<'a> {
    pub(super) notice: &'a Notice,
    pub(super) link: &'a str,
    pub(super) expires_at: Timestamp,
    pub(super) now: Timestamp,
}

struct Row {
    label: String,
    value: String,
}

impl Row {
    /// The value with its later lines set in, so that in plain text none of
    /// them passes for a line of ours.
    fn indented(&self) -> String {
        self.value.lines().collect::<Vec<_>>().join("\n    ")
    }
}

#[derive(Template)]
#[template(path = "email/asked.html")]
struct Html<'a> {
    heading: &'a str,
    title: &'a str,
    message: Option<&'a str>,
    asked_by: &'a str,
    details: &'a [Row],
    choices: &'a [String],
    outcomes: &'a [Row],
    deadline: Option<&'a str>,
    action: &'a str,
    link: &'a str,
    expires: &'a str,
    name: &'a str,
    trail: &'a str,
}

#[derive(Template)]
#[template(path = "email/asked.txt")]
struct Text<'a> {
    heading: &'a str,
    title: &'a str,
    message: Option<&'a str>,
    asked_by: &'a str,
    details: &'a [Row],
    choices: &'a [String],
    outcomes: &'a [Row],
    deadline: Option<&'a str>,
    action: &'a str,
    link: &'a str,
    expires: &'a str,
    name: &'a str,
    trail: &'a str,
}

impl Sheet<'_> {
    /// The finished message.
    pub(super) fn message(&self, from: Mailbox, to: Mailbox) -> Result<Message, DeliveryError> {
        let notice = self.notice;
        let (text, html) = self.bodies(&to)?;
        let domain = match from.email.domain() {
            domain if domain.is_ascii() => domain.to_owned(),
            _ => "countersign.invalid".to_owned(),
        };
        let id = self.identity();
        let thread = format!("<request.{}@{domain}>", notice.interrupt);
        // Neither quoted-printable nor base64 text contains `=_` (RFC 2045,
        // section 6.7), so nothing in a body can pass for the boundary.
        let alternatives = MultiPart::builder()
            .kind(MultiPartKind::Alternative)
            .boundary(format!("=_{id}"))
            .singlepart(part(ContentType::TEXT_PLAIN, text)?)
            .singlepart(part(ContentType::TEXT_HTML, html)?);
        Message::builder()
            .from(from)
            .to(to)
            .raw_header(subject(self.subject()))
            .date(system_time(self.now))
            .message_id(Some(format!("<{id}@{domain}>")))
            .in_reply_to(thread.clone())
            .references(thread)
            .raw_header(header("Auto-Submitted", "auto-generated"))
            .raw_header(header("X-Countersign-Interrupt", notice.interrupt.as_str()))
            .multipart(alternatives)
            .map_err(|error| permanent(format!("the mail could not be composed: {error}")))
    }

    fn subject(&self) -> String {
        let title = one_line(&self.notice.request.title, SUBJECT);
        if title.is_empty() { self.heading().to_owned() } else { title }
    }

    /// The same for every attempt, another one for another revision, person
    /// or occasion (R23).
    fn identity(&self) -> String {
        let notice = self.notice;
        let mut hash = Sha256::new();
        let revision = notice.revision.to_string();
        for part in
            [notice.occasion.as_str(), notice.interrupt.as_str(), &revision, notice.recipient.principal.as_str()]
        {
            hash.update(part);
            hash.update([0]);
        }
        hex::encode(&hash.finalize()[..20])
    }

    fn heading(&self) -> &'static str {
        match (self.notice.occasion, &self.notice.request.question) {
            (Occasion::Asked, Question::Approval {}) => "Your decision is needed",
            (Occasion::Asked, Question::Unlock { .. }) => "Your go-ahead is needed",
            (Occasion::Asked, _) => "Your answer is needed",
        }
    }

    fn action(&self) -> &'static str {
        match &self.notice.request.question {
            Question::Approval {} => "Review and decide",
            Question::Unlock { .. } => "Review and go ahead",
            _ => "Review and answer",
        }
    }

    fn bodies(&self, to: &Mailbox) -> Result<(String, String), DeliveryError> {
        let notice = self.notice;
        let request = &notice.request;
        let details: Vec<_> = request
            .details
            .iter()
            .map(|detail| Row { label: one_line(&detail.label, usize::MAX), value: detail.value.clone() })
            .collect();
        let title = one_line(&request.title, usize::MAX);
        let choices = choices(&request.question);
        let outcomes = outcomes(notice);
        let deadline = notice.deadline.map(readable);
        let asked_at = readable(notice.asked_at);
        let asked_by = match &request.requested_by {
            Some(who) => format!("Asked by {who}, in the flow {}, on {asked_at}.", notice.graph),
            None => format!("Asked by the flow {} on {asked_at}.", notice.graph),
        };
        let trail = format!(
            "Flow {}, case {}, at {}, request {}, revision {}.",
            notice.graph, notice.thread, notice.printed_address, notice.interrupt, notice.revision
        );
        let name = to.name.as_deref().unwrap_or(to.email.as_ref());
        let message = request.message.as_deref().filter(|text| !text.trim().is_empty());
        let expires = readable(self.expires_at);
        macro_rules! fill {
            ($template:ident) => {
                $template {
                    heading: self.heading(),
                    title: &title,
                    message,
                    asked_by: &asked_by,
                    details: &details,
                    choices: &choices,
                    outcomes: &outcomes,
                    deadline: deadline.as_deref(),
                    action: self.action(),
                    link: self.link,
                    expires: &expires,
                    name,
                    trail: &trail,
                }
                .render()
                .map_err(|error| permanent(format!("the mail could not be composed: {error}")))?
            };
        }
        Ok((fill!(Text), fill!(Html)))
    }
}

fn choices(question: &Question) -> Vec<String> {
    match question {
        Question::Select { options } | Question::MultiSelect { options } => options,
        Question::Modal { actions } => actions,
        _ => return Vec::new(),
    }
    .iter()
    .map(|choice| one_line(&choice.label, usize::MAX))
    .collect()
}

/// What follows from yes, no and silence: the flow's words, or what the
/// engine does without any.
fn outcomes(notice: &Notice) -> Vec<Row> {
    let given = &notice.request.outcomes;
    let mut rows = Vec::new();
    let mut row = |label: &str, given: &Option<String>, usual: &str| {
        let value = given.clone().unwrap_or_else(|| usual.to_owned());
        rows.push(Row { label: label.to_owned(), value });
    };
    if let Question::Approval {} = notice.request.question {
        row("On yes", &given.yes, "the flow goes on as approved");
        row("On no", &given.no, "the flow goes on as rejected");
    } else {
        row("On an answer", &given.yes, "the flow goes on with it");
        if given.no.is_some() {
            row("On a refusal", &given.no, "");
        }
    }
    let usual = match notice.deadline {
        Some(_) => "the request stops waiting at the deadline",
        None => "the request keeps waiting",
    };
    row("Without an answer", &given.silence, usual);
    if notice.request.policy.need > 1 {
        let votes = format!("{} equal answers from different people", notice.request.policy.need);
        row("To decide it takes", &None, &votes);
    }
    rows
}

/// A part whose lines are short whatever the text is.
fn part(kind: ContentType, text: String) -> Result<SinglePart, DeliveryError> {
    let body = Body::new_with_encoding(text, ContentTransferEncoding::QuotedPrintable)
        .map_err(|_| permanent("the mail could not be encoded"))?;
    Ok(SinglePart::builder().header(kind).body(body))
}

/// The subject, encoded by RFC 2047 where it is not plain ASCII, and also
/// where it merely looks encoded: a mail program would show `=?utf-8?q?no?=`
/// as something else than was asked.
fn subject(text: String) -> HeaderValue {
    let name = HeaderName::new_from_ascii_str("Subject");
    if !text.contains("=?") {
        return HeaderValue::new(name, text);
    }
    let mut words: Vec<String> = Vec::new();
    for c in text.chars() {
        // 45 octets are 60 characters of base64; a word may have 75 in all.
        match words.last_mut() {
            Some(word) if word.len() + c.len_utf8() <= 45 => word.push(c),
            _ => words.push(c.to_string()),
        }
    }
    let words = words.iter().map(|word| format!("=?utf-8?b?{}?=", STANDARD.encode(word)));
    let encoded = words.collect::<Vec<_>>().join("\r\n ");
    HeaderValue::dangerous_new_pre_encoded(name, text, encoded)
}

fn header(name: &'static str, value: &str) -> HeaderValue {
    HeaderValue::new(HeaderName::new_from_ascii_str(name), value.to_owned())
}

/// The text on one line without control characters, at most `longest`
/// characters of it.
pub(super) fn one_line(text: &str, longest: usize) -> String {
    let spaced: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = spaced.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= longest {
        return line;
    }
    line.chars().take(longest.saturating_sub(1)).chain(['…']).collect()
}
