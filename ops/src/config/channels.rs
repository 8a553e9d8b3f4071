//! The sections of those who get messages: email, webhooks, people.

use std::path::{Path, PathBuf};

use countersign_kernel::ports::Person;
use countersign_kernel::principal::Principal;
use countersign_notifier::{
    EmailConfig, EmailTransport, Secret, SmtpConfig, SmtpSecurity, WebhookEndpoint, WebhookFault,
};

use super::directory::EVERY_ROLE;
use super::reader::Section;

/// How mails are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Email {
    /// The sender's address.
    pub from: String,
    /// The sender's display name.
    pub from_name: String,
    /// The mail server; without one, mails go to a folder.
    pub smtp: Option<Smtp>,
}

impl Default for Email {
    fn default() -> Self {
        Self { from: "countersign@localhost".to_owned(), from_name: "Countersign".to_owned(), smtp: None }
    }
}

impl Email {
    pub(super) fn read(mut section: Section<'_>) -> Self {
        let default = Self::default();
        let from = section
            .parsed("from", address, "write one mail address, as in approvals@example.com")
            .unwrap_or(default.from);
        let from_name = section.text("from_name").map_or(default.from_name, |found| found.value);
        let in_file = section.optional_section("smtp");
        let smtp = match in_file {
            Some(smtp) => Smtp::read(smtp),
            None => {
                let smtp = section.section("smtp");
                let named = section.reader().variable(&smtp.variable_of("host")).is_some();
                if named {
                    Smtp::read(smtp)
                } else {
                    smtp.leave(&["port", "security", "username", "password", "ca_file"]);
                    None
                }
            }
        };
        section.finish();
        Self { from, from_name, smtp }
    }

    /// The settings of the mail channel; `mailbox` is the folder that mails go
    /// to without a server.
    #[must_use]
    pub fn channel(&self, mailbox: &Path) -> EmailConfig {
        EmailConfig {
            from_name: self.from_name.clone(),
            from_address: self.from.clone(),
            transport: match &self.smtp {
                Some(smtp) => EmailTransport::Smtp(smtp.settings()),
                None => EmailTransport::Folder(mailbox.to_owned()),
            },
        }
    }
}

/// A mail server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Smtp {
    /// Its name.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is protected.
    pub security: SmtpSecurity,
    /// The name to sign in with.
    pub username: Option<String>,
    /// The password to sign in with.
    pub password: Option<Secret>,
    /// Additional authorities, PEM: what `ca_file` holds.
    pub ca_pem: Option<String>,
}

impl Smtp {
    fn read(mut section: Section<'_>) -> Option<Self> {
        let reader = section.reader();
        let host_place = section.place("host");
        let host = section.text("host").map(|found| found.value);
        let security =
            section.parsed("security", security, "write `starttls`, `tls` or `none`").unwrap_or(SmtpSecurity::StartTls);
        let usual = match security {
            SmtpSecurity::None => 25,
            SmtpSecurity::StartTls => 587,
            SmtpSecurity::Tls => 465,
        };
        let port = u16::try_from(section.whole("port", usual, 1..=65_535)).unwrap_or_default();
        let username = section.text("username").map(|found| found.value);
        let password = section.text("password").map(|found| Secret::new(found.value));
        if username.is_some() != password.is_some() {
            let (there, missing) = if username.is_some() { ("username", "password") } else { ("password", "username") };
            reader.fault(
                section.place(there),
                format!("there is no `{missing}` beside it"),
                format!("give both or neither; from the environment: {}", section.variable_of(missing)),
            );
        }
        let ca_pem = section.text("ca_file").and_then(|found| {
            let path = PathBuf::from(&found.value);
            match std::fs::read_to_string(&path) {
                Ok(pem) if pem.contains("-----BEGIN CERTIFICATE-----") => Some(pem),
                Ok(_) => {
                    reader.fault(
                        found.place,
                        format!("`{}` has no certificate in it", path.display()),
                        "name a PEM file",
                    );
                    None
                }
                Err(error) => {
                    reader.fault(found.place, format!("`{}`: {error}", path.display()), "name a readable PEM file");
                    None
                }
            }
        });
        section.finish();
        if host.is_none() {
            reader.fault(host_place, "a mail server needs a name", "give `host`, or remove the section");
        }
        Some(Self { host: host?, port, security, username, password, ca_pem })
    }

    fn settings(&self) -> SmtpConfig {
        SmtpConfig {
            port: self.port,
            security: self.security,
            username: self.username.clone(),
            password: self.password.clone(),
            extra_roots_pem: self.ca_pem.clone(),
            ..SmtpConfig::new(&self.host)
        }
    }
}

