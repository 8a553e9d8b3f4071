//! The worker on a data file or a database as a subject, through its public API.

use std::collections::BTreeMap;

use async_trait::async_trait;
use countersign_kernel::graph::{CompiledGraph, START};
use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::machine::{Amend, Edit as KernelEdit, EditRefused, Resume};
use countersign_kernel::occurrence::PointKind;
use countersign_kernel::principal::Principal;
use countersign_worker::engine::{EditRequest, Edited, Engine, ReplayRequest, RequestError, ResumeRequest};
use countersign_worker::store::views::HistoryEntry;
use countersign_worker::store::{Refusal, StoreError};
use serde_json::{Map, Value};

use super::body::declared;
use super::subject::{
    Edit, Entry, Frame, Origin, Question, Refused, Request, Subject, Target, View, checkpoint_id, frame_graph, goto,
    is_called, question_path,
};
use crate::stored::{Between, On, Place, Program};

/// Threads of one graph in a data file or a database.
#[derive(Debug)]
pub struct Stored {
    place: Place,
    graph: CompiledGraph,
}

impl Stored {
    /// Runs threads of the program on a file or a database of its own.
    ///
    /// # Errors
    /// The graph is faulty, or the worker does not start.
    pub async fn open(on: On, program: Program) -> Result<Self, String> {
        Ok(Self { graph: program()?, place: Place::open(on, program).await? })
    }

    /// What stands between engine and store from the next process on.
    pub fn set_between(&mut self, between: Between) {
        self.place.set_between(between);
    }

    /// Ends the process where it stands and starts another.
    ///
    /// # Errors
    /// It does not start.
    pub async fn crash(&mut self) -> Result<(), String> {
        self.place.crash().await
    }

    /// Waits until a thread rests.
    ///
    /// # Errors
    /// It does not, or cannot be read.
    pub async fn rests(&self, thread: &str) -> Result<(), String> {
        self.place.rests(&thread_id(thread)?).await
    }

    /// Asks for a run; does not wait for it.
    ///
    /// # Errors
    /// Why it was refused.
    pub async fn ask(&self, thread: &str, request: Request) -> Result<(), Refused> {
        let engine = self.place.engine().map_err(Refused::Other)?;
        let thread = thread_id(thread).map_err(Refused::Other)?;
        let by = self.place.caller();
        let input = request.input.map(|input| declared(&self.graph, Value::Object(input)));
        let supersteps = Some(request.supersteps);
        // (R1): every run of the reference that goes on does so everywhere;
        // fresh input meets the stops before its first nodes.
        let goes_on = input.is_none();
        let resume = Resume { release: goes_on, retry: goes_on, supersteps, ..Resume::default() };
        let asked = match (input, request.at) {
            (input, Some(at)) => {
                if !request.answers.is_empty() || !request.update.is_empty() || !request.targets.is_empty() {
                    return Err(Refused::Other("a replay takes neither answers nor amendments".to_owned()));
                }
                let checkpoint = checkpoint_id(at)?;
                let replay = ReplayRequest { thread, checkpoint, input, re_execute: true, resume, principal: by };
                engine.replay(&replay, &|_, _, _| None).await.map(|_| ())
            }
            (Some(input), None) if self.is_known(engine, &thread).await? => {
                let restarted = engine.restart_within(&thread, &input, true, supersteps, &by, &|_, _, _| None).await;
                restarted.map(|_| ())
            }
            (Some(input), None) if !request.update.is_empty() || !request.targets.is_empty() => {
                // The input lies there, nothing has run, and what is added goes
                // with the release of that pause alone.
                let edit = KernelEdit { values: Some(object(input)?), as_node: Some(START.to_owned()) };
                engine.start_by_edit(self.graph.name(), &edit, thread.clone(), &by).await.map_err(refused)?;
                let answers = self.pauses(&thread).await.map_err(Refused::Other)?;
                let amend = self.amend(request.update, request.targets)?;
                self.resume(engine, thread, answers, amend, resume, by).await
            }
            (Some(input), None) => {
                let graph = self.graph.name();
                engine.start_within(graph, &input, Some(thread), supersteps, &by, &|_, _, _| None).await.map(|_| ())
            }
            (None, None) => {
                let mut answers = BTreeMap::new();
                for (id, value) in request.answers {
                    answers.insert(InterruptId::parse(id).map_err(|_| Refused::NotOpen)?, value);
                }
                let amend = self.amend(request.update, request.targets)?;
                self.resume(engine, thread, answers, amend, resume, by).await
            }
        };
        asked.map_err(refused)
    }

    async fn resume(
        &self,
        engine: &Engine,
        thread: ThreadId,
        answers: BTreeMap<InterruptId, Value>,
        amend: Amend,
        resume: Resume,
        principal: Principal,
    ) -> Result<(), RequestError> {
        let request = ResumeRequest { answers, amend, resume, principal, operator: true, ..ResumeRequest::new(thread) };
        engine.resume(request).await.map(|_| ())
    }

    fn amend(&self, update: Map<String, Value>, targets: Vec<Target>) -> Result<Amend, Refused> {
        let update = object(declared(&self.graph, Value::Object(update)))?;
        Ok(Amend { update, goto: targets.into_iter().map(goto).collect() })
    }

    /// The answers that release the pauses of a thread, and nothing else.
    async fn pauses(&self, thread: &ThreadId) -> Result<BTreeMap<InterruptId, Value>, String> {
        let points = self.place.look(thread).await?.into_iter().flat_map(|view| view.points);
        let pauses = points.filter(|point| point.kind == PointKind::Pause);
        Ok(pauses.map(|point| (point.id, Value::Null)).collect())
    }

