//! Checking answers before they count, and reading them after.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Question, form};
use crate::fault::Fault;
use crate::principal::Principal;
use crate::time::Timestamp;

impl Question {
    /// Checks an answer and returns it in its validated form (no unknown
    /// members, exact types), which is what is recorded and hashed.
    ///
    /// # Errors
    /// Every fault found, not only the first.
    pub fn validate(&self, answer: &Value) -> Result<Value, Vec<Fault>> {
        let Value::Object(map) = answer else {
            return Err(vec![Fault::at("", format!("expected an object such as {}", self.example()))]);
        };
        let mut faults = Vec::new();
        let allowed: &[&str] = match self {
            Self::Input { .. } | Self::Select { .. } => &["value"],
            Self::MultiSelect { .. } => &["values"],
            Self::Modal { .. } => &["action"],
            Self::Approval {} => &["approved", "reason"],
            Self::Unlock { .. } => &[],
            Self::Form { schema } => return form::validate(schema, map),
        };
        for name in map.keys().filter(|name| !allowed.contains(&name.as_str())) {
            faults.push(Fault::at_member(name, format!("unknown member; the answer looks like {}", self.example())));
        }
        match self {
            Self::Input { .. } => {
                string(map, "value", &mut faults);
            }
            Self::Select { options } => {
                if let Some(value) = string(map, "value", &mut faults) {
                    one_of("/value", value, options, &mut faults);
                }
            }
            Self::Modal { actions } => {
                if let Some(value) = string(map, "action", &mut faults) {
                    one_of("/action", value, actions, &mut faults);
                }
            }
            Self::MultiSelect { options } => match map.get("values") {
                Some(Value::Array(values)) => {
                    for (i, value) in values.iter().enumerate() {
                        match value.as_str() {
                            Some(text) => one_of(&format!("/values/{i}"), text, options, &mut faults),
                            None => faults.push(Fault::at(format!("/values/{i}"), "expected a string")),
                        }
                        if values[..i].contains(value) {
                            faults.push(Fault::at(format!("/values/{i}"), "chosen twice"));
                        }
                    }
                }
                _ => faults.push(Fault::at("/values", "expected a list of strings")),
            },
            Self::Approval {} => {
                if !map.get("approved").is_some_and(Value::is_boolean) {
                    faults.push(Fault::at("/approved", "expected true or false"));
                }
                if !matches!(map.get("reason"), None | Some(Value::Null | Value::String(_))) {
                    faults.push(Fault::at("/reason", "expected a string"));
                }
            }
            Self::Unlock { .. } | Self::Form { .. } => {}
        }
        if faults.is_empty() {
            let members = map.iter().filter(|(_, v)| !v.is_null());
            Ok(Value::Object(members.map(|(k, v)| (k.clone(), v.clone())).collect()))
        } else {
            Err(faults)
        }
    }

    /// What an answer looks like, for messages.
    #[must_use]
    pub fn example(&self) -> &'static str {
        match self {
            Self::Input { .. } | Self::Select { .. } => r#"{"value": "…"}"#,
            Self::MultiSelect { .. } => r#"{"values": ["…"]}"#,
            Self::Modal { .. } => r#"{"action": "…"}"#,
            Self::Approval {} => r#"{"approved": true, "reason": "…"}"#,
            Self::Unlock { .. } => "{}",
            Self::Form { .. } => r#"{"<field>": …}"#,
        }
    }
}

fn string<'a>(map: &'a Map<String, Value>, name: &str, faults: &mut Vec<Fault>) -> Option<&'a str> {
    let value = map.get(name).and_then(Value::as_str);
    if value.is_none() {
        faults.push(Fault::at(format!("/{name}"), "expected a string"));
    }
    value
}

fn one_of(pointer: &str, value: &str, choices: &[super::Choice], faults: &mut Vec<Fault>) {
    if !choices.iter().any(|choice| choice.value == value) {
        let known: Vec<_> = choices.iter().map(|choice| choice.value.as_str()).collect();
        faults.push(Fault::at(pointer, format!("not one of: {}", known.join(", "))));
    }
}

