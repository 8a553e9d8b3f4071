//! Who takes part.

use countersign_kernel::policy::Policy;
use countersign_kernel::ports::{ChannelName, Directory, Person, Recipient};
use countersign_kernel::principal::{Approver, Principal};

pub(crate) fn ann() -> Principal {
    Principal::person("ann@example.com")
}

pub(crate) fn bob() -> Principal {
    Principal::person("bob@example.com")
}

pub(crate) fn cy() -> Principal {
    Principal::person("cy@example.com")
}

/// The one who releases, cancels and retries.
pub(crate) fn operator() -> Principal {
    Principal::service("operator")
}

/// Ann and Bob are managers, Cy is in finance; all read mail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct People;

impl Directory for People {
    fn person(&self, principal: &Principal) -> Option<Person> {
        let name = ["Ann", "Bob", "Cy"].into_iter().find(|name| principal.name().starts_with(&name.to_lowercase()))?;
        Some(Person {
            principal: principal.clone(),
            name: name.to_owned(),
            email: principal.name().to_owned(),
            roles: self.roles(principal),
        })
    }

    fn roles(&self, principal: &Principal) -> Vec<String> {
        match principal.name() {
            "ann@example.com" | "bob@example.com" => vec!["manager".to_owned()],
            "cy@example.com" => vec!["finance".to_owned()],
            _ => Vec::new(),
        }
    }

    fn recipients(&self, policy: &Policy) -> Vec<Recipient> {
        [ann(), bob(), cy()]
            .into_iter()
            .filter(|principal| !policy.excluding.contains(principal))
            .filter(|principal| {
                policy.approvers.iter().any(|approver| match approver {
                    Approver::Principal(listed) => listed == principal,
                    Approver::Role(role) => self.roles(principal).contains(role),
                })
            })
            .filter_map(|principal| self.person(&principal))
            .map(|person| Recipient {
                channel: ChannelName::Email,
                principal: person.principal,
                name: person.name,
                address: person.email,
            })
            .collect()
    }
}
