//! What the HTTP handlers share.

use std::sync::Arc;

use countersign_kernel::ports::Clock;
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;
use countersign_notifier::{Links, Mailbox};
use countersign_worker::engine::Engine;

use crate::api::InFlight;
use crate::config::{Config, ConfiguredDirectory};
use crate::metrics::HttpMetrics;
use crate::overview::Lookout;

/// Everything a handler may need; cheap to clone.
#[derive(Clone)]
pub struct AppState {
    /// Threads, answers, reading.
    pub engine: Engine,
    /// Signed links, and the signer for sessions and cursors.
    pub links: Arc<Links>,
    /// Who is who.
    pub directory: Arc<ConfiguredDirectory>,
    /// Mails that were written to a folder, when no SMTP server is configured.
    pub mailbox: Option<Arc<Mailbox>>,
    /// The configuration.
    pub config: Arc<Config>,
    /// Where people reach this server; no slash at the end.
    pub base_url: Arc<str>,
    /// How everything stands.
    pub(crate) lookout: Arc<Lookout>,
    /// Requests that were answered.
    pub(crate) http_metrics: HttpMetrics,
    /// Requests under a key that are being done.
    pub(crate) in_flight: InFlight,
}

impl AppState {
    /// What handlers need around an engine.
    pub(crate) fn new(
        engine: Engine,
        config: &Config,
        links: Arc<Links>,
        directory: Arc<ConfiguredDirectory>,
        base_url: &str,
    ) -> Self {
        Self {
            engine,
            links,
            directory,
            mailbox: config.email.smtp.is_none().then(|| Arc::new(Mailbox::new(config.mailbox_dir()))),
            config: Arc::new(config.clone()),
            base_url: base_url.into(),
            lookout: Arc::default(),
            http_metrics: HttpMetrics::default(),
            in_flight: InFlight::default(),
        }
    }

    /// The present instant.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let clock: &Arc<dyn Clock> = self.engine.clock();
        clock.now()
    }

    /// The person whom the printed sign-in link stands for.
    #[must_use]
    pub fn administrator(&self) -> Principal {
        self.directory.administrator().principal
    }
}
