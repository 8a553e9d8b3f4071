//! How a body learns that its thread is being cancelled.

use super::Context;

impl Context {
    /// Whether somebody has asked to cancel the thread. A body that does
    /// something long looks now and then, and returns early: what it returns
    /// no longer counts. One that does not is dropped where it waits, after a
    /// grace.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.host().stop.is_cancelled()
    }

    /// Ends when somebody asks to cancel the thread, for a `select` beside
    /// something long. Never ends otherwise.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        self.host().stop.cancelled()
    }
}
