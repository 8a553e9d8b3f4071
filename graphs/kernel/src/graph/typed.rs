//! Writing a flow in Rust: typed state, node handles, no strings between the
//! rules.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::builder::GraphBuilder;
use super::compile::CompileError;
use super::{CompiledGraph, END_NAME, START};
use crate::context::Context;
use crate::fault::Fault;
use crate::node::{Body, NodeError, NodeResult, Outcome};
use crate::state::{State, StateCodec, StateView, TypedCodec, Writes};

/// A node of a graph over `S`, as [`Graph::node`] returned it.
pub struct NodeRef<S> {
    name: &'static str,
    state: PhantomData<fn() -> S>,
}

impl<S> Clone for NodeRef<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for NodeRef<S> {}

impl<S> fmt::Debug for NodeRef<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Where a condition leads: nodes, or the end.
pub struct Target<S>(Vec<&'static str>, PhantomData<fn() -> S>);

impl<S> Target<S> {
    /// The end of the graph: nothing more starts on this path.
    #[must_use]
    pub fn end() -> Self {
        Self(vec![END_NAME], PhantomData)
    }
}

impl<S> From<NodeRef<S>> for Target<S> {
    fn from(node: NodeRef<S>) -> Self {
        Self(vec![node.name], PhantomData)
    }
}

impl<S, const N: usize> From<[NodeRef<S>; N]> for Target<S> {
    fn from(nodes: [NodeRef<S>; N]) -> Self {
        Self(nodes.iter().map(|node| node.name).collect(), PhantomData)
    }
}

/// An async function of the context and the state: the body of a node.
///
/// Implemented for `async fn(&Context, &S) -> NodeResult<SUpdate>`; the
/// lifetime lets the body borrow both.
pub trait NodeFn<'a, S>: Send + Sync {
    /// What the body returns.
    type Output: Into<Outcome>;
    /// The running body.
    type Future: Future<Output = NodeResult<Self::Output>> + Send + 'a;
    /// Starts the body.
    fn call(&self, cx: &'a Context, state: &'a S) -> Self::Future;
}

impl<'a, S, F, Fut, O> NodeFn<'a, S> for F
where
    S: 'a,
    F: Fn(&'a Context, &'a S) -> Fut + Send + Sync,
    Fut: Future<Output = NodeResult<O>> + Send + 'a,
    O: Into<Outcome>,
{
    type Output = O;
    type Future = Fut;
    fn call(&self, cx: &'a Context, state: &'a S) -> Fut {
        self(cx, state)
    }
}

struct TypedBody<S, F> {
    function: F,
    codec: TypedCodec<S>,
}

#[async_trait]
impl<S, F> Body for TypedBody<S, F>
where
    S: State,
    F: for<'a> NodeFn<'a, S>,
{
    async fn run(&self, cx: Context) -> NodeResult<Outcome> {
        let any = cx.state().typed(&self.codec as &dyn StateCodec)?;
        let state = downcast::<S>(any)?;
        self.function.call(&cx, &state).await.map(Into::into)
    }
}

fn downcast<S: State>(any: Arc<dyn Any + Send + Sync>) -> NodeResult<Arc<S>> {
    any.downcast::<S>().map_err(|_| NodeError::failed("the state was decoded as another type"))
}

/// A flow over the state `S`.
///
/// ```
/// use countersign_kernel::prelude::*;
///
/// #[derive(State)]
/// struct Leave {
///     days: u32,
///     approved: Option<bool>,
/// }
///
/// async fn manager(cx: &Context, leave: &Leave) -> NodeResult<LeaveUpdate> {
///     let decision = cx.ask(approval(format!("{} days off?", leave.days)).to(role("manager"))).await?;
///     Ok(Leave::update().approved(Some(decision.approved)))
/// }
///
/// let mut g = Graph::<Leave>::new("leave", 1);
/// let manager = g.node("manager", manager);
/// g.start_with(move |leave| if leave.days > 1 { manager.into() } else { Target::end() });
/// let graph = g.compile().expect("a sound graph");
/// assert_eq!(graph.name(), "leave");
/// ```
pub struct Graph<S> {
    builder: GraphBuilder,
    state: PhantomData<fn() -> S>,
}

