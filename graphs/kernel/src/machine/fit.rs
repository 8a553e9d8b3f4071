//! Whether a thread that was left under another build fits this one.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::complete::reduce_writes;
use super::{Archived, CheckpointBody, Position, StoredOutcome};
use crate::graph::{CompiledGraph, END_NAME};
use crate::ids::CheckpointId;
use crate::node::Goto;
use crate::state::{StateFault, StateView, Values};

/// Why a thread cannot go on under this build. Such a thread is held, not
/// failed: another build, a migration or an edit helps (R16).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The thread comes from a newer build.
    #[error("the thread is on version {stored} of graph `{graph}`, and this build has version {known}")]
    NewerVersion {
        /// The graph.
        graph: String,
        /// The thread's.
        stored: u32,
        /// This build's.
        known: u32,
    },
    /// A planned node is gone.
    #[error(
        "version {version} of graph `{graph}` has no node `{node}`, which is due: name what became of it in a \
         migration, or edit the state as another node"
    )]
    NodeGone {
        /// The graph.
        graph: String,
        /// This build's version.
        version: u32,
        /// The node.
        node: String,
    },
    /// Some sources of a join have run, and the join is gone.
    #[error("version {version} of graph `{graph}` has no join {join}, of which some sources have run already")]
    JoinGone {
        /// The graph.
        graph: String,
        /// This build's version.
        version: u32,
        /// The join: sources and target.
        join: String,
    },
    /// A sub-graph waits inside a node that runs none any more, or another.
    #[error(
        "version {version} of graph `{graph}` does not run the graph any more that waits in node `{node}`: edit the \
         state as another node"
    )]
    GraphGone {
        /// The graph around.
        graph: String,
        /// This build's version of it.
        version: u32,
        /// The node.
        node: String,
    },
    /// A finished task has written what this version cannot apply.
    #[error(
        "version {version} of graph `{graph}` cannot apply what `{task}` has written before its superstep ended: \
         {problem}"
    )]
    Write {
        /// The graph.
        graph: String,
        /// This build's version.
        version: u32,
        /// The task.
        task: String,
        /// What does not fit.
        problem: String,
    },
    /// The state does not read as this version's.
    #[error("the state does not fit version {version} of graph `{graph}`: {problem}")]
    State {
        /// The graph.
        graph: String,
        /// This build's version.
        version: u32,
        /// What does not fit.
        problem: String,
    },
    /// A migration refused a value.
    #[error("the migration of graph `{graph}` to version {version} refuses the value of `{key}`: {problem}")]
    Migration {
        /// The graph.
        graph: String,
        /// This build's version.
        version: u32,
        /// The key.
        key: String,
        /// What it said.
        problem: String,
    },
}

impl Misfit {
    /// Whether an edit of the state as another node can help: it plans anew,
    /// and can write what does not read.
    #[must_use]
    pub fn is_mended_by_an_edit(&self) -> bool {
        match self {
            Self::NodeGone { .. }
            | Self::JoinGone { .. }
            | Self::GraphGone { .. }
            | Self::Write { .. }
            | Self::State { .. } => true,
            Self::NewerVersion { .. } | Self::Migration { .. } => false,
        }
    }
}

/// What a migration did to a frame. A store writes it with the frame's next
/// checkpoint, which is the first of the new version.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Migrated {
    /// The older version's checkpoint; `None` if nothing was migrated.
    pub at: Option<CheckpointId>,
    /// Keys that have another value now.
    pub changed: BTreeSet<String>,
    /// Keys that are gone.
    pub removed: BTreeSet<String>,
    /// The body of that checkpoint as the older version left it.
    before: Option<Box<CheckpointBody>>,
}

/// Brings what a store kept of a frame up to this version of its graph. Says
/// which keys have changed, and which are gone.
///
/// # Errors
/// The frame is of a newer version, or a migration refused a value; nothing
/// changed then.
fn migrate(
    graph: &CompiledGraph,
    stored: u32,
    body: &mut CheckpointBody,
    values: &mut Values,
    outcomes: &mut [&mut StoredOutcome],
) -> Result<(BTreeSet<String>, BTreeSet<String>), Misfit> {
    let (name, version, migrations) = (&graph.name, graph.version, &graph.migrations);
    let known = |stored: u32| match stored > version {
        true => Err(Misfit::NewerVersion { graph: name.clone(), stored, known: version }),
        false => Ok(stored),
    };
    let refused = |(key, problem)| Misfit::Migration { graph: name.clone(), version, key, problem };
    known(stored)?;
    // What tasks have written has a version of its own: it may have been
    // written after this checkpoint was migrated, and before there was another.
    let mut migrated: Vec<StoredOutcome> = Vec::with_capacity(outcomes.len());
    for outcome in outcomes.iter() {
        let mut outcome = StoredOutcome::clone(outcome);
        let from = known(outcome.version.unwrap_or(stored))?;
        migrations.apply_to_outcome(from, version, &mut outcome).map_err(refused)?;
        migrated.push(StoredOutcome { version: Some(version), ..outcome });
    }
    let (mut new_body, mut new_values) = (body.clone(), values.clone());
    migrations.apply(stored, version, &mut new_body, &mut new_values).map_err(refused)?;
    let differs = |key: &&str| values.get(key) != new_values.get(key);
    let changed = new_values.keys().filter(differs).map(str::to_owned).collect();
    let removed = values.keys().filter(|key| new_values.get(key).is_none()).map(str::to_owned).collect();
    (*body, *values) = (new_body, new_values);
    outcomes.iter_mut().zip(migrated).for_each(|(outcome, migrated)| **outcome = migrated);
    Ok((changed, removed))
}

