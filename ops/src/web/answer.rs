//! From a posted form to an answer.

use countersign_kernel::fault::Fault;
use countersign_kernel::question::{Field, FieldKind, Question, fields};
use serde_json::{Map, Number, Value, json};

/// Prefix of the names of a `form`'s fields, so that no schema can name one of
/// the page's own.
pub(super) const FIELD: &str = "field.";

/// The fields that were posted, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Posted(Vec<(String, String)>);

impl Posted {
    /// Line ends become those of the rest of the world.
    pub(super) fn new(fields: Vec<(String, String)>) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name, value.replace("\r\n", "\n"))).collect())
    }

    /// The first value of this name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Every value of this name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of this name, if there is anything in it.
    fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.trim().is_empty())
    }
}

/// The answer that was posted, valid for the question.
///
/// # Errors
/// Every fault, with a pointer into the answer; see [`pointer`].
pub(super) fn build(question: &Question, posted: &Posted, bytes_max: u64) -> Result<Value, Vec<Fault>> {
    let answer = match question {
        Question::Approval {} => approval(posted)?,
        Question::Input { .. } => match posted.filled("value") {
            Some(value) => json!({"value": value}),
            None => return Err(vec![Fault::at("/value", "write an answer")]),
        },
        Question::Select { .. } => match posted.get("value") {
            Some(value) => json!({"value": value}),
            None => return Err(vec![Fault::at("/value", "choose one of these")]),
        },
        Question::MultiSelect { .. } => json!({"values": posted.all("values").collect::<Vec<_>>()}),
        Question::Modal { .. } => match posted.get("action") {
            Some(action) => json!({"action": action}),
            None => return Err(vec![Fault::at("/action", "use one of the buttons")]),
        },
        Question::Unlock { .. } => json!({}),
        Question::Form { schema } => {
            let fields = fields(schema).map_err(|fault| vec![Fault::at("", fault.to_string())])?;
            Value::Object(fields.iter().filter_map(|field| member(field, posted)).collect::<Map<_, _>>())
        }
    };
    let answer = question.validate(&answer)?;
    if answer.to_string().len() as u64 > bytes_max {
        return Err(vec![Fault::at("", format!("the answer is longer than {bytes_max} bytes; shorten it"))]);
    }
    Ok(answer)
}

fn approval(posted: &Posted) -> Result<Value, Vec<Fault>> {
    let approved = match posted.get("approved") {
        Some("true") => true,
        Some("false") => false,
        _ => return Err(vec![Fault::at("/approved", "use one of the buttons: approve or reject")]),
    };
    let mut answer = json!({"approved": approved});
    if let Some(reason) = posted.filled("reason") {
        answer["reason"] = reason.trim().into();
    }
    Ok(answer)
}

/// One member of a form's answer; nothing for a field that was left blank.
/// What does not read as the field's kind stays text, and the question says
/// what is wrong with it.
fn member(field: &Field, posted: &Posted) -> Option<(String, Value)> {
    let name = format!("{FIELD}{}", field.name);
    let blank_is_a_choice = matches!(&field.kind, FieldKind::Choice(options) if options.iter().any(String::is_empty));
    let text = if blank_is_a_choice { posted.get(&name) } else { posted.filled(&name) }?;
    let value = match &field.kind {
        FieldKind::Text { .. } | FieldKind::Choice(_) => text.into(),
        FieldKind::Date => text.trim().into(),
        FieldKind::Integer => whole(text.trim()).map_or_else(|| text.into(), Value::Number),
        FieldKind::Number => number(text.trim()).map_or_else(|| text.into(), Value::Number),
        FieldKind::Boolean => match text {
            "true" => true.into(),
            "false" => false.into(),
            other => other.into(),
        },
    };
    Some((field.name.clone(), value))
}

fn whole(text: &str) -> Option<Number> {
    text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from)).ok()
}

fn number(text: &str) -> Option<Number> {
    whole(text).or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64))
}

