//! Whether what is seen is what was recorded (sections 5 and 6 of the format).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use countersign_kernel::canonical::canonical_text;
use serde_json::{Value, json};

use super::history::Listed;
use super::model::{Class, Expect, ExpectedEntry, ExpectedError, ExpectedQuestion, Status};
use super::subject::{Question, View};

/// What an action gave and what can be seen after it.
#[derive(Debug, Default)]
pub struct Seen {
    /// How the request ended.
    pub error: Option<SeenError>,
    /// The thread; or the record of a checkpoint, when that was read.
    pub view: View,
    /// How often each body was entered so far.
    pub visits: BTreeMap<String, u32>,
    /// The checkpoints, when they were asked for.
    pub history: Vec<Listed>,
}

/// How a request ended, when it did not end well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenError {
    /// Its class.
    pub class: Class,
    /// Path of the body that failed.
    pub node: Option<String>,
    /// What it said.
    pub message: String,
}

impl SeenError {
    /// An error without a node.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, node: None, message: message.into() }
    }
}

/// One member that is not as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Which member.
    pub member: String,
    /// What was recorded.
    pub expected: String,
    /// What came.
    pub got: String,
}

impl Difference {
    fn new(member: impl Into<String>, expected: &impl ToString, got: &impl ToString) -> Self {
        Self { member: member.into(), expected: expected.to_string(), got: got.to_string() }
    }
}

/// The differences of one action, for people.
#[must_use]
pub fn describe(number: usize, action: &str, differences: &[Difference]) -> String {
    let mut text = format!("action {number}: {action}");
    for Difference { member, expected, got } in differences {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {member}\n    expected {expected}\n    got      {got}");
    }
    text
}

/// Everything in which `seen` is not as recorded.
#[must_use]
pub fn compare(expect: &Expect, seen: &Seen, any_error_node: bool) -> Vec<Difference> {
    let mut found = Vec::new();
    if let Some(expected) = &expect.error {
        error(expected.as_ref(), seen.error.as_ref(), any_error_node, &mut found);
    }
    if let Some(expected) = &expect.visits {
        visits(expected, &seen.visits, &mut found);
    }
    if let Some(expected) = &expect.history {
        history(expected, &seen.history, &mut found);
    }
    // The reference could not show its state: nothing to compare with.
    if expect.state_error.is_some() {
        return found;
    }
    let mut equal = |member: &str, expected: Value, got: Value| {
        if expected != got {
            found.push(Difference::new(member, &expected, &got));
        }
    };
    if let Some(values) = &expect.values {
        equal("values", json!(values), json!(seen.view.root.values));
    }
    if let Some(next) = &expect.next {
        equal("next", json!(next), json!(seen.view.root.next));
    }
    if let Some(expected) = &expect.interrupts {
        let got = without_stale(expected, &seen.view.questions);
        if let Some(status) = expect.status {
            let got = status_of(&seen.view, got.len());
            equal("status", json!(name(status)), json!(name(got)));
        }
        equal("interrupts", questions(expected.iter().filter(|q| !q.stale).map(|q| (&q.path, &q.payload))), {
            questions(got.iter().map(|q| (&q.path, &q.payload)))
        });
        let frames = |path: &str, values: &serde_json::Map<String, Value>, next: &[String]| {
            (path.to_owned(), json!({"values": values, "next": next}))
        };
        let expected = expect.subgraphs.iter().map(|(path, frame)| frames(path, &frame.values, &frame.next));
        let got = seen.view.frames.iter().map(|(path, frame)| frames(path, &frame.values, &frame.next));
        equal("subgraphs", Value::Object(expected.collect()), Value::Object(got.collect()));
    }
    found
}

/// How a thread stands when `open` of its questions count.
#[must_use]
pub fn status_of(view: &View, open: usize) -> Status {
    if view.checkpoint.is_none() {
        Status::Empty
    } else if open > 0 {
        Status::Interrupted
    } else if view.root.next.is_empty() {
        Status::Done
    } else {
        Status::Pending
    }
}