impl<S: State> Graph<S> {
    /// An empty flow. Raise `version` when parked threads must be told apart.
    #[must_use]
    pub fn new(name: impl Into<String>, version: u32) -> Self {
        let mut builder = GraphBuilder::new(name, version);
        builder.keys = S::schema();
        builder.codec = Arc::new(TypedCodec::<S>::new());
        Self { builder, state: PhantomData }
    }

    /// Adds a node and returns its handle.
    pub fn node<F>(&mut self, name: &'static str, body: F) -> NodeRef<S>
    where
        F: for<'a> NodeFn<'a, S> + 'static,
    {
        self.builder.node(name, Arc::new(TypedBody { function: body, codec: TypedCodec::<S>::new() }));
        NodeRef { name, state: PhantomData }
    }

    /// The flow starts with `node`.
    pub fn start(&mut self, node: NodeRef<S>) -> &mut Self {
        self.builder.edge(START, node.name);
        self
    }

    /// The flow starts where the condition says.
    pub fn start_with(&mut self, choose: impl Fn(&S) -> Target<S> + Send + Sync + 'static) -> &mut Self {
        self.condition(START, choose)
    }

    /// `to` starts whenever `from` has finished.
    pub fn edge(&mut self, from: NodeRef<S>, to: NodeRef<S>) -> &mut Self {
        self.builder.edge(from.name, to.name);
        self
    }

    /// The flow ends after `from`.
    pub fn end(&mut self, from: NodeRef<S>) -> &mut Self {
        self.builder.edge(from.name, END_NAME);
        self
    }

    /// `to` starts once all of `from` have finished, in whichever supersteps.
    pub fn join(&mut self, from: impl IntoIterator<Item = NodeRef<S>>, to: NodeRef<S>) -> &mut Self {
        self.builder.join(from.into_iter().map(|node| node.name), to.name);
        self
    }

    /// When `from` has finished, the condition says where to go. It sees the
    /// state at the start of the superstep plus `from`'s own writes.
    pub fn after(&mut self, from: NodeRef<S>, choose: impl Fn(&S) -> Target<S> + Send + Sync + 'static) -> &mut Self {
        self.condition(from.name, choose)
    }

    fn condition(&mut self, from: &str, choose: impl Fn(&S) -> Target<S> + Send + Sync + 'static) -> &mut Self {
        let codec = TypedCodec::<S>::new();
        self.builder.branch(from, move |view: &StateView| {
            let any = view.typed(&codec as &dyn StateCodec).map_err(|fault| fault.to_string())?;
            let state = any.downcast::<S>().map_err(|_| "the state was decoded as another type".to_owned())?;
            Ok(choose(&state).0.into_iter().map(str::to_owned).collect())
        });
        self
    }

    /// Stops before `node` until an operator releases it.
    pub fn break_before(&mut self, node: NodeRef<S>) -> &mut Self {
        self.builder.break_before(node.name);
        self
    }

    /// Stops after `node` until an operator releases it.
    pub fn break_after(&mut self, node: NodeRef<S>) -> &mut Self {
        self.builder.break_after(node.name);
        self
    }

    /// Gives the bodies something from outside: a bank, an HTTP client. They
    /// take it with [`Context::resource`].
    pub fn provide<T: Send + Sync + 'static>(&mut self, thing: T) -> &mut Self {
        self.builder.provide(thing);
        self
    }

    /// Reads the caller's input. Without it the input is an object of keys.
    pub fn input(
        &mut self,
        read: impl Fn(&Value) -> Result<S::Update, Vec<Fault>> + Send + Sync + 'static,
    ) -> &mut Self {
        self.builder.input(move |input| {
            let writes: Writes = read(input)?.into();
            let entries = writes.into_entries().map_err(|problem| vec![Fault::at("", problem)])?;
            Ok(Map::from_iter(entries))
        });
        self
    }

    /// Checks the flow.
    ///
    /// # Errors
    /// Every fault, by name.
    pub fn compile(self) -> Result<CompiledGraph, CompileError> {
        self.builder.compile()
    }
}
