//! Actions of a client (section 4 of the format).

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::Expect;

/// One thing a client does, and what it must see afterwards.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct Action {
    /// The thread it is about.
    pub thread: String,
    /// What it does.
    pub step: Step,
    /// What was recorded.
    pub expect: Option<Expect>,
    /// What was recorded under the safe profile.
    pub expect_safe: Option<Expect>,
    /// The action as written, without its expectations.
    pub text: String,
}

impl TryFrom<Map<String, Value>> for Action {
    type Error = String;

    fn try_from(mut members: Map<String, Value>) -> Result<Self, String> {
        fn read<T: serde::de::DeserializeOwned>(
            members: &mut Map<String, Value>,
            name: &str,
        ) -> Result<Option<T>, String> {
            let value = members.remove(name).map(serde_json::from_value).transpose();
            value.map_err(|problem| format!("`{name}`: {problem}"))
        }
        let expect = read(&mut members, "expect")?;
        let expect_safe = read(&mut members, "expect_safe")?;
        let text = Value::Object(members.clone()).to_string();
        let thread = read(&mut members, "thread")?.unwrap_or_else(|| "t".to_owned());
        let step = serde_json::from_value(Value::Object(members)).map_err(|problem| format!("{text}: {problem}"))?;
        Ok(Self { thread, step, expect, expect_safe, text })
    }
}

/// What an action does (section 4).
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Starts with input, or goes on without an answer.
    Invoke {
        /// The input; `null` goes on.
        input: Option<Map<String, Value>>,
        /// From this marked checkpoint.
        #[serde(default)]
        at: Option<String>,
        /// The limit for this run.
        #[serde(default)]
        recursion_limit: Option<u32>,
    },
    /// Goes on with a plain answer.
    Resume {
        /// The answer.
        value: Value,
        /// From this marked checkpoint.
        #[serde(default)]
        at: Option<String>,
        /// The limit for this run.
        #[serde(default)]
        recursion_limit: Option<u32>,
    },
    /// Goes on with addressed answers.
    ResumeMap {
        /// The answers.
        answers: Vec<Addressed>,
        /// Refuse ids that are not open; we always do.
        #[serde(default)]
        strict: bool,
        /// From this marked checkpoint.
        #[serde(default)]
        at: Option<String>,
        /// The limit for this run.
        #[serde(default)]
        recursion_limit: Option<u32>,
    },
    /// Goes on with any combination.
    Command {
        /// Writes.
        #[serde(default)]
        update: Option<Map<String, Value>>,
        /// Nodes to start.
        #[serde(default)]
        goto: Vec<String>,
        /// Tasks to start.
        #[serde(default)]
        send: Vec<Sent>,
        /// A plain answer.
        #[serde(default, deserialize_with = "present")]
        resume: Option<Value>,
        /// From this marked checkpoint.
        #[serde(default)]
        at: Option<String>,
        /// The limit for this run.
        #[serde(default)]
        recursion_limit: Option<u32>,
    },
    /// Edits the state.
    UpdateState {
        /// The writes; `null` for none.
        values: Option<Map<String, Value>>,
        /// As if this node had run.
        #[serde(default)]
        as_node: Option<String>,
        /// At this marked checkpoint.
        #[serde(default)]
        at: Option<String>,
        /// Names the checkpoint it makes.
        #[serde(default)]
        mark: Option<String>,
        /// Edits the paused sub-graph at this path.
        #[serde(default)]
        subgraph: Option<Vec<String>>,
    },
    /// Names a checkpoint.
    Mark {
        /// The name.
        #[serde(rename = "as")]
        name: String,
        /// Which.
        select: Select,
    },
    /// Reads.
    GetState {
        /// The record of this marked checkpoint.
        #[serde(default)]
        at: Option<String>,
    },
    /// Lists the checkpoints.
    History {},
    /// A new kernel on the same store.
    Reopen {},
}

/// A member that is there, `null` included.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// A task that a command starts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// The node.
    pub to: String,
    /// Its argument.
    pub arg: Value,
}

/// An answer and the question it is for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Addressed {
    /// The question.
    #[serde(rename = "ref")]
    pub reference: Reference,
    /// The answer.
    pub value: Value,
}

/// How a scenario names a question.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The asking task.
    #[serde(default)]
    pub path: Vec<String>,
    /// Its payload, if that matters.
    #[serde(default, deserialize_with = "present")]
    pub payload: Option<Value>,
    /// Which of those that fit.
    #[serde(default)]
    pub nth: usize,
    /// Search all earlier observations, newest first.
    #[serde(default)]
    pub stale: bool,
    /// Search this observation.
    #[serde(default)]
    pub observation: Option<usize>,
    /// An id that never existed.
    #[serde(default)]
    pub unknown: bool,
}

/// How a scenario names a checkpoint.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Select {
    /// The thread's current one.
    #[serde(default)]
    pub current: bool,
    /// With exactly these tasks.
    #[serde(default)]
    pub next: Option<Vec<String>>,
    /// With at least these values.
    #[serde(default)]
    pub values: Option<Map<String, Value>>,
    /// Which of those that fit.
    #[serde(default)]
    pub nth: usize,
    /// From which end to count.
    #[serde(default)]
    pub from: Option<From>,
}

/// The text `oldest` (or `newest`, which is the default).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// The newest comes first.
    Newest,
    /// The oldest comes first.
    Oldest,
}
