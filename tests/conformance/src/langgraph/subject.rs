//! What the scenarios need of a kernel: requests, and what a client can see.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use countersign_kernel::address::{Address, SegmentKind};
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::CheckpointId;
use countersign_kernel::node::Goto;
use serde_json::{Map, Value};

/// A request to advance a thread (R1). The default goes on without answering.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Fresh input; what waits is discarded.
    pub input: Option<Map<String, Value>>,
    /// From this checkpoint instead of the current one.
    pub at: Option<String>,
    /// Answers by id.
    pub answers: Vec<(String, Value)>,
    /// Writes in the same superstep (R5).
    pub update: Map<String, Value>,
    /// Where to go beside what waits.
    pub targets: Vec<Target>,
    /// Supersteps this run may do.
    pub supersteps: u32,
}

/// Where a command or a body leads.
#[derive(Debug, Clone)]
pub enum Target {
    /// A node by name, or `END`.
    Node(String),
    /// A task with an argument.
    Task(String, Value),
}

/// An edit of the state (R5).
#[derive(Debug, Clone, Default)]
pub struct Edit {
    /// Writes; none of them skips.
    pub values: Option<Map<String, Value>>,
    /// As if this node had run.
    pub as_node: Option<String>,
    /// At this checkpoint.
    pub at: Option<String>,
    /// In the unfinished sub-graph task at this path.
    pub frame: Option<Vec<String>>,
}

/// Why a request was refused; nothing ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// There is nothing to go on with.
    NothingPending,
    /// An id is not open.
    NotOpen,
    /// A node does not exist, or which one was meant cannot be told.
    BadNode(String),
    /// What is written does not fit.
    Invalid(String),
    /// Anything else, in the kernel's words.
    Other(String),
}

/// A question that waits for an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// By which it is answered.
    pub id: String,
    /// The asking task.
    pub path: Vec<String>,
    /// What it asks.
    pub payload: Value,
}

/// The live state of a graph: the thread's, or of one sub-graph task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Frame {
    /// The checkpoint's values and the writes of finished tasks.
    pub values: Map<String, Value>,
    /// The tasks that have still to run: sorted names, one per task.
    pub next: Vec<String>,
}

/// What a client sees of a thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// The current checkpoint; none before the first run.
    pub checkpoint: Option<String>,
    /// The root graph.
    pub root: Frame,
    /// The open questions; stops are none.
    pub questions: Vec<Question>,
    /// Tasks that failed in the last run: the path of nodes, and the message.
    pub failed: Vec<(Vec<String>, String)>,
    /// The run used up its supersteps.
    pub exhausted: bool,
    /// Unfinished sub-graph tasks that have started, by path.
    pub frames: BTreeMap<String, Frame>,
}

/// Where a checkpoint came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Fresh input, a finished superstep, or an edit.
    Own,
    /// A copy of its parent that plans the same tasks afresh.
    Copy,
    /// Its parent with writes or tasks added by a command.
    Amended,
}

/// One checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// The one before.
    pub parent: Option<String>,
    /// Where it came from.
    pub origin: Origin,
    /// Values at the start of its superstep, and all its tasks.
    pub record: Frame,
}

/// A kernel under test.
#[async_trait]
pub trait Subject: Send {
    /// Advances a thread until it rests; starts it if it never ran.
    async fn run(&mut self, thread: &str, request: Request) -> Result<(), Refused>;

    /// Edits a thread's state; gives the new checkpoint.
    async fn edit(&mut self, thread: &str, edit: Edit) -> Result<String, Refused>;

    /// What a client sees.
    ///
    /// # Errors
    /// The kernel cannot say; in its words.
    async fn view(&mut self, thread: &str) -> Result<View, String>;

    /// The checkpoints, newest first.
    ///
    /// # Errors
    /// The kernel cannot say; in its words.
    async fn history(&mut self, thread: &str) -> Result<Vec<Entry>, String>;

    /// Drops the kernel and opens the same store with a new one.
    ///
    /// # Errors
    /// The store does not open.
    async fn reopen(&mut self) -> Result<(), String>;
}

/// A checkpoint's id as the kernel reads it.
///
/// # Errors
/// It is none.
pub fn checkpoint_id(id: String) -> Result<CheckpointId, Refused> {
    CheckpointId::parse(id).map_err(|problem| Refused::Other(problem.to_string()))
}

/// Where a command leads, in the kernel's words.
#[must_use]
pub fn goto(target: Target) -> Goto {
    match target {
        Target::Node(node) => Goto::Node(node),
        Target::Task(node, argument) => Goto::Send { node, argument },
    }
}

/// The graph that runs as the sub-graph task at `path`.
///
/// # Errors
/// No graph runs there.
pub fn frame_graph(root: &CompiledGraph, path: &[String]) -> Result<Arc<CompiledGraph>, Refused> {
    let mut found: Option<Arc<CompiledGraph>> = None;
    for node in path {
        let around = found.as_deref().unwrap_or(root);
        let inner = around.node(node.split('#').next().unwrap_or(node)).and_then(|node| node.subgraph());
        found = Some(Arc::clone(inner.ok_or_else(|| Refused::Other(format!("`{node}` is no sub-graph")))?));
    }
    found.ok_or_else(|| Refused::Other("the path of a sub-graph is empty".to_owned()))
}

/// The path of a question: tasks from the root to the asking one; a sent task
/// carries its number. A graph run inside a body adds nothing, so the path
/// ends at the body.
#[must_use]
pub fn question_path(address: &Address) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    for segment in address.segments().iter().skip(1) {
        match segment.kind {
            SegmentKind::Node => path.push(segment.name.clone()),
            SegmentKind::Task => {
                if let Some(task) = path.last_mut() {
                    *task = format!("{task}#{}", segment.visit);
                }
            }
            SegmentKind::Graph => break,
            SegmentKind::Slot | SegmentKind::Child => {}
        }
    }
    path
}

/// The path by which a body's visits and failures are counted: names of nodes,
/// joined by `/`, through called graphs as well.
#[must_use]
pub fn body_path(address: &Address) -> String {
    let nodes = address.segments().iter().filter(|segment| segment.kind == SegmentKind::Node);
    nodes.map(|segment| segment.name.as_str()).collect::<Vec<_>>().join("/")
}

/// The path of a task through called graphs as well, with the numbers of sent
/// tasks: for the order in which tasks fail.
#[must_use]
pub fn task_path(address: &Address) -> String {
    let mut path = String::new();
    for segment in address.segments() {
        match segment.kind {
            SegmentKind::Node => path = format!("{path}/{}", segment.name),
            SegmentKind::Task => path = format!("{path}#{}", segment.visit),
            SegmentKind::Graph | SegmentKind::Slot | SegmentKind::Child => {}
        }
    }
    path
}

/// Whether something at `address` is a graph that a body called, or lies in one.
#[must_use]
pub fn is_called(address: &Address) -> bool {
    address.segments().iter().skip(1).any(|segment| segment.kind == SegmentKind::Graph)
}
