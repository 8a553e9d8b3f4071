//! Changing course: edits, amendments, replays (R5, R13).

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::complete::{check_target, check_writes, decide};
use super::given::{add_fault, check_types, reduce_each};
use super::points::BorderReason;
use super::route::Due;
use super::settle::{StepChanges, new_checkpoint};
use super::{Budget, FramePlace, Outside, Position, Rest, Source, TaskRecord, TaskStatus};
use crate::fault::Fault;
use crate::graph::{CompiledGraph, END_NAME, START};
use crate::ids::{FrameId, InterruptId};
use crate::node::Goto;
use crate::state::StateView;

/// An edit of the state, as if a node had run and written it (`update_state`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Edit {
    /// What is written, through the reducers. `None` writes nothing, which as
    /// a waiting node skips it.
    pub values: Option<Map<String, Value>>,
    /// The node that counts as having run; what follows it is due next.
    /// [`START`] is the input, [`END_NAME`] ends the run. `None` is the node
    /// that ran last; without values as well, the same tasks are due afresh.
    pub as_node: Option<String>,
}

/// What a resume changes in the superstep that it wakes (R5): waiting tasks
/// keep their ids and answers, finished ones their results.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Amend {
    /// Written to the state, through the reducers; the tasks that run next see it.
    pub update: Map<String, Value>,
    /// Tasks to run beside those that wait.
    pub goto: Vec<Goto>,
}

impl Amend {
    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.update.is_empty() && self.goto.is_empty()
    }
}

/// Why an edit, an amendment or a replay is not done; nothing changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EditRefused {
    /// No such node.
    #[error("the graph has no node `{node}`{}; known: {}", meant(.node, .known), .known.join(", "))]
    UnknownNode {
        /// The name.
        node: String,
        /// The names that could stand there.
        known: Vec<String>,
    },
    /// Several nodes ran last, so the edit has to say as which it counts.
    #[error("several nodes ran last ({}): say as which node this counts", .0.join(", "))]
    Ambiguous(Vec<String>),
    /// What is written does not fit.
    #[error("the values do not fit: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Fault>),
    /// There is nothing to run from here.
    #[error("nothing is left to run at this checkpoint")]
    NothingPending,
    /// No unfinished frame has this id, or only a body knows its graph.
    #[error("no unfinished sub-graph of this thread has the id {0}")]
    UnknownFrame(FrameId),
}

impl Position {
    /// Edits the state: a new checkpoint, planned anew. What waited in this
    /// frame and below is dropped. A pause point keeps what is due until
    /// somebody says `continue` (R11).
    ///
    /// # Errors
    /// See [`EditRefused`].
    pub fn edit(
        &mut self,
        graph: &CompiledGraph,
        edit: &Edit,
        outside: Outside<'_>,
    ) -> Result<StepChanges, EditRefused> {
        if *edit == Edit::default() {
            return Ok(self.ask_anew(outside));
        }
        let node = self.edited_as(graph, edit)?;
        if node == END_NAME {
            return self.end_by_edit(graph, edit, outside);
        }
        let writes: Vec<_> = edit.values.iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
        let (changes, state) = self.written(graph, &writes)?;
        let mut due = Due::default();
        for target in decide(graph, &node, &state).map_err(invalid)? {
            due.add(target);
        }
        due.follow(graph, &node);
        let before = (self.arrivals.clone(), self.deferred.clone());
        self.forget_gone(graph);
        self.clear_joins_to(graph, &node);
        self.arrive(graph, &BTreeSet::from([node.clone()]));
        let checkpoint = self.following(outside, Source::Update);
        match self.plan(graph, &checkpoint, due) {
            Ok(tasks) => self.tasks = tasks,
            Err(message) => {
                (self.arrivals, self.deferred) = before;
                return Err(invalid(message));
            }
        }
        self.checkpoint = checkpoint;
        self.state = state;
        self.border = Vec::new();
        self.resume_all = false;
        let finished = edit.as_node.iter().filter(|node| graph.nodes.contains_key(*node)).cloned().collect();
        self.stop_at_breakpoints(graph, outside, &finished);
        if self.border.is_empty() && (!self.tasks.is_empty() || self.place.id.is_some()) {
            self.raise(BorderReason::Edited, outside.clock.now());
        }
        Ok(changes)
    }

    /// An edit of nothing as nobody: the same tasks planned afresh, answers and
    /// finished work of the superstep forgotten.
    fn ask_anew(&mut self, outside: Outside<'_>) -> StepChanges {
        self.plan_afresh(Source::Update, outside);
        if self.border.is_empty() && (!self.tasks.is_empty() || self.place.id.is_some()) {
            self.raise(BorderReason::Edited, outside.clock.now());
        }
        StepChanges::new()
    }

