//! Which server a command talks to (R31).

use countersign_notifier::Secret;

use super::args::Global;
use super::client::Client;
use super::exit::Exit;
use super::failure::{CliError, chain};
use crate::app;
use crate::config::{Config, Variables};

/// The server and the token that the command line or the environment name.
struct Named {
    server: Option<String>,
    token: Option<String>,
}

impl Named {
    fn read(global: &Global, env: &dyn Variables) -> Self {
        let set = |name: &str| env.get(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let server = global.server.clone().or_else(|| set("COUNTERSIGN_SERVER"));
        Self { server, token: set("COUNTERSIGN_TOKEN") }
    }
}

/// A server to talk to, perhaps one of this process.
pub(super) struct Session {
    pub(super) client: Client,
    own: Option<app::Running>,
}

impl Session {
    /// The named server, else the one that runs on the data folder, else one
    /// of our own on a port that nobody knows.
    pub(super) async fn open(
        config: &Config,
        global: &Global,
        env: &dyn Variables,
        flows: app::Flows,
    ) -> Result<Self, CliError> {
        let named = Named::read(global, env);
        if let Some(server) = &named.server {
            return Self::of_other(config, server, named.token);
        }
        // Starting takes the folder's lock, so this both looks and leaps: no
        // other process can come in between.
        let options = app::Options { demo: false, port: app::Port::Ephemeral };
        let flows = flows().map_err(|error| CliError::because(Exit::Failure, &error))?;
        match Box::pin(app::start_with(config, options, flows)).await {
            Ok(running) => {
                let client = Client::new(&running.base_url, Some(Secret::new(running.token.clone())))?;
                Ok(Self { client, own: Some(running) })
            }
            Err(app::StartError::AlreadyRunning { address }) => Self::of_other(config, &address, named.token),
            Err(error) => Err(CliError::new(Exit::NoServer, chain(&error))),
        }
    }

    /// As [`open`](Self::open), but with none of our own: for a link, which is
    /// of no use once the server has stopped.
    pub(super) fn with_running(config: &Config, global: &Global, env: &dyn Variables) -> Result<Self, CliError> {
        let named = Named::read(global, env);
        let owner = || app::DataFolder::owner(&config.data_dir);
        let server = named.server.map_or_else(owner, |server| Ok(Some(server)));
        match server.map_err(|error| CliError::new(Exit::NoServer, chain(&error)))? {
            Some(server) => Self::of_other(config, &server, named.token),
            None => Err(CliError::new(
                Exit::NoServer,
                format!(
                    "no server runs on {}, and a link needs one that stays; start one with `countersign up`, \
                     or name one with --server",
                    config.data_dir.display()
                ),
            )),
        }
    }

    fn of_other(config: &Config, server: &str, token: Option<String>) -> Result<Self, CliError> {
        let token = token.or_else(|| {
            let text = std::fs::read_to_string(config.token_file()).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        });
        Ok(Self { client: Client::new(server, token.map(Secret::new))?, own: None })
    }

    /// Stops the server if it is ours.
    pub(super) async fn close(self) {
        if let Some(running) = self.own {
            running.stop().await;
        }
    }
}
