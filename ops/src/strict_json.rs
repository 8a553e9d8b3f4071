//! JSON in which no object has a member twice.
//!
//! RFC 8259 leaves open what two members of one name mean, and readers differ:
//! a proxy may check the first amount while we pay the last. So it is refused.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A value whose objects name each member once.
#[derive(Debug, Clone, PartialEq)]
pub struct Strict(pub Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Members).map(Self)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Strict(value))) = members.next_entry::<String, _>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("the member `{name}` is there twice")));
            }
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_good_is_read_as_ever() {
        let text = r#"{"a": [1, -2, 0.5, "x", null, true, {"b": {}}], "c": {"a": 1}}"#;
        let Strict(value) = serde_json::from_str(text).expect("good");
        assert_eq!(value, serde_json::from_str::<Value>(text).expect("good"));
        assert_eq!(value["c"], json!({"a": 1}), "the same name on another level");
    }

    #[test]
    fn a_member_that_is_there_twice_is_named() {
        for text in [r#"{"a": 1, "a": 1}"#, r#"[{"b": {"a": 1, "c": 2, "a": 3}}]"#, r#"{"a": 1, "\u0061": 2}"#] {
            let error = serde_json::from_str::<Strict>(text).expect_err(text);
            assert!(error.to_string().contains("`a` is there twice"), "{error}");
        }
    }
}
