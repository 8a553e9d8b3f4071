//! What a node's body is, what it returns, and how it ends early.

mod attempts;
mod policy;
mod spec;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use self::attempts::panic_text;
pub use self::policy::{NodePolicy, RetryPolicy};
pub use self::spec::NodeSpec;
pub(crate) use self::spec::{NodeKind, SubgraphMapping};
use crate::context::Context;
use crate::state::Writes;

/// How a body ends when it does not return an update.
///
/// Any [`std::error::Error`] converts into a failure, so `?` works on the
/// errors of whatever a node calls. It is no error type itself: an interrupt
/// is a stop, not a failure (K22).
#[derive(Debug)]
pub enum NodeError {
    /// The body waits for an answer. The point is already on record; the
    /// value only carries control to the end of the body.
    Interrupted,
    /// The node failed; the thread fails unless the node is retried.
    Failed(String),
    /// A graph that this body ran handed over to this body's graph: the update
    /// and the targets apply here. Pass it on with `?`.
    HandOver(Box<Outcome>),
    /// The lease on the thread is lost; whatever the body does now is void.
    LeaseLost,
}

impl NodeError {
    /// A failure with a message for people.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self::Failed(message.to_string())
    }
}

impl<E: std::error::Error> From<E> for NodeError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !message.contains(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            source = cause.source();
        }
        Self::Failed(message)
    }
}

/// What a body returns.
pub type NodeResult<T> = Result<T, NodeError>;

/// Where a body or a condition leads, by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goto {
    /// This node, once, however often it is named; [`END_NAME`](crate::graph::END_NAME)
    /// starts nothing.
    Node(String),
    /// One task of this node with an argument of its own, which is all that it
    /// sees (R3). Each sent task is a task.
    Send {
        /// The node.
        node: String,
        /// What the task gets.
        argument: Value,
    },
}

impl Goto {
    /// The node that is named.
    #[must_use]
    pub fn node(&self) -> &str {
        match self {
            Self::Node(node) | Self::Send { node, .. } => node,
        }
    }
}

impl<T: Into<String>> From<T> for Goto {
    fn from(node: T) -> Self {
        Self::Node(node.into())
    }
}

/// What a finished node asks of the kernel.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Writes to state keys.
    pub writes: Writes,
    /// Nodes to start, beside those that the edges lead to.
    pub goto: Vec<Goto>,
    /// The update and the targets are for the parent graph; this one ends here.
    pub parent: bool,
}

impl Outcome {
    /// Starts `node` too once this body has finished.
    #[must_use]
    pub fn goto(mut self, node: impl Into<String>) -> Self {
        self.goto.push(Goto::Node(node.into()));
        self
    }

    /// Starts a task of `node` with `argument`. The argument is what it is now.
    #[must_use]
    pub fn send(mut self, node: impl Into<String>, argument: Value) -> Self {
        self.goto.push(Goto::Send { node: node.into(), argument });
        self
    }

    /// Hands over: update and targets apply to the closest parent graph, and
    /// the graph of this node ends without a result of its own.
    #[must_use]
    pub fn to_parent(mut self) -> Self {
        self.parent = true;
        self
    }
}

impl<W: Into<Writes>> From<W> for Outcome {
    fn from(writes: W) -> Self {
        Self { writes: writes.into(), goto: Vec::new(), parent: false }
    }
}

/// The code of a node, behind one pointer.
#[async_trait]
pub trait Body: Send + Sync {
    /// Runs the node once, from the top.
    async fn run(&self, cx: Context) -> NodeResult<Outcome>;
}

/// A shared body.
pub type SharedBody = Arc<dyn Body>;

/// A body over the untyped [`Context`], from a closure.
///
/// For graphs built from data; flows in Rust use
/// [`Graph::node`](crate::graph::Graph::node).
pub fn body_fn<F, Fut, O>(function: F) -> SharedBody
where
    F: Fn(Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<O>> + Send + 'static,
    O: Into<Outcome> + 'static,
{
    struct FnBody<F>(F);

    #[async_trait]
    impl<F, Fut, O> Body for FnBody<F>
    where
        F: Fn(Context) -> Fut + Send + Sync,
        Fut: Future<Output = NodeResult<O>> + Send,
        O: Into<Outcome>,
    {
        async fn run(&self, cx: Context) -> NodeResult<Outcome> {
            (self.0)(cx).await.map(Into::into)
        }
    }

    Arc::new(FnBody(function))
}
