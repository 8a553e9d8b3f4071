//! How writes to a key combine.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::values::Change;

/// How a write changes a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reducer {
    /// The write replaces the value; at most one task may write the key in a
    /// superstep.
    Last,
    /// A list, appended to the end. Stored as what was appended.
    Append,
    /// An integer, added.
    Sum,
    /// An object whose members replace members of the same name.
    Merge,
}

/// Why a write does not fit its reducer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReduceError {
    /// The written value has the wrong JSON type.
    #[error("key `{key}` takes {expected}, not {got}")]
    WrongType {
        /// The key.
        key: String,
        /// What its reducer takes.
        expected: &'static str,
        /// The written value, shortened.
        got: String,
    },
    /// A sum left the range of 64-bit integers.
    #[error("the sum in key `{key}` overflows a 64-bit integer")]
    Overflow {
        /// The key.
        key: String,
    },
}

impl Reducer {
    /// The value of a key that nobody wrote: keys with one are part of the
    /// state from a thread's first checkpoint on.
    #[must_use]
    pub fn neutral(self) -> Option<Value> {
        match self {
            Self::Last => None,
            Self::Append => Some(Value::Array(Vec::new())),
            Self::Sum => Some(Value::from(0)),
            Self::Merge => Some(Value::Object(Map::new())),
        }
    }

    /// What writing `write` over `current` changes.
    ///
    /// # Errors
    /// The write does not have the type that the reducer takes.
    pub fn reduce(self, key: &str, current: Option<&Value>, write: Value) -> Result<Change, ReduceError> {
        let wrong = |expected, got: &Value| ReduceError::WrongType {
            key: key.to_owned(),
            expected,
            got: got.to_string().chars().take(60).collect(),
        };
        match (self, write) {
            (Self::Last, value) => Ok(Change::Set(value)),
            (Self::Append, Value::Array(items)) => Ok(Change::Appended(items)),
            (Self::Append, other) => Err(wrong("a list to append", &other)),
            (Self::Sum, write) => {
                let Some(add) = write.as_i64() else {
                    return Err(wrong("an integer to add", &write));
                };
                let sum = current.and_then(Value::as_i64).unwrap_or(0).checked_add(add);
                sum.map(|sum| Change::Set(sum.into())).ok_or_else(|| ReduceError::Overflow { key: key.to_owned() })
            }
            (Self::Merge, Value::Object(members)) => {
                let mut merged = current.and_then(Value::as_object).cloned().unwrap_or_default();
                merged.extend(members);
                Ok(Change::Set(Value::Object(merged)))
            }
            (Self::Merge, other) => Err(wrong("an object to merge", &other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_reducer_combines_in_its_way() {
        let reduce = |reducer: Reducer, current: Value, write: Value| reducer.reduce("k", Some(&current), write);
        assert_eq!(reduce(Reducer::Last, json!(1), json!(null)), Ok(Change::Set(json!(null))));
        assert_eq!(reduce(Reducer::Append, json!([1]), json!([2, 3])), Ok(Change::Appended(vec![json!(2), json!(3)])));
        assert_eq!(reduce(Reducer::Sum, json!(40), json!(2)), Ok(Change::Set(json!(42))));
        assert_eq!(
            reduce(Reducer::Merge, json!({"a": 1, "b": 1}), json!({"b": 2})),
            Ok(Change::Set(json!({"a": 1, "b": 2})))
        );
    }

    #[test]
    fn wrong_types_and_overflow_are_named() {
        for (reducer, write) in [(Reducer::Append, json!(1)), (Reducer::Sum, json!("1")), (Reducer::Merge, json!([]))] {
            assert!(matches!(reducer.reduce("k", None, write), Err(ReduceError::WrongType { .. })));
        }
        assert!(matches!(
            Reducer::Sum.reduce("k", Some(&json!(i64::MAX)), json!(1)),
            Err(ReduceError::Overflow { .. })
        ));
    }
}
