//! A node of a compiled graph: a body, or a graph that runs as one.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::attempts::run_attempts;
use super::policy::NodePolicy;
use super::{NodeError, NodeResult, Outcome, SharedBody};
use crate::context::Context;
use crate::graph::CompiledGraph;
use crate::state::{StateView, Writes};

/// Makes the input of a sub-graph from the parent's state.
type InputOf = Arc<dyn Fn(&StateView) -> Result<Value, String> + Send + Sync>;
/// Makes the parent's update from the final state of a sub-graph.
type UpdateOf = Arc<dyn Fn(&StateView) -> Result<Writes, String> + Send + Sync>;

/// How state passes between a graph and a sub-graph.
#[derive(Clone)]
pub(crate) enum SubgraphMapping {
    /// By name: the sub-graph gets the values of the keys that both declare
    /// and hands its final values of them back as writes.
    Shared(BTreeSet<String>),
    /// By the flow's own functions.
    Own {
        /// What goes in.
        input: InputOf,
        /// What comes out.
        update: UpdateOf,
    },
}

#[derive(Clone)]
pub(crate) enum NodeKind {
    Body(SharedBody),
    Graph { graph: Arc<CompiledGraph>, mapping: SubgraphMapping },
}

/// A node of a compiled graph.
#[derive(Clone)]
pub struct NodeSpec {
    pub(crate) kind: NodeKind,
    pub(crate) policy: NodePolicy,
}

impl NodeSpec {
    /// The graph that runs as this node, if it is one.
    #[must_use]
    pub fn subgraph(&self) -> Option<&Arc<CompiledGraph>> {
        match &self.kind {
            NodeKind::Body(_) => None,
            NodeKind::Graph { graph, .. } => Some(graph),
        }
    }

    /// What the kernel does with the node beyond running it once.
    #[must_use]
    pub fn policy(&self) -> &NodePolicy {
        &self.policy
    }

    /// Runs a task of this node to its end: all attempts that its policy
    /// allows, each bounded by its time limit. A panic of the body is a failure
    /// of the node.
    #[must_use]
    pub fn run(&self, cx: Context) -> BoxFuture<'static, NodeResult<Outcome>> {
        let Self { kind, policy } = self.clone();
        if let (NodeKind::Body(body), None, None) = (&kind, &policy.retry, policy.timeout) {
            let body = Arc::clone(body);
            return Box::pin(async move { super::attempts::caught(body.run(cx)).await });
        }
        Box::pin(async move { run_attempts(&kind, &policy, cx).await })
    }
}

/// Runs a graph as a node. The frame is the task's own occurrence (K17); it is
/// entered only as a path to what must run (K7).
pub(super) async fn run_subgraph(
    graph: &Arc<CompiledGraph>,
    mapping: &SubgraphMapping,
    cx: Context,
) -> NodeResult<Outcome> {
    let input = match (cx.argument(), mapping) {
        (Some(argument), _) => argument.clone(),
        (None, SubgraphMapping::Shared(keys)) => {
            let values = cx.state().values();
            let shared = keys.iter().filter_map(|key| Some((key.clone(), values.get(key)?.clone())));
            Value::Object(shared.collect())
        }
        (None, SubgraphMapping::Own { input, .. }) => input(cx.state()).map_err(NodeError::Failed)?,
    };
    let end = cx.run_frame(cx.address().clone(), graph, input).await?;
    let writes = match mapping {
        SubgraphMapping::Shared(keys) => {
            let values = end.values();
            keys.iter().filter_map(|key| Some((key.clone(), values.get(key)?.clone()))).collect()
        }
        SubgraphMapping::Own { update, .. } => update(&end).map_err(NodeError::Failed)?,
    };
    Ok(writes.into())
}
