//! Messages to people: what is sent, to whom, through what.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::ids::{DeliveryId, InterruptId, ThreadId};
use crate::policy::Policy;
use crate::principal::Principal;
use crate::question::Request;
use crate::time::Timestamp;

/// A way to reach people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelName {
    /// A mail to one person.
    Email,
    /// A signed HTTP request to a configured endpoint.
    Webhook,
}

impl ChannelName {
    /// The name as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Webhook => "webhook",
        }
    }
}

/// Why a message is sent. One message per recipient and occasion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// The question was asked.
    Asked,
}

impl Occasion {
    /// The name as stored and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
        }
    }
}

/// One who receives a message, frozen when the question is asked (R18).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipient {
    /// Through what.
    pub channel: ChannelName,
    /// Who: a person for mail, `service:<endpoint name>` for a webhook.
    pub principal: Principal,
    /// The display name, any script.
    pub name: String,
    /// Where to: a mail address, or the endpoint's URL.
    pub address: String,
}

/// All that a channel needs to write one message.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// The delivery this is an attempt of.
    pub delivery: DeliveryId,
    /// Why it is sent.
    pub occasion: Occasion,
    /// The case.
    pub thread: ThreadId,
    /// The flow.
    pub graph: String,
    /// The pending point.
    pub interrupt: InterruptId,
    /// The point's address as people read it.
    pub printed_address: String,
    /// To whom.
    pub recipient: Recipient,
    /// What is asked.
    pub request: Request,
    /// Counts changes of the request.
    pub revision: u32,
    /// [`Request::content_hash`] of this revision.
    pub content_hash: String,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it stops waiting, if ever.
    pub deadline: Option<Timestamp>,
    /// 1 for the first attempt.
    pub attempt: u32,
}

/// What a channel says of a message that it handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The other side's word: an SMTP reply, an HTTP status, a file name.
    pub detail: String,
}

/// Why a message was not handed over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DeliveryError {
    /// What went wrong, for the operator; no secrets, no links.
    pub message: String,
    /// Whether trying again can help.
    pub retryable: bool,
}

/// Sends messages of one kind.
#[async_trait]
pub trait Channel: Send + Sync {
    /// Which kind.
    fn name(&self) -> ChannelName;

    /// Sends one message. At-least-once: a caller that died after the
    /// hand-over calls again, and the message carries the same identity
    /// (Message-ID, webhook id), so that receivers can tell.
    ///
    /// # Errors
    /// The message was not handed over; the error says whether to retry.
    async fn send(&self, notice: &Notice) -> Result<Receipt, DeliveryError>;
}

/// A person as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// `person:<lower-cased address>`.
    pub principal: Principal,
    /// The display name.
    pub name: String,
    /// The mail address as configured.
    pub email: String,
    /// The roles held.
    pub roles: Vec<String>,
}

/// Who is who, from configuration.
pub trait Directory: Send + Sync {
    /// The person behind a principal.
    fn person(&self, principal: &Principal) -> Option<Person>;

    /// The roles that a principal holds now; a service holds none.
    fn roles(&self, principal: &Principal) -> Vec<String>;

    /// Who is to be told of a request under this policy, through which
    /// channels: each person once, excluded ones left out, then the webhooks.
    fn recipients(&self, policy: &Policy) -> Vec<Recipient>;
}
