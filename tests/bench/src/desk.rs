//! Where node bodies meet the driver, which is in the same process: what they
//! append, when they ran, and how the driver hears that a thread came to rest.
//!
//! The driver does not poll. The body that runs last before a rest begins to
//! watch its thread; the next news of it is the commit of the rest, which the
//! driver is told of like every other watcher.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use countersign_kernel::ids::ThreadId;
use countersign_kernel::ports::Ids as _;
use countersign_worker::store::{Journal, Watching};
use countersign_worker::system::SystemIds;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::Fault;

/// 64 letters, six random bits each.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What nodes append.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Item {
    i: u32,
    kind: String,
    text: String,
}

impl Item {
    /// An item that is `size` bytes long as JSON, most of it random.
    fn new(i: u32, size: usize, chance: &mut Chance) -> Result<Self, Fault> {
        let mut item = Self { i, kind: "note".to_owned(), text: String::new() };
        let rest = size.checked_sub(serde_json::to_vec(&item)?.len()).ok_or("an item does not fit its size")?;
        item.text = (0..rest).map(|_| char::from(LETTERS[chance.below(64)])).collect();
        Ok(item)
    }
}

/// Random numbers (xorshift64*) from a random seed.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new() -> Self {
        let [a, b, c, d, e, f, g, h, ..] = SystemIds.salt();
        Self(u64::from_le_bytes([a, b, c, d, e, f, g, h]) | 1)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).unwrap_or_default() % end.max(1)
    }
}

/// What a driver waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A node asks.
    Asking,
    /// The last node runs.
    Ending,
}

struct Seat {
    thread: ThreadId,
    moment: Moment,
    told: oneshot::Sender<Watching>,
}

/// Shared by the bodies and the driver.
pub(crate) struct Desk {
    items: Vec<Item>,
    journal: Mutex<Option<Journal>>,
    seats: Mutex<HashMap<u64, Seat>>,
    ran: Mutex<Vec<Instant>>,
    counts: Mutex<HashMap<u32, u32>>,
}

impl Desk {
    /// With items of `size` bytes, as many as a run appends.
    pub(crate) fn new(items: u32, size: usize) -> Result<Arc<Self>, Fault> {
        let mut chance = Chance::new();
        let items = (0..items).map(|i| Item::new(i, size, &mut chance)).collect::<Result<_, _>>()?;
        let (seats, ran, counts) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Arc::new(Self { items, journal: Mutex::default(), seats, ran, counts }))
    }

    /// Whose journal bodies watch from now on: that of the newest worker.
    pub(crate) fn open(&self, journal: &Journal) {
        *lock(&self.journal) = Some(journal.clone());
    }

    /// How many items a run appends.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The item of this number.
    pub(crate) fn item(&self, i: usize) -> Item {
        self.items[i % self.items.len()].clone()
    }

    /// The driver waits for a moment of a run.
    pub(crate) fn await_moment(&self, run: u64, thread: ThreadId, moment: Moment) -> oneshot::Receiver<Watching> {
        let (told, news) = oneshot::channel();
        lock(&self.seats).insert(run, Seat { thread, moment, told });
        news
    }

    /// A body has come to a moment of its run.
    pub(crate) fn reached(&self, run: u64, moment: Moment) {
        let mut seats = lock(&self.seats);
        if seats.get(&run).is_none_or(|seat| seat.moment != moment) {
            return;
        }
        let seat = seats.remove(&run);
        drop(seats);
        if let (Some(seat), Some(journal)) = (seat, lock(&self.journal).as_ref()) {
            // A driver that has gone is told nothing.
            let _gone = seat.told.send(journal.watch(&seat.thread));
        }
    }

    /// A body runs now.
    pub(crate) fn runs_now(&self) {
        lock(&self.ran).push(Instant::now());
    }

    /// When bodies ran, and forgets it.
    pub(crate) fn times(&self) -> Vec<Instant> {
        std::mem::take(&mut lock(&self.ran))
    }

    /// The body with this argument runs once more.
    pub(crate) fn count(&self, argument: u32) {
        *lock(&self.counts).entry(argument).or_default() += 1;
    }

    /// How often bodies ran by argument, and forgets it.
    pub(crate) fn counts(&self) -> HashMap<u32, u32> {
        std::mem::take(&mut lock(&self.counts))
    }
}

/// Every change under these locks is one insertion, removal or replacement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_have_their_size_to_the_byte() {
        let mut chance = Chance::new();
        for (i, size) in [(0, 100), (99, 100), (1999, 200)] {
            let item = Item::new(i, size, &mut chance).expect("it fits");
            assert_eq!(serde_json::to_vec(&item).expect("JSON").len(), size);
        }
        assert!(Item::new(0, 10, &mut chance).is_err());
    }
}
