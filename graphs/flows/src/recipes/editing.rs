//! Editing: the approver corrects named parts of the state before it is used.

use std::sync::Arc;

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Outside;

/// Under each part that may be corrected.
const KEEP: &str = "Leave it empty to keep what is there.";

#[derive(State)]
struct Letter {
    to: String,
    subject: String,
    body: String,
    #[reduce(append)]
    corrections: Vec<Correction>,
    decision: Option<Choice>,
    sent: Option<Value>,
}

/// What the machine had written, and who changed it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Correction {
    part: String,
    before: String,
    by: Vec<Principal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Choice {
    Send,
    Discard,
}

/// The answer: parts that are left out stay as they are.
#[derive(Deserialize)]
struct Checked {
    decision: Choice,
    subject: Option<String>,
    body: Option<String>,
}

/// The flow `letter`. Input: `{to, subject, body}`, as a machine wrote it.
///
/// Use it when a person should improve what a machine made rather than send it
/// back. The schema names the parts that may be edited and carries what is
/// there as each part's `default`; everything else is shown and cannot be
/// changed by an answer.
///
/// Guaranteed: an answer that names another part, or a text that is too long,
/// is refused before it counts (K5, K11). What is sent is what the state holds
/// after the corrections, and the state says what was there before and whose
/// change it is.
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn letter(outside: Arc<dyn Outside>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Letter>::new("letter", 1);
    let check = flow.node("check", check);
    let send = flow.node("send", send);
    flow.start(check);
    flow.after(check, move |letter| if letter.decision == Some(Choice::Send) { send.into() } else { Target::end() });
    flow.end(send);
    flow.provide(outside);
    flow.compile()
}

async fn check(cx: &Context, letter: &Letter) -> NodeResult<LetterUpdate> {
    let schema = json!({
        "type": "object",
        "required": ["decision"],
        "properties": {
            "decision": {"type": "string", "enum": ["send", "discard"], "title": "What to do"},
            "subject": {
                "type": "string", "maxLength": 120, "title": "Subject", "description": KEEP, "default": letter.subject,
            },
            "body": {
                "type": "string", "maxLength": 4000, "title": "Text", "description": KEEP, "default": letter.body,
            },
        },
    });
    let question = form::<Checked>(format!("Send this letter to {}?", letter.to), schema)
        .detail("To", &letter.to)
        .detail("Subject", &letter.subject)
        .message(&letter.body)
        .to(role("clerk"));
    let Signed { answer: Filled(checked), by, .. } = cx.ask_signed(question).await?;

    let mut update = Letter::update().decision(Some(checked.decision));
    if let Some(subject) = checked.subject.filter(|subject| *subject != letter.subject) {
        update = update.corrections(Correction::of("subject", &letter.subject, &by)).subject(subject);
    }
    if let Some(body) = checked.body.filter(|body| *body != letter.body) {
        update = update.corrections(Correction::of("body", &letter.body, &by)).body(body);
    }
    Ok(update)
}

async fn send(cx: &Context, letter: &Letter) -> NodeResult<LetterUpdate> {
    let outside = cx.resource::<Arc<dyn Outside>>()?;
    let arguments = json!({"to": letter.to, "subject": letter.subject, "body": letter.body});
    let sent = cx.step("send", |key| async move { outside.call(key.as_str(), "send_letter", &arguments).await });
    Ok(Letter::update().sent(Some(sent.await?)))
}

impl Correction {
    fn of(part: &str, before: &str, by: &[Principal]) -> Self {
        Self { part: part.to_owned(), before: before.to_owned(), by: by.to_vec() }
    }
}