impl Position {
    /// Says that the frame was left under this version of its graph, which is
    /// for [`take_over`](Self::take_over) to know.
    #[must_use]
    pub fn left_under(self, version: u32) -> Self {
        Self { left_under: Some(version), ..self }
    }

    /// Makes a restored frame one of `graph`: brings it up to the version of
    /// that, and [adopts](Self::adopt) it.
    ///
    /// # Errors
    /// The frame is of a newer version, or a migration refused a value. Whether
    /// its nodes are there is for [`misfits`](Self::misfits) to say.
    pub fn take_over(self, graph: &CompiledGraph) -> Result<Self, Misfit> {
        let stored = self.left_under.unwrap_or(graph.version);
        let mut position = Self { left_under: None, ..self };
        let own = |outcome: &&mut StoredOutcome| !outcome.parent;
        let older = |outcome: &StoredOutcome| outcome.version.is_some_and(|version| version != graph.version);
        let written = position.tasks.iter().filter_map(|task| task.record.outcome.as_ref());
        if stored == graph.version && !written.filter(|outcome| !outcome.parent).any(older) {
            return Ok(position.adopt(graph));
        }
        let before = position.body();
        let (mut body, mut values) = (before.clone(), position.state.values().clone());
        let outcomes = position.tasks.iter_mut().filter_map(|task| task.record.outcome.as_mut()).filter(own);
        let (changed, removed) = migrate(graph, stored, &mut body, &mut values, &mut outcomes.collect::<Vec<_>>())?;
        if stored != graph.version {
            let at = Some(position.checkpoint.id.clone());
            position.migrated = Migrated { at, changed, removed, before: Some(Box::new(before)) };
        }
        // A migration renames, so that the tasks are the same ones in the same order.
        position.tasks.iter_mut().zip(body.tasks).for_each(|(task, plan)| task.plan = plan);
        (position.arrivals, position.deferred, position.ran) = (body.arrivals, body.deferred, body.ran);
        position.state = Arc::new(StateView::new(values));
        Ok(position.adopt(graph))
    }

    /// What goes over the body of this checkpoint in a store, because its stops
    /// have changed: of one that a migration brought up, in the words of the
    /// older version, so that it is brought up again when it is read again.
    #[must_use]
    pub fn stored_body(&self) -> CheckpointBody {
        let body = self.body();
        match &self.migrated {
            Migrated { at: Some(at), before: Some(before), .. } if *at == self.checkpoint.id => {
                CheckpointBody { border: body.border, resume_all: body.resume_all, ..before.as_ref().clone() }
            }
            _ => body,
        }
    }
}

/// Brings a chain of checkpoints to go back to, each with the version that made
/// it, up to this build's versions. Says what that did to the root frame's.
///
/// # Errors
/// One is of a newer version, or a migration refused a value.
pub fn migrate_chain(graph: &CompiledGraph, chain: &mut [(u32, Archived)]) -> Result<Migrated, Misfit> {
    let mut of_root = Migrated::default();
    let (mut graph, mut around): (_, Option<&CheckpointBody>) = (Some(graph), None);
    for (version, archived) in chain {
        if let (Some(body), Some(key)) = (around, &archived.task) {
            let task = body.tasks.iter().find(|task| task.key == *key);
            graph = task.zip(graph).and_then(|(task, graph)| graph.node(&task.node)?.subgraph().map(Arc::as_ref));
        }
        // A graph that only a body knows is the body's own affair.
        let Some(graph) = graph else { break };
        let (changed, removed) = migrate(graph, *version, &mut archived.body, &mut archived.values, &mut [])?;
        if around.is_none() && *version != graph.version {
            of_root = Migrated { at: Some(archived.checkpoint.id.clone()), changed, removed, before: None };
        }
        around = Some(&archived.body);
    }
    Ok(of_root)
}

impl Position {
    /// Everything that does not fit `graph`, in this frame and inside.
    #[must_use]
    pub fn misfits(&self, graph: &CompiledGraph) -> Vec<Misfit> {
        let mut misfits = Vec::new();
        self.collect_misfits(graph, None, &mut misfits);
        misfits
    }

