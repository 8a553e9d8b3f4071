//! A scenario as it stands in the file: the app, the steps and what to expect.
//!
//! Everything is strict: a member that the runner does not know makes the
//! scenario unreadable, so that nothing recorded is passed over.

use std::collections::BTreeMap;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::script::Script;

/// A file of scenarios. Each is read on its own, so that one that cannot be
/// read takes no other down.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) format: String,
    #[serde(rename = "set")]
    _set: Value,
    #[serde(rename = "described_in")]
    _described_in: Value,
    #[serde(rename = "reference")]
    _reference: Value,
    #[serde(rename = "checked")]
    _checked: Value,
    pub(super) scenarios: Vec<Value>,
}

/// The one format there is.
pub(super) const FORMAT: &str = "hitl-scenarios/1";

/// One app and what is done to one thread of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    pub(super) id: String,
    pub(super) title: String,
    #[serde(rename = "rules")]
    _rules: Vec<String>,
    #[serde(rename = "sure")]
    _sure: String,
    #[serde(default, rename = "note")]
    _note: Option<String>,
    #[serde(default, rename = "eino_nondeterministic")]
    _eino_nondeterministic: bool,
    pub(super) app: App,
    pub(super) steps: Vec<Step>,
}

/// What runs.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum App {
    /// A graph.
    Graph { graph: GraphModel },
    /// An agent.
    Agent { agent: AgentModel },
}

/// A graph of the format.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GraphModel {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) mode: Mode,
    #[serde(default)]
    pub(super) state: Option<Value>,
    #[serde(default)]
    pub(super) break_before: Vec<String>,
    #[serde(default)]
    pub(super) break_after: Vec<String>,
    pub(super) nodes: BTreeMap<String, NodeModel>,
    pub(super) edges: Vec<(String, String)>,
    #[serde(default)]
    pub(super) branches: Vec<BranchModel>,
}

/// When a node starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// When any predecessor of the last step fired.
    #[default]
    Superstep,
    /// When all predecessors are done.
    Dag,
}

/// Where to go by the text that `from` returned.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BranchModel {
    pub(super) from: String,
    pub(super) cases: BTreeMap<String, String>,
    #[serde(rename = "else")]
    pub(super) otherwise: String,
}

/// A node: what it is, and the state key that its pre-handler counts in.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(super) struct NodeModel {
    pub(super) pre: Option<String>,
    pub(super) kind: NodeKind,
}

impl TryFrom<Map<String, Value>> for NodeModel {
    type Error = serde_json::Error;

    fn try_from(mut members: Map<String, Value>) -> Result<Self, serde_json::Error> {
        let pre = members.remove("pre").map(serde_json::from_value).transpose()?;
        Ok(Self { pre, kind: serde_json::from_value(Value::Object(members))? })
    }
}

/// The kinds of node.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum NodeKind {
    Body { script: Script },
    Graph { graph: GraphModel },
    Tools(ToolsModel),
    Composite { composite: CompositeModel },
    Embedded(EmbeddedModel),
}

/// A node that runs batches of tool calls.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolsModel {
    pub(super) tools: BTreeMap<String, ToolModel>,
    pub(super) batches: Vec<Vec<Call>>,
    /// Order of the calls; all of them run either way.
    #[serde(default, rename = "sequential")]
    _sequential: bool,
}

/// One tool call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) id: String,
    pub(super) args: String,
}

/// A tool.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum ToolModel {
    Script(ScriptTool),
    Agent(AgentTool),
    Graph(Box<GraphTool>),
}

/// A tool that is a script.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptTool {
    pub(super) script: Script,
}

/// An agent used as a tool.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentTool {
    pub(super) agent: AgentModel,
}

/// A tool that runs a graph, behind a script that may have to approve.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GraphTool {
    #[serde(default)]
    pub(super) approve: Option<Script>,
    pub(super) graph: GraphModel,
    /// Without effect here: a graph in a body is part of the checkpoint (K17).
    #[serde(default, rename = "checkpointed")]
    _checkpointed: bool,
    #[serde(default)]
    pub(super) info: Option<Value>,
}

