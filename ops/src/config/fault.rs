//! What is wrong with a configuration: all of it at once.

use std::fmt;

/// One fault: where it is, what is wrong, what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// The key with its file, or the environment variable.
    pub place: String,
    /// What is wrong; never the value of a secret.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.place, self.problem, self.remedy)
    }
}

/// All faults of a configuration; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigFault>);

impl ConfigErrors {
    /// `value` if nothing is wrong, else all that is.
    pub(super) fn unless_none<T>(faults: Vec<ConfigFault>, value: T) -> Result<T, Self> {
        if faults.is_empty() { Ok(value) } else { Err(Self(faults)) }
    }

    /// The faults, in the order of the sections.
    #[must_use]
    pub fn faults(&self) -> &[ConfigFault] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [only] => write!(f, "the configuration cannot be used: {only}"),
            all => {
                write!(f, "the configuration cannot be used, {} things are wrong:", all.len())?;
                all.iter().try_for_each(|fault| write!(f, "\n  - {fault}"))
            }
        }
    }
}

impl std::error::Error for ConfigErrors {}
