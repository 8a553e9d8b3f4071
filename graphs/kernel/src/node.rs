//! What a node's body is, what it returns, and how it ends early.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

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

/// What a finished node asks of the kernel.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// Writes to state keys.
    pub writes: Writes,
}

impl<W: Into<Writes>> From<W> for Outcome {
    fn from(writes: W) -> Self {
        Self { writes: writes.into() }
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