    async fn is_known(&self, engine: &Engine, thread: &ThreadId) -> Result<bool, Refused> {
        match engine.store().head(thread).await {
            Ok(_) => Ok(true),
            Err(StoreError::Refused(Refusal::UnknownThread(_))) => Ok(false),
            Err(problem) => Err(Refused::Other(problem.to_string())),
        }
    }
}

#[async_trait]
impl Subject for Stored {
    async fn run(&mut self, thread: &str, request: Request) -> Result<(), Refused> {
        self.ask(thread, request).await?;
        self.rests(thread).await.map_err(Refused::Other)
    }

    async fn edit(&mut self, thread: &str, edit: Edit) -> Result<String, Refused> {
        let engine = self.place.engine().map_err(Refused::Other)?;
        let id = thread_id(thread).map_err(Refused::Other)?;
        let by = self.place.caller();
        let values = match &edit.frame {
            None => edit.values.map(|values| declared(&self.graph, Value::Object(values))),
            Some(path) => {
                let graph = frame_graph(&self.graph, path)?;
                edit.values.map(|values| declared(&graph, Value::Object(values)))
            }
        };
        let kernel = KernelEdit { values: values.map(object).transpose()?, as_node: edit.as_node };
        let edited = if self.is_known(engine, &id).await? {
            let frame = match edit.frame {
                None => None,
                Some(path) => {
                    let view = self.place.look(&id).await.map_err(Refused::Other)?;
                    let mut frames = view.into_iter().flat_map(|view| view.frames);
                    let frame = frames.find(|frame| frame.path == path && !is_called(&frame.address));
                    Some(frame.ok_or_else(|| Refused::Other(format!("nothing is paused at {path:?}")))?.frame)
                }
            };
            let at = edit.at.map(checkpoint_id).transpose()?;
            let request = EditRequest { thread: id, edit: kernel, expected_head: None, at, frame, principal: by };
            engine.edit(request).await
        } else {
            engine.start_by_edit(self.graph.name(), &kernel, id, &by).await
        };
        let checkpoint = match edited.map_err(refused)? {
            Edited::New { checkpoint, .. } => checkpoint.as_str().to_owned(),
            Edited::Replayed { body, .. } => return Err(Refused::Other(format!("was made before: {body}"))),
        };
        self.rests(thread).await.map_err(Refused::Other)?;
        Ok(checkpoint)
    }

    async fn view(&mut self, thread: &str) -> Result<View, String> {
        let Some(view) = self.place.look(&thread_id(thread)?).await? else { return Ok(View::default()) };
        let exhausted = |payload: &Value| payload["reason"] == "recursion_limit";
        let points = view.points;
        Ok(View {
            checkpoint: Some(view.detail.head.as_str().to_owned()),
            root: Frame { values: view.values, next: view.next },
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
            failed: view.failures,
            frames: view
                .frames
                .into_iter()
                .filter(|frame| !is_called(&frame.address))
                .map(|frame| (frame.path.join("/"), Frame { values: frame.values, next: frame.next }))
                .collect(),
        })
    }

    async fn history(&mut self, thread: &str) -> Result<Vec<Entry>, String> {
        self.place.history(&thread_id(thread)?).await?.into_iter().map(entry).collect()
    }

    async fn reopen(&mut self) -> Result<(), String> {
        self.place.restart().await
    }
}

fn thread_id(thread: &str) -> Result<ThreadId, String> {
    ThreadId::parse(thread).map_err(|problem| problem.to_string())
}

fn object(value: Value) -> Result<Map<String, Value>, Refused> {
    match value {
        Value::Object(members) => Ok(members),
        other => Err(Refused::Other(format!("{other} is no object"))),
    }
}

fn entry(entry: HistoryEntry) -> Result<Entry, String> {
    Ok(Entry {
        id: entry.checkpoint.as_str().to_owned(),
        parent: entry.parent.map(|parent| parent.as_str().to_owned()),
        origin: match entry.source.as_str() {
            "input" | "loop" | "update" => Origin::Own,
            "fork" => Origin::Copy,
            "amend" => Origin::Amended,
            other => return Err(format!("a checkpoint of unknown origin `{other}`")),
        },
        record: Frame { values: entry.state, next: entry.next },
    })
}

fn refused(refused: RequestError) -> Refused {
    let message = refused.to_string();
    match refused {
        RequestError::Edit(EditRefused::NothingPending) => Refused::NothingPending,
        RequestError::Edit(EditRefused::UnknownNode { .. } | EditRefused::Ambiguous(_)) => Refused::BadNode(message),
        RequestError::InvalidInput(_) => Refused::Invalid(message),
        RequestError::Store(StoreError::Refused(refusal)) => match refusal {
            Refusal::UnknownThread(_)
            | Refusal::ThreadEnded(_)
            | Refusal::NothingToContinue
            | Refusal::NothingToRetry
            | Refusal::NothingPending => Refused::NothingPending,
            Refusal::UnknownInterrupt(_)
            | Refusal::AlreadyAnswered { .. }
            | Refusal::Superseded { .. }
            | Refusal::NotAnswerable { .. } => Refused::NotOpen,
            Refusal::InvalidAnswer { .. } | Refusal::CarriesUpdate { .. } => Refused::Invalid(message),
            _ => Refused::Other(message),
        },
        _ => Refused::Other(message),
    }
}