/// An answer as it reaches the graph, with who gave it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// The answer's data; `None` for a bare answer (K5).
    pub value: Option<Value>,
    /// Whose votes it rests on.
    #[serde(default)]
    pub by: Vec<Principal>,
    /// When it was accepted.
    pub at: Timestamp,
}

/// A type that a body receives for an answer.
pub trait FromAnswer: Sized {
    /// Reads the type from a validated answer.
    ///
    /// # Errors
    /// The answer has another shape than the type wants.
    fn from_answer(answered: &Answered) -> Result<Self, serde_json::Error>;
}

/// The outcome of an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Yes or no.
    pub approved: bool,
    /// Why, in the approver's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who decided.
    #[serde(default)]
    pub by: Vec<Principal>,
}

impl FromAnswer for Decision {
    fn from_answer(answered: &Answered) -> Result<Self, serde_json::Error> {
        let mut decision = Self::deserialize(answered.value.as_ref().unwrap_or(&Value::Null))?;
        decision.by.clone_from(&answered.by);
        Ok(decision)
    }
}

#[derive(Deserialize)]
struct OneValue {
    value: String,
}

impl FromAnswer for String {
    fn from_answer(answered: &Answered) -> Result<Self, serde_json::Error> {
        let value = answered.value.as_ref().unwrap_or(&Value::Null);
        if let Some(action) = value.get("action").and_then(Value::as_str) {
            return Ok(action.to_owned());
        }
        OneValue::deserialize(value).map(|one| one.value)
    }
}

impl FromAnswer for Vec<String> {
    fn from_answer(answered: &Answered) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Values {
            values: Vec<String>,
        }
        Values::deserialize(answered.value.as_ref().unwrap_or(&Value::Null)).map(|v| v.values)
    }
}

impl FromAnswer for () {
    fn from_answer(_: &Answered) -> Result<Self, serde_json::Error> {
        Ok(())
    }
}

impl FromAnswer for Value {
    fn from_answer(answered: &Answered) -> Result<Self, serde_json::Error> {
        Ok(answered.value.clone().unwrap_or(Value::Null))
    }
}

/// The content of a `form`, read into a struct of the flow's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Filled<T>(pub T);

impl<T: serde::de::DeserializeOwned> FromAnswer for Filled<T> {
    fn from_answer(answered: &Answered) -> Result<Self, serde_json::Error> {
        T::deserialize(answered.value.as_ref().unwrap_or(&Value::Null)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::question::Choice;

    fn options() -> Vec<Choice> {
        vec![Choice::from("red"), Choice::from(("blue", "Blue"))]
    }

    #[test]
    fn each_kind_takes_its_own_shape_and_nothing_else() {
        let cases = [
            (Question::Input { placeholder: None }, json!({"value": ""}), json!({"value": 1})),
            (Question::Select { options: options() }, json!({"value": "red"}), json!({"value": "green"})),
            (
                Question::MultiSelect { options: options() },
                json!({"values": ["blue"]}),
                json!({"values": ["blue", "blue"]}),
            ),
            (Question::Modal { actions: options() }, json!({"action": "blue"}), json!({"value": "blue"})),
            (Question::Approval {}, json!({"approved": false, "reason": "no"}), json!({"approved": "false"})),
            (Question::Unlock { key: "vault".into() }, json!({}), json!({"value": 1})),
        ];
        for (question, good, bad) in cases {
            assert_eq!(question.validate(&good), Ok(good.clone()), "{question:?}");
            assert!(question.validate(&bad).is_err(), "{question:?}");
            assert!(question.validate(&json!(true)).is_err(), "{question:?}");
        }
    }

    #[test]
    fn all_faults_are_reported_at_once() {
        let faults =
            Question::Approval {}.validate(&json!({"approved": 1, "reason": 2, "extra": 3})).expect_err("three faults");
        let pointers: Vec<_> = faults.iter().map(|f| f.pointer.as_str()).collect();
        assert_eq!(pointers, ["/extra", "/approved", "/reason"]);
    }

    #[test]
    fn a_null_reason_is_no_reason() {
        assert_eq!(
            Question::Approval {}.validate(&json!({"approved": true, "reason": null})),
            Ok(json!({"approved": true}))
        );
    }
}
