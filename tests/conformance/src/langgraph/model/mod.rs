//! The scenario format of `recordings/README.md`, sections 1 to 5, as types.
//!
//! The format is closed: a member, operation or action that is not in it is an
//! error with its name, never passed over.

mod action;
mod expect;
mod graph;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub use self::action::{Action, Addressed, From, Reference, Select, Sent, Step};
pub use self::expect::{Class, Expect, ExpectedEntry, ExpectedError, ExpectedFrame, ExpectedQuestion, Status};
pub use self::graph::{
    Branch, Case, Edge, Fanout, Graph, Key, KeyReducer, Node, Op, Parent, Retry, Sources, Star, Stops,
};
use crate::report::Level;

/// The whole document.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Always 1.
    pub format: u32,
    /// Its name.
    pub name: String,
    /// Informative.
    pub kind: String,
    /// Informative: `hand` or `random`.
    pub origin: String,
    /// For people.
    pub doc: String,
    /// How binding it is.
    #[serde(deserialize_with = "level")]
    pub level: Level,
    /// The graphs by name; `main` is the root.
    pub graphs: BTreeMap<String, Graph>,
    /// What a client does.
    #[serde(default)]
    pub actions: Vec<Action>,
    /// Building must fail like this; there are no actions then.
    #[serde(default)]
    pub expect_compile: Option<ExpectedError>,
    /// Default limit for the actions.
    #[serde(default = "default_limit")]
    pub recursion_limit: u32,
    /// Several tasks fail at once: an error's node is not compared.
    #[serde(default)]
    pub any_error_node: bool,
    /// Informative.
    #[serde(default)]
    pub exact_visits: Value,
    /// Informative.
    #[serde(default)]
    pub loose_visits: Value,
}

fn default_limit() -> u32 {
    50
}

fn level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Level, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "core" => Ok(Level::Core),
        "choice" => Ok(Level::Choice),
        other => Err(serde::de::Error::custom(format!("`{other}` is no level"))),
    }
}
