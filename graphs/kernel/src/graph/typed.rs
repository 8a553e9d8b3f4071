//! Writing a flow in Rust: typed state, node handles, no strings between the
//! rules.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::{Map, Value};

use super::builder::GraphBuilder;
use super::compile::CompileError;
use super::{CompiledGraph, END_NAME, Migration, START};
use crate::context::Context;
use crate::fault::Fault;
use crate::node::{Body, Goto, NodeError, NodeKind, NodePolicy, NodeResult, Outcome, SubgraphMapping};
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

/// Where a condition leads: nodes, sent tasks, or the end.
pub struct Target<S>(Result<Vec<Goto>, String>, PhantomData<fn() -> S>);

impl<S> Target<S> {
    /// The end of the graph: nothing more starts on this path.
    #[must_use]
    pub fn end() -> Self {
        Self(Ok(vec![END_NAME.into()]), PhantomData)
    }

    /// A fan-out: one task of `node` per argument, side by side. Each finds its
    /// own in [`Context::argument_as`]. An argument that JSON cannot hold fails
    /// the node that the condition leaves.
    #[must_use]
    pub fn send_each<A: Serialize>(node: NodeRef<S>, arguments: impl IntoIterator<Item = A>) -> Self {
        let send = |argument: A| match serde_json::to_value(argument) {
            Ok(argument) => Ok(Goto::Send { node: node.name.to_owned(), argument }),
            Err(problem) => Err(format!("an argument for `{}` cannot be encoded: {problem}", node.name)),
        };
        Self(arguments.into_iter().map(send).collect(), PhantomData)
    }

    /// These targets and those of `other`.
    #[must_use]
    pub fn and(self, other: impl Into<Self>) -> Self {
        let both = self.0.and_then(|mut targets| {
            targets.extend(other.into().0?);
            Ok(targets)
        });
        Self(both, PhantomData)
    }
}

impl<S> From<NodeRef<S>> for Target<S> {
    fn from(node: NodeRef<S>) -> Self {
        Self(Ok(vec![node.name.into()]), PhantomData)
    }
}

impl<S, const N: usize> From<[NodeRef<S>; N]> for Target<S> {
    fn from(nodes: [NodeRef<S>; N]) -> Self {
        Self(Ok(nodes.iter().map(|node| node.name.into()).collect()), PhantomData)
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
        let state = read(cx.state(), &self.codec).map_err(NodeError::Failed)?;
        self.function.call(&cx, &state).await.map(Into::into)
    }
}

/// The state as the flow's type, decoded once.
fn read<S: State>(view: &StateView, codec: &TypedCodec<S>) -> Result<Arc<S>, String> {
    let any = view.typed(codec as &dyn StateCodec).map_err(|fault| fault.to_string())?;
    any.downcast::<S>().map_err(|_| "the state was decoded as another type".to_owned())
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

    /// Adds a graph as a node: a sub-graph with a state of its own. `input`
    /// makes its input from this flow's state; `update` makes this flow's
    /// update from its final state. It can ask like any node, to any depth.
    pub fn subgraph<T: State>(
        &mut self,
        name: &'static str,
        graph: impl Into<Arc<CompiledGraph>>,
        input: impl Fn(&S) -> Value + Send + Sync + 'static,
        update: impl Fn(&T) -> S::Update + Send + Sync + 'static,
    ) -> NodeRef<S> {
        let (own, theirs) = (TypedCodec::<S>::new(), TypedCodec::<T>::new());
        let mapping = SubgraphMapping::Own {
            input: Arc::new(move |view| Ok(input(&*read::<S>(view, &own)?))),
            update: Arc::new(move |view| Ok(update(&*read::<T>(view, &theirs)?).into())),
        };
        self.builder.nodes.push((name.to_owned(), NodeKind::Graph { graph: graph.into(), mapping }));
        NodeRef { name, state: PhantomData }
    }

    /// What the kernel does with a node beyond running it once: retries, a
    /// time limit, waiting for the others.
    pub fn policy(&mut self, node: NodeRef<S>, policy: NodePolicy) -> &mut Self {
        self.builder.policy(node.name, policy);
        self
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
        self.builder.branch(from, move |view: &StateView| choose(&*read::<S>(view, &codec)?).0);
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

    /// Says what changed from version `from` to the next one, for threads that
    /// wait under it: names of nodes and keys, types of values.
    pub fn migrate(&mut self, from: u32, describe: impl FnOnce(&mut Migration)) -> &mut Self {
        self.builder.migrate(from, describe);
        self
    }

    /// Gives the bodies something from outside: a bank, an HTTP client. They
    /// take it with [`Context::resource`].
    pub fn provide<T: Send + Sync + 'static>(&mut self, thing: T) -> &mut Self {
        self.builder.provide(thing);
        self
    }

    /// How urgent threads of the flow are, from -100 to 100; 0 without it. A
    /// point is worth a minute of waiting: a thread goes before those that have
    /// waited at most so much longer. Who starts a thread may say otherwise.
    pub fn priority(&mut self, priority: i64) -> &mut Self {
        self.builder.priority(priority);
        self
    }

    /// Names the threads that are limited together, by their input: those of
    /// one customer, say. Operators set how many of them run at a time.
    pub fn limit_key(&mut self, key: impl Fn(&Value) -> Option<String> + Send + Sync + 'static) -> &mut Self {
        self.builder.limit_key(key);
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
