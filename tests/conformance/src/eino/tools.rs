//! Batches of tool calls, and the kinds of tool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use countersign_kernel::context::{Context, Slot};
use countersign_kernel::node::{NodeError, NodeResult};
use serde_json::{Map, Value};

use super::agent::Agent;
use super::body::{Given, World, play_value};
use super::graph::Runnable;
use super::model::{Call, ToolModel};
use super::script::Script;

/// A tool that can run.
pub(super) enum Tool {
    /// A script.
    Script(Script),
    /// An agent.
    Agent(Arc<Agent>),
    /// A graph, behind a script that may have to approve.
    Graph { approve: Option<Script>, graph: Runnable },
}

/// Tools by name.
pub(super) type Tools = Arc<BTreeMap<String, Tool>>;

/// What an approving script returns to let the graph run.
const APPROVED: &str = "approved";

/// Makes tools of their models.
///
/// # Errors
/// A graph that cannot run.
pub(super) fn build(world: &World, models: &BTreeMap<String, ToolModel>) -> Result<Tools, String> {
    let tools = models.iter().map(|(name, model)| {
        let tool = match model {
            ToolModel::Script(tool) => Tool::Script(tool.script.clone()),
            ToolModel::Agent(tool) => Tool::Agent(Agent::build(world, &tool.agent)?),
            ToolModel::Graph(tool) => {
                let graph = Runnable::build(world, &tool.graph, tool.info.clone())?;
                Tool::Graph { approve: tool.approve.clone(), graph }
            }
        };
        Ok((name.clone(), tool))
    });
    tools.collect::<Result<BTreeMap<_, _>, String>>().map(Arc::new)
}

/// Runs one batch; results in call order.
pub(super) async fn run(
    world: &World,
    cx: &Context,
    tools: &Tools,
    calls: &[Call],
    shared: &Value,
) -> NodeResult<Vec<Value>> {
    let slots = calls.iter().map(|call| Slot::new(&call.id, call.clone()).named(&call.tool)).collect();
    cx.batch("tools", slots, |cx: Context, call: Call| {
        let (world, tools, shared) = (world.clone(), Arc::clone(tools), shared.clone());
        async move {
            let tool = tools.get(&call.tool);
            let tool = tool.ok_or_else(|| NodeError::failed(format!("there is no tool `{}`", call.tool)))?;
            let result = one(&world, &cx, tool, call.args.into(), shared).await?;
            world.ledger.finish(&world.sight.body(cx.address()), &result);
            Ok(result)
        }
    })
    .await
}

async fn one(world: &World, cx: &Context, tool: &Tool, args: Value, shared: Value) -> NodeResult<Value> {
    let given = Given { input: args, shared };
    match tool {
        Tool::Script(script) => play_value(world, cx, script, &given).await,
        Tool::Agent(agent) => {
            let text = given.input.as_str().unwrap_or_default();
            let args: Value = serde_json::from_str(text)?;
            let input = args.get("request").cloned().unwrap_or_default();
            Ok(Arc::clone(agent).run(world.clone(), cx.clone(), input).await?.value())
        }
        Tool::Graph { approve, graph } => {
            if let Some(script) = approve {
                // Decided once: what the graph asks afterwards is another matter.
                let verdict: Value = cx.step("approve", |_| play_value(world, cx, script, &given)).await?;
                if verdict != APPROVED {
                    return Ok(verdict);
                }
            }
            graph.run(cx, &given.input).await
        }
    }
}

/// The result of a node that ran a batch: by call id, or as a list if two
/// calls share one.
pub(super) fn gathered(calls: &[Call], results: Vec<Value>) -> Value {
    let ids: BTreeSet<&str> = calls.iter().map(|call| call.id.as_str()).collect();
    if ids.len() < calls.len() {
        return Value::Array(results);
    }
    let named = calls.iter().map(|call| call.id.clone()).zip(results);
    Value::Object(named.collect::<Map<_, _>>())
}
