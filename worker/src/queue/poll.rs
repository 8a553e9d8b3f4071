//! When the carrier fetches.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use apalis::prelude::{PollSnapshot, PollStrategy};
use futures_util::task::AtomicWaker;
use tokio::time::{Instant, Sleep};

use super::JobKind;

/// Tells the carrier of this process that messages were committed.
///
/// Clones share one state. Wake-ups collapse: any number before the carrier
/// has seen them count as one, so there is no backlog and nothing to drain,
/// and one given while the carrier is not running is kept until it is. At most
/// one carrier may run on a `Wake` at a time.
#[derive(Clone, Default)]
pub struct Wake {
    signals: Arc<[Signal; JobKind::ALL.len()]>,
}

impl Wake {
    /// A `Wake` that nobody has used yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Has the queue of `kind` fetched now. To be called after the commit of
    /// the transaction that pushed; before it, the fetch would find nothing.
    /// Cheap, never waits, and may be called from anywhere.
    pub fn wake(&self, kind: JobKind) {
        self.signals[kind.index()].set();
    }

    /// Waits until there are wake-ups, and takes them: of which kinds they are.
    pub(super) async fn woken(&self) -> Vec<JobKind> {
        std::future::poll_fn(|cx| {
            let mut kinds = JobKind::ALL.to_vec();
            kinds.retain(|kind| self.signals[kind.index()].take(cx.waker()));
            if kinds.is_empty() { Poll::Pending } else { Poll::Ready(kinds) }
        })
        .await
    }

    pub(super) fn strategy(&self, kind: JobKind, interval: Duration) -> FetchWhenWoken {
        FetchWhenWoken::new(self.clone(), kind, interval)
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wake").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Signal {
    set: AtomicBool,
    waker: AtomicWaker,
}

impl Signal {
    fn set(&self) {
        self.set.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether it was set since the last call. Registers first, so that a
    /// signal set in between wakes the task instead of being lost.
    fn take(&self, waker: &Waker) -> bool {
        self.waker.register(waker);
        self.set.swap(false, Ordering::AcqRel)
    }
}

/// How long after a wake-up, and after each other, the queue is fetched again.
///
/// A wake-up that arrives while a fetch is under way does not start another:
/// if that fetch had read before the commit, the message would wait for the
/// interval. The statement and the hand-over of its result take well under a
/// millisecond; the later two cover a machine that is busy.
const AGAIN: [Duration; 3] = [Duration::from_millis(1), Duration::from_millis(5), Duration::from_millis(25)];

/// apalis' worker fetches whenever its task is polled and idle, and by itself
/// polls only at its heartbeat; the strategy's answer is ignored. So all a
/// strategy has to do is to have the task woken. This one does so at each
/// wake-up, a few times shortly after it ([`AGAIN`]), and at an interval.
///
/// The strategy that apalis ships takes one item of its stream and registers
/// no waker when it had one, which stalls; here every path ends with both a
/// registered signal and a registered timer.
pub(super) struct FetchWhenWoken {
    wake: Wake,
    kind: JobKind,
    interval: Duration,
    /// How many of [`AGAIN`] were armed since the last wake-up.
    armed: usize,
    timer: Pin<Box<Sleep>>,
}

impl FetchWhenWoken {
    fn new(wake: Wake, kind: JobKind, interval: Duration) -> Self {
        let interval = interval.max(Duration::from_millis(1));
        Self { wake, kind, interval, armed: AGAIN.len(), timer: Box::pin(tokio::time::sleep(interval)) }
    }

    fn arm(&mut self) {
        let delay = AGAIN.get(self.armed).copied().unwrap_or(self.interval);
        self.armed = AGAIN.len().min(self.armed + 1);
        self.timer.as_mut().reset(Instant::now() + delay);
    }
}

impl PollStrategy for FetchWhenWoken {
    fn poll_drive(&mut self, cx: &mut Context<'_>, _: &PollSnapshot) -> Poll<Option<()>> {
        let mut due = self.wake.signals[self.kind.index()].take(cx.waker());
        if due {
            self.armed = 0;
            self.arm();
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            due = true;
            self.arm();
        }
        if due { Poll::Ready(Some(())) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(strategy: &mut FetchWhenWoken) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        strategy.poll_drive(&mut cx, &PollSnapshot::new()).is_ready()
    }

    #[tokio::test]
    async fn a_wake_up_is_followed_by_three_more_fetches_and_then_the_interval() {
        let interval = Duration::from_millis(40);
        let wake = Wake::new();
        let mut strategy = wake.strategy(JobKind::Advance, interval);
        assert!(!poll(&mut strategy));
        wake.wake(JobKind::Deliver);
        assert!(!poll(&mut strategy), "the other kind's wake-up");
        wake.wake(JobKind::Advance);
        wake.wake(JobKind::Advance);
        for delay in [AGAIN[0], AGAIN[1], AGAIN[2], interval, interval] {
            let before = Instant::now();
            assert!(poll(&mut strategy), "{delay:?}");
            let next = strategy.timer.deadline();
            assert!(next >= before + delay && next <= Instant::now() + delay);
            strategy.timer.as_mut().await;
        }
    }

    #[tokio::test]
    async fn a_wake_up_before_the_first_poll_is_kept() {
        let wake = Wake::new();
        wake.wake(JobKind::Deliver);
        assert!(poll(&mut wake.strategy(JobKind::Deliver, Duration::from_secs(60))));
        assert!(!poll(&mut wake.strategy(JobKind::Deliver, Duration::from_secs(60))));
    }
}
