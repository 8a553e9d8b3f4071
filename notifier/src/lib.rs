//! Messages out (email, webhook) and signed links in.
//!
//! When a flow asks somebody, the worker makes one *delivery* per recipient
//! and hands each to a [`Channel`](countersign_kernel::ports::Channel) of
//! this crate:
//!
//! - [`EmailChannel`] sends one person a mail with that person's link, over
//!   SMTP or into a folder that [`Mailbox`] reads.
//! - [`WebhookChannel`] posts a signed description of the request to a
//!   configured endpoint; it carries no personal link.
//!
//! What comes back is checked here too: [`Links`] verifies the tokens of
//! personal links, [`Signer`] those of cookies and cursors, and
//! [`webhook::verify`] the signatures of requests by others.
//!
//! # Limits, honestly
//!
//! - **At-least-once.** A process that dies between the hand-over and its
//!   record hands over again. Every attempt carries the same identity (the
//!   mail's `Message-ID`, the webhook's `webhook-id`), so that the other side
//!   can tell; many mail programs do not look, and show the mail twice.
//! - **Whoever holds a link is that person.** A link proves that somebody got
//!   hold of the message, no more. It is bound to one request in one wording
//!   and expires, and mails say not to forward them.
//! - **Handed over is not read.** A receipt says that a server took the
//!   message.
//!
//! No part of the crate reads the clock or the environment: instants come
//! from the [`Clock`](countersign_kernel::ports::Clock) port, settings from
//! the caller. The HTTP client needs a process-wide TLS provider
//! (`rustls::crypto::ring::default_provider().install_default()`), which the
//! program installs before it makes a [`WebhookChannel`].

mod clock;
pub mod email;
mod failure;
pub mod link;
mod mac;
pub mod mailbox;
mod secret;
mod signer;
#[cfg(test)]
mod testing;
pub mod webhook;

pub use email::{EmailChannel, EmailConfig, EmailFault, EmailTransport, SmtpConfig, SmtpFault, SmtpSecurity};
pub use link::{LinkClaim, Links, page_url};
pub use mailbox::{Mail, MailSummary, Mailbox, MailboxFault};
pub use secret::Secret;
pub use signer::{KeyFault, LinkFault, LinkKeys, MIN_SECRET, Signer};
pub use webhook::{WebhookChannel, WebhookConfig, WebhookEndpoint, WebhookFault, WebhookSecret};