/// A body that runs a graph of its own.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EmbeddedModel {
    pub(super) graph: GraphModel,
    /// Without effect here: a graph in a body is part of the checkpoint (K17).
    #[serde(default, rename = "checkpointed")]
    _checkpointed: bool,
    #[serde(default)]
    pub(super) info: Option<Value>,
}

/// A user-written container.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CompositeModel {
    pub(super) segment: String,
    pub(super) children: Vec<String>,
    #[serde(default)]
    pub(super) scripts: BTreeMap<String, Script>,
    #[serde(default)]
    pub(super) nested: BTreeMap<String, CompositeModel>,
    #[serde(default)]
    pub(super) info: Option<Value>,
}

/// An agent.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum AgentModel {
    Model {
        name: String,
        turns: Vec<Turn>,
        #[serde(default)]
        tools: BTreeMap<String, ToolModel>,
    },
    Leaf {
        name: String,
        script: Script,
        #[serde(default)]
        subs: Vec<AgentModel>,
    },
    Sequential {
        name: String,
        agents: Vec<AgentModel>,
    },
    Parallel {
        name: String,
        agents: Vec<AgentModel>,
    },
    Loop {
        name: String,
        agents: Vec<AgentModel>,
        #[serde(default)]
        max: Option<u32>,
    },
}

impl AgentModel {
    /// The agent's name.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Model { name, .. }
            | Self::Leaf { name, .. }
            | Self::Sequential { name, .. }
            | Self::Parallel { name, .. }
            | Self::Loop { name, .. } => name,
        }
    }
}

/// What a model says when it is called.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Turn {
    Calls(Vec<Call>),
    Say(String),
}

/// One thing that a client does, and what it must see then.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    #[serde(default)]
    pub(super) only: Option<Only>,
    #[serde(default, rename = "not_run_against_eino")]
    _not_run_against_eino: bool,
    #[serde(rename = "do")]
    pub(super) action: Do,
    expect: Map<String, Value>,
    #[serde(default)]
    kernel: Map<String, Value>,
}

impl Step {
    /// What our kernel is held to: `expect`, key by key overridden by `kernel`,
    /// and that by what a ruling puts instead.
    pub(super) fn expect(&self, ruled: &Map<String, Value>) -> Result<Expect, String> {
        let mut members = self.expect.clone();
        members.extend(self.kernel.clone());
        members.extend(ruled.clone());
        serde_json::from_value(Value::Object(members)).map_err(|problem| format!("the expectation: {problem}"))
    }
}

/// Whom a step is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Only {
    Eino,
    Kernel,
}

/// What a client does.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Do {
    Run {
        input: Value,
        #[serde(default)]
        force_new: bool,
        #[serde(default)]
        cancel: Option<Cancel>,
        #[serde(default)]
        #[serde(rename = "via")]
        _via: Option<String>,
    },
    Resume {
        targets: BTreeMap<String, AnswerModel>,
        #[serde(default)]
        ids: BTreeMap<String, AnswerModel>,
        #[serde(default)]
        #[serde(rename = "via")]
        _via: Option<String>,
    },
    ResumeAll {},
    Retry {},
    Together(Vec<Do>),
}

/// How a running thread is stopped from outside, while a body hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cancel {
    /// Running bodies finish first.
    Graceful,
    /// Running bodies are dropped.
    Now,
}

/// An answer; `null` is a bare one (K5).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerModel {
    #[serde(default)]
    pub(super) data: Value,
}