/// Whether a fault is about this member of the answer.
pub(super) fn concerns(fault: &Fault, member: &str) -> bool {
    let escaped = Fault::at_member(member, "").pointer;
    let below = |pointer: &str| {
        fault.pointer.strip_prefix(pointer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    below(&escaped) || fault.pointer.strip_prefix('/') == Some(member)
}

#[cfg(test)]
mod tests {
    use countersign_kernel::question::Choice;

    use super::*;

    fn built(question: &Question, fields: &[(&str, &str)]) -> Result<Value, Vec<String>> {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        build(question, &Posted::new(fields), 4096)
            .map_err(|faults| faults.into_iter().map(|fault| fault.pointer).collect())
    }

    fn colours() -> Vec<Choice> {
        vec![Choice::from("red"), Choice::from(("blue", "Blue"))]
    }

    #[test]
    fn approvals_take_a_button_and_perhaps_a_reason() {
        let question = Question::Approval {};
        assert_eq!(built(&question, &[("approved", "true"), ("reason", "  ")]), Ok(json!({"approved": true})));
        assert_eq!(
            built(&question, &[("reason", " too\r\ndear "), ("approved", "false")]),
            Ok(json!({"approved": false, "reason": "too\ndear"}))
        );
        for bad in [&[][..], &[("approved", "")], &[("approved", "yes")], &[("reason", "x")]] {
            assert_eq!(built(&question, bad), Err(vec!["/approved".to_owned()]), "{bad:?}");
        }
    }

    #[test]
    fn the_other_simple_kinds_take_their_own_field() {
        let input = Question::Input { placeholder: None };
        assert_eq!(built(&input, &[("value", " a b ")]), Ok(json!({"value": " a b "})));
        assert_eq!(built(&input, &[("value", " ")]), Err(vec!["/value".to_owned()]));

        let select = Question::Select { options: colours() };
        assert_eq!(built(&select, &[("value", "blue")]), Ok(json!({"value": "blue"})));
        assert_eq!(built(&select, &[("value", "green")]), Err(vec!["/value".to_owned()]));
        assert_eq!(built(&select, &[]), Err(vec!["/value".to_owned()]));

        let several = Question::MultiSelect { options: colours() };
        assert_eq!(built(&several, &[]), Ok(json!({"values": []})));
        assert_eq!(built(&several, &[("values", "red"), ("values", "blue")]), Ok(json!({"values": ["red", "blue"]})));
        assert_eq!(built(&several, &[("values", "x")]), Err(vec!["/values/0".to_owned()]));

        let modal = Question::Modal { actions: colours() };
        assert_eq!(built(&modal, &[("action", "red")]), Ok(json!({"action": "red"})));
        assert_eq!(built(&modal, &[("value", "red")]), Err(vec!["/action".to_owned()]));

        assert_eq!(built(&Question::Unlock { key: "vault".into() }, &[("value", "1")]), Ok(json!({})));
    }

    #[test]
    fn forms_are_read_by_the_kinds_of_their_fields() {
        let question = Question::Form {
            schema: json!({
                "type": "object",
                "required": ["iban", "count", "sure"],
                "properties": {
                    "iban": {"type": "string", "maxLength": 4},
                    "count": {"type": "integer"},
                    "rate": {"type": "number"},
                    "due": {"type": "string", "format": "date"},
                    "speed": {"type": "string", "enum": ["normal", "instant"]},
                    "sure": {"type": "boolean"},
                    "revision": {"type": "string"}
                }
            }),
        };
        let good = [
            ("field.iban", "DE02"),
            ("field.count", " 18446744073709551615 "),
            ("field.rate", "2.50"),
            ("field.due", "2028-02-29"),
            ("field.speed", ""),
            ("field.sure", "false"),
            ("revision", "1"),
        ];
        assert_eq!(
            built(&question, &good),
            Ok(json!({"iban": "DE02", "count": 18_446_744_073_709_551_615_u64, "rate": 2.5, "due": "2028-02-29",
                "sure": false}))
        );
        let bad = [
            ("field.iban", "DE023"),
            ("field.count", "1.5"),
            ("field.rate", "NaN"),
            ("field.due", "2027-02-29"),
            ("field.speed", "slow"),
            ("field.sure", "on"),
        ];
        let pointers = built(&question, &bad).expect_err("all bad");
        for name in ["/iban", "/count", "/rate", "/due", "/speed", "/sure"] {
            assert!(pointers.iter().any(|pointer| pointer == name), "{name} in {pointers:?}");
        }
        assert_eq!(built(&question, &[]).map_err(|faults| faults.len()), Err(3));
    }

    #[test]
    fn answers_have_a_longest() {
        let long = "x".repeat(5000);
        assert_eq!(built(&Question::Input { placeholder: None }, &[("value", &long)]), Err(vec![String::new()]));
    }

    #[test]
    fn faults_find_their_field() {
        assert!(concerns(&Fault::at("/values/3", ""), "values"));
        assert!(concerns(&Fault::at("/a~1b", ""), "a/b"));
        assert!(concerns(&Fault::at("/a/b", ""), "a/b"));
        assert!(!concerns(&Fault::at("/value", ""), "values"));
        assert!(!concerns(&Fault::at("", ""), "values"));
    }
}
