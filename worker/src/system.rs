//! The one place where time, chance and ids are made for real.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use countersign_kernel::ports::{Clock, Ids, Timers};
use countersign_kernel::time::Timestamp;
use futures_util::future::BoxFuture;

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

/// The machine's random numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemIds;

impl Ids for SystemIds {
    #[expect(clippy::disallowed_methods, reason = "the one place")]
    fn uuid(&self) -> String {
        uuid::Uuid::now_v7().simple().to_string()
    }

    #[expect(clippy::disallowed_methods, reason = "the one place")]
    fn salt(&self) -> [u8; 16] {
        let mut salt = [0; 16];
        // Without a source of randomness nothing here is safe to do, and no
        // machine that runs this lacks one.
        if let Err(error) = getrandom::fill(&mut salt) {
            unreachable!("the system gives no random numbers: {error}");
        }
        salt
    }
}

/// Time that passes in this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokioTimers;

impl Timers for TokioTimers {
    fn wait(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(wait))
    }

    fn limit(&self, limit: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(limit))
    }
}
