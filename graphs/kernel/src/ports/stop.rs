//! Asking a running thread to pause, or to end.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use futures_util::task::AtomicWaker;

const NONE: u8 = 0;
const GRACEFUL: u8 = 1;
const NOW: u8 = 2;

/// A request to pause or to cancel, shared between who asks and who runs (K12,
/// R15).
///
/// Graceful: what runs finishes, and the thread stops at the next border. Now:
/// bodies are dropped where they wait and run again later, with the same input
/// and everything that they recorded. Cancelled: bodies may look and end by
/// themselves; the thread goes no further.
#[derive(Debug, Clone, Default)]
pub struct StopSignal(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    asked: AtomicU8,
    waker: AtomicWaker,
    cancelled: AtomicBool,
    /// Who waits for a cancel: whoever runs the tasks, and any number of bodies.
    cancel_wakers: Mutex<Vec<Waker>>,
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

    /// Asks to cancel. Nothing takes it back.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        let wakers = std::mem::take(&mut *self.0.cancel_wakers.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether a cancel was asked for.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Ends when a cancel is asked for. Any number may wait.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        let inner = Arc::clone(&self.0);
        futures_util::future::poll_fn(move |cx| {
            if inner.cancelled.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            let mut wakers = inner.cancel_wakers.lock().unwrap_or_else(PoisonError::into_inner);
            if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                wakers.push(cx.waker().clone());
            }
            drop(wakers);
            // Asked for in between: nobody would wake it.
            if inner.cancelled.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// The pause has been made: forgets the request.
    pub fn done(&self) {
        self.0.asked.store(NONE, Ordering::Release);
    }
}
