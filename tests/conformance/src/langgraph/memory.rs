//! The kernel's own driver as a subject: one per thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use countersign_kernel::driver::{Driver, HistoryEntry, Refused as KernelRefused, RunRequest};
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::ids::InterruptId;
use countersign_kernel::machine::{Amend, Edit as KernelEdit, EditRefused, Resume, Source};
use countersign_kernel::occurrence::PointKind;
use serde_json::Value;

use super::body::declared;
use super::subject::{
    Edit, Entry, Frame, Origin, Question, Refused, Request, Subject, View, checkpoint_id, frame_graph, goto, is_called,
    question_path,
};

/// The in-memory driver.
#[derive(Debug)]
pub struct Memory {
    graph: Arc<CompiledGraph>,
    threads: BTreeMap<String, Driver>,
}

impl Memory {
    /// Runs threads of `graph`.
    #[must_use]
    pub fn new(graph: CompiledGraph) -> Self {
        Self { graph: Arc::new(graph), threads: BTreeMap::new() }
    }

    fn thread(&mut self, thread: &str) -> &mut Driver {
        let number = u8::try_from(self.threads.len()).unwrap_or(u8::MAX);
        let graph = &self.graph;
        self.threads.entry(thread.to_owned()).or_insert_with(|| Driver::new(Arc::clone(graph)).with_salt([number; 16]))
    }
}

#[async_trait]
impl Subject for Memory {
    async fn run(&mut self, thread: &str, request: Request) -> Result<(), Refused> {
        let input = request.input.map(|input| declared(&self.graph, Value::Object(input)));
        let Value::Object(update) = declared(&self.graph, Value::Object(request.update)) else {
            return Err(Refused::Other("an update is an object".to_owned()));
        };
        let mut answers = Vec::new();
        for (id, value) in request.answers {
            answers.push((InterruptId::parse(id).map_err(|_| Refused::NotOpen)?, value));
        }
        // (R1): every run of the reference that goes on does so everywhere;
        // fresh input meets the stops before its first nodes.
        let goes_on = input.is_none();
        let request = RunRequest {
            discard: input.is_some(),
            input,
            at: request.at.map(checkpoint_id).transpose()?,
            resume: Resume { release: goes_on, retry: goes_on, ..Resume::default() },
            answers,
            amend: Amend { update, goto: request.targets.into_iter().map(goto).collect() },
            supersteps: Some(request.supersteps),
        };
        self.thread(thread).run(request).await.map_err(refused)
    }

    async fn edit(&mut self, thread: &str, edit: Edit) -> Result<String, Refused> {
        let inner = edit.frame.as_deref().map(|path| frame_graph(&self.graph, path)).transpose()?;
        let graph = inner.as_ref().unwrap_or(&self.graph);
        let values = match edit.values.map(|values| declared(graph, Value::Object(values))) {
            Some(Value::Object(values)) => Some(values),
            _ => None,
        };
        let driver = self.thread(thread);
        let frame = match edit.frame {
            None => None,
            Some(path) => {
                let frame = driver.frames().into_iter().find(|frame| frame.path == path && !is_called(&frame.address));
                Some(frame.ok_or_else(|| Refused::Other(format!("nothing is paused at {path:?}")))?.id)
            }
        };
        let at = edit.at.map(checkpoint_id).transpose()?;
        let made = driver.edit(&KernelEdit { values, as_node: edit.as_node }, at.as_ref(), frame.as_ref());
        made.map(|id| id.as_str().to_owned()).map_err(refused)
    }

    async fn view(&mut self, thread: &str) -> Result<View, String> {
        let driver = self.thread(thread);
        let points = driver.points();
        let exhausted = |payload: &Value| payload["reason"] == "recursion_limit";
        Ok(View {
            checkpoint: driver.position().map(|position| position.checkpoint.id.as_str().to_owned()),
            root: Frame { values: driver.live_state(), next: driver.next().into_iter().map(str::to_owned).collect() },
            exhausted: points.iter().any(|point| point.kind == PointKind::Pause && exhausted(&point.payload)),
            questions: points
                .into_iter()
                .filter(|point| !matches!(point.kind, PointKind::Break | PointKind::Pause))
                .map(|point| Question {
                    id: point.id.as_str().to_owned(),
                    path: question_path(&point.address),
                    payload: point.payload,
                })
                .collect(),
            failed: driver.failures(),
            frames: driver
                .frames()
                .into_iter()
                .filter(|frame| !is_called(&frame.address))
                .map(|frame| (frame.path.join("/"), Frame { values: frame.values, next: frame.next }))
                .collect(),
        })
    }

    async fn history(&mut self, thread: &str) -> Result<Vec<Entry>, String> {
        Ok(self.thread(thread).history().into_iter().map(entry).collect())
    }

    async fn reopen(&mut self) -> Result<(), String> {
        let threads = std::mem::take(&mut self.threads).into_iter();
        self.threads = threads.map(|(name, driver)| (name, driver.reopen(Arc::clone(&self.graph)))).collect();
        Ok(())
    }
}

fn entry(entry: HistoryEntry) -> Entry {
    let HistoryEntry { checkpoint, values, next, .. } = entry;
    Entry {
        id: checkpoint.id.as_str().to_owned(),
        parent: checkpoint.parent.map(|parent| parent.as_str().to_owned()),
        origin: match checkpoint.source {
            Source::Input | Source::Loop | Source::Update => Origin::Own,
            Source::Fork => Origin::Copy,
            Source::Amend => Origin::Amended,
        },
        record: Frame { values, next },
    }
}

fn refused(refused: KernelRefused) -> Refused {
    match refused {
        KernelRefused::NeverRan | KernelRefused::Resume(_) | KernelRefused::Edit(EditRefused::NothingPending) => {
            Refused::NothingPending
        }
        KernelRefused::NotOpen(_) | KernelRefused::NotAnswerable(_) => Refused::NotOpen,
        KernelRefused::Edit(EditRefused::UnknownNode { .. } | EditRefused::Ambiguous(_)) => {
            Refused::BadNode(refused.to_string())
        }
        KernelRefused::Invalid(_) => Refused::Invalid(refused.to_string()),
        other => Refused::Other(other.to_string()),
    }
}
