//! A thread on the worker and a data file or a database, through the worker's public API.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::machine::FrameView;
use countersign_kernel::principal::Principal;
use countersign_worker::engine::{Engine, RequestError, ResumeRequest};
use countersign_worker::store::{Refusal, StoreError};
use tokio::sync::Barrier;

use super::app::App;
use super::expect::{Reason, SeenRefusal};
use super::model::{Cancel, Status};
use super::subject::{Look, Pause, Request, Thread};
use crate::stored::{On, Place};

/// A thread in a data file or a database.
pub(super) struct Stored {
    place: Place,
    thread: ThreadId,
    graph: String,
    /// Whether each request meets the thread after a restart.
    restarts: bool,
}

impl Stored {
    /// A thread of the app that never ran.
    ///
    /// # Errors
    /// The worker does not start.
    pub(super) async fn open(on: On, app: &App) -> Result<Self, String> {
        let thread = ThreadId::parse("thread").map_err(|problem| problem.to_string())?;
        let graph = app.graph.name().to_owned();
        Ok(Self { place: Place::open(on, Arc::clone(&app.program)).await?, thread, graph, restarts: false })
    }

    /// The same, with the worker shut down and started anew before each request.
    #[cfg(test)]
    pub(super) async fn restarting(on: On, app: &App) -> Result<Self, String> {
        Ok(Self { restarts: true, ..Self::open(on, app).await? })
    }

    async fn wait(&self, pause: Option<Pause<'_>>) -> Result<(), String> {
        let rests = self.place.rests(&self.thread);
        let Some(pause) = pause else { return rests.await };
        let engine = self.place.engine()?;
        let by = self.place.caller();
        let ask = pause.once_hanging(async |how| engine.pause(&self.thread, how == Cancel::Now, &by).await);
        let mut rests = std::pin::pin!(rests);
        tokio::select! {
            rest = &mut rests => rest,
            asked = ask => {
                asked.map_err(|problem| problem.to_string())?;
                rests.await
            }
        }
    }
}

#[async_trait]
impl Thread for Stored {
    async fn perform(&mut self, request: Request, pause: Option<Pause<'_>>) -> Result<(), SeenRefusal> {
        if self.restarts {
            self.place.restart().await.map_err(broken)?;
        }
        let engine = self.place.engine().map_err(broken)?;
        ask(engine, &self.graph, self.thread.clone(), self.place.caller(), request).await?;
        self.wait(pause).await.map_err(broken)
    }

    async fn together(&mut self, requests: Vec<Request>) -> Vec<Result<(), SeenRefusal>> {
        let start = Arc::new(Barrier::new(requests.len()));
        let mut asked = Vec::new();
        for request in requests {
            let engine = match self.place.engine() {
                Ok(engine) => engine.clone(),
                Err(problem) => return vec![Err(broken(problem))],
            };
            let (graph, thread, by) = (self.graph.clone(), self.thread.clone(), self.place.caller());
            let start = Arc::clone(&start);
            asked.push(self.place.spawn(async move {
                start.wait().await;
                ask(&engine, &graph, thread, by, request).await
            }));
        }
        let mut results = Vec::new();
        for asked in asked {
            results.push(match asked {
                Ok(asked) => asked.await.unwrap_or_else(|problem| Err(broken(problem.to_string()))),
                Err(problem) => Err(broken(problem)),
            });
        }
        match self.place.rests(&self.thread).await {
            Ok(()) => results,
            Err(problem) => vec![Err(broken(problem))],
        }
    }

    async fn look(&mut self) -> Result<Look, String> {
        let Some(view) = self.place.look(&self.thread).await? else {
            return Ok(Look {
                status: Status::NoThread,
                points: Vec::new(),
                state: serde_json::Map::new(),
                frames: Vec::new(),
                errors: Vec::new(),
            });
        };
        let frames = view.frames.into_iter().map(|frame| FrameView {
            id: frame.frame,
            address: frame.address,
            path: frame.path,
            values: frame.values,
            next: frame.next,
        });
        Ok(Look {
            status: match view.detail.summary.status.as_str() {
                "parked" => Status::Interrupted,
                "succeeded" => Status::Done,
                "failed" => Status::Failed,
                other => return Err(format!("the thread is {other}")),
            },
            points: view.points,
            state: view.values,
            frames: frames.collect(),
            errors: view.failures.into_iter().map(|(_, message)| message).collect(),
        })
    }
}

async fn ask(
    engine: &Engine,
    graph: &str,
    thread: ThreadId,
    by: Principal,
    request: Request,
) -> Result<(), SeenRefusal> {
    let asked = match request.input {
        Some(input) => match engine.start(graph, &input, Some(thread.clone()), &by).await {
            Err(RequestError::Store(StoreError::Refused(Refusal::ThreadExists { .. }))) => {
                engine.restart(&thread, &input, request.discard, &by, &|_, _, _| None).await.map(|_| ())
            }
            started => started.map(|_| ()),
        },
        None => {
            let answers: BTreeMap<_, _> = request.answers.into_iter().collect();
            let request = ResumeRequest {
                answers,
                resume: request.resume,
                principal: by,
                operator: true,
                ..ResumeRequest::new(thread)
            };
            engine.resume(request).await.map(|_| ())
        }
    };
    asked.map_err(|refused| refusal(&refused))
}

/// The refusal in the words of K11.
fn refusal(refused: &RequestError) -> SeenRefusal {
    let (id, word) = match refused {
        RequestError::InvalidInput(_) | RequestError::Edit(_) => (None, "invalid_data"),
        RequestError::Store(StoreError::Refused(refusal)) => match refusal {
            Refusal::UnknownInterrupt(id) => (Some(id), "unknown"),
            Refusal::AlreadyAnswered { interrupt, .. } => (Some(interrupt), "already_answered"),
            Refusal::Superseded { interrupt, .. } => (Some(interrupt), "superseded"),
            Refusal::NotAnswerable { interrupt } => (Some(interrupt), "not_answerable"),
            Refusal::InvalidAnswer { interrupt, .. } | Refusal::CarriesUpdate { interrupt, .. } => {
                (Some(interrupt), "invalid_data")
            }
            Refusal::ThreadInterrupted => (None, "thread_interrupted"),
            Refusal::ThreadBusy => (None, "thread_busy"),
            Refusal::UnknownThread(_) => (None, "unknown_thread"),
            Refusal::ThreadEnded(_)
            | Refusal::NothingToContinue
            | Refusal::NothingToRetry
            | Refusal::NothingPending => (None, "nothing_pending"),
            _ => return broken(refused.to_string()),
        },
        _ => return broken(refused.to_string()),
    };
    SeenRefusal { id: id.map(ToString::to_string), reason: Reason::Exactly(word.to_owned()) }
}

/// What no scenario expects, in the worker's words.
fn broken(problem: String) -> SeenRefusal {
    SeenRefusal { id: None, reason: Reason::Exactly(problem) }
}
