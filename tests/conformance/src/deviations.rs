//! The project's own list of places where the kernel differs from the
//! recordings on purpose.

use serde::Deserialize;

use crate::langgraph::explain::Kind;

/// The list, `deviations.toml`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deviations {
    /// In the order of the file.
    #[serde(default, rename = "deviation")]
    list: Vec<Deviation>,
}

/// One kind of deviation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deviation {
    /// What kind of difference it makes.
    pub kind: Kind,
    /// The rule of `recordings/semantics.md`.
    pub rule: u32,
    /// Why we chose otherwise.
    pub reason: String,
    /// Our recordings that differ in this way, by name.
    pub names: Vec<String>,
}

impl Deviations {
    /// The project's own list.
    ///
    /// # Errors
    /// The list is not well formed.
    pub fn own() -> Result<Self, String> {
        toml::from_str(include_str!("../deviations.toml")).map_err(|problem| format!("deviations.toml: {problem}"))
    }

    /// The kinds of difference that are meant.
    #[must_use]
    pub fn kinds(&self) -> Vec<Kind> {
        self.list.iter().map(|deviation| deviation.kind).collect()
    }

    /// The entries of the list.
    pub fn iter(&self) -> impl Iterator<Item = &Deviation> {
        self.list.iter()
    }

    /// Why there are differences of these kinds.
    #[must_use]
    pub fn reason(&self, kinds: &[Kind]) -> String {
        let met = self.list.iter().filter(|deviation| kinds.contains(&deviation.kind));
        met.map(|deviation| format!("rule {}: {}", deviation.rule, deviation.reason)).collect::<Vec<_>>().join("; ")
    }

    /// The kinds that the list does not have for the scenario called `name`.
    #[must_use]
    pub fn missing(&self, name: &str, kinds: &[Kind]) -> Vec<Kind> {
        let listed = |kind: Kind| {
            self.list.iter().any(|deviation| deviation.kind == kind && deviation.names.iter().any(|n| n == name))
        };
        kinds.iter().copied().filter(|kind| !listed(*kind)).collect()
    }
}
