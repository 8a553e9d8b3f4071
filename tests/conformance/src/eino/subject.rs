//! What the runner asks of a kernel under test.

use async_trait::async_trait;
use countersign_kernel::ids::InterruptId;
use countersign_kernel::machine::{FrameView, Point, Resume};
use serde_json::{Map, Value};

use super::expect::SeenRefusal;
use super::ledger::Ledger;
use super::model::{Cancel, Status};

/// One request to advance the thread (R1).
#[derive(Debug, Clone, Default)]
pub(super) struct Request {
    /// Fresh input.
    pub(super) input: Option<Value>,
    /// Whether the input may drop what waits (K15).
    pub(super) discard: bool,
    /// Answers by id; `null` is a bare one.
    pub(super) answers: Vec<(InterruptId, Value)>,
    /// What names no point.
    pub(super) resume: Resume,
}

/// A pause that is asked for as soon as a body hangs.
#[derive(Clone, Copy)]
pub(super) struct Pause<'a> {
    /// Whether running bodies finish.
    pub(super) how: Cancel,
    /// Where bodies hang.
    pub(super) ledger: &'a Ledger,
}

impl Pause<'_> {
    /// Waits for a body to hang and asks, through `ask`, for the pause.
    pub(super) async fn once_hanging<T>(self, ask: impl AsyncFnOnce(Cancel) -> T) -> T {
        self.ledger.hanging().await;
        let asked = ask(self.how).await;
        // Dropped at once, a body must not get the chance to finish.
        if self.how == Cancel::Graceful {
            self.ledger.go_on();
        }
        asked
    }
}

/// What a client can read of the thread.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// How it rests.
    pub(super) status: Status,
    /// The open points.
    pub(super) points: Vec<Point>,
    /// The state of the root graph.
    pub(super) state: Map<String, Value>,
    /// The unfinished graphs inside.
    pub(super) frames: Vec<FrameView>,
    /// Why tasks failed.
    pub(super) errors: Vec<String>,
}

/// One thread of a kernel under test.
#[async_trait]
pub(super) trait Thread: Send {
    /// Does a request and runs until the thread rests.
    ///
    /// # Errors
    /// Why the request was refused; nothing ran.
    async fn perform(&mut self, request: Request, pause: Option<Pause<'_>>) -> Result<(), SeenRefusal>;

    /// Does several requests at the same time, as far as the kernel can.
    async fn together(&mut self, requests: Vec<Request>) -> Vec<Result<(), SeenRefusal>> {
        let mut results = Vec::new();
        for request in requests {
            results.push(self.perform(request, None).await);
        }
        results
    }

    /// Reads the thread.
    ///
    /// # Errors
    /// It cannot be read.
    async fn look(&mut self) -> Result<Look, String>;
}
