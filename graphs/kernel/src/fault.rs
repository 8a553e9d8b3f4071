//! What is wrong with a value that came from outside, and where.

/// One fault in an input or an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize)]
#[error("{}{}{message}", .pointer, if .pointer.is_empty() { "" } else { ": " })]
pub struct Fault {
    /// Where, as a JSON pointer (`/value`, RFC 6901); empty for the whole.
    pub pointer: String,
    /// What is wrong and what is expected.
    pub message: String,
}

impl Fault {
    /// A fault at `pointer`.
    #[must_use]
    pub fn at(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }

    /// A fault at a member of the whole, whatever its name.
    #[must_use]
    pub fn at_member(name: &str, message: impl Into<String>) -> Self {
        Self::at(format!("/{}", name.replace('~', "~0").replace('/', "~1")), message)
    }
}
