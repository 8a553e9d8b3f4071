//! Identifiers, as types that cannot be mistaken for one another.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid {what}: {rule}")]
pub struct IdError {
    what: &'static str,
    rule: &'static str,
    text: String,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Parses the identifier.
            ///
            /// # Errors
            /// The text does not have the form that this kind of identifier has.
            pub fn parse(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                let check: fn(&str) -> bool = $check;
                if check(&text) {
                    Ok(Self(text))
                } else {
                    Err(IdError { what: $what, rule: $rule, text: text.chars().take(80).collect() })
                }
            }

            /// The identifier as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

fn is_hex32(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':'))
}

/// A name that keeps its place in a URL: `.` and `..` are dropped from paths by
/// whoever sends them, which would lead elsewhere.
fn is_path_name(text: &str) -> bool {
    is_name(text) && text != "." && text != ".."
}

id!(
    /// Names one case: a line of checkpoints with a state. Chosen by the
    /// caller or derived from a UUIDv7.
    ThreadId, "thread id", "1 to 128 of A-Z a-z 0-9 - _ . :, but not `.` or `..`", is_path_name
);
id!(
    /// Names one accepted request to advance a thread (a UUIDv7).
    RunId, "run id", "1 to 128 of A-Z a-z 0-9 - _ . :", is_name
);
id!(
    /// Names one checkpoint (a UUIDv7); unique in the store.
    CheckpointId, "checkpoint id", "1 to 128 of A-Z a-z 0-9 - _ . :", is_name
);
id!(
    /// Names one delivery: one message to one recipient through one channel.
    DeliveryId, "delivery id", "1 to 128 of A-Z a-z 0-9 - _ . :", is_name
);
id!(
    /// Names one pending point (K2, R7): 32 lower-case hex digits, derived
    /// and never random, compared as a whole and never parsed.
    InterruptId, "interrupt id", "32 lower-case hex digits", is_hex32
);
id!(
    /// Names one frame: a run of a graph inside a task of another (K17). It is
    /// the id of that container (K18); the root frame has none.
    FrameId, "frame id", "32 lower-case hex digits", is_hex32
);

impl From<FrameId> for InterruptId {
    fn from(frame: FrameId) -> Self {
        Self(frame.0)
    }
}

impl From<InterruptId> for FrameId {
    fn from(container: InterruptId) -> Self {
        Self(container.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupt_ids_are_exactly_32_lower_case_hex_digits() {
        assert!(InterruptId::parse("80fcfb93000000000000000000000abc").is_ok());
        for bad in ["", "80FCFB93000000000000000000000ABC", "80fcfb93", "80fcfb93000000000000000000000abz"] {
            assert!(InterruptId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn thread_ids_carry_no_separators_of_urls_or_paths() {
        assert!(ThreadId::parse("invoice-2016_04:17.a").is_ok());
        assert!(ThreadId::parse("...").is_ok());
        for bad in ["", "a/b", "a b", "ä", "a\0", ".", ".."] {
            assert!(ThreadId::parse(bad).is_err(), "{bad:?}");
        }
    }
}
