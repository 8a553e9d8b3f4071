//! Flat forms by JSON Schema: the subset that a page can show as fields.
//!
//! An object whose properties are strings (with `enum`, `format: date`,
//! `maxLength`), integers, numbers or booleans, with `required` and `default`.
//! A schema
//! outside this subset is refused when the question is asked, not when the
//! answer arrives.

use serde_json::{Map, Value};

use crate::fault::Fault;

/// What a field takes.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldKind {
    /// Text, up to a length.
    Text {
        /// Longest text accepted, in characters.
        max_length: Option<u64>,
    },
    /// A calendar date, `YYYY-MM-DD`.
    Date,
    /// One of these texts.
    Choice(Vec<String>),
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// Yes or no.
    Boolean,
}

/// One field of a form.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The member of the answer.
    pub name: String,
    /// What people read: the schema's `title`, or the name.
    pub label: String,
    /// A hint under the field.
    pub description: Option<String>,
    /// Whether it must be filled in.
    pub required: bool,
    /// What it takes.
    pub kind: FieldKind,
    /// What stands in it before anybody changes it: the schema's `default`,
    /// which is for people to mend and so need not be a good answer. It is no
    /// answer by itself: a field that is left out is left out.
    pub default: Option<Value>,
}

/// Why a schema is not a flat form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the form's schema is not a flat form: {0}")]
pub struct FormFault(String);

/// Reads the fields of a flat form, in the schema's order.
///
/// # Errors
/// The schema is outside the subset; the message names the property.
pub fn fields(schema: &Value) -> Result<Vec<Field>, FormFault> {
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(FormFault("`type` must be `object`".into()));
    }
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return Err(FormFault("`properties` must be an object".into()));
    };
    let required: Vec<&str> = match schema.get("required") {
        None => Vec::new(),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        Some(_) => return Err(FormFault("`required` must be a list of names".into())),
    };
    if let Some(unknown) = required.iter().find(|name| !properties.contains_key(**name)) {
        return Err(FormFault(format!("`required` names `{unknown}`, which is no property")));
    }
    properties.iter().map(|(name, property)| field(name, property, required.contains(&name.as_str()))).collect()
}

fn field(name: &str, property: &Value, required: bool) -> Result<Field, FormFault> {
    let text = |member: &str| property.get(member).and_then(Value::as_str).map(str::to_owned);
    let kind = match property.get("type").and_then(Value::as_str) {
        Some("string") => match property.get("enum") {
            Some(Value::Array(options)) => FieldKind::Choice(
                options
                    .iter()
                    .map(|option| option.as_str().map(str::to_owned))
                    .collect::<Option<_>>()
                    .ok_or_else(|| FormFault(format!("`{name}`: `enum` must list strings")))?,
            ),
            Some(_) => return Err(FormFault(format!("`{name}`: `enum` must be a list"))),
            None if property.get("format").and_then(Value::as_str) == Some("date") => FieldKind::Date,
            None => FieldKind::Text { max_length: property.get("maxLength").and_then(Value::as_u64) },
        },
        Some("integer") => FieldKind::Integer,
        Some("number") => FieldKind::Number,
        Some("boolean") => FieldKind::Boolean,
        other => {
            return Err(FormFault(format!(
                "`{name}` has type {}; a flat form has string, integer, number and boolean",
                other.map_or_else(|| "none".to_owned(), |t| format!("`{t}`")),
            )));
        }
    };
    Ok(Field {
        name: name.to_owned(),
        label: text("title").unwrap_or_else(|| name.to_owned()),
        description: text("description"),
        required,
        kind,
        default: property.get("default").filter(|default| !default.is_null()).cloned(),
    })
}

