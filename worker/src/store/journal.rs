//! Who in this process waits for news of a thread.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use countersign_kernel::ids::ThreadId;
use tokio::sync::watch;

/// Whether a store keeps events, and who in this process is to be woken when
/// it has. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Journal(Arc<Inner>);

struct Inner {
    on: AtomicBool,
    /// How many threads are watched, so that a commit nobody waits for costs
    /// one look.
    count: AtomicUsize,
    watched: Mutex<HashMap<ThreadId, watch::Sender<()>>>,
}

impl Default for Journal {
    fn default() -> Self {
        Self(Arc::new(Inner { on: AtomicBool::new(true), count: AtomicUsize::new(0), watched: Mutex::default() }))
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("on", &self.is_on()).finish_non_exhaustive()
    }
}

impl Journal {
    /// Whether events are kept from now on; they are by default.
    pub fn switch(&self, on: bool) {
        self.0.on.store(on, Ordering::Relaxed);
    }

    /// Whether events are kept.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.on.load(Ordering::Relaxed)
    }

    /// Waits for news of a thread from now on.
    #[must_use]
    pub fn watch(&self, thread: &ThreadId) -> Watching {
        let mut watched = self.watched();
        let sender = watched.entry(thread.clone()).or_insert_with(|| watch::Sender::new(()));
        let news = sender.subscribe();
        self.0.count.store(watched.len(), Ordering::SeqCst);
        Watching { journal: self.clone(), thread: thread.clone(), news }
    }

    /// Something about a thread has been committed.
    pub fn tell(&self, thread: &ThreadId) {
        if self.0.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(sender) = self.watched().get(thread) {
            sender.send_replace(());
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<ThreadId, watch::Sender<()>>> {
        // Every change to it is one insertion or removal.
        self.0.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for news of one thread. What other processes commit is not heard of.
#[derive(Debug)]
pub struct Watching {
    journal: Journal,
    thread: ThreadId,
    news: watch::Receiver<()>,
}

impl Watching {
    /// Ends once something about the thread was committed after the watch
    /// began, or after this last ended.
    pub async fn news(&mut self) {
        if self.news.changed().await.is_err() {
            // The sender goes after its last receiver.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut watched = self.journal.watched();
        if watched.get(&self.thread).is_some_and(|sender| sender.receiver_count() <= 1) {
            watched.remove(&self.thread);
        }
        self.journal.0.count.store(watched.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn thread(name: &str) -> ThreadId {
        ThreadId::parse(name).expect("a thread id")
    }

    #[test]
    fn news_reach_who_watches_that_thread_and_nobody_is_forgotten_or_kept() {
        let journal = Journal::default();
        let (a, b) = (thread("a"), thread("b"));
        journal.tell(&a);
        let (mut first, mut second, mut other) = (journal.watch(&a), journal.watch(&a), journal.watch(&b));
        assert!(first.news().now_or_never().is_none(), "what was before is no news");
        journal.tell(&a);
        journal.tell(&a);
        assert!(first.news().now_or_never().is_some() && second.news().now_or_never().is_some());
        assert!(first.news().now_or_never().is_none(), "told once");
        assert!(other.news().now_or_never().is_none());
        drop(first);
        journal.tell(&a);
        assert!(second.news().now_or_never().is_some(), "the other one still hears");
        drop((second, other));
        assert!(journal.watched().is_empty());
        assert_eq!(journal.0.count.load(Ordering::SeqCst), 0);
    }
}
