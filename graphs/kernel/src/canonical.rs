//! One spelling for equal values, and the hashes over it (R24).

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The canonical text of a value: object members sorted by name, no blanks.
///
/// Equal JSON values give equal texts, whatever order a client wrote the
/// members in. Numbers keep the spelling `serde_json` gives them; money is a
/// string and so never passes through a float.
#[must_use]
pub fn canonical_text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

/// SHA-256 over the canonical text, as 64 hex digits.
#[must_use]
pub fn content_hash(value: &Value) -> String {
    hex::encode(Sha256::digest(canonical_text(value)))
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (i, (name, member)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write(member, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn member_order_does_not_change_the_hash_but_types_do() {
        assert_eq!(content_hash(&json!({"a": 1, "b": [2]})), content_hash(&json!({"b": [2], "a": 1})));
        assert_ne!(content_hash(&json!({"a": 1})), content_hash(&json!({"a": "1"})));
        assert_eq!(canonical_text(&json!({"b": "ü", "a": null})), r#"{"a":null,"b":"ü"}"#);
    }
}
