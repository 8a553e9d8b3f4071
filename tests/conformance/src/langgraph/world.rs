//! What is outside the kernel: how often bodies were entered, how often an
//! operation has failed, and when a failure may take effect (section 3 of the
//! format).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A body that ends gives way to whatever it made ready: this often is enough
/// for a nested graph to enter its next body.
const GIVE_WAY: usize = 4;

/// Shared by all bodies of a scenario, over all its threads.
#[derive(Debug, Default)]
pub struct World {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    visits: BTreeMap<String, u32>,
    reached: BTreeMap<(String, Vec<usize>), u32>,
    active: usize,
    entered: u64,
    raising: BTreeSet<(String, u64)>,
}

impl World {
    /// Counts a visit of the body at `path`; it is active until the guard is
    /// dropped.
    pub fn enter(&self, path: &str) -> Active<'_> {
        let mut inner = self.inner();
        *inner.visits.entry(path.to_owned()).or_insert(0) += 1;
        inner.entered += 1;
        inner.active += 1;
        Active { world: self }
    }

    /// How often each body was entered.
    #[must_use]
    pub fn visits(&self) -> BTreeMap<String, u32> {
        self.inner().visits.clone()
    }

    /// Counts that the operation at `position` of the body at `path` was
    /// reached; says how often it has been, this time included.
    pub fn reach(&self, path: &str, position: &[usize]) -> u32 {
        let mut inner = self.inner();
        let times = inner.reached.entry((path.to_owned(), position.to_vec())).or_insert(0);
        *times += 1;
        *times
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Counters are valid after any panic of a holder.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// If the failure `ticket` may take effect: how many bodies have been
    /// entered so far.
    fn turn(&self, ticket: &(String, u64)) -> Option<u64> {
        let inner = self.inner();
        (inner.active == 0 && inner.raising.first() == Some(ticket)).then_some(inner.entered)
    }
}

/// A body that runs.
#[derive(Debug)]
pub struct Active<'a> {
    world: &'a World,
}

impl<'a> Active<'a> {
    /// Not active while something else runs inside this body.
    #[must_use]
    pub fn pause(&mut self) -> Paused<'_, 'a> {
        self.world.inner().active -= 1;
        self.world.changed.notify_waiters();
        Paused { active: self }
    }

    /// Waits until every other body has come to rest: finished, asked or
    /// failed. Of several that wait to fail, the first by `task` goes first.
    pub async fn others_rest(&mut self, task: &str) {
        let world = self.world;
        let paused = self.pause();
        let ticket = {
            let mut inner = world.inner();
            let ticket = (task.to_owned(), inner.entered);
            inner.raising.insert(ticket.clone());
            ticket
        };
        let _leave = Leave { world, ticket: &ticket };
        loop {
            let changed = world.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(before) = world.turn(&ticket) {
                for _ in 0..GIVE_WAY {
                    tokio::task::yield_now().await;
                }
                if world.turn(&ticket) == Some(before) {
                    break;
                }
                continue;
            }
            changed.await;
        }
        drop(paused);
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.world.inner().active -= 1;
        self.world.changed.notify_waiters();
    }
}

/// A body that waits for something inside it.
#[derive(Debug)]
pub struct Paused<'p, 'a> {
    active: &'p Active<'a>,
}

impl Drop for Paused<'_, '_> {
    fn drop(&mut self) {
        self.active.world.inner().active += 1;
    }
}

/// Gives up a place among those that wait to fail, also when the body is
/// dropped while it waits.
struct Leave<'a> {
    world: &'a World,
    ticket: &'a (String, u64),
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.world.inner().raising.remove(self.ticket);
        self.world.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join3;

    use super::*;

    #[tokio::test]
    async fn failures_wait_for_the_rest_and_go_in_order() {
        let world = World::default();
        let order = Mutex::new(Vec::new());
        let say = |what: &'static str| order.lock().expect("a list").push(what);
        let fails = |path: &'static str| {
            let (world, say) = (&world, &say);
            async move {
                let mut active = world.enter(path);
                active.others_rest(path).await;
                say(path);
            }
        };
        let works = async {
            let active = world.enter("work");
            tokio::task::yield_now().await;
            say("work");
            drop(active);
            // What follows inside a nested graph begins at once.
            let mut active = world.enter("then");
            drop(active.pause());
            say("then");
        };
        join3(fails("b"), fails("a"), works).await;
        assert_eq!(*order.lock().expect("a list"), ["work", "then", "a", "b"]);
        assert_eq!(world.visits().values().sum::<u32>(), 4);
    }

    #[test]
    fn operations_are_counted_by_body_and_position() {
        let world = World::default();
        assert_eq!(world.reach("a", &[0]), 1);
        assert_eq!(world.reach("a", &[0]), 2);
        assert_eq!(world.reach("a", &[1, 0]), 1);
        assert_eq!(world.reach("sub/a", &[0]), 1);
    }
}
