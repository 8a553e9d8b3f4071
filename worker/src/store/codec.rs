//! How payloads become bytes: a codec number beside each (R19).

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StoreError;

/// Codec 0: the value's JSON text.
pub(crate) const PLAIN: i64 = 0;

/// Encodes a value with [`PLAIN`].
pub(crate) fn encode<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|problem| StoreError::Unreadable {
        what,
        of: "a value to be written".into(),
        problem: problem.to_string(),
    })
}

/// Decodes what [`encode`] made.
pub(crate) fn decode<T: DeserializeOwned>(what: &'static str, of: &str, bytes: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|problem| StoreError::Unreadable {
        what,
        of: of.to_owned(),
        problem: problem.to_string(),
    })
}

/// Parses an identifier or another text column.
pub(crate) fn parse<T: TryFrom<String>>(what: &'static str, text: String) -> Result<T, StoreError>
where
    T::Error: std::fmt::Display,
{
    let of = text.clone();
    T::try_from(text).map_err(|problem| StoreError::Unreadable { what, of, problem: problem.to_string() })
}
