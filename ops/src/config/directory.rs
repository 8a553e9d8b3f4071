//! Who is who, from configuration (R18).

use std::collections::BTreeSet;

use countersign_kernel::policy::{Policy, Voter};
use countersign_kernel::ports::{ChannelName, Directory, Person, Recipient};
use countersign_kernel::principal::{Approver, Principal};

use super::channels::Webhook;

/// The mail address of the local administrator.
pub const ADMINISTRATOR: &str = "admin@localhost";

/// What stands for every role in the list of a local administrator's roles.
/// No configured role can be named so.
pub const EVERY_ROLE: &str = "*";

/// People and endpoints as configured. Without any people, every role is held
/// by the local administrator.
#[derive(Debug, Clone)]
pub struct ConfiguredDirectory {
    people: Vec<Person>,
    webhooks: Vec<(String, String)>,
}

impl ConfiguredDirectory {
    /// The directory of these people and endpoints.
    #[must_use]
    pub fn new(people: Vec<Person>, webhooks: &[Webhook]) -> Self {
        Self { people, webhooks: webhooks.iter().map(|hook| (hook.name.clone(), hook.url.clone())).collect() }
    }

    /// The local administrator: whom the token in `<data_dir>/token` and the
    /// printed sign-in link stand for. Holds every role as long as nobody is
    /// configured, and none after that, unless configured like anybody else.
    #[must_use]
    pub fn administrator(&self) -> Person {
        let principal = Principal::person(ADMINISTRATOR);
        self.configured(&principal).cloned().unwrap_or_else(|| Person {
            principal,
            name: "Administrator".to_owned(),
            email: ADMINISTRATOR.to_owned(),
            roles: if self.people.is_empty() { vec![EVERY_ROLE.to_owned()] } else { Vec::new() },
        })
    }

    /// The voter behind a principal, with the roles held now. Who holds every
    /// role gets those that the policy names, so that
    /// [`Policy::admit`] need not know of it.
    #[must_use]
    pub fn voter(&self, principal: &Principal, policy: &Policy) -> Voter {
        let mut roles = self.roles(principal);
        if roles.iter().any(|role| role == EVERY_ROLE) {
            roles = policy
                .approvers
                .iter()
                .filter_map(|approver| match approver {
                    Approver::Role(role) => Some(role.clone()),
                    Approver::Principal(_) => None,
                })
                .collect();
        }
        Voter { principal: principal.clone(), roles }
    }

    fn configured(&self, principal: &Principal) -> Option<&Person> {
        self.people.iter().find(|person| person.principal == *principal)
    }

    /// The people that an approver means now.
    fn meant_by(&self, approver: &Approver) -> Vec<Person> {
        match approver {
            Approver::Role(_) if self.people.is_empty() => vec![self.administrator()],
            Approver::Role(role) => self.people.iter().filter(|person| person.roles.contains(role)).cloned().collect(),
            // Somebody a flow names who is in no list still has an address.
            Approver::Principal(principal) if principal.is_person() => {
                vec![self.person(principal).unwrap_or_else(|| Person {
                    principal: principal.clone(),
                    name: principal.name().to_owned(),
                    email: principal.name().to_owned(),
                    roles: Vec::new(),
                })]
            }
            Approver::Principal(_) => Vec::new(),
        }
    }
}

impl Directory for ConfiguredDirectory {
    fn person(&self, principal: &Principal) -> Option<Person> {
        match self.configured(principal) {
            Some(person) => Some(person.clone()),
            None => Some(self.administrator()).filter(|admin| admin.principal == *principal),
        }
    }

    fn roles(&self, principal: &Principal) -> Vec<String> {
        self.person(principal).map(|person| person.roles).unwrap_or_default()
    }

    fn recipients(&self, policy: &Policy) -> Vec<Recipient> {
        let mut seen: BTreeSet<Principal> = policy.excluding.iter().cloned().collect();
        let mut recipients = Vec::new();
        for person in policy.approvers.iter().flat_map(|approver| self.meant_by(approver)) {
            if seen.insert(person.principal.clone()) {
                recipients.push(Recipient {
                    channel: ChannelName::Email,
                    principal: person.principal,
                    name: person.name,
                    address: person.email,
                });
            }
        }
        for (name, url) in &self.webhooks {
            let principal = Principal::service(name);
            if seen.insert(principal.clone()) {
                recipients.push(Recipient {
                    channel: ChannelName::Webhook,
                    principal,
                    name: name.clone(),
                    address: url.clone(),
                });
            }
        }
        recipients
    }
}

#[cfg(test)]
mod tests {
    use countersign_kernel::principal::{person, role};

    use super::*;

    fn someone(email: &str, roles: &[&str]) -> Person {
        Person {
            principal: Principal::person(email),
            name: format!("Name of {email}"),
            email: email.to_owned(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        }
    }

    fn hook(name: &str) -> Webhook {
        Webhook {
            name: name.to_owned(),
            url: format!("https://{name}.example"),
            secrets: Vec::new(),
            allow_private: false,
        }
    }

    fn asking(approvers: Vec<Approver>) -> Policy {
        Policy { approvers, ..Policy::default() }
    }

    #[test]
    fn without_people_every_role_is_the_administrator() {
        let directory = ConfiguredDirectory::new(Vec::new(), &[]);
        let policy = asking(vec![role("manager"), role("finance")]);
        let told = directory.recipients(&policy);
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].name.as_str(), told[0].address.as_str()), ("Administrator", "admin@localhost"));
        let admin = Principal::person(ADMINISTRATOR);
        assert_eq!(policy.admit(&directory.voter(&admin, &policy)), Ok(()));
        assert!(policy.admit(&directory.voter(&Principal::person("x@y.z"), &policy)).is_err());
        assert!(policy.admit(&directory.voter(&Principal::service("admin@localhost"), &policy)).is_err());
    }

    #[test]
    fn with_people_the_administrator_holds_no_role() {
        let directory = ConfiguredDirectory::new(vec![someone("Ann@x.org", &["manager"])], &[]);
        let admin = Principal::person(ADMINISTRATOR);
        let policy = asking(vec![role("manager")]);
        assert!(directory.person(&admin).is_some());
        assert!(policy.admit(&directory.voter(&admin, &policy)).is_err());
        assert_eq!(policy.admit(&directory.voter(&Principal::person("ann@X.org"), &policy)), Ok(()));
        assert!(directory.recipients(&asking(vec![role("finance")])).is_empty());
    }

    #[test]
    fn each_person_is_told_once_excluded_ones_never_and_webhooks_last() {
        let people = vec![someone("Ann@x.org", &["a", "b"]), someone("bob@x.org", &["b"]), someone("cy@x.org", &["b"])];
        let directory = ConfiguredDirectory::new(people, &[hook("erp")]);
        let policy = Policy {
            approvers: vec![role("a"), person("ANN@x.org"), role("b"), person("dee@else.org")],
            excluding: vec![Principal::person("bob@x.org")],
            ..Policy::default()
        };
        let told: Vec<_> =
            directory.recipients(&policy).into_iter().map(|to| (to.principal.to_string(), to.address)).collect();
        let expected = [
            ("person:ann@x.org", "Ann@x.org"),
            ("person:cy@x.org", "cy@x.org"),
            ("person:dee@else.org", "dee@else.org"),
            ("service:erp", "https://erp.example"),
        ];
        assert_eq!(told, expected.map(|(who, at)| (who.to_owned(), at.to_owned())));
    }
}
