//! Mail to one person about one request.

mod compose;
mod folder;
mod smtp;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use countersign_kernel::ports::{Channel, ChannelName, Clock, DeliveryError, Notice, Receipt};
use lettre::Address;
use lettre::message::Mailbox;

use self::compose::{Sheet, one_line};
use self::smtp::Smtp;
pub use self::smtp::{SmtpConfig, SmtpFault, SmtpSecurity};
use crate::failure::permanent;
use crate::link::Links;

/// Where mails go.
#[derive(Debug, Clone)]
pub enum EmailTransport {
    /// To a mail server.
    Smtp(SmtpConfig),
    /// Into a folder, as one `.eml` file per delivery, for trying things out
    /// without a mail server. [`Mailbox`](crate::Mailbox) reads it.
    Folder(PathBuf),
}

/// How the mail channel is set up.
#[derive(Debug, Clone)]
pub struct EmailConfig {
    /// The display name of the sender, any script; may be empty.
    pub from_name: String,
    /// The sender's address; its domain also ends the `Message-ID`s.
    pub from_address: String,
    /// Where mails go.
    pub transport: EmailTransport,
}

/// Why the mail channel cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmailFault {
    /// The sender's address is none.
    #[error("`{0}` is not a mail address to send from")]
    From(String),
    /// The settings of the mail server do not work.
    #[error(transparent)]
    Smtp(#[from] SmtpFault),
}

enum Transport {
    Smtp(Box<Smtp>),
    Folder(PathBuf),
}

/// Sends mails: text and HTML (RFC 2046), to one person each, with that
/// person's link.
///
/// Delivery is at-least-once. All attempts for a request, its revision, a
/// person and an occasion carry the same `Message-ID` (RFC 5322, section
/// 3.6.4), so that mail systems that look can drop the second copy; and all
/// mails of a request share one thread. Names and subjects in any script are
/// encoded by RFC 2047.
pub struct EmailChannel {
    from: Mailbox,
    transport: Transport,
    links: Arc<Links>,
    clock: Arc<dyn Clock>,
}

impl EmailChannel {
    /// A channel that writes the links with `links` and the `Date` by `clock`.
    /// It connects to no server yet.
    ///
    /// # Errors
    /// The sender's address or the server's settings are unusable.
    pub fn new(config: EmailConfig, links: Arc<Links>, clock: Arc<dyn Clock>) -> Result<Self, EmailFault> {
        let from = mailbox(&config.from_name, &config.from_address).ok_or(EmailFault::From(config.from_address))?;
        let transport = match config.transport {
            EmailTransport::Smtp(config) => Transport::Smtp(Box::new(Smtp::new(&config)?)),
            EmailTransport::Folder(folder) => Transport::Folder(folder),
        };
        Ok(Self { from, transport, links, clock })
    }
}

impl fmt::Debug for EmailChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmailChannel").field("from", &self.from).finish_non_exhaustive()
    }
}

#[async_trait]
impl Channel for EmailChannel {
    fn name(&self) -> ChannelName {
        ChannelName::Email
    }

    /// Not to be retried: an address that is none, a recipient that is no
    /// person, a mail server's permanent refusal (5xx, RFC 5321). To be
    /// retried: a temporary refusal (4xx), a connection that fails, a folder
    /// that cannot be written.
    async fn send(&self, notice: &Notice) -> Result<Receipt, DeliveryError> {
        let recipient = &notice.recipient;
        if recipient.channel != ChannelName::Email || !recipient.principal.is_person() {
            // The link in a mail makes its holder the recipient.
            return Err(permanent(format!("`{}` gets no mail: mails go to people", recipient.principal)));
        }
        let to = mailbox(&recipient.name, &recipient.address)
            .ok_or_else(|| permanent(format!("`{}` is not a mail address", recipient.address)))?;
        let now = self.clock.now();
        let claim = self.links.claim(notice, now);
        let link = self.links.url(&claim);
        let sheet = Sheet { notice, link: &link, expires_at: claim.expires_at, now };
        let message = sheet.message(self.from.clone(), to)?;
        match &self.transport {
            Transport::Smtp(smtp) => smtp.send(&message).await,
            Transport::Folder(folder) => {
                folder::write(folder.clone(), notice.delivery.clone(), message.formatted()).await
            }
        }
    }
}

/// A mailbox with a display name on one line, or without one if it is blank.
/// What looks like an encoded word (RFC 2047) is kept from being read as one.
fn mailbox(name: &str, address: &str) -> Option<Mailbox> {
    let address: Address = address.trim().parse().ok()?;
    let name = one_line(&name.replace("=?", "= ?"), 200);
    Some(Mailbox::new((!name.is_empty()).then_some(name), address))
}
