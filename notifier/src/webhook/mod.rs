//! Signed requests to endpoints, by the
//! [Standard Webhooks](https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md)
//! specification, and the check of such signatures on what comes in.

mod address;
mod body;
mod signature;

#[cfg(test)]
mod tests;

use std::error::Error as _;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign_kernel::ports::{Channel, ChannelName, Clock, DeliveryError, Notice, Receipt};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode, Url, redirect};

use self::address::{NotPublic, PublicOnly, is_public};
use self::signature::{ID, SIGNATURE, TIMESTAMP};
pub use self::signature::{Received, SecretFault, SignatureFault, WebhookSecret, sign, verify};
use crate::failure::{permanent, quotable, transient};

/// An endpoint as configured.
#[derive(Debug, Clone)]
pub struct WebhookEndpoint {
    name: String,
    url: Url,
    secrets: Vec<WebhookSecret>,
    allow_private: bool,
}

impl WebhookEndpoint {
    /// The endpoint `name` (a recipient `service:<name>` means it) at `url`,
    /// whose requests are signed with each of `secrets` (`whsec_…`). During a
    /// rotation there are two, and the receiver may know either.
    ///
    /// # Errors
    /// No name, no `http(s)` URL, a user name or password in the URL (it is
    /// shown to operators), no secret, or one that is none.
    pub fn new<S: AsRef<str>>(name: impl Into<String>, url: &str, secrets: &[S]) -> Result<Self, WebhookFault> {
        let name = name.into().trim().to_owned();
        let fault = |what: &str| WebhookFault::Endpoint { name: name.clone(), what: what.to_owned() };
        if name.is_empty() {
            return Err(fault("it has no name"));
        }
        let url = Url::parse(url).map_err(|error| fault(&format!("its URL cannot be read: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(fault("its URL is not one of `http` or `https`"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(fault("its URL contains a user name or password, which would be shown"));
        }
        if secrets.is_empty() {
            return Err(fault("it has no secret to sign with"));
        }
        let secrets = secrets
            .iter()
            .map(|secret| WebhookSecret::parse(secret.as_ref()))
            .collect::<Result<_, _>>()
            .map_err(|error| fault(&error.to_string()))?;
        Ok(Self { name, url, secrets, allow_private: false })
    }

    /// Lets this endpoint be on a private, loopback or other address that is
    /// not public. Off unless said, so that an endpoint's URL cannot be used to
    /// reach into the network that the server stands in.
    #[must_use]
    pub fn allow_private(mut self, allow: bool) -> Self {
        self.allow_private = allow;
        self
    }

    /// The endpoint's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where requests go.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.as_str()
    }
}

/// How the webhook channel is set up.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// Where the pages of this server are; see [`page_url`](crate::page_url).
    pub base_url: String,
    /// The endpoints, by name.
    pub endpoints: Vec<WebhookEndpoint>,
    /// How long one request may take, from looking up the name to the head of
    /// the response.
    pub timeout: Duration,
}

impl WebhookConfig {
    /// No endpoints yet, 10 seconds for each request.
    #[must_use]
    pub fn new(base_url: impl Into<String>) -> Self {
        Self { base_url: base_url.into(), endpoints: Vec::new(), timeout: Duration::from_secs(10) }
    }
}

/// Why the webhook channel cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookFault {
    /// An endpoint's settings are unusable.
    #[error("the webhook endpoint `{name}` cannot be used: {what}")]
    Endpoint {
        /// Which.
        name: String,
        /// Why.
        what: String,
    },
    /// The program has not chosen an implementation of TLS.
    #[error("no TLS provider is installed in this process; install one before making the channel")]
    NoTlsProvider,
    /// The HTTP client cannot be made.
    #[error("the HTTP client cannot be set up: {0}")]
    Client(String),
}

/// Posts requests to all configured endpoints.
///
/// Every attempt of a delivery has the same `webhook-id` and the same body;
/// the timestamp and with it the signature are those of the attempt. Redirects
/// are not followed, proxies not used, and the response's body is not read.
pub struct WebhookChannel {
    base_url: String,
    endpoints: Vec<WebhookEndpoint>,
    /// Refuses names that lead to addresses that are not public.
    public: Client,
    /// For endpoints that were allowed to be anywhere.
    anywhere: Client,
    clock: Arc<dyn Clock>,
}

