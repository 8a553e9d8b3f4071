//! Reducers from plain functions of a field's type: `#[reduce(with = "…")]`.

use std::fmt::Display;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::reducer::Reducer;

/// What a reducer function returns: the new value, or a `Result` of it that says
/// what is wrong with the write.
#[diagnostic::on_unimplemented(
    message = "a reducer returns the field's type `{T}`, or a `Result` of it whose error can be shown",
    label = "returns `{Self}`"
)]
pub trait Reduced<T> {
    /// The value, or what is wrong.
    ///
    /// # Errors
    /// What the function said.
    fn reduced(self) -> Result<T, String>;
}

impl<T> Reduced<T> for T {
    fn reduced(self) -> Result<T, String> {
        Ok(self)
    }
}

impl<T, E: Display> Reduced<T> for Result<T, E> {
    fn reduced(self) -> Result<T, String> {
        self.map_err(|problem| problem.to_string())
    }
}

/// A reducer that is a function of the current value and the write. A key that
/// has no value yet takes the first write as it is, unless its type can say that
/// there is none, as an `Option` does. Used by the derive.
#[must_use]
pub fn reduce_with<T, R>(name: &str, neutral: Option<T>, reduce: impl Fn(T, T) -> R + Send + Sync + 'static) -> Reducer
where
    T: Serialize + DeserializeOwned,
    R: Reduced<T>,
{
    let neutral = match neutral.map(serde_json::to_value).transpose() {
        Ok(neutral) => neutral,
        Err(problem) => {
            return Reducer::custom(name, None, move |_, _| Err(format!("the default cannot be encoded: {problem}")));
        }
    };
    Reducer::custom(name, neutral, move |current: Value, write: Value| {
        let absent = current.is_null();
        let write: T = serde_json::from_value(write).map_err(|problem| problem.to_string())?;
        let reduced = match serde_json::from_value::<T>(current) {
            Ok(current) => reduce(current, write).reduced()?,
            Err(_) if absent => write,
            Err(problem) => return Err(format!("the value that is there does not fit: {problem}")),
        };
        serde_json::to_value(reduced).map_err(|problem| format!("the result cannot be encoded: {problem}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::Change;

    fn reduced(reducer: &Reducer, current: Option<&Value>, write: Value) -> Result<Value, String> {
        match reducer.reduce("k", current, write) {
            Ok(Change::Set(value)) => Ok(value),
            Ok(Change::Appended(items)) => Err(format!("appends {items:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_function_reduces_values_of_its_type() {
        let largest = reduce_with("largest", None, |a: i64, b: i64| a.max(b));
        assert_eq!(largest.neutral(), None);
        assert_eq!(reduced(&largest, None, json!(-3)), Ok(json!(-3)), "the first write as it is");
        assert_eq!(reduced(&largest, Some(&json!(4)), json!(3)), Ok(json!(4)));
        assert!(
            reduced(&largest, Some(&json!(4)), json!("x")).is_err_and(|said| said.contains("key `k`: invalid type"))
        );
        assert!(reduced(&largest, Some(&json!("x")), json!(4)).is_err_and(|said| said.contains("that is there")));
    }

    #[test]
    fn it_may_refuse_a_write_and_start_from_a_value() {
        let rising = |a: u8, b: u8| if b > a { Ok(b) } else { Err(format!("{b} is not above {a}")) };
        let rising = reduce_with("rising", Some(2u8), rising);
        assert_eq!(rising.neutral(), Some(json!(2)));
        assert_eq!(reduced(&rising, Some(&json!(2)), json!(3)), Ok(json!(3)));
        assert_eq!(reduced(&rising, Some(&json!(2)), json!(1)), Err("key `k`: 1 is not above 2".into()));
    }

    #[test]
    fn an_option_sees_that_there_is_nothing_yet() {
        let first = reduce_with("first", None, |a: Option<String>, b: Option<String>| a.or(b));
        assert_eq!(reduced(&first, None, json!("a")), Ok(json!("a")));
        assert_eq!(reduced(&first, Some(&json!("a")), json!("b")), Ok(json!("a")));
        assert_eq!(reduced(&first, Some(&Value::Null), json!("b")), Ok(json!("b")));
    }
}