/// What must be seen after a step.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Expect {
    pub(super) status: Option<Status>,
    pub(super) pending: Option<Vec<ExpectedPoint>>,
    pub(super) pending_one_of: Option<Vec<Value>>,
    pub(super) ran: Option<BTreeMap<String, Vec<String>>>,
    pub(super) runs: Option<BTreeMap<String, u32>>,
    pub(super) kept: Option<BTreeMap<String, Value>>,
    /// Absent and `null` are the same: no static stop.
    pub(super) breakpoint: Option<Stops>,
    #[serde(deserialize_with = "present")]
    pub(super) output: Option<Value>,
    pub(super) error_contains: Option<String>,
    pub(super) refused: Option<BTreeMap<String, String>>,
    pub(super) accepted: Option<usize>,
}

/// How a thread rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Interrupted,
    Done,
    Failed,
    NoThread,
}

/// The nodes that a static stop names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stops {
    pub(super) before: Vec<String>,
    pub(super) after: Vec<String>,
}

/// An open point that must be there.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedPoint {
    #[serde(default, rename = "ref")]
    pub(super) name: Option<String>,
    pub(super) address: Vec<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) info: Option<Value>,
    #[serde(default)]
    pub(super) parents: Vec<ExpectedParent>,
    #[serde(default)]
    pub(super) prev: Option<String>,
    #[serde(default)]
    pub(super) not: Option<String>,
    #[serde(default)]
    pub(super) same_id_as: Option<String>,
}

/// A container above an expected point.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedParent {
    #[serde(default, rename = "ref")]
    pub(super) name: Option<String>,
    pub(super) address: Vec<String>,
    #[serde(default, deserialize_with = "present")]
    pub(super) info: Option<Value>,
}

/// Keeps a `null` that is there apart from a member that is not.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Scenario {
    /// Reads one scenario.
    ///
    /// # Errors
    /// What does not fit the format.
    pub(super) fn read(value: &Value) -> Result<Self, serde_json::Error> {
        let scenario = Self::deserialize(value)?;
        for step in &scenario.steps {
            step.expect(&Map::new()).map_err(serde_json::Error::custom)?;
        }
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scenario(app: &Value, step: &Value) -> Result<Scenario, serde_json::Error> {
        Scenario::read(&json!({"id": "T", "title": "t", "rules": [], "sure": "", "app": app, "steps": [step]}))
    }

    fn graph(node: &Value) -> Value {
        json!({"kind": "graph", "graph": {"nodes": {"a": node}, "edges": [["START", "a"]]}})
    }

    fn step(expect: &Value) -> Value {
        json!({"do": {"run": {"input": "x"}}, "expect": expect})
    }

    #[test]
    fn the_kernels_part_overrides_key_by_key() {
        let step = json!({
            "do": {"retry": {}},
            "expect": {"status": "done", "output": null, "breakpoint": {"before": [], "after": ["a"]}},
            "kernel": {"status": "failed", "breakpoint": null},
        });
        let scenario = scenario(&graph(&json!({"kind": "body", "script": {"fresh": []}})), &step).expect("readable");
        let expect = scenario.steps[0].expect(&Map::new()).expect("readable");
        assert_eq!((expect.status, expect.breakpoint), (Some(Status::Failed), None));
        assert_eq!(expect.output, Some(Value::Null), "a null that is there is an expectation");
    }

    #[test]
    fn what_is_not_known_is_not_passed_over() {
        let body = json!({"kind": "body", "script": {"fresh": []}, "pre": "n"});
        assert!(scenario(&graph(&body), &step(&json!({}))).is_ok());
        for (node, expect) in [
            (json!({"kind": "body", "script": {"fresh": []}, "post": "n"}), json!({})),
            (json!({"kind": "body", "script": {"fresh": [{"sing": true}]}}), json!({})),
            (json!({"kind": "body", "script": {"fresh": [], "never": []}}), json!({})),
            (json!({"kind": "tools", "tools": {"t": {"code": 1}}, "batches": []}), json!({})),
            (body, json!({"outcome": 1})),
        ] {
            assert!(scenario(&graph(&node), &step(&expect)).is_err(), "{node} {expect}");
        }
    }
}
