//! What stands behind the ports when a graph runs in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, FutureExt, pending, ready};
use serde_json::Value;

use super::archive::Archive;
use crate::address::Address;
use crate::ids::FrameId;
use crate::machine::Outside;
use crate::ports::{Clock, EffectError, Effects, FrameStep, Ids, Timers};
use crate::time::Timestamp;

/// In memory, a result is kept by the record itself.
pub(super) struct Kept(pub(super) Arc<Archive>);

#[async_trait]
impl Effects for Kept {
    async fn record(&self, _: Option<&FrameId>, _: &Address, _: &str, _: &Value) -> Result<(), EffectError> {
        Ok(())
    }

    async fn frame(&self, step: FrameStep<'_>) -> Result<(), EffectError> {
        self.0.keep_frame(step);
        Ok(())
    }

    async fn emit(&self, _: &Address, _: &Value) -> Result<(), EffectError> {
        Ok(())
    }
}

/// No time passes: pauses are over at once, and limits are never reached.
pub(super) struct NoTime;

impl Timers for NoTime {
    fn wait(&self, _: Duration) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }

    fn limit(&self, _: Duration) -> BoxFuture<'static, ()> {
        pending().boxed()
    }
}

/// Ids and instants that count up, so that runs are repeatable.
#[derive(Debug, Default)]
pub(super) struct Counter {
    count: AtomicU64,
    /// How much time has passed beside what is counted, in microseconds.
    passed: AtomicI64,
}

impl Counter {
    /// Lets time pass up to an instant.
    pub(super) fn advance(&self, to: Timestamp) {
        let missing = to.as_micros().saturating_sub(self.now().as_micros()).max(0);
        self.passed.fetch_add(missing, Ordering::Relaxed);
    }

    pub(super) fn outside(&self) -> Outside<'_> {
        Outside { ids: self, clock: self }
    }
}

impl Ids for Counter {
    fn uuid(&self) -> String {
        format!("{:032x}", self.count.fetch_add(1, Ordering::Relaxed))
    }

    fn salt(&self) -> [u8; 16] {
        [0; 16]
    }
}

impl Clock for Counter {
    fn now(&self) -> Timestamp {
        let counted = i64::try_from(self.count.fetch_add(1, Ordering::Relaxed)).unwrap_or(i64::MAX);
        Timestamp::from_micros(counted.saturating_add(self.passed.load(Ordering::Relaxed)))
    }
}
