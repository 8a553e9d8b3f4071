//! An app that can run, and how its thread looks in the words of the format.

use std::sync::Arc;

use countersign_kernel::graph::{CompiledGraph, END_NAME, GraphBuilder, START};
use countersign_kernel::machine::Point;
use countersign_kernel::node::body_fn;
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::state::{Reducer, Writes};
use serde_json::{Map, Value};

use super::agent::Agent;
use super::body::World;
use super::expect::{Observation, SeenParent, SeenPoint, SeenRefusal};
use super::graph::{Runnable, frame_path};
use super::ledger::Ledger;
use super::model::{AgentModel, App as Model, Status, Stops};
use super::place::Sight;
use super::shared;
use super::subject::Look;
use crate::stored::Program;

/// An app: one compiled graph, and what belongs to it outside the kernel.
pub(super) struct App {
    /// What runs.
    pub(super) graph: Arc<CompiledGraph>,
    /// The same, for processes that build it for themselves.
    pub(super) program: Program,
    /// What is counted.
    pub(super) ledger: Arc<Ledger>,
    sight: Sight,
    /// The data flow of a graph app.
    runnable: Option<Runnable>,
}

/// The state keys of an agent app.
const INPUT: &str = "input";
const OUTPUT: &str = "output";
/// Its only node.
const NODE: &str = "agent";

impl App {
    /// Compiles the app.
    ///
    /// # Errors
    /// What cannot run.
    pub(super) fn build(model: &Model) -> Result<Self, String> {
        let ledger = Arc::new(Ledger::default());
        match model {
            Model::Graph { graph } => {
                let world = World { ledger: Arc::clone(&ledger), sight: Sight::All };
                let runnable = Runnable::build(&world, graph, None)?;
                let compiled = Arc::clone(&runnable.graph);
                let graph = graph.clone();
                let program: Program = Arc::new(move || Runnable::compile(&world, &graph));
                Ok(Self { graph: compiled, program, ledger, sight: Sight::All, runnable: Some(runnable) })
            }
            Model::Agent { agent } => {
                let world = World { ledger: Arc::clone(&ledger), sight: Sight::Agents };
                let graph = Arc::new(agent_graph(&world, agent)?);
                let agent = agent.clone();
                let program: Program = Arc::new(move || agent_graph(&world, &agent));
                Ok(Self { graph, program, ledger, sight: Sight::Agents, runnable: None })
            }
        }
    }

    /// What a client sees after a step.
    ///
    /// # Errors
    /// The state cannot be read as the runner's own.
    pub(super) fn observe(&self, look: &Look, results: Vec<Result<(), SeenRefusal>>) -> Result<Observation, String> {
        let accepted = results.iter().filter(|result| result.is_ok()).count();
        Ok(Observation {
            status: look.status,
            points: look.points.iter().map(|point| self.point(point, look)).collect::<Result<_, _>>()?,
            stops: self.stops(look),
            output: (look.status == Status::Done).then(|| self.output(&look.state)).transpose()?,
            errors: look.errors.clone(),
            ran: self.ledger.ran(),
            runs: self.ledger.runs(),
            kept: self.ledger.finished(),
            accepted,
            refusals: results.into_iter().filter_map(Result::err).collect(),
        })
    }

    fn output(&self, state: &Map<String, Value>) -> Result<Value, String> {
        match &self.runnable {
            Some(runnable) => runnable.output(state),
            None => Ok(state.get(OUTPUT).cloned().unwrap_or_default()),
        }
    }

    fn point(&self, point: &Point, look: &Look) -> Result<SeenPoint, String> {
        let parents = point.parents.iter().filter(|parent| self.sight.is_level(&parent.address));
        Ok(SeenPoint {
            id: point.id.to_string(),
            address: self.sight.shown(&point.address),
            info: if is_stop(point) { shared_state(point, look)? } else { point.payload.clone() },
            parents: parents
                .map(|parent| SeenParent {
                    id: parent.id.to_string(),
                    address: self.sight.shown(&parent.address),
                    info: parent.info.clone(),
                })
                .collect(),
        })
    }

    /// The nodes that open stops name.
    fn stops(&self, look: &Look) -> Stops {
        let mut stops = Stops::default();
        for point in look.points.iter().filter(|point| is_stop(point)) {
            let inside = self.sight.body(&point.address);
            let prefix = if inside.is_empty() { inside } else { format!("{inside}/") };
            let names = |member: &str| -> Vec<String> {
                let nodes = point.payload.get(member).and_then(Value::as_array).into_iter().flatten();
                nodes.filter_map(Value::as_str).map(|node| format!("{prefix}{node}")).collect()
            };
            stops.before.extend(names("before"));
            stops.after.extend(names("after"));
        }
        stops
    }
}

/// A stop's info is the shared state of its graph.
fn shared_state(point: &Point, look: &Look) -> Result<Value, String> {
    let frame = look.frames.iter().find(|frame| frame.address == point.address);
    let values = frame.map_or(&look.state, |frame| &frame.values);
    shared::view(values.get(&shared::key(&frame_path(&point.address))), [])
}

fn is_stop(point: &Point) -> bool {
    matches!(point.kind, PointKind::Break | PointKind::Pause)
}

/// A graph with one node that runs an agent.
fn agent_graph(world: &World, agent: &AgentModel) -> Result<CompiledGraph, String> {
    let agent = Agent::build(world, agent)?;
    let world = world.clone();
    let mut graph = GraphBuilder::new("root", 1);
    graph.key(INPUT, Reducer::Last).key(OUTPUT, Reducer::Last);
    graph.input(|input| Ok(Map::from_iter([(INPUT.to_owned(), input.clone())])));
    let body = body_fn(move |cx: countersign_kernel::context::Context| {
        let (agent, world) = (Arc::clone(&agent), world.clone());
        async move {
            let input = cx.state().values().get(INPUT).cloned().unwrap_or_default();
            let ended = agent.run(world, cx, input).await?;
            Ok(Writes::none().with(OUTPUT, &ended.value()))
        }
    });
    graph.node(NODE, body).edge(START, NODE).edge(NODE, END_NAME);
    graph.compile().map_err(|problem| problem.to_string())
}