    /// Moves to a checkpoint that plans the same tasks afresh, with ids of
    /// their own (K2), and stops at the same breakpoints.
    fn plan_afresh(&mut self, source: Source, outside: Outside<'_>) {
        let parent = Some(self.checkpoint.id.clone());
        self.checkpoint = new_checkpoint(outside, parent, source, self.checkpoint.superstep);
        for task in &mut self.tasks {
            task.record = TaskRecord::default();
            task.plan.planned_by = self.checkpoint.id.clone();
        }
        let stops = std::mem::take(&mut self.border).into_iter().map(|point| point.reason);
        for reason in stops.filter(|reason| matches!(reason, BorderReason::Breakpoint { .. })) {
            self.raise(reason, outside.clock.now());
        }
        self.resume_all = false;
    }

    /// The node that an edit counts as.
    fn edited_as(&self, graph: &CompiledGraph, edit: &Edit) -> Result<String, EditRefused> {
        match &edit.as_node {
            Some(node) if node == START || node == END_NAME || graph.nodes.contains_key(node) => Ok(node.clone()),
            Some(node) => Err(unknown_node(graph, node, &[START, END_NAME])),
            None => {
                // A newer graph may have lost a node that ran.
                let mut ran = self.ran.iter().filter(|node| graph.nodes.contains_key(*node));
                match (ran.next(), ran.next()) {
                    (None, _) => self.ran.first().map_or(Ok(START.to_owned()), |gone| {
                        // As the input would start the flow anew.
                        Err(unknown_node(graph, gone, &[START, END_NAME]))
                    }),
                    (Some(node), None) => Ok(node.clone()),
                    (Some(_), Some(_)) => Err(EditRefused::Ambiguous(self.ran.iter().cloned().collect())),
                }
            }
        }
    }

    /// As END: the results of finished tasks are kept, the rest is dropped,
    /// nothing is due (rule 64).
    fn end_by_edit(
        &mut self,
        graph: &CompiledGraph,
        edit: &Edit,
        outside: Outside<'_>,
    ) -> Result<StepChanges, EditRefused> {
        if edit.values.as_ref().is_some_and(|values| !values.is_empty()) {
            return Err(invalid("an edit as END takes no values: it only ends the run"));
        }
        let finished = self.tasks.iter().filter_map(|task| task.record.outcome.as_ref());
        let writes: Vec<_> = finished.flat_map(|outcome| outcome.writes.iter().cloned()).collect();
        let (changes, state) = self.written(graph, &writes)?;
        self.clear_joins(graph);
        self.deferred.clear();
        self.checkpoint = self.following(outside, Source::Update);
        self.state = state;
        self.tasks = Vec::new();
        self.border = Vec::new();
        if self.place.id.is_some() {
            self.raise(BorderReason::Edited, outside.clock.now());
        }
        Ok(changes)
    }

    /// The state with some writes, checked as the graph's own type as well.
    fn written(
        &self,
        graph: &CompiledGraph,
        writes: &[(String, Value)],
    ) -> Result<(StepChanges, Arc<StateView>), EditRefused> {
        let (known, unknown): (Vec<_>, Vec<_>) =
            writes.iter().cloned().partition(|(key, _)| graph.keys.contains_key(key));
        let mut faults: Vec<Fault> =
            unknown.iter().map(|(key, _)| Fault::at_member(key, "is no key of this graph")).collect();
        for write in &known {
            if let Err(message) = check_writes(graph, std::slice::from_ref(write)) {
                add_fault(&mut faults, &write.0, message);
            }
        }
        let changes = reduce_each(graph, &self.state, &known, &mut faults);
        let mut values = self.state.values().clone();
        for (key, change) in &changes {
            values.apply(key, change);
        }
        let state = StateView::new(values);
        if !changes.is_empty() {
            check_types(graph, &state, &mut faults);
        }
        if !faults.is_empty() {
            return Err(EditRefused::Invalid(faults));
        }
        Ok((changes, Arc::new(state)))
    }

    /// Amends the superstep: a new checkpoint that carries its tasks along,
    /// with more state and more tasks. A goto to a node that is planned
    /// already adds nothing (rule 8).
    ///
    /// # Errors
    /// See [`EditRefused`].
    pub fn amend(
        &mut self,
        graph: &CompiledGraph,
        amend: &Amend,
        outside: Outside<'_>,
    ) -> Result<StepChanges, EditRefused> {
        for target in &amend.goto {
            let besides: &[&str] = if matches!(target, Goto::Node(_)) { &[END_NAME] } else { &[] };
            check_target(graph, target, String::new).map_err(|_| unknown_node(graph, target.node(), besides))?;
        }
        let writes: Vec<_> = amend.update.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let (changes, state) = self.written(graph, &writes)?;
        let parent = Some(self.checkpoint.id.clone());
        let checkpoint = new_checkpoint(outside, parent, Source::Amend, self.checkpoint.superstep);
        let mut due = Due::default();
        amend.goto.iter().for_each(|target| due.add(target.clone()));
        due.nodes.retain(|node| !self.tasks.iter().any(|task| task.plan.node == *node && !task.plan.is_sent()));
        crate::limits::check_tasks(
            self.tasks.len() + due.nodes.len() + due.sends.len(),
            graph.limits.tasks_per_superstep,
        )
        .map_err(invalid)?;
        // Records lie under keys, and a renamed node's task has that of old.
        if let Some(taken) = due.nodes.iter().find(|node| self.tasks.iter().any(|task| task.plan.key == **node)) {
            return Err(invalid(format!("a task that was planned as `{taken}`, before a migration, has still to run")));
        }
        for node in due.nodes {
            let task = self.edge_task(&checkpoint, node);
            // Its place in the order of rule 2, which is that of the writes.
            let at = self.tasks.iter().position(|other| other.plan.is_sent() || other.plan.key > task.plan.key);
            self.tasks.insert(at.unwrap_or(self.tasks.len()), task);
        }
        let mut tasks = std::mem::take(&mut self.tasks);
        self.append_sends(&mut tasks, &checkpoint, due.sends);
        self.tasks = tasks;
        self.checkpoint = checkpoint;
        self.state = state;
        Ok(changes)
    }

