//! What a client must see (sections 5 and 6 of the format).

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// What a client must see (section 5).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Absent: not compared; `null`: none.
    #[serde(default, deserialize_with = "present_error")]
    pub error: Option<Option<ExpectedError>>,
    /// The live state.
    #[serde(default)]
    pub values: Option<Map<String, Value>>,
    /// What has still to run.
    #[serde(default)]
    pub next: Option<Vec<String>>,
    /// Open questions.
    #[serde(default)]
    pub interrupts: Option<Vec<ExpectedQuestion>>,
    /// How the thread stands.
    #[serde(default)]
    pub status: Option<Status>,
    /// How often each body was entered, as bounds.
    #[serde(default)]
    pub visits: Option<BTreeMap<String, (u32, u32)>>,
    /// Unfinished sub-graph tasks by path.
    #[serde(default)]
    pub subgraphs: BTreeMap<String, ExpectedFrame>,
    /// The reference could not show the state.
    #[serde(default)]
    pub state_error: Option<String>,
    /// The checkpoints, newest first.
    #[serde(default)]
    pub history: Option<Vec<ExpectedEntry>>,
    /// Not compared.
    #[serde(default)]
    pub advisory: Value,
}

fn present_error<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<ExpectedError>>, D::Error> {
    Option::<ExpectedError>::deserialize(deserializer).map(Some)
}

/// How a thread stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It never ran.
    Empty,
    /// A question is open.
    Interrupted,
    /// Something has still to run.
    Pending,
    /// Nothing is left.
    Done,
}

/// An error, by class.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedError {
    /// The class.
    pub class: Class,
    /// Path of the failing body.
    #[serde(default)]
    pub node: Option<String>,
    /// What it said.
    #[serde(default)]
    pub message: Option<String>,
    /// The reference's own type of error; not compared.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// The reference's own words; not compared.
    #[serde(default)]
    pub text: Option<String>,
}

/// Classes of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A body or a condition failed.
    NodeError,
    /// The run used up its supersteps.
    Recursion,
    /// An unknown or ambiguous node.
    InvalidUpdate,
    /// Two tasks wrote one last-value key.
    ConcurrentUpdate,
    /// Going on where nothing ever ran.
    EmptyInput,
    /// A plain answer, several questions.
    AmbiguousResume,
    /// An id that is not open.
    UnknownInterrupt,
    /// The graph cannot be built.
    InvalidGraph,
    /// Some error.
    Other,
}

/// An open question.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedQuestion {
    /// The asking task.
    pub path: Vec<String>,
    /// What it asks.
    pub payload: Value,
    /// The reference lists it although nobody has to answer it.
    #[serde(default)]
    pub stale: bool,
}

/// An unfinished sub-graph task.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedFrame {
    /// Its live state.
    pub values: Map<String, Value>,
    /// What has still to run in it.
    pub next: Vec<String>,
}

/// One checkpoint.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedEntry {
    /// All tasks of its superstep.
    pub next: Vec<String>,
    /// The state at its start.
    pub values: Map<String, Value>,
    /// Index of its parent in the same list.
    pub parent: Option<usize>,
    /// Not compared.
    #[serde(default)]
    pub advisory: Value,
}
