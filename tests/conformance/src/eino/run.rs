//! Runs one scenario, step by step, and says what came of it.

use std::collections::BTreeMap;

use countersign_kernel::address::Address;
use countersign_kernel::ids::InterruptId;
use countersign_kernel::machine::Resume;
use serde_json::{Map, Value};

use super::app::App;
use super::expect::{Observation, Refs, SeenRefusal, compare};
use super::graph::frame_path;
use super::model::{
    AgentModel, AnswerModel, App as Model, Do, GraphModel, Mode, NodeKind, Only, Scenario, Step, ToolModel,
};
use super::rulings::ruling;
use super::shared;
use super::subject::{Look, Pause, Request, Thread};
use crate::report::Verdict;

/// Runs a scenario on a thread that `open` makes for its graph.
pub(super) async fn run<T: Thread>(scenario: &Scenario, open: impl AsyncFnOnce(&App) -> Result<T, String>) -> Verdict {
    if uses_dag(&scenario.app) {
        return Verdict::skipped("a graph in `dag` mode: our graphs run in supersteps only (R15)");
    }
    let app = match App::build(&scenario.app) {
        Ok(app) => app,
        Err(problem) => return Verdict::failed(problem),
    };
    let thread = match open(&app).await {
        Ok(thread) => thread,
        Err(problem) => return Verdict::failed(problem),
    };
    let mut play = Play { app, thread, refs: Refs::new(), places: BTreeMap::new(), deviation: None };
    for (index, step) in scenario.steps.iter().enumerate().filter(|(_, step)| step.only != Some(Only::Eino)) {
        if let Err(difference) = play.step(&scenario.id, index, step).await {
            let what = serde_json::to_string(&format!("{:?}", step.action)).unwrap_or_default();
            return Verdict::failed(format!("{}\nstep {}: {what}\n{difference}", scenario.title, index + 1));
        }
    }
    match play.deviation {
        Some((reason, difference)) => Verdict::Deviates { reason: reason.to_owned(), difference },
        None => Verdict::Pass,
    }
}

struct Play<T> {
    app: App,
    thread: T,
    refs: Refs,
    /// Where the points are that were seen so far.
    places: BTreeMap<String, Address>,
    deviation: Option<(&'static str, String)>,
}

impl<T: Thread> Play<T> {
    async fn step(&mut self, scenario: &str, index: usize, step: &Step) -> Result<(), String> {
        self.app.ledger.begin_step();
        let results = self.act(&step.action).await?;
        let look = self.thread.look().await?;
        self.remember(&look);
        let seen = self.app.observe(&look, results)?;
        self.compare(scenario, index, step, &seen)
    }

    fn compare(&mut self, scenario: &str, index: usize, step: &Step, seen: &Observation) -> Result<(), String> {
        let mut refs = self.refs.clone();
        let differences = compare(&step.expect(&Map::new())?, seen, &mut refs);
        if differences.is_empty() {
            self.refs = refs;
            return Ok(());
        }
        let Some(ruling) = ruling(scenario, index) else { return Err(differences.join("\n")) };
        let ruled = compare(&step.expect(&ruling.instead)?, seen, &mut self.refs);
        if !ruled.is_empty() {
            return Err(ruled.join("\n"));
        }
        self.deviation.get_or_insert((ruling.reason, differences.join("\n")));
        Ok(())
    }

    async fn act(&mut self, action: &Do) -> Result<Vec<Result<(), SeenRefusal>>, String> {
        if let Do::Together(actions) = action {
            let requests = actions.iter().map(|action| self.request(action)).collect::<Result<Vec<_>, _>>()?;
            return Ok(self.thread.together(requests).await);
        }
        let request = self.request(action)?;
        let Do::Run { cancel: Some(how), .. } = action else {
            return Ok(vec![self.thread.perform(request, None).await]);
        };
        let ledger = std::sync::Arc::clone(&self.app.ledger);
        ledger.await_hang();
        let result = self.thread.perform(request, Some(Pause { how: *how, ledger: &ledger })).await;
        ledger.end_hang();
        Ok(vec![result])
    }

    fn request(&mut self, action: &Do) -> Result<Request, String> {
        let resume = |resume| Request { resume, ..Request::default() };
        Ok(match action {
            Do::Run { input, force_new, .. } => {
                Request { input: Some(input.clone()), discard: *force_new, ..Request::default() }
            }
            Do::ResumeAll {} => resume(Resume { resume_all: true, ..Resume::default() }),
            Do::Retry {} => resume(Resume { retry: true, ..Resume::default() }),
            Do::Resume { targets, ids, .. } => {
                let mut answers = Vec::new();
                for (name, answer) in targets {
                    let id = self.refs.get(name).ok_or_else(|| format!("no point was ever named `{name}`"))?;
                    answers.push(self.answer(id, answer)?);
                }
                for (literal, answer) in ids {
                    let id = well_formed(literal);
                    answers.push(self.answer(&id, answer)?);
                    self.refs.insert(literal.clone(), id);
                }
                Request { answers, ..Request::default() }
            }
            Do::Together(_) => return Err("requests at the same time inside such".to_owned()),
        })
    }

    fn answer(&self, id: &str, answer: &AnswerModel) -> Result<(InterruptId, Value), String> {
        let parsed = InterruptId::parse(id).map_err(|problem| problem.to_string())?;
        // New shared state for a stop is an update of the key that holds it (K12).
        let data = match (answer.data.get("$shared"), self.places.get(id)) {
            (Some(state), Some(place)) => {
                Value::Object(Map::from_iter([(shared::key(&frame_path(place)), shared::set(state))]))
            }
            _ => answer.data.clone(),
        };
        Ok((parsed, data))
    }

    fn remember(&mut self, look: &Look) {
        for point in &look.points {
            self.places.insert(point.id.to_string(), point.address.clone());
        }
    }
}

/// An id of the kernel's form for an id that never was one, so that it is the
/// kernel that refuses it.
fn well_formed(literal: &str) -> String {
    let digits: String = literal.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{digits:0<32}").chars().take(32).collect()
}

fn uses_dag(app: &Model) -> bool {
    match app {
        Model::Graph { graph } => is_dag(graph),
        Model::Agent { agent } => has_dag(agent),
    }
}

fn is_dag(graph: &GraphModel) -> bool {
    graph.mode == Mode::Dag
        || graph.nodes.values().any(|node| match &node.kind {
            NodeKind::Graph { graph } => is_dag(graph),
            NodeKind::Embedded(embedded) => is_dag(&embedded.graph),
            NodeKind::Tools(tools) => tools.tools.values().any(tool_has_dag),
            NodeKind::Body { .. } | NodeKind::Composite { .. } => false,
        })
}

fn tool_has_dag(tool: &ToolModel) -> bool {
    match tool {
        ToolModel::Script(_) => false,
        ToolModel::Agent(tool) => has_dag(&tool.agent),
        ToolModel::Graph(tool) => is_dag(&tool.graph),
    }
}

fn has_dag(agent: &AgentModel) -> bool {
    match agent {
        AgentModel::Model { tools, .. } => tools.values().any(tool_has_dag),
        AgentModel::Leaf { subs: agents, .. }
        | AgentModel::Sequential { agents, .. }
        | AgentModel::Parallel { agents, .. }
        | AgentModel::Loop { agents, .. } => agents.iter().any(has_dag),
    }
}