impl WebhookChannel {
    /// A channel whose signatures are dated by `clock`.
    ///
    /// # Errors
    /// Two endpoints have one name, no TLS provider is installed in the
    /// process, or the client cannot be made.
    pub fn new(config: WebhookConfig, clock: Arc<dyn Clock>) -> Result<Self, WebhookFault> {
        for (i, endpoint) in config.endpoints.iter().enumerate() {
            if config.endpoints[..i].iter().any(|other| other.name == endpoint.name) {
                return Err(WebhookFault::Endpoint {
                    name: endpoint.name.clone(),
                    what: "the name is used twice".to_owned(),
                });
            }
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(WebhookFault::NoTlsProvider);
        }
        let builder = || {
            Client::builder()
                .user_agent("countersign")
                .redirect(redirect::Policy::none())
                .no_proxy()
                .timeout(config.timeout)
        };
        let client = |error: reqwest::Error| WebhookFault::Client(error.to_string());
        let public = builder().dns_resolver(PublicOnly).build().map_err(client)?;
        let anywhere = builder().build().map_err(client)?;
        Ok(Self { base_url: config.base_url, endpoints: config.endpoints, public, anywhere, clock })
    }

    /// The client for an endpoint. Refuses a URL that names a forbidden address
    /// itself, for which no name is looked up.
    fn client(&self, endpoint: &WebhookEndpoint) -> Result<&Client, DeliveryError> {
        if endpoint.allow_private {
            return Ok(&self.anywhere);
        }
        let host = endpoint.url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        match host.parse::<IpAddr>() {
            Ok(address) if !is_public(address) => Err(permanent(NotPublic.to_string())),
            _ => Ok(&self.public),
        }
    }
}

impl fmt::Debug for WebhookChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookChannel").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

#[async_trait]
impl Channel for WebhookChannel {
    fn name(&self) -> ChannelName {
        ChannelName::Webhook
    }

    /// Handed over is any 2xx. To be retried: 408, 425, 429, any 5xx, a
    /// timeout, a connection that fails. Not to be retried: anything else,
    /// 410 and redirects among them, an endpoint that is not configured any
    /// more, an address that is not public.
    async fn send(&self, notice: &Notice) -> Result<Receipt, DeliveryError> {
        let principal = &notice.recipient.principal;
        if notice.recipient.channel != ChannelName::Webhook || principal.is_person() {
            return Err(permanent(format!("`{principal}` is no webhook endpoint")));
        }
        let endpoint = self
            .endpoints
            .iter()
            .find(|endpoint| endpoint.name == principal.name())
            .ok_or_else(|| permanent(format!("no webhook endpoint `{}` is configured", principal.name())))?;
        let client = self.client(endpoint)?;
        let body = body::asked(notice, &self.base_url)?;
        let id = notice.delivery.as_str();
        let seconds = self.clock.now().as_micros().div_euclid(1_000_000);
        let response = client
            .post(endpoint.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ID, id)
            .header(TIMESTAMP, seconds.to_string())
            .header(SIGNATURE, sign(&endpoint.secrets, id, seconds, &body))
            .body(body)
            .send()
            .await
            .map_err(failed)?;
        judge(response.status())
    }
}

fn judge(status: StatusCode) -> Result<Receipt, DeliveryError> {
    let answered = format!("the endpoint answered {}", status.as_u16());
    match status.as_u16() {
        200..=299 => Ok(Receipt { detail: format!("HTTP {}", status.as_u16()) }),
        408 | 425 | 429 | 500..=599 => Err(transient(answered)),
        300..=399 => Err(permanent(format!("{answered}; redirects are not followed, configure the final address"))),
        410 => Err(permanent(format!("{answered}: it wants no more requests"))),
        _ => Err(permanent(answered)),
    }
}

fn failed(error: reqwest::Error) -> DeliveryError {
    let error = error.without_url();
    let mut reasons = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        if cause.is::<NotPublic>() {
            return permanent(NotPublic.to_string());
        }
        reasons.push(cause.to_string());
        source = cause.source();
    }
    let what = if error.is_timeout() {
        "the endpoint did not answer in time"
    } else if error.is_connect() {
        "the endpoint could not be reached"
    } else {
        "the request failed"
    };
    let message = match reasons.pop() {
        Some(reason) => format!("{what}: {}", quotable(&reason)),
        None => what.to_owned(),
    };
    DeliveryError { message, retryable: !error.is_builder() }
}
