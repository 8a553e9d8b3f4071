//! Points that wait, in words, with the commands that go on from them.

use countersign_kernel::question::{Field, FieldKind, Question, Request, fields};
use serde_json::{Map, Value, json};

use super::output::plain;
use super::threads::scalar;

/// Whether it waits.
pub(super) fn is_open(point: &Value) -> bool {
    matches!(point["status"].as_str(), None | Some("open" | "pending" | "waiting"))
}

/// Whether it stops its thread until somebody lets it go on.
pub(super) fn is_stop(point: &Value) -> bool {
    matches!(point["kind"].as_str(), Some("break" | "pause"))
}

/// The open stop of a thread, if it has one: what is answered meanwhile runs
/// once the thread goes on.
pub(super) fn stop(thread: &Value) -> Option<&Value> {
    thread["interrupts"].as_array().into_iter().flatten().find(|point| is_open(point) && is_stop(point))
}

/// How to let a thread go on that has stopped.
pub(super) fn release(thread: &str) -> String {
    format!("countersign threads resume {} --continue", plain(thread))
}

/// The commands that go on from an open point, to copy and change.
pub(super) fn ways_on(point: &Value, thread: &str) -> Vec<String> {
    let id = scalar(&point["id"]);
    if is_stop(point) {
        return vec![release(thread)];
    }
    if let Some(example) = example(&point["payload"]) {
        return vec![format!("countersign answer {id} {}", quoted(&example))];
    }
    match point["kind"].as_str() {
        Some("suspend") => {
            let frame = Some(scalar(&point["frame"])).filter(|frame| !frame.is_empty());
            let frame = frame.map(|frame| format!(" --frame {frame}")).unwrap_or_default();
            let thread = plain(thread);
            vec![
                format!("countersign answer {id} null  # or other JSON: the node runs again, and gets it"),
                format!(
                    "countersign threads state edit {thread}{frame} --values '{{\"KEY\": …}}'  # mends the state first"
                ),
            ]
        }
        Some("sleep") => vec![format!("countersign answer {id} null  # ends the sleep early")],
        Some("signal") => {
            let name = scalar(&point["payload"]["signal"]);
            vec![format!("countersign signal {} {} '{{}}'  # or other JSON", plain(thread), plain(&name))]
        }
        Some("interrupt") => vec![format!("countersign answer {id} null  # or other JSON")],
        _ => vec![format!("see countersign interrupts show {id}")],
    }
}

/// JSON as one word of a shell.
fn quoted(value: &Value) -> String {
    format!("'{}'", plain(&value.to_string()).replace('\'', r"'\''"))
}

/// An answer of the right shape.
pub(super) fn example(payload: &Value) -> Option<Value> {
    let first = |list: &str| payload[list][0]["value"].clone();
    match payload["type"].as_str()? {
        "approval" => Some(json!({"approved": true})),
        "unlock" => Some(json!({})),
        "input" => Some(json!({"value": "…"})),
        "select" => Some(json!({"value": first("options")})),
        "multi_select" => Some(json!({"values": [first("options")]})),
        "modal" => Some(json!({"action": first("actions")})),
        "form" => Some(filled(&payload["schema"])),
        _ => None,
    }
}

/// What must be filled in, with the defaults of the schema as far as they are
/// good answers.
fn filled(schema: &Value) -> Value {
    let fields = fields(schema).unwrap_or_default();
    let required = || fields.iter().filter(|field| field.required);
    let with = |value: &dyn Fn(&Field) -> Value| -> Value {
        required().map(|field| (field.name.clone(), value(field))).collect::<Map<_, _>>().into()
    };
    let proposed = with(&|field| field.default.clone().unwrap_or_else(|| sample(&field.kind)));
    match (Question::Form { schema: schema.clone() }).validate(&proposed) {
        Ok(valid) => valid,
        Err(_) => with(&|field| sample(&field.kind)),
    }
}

fn sample(kind: &FieldKind) -> Value {
    match kind {
        FieldKind::Text { .. } => json!("…"),
        FieldKind::Date => json!("2030-12-31"),
        FieldKind::Choice(options) => json!(options.first()),
        FieldKind::Integer => json!(1),
        FieldKind::Number => json!(1.5),
        FieldKind::Boolean => json!(true),
    }
}

/// What a point says, line by line: a request as people read it, anything else
/// as JSON.
pub(super) fn said(payload: &Value) -> Vec<String> {
    if payload.is_null() {
        return Vec::new();
    }
    let Ok(request) = Request::from_payload(payload) else {
        let text = serde_json::to_string_pretty(payload).unwrap_or_default();
        return std::iter::once("says".to_owned())
            .chain(text.lines().map(|line| format!("  {}", plain(line))))
            .collect();
    };
    let mut lines = vec![format!("asks       {}", plain(&request.title))];
    let mut row = |text: String| lines.push(format!("  {}", plain(&text)));
    request.message.iter().flat_map(|message| message.lines()).for_each(|line| row(line.to_owned()));
    request.details.iter().for_each(|detail| row(format!("{}: {}", detail.label, detail.value)));
    let outcomes = &request.outcomes;
    for (label, text) in
        [("then", &outcomes.yes), ("after a no", &outcomes.no), ("without an answer", &outcomes.silence)]
    {
        text.iter().for_each(|text| row(format!("{label}: {text}")));
    }
    match &request.question {
        Question::Select { options } | Question::MultiSelect { options } | Question::Modal { actions: options } => {
            options.iter().for_each(|option| row(format!("`{}`: {}", option.value, option.label)));
        }
        Question::Form { schema } => fields(schema).unwrap_or_default().iter().for_each(|field| row(described(field))),
        Question::Input { .. } | Question::Approval {} | Question::Unlock { .. } => {}
    }
    let names = |names: &mut dyn Iterator<Item = String>| names.collect::<Vec<_>>().join(", ");
    let policy = &request.policy;
    let mut excluded = policy.excluding.iter().map(ToString::to_string);
    lines.push(format!("who        {}", plain(&names(&mut policy.approvers.iter().map(ToString::to_string)))));
    if !policy.excluding.is_empty() {
        lines.push(format!("but not    {}", plain(&names(&mut excluded))));
    }
    lines
}

