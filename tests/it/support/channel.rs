//! A channel that keeps what it is given.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use countersign_kernel::ports::{Channel, ChannelName, DeliveryError, Notice, Receipt};

use super::Gate;

/// What to say to an attempt.
type Verdict = dyn Fn(&Notice) -> Result<Receipt, DeliveryError> + Send + Sync;

/// Keeps every notice and answers as it was told to.
#[derive(Clone)]
pub(crate) struct Outbox {
    sent: Arc<Mutex<Vec<Notice>>>,
    verdict: Arc<Verdict>,
    gate: Option<Gate>,
}

impl Outbox {
    /// Takes everything.
    pub(crate) fn taking() -> Self {
        Self::saying(|_| Ok(Receipt { detail: "250 taken".to_owned() }))
    }

    pub(crate) fn saying(verdict: impl Fn(&Notice) -> Result<Receipt, DeliveryError> + Send + Sync + 'static) -> Self {
        Self { sent: Arc::default(), verdict: Arc::new(verdict), gate: None }
    }

    /// Each attempt hangs at the gate once it is handed over.
    pub(crate) fn held_at(self, gate: &Gate) -> Self {
        Self { gate: Some(gate.clone()), ..self }
    }

    /// Every attempt so far, in order.
    pub(crate) fn attempts(&self) -> Vec<Notice> {
        self.sent.lock().expect("not poisoned").clone()
    }
}

#[async_trait]
impl Channel for Outbox {
    fn name(&self) -> ChannelName {
        ChannelName::Email
    }

    async fn send(&self, notice: &Notice) -> Result<Receipt, DeliveryError> {
        self.sent.lock().expect("not poisoned").push(notice.clone());
        if let Some(gate) = &self.gate {
            gate.pass().await;
        }
        (self.verdict)(notice)
    }
}
