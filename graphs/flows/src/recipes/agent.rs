//! Tool-call review: an agent whose calls people see before they run, side by
//! side.

use std::sync::Arc;

use async_trait::async_trait;
use countersign_kernel::graph::CompileError;
use countersign_kernel::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Call, Outside, OutsideError, Reviewed, Rule, review};

/// A message of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// What a person wrote.
    User {
        /// The words.
        text: String,
    },
    /// What the model said, and the calls that it wants made.
    Assistant {
        /// The words.
        text: String,
        /// The calls; without any, it is done.
        #[serde(default)]
        calls: Vec<Call>,
    },
    /// What came of a call.
    Tool {
        /// The model's id for the call.
        call: String,
        /// The result, the answer given in its place, or why it was rejected.
        text: String,
    },
}

/// The model behind the agent.
#[async_trait]
pub trait Model: Send + Sync {
    /// Its next message.
    ///
    /// # Errors
    /// There is none; asking again costs another turn.
    async fn turn(&self, messages: &[Message]) -> Result<Message, OutsideError>;
}

#[derive(State)]
struct Chat {
    #[reduce(append)]
    messages: Vec<Message>,
}

/// The flow `agent`. Input: `{messages: [{role: "user", text}]}`.
///
/// Use it for any model that calls tools. All calls of a turn wait side by
/// side, each with its own question, approvers and link.
///
/// Guaranteed: a turn of the model is taken once, whatever is asked afterwards;
/// a call that has finished keeps its result; an answer runs its own call and
/// no other, and those that still wait keep their ids (K7, K16). The model goes
/// on when all calls of the turn have a result, and is told which were
/// changed, answered or rejected by a person.
///
/// # Errors
/// The flow is not sound; its tests see to it that it is.
pub fn agent(model: Arc<dyn Model>, tools: Arc<dyn Outside>) -> Result<CompiledGraph, CompileError> {
    let mut flow = Graph::<Chat>::new("agent", 1);
    let think = flow.node("model", take_turn);
    let act = flow.node("tools", make_calls);
    flow.start(think).edge(act, think);
    flow.after(think, move |chat| if chat.calls().is_empty() { Target::end() } else { act.into() });
    flow.provide(model).provide(tools);
    flow.compile()
}

async fn take_turn(cx: &Context, chat: &Chat) -> NodeResult<ChatUpdate> {
    let model = cx.resource::<Arc<dyn Model>>()?;
    let message = cx.step("turn", |_key| model.turn(&chat.messages)).await?;
    Ok(Chat::update().messages(message))
}

async fn make_calls(cx: &Context, chat: &Chat) -> NodeResult<ChatUpdate> {
    let slots = chat.calls().iter().map(|call| Slot::new(&call.id, call.clone()).named(&call.tool)).collect();
    let results = cx.batch("call", slots, make_call).await?;
    Ok(results.into_iter().fold(Chat::update(), ChatUpdate::messages))
}

async fn make_call(cx: Context, call: Call) -> NodeResult<Message> {
    let reviewed = match rule(&call.tool) {
        Some(rule) => review(&cx, &call, &rule).await?,
        None => Reviewed::Run(call.clone()),
    };
    let text = match reviewed {
        Reviewed::Run(run) if run == call => run.run(&cx).await?.to_string(),
        Reviewed::Run(run) => {
            let result = run.run(&cx).await?;
            format!("{result} (a person changed the arguments to {})", json!(run.arguments))
        }
        Reviewed::Answered(text) => text,
        Reviewed::Rejected(reason) => format!("A person rejected this call: {reason}"),
    };
    Ok(Message::Tool { call: call.id, text })
}

/// Who sees the calls of a tool first; nobody for those that only read.
fn rule(tool: &str) -> Option<Rule> {
    match tool {
        "search" => None,
        "transfer" => Some(Rule { approver: role("treasury"), editable: &["to", "amount"] }),
        _ => Some(Rule { approver: role("operator"), editable: &[] }),
    }
}

impl Chat {
    /// The calls of the last turn.
    fn calls(&self) -> &[Call] {
        match self.messages.last() {
            Some(Message::Assistant { calls, .. }) => calls,
            _ => &[],
        }
    }
}
