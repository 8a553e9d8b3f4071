//! `up --demo`: sample threads, and people to decide them.

use countersign_kernel::canonical::content_hash;
use countersign_kernel::ids::ThreadId;
use countersign_kernel::ports::Person;
use countersign_kernel::principal::Principal;
use countersign_worker::engine::{Engine, RequestError};
use countersign_worker::store::{Refusal, StoreError};
use serde_json::json;

use crate::config::{ADMINISTRATOR, Config, ConfiguredDirectory};

/// The configured people; without any, two sample ones. Some requests need two
/// different people, and one alone would be stuck.
pub(super) fn directory(config: &Config) -> ConfiguredDirectory {
    if !config.people.is_empty() {
        return config.directory();
    }
    let person = |email: &str, name: &str, roles: &[&str]| Person {
        principal: Principal::person(email),
        name: name.to_owned(),
        email: email.to_owned(),
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
    };
    let people = vec![
        person(ADMINISTRATOR, "Administrator", &["approver", "manager", "treasury", "finance"]),
        person("robin@localhost", "Robin Lindqvist", &["finance", "compliance"]),
    ];
    ConfiguredDirectory::new(people, &config.webhooks)
}

/// Starts the sample threads. Their ids come from their content, so a second
/// start adds nothing.
pub(super) async fn start(engine: &Engine, by: &Principal) {
    for (graph, input) in countersign_flows::demo_inputs() {
        let id = format!("demo-{graph}-{}", &content_hash(&json!([graph, input]))[..8]);
        let Ok(thread) = ThreadId::parse(id) else { continue };
        match engine.start(graph, &input, Some(thread), by).await {
            Ok(_) | Err(RequestError::Store(StoreError::Refused(Refusal::ThreadExists { .. }))) => {}
            Err(error) => tracing::warn!(%error, graph, "a sample thread was not started"),
        }
    }
}
