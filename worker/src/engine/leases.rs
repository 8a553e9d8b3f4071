//! Leases, as whoever holds one sees them.
//!
//! A lease is a row's word that this process runs a thread until some time, and
//! its fence is the proof that every write carries. The fence keeps the database
//! right whatever happens. It cannot keep a body from doing something outside in
//! the belief that the thread is still its own: a process may be frozen and
//! revived, or cut off from the database, while another has taken over.
//!
//! So a holder does not trust its lease to the end. Each time it asks for the
//! lease or for more of it, it notes the time *before* it asks, by a clock that
//! only goes forward, and from then on trusts for [a part](window) of the lease.
//! What is left over is the room for clocks that go at different speeds and for
//! the time it takes to stop. The clocks of two machines are never compared, but
//! the holder's wall clock sets the end of the lease that others read: machines
//! whose clocks are apart by more than the room are not safe from two bodies at
//! once, only from two writers.
//!
//! When trust ends, the body is dropped where it stands, and no `step` of it
//! [begins](Trust::holds). A step that had begun may be done twice, under the same
//! idempotency key: this no lease can rule out.
//!
//! After Kleppmann, "How to do distributed locking" (2016), and Gray and
//! Cheriton, "Leases" (SOSP 1989).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign_kernel::ids::ThreadId;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Engine, lock};
use crate::store::commands::Fence;

/// How long a holder trusts a lease that holds for `lease`: four fifths of it.
fn window(lease: Duration) -> Duration {
    lease * 4 / 5
}

/// How long a holder goes on as such. Clones are one.
#[derive(Debug, Clone)]
pub(super) struct Trust(Arc<Mutex<Instant>>);

impl Trust {
    /// In a lease that was not asked for yet.
    pub(super) fn none() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// The lease was given that was asked for at `asked`.
    pub(super) fn given(&self, asked: Instant, lease: Duration) {
        let mut until = lock(&self.0);
        *until = (*until).max(asked + window(lease));
    }

    /// Whether the lease is still to be trusted.
    pub(super) fn holds(&self) -> bool {
        Instant::now() < *lock(&self.0)
    }
}

impl Engine {
    /// How long the lease on a thread is trusted.
    pub(super) fn trust(&self, thread: &ThreadId) -> Trust {
        lock(&self.inner.active).get(thread).map_or_else(Trust::none, |active| active.trust.clone())
    }

    /// Renews the leases of what runs, three times within each lease.
    pub(super) async fn renew(self) {
        let lease = self.inner.config.lease;
        let mut tick = interval((lease / 3).max(Duration::from_millis(10)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let held: Vec<(ThreadId, Fence)> = lock(&self.inner.active)
                .iter()
                .filter_map(|(thread, active)| active.fence.map(|fence| (thread.clone(), fence)))
                .collect();
            if held.is_empty() {
                continue;
            }
            let fences: HashMap<_, _> = held.iter().cloned().collect();
            let (asked, until) = (Instant::now(), self.inner.clock.now().after(lease));
            match self.inner.store.renew(held, until).await {
                Ok(lost) => {
                    let active = lock(&self.inner.active);
                    for (thread, fence) in fences {
                        // It may have rested meanwhile, which is no loss.
                        let Some(entry) = active.get(&thread).filter(|entry| entry.fence == Some(fence)) else {
                            continue;
                        };
                        if lost.contains(&thread) {
                            entry.lost.cancel();
                        } else {
                            entry.trust.given(asked, lease);
                        }
                    }
                }
                Err(error) => tracing::error!(%error, "leases could not be renewed"),
            }
        }
    }

    /// Stops what runs under a lease that is no longer to be trusted: it could not
    /// be renewed in time. Apart from renewing, which may be what hangs.
    pub(super) async fn distrust(self) {
        let mut tick = interval((self.inner.config.lease / 20).max(Duration::from_millis(5)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            for (thread, active) in lock(&self.inner.active).iter() {
                if active.fence.is_some() && !active.trust.holds() && !active.lost.is_cancelled() {
                    tracing::warn!(%thread, "its lease could not be renewed in time; it is left to whoever takes it up");
                    active.lost.cancel();
                }
            }
        }
    }
}
