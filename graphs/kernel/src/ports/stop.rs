//! Asking a running thread to pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;

const NONE: u8 = 0;
const GRACEFUL: u8 = 1;
const NOW: u8 = 2;

/// A request to pause, shared between who asks and who runs (K12, R15).
///
/// Graceful: what runs finishes, and the thread stops at the next border. Now:
/// bodies are dropped where they wait and run again later, with the same input
/// and everything that they recorded.
#[derive(Debug, Clone, Default)]
pub struct StopSignal(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    asked: AtomicU8,
    waker: AtomicWaker,
}

impl StopSignal {
    /// Asks for a pause at the next border.
    pub fn graceful(&self) {
        self.0.asked.fetch_max(GRACEFUL, Ordering::AcqRel);
    }

    /// Asks for a pause at once.
    pub fn now(&self) {
        self.0.asked.fetch_max(NOW, Ordering::AcqRel);
        self.0.waker.wake();
    }

    /// Whether a pause was asked for.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.asked.load(Ordering::Acquire) != NONE
    }

    /// Ends when a pause at once is asked for. One waiter at a time: whoever
    /// runs the tasks of the root frame.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        let inner = Arc::clone(&self.0);
        futures_util::future::poll_fn(move |cx| {
            inner.waker.register(cx.waker());
            if inner.asked.load(Ordering::Acquire) == NOW { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// The pause has been made: forgets the request.
    pub fn done(&self) {
        self.0.asked.store(NONE, Ordering::Release);
    }
}
