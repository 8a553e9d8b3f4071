//! Agents, written on the kernel's public parts: a child per agent, a step per
//! call of a model, a batch per turn of tool calls.

use std::sync::Arc;

use countersign_kernel::context::Context;
use countersign_kernel::node::{NodeError, NodeResult};
use futures_util::future::{BoxFuture, join_all};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::body::{Given, World, play};
use super::ledger::CALL;
use super::model::{AgentModel, Turn};
use super::place::AGENT;
use super::script::{Ending, Script, as_text, fill_text};
use super::tools::{self, Tools};

/// An agent that can run.
pub(super) struct Agent {
    name: String,
    kind: Kind,
}

enum Kind {
    Model { turns: Vec<Turn>, tools: Tools },
    Leaf { script: Script, subs: Vec<Arc<Agent>> },
    Sequential(Vec<Arc<Agent>>),
    Parallel(Vec<Arc<Agent>>),
    Loop { agents: Vec<Arc<Agent>>, rounds: u32 },
}

/// How an agent ended, and after how many others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Ended {
    ending: Ending,
    number: u64,
}

impl Ended {
    /// What it said; nothing if it only ended others.
    pub(super) fn value(self) -> Value {
        match self.ending {
            Ending::Value(value) => value,
            Ending::Exit | Ending::BreakLoop | Ending::Transfer(_) => Value::Null,
        }
    }
}

impl Agent {
    /// Makes an agent of its model.
    ///
    /// # Errors
    /// A tool with a graph that cannot run.
    pub(super) fn build(world: &World, model: &AgentModel) -> Result<Arc<Self>, String> {
        let members = |agents: &[AgentModel]| -> Result<Vec<_>, String> {
            agents.iter().map(|agent| Self::build(world, agent)).collect()
        };
        let kind = match model {
            AgentModel::Model { turns, tools, .. } => {
                Kind::Model { turns: turns.clone(), tools: tools::build(world, tools)? }
            }
            AgentModel::Leaf { script, subs, .. } => Kind::Leaf { script: script.clone(), subs: members(subs)? },
            AgentModel::Sequential { agents, .. } => Kind::Sequential(members(agents)?),
            AgentModel::Parallel { agents, .. } => Kind::Parallel(members(agents)?),
            AgentModel::Loop { agents, max, .. } => {
                Kind::Loop { agents: members(agents)?, rounds: max.unwrap_or(u32::MAX) }
            }
        };
        Ok(Arc::new(Self { name: model.name().to_owned(), kind }))
    }

    /// Runs the agent as a child of `cx`; a finished one gives what it gave.
    pub(super) fn run(
        self: Arc<Self>,
        world: World,
        cx: Context,
        input: Value,
    ) -> BoxFuture<'static, NodeResult<Ended>> {
        Box::pin(async move {
            let (agent, world) = (&self, &world);
            let body = |cx: Context| async move {
                let ending = agent.body(world, &cx, input).await?;
                Ok(Ended { ending, number: world.ledger.give() })
            };
            cx.child(AGENT, &self.name, body).await
        })
    }

    async fn body(&self, world: &World, cx: &Context, input: Value) -> NodeResult<Ending> {
        let run = |agent: &Arc<Self>| Arc::clone(agent).run(world.clone(), cx.clone(), input.clone());
        match &self.kind {
            Kind::Model { turns, tools } => model(world, cx, turns, tools).await,
            Kind::Leaf { script, subs } => {
                let given = Given { input: input.clone(), shared: Value::Null };
                if subs.is_empty() {
                    return play(world, cx, script, &given).await;
                }
                // What it did before it handed over is done.
                let ending: Ending = cx.step("turn", |_| play(world, cx, script, &given)).await?;
                let Ending::Transfer(name) = &ending else { return Ok(ending) };
                let sub = subs.iter().find(|sub| sub.name == *name);
                let sub = sub.ok_or_else(|| NodeError::failed(format!("there is no sub agent `{name}`")))?;
                Ok(run(sub).await?.ending)
            }
            Kind::Sequential(agents) => {
                cx.container("Sequential workflow interrupted")?;
                let mut ending = Ending::Value(Value::Null);
                for agent in agents {
                    ending = run(agent).await?.ending;
                    if !matches!(ending, Ending::Value(_)) {
                        break;
                    }
                }
                Ok(ending)
            }
            Kind::Parallel(agents) => {
                cx.container("Parallel workflow interrupted")?;
                all(join_all(agents.iter().map(run)).await)
            }
            Kind::Loop { agents, rounds } => {
                cx.container("Loop workflow interrupted")?;
                let mut last = Value::Null;
                for _ in 0..*rounds {
                    for agent in agents {
                        match run(agent).await?.ending {
                            Ending::Value(value) => last = value,
                            Ending::BreakLoop => return Ok(Ending::Value(last)),
                            end @ (Ending::Exit | Ending::Transfer(_)) => return Ok(end),
                        }
                    }
                }
                Ok(Ending::Value(last))
            }
        }
    }
}

/// All have run: the failure of one, else the wait of one, else what the last
/// to end gave.
fn all(results: Vec<NodeResult<Ended>>) -> NodeResult<Ending> {
    let mut newest: Option<Ended> = None;
    let mut waits = false;
    let mut failure = None;
    for result in results {
        match result {
            Ok(ended) if newest.as_ref().is_none_or(|known| known.number < ended.number) => newest = Some(ended),
            Ok(_) => {}
            Err(NodeError::Interrupted) => waits = true,
            Err(other) => {
                failure.get_or_insert(other);
            }
        }
    }
    match (failure, waits, newest) {
        (Some(failure), ..) => Err(failure),
        (None, true, _) => Err(NodeError::Interrupted),
        (None, false, newest) => Ok(newest.map_or(Ending::Value(Value::Null), |ended| ended.ending)),
    }
}

/// Calls the model and the tools that it names, until it says something.
async fn model(world: &World, cx: &Context, turns: &[Turn], tools: &Tools) -> NodeResult<Ending> {
    let key = format!("{}/model", world.sight.body(cx.address()));
    let mut results = Vec::new();
    loop {
        let call = |_| async { Ok::<u32, NodeError>(world.ledger.enter(&key, &CALL) - 1) };
        let number: u32 = cx.step("model", call).await?;
        let turn = usize::try_from(number).ok().and_then(|number| turns.get(number));
        match turn.ok_or_else(|| NodeError::failed(format!("`{key}` is called {} times", number + 1)))? {
            Turn::Calls(calls) => results = tools::run(world, cx, tools, calls, &Value::Null).await?,
            Turn::Say(text) => {
                let said = fill_text(text, &|name| match name {
                    "last" => Ok(results.last().cloned().unwrap_or_default()),
                    "tools" => Ok(results.iter().map(as_text).collect::<Vec<_>>().join("|").into()),
                    other => Err(format!("`{other}` is nothing that a model can name")),
                });
                return said.map(Ending::Value).map_err(NodeError::Failed);
            }
        }
    }
}