    fn collect_misfits(&self, graph: &CompiledGraph, around: Option<&CompiledGraph>, misfits: &mut Vec<Misfit>) {
        let (name, version) = (graph.name.clone(), graph.version);
        for node in self.due().into_iter().filter(|node| !graph.nodes.contains_key(*node)) {
            misfits.push(Misfit::NodeGone { graph: name.clone(), version, node: node.to_owned() });
        }
        for join in self.arrivals.keys().filter(|join| !graph.has_join(join)) {
            misfits.push(Misfit::JoinGone { graph: name.clone(), version, join: join.clone() });
        }
        self.collect_unreadable(graph, misfits);
        for task in &self.tasks {
            if let Some(outcome) = task.record.outcome.as_ref().filter(|outcome| outcome.parent)
                && let Some(problem) = around.and_then(|around| unknown_to_parent(around, outcome))
            {
                misfits.push(Misfit::Write { graph: name.clone(), version, task: task.plan.key.clone(), problem });
            }
            // What a body calls has a graph that only the body knows.
            let Some(frame) = task.record.frames.get(&task.plan.address) else { continue };
            let Some(node) = graph.node(&task.plan.node) else { continue };
            match node.subgraph() {
                Some(inner) => frame.collect_misfits(inner, Some(graph), misfits),
                None => {
                    let node = task.plan.node.clone();
                    misfits.push(Misfit::GraphGone { graph: name.clone(), version, node });
                }
            }
        }
    }

    /// The nodes that are planned, wait, or follow from what has finished.
    fn due(&self) -> BTreeSet<&str> {
        let planned = self.tasks.iter().map(|task| &task.plan.node).chain(&self.deferred);
        let finished = self.tasks.iter().filter_map(|task| task.record.outcome.as_ref()).filter(|o| !o.parent);
        let targets = finished.flat_map(|outcome| outcome.targets.iter().flatten().chain(&outcome.goto));
        let targets = targets.map(Goto::node).filter(|node| *node != END_NAME);
        planned.map(String::as_str).chain(targets).collect()
    }

    /// What of the state does not read as the graph's.
    fn collect_unreadable(&self, graph: &CompiledGraph, misfits: &mut Vec<Misfit>) {
        let values = self.state.values();
        let held = graph.keys.iter().filter_map(|(key, spec)| spec.reducer.unfit(key, values.get(key)?));
        // Decoded anew: what is cached may be of the program that ran before.
        let faults: Vec<StateFault> = held.chain(unread(graph, values)).collect();
        let (name, version) = (&graph.name, graph.version);
        let state = |fault: &StateFault| Misfit::State { graph: name.clone(), version, problem: fault.to_string() };
        misfits.extend(faults.iter().map(state));
        if faults.is_empty() {
            let written = self.unfit_writes(graph).into_iter();
            misfits.extend(written.map(|(task, problem)| Misfit::Write {
                graph: name.clone(),
                version,
                task,
                problem,
            }));
        }
    }

    /// Finished tasks whose writes the end of the superstep could not apply, or
    /// after which the state would not read.
    fn unfit_writes(&self, graph: &CompiledGraph) -> Vec<(String, String)> {
        let finished = self.tasks.iter().filter_map(|task| Some((&task.plan.key, task.record.outcome.as_ref()?)));
        let finished: Vec<_> = finished.filter(|(_, outcome)| !outcome.parent).collect();
        let all: Vec<_> = finished.iter().flat_map(|(_, outcome)| outcome.writes.iter().cloned()).collect();
        match reduce_writes(graph, &self.state, &all) {
            Ok(changes) if changes.is_empty() => Vec::new(),
            Ok(changes) => {
                let mut values = self.state.values().clone();
                changes.iter().for_each(|(key, change)| values.apply(key, change));
                let Some(fault) = unread(graph, &values) else { return Vec::new() };
                let wrote = |outcome: &StoredOutcome| outcome.writes.iter().any(|(key, _)| key == fault.key());
                let writer = finished.iter().find(|(_, outcome)| wrote(outcome)).or(finished.first());
                writer.map(|(task, _)| ((*task).clone(), fault.to_string())).into_iter().collect()
            }
            // What only fails together fails at the superstep's end, by name.
            Err(_) => {
                let alone = |outcome: &StoredOutcome| reduce_writes(graph, &self.state, &outcome.writes).err();
                finished.iter().filter_map(|(task, outcome)| Some(((*task).clone(), alone(outcome)?))).collect()
            }
        }
    }
}

fn unread(graph: &CompiledGraph, values: &Values) -> Option<StateFault> {
    StateView::new(values.clone()).typed(graph.codec.as_ref()).err()
}

/// What a handed-over result names that the graph around does not have.
fn unknown_to_parent(around: &CompiledGraph, outcome: &StoredOutcome) -> Option<String> {
    let key = outcome.writes.iter().map(|(key, _)| key).find(|key| !around.keys.contains_key(*key));
    let node = outcome.goto.iter().map(Goto::node).find(|node| *node != END_NAME && !around.nodes.contains_key(*node));
    key.map(|key| format!("graph `{}` around it has no key `{key}`", around.name))
        .or_else(|| node.map(|node| format!("graph `{}` around it has no node `{node}`", around.name)))
}
