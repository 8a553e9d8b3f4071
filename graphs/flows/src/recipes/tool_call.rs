//! One tool call, seen by a person before it runs: approved, changed, answered
//! in the tool's place, or rejected.

use std::sync::Arc;

use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use countersign_kernel::principal::Approver;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Outside;

/// Stands before the names of arguments in the form, so that no tool can have
/// one that means something else there.
const ARGUMENT: &str = "arg.";

/// A call as a model makes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The model's id for it.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// What it is called with.
    pub arguments: Map<String, Value>,
}

/// How the calls of a tool are reviewed.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Who is asked.
    pub approver: Approver,
    /// The arguments that may be changed: texts, numbers, yes or no.
    pub editable: &'static [&'static str],
}

/// What a person made of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Reviewed {
    /// Run it, with these arguments.
    Run(Call),
    /// Do not run it: this is its result.
    Answered(String),
    /// Do not run it, and tell the model why.
    Rejected(String),
}

/// The answer: arguments that are left out stay as they are.
#[derive(Deserialize)]
struct Given {
    decision: Verdict,
    text: Option<String>,
    #[serde(flatten)]
    arguments: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Approve,
    Answer,
    Reject,
}

/// Asks what becomes of a call. Use it in the body that would run the call: a
/// node, or a slot of a batch.
///
/// Guaranteed: only the arguments that the rule names can be changed, each only
/// to a value of its own type, which is checked before the answer counts (K5);
/// an answer or a rejection without a text is asked for again with the fault
/// shown.
///
/// # Errors
/// An interrupt while nobody has answered.
pub async fn review(cx: &Context, call: &Call, rule: &Rule) -> NodeResult<Reviewed> {
    let mut fault = None;
    loop {
        let Filled(given) = cx.ask(question(call, rule, fault)).await?;
        let text = given.text.filter(|text| !text.trim().is_empty());
        fault = Some(match (given.decision, text) {
            (Verdict::Approve, None) => return Ok(Reviewed::Run(call.with(given.arguments))),
            (Verdict::Answer, Some(text)) => return Ok(Reviewed::Answered(text)),
            (Verdict::Reject, Some(text)) => return Ok(Reviewed::Rejected(text)),
            (Verdict::Approve, Some(_)) => "A call that runs answers by itself: leave the text empty.",
            (Verdict::Answer | Verdict::Reject, None) => "Write the answer, or the reason, as the text.",
        });
    }
}

fn question(call: &Call, rule: &Rule, fault: Option<&str>) -> Ask<Filled<Given>> {
    let mut properties = json!({
        "decision": {"type": "string", "enum": ["approve", "answer", "reject"], "title": "Decision"},
        "text": {
            "type": "string", "maxLength": 2000, "title": "Answer or reason",
            "description": "What the model gets instead of the tool's result.",
        },
    });
    let mut ask_about = |name: &str, value: &Value| {
        let kind = match value {
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => "string",
        };
        let title = format!("Change {name} to");
        properties[format!("{ARGUMENT}{name}")] = json!({"type": kind, "title": title, "default": value});
    };
    let flat = |value: &Value| !value.is_array() && !value.is_object() && !value.is_null();
    let editable = call.arguments.iter().filter(|(name, value)| rule.editable.contains(&name.as_str()) && flat(value));
    editable.for_each(|(name, value)| ask_about(name, value));
    let schema = json!({"type": "object", "required": ["decision"], "properties": properties});
    let question = form(format!("Run {}?", call.tool), schema).detail("Call", &call.id).to(rule.approver.clone());
    let question = call.arguments.iter().fold(question, |question, (name, value)| match value {
        Value::String(text) => question.detail(name, text),
        other => question.detail(name, other),
    });
    match fault {
        Some(fault) => question.message(fault),
        None => question,
    }
}

impl Call {
    /// The call with other arguments.
    fn with(&self, changes: Map<String, Value>) -> Self {
        let mut call = self.clone();
        for (field, value) in changes {
            if let Some(name) = field.strip_prefix(ARGUMENT) {
                call.arguments.insert(name.to_owned(), value);
            }
        }
        call
    }

    /// Runs it once for this occurrence.
    pub(super) async fn run(&self, cx: &Context) -> NodeResult<Value> {
        let outside = cx.resource::<Arc<dyn Outside>>()?;
        let arguments = Value::Object(self.arguments.clone());
        cx.step("call", |key| async move { outside.call(key.as_str(), &self.tool, &arguments).await }).await
    }
}

#[derive(State)]
struct Single {
    call: Call,
    result: Option<Value>,
    rejected: Option<String>,
}

/// The flow `tool_call`. Input: `{call: {id, tool, arguments}}`.
///
/// Use it where a call is proposed by something outside the flow. The call that
/// runs is in the state before it does; `to` and `amount` may be changed.
///
/// Guaranteed: as for [`review()`]; a call that was changed runs with what the
/// approver wrote, once.
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn tool_call(outside: Arc<dyn Outside>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Single>::new("tool_call", 1);
    let check = flow.node("check", check);
    let run = flow.node("run", run);
    flow.start(check);
    flow.after(check, move |s| if s.result.is_none() && s.rejected.is_none() { run.into() } else { Target::end() });
    flow.end(run);
    flow.provide(outside);
    flow.compile()
}

async fn check(cx: &Context, single: &Single) -> NodeResult<SingleUpdate> {
    let rule = Rule { approver: role("operator"), editable: &["to", "amount"] };
    Ok(match review(cx, &single.call, &rule).await? {
        Reviewed::Run(call) => Single::update().call(call),
        Reviewed::Answered(text) => Single::update().result(Some(text.into())),
        Reviewed::Rejected(reason) => Single::update().rejected(Some(reason)),
    })
}

async fn run(cx: &Context, single: &Single) -> NodeResult<SingleUpdate> {
    Ok(Single::update().result(Some(single.call.run(cx).await?)))
}
