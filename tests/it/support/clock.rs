//! The system's clock, moved ahead by tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use countersign_kernel::ports::Clock;
use countersign_kernel::time::Timestamp;
use countersign_worker::system::SystemClock;

/// Clones go together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ahead(Arc<AtomicI64>);

impl Ahead {
    /// Lets time pass.
    pub(crate) fn by(&self, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_micros()).expect("a time of this world"), Ordering::AcqRel);
    }
}

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(SystemClock.now().as_micros() + self.0.load(Ordering::Acquire))
    }
}
