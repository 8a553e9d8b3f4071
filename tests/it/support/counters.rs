//! What bodies count, and where they stop until a test lets them go on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

/// Counts by name; clones share the counts, across restarts of an engine too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runs(Arc<Mutex<BTreeMap<String, u32>>>);

impl Runs {
    pub(crate) fn hit(&self, name: impl Into<String>) -> u32 {
        let mut runs = self.0.lock().expect("not poisoned");
        let count = runs.entry(name.into()).or_insert(0);
        *count += 1;
        *count
    }

    pub(crate) fn of(&self, name: &str) -> u32 {
        self.0.lock().expect("not poisoned").get(name).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> BTreeMap<String, u32> {
        self.0.lock().expect("not poisoned").clone()
    }
}

/// A place where bodies wait until the test opens it. Knows how many came and
/// how many were dropped where they stood.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    open: watch::Sender<bool>,
    arrived: watch::Sender<u32>,
    dropped: watch::Sender<u32>,
}

impl Gate {
    pub(crate) fn closed() -> Self {
        Self(Arc::new(Inner {
            open: watch::Sender::new(false),
            arrived: watch::Sender::new(0),
            dropped: watch::Sender::new(0),
        }))
    }

    pub(crate) fn open(&self) {
        self.0.open.send_replace(true);
    }

    /// For bodies: waits until the gate is open.
    pub(crate) async fn pass(&self) {
        struct Watcher<'a>(&'a Inner, bool);
        impl Drop for Watcher<'_> {
            fn drop(&mut self) {
                if !self.1 {
                    self.0.dropped.send_modify(|count| *count += 1);
                }
            }
        }
        let mut watcher = Watcher(&self.0, false);
        self.0.arrived.send_modify(|count| *count += 1);
        let mut open = self.0.open.subscribe();
        open.wait_for(|open| *open).await.expect("the gate outlives its bodies");
        watcher.1 = true;
    }

    /// Waits until `count` bodies have come.
    pub(crate) async fn arrived(&self, count: u32) {
        reaches(&self.0.arrived, count, "bodies arrived at the gate").await;
    }

    /// Waits until `count` bodies were dropped in front of the gate.
    pub(crate) async fn dropped(&self, count: u32) {
        reaches(&self.0.dropped, count, "bodies were dropped at the gate").await;
    }
}

async fn reaches(counter: &watch::Sender<u32>, count: u32, what: &str) {
    let mut counter = counter.subscribe();
    let reached = counter.wait_for(|now| *now >= count);
    let reached = tokio::time::timeout(super::DEADLINE, reached).await;
    assert!(reached.is_ok(), "{count} {what}");
}
