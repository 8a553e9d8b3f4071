//! Handing a mail to a server (RFC 5321).

use std::sync::OnceLock;
use std::time::Duration;

use countersign_kernel::ports::{DeliveryError, Receipt};
use lettre::transport::smtp::AsyncSmtpTransportBuilder;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};

use crate::failure::quotable;
use crate::secret::Secret;

/// How the connection to the mail server is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmtpSecurity {
    /// Not at all: links and passwords travel in the clear. For a server on
    /// the same machine.
    None,
    /// The connection starts in the clear and must change to TLS (RFC 3207)
    /// before anything is said; a server that cannot is not used. Usually
    /// port 587.
    StartTls,
    /// TLS from the start (RFC 8314). Usually port 465.
    Tls,
}

/// How to reach a mail server.
#[derive(Debug, Clone)]
pub struct SmtpConfig {
    /// The server's name, which its certificate must carry.
    pub host: String,
    /// The server's port.
    pub port: u16,
    /// How the connection is protected.
    pub security: SmtpSecurity,
    /// The name to sign in with (AUTH PLAIN or LOGIN, RFC 4954); nobody signs
    /// in without one.
    pub username: Option<String>,
    /// The password that goes with it.
    pub password: Option<Secret>,
    /// How long connecting and each command may take.
    pub timeout: Duration,
    /// Certificates (PEM, one or more) of authorities that are trusted besides
    /// the public ones: a company's own, or a test's.
    pub extra_roots_pem: Option<String>,
}

impl SmtpConfig {
    /// The server at `host` over STARTTLS on port 587, without signing in,
    /// with 30 seconds for each command.
    #[must_use]
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            port: 587,
            security: SmtpSecurity::StartTls,
            username: None,
            password: None,
            timeout: Duration::from_secs(30),
            extra_roots_pem: None,
        }
    }
}

/// Why a mail server's settings are unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SmtpFault {
    /// There is no name of a server.
    #[error("the mail server has no host name")]
    Host,
    /// A name without a password, or the other way round.
    #[error("signing in to the mail server takes a user name and a password; one of them is missing")]
    HalfCredentials,
    /// The additional certificates cannot be read.
    #[error("the additional root certificates of the mail server are not readable PEM: {0}")]
    Roots(String),
    /// TLS cannot be set up.
    #[error("TLS to the mail server cannot be set up: {0}")]
    Tls(String),
}

type Pool = AsyncSmtpTransport<Tokio1Executor>;

/// The connections to one server.
pub(super) struct Smtp {
    builder: AsyncSmtpTransportBuilder,
    /// Made at the first mail, because the pool starts a task of the runtime.
    pool: OnceLock<Pool>,
}

impl Smtp {
    pub(super) fn new(config: &SmtpConfig) -> Result<Self, SmtpFault> {
        if config.host.trim().is_empty() {
            return Err(SmtpFault::Host);
        }
        let tls = match config.security {
            SmtpSecurity::None => Tls::None,
            SmtpSecurity::StartTls => Tls::Required(parameters(config)?),
            SmtpSecurity::Tls => Tls::Wrapper(parameters(config)?),
        };
        let mut builder =
            Pool::builder_dangerous(config.host.as_str()).port(config.port).timeout(Some(config.timeout)).tls(tls);
        match (&config.username, &config.password) {
            (Some(name), Some(password)) => {
                builder = builder.credentials(Credentials::new(name.clone(), password.expose().to_owned()));
            }
            (None, None) => {}
            _ => return Err(SmtpFault::HalfCredentials),
        }
        Ok(Self { builder, pool: OnceLock::new() })
    }

    pub(super) async fn send(&self, message: &Message) -> Result<Receipt, DeliveryError> {
        let pool = self.pool.get_or_init(|| self.builder.clone().build());
        match pool.send_raw(message.envelope(), &message.formatted()).await {
            Ok(response) => {
                let words = quotable(response.first_line().unwrap_or_default());
                Ok(Receipt { detail: format!("{} {words}", response.code()).trim().to_owned() })
            }
            Err(error) => Err(DeliveryError {
                message: format!("the mail server did not take the message: {}", quotable(&error.to_string())),
                // A server that cannot take a non-ASCII address (RFC 6531) never
                // will; one without STARTTLS or AUTH may be set right.
                retryable: !(error.is_permanent() || error.is_client() && !plain(message)),
            }),
        }
    }
}

/// Whether all recipients' addresses are plain ASCII.
fn plain(message: &Message) -> bool {
    message.envelope().to().iter().all(|address| <_ as AsRef<str>>::as_ref(address).is_ascii())
}

fn parameters(config: &SmtpConfig) -> Result<TlsParameters, SmtpFault> {
    let mut builder = TlsParameters::builder(config.host.clone());
    if let Some(pem) = &config.extra_roots_pem {
        if !pem.contains("-----BEGIN CERTIFICATE-----") {
            return Err(SmtpFault::Roots("no certificate in it".into()));
        }
        let roots = Certificate::from_pem(pem.as_bytes()).map_err(|error| SmtpFault::Roots(error.to_string()))?;
        builder = builder.add_root_certificate(roots);
    }
    builder.build().map_err(|error| SmtpFault::Tls(error.to_string()))
}
