//! A mail as a mail program reads it.

use mail_parser::MessageParser;

/// A mail, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Letter {
    /// The display name of the one recipient.
    pub(crate) name: String,
    /// The address of the one recipient.
    pub(crate) to: String,
    pub(crate) subject: String,
    pub(crate) text: String,
    pub(crate) html: String,
    pub(crate) message_id: String,
    pub(crate) references: String,
    pub(crate) in_reply_to: String,
    /// As it travelled.
    pub(crate) raw: Vec<u8>,
}

impl Letter {
    /// Reads a mail, which has one recipient, a text and an HTML body.
    pub(crate) fn read(raw: &[u8]) -> Self {
        let mail = MessageParser::default().parse(raw).expect("a mail");
        let recipients: Vec<_> = mail.to().expect("a recipient").iter().collect();
        assert_eq!(recipients.len(), 1, "one mail per person");
        assert!(mail.cc().is_none() && mail.bcc().is_none(), "one mail per person");
        let word = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Self {
            name: word(recipients[0].name()),
            to: word(recipients[0].address()),
            subject: word(mail.subject()),
            text: mail.body_text(0).expect("a text").into_owned(),
            html: mail.body_html(0).expect("HTML").into_owned(),
            message_id: word(mail.message_id()),
            references: word(mail.references().as_text()),
            in_reply_to: word(mail.in_reply_to().as_text()),
            raw: raw.to_owned(),
        }
    }

    /// The decision link in the text, which the HTML has too.
    #[track_caller]
    pub(crate) fn link(&self) -> String {
        let mut links = self.text.split_whitespace().filter(|word| word.starts_with("http") && word.contains("/d/"));
        let link = links.next().unwrap_or_else(|| panic!("no link in {}", self.text)).to_owned();
        assert_eq!(links.next(), None, "one link: {}", self.text);
        assert!(self.html.contains(&format!("href=\"{link}\"")), "{link} is not in {}", self.html);
        link
    }

    /// The link without scheme, host and port.
    #[track_caller]
    pub(crate) fn path(&self) -> String {
        let link = self.link();
        let at = link.find("/d/").expect("a decision link");
        link[at..].to_owned()
    }
}