pub(super) fn validate(schema: &Value, answer: &Map<String, Value>) -> Result<Value, Vec<Fault>> {
    let fields = fields(schema).map_err(|fault| vec![Fault::at("", fault.to_string())])?;
    let mut faults = Vec::new();
    let mut valid = Map::new();
    for name in answer.keys().filter(|name| !fields.iter().any(|field| field.name == **name)) {
        faults.push(Fault::at_member(name, "the form has no such field"));
    }
    for field in &fields {
        match answer.get(&field.name) {
            None | Some(Value::Null) if field.required => {
                faults.push(Fault::at_member(&field.name, "must be filled in"));
            }
            None | Some(Value::Null) => {}
            Some(value) => match check(&field.kind, value) {
                Ok(()) => {
                    valid.insert(field.name.clone(), value.clone());
                }
                Err(message) => faults.push(Fault::at_member(&field.name, message)),
            },
        }
    }
    if faults.is_empty() { Ok(Value::Object(valid)) } else { Err(faults) }
}

fn check(kind: &FieldKind, value: &Value) -> Result<(), String> {
    let fits = match kind {
        FieldKind::Text { max_length } => match (value.as_str(), max_length) {
            (Some(text), Some(max)) if text.chars().count() as u64 > *max => {
                return Err(format!("longer than {max} characters"));
            }
            (text, _) => text.is_some(),
        },
        FieldKind::Date => value.as_str().is_some_and(is_date),
        FieldKind::Choice(options) => value.as_str().is_some_and(|text| options.iter().any(|o| o == text)),
        FieldKind::Integer => value.is_i64() || value.is_u64(),
        FieldKind::Number => value.is_number(),
        FieldKind::Boolean => value.is_boolean(),
    };
    if fits {
        return Ok(());
    }
    Err(match kind {
        FieldKind::Text { .. } => "expected text".into(),
        FieldKind::Date => "expected a date, YYYY-MM-DD".into(),
        FieldKind::Choice(options) => format!("expected one of: {}", options.join(", ")),
        FieldKind::Integer => "expected a whole number".into(),
        FieldKind::Number => "expected a number".into(),
        FieldKind::Boolean => "expected true or false".into(),
    })
}

/// A date of the Gregorian calendar (RFC 3339 `full-date`).
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    let number = |range: std::ops::Range<usize>| text.get(range).and_then(|t| t.parse::<u32>().ok());
    let (Some(year), Some(month), Some(day)) = (number(0..4), number(5..7), number(8..10)) else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return false,
    };
    (1..=last).contains(&day)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "required": ["iban", "amount"],
            "properties": {
                "iban": {"type": "string", "title": "IBAN", "maxLength": 34},
                "amount": {"type": "number"},
                "due": {"type": "string", "format": "date"},
                "speed": {"type": "string", "enum": ["normal", "instant"]},
                "urgent": {"type": "boolean"}
            }
        })
    }

    #[test]
    fn a_good_form_passes_and_blanks_are_left_out() {
        let answer = json!({"iban": "DE02", "amount": 12.5, "due": "2028-02-29", "speed": "instant", "urgent": null});
        let valid = validate(&schema(), answer.as_object().expect("object")).expect("valid");
        assert_eq!(valid, json!({"iban": "DE02", "amount": 12.5, "due": "2028-02-29", "speed": "instant"}));
    }

    #[test]
    fn every_bad_field_is_named() {
        let answer = json!({"amount": "12", "due": "2027-02-29", "speed": "slow", "urgent": 1, "x": 1});
        let faults = validate(&schema(), answer.as_object().expect("object")).expect_err("faults");
        let pointers: std::collections::BTreeSet<_> = faults.iter().map(|f| f.pointer.as_str()).collect();
        assert_eq!(pointers, ["/amount", "/due", "/iban", "/speed", "/urgent", "/x"].into());
    }

    #[test]
    fn nested_schemas_are_refused_when_asked() {
        let nested = json!({"type": "object", "properties": {"a": {"type": "object"}}});
        assert!(fields(&nested).is_err());
        assert!(fields(&json!({"type": "object", "properties": {}, "required": ["a"]})).is_err());
    }
}