    /// Keeps data for the released stop of an inner frame whose graph only a
    /// body knows: it is written when the body enters the frame (K12, K17).
    /// Says whether that frame is here.
    pub fn keep_update(&mut self, frame: &FrameId, stop: &InterruptId, update: Map<String, Value>) -> bool {
        let mut update = Some(update);
        self.each_mut(&mut |position| {
            if position.place.id.as_ref() == Some(frame)
                && let Some(point) = position.border.iter_mut().find(|point| point.id == *stop)
            {
                point.update = update.take();
                position.unsaved.0 = true;
            }
        });
        update.is_none()
    }

    /// What [`keep_update`](Self::keep_update) kept here, in the order of the stops.
    pub(crate) fn take_updates(&mut self) -> Map<String, Value> {
        self.border.iter_mut().filter_map(|point| point.update.take()).flatten().collect()
    }

    /// Starts over from this checkpoint: a new one that plans the same tasks
    /// afresh, with ids of their own (K2), and stops at the same breakpoints.
    ///
    /// # Errors
    /// [`EditRefused::NothingPending`] when no task is planned here.
    pub fn replay(&mut self, outside: Outside<'_>) -> Result<(), EditRefused> {
        if self.tasks.is_empty() {
            return Err(EditRefused::NothingPending);
        }
        self.plan_afresh(Source::Fork, outside);
        self.budget = Budget::new(self.budget.usual);
        Ok(())
    }

    /// Puts a frame that ran inside task `task` of this checkpoint (which was
    /// [replayed](Self::replay)) back to a checkpoint of its own, and replays
    /// it from there.
    ///
    /// # Errors
    /// As [`replay`](Self::replay).
    pub fn replay_inside(
        &mut self,
        task: &str,
        mut frame: Self,
        outside: Outside<'_>,
    ) -> Result<&mut Self, EditRefused> {
        let task = self.tasks.iter_mut().find(|planned| planned.plan.key == task);
        let task = task.ok_or(EditRefused::NothingPending)?;
        let address = frame.place.address.clone();
        let id = address.container_id(&self.salt, Some(&task.plan.planned_by)).into();
        frame.place = FramePlace { id: Some(id), address: address.clone() };
        frame.replay(outside)?;
        Ok(task.record.frames.entry(address).or_insert(frame))
    }

    /// Edits an unfinished frame; the tasks on the way to it wait for it again.
    ///
    /// # Errors
    /// See [`EditRefused`].
    pub fn edit_frame(
        &mut self,
        graph: &CompiledGraph,
        frame: &FrameId,
        edit: &Edit,
        outside: Outside<'_>,
    ) -> Result<StepChanges, EditRefused> {
        let (position, inner) = self.frame_mut(graph, frame).ok_or_else(|| EditRefused::UnknownFrame(frame.clone()))?;
        let changes = position.edit(inner, edit, outside)?;
        self.wait_for_frames();
        Ok(changes)
    }

    /// A task that failed because of what was dropped inside waits again.
    pub fn wait_for_frames(&mut self) {
        for task in &mut self.tasks {
            let record = &mut task.record;
            record.frames.values_mut().for_each(Self::wait_for_frames);
            let inside = record.frames.get(&task.plan.address);
            if record.status == TaskStatus::Failed
                && inside.is_some_and(|frame| frame.next() != super::Next::Rest(Rest::Failed))
            {
                record.status = TaskStatus::Waiting;
                record.error = None;
                task.unsaved.0 = true;
            }
        }
    }
}

/// A name that is no node's, nor one of those that may stand for one here.
fn unknown_node(graph: &CompiledGraph, node: &str, besides: &[&str]) -> EditRefused {
    let known = graph.nodes.keys().map(String::as_str).chain(besides.iter().copied());
    EditRefused::UnknownNode { node: node.to_owned(), known: known.map(str::to_owned).collect() }
}

/// The name that differs in its case only, if one does.
fn meant(node: &str, known: &[String]) -> String {
    let meant = known.iter().find(|name| name.eq_ignore_ascii_case(node));
    meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

fn invalid(message: impl Into<String>) -> EditRefused {
    EditRefused::Invalid(vec![Fault::at("", message.into())])
}
