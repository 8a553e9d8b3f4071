//! Who acts, and who is asked (R18).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a text names no principal or approver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names nobody: expected {1}")]
pub struct PrincipalError(String, &'static str);

/// One who can act: `person:<lower-cased address>` or `service:<token name>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Principal(String);

impl Principal {
    /// The person behind a mail address; case is folded.
    #[must_use]
    pub fn person(address: &str) -> Self {
        Self(format!("person:{}", address.trim().to_lowercase()))
    }

    /// The service behind an API token.
    #[must_use]
    pub fn service(token_name: &str) -> Self {
        Self(format!("service:{}", token_name.trim()))
    }

    /// The deadline of a request, where nobody decided in time. No token has
    /// the name: none has a space in it.
    #[must_use]
    pub fn deadline() -> Self {
        Self::service("the deadline")
    }

    /// Time that has passed, where nothing else was waited for.
    #[must_use]
    pub fn timer() -> Self {
        Self::service("the timer")
    }

    /// Whether this is a person, not a service.
    #[must_use]
    pub fn is_person(&self) -> bool {
        self.0.starts_with("person:")
    }

    /// The principal as text, `person:…` or `service:…`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part behind the colon: an address or a token name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once(':').map_or("", |(_, name)| name)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Principal {
    type Error = PrincipalError;
    fn try_from(text: String) -> Result<Self, PrincipalError> {
        match text.split_once(':') {
            Some(("person", name)) if !name.trim().is_empty() => Ok(Self::person(name)),
            Some(("service", name)) if !name.trim().is_empty() => Ok(Self::service(name)),
            _ => Err(PrincipalError(text, "`person:<address>` or `service:<name>`")),
        }
    }
}

impl From<Principal> for String {
    fn from(principal: Principal) -> String {
        principal.0
    }
}

/// One who may be asked: a principal, or whoever holds a role when voting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Approver {
    /// Exactly this principal.
    Principal(Principal),
    /// Anybody who holds the role at the time of the vote.
    Role(String),
}

/// The role `name` as an approver.
#[must_use]
pub fn role(name: impl Into<String>) -> Approver {
    Approver::Role(name.into())
}

/// The person behind `address` as an approver.
#[must_use]
pub fn person(address: &str) -> Approver {
    Approver::Principal(Principal::person(address))
}

impl fmt::Display for Approver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal(principal) => principal.fmt(f),
            Self::Role(name) => write!(f, "role:{name}"),
        }
    }
}

impl TryFrom<String> for Approver {
    type Error = PrincipalError;
    fn try_from(text: String) -> Result<Self, PrincipalError> {
        match text.split_once(':') {
            Some(("role", name)) if !name.trim().is_empty() => Ok(Self::Role(name.trim().to_owned())),
            _ => Principal::try_from(text)
                .map(Self::Principal)
                .map_err(|e| PrincipalError(e.0, "`person:<address>`, `role:<name>` or `service:<name>`")),
        }
    }
}

impl From<Approver> for String {
    fn from(approver: Approver) -> String {
        approver.to_string()
    }
}
