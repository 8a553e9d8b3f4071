//! Values that must not appear in logs.

use std::fmt;

/// A text that does not print: a password, say.
///
/// `Debug` shows `Secret(…)`; there is no `Display`. The text is reachable
/// only through [`Secret::expose`], so that every use can be found.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps the text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for handing it to the other side.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_print() {
        assert_eq!(format!("{:?}", Some(Secret::new("hunter2"))), "Some(Secret(…))");
    }
}
