//! A thread on the kernel's own driver, in memory.

use std::sync::Arc;

use async_trait::async_trait;
use countersign_kernel::driver::{Driver, Refused, RunRequest};
use countersign_kernel::graph::CompiledGraph;
use countersign_kernel::machine::Rest;

use super::app::App;
use super::expect::{Reason, SeenRefusal};
use super::model::{Cancel, Status};
use super::subject::{Look, Pause, Request, Thread};

/// A thread in memory.
pub(super) struct Memory {
    graph: Arc<CompiledGraph>,
    driver: Driver,
    /// Whether each request meets the thread as after a restart.
    restarts: bool,
}

impl Memory {
    /// A thread of the app that never ran.
    pub(super) fn new(app: &App) -> Self {
        Self { graph: Arc::clone(&app.graph), driver: Driver::new(Arc::clone(&app.graph)), restarts: false }
    }

    /// The same, but before each request nothing is left that a store would
    /// not keep.
    #[cfg(test)]
    pub(super) fn restarting(app: &App) -> Self {
        Self { restarts: true, ..Self::new(app) }
    }
}

#[async_trait]
impl Thread for Memory {
    async fn perform(&mut self, request: Request, pause: Option<Pause<'_>>) -> Result<(), SeenRefusal> {
        if self.restarts {
            let graph = Arc::clone(&self.graph);
            self.driver = std::mem::replace(&mut self.driver, Driver::new(Arc::clone(&graph))).reopen(graph);
        }
        let request = RunRequest {
            input: request.input,
            discard: request.discard,
            answers: request.answers,
            resume: request.resume,
            ..RunRequest::default()
        };
        let signal = self.driver.stop_signal();
        let run = self.driver.run(request);
        let result = match pause {
            None => run.await,
            Some(pause) => {
                let ask = pause.once_hanging(async |how| match how {
                    Cancel::Graceful => signal.graceful(),
                    Cancel::Now => signal.now(),
                });
                let mut run = std::pin::pin!(run);
                tokio::select! {
                    result = &mut run => result,
                    () = ask => run.await,
                }
            }
        };
        result.map_err(|refused| refusal(&refused))
    }

    async fn look(&mut self) -> Result<Look, String> {
        let status = match (self.driver.position(), self.driver.rest()) {
            (None, _) => Status::NoThread,
            (Some(_), Rest::Parked) => Status::Interrupted,
            (Some(_), Rest::Failed) => Status::Failed,
            (Some(_), Rest::Succeeded) => Status::Done,
        };
        Ok(Look {
            status,
            points: self.driver.points(),
            state: self.driver.live_state(),
            frames: self.driver.frames(),
            errors: self.driver.failures().into_iter().map(|(_, message)| message).collect(),
        })
    }
}

/// The driver has no memory of closed points, so it cannot say what became of
/// one; whoever stores threads can.
fn refusal(refused: &Refused) -> SeenRefusal {
    let exactly = |word: &str| Reason::Exactly(word.to_owned());
    let (id, reason) = match refused {
        Refused::NotOpen(id) => (Some(id), Reason::NotOpen),
        Refused::NotAnswerable(id) => (Some(id), exactly("not_answerable")),
        Refused::Invalid(_) => (None, exactly("invalid_data")),
        Refused::Waiting => (None, exactly("thread_interrupted")),
        Refused::NeverRan => (None, exactly("unknown_thread")),
        Refused::Resume(_) => (None, exactly("nothing_pending")),
        // Data for a stop that cannot be written where the stop is.
        Refused::Edit(_) => (None, exactly("invalid_data")),
        Refused::NotOne(_) | Refused::UnknownCheckpoint(_) => (None, exactly(&refused.to_string())),
    };
    SeenRefusal { id: id.map(ToString::to_string), reason }
}
