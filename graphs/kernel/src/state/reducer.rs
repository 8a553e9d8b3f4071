//! How writes to a key combine.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::typed::StateFault;
use super::values::Change;
use crate::node::panic_text;

/// How a write changes a key's value.
#[derive(Debug, Clone, PartialEq)]
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
    /// The flow's own way.
    Custom(CustomReducer),
}

/// What a custom reducer does with the current value and a write; or what is
/// wrong with the write. The current value is `null` if there is none.
type ReduceFn = Arc<dyn Fn(Value, Value) -> Result<Value, String> + Send + Sync>;

/// A reducer of the flow's own. It must not depend on anything but its
/// arguments: writes are reduced again when a superstep is.
#[derive(Clone)]
pub struct CustomReducer {
    name: String,
    neutral: Option<Value>,
    reduce: ReduceFn,
}

impl CustomReducer {
    /// A panic is a refusal: it fails who wrote, and nothing else.
    fn reduce(&self, current: Value, write: Value) -> Result<Value, String> {
        let reduced = std::panic::catch_unwind(AssertUnwindSafe(|| (self.reduce)(current, write)));
        let panicked = |panic: Box<dyn Any + Send>| format!("the reducer panicked: {}", panic_text(panic.as_ref()));
        reduced.unwrap_or_else(|panic| Err(panicked(panic)))
    }
}

impl fmt::Debug for CustomReducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Equal by name and neutral value, which is what the fingerprint knows.
impl PartialEq for CustomReducer {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.neutral == other.neutral
    }
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
    /// A custom reducer refused the write.
    #[error("key `{key}`: {problem}")]
    Refused {
        /// The key.
        key: String,
        /// What its reducer said.
        problem: String,
    },
    /// A sum left the range of 64-bit integers.
    #[error("the sum in key `{key}` overflows a 64-bit integer")]
    Overflow {
        /// The key.
        key: String,
    },
}

impl Reducer {
    /// A reducer of the flow's own, under a name that people and the
    /// fingerprint of the graph know. With a neutral value the key is part of
    /// the state from the start.
    pub fn custom(
        name: impl Into<String>,
        neutral: Option<Value>,
        reduce: impl Fn(Value, Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        Self::Custom(CustomReducer { name: name.into(), neutral, reduce: Arc::new(reduce) })
    }

    /// The value of a key that nobody wrote: keys with one are part of the
    /// state from a thread's first checkpoint on.
    #[must_use]
    pub fn neutral(&self) -> Option<Value> {
        match self {
            Self::Custom(custom) => custom.neutral.clone(),
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
    pub fn reduce(&self, key: &str, current: Option<&Value>, write: Value) -> Result<Change, ReduceError> {
        match self {
            // Neither looks at what is there.
            Self::Last => Ok(Change::Set(write)),
            Self::Append => self.appended(key, write).map(Change::Appended),
            Self::Sum | Self::Merge | Self::Custom(_) => {
                self.reduce_onto(key, current.cloned().unwrap_or(Value::Null), write)
            }
        }
    }

    /// As [`reduce`](Self::reduce), onto a value that may be used up.
    pub(crate) fn reduce_onto(&self, key: &str, current: Value, write: Value) -> Result<Change, ReduceError> {
        match (self, write) {
            (Self::Last, value) => Ok(Change::Set(value)),
            (Self::Append, value) => self.appended(key, value).map(Change::Appended),
            (Self::Sum, write) => {
                let Some(add) = write.as_i64() else {
                    return Err(wrong(key, "an integer to add", &write));
                };
                let sum = current.as_i64().unwrap_or(0).checked_add(add);
                sum.map(|sum| Change::Set(sum.into())).ok_or_else(|| ReduceError::Overflow { key: key.to_owned() })
            }
            (Self::Merge, Value::Object(members)) => {
                let mut merged = match current {
                    Value::Object(merged) => merged,
                    _ => Map::new(),
                };
                merged.extend(members);
                Ok(Change::Set(Value::Object(merged)))
            }
            (Self::Merge, other) => Err(wrong(key, "an object to merge", &other)),
            (Self::Custom(custom), write) => custom
                .reduce(current, write)
                .map(Change::Set)
                .map_err(|problem| ReduceError::Refused { key: key.to_owned(), problem }),
        }
    }

    /// Why a key with this reducer cannot hold `value`: what was written would
    /// be lost. A value may be there from before the key had the reducer.
    pub(crate) fn unfit(&self, key: &str, value: &Value) -> Option<StateFault> {
        let needs = match (self, value) {
            (Self::Last | Self::Custom(_), _) | (Self::Sum | Self::Merge, Value::Null) => return None,
            (Self::Append, value) if !value.is_array() => "a list",
            (Self::Sum, value) if value.as_i64().is_none() => "a 64-bit integer",
            (Self::Merge, value) if !value.is_object() => "an object",
            (Self::Append | Self::Sum | Self::Merge, _) => return None,
        };
        Some(StateFault::Unreadable { key: key.to_owned(), problem: format!("its reducer needs {needs}") })
    }

    /// The items that a write appends.
    pub(crate) fn appended(&self, key: &str, write: Value) -> Result<Vec<Value>, ReduceError> {
        match write {
            Value::Array(items) => Ok(items),
            other => Err(wrong(key, "a list to append", &other)),
        }
    }
}

fn wrong(key: &str, expected: &'static str, got: &Value) -> ReduceError {
    ReduceError::WrongType { key: key.to_owned(), expected, got: got.to_string().chars().take(60).collect() }
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
    fn a_custom_reducer_says_what_it_does_not_take() {
        let longest = Reducer::custom("longest", Some(json!("")), |current, write| {
            let (Some(a), Some(b)) = (current.as_str(), write.as_str()) else { return Err("takes text".into()) };
            Ok(json!(if b.len() > a.len() { b } else { a }))
        });
        assert_eq!(longest.neutral(), Some(json!("")));
        assert_eq!(longest.reduce("k", Some(&json!("ab")), json!("abc")), Ok(Change::Set(json!("abc"))));
        let refused = longest.reduce("k", Some(&json!("ab")), json!(1)).expect_err("no text");
        assert_eq!(refused.to_string(), "key `k`: takes text");
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