/// A field of a form in a line.
fn described(field: &Field) -> String {
    let mut takes = match &field.kind {
        FieldKind::Text { max_length: Some(most) } => format!("text of at most {most} characters"),
        FieldKind::Text { max_length: None } => "text".to_owned(),
        FieldKind::Date => "a date, YYYY-MM-DD".to_owned(),
        FieldKind::Choice(options) => format!("one of {}", options.join(", ")),
        FieldKind::Integer => "a whole number".to_owned(),
        FieldKind::Number => "a number".to_owned(),
        FieldKind::Boolean => "true or false".to_owned(),
    };
    if !field.required {
        takes.push_str("; may be left out");
    }
    if let Some(default) = &field.default {
        takes.push_str(&format!("; proposed: {default}"));
    }
    let label = if field.label == field.name { String::new() } else { format!(", “{}”", field.label) };
    format!("`{}`{label}: {takes}", field.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_have_the_shape_of_the_kind() {
        let options = json!([{"value": "red", "label": "Red"}]);
        assert_eq!(example(&json!({"type": "select", "options": options})), Some(json!({"value": "red"})));
        assert_eq!(example(&json!({"type": "multi_select", "options": options})), Some(json!({"values": ["red"]})));
        assert_eq!(example(&json!({"some": "thing"})), None);
    }

    #[test]
    fn the_example_of_a_form_is_taken_by_it() {
        let schema = json!({
            "type": "object",
            "required": ["who", "due", "speed", "copies", "rate", "gift", "iban"],
            "properties": {
                "who": {"type": "string", "default": "Ann O'Hara"},
                "due": {"type": "string", "format": "date"},
                "speed": {"type": "string", "enum": ["normal", "instant"], "default": "instant"},
                "copies": {"type": "integer"}, "rate": {"type": "number"}, "gift": {"type": "boolean"},
                "iban": {"type": "string", "maxLength": 4}, "note": {"type": "string"},
            },
        });
        let answer = example(&json!({"type": "form", "schema": schema})).expect("a form");
        assert_eq!((&answer["who"], &answer["speed"]), (&json!("Ann O'Hara"), &json!("instant")));
        let mended = {
            let mut schema = schema.clone();
            schema["properties"]["iban"]["default"] = json!("far too long");
            schema
        };
        for schema in [schema, mended] {
            let answer = example(&json!({"type": "form", "schema": schema})).expect("a form");
            assert_eq!(Question::Form { schema }.validate(&answer), Ok(answer.clone()));
        }
        let point = json!({"id": "i", "kind": "form", "payload": {"type": "form", "schema": {
            "type": "object", "required": ["who"], "properties": {"who": {"type": "string", "default": "Ann O'Hara"}},
        }}});
        assert_eq!(ways_on(&point, "t"), [r#"countersign answer i '{"who":"Ann O'\''Hara"}'"#]);
    }

    #[test]
    fn every_kind_of_point_says_how_to_go_on() {
        for (kind, said) in [
            ("break", "countersign threads resume t --continue"),
            ("pause", "countersign threads resume t --continue"),
            ("interrupt", "countersign answer i null"),
            ("suspend", "countersign threads state edit t --frame f --values"),
            ("of a later version", "see countersign interrupts show i"),
        ] {
            let ways = ways_on(&json!({"id": "i", "kind": kind, "frame": "f", "payload": {"why": 1}}), "t").join("\n");
            assert!(ways.contains(said), "{kind}: {ways}");
        }
    }

    #[test]
    fn a_request_is_said_in_words_and_anything_else_as_json() {
        let payload = json!({
            "type": "form", "title": "The order", "message": "At\u{1b} last.\nSoon.",
            "details": [{"label": "Shop", "value": "Nord"}],
            "policy": {"approvers": ["role:clerk"], "excluding": ["person:a@b.c"]},
            "schema": {"type": "object", "required": ["street"], "properties": {
                "street": {"type": "string", "title": "Street", "maxLength": 80},
                "speed": {"type": "string", "enum": ["slow", "fast"], "default": "slow"},
            }},
        });
        let text = said(&payload).join("\n");
        for part in [
            "asks       The order",
            "  At  last.",
            "  Shop: Nord",
            "  `street`, “Street”: text of at most 80 characters",
            "  `speed`: one of slow, fast; may be left out; proposed: \"slow\"",
            "who        role:clerk",
            "but not    person:a@b.c",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(said(&json!({"why": "too\u{9b} long"})), ["says", "  {", "    \"why\": \"too  long\"", "  }"]);
        assert!(said(&Value::Null).is_empty());
    }
}
