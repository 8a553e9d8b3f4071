//! Waiting for time and for events from outside: `cx.sleep`, `cx.signal`.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Context;
use crate::node::{NodeError, NodeResult};
use crate::occurrence::PointKind;
use crate::principal::Principal;
use crate::question::{Answered, Until};
use crate::time::Timestamp;

/// The longest name of a signal, in bytes.
pub const SIGNAL_NAME_BYTES: usize = 128;

/// Whether a signal can have this name: 1 to 128 letters, digits, `-`, `_`,
/// `.` and `:`.
#[must_use]
pub fn is_signal_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
    (1..=SIGNAL_NAME_BYTES).contains(&name.len()) && name.bytes().all(fits)
}

impl Context {
    /// Waits for `time`, holding nothing in memory: the task parks, and its
    /// point is answered when the time has come. Counted once, from when it is
    /// first called; no restart lengthens, shortens or forgets it. Nobody is
    /// asked; an operator can end it early by answering the point.
    ///
    /// # Errors
    /// [`NodeError::Interrupted`] until then.
    #[allow(clippy::unused_async, reason = "awaited where flows wait, so that waiting may await one day")]
    pub async fn sleep(&self, time: Duration) -> NodeResult<()> {
        self.question(PointKind::Sleep, json!({}), Some(Until::after(time))).map(|_| ())
    }

    /// As [`sleep`](Self::sleep), up to an instant. One that has passed is no
    /// wait at all.
    ///
    /// # Errors
    /// As [`sleep`](Self::sleep).
    #[allow(clippy::unused_async, reason = "awaited where flows wait, so that waiting may await one day")]
    pub async fn sleep_until(&self, instant: Timestamp) -> NodeResult<()> {
        self.question(PointKind::Sleep, json!({}), Some(Until::AtMicros(instant))).map(|_| ())
    }

    /// Waits for a signal of this name and returns what it carries. Signals are
    /// kept if they come before somebody waits, and each is taken once: by the
    /// point that has waited longest, in the order in which they came.
    ///
    /// # Errors
    /// [`NodeError::Interrupted`] until one has come; a failure if the name
    /// cannot be one ([`is_signal_name`]) or the signal does not read as `T`.
    #[allow(clippy::unused_async, reason = "awaited where flows wait, so that waiting may await one day")]
    pub async fn signal<T: DeserializeOwned>(&self, name: &str) -> NodeResult<T> {
        let signal = self.wait_for(name, None)?;
        read(name, signal.value)
    }

    /// As [`signal`](Self::signal), for `time` at the longest: `None` if none
    /// has come by then. One that comes later is kept for whoever waits next.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    #[allow(clippy::unused_async, reason = "awaited where flows wait, so that waiting may await one day")]
    pub async fn signal_within<T: DeserializeOwned>(&self, name: &str, time: Duration) -> NodeResult<Option<T>> {
        let signal = self.wait_for(name, Some(Until::after(time)))?;
        if signal.by == [Principal::deadline()] {
            return Ok(None);
        }
        read(name, signal.value).map(Some)
    }

    fn wait_for(&self, name: &str, until: Option<Until>) -> NodeResult<Answered> {
        if !is_signal_name(name) {
            return Err(NodeError::failed(format!(
                "`{name}` is no name of a signal: 1 to {SIGNAL_NAME_BYTES} letters, digits, `-`, `_`, `.` and `:`"
            )));
        }
        self.question(PointKind::Signal, json!({"signal": name}), until)
    }
}

fn read<T: DeserializeOwned>(name: &str, value: Option<Value>) -> NodeResult<T> {
    T::deserialize(value.unwrap_or(Value::Null))
        .map_err(|problem| NodeError::failed(format!("the signal `{name}` does not fit: {problem}")))
}