fn name(status: Status) -> &'static str {
    match status {
        Status::Empty => "empty",
        Status::Interrupted => "interrupted",
        Status::Pending => "pending",
        Status::Done => "done",
    }
}

/// Ours without those that only the reference's stale entries explain.
fn without_stale<'a>(expected: &[ExpectedQuestion], got: &'a [Question]) -> Vec<&'a Question> {
    let mut left: Vec<&Question> = got.iter().collect();
    for stale in expected.iter().filter(|question| question.stale) {
        let same = |path: &[String], payload: &Value| path == stale.path && *payload == stale.payload;
        let asked = expected.iter().filter(|q| !q.stale && same(&q.path, &q.payload)).count();
        let shown = left.iter().filter(|q| same(&q.path, &q.payload)).count();
        if shown > asked
            && let Some(at) = left.iter().position(|q| same(&q.path, &q.payload))
        {
            left.remove(at);
        }
    }
    left
}

/// Questions as the format sorts them: by path and canonical payload.
fn questions<'a>(questions: impl Iterator<Item = (&'a Vec<String>, &'a Value)>) -> Value {
    let mut questions: Vec<_> = questions.map(|(path, payload)| (path, canonical_text(payload), payload)).collect();
    questions.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    questions.into_iter().map(|(path, _, payload)| json!({"path": path, "payload": payload})).collect()
}

fn error(expected: Option<&ExpectedError>, got: Option<&SeenError>, any_node: bool, found: &mut Vec<Difference>) {
    let differs = match (expected, got) {
        (None, None) => false,
        (Some(expected), Some(got)) => {
            let other = expected.class == Class::Other;
            let node = any_node || expected.node.is_none() || expected.node == got.node;
            let message = expected.message.as_ref().is_none_or(|message| *message == got.message);
            !(other || (expected.class == got.class && node && message))
        }
        _ => true,
    };
    if differs {
        let show = |class: Class, node: &Option<String>, message: Option<&str>| {
            let mut text = format!("{class:?}");
            if let Some(node) = node {
                text += &format!(" at {node}");
            }
            if let Some(message) = message {
                text += &format!(": {message}");
            }
            text
        };
        let expected = expected.map(|e| show(e.class, &e.node, e.message.as_deref()));
        let got = got.map(|e| show(e.class, &e.node, Some(&e.message)));
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "no error".to_owned());
        found.push(Difference::new("error", &or_none(expected), &or_none(got)));
    }
}

fn visits(expected: &BTreeMap<String, (u32, u32)>, got: &BTreeMap<String, u32>, found: &mut Vec<Difference>) {
    for (body, &(least, most)) in expected {
        let count = got.get(body).copied().unwrap_or(0);
        if !(least..=most).contains(&count) {
            found.push(Difference::new(format!("visits of {body}"), &format!("{least} to {most}"), &count));
        }
    }
    for (body, count) in got.iter().filter(|(body, _)| !expected.contains_key(*body)) {
        found.push(Difference::new(format!("visits of {body}"), &"never entered", count));
    }
}

fn history(expected: &[ExpectedEntry], got: &[Listed], found: &mut Vec<Difference>) {
    let ours = |i: usize| got.get(i).map(|e| json!({"next": e.next, "values": e.values, "parent": e.parent}));
    let theirs = |i: usize| expected.get(i).map(|e| json!({"next": e.next, "values": e.values, "parent": e.parent}));
    let none = || "no entry".to_owned();
    for i in 0..expected.len().max(got.len()) {
        let (theirs, ours) = (theirs(i), ours(i));
        if theirs != ours {
            let text = |value: Option<Value>| value.map_or_else(none, |value| value.to_string());
            found.push(Difference::new(format!("history, entry {i}"), &text(theirs), &text(ours)));
        }
    }
}