/// An endpoint that is told of every question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Its name; as a recipient it is `service:<name>`.
    pub name: String,
    /// Where requests go.
    pub url: String,
    /// What requests are signed with; two during a rotation.
    pub secrets: Vec<Secret>,
    /// Whether it may be on an address that is not public.
    pub allow_private: bool,
}

impl Webhook {
    pub(super) fn read(sections: Vec<Section<'_>>) -> Vec<Self> {
        let mut webhooks: Vec<Self> = Vec::new();
        for mut section in sections {
            let place = section.place("name");
            let missing = ["name", "url"].into_iter().filter(|key| !section.holds(key)).collect::<Vec<_>>();
            let name = section.parsed("name", endpoint_name, "write letters, digits, `-`, `_` or `.`");
            let url = section.text("url");
            let mut secrets = section.texts("secrets");
            let allow_private = section.flag("allow_private", false);
            let reader = section.reader();
            if let Some(name) = &name {
                let variable = format!("COUNTERSIGN_WEBHOOKS_{}_SECRETS", name.replace(['-', '.'], "_").to_uppercase());
                if let Some(text) = reader.variable(&variable) {
                    secrets.value = text.split(',').map(|secret| secret.trim().to_owned()).collect();
                    secrets.place = format!("variable {variable}");
                }
                if webhooks.iter().any(|other| other.name == *name) {
                    reader.fault(&place, format!("`{name}` is used twice"), "give each endpoint its own name");
                }
            }
            for key in missing {
                reader.fault(section.place(key), "an endpoint needs it", format!("give a usable `{key}`"));
            }
            section.finish();
            let (Some(name), Some(url)) = (name, url) else { continue };
            let webhook = Self {
                name,
                url: url.value,
                secrets: secrets.value.into_iter().map(Secret::new).collect(),
                allow_private,
            };
            if webhook.secrets.is_empty() {
                reader.fault(secrets.place, "there is no secret to sign with", "give at least one, `whsec_…`");
            } else if let Err(error) = webhook.endpoint() {
                reader.fault(place, error, "correct the entry");
            }
            webhooks.push(webhook);
        }
        webhooks
    }

    /// The endpoint as the webhook channel takes it.
    ///
    /// # Errors
    /// The URL or a secret is unusable; never after [`Config::load`](super::Config::load).
    pub fn endpoint(&self) -> Result<WebhookEndpoint, WebhookFault> {
        let secrets: Vec<&str> = self.secrets.iter().map(Secret::expose).collect();
        Ok(WebhookEndpoint::new(&self.name, &self.url, &secrets)?.allow_private(self.allow_private))
    }
}

/// The people, each mail address once.
pub(super) fn read_people(sections: Vec<Section<'_>>) -> Vec<Person> {
    let mut people: Vec<Person> = Vec::new();
    for mut section in sections {
        let place = section.place("email");
        let missing = !section.holds("email");
        let email = section.parsed("email", address, "write one mail address, as in ann@example.com");
        let name = section.text("name").map(|found| found.value);
        let mut roles = section.texts("roles");
        let reader = section.reader();
        if roles.value.iter().any(|role| role == EVERY_ROLE) {
            reader.fault(roles.place, "`*` is no name of a role", "list the roles by name");
        }
        roles.value.sort_unstable();
        roles.value.dedup();
        section.finish();
        let Some(email) = email else {
            if missing {
                reader.fault(place, "a person needs a mail address", "give a usable `email`");
            }
            continue;
        };
        let principal = Principal::person(&email);
        if people.iter().any(|other| other.principal == principal) {
            reader.fault(place, format!("`{email}` is listed twice"), "list each person once, with all roles");
            continue;
        }
        people.push(Person { principal, name: name.unwrap_or_else(|| email.clone()), email, roles: roles.value });
    }
    people
}

fn security(text: &str) -> Result<SmtpSecurity, &'static str> {
    match text {
        "none" => Ok(SmtpSecurity::None),
        "starttls" => Ok(SmtpSecurity::StartTls),
        "tls" => Ok(SmtpSecurity::Tls),
        _ => Err("there is no such protection"),
    }
}

fn address(text: &str) -> Result<String, &'static str> {
    let plain =
        |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || "@<>(),;:\"".contains(c));
    match text.split_once('@') {
        Some((local, domain)) if plain(local) && plain(domain) => Ok(text.to_owned()),
        _ => Err("it is no mail address"),
    }
}

fn endpoint_name(text: &str) -> Result<String, &'static str> {
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if plain { Ok(text.to_owned()) } else { Err("it has other characters") }
}
