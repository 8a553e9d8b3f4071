//! Reading the mails that were written into a folder.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use countersign_kernel::time::Timestamp;
use mail_parser::{Address, Message, MessageParser};

use crate::clock::from_system_time;

/// Octets of a file that are looked at for its headers.
const HEAD: u64 = 64 * 1024;
/// Octets of the longest mail that is read.
const LONGEST: u64 = 16 * 1024 * 1024;

/// Why the folder of mails cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the folder of mails cannot be read: {0}")]
pub struct MailboxFault(#[from] io::Error);

/// One line of the list of mails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailSummary {
    /// The file's name without `.eml`; see [`Mailbox::read`].
    pub id: String,
    /// The sender, `Name <address>`.
    pub from: String,
    /// The recipient, `Name <address>`.
    pub to: String,
    /// What it is about.
    pub subject: String,
    /// When it was sent, by its `Date`; without one, when it was written.
    pub date: Timestamp,
}

/// One mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// Its line in the list.
    pub summary: MailSummary,
    /// Its plain text; empty if there is none.
    pub text: String,
    /// Its HTML. It contains the escaped words of flows, but anybody can put
    /// a file into the folder: show it in a frame without scripts.
    pub html: Option<String>,
    /// The `http(s)` addresses in the plain text, in order, each once.
    pub links: Vec<String>,
}

/// A folder of `.eml` files, as [`EmailTransport::Folder`] fills it.
///
/// [`EmailTransport::Folder`]: crate::EmailTransport::Folder
#[derive(Debug, Clone)]
pub struct Mailbox {
    folder: PathBuf,
}

impl Mailbox {
    /// The mails in `folder`, which need not exist yet.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The newest `limit` mails by the time of writing, the newest first.
    ///
    /// Only those are opened, and of each only the head; of the others only
    /// names and times are looked at. Files that are no mails are left out.
    ///
    /// # Errors
    /// The folder exists and cannot be read.
    pub async fn list(&self, limit: usize) -> Result<Vec<MailSummary>, MailboxFault> {
        let folder = self.folder.clone();
        blocking(move || {
            let newest = newest(&folder, limit)?;
            Ok(newest.into_iter().filter_map(|(_, id)| summary(&folder, id)).collect())
        })
        .await
    }

    /// The mail with this id; `None` if there is none, or if the id is none.
    ///
    /// An id consists of at most 200 letters, digits, `-` and `_`, so that it
    /// names a file in this folder and nothing else.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub async fn read(&self, id: &str) -> Result<Option<Mail>, MailboxFault> {
        if !is_id(id) {
            return Ok(None);
        }
        let (folder, id) = (self.folder.clone(), id.to_owned());
        blocking(move || {
            let (content, written) = match open(&folder, &id, LONGEST) {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            let Some(message) = MessageParser::default().parse(&content) else { return Ok(None) };
            let text = message.body_text(0).unwrap_or_default().replace("\r\n", "\n");
            let links = links(&text);
            let html = message.html_bodies().find_map(|part| match &part.body {
                mail_parser::PartType::Html(html) => Some(html.to_string()),
                _ => None,
            });
            Ok(Some(Mail { summary: describe(&message, id, written), text, html, links }))
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, MailboxFault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(broken_off) => Err(MailboxFault(io::Error::other(broken_off))),
    }
}

fn is_id(id: &str) -> bool {
    (1..=200).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Times and ids of the newest mails, newest first; equal times by id, which
/// for UUIDv7 is the order of making.
fn newest(folder: &Path, limit: usize) -> io::Result<Vec<(SystemTime, String)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut kept = BinaryHeap::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".eml")) else { continue };
        // A file that vanishes meanwhile is no fault.
        let Ok(metadata) = entry.metadata() else { continue };
        if !is_id(id) || !metadata.is_file() {
            continue;
        }
        kept.push(Reverse((metadata.modified()?, id.to_owned())));
        if kept.len() > limit {
            kept.pop();
        }
    }
    Ok(kept.into_sorted_vec().into_iter().map(|Reverse(found)| found).collect())
}

fn open(folder: &Path, id: &str, longest: u64) -> io::Result<(Vec<u8>, Timestamp)> {
    let path = folder.join(format!("{id}.eml"));
    // A link could lead out of the folder.
    let metadata = fs::symlink_metadata(&path)?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut content = Vec::new();
    File::open(&path)?.take(longest).read_to_end(&mut content)?;
    Ok((content, from_system_time(metadata.modified()?)))
}

fn summary(folder: &Path, id: String) -> Option<MailSummary> {
    let (head, written) = open(folder, &id, HEAD).ok()?;
    let message = MessageParser::default().parse_headers(&head)?;
    Some(describe(&message, id, written))
}

fn describe(message: &Message<'_>, id: String, written: Timestamp) -> MailSummary {
    let date = message.date().map(mail_parser::DateTime::to_timestamp);
    let date = date.and_then(|seconds| seconds.checked_mul(1_000_000));
    MailSummary {
        id,
        from: printed(message.from()),
        to: printed(message.to()),
        subject: message.subject().unwrap_or_default().to_owned(),
        date: date.map_or(written, Timestamp::from_micros),
    }
}

fn printed(address: Option<&Address<'_>>) -> String {
    let Some(first) = address.and_then(Address::first) else { return String::new() };
    let address = first.address().unwrap_or_default();
    match first.name() {
        Some(name) if !name.is_empty() => format!("{name} <{address}>"),
        _ => address.to_owned(),
    }
}

fn links(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let link = word.trim_matches(['<', '>', '(', ')', '"', '\'', ',', '.', ';']);
        let address = link.starts_with("https://") || link.starts_with("http://");
        if address && !found.iter().any(|known| known == link) {
            found.push(link.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn put(folder: &Path, id: &str, minutes: u64) {
        let mail = format!(
            "From: Desk <desk@example.com>\r\nTo: <anna@example.com>\r\nSubject: {id}\r\n\
             Date: Fri, 15 Jan 2027 08:00:00 +0000\r\n\r\nSee https://example.com/d/{id}.\r\n"
        );
        let path = folder.join(format!("{id}.eml"));
        fs::write(&path, mail).expect("written");
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(minutes * 60);
        File::options().write(true).open(path).expect("open").set_modified(at).expect("time");
    }

    #[tokio::test]
    async fn the_newest_come_first_and_no_more_than_asked_for() {
        let folder = tempfile::tempdir().expect("folder");
        for (id, minutes) in [("a", 3), ("b", 9), ("c", 1), ("d", 9), ("e", 7)] {
            put(folder.path(), id, minutes);
        }
        fs::write(folder.path().join(".f.eml.1.2.tmp"), "half").expect("written");
        fs::write(folder.path().join("notes.txt"), "text").expect("written");
        fs::write(folder.path().join("with space.eml"), "text").expect("written");
        let mailbox = Mailbox::new(folder.path());
        let list = mailbox.list(3).await.expect("list");
        let ids: Vec<_> = list.iter().map(|mail| mail.id.as_str()).collect();
        assert_eq!(ids, ["d", "b", "e"]);
        assert_eq!(list[0].from, "Desk <desk@example.com>");
        assert_eq!(list[0].to, "anna@example.com");
        assert_eq!(list[0].subject, "d");
        assert_eq!(list[0].date, Timestamp::from_micros(1_800_000_000_000_000));
        assert_eq!(mailbox.list(0).await.expect("list"), []);
        assert_eq!(mailbox.list(100).await.expect("list").len(), 5);
    }

    #[tokio::test]
    async fn a_mail_is_read_by_its_id_only() {
        let outside = tempfile::tempdir().expect("folder");
        let folder = outside.path().join("mails");
        fs::create_dir(&folder).expect("folder");
        put(&folder, "a", 1);
        put(outside.path(), "secret", 1);
        let mailbox = Mailbox::new(&folder);
        let mail = mailbox.read("a").await.expect("read").expect("there");
        assert_eq!(mail.text, "See https://example.com/d/a.\n");
        assert_eq!(mail.links, ["https://example.com/d/a"]);
        assert_eq!(mail.html, None);
        for bad in ["", ".", "..", "../secret", "a/../../secret", "a.eml", "a\0", "/etc/passwd", "b"] {
            assert_eq!(mailbox.read(bad).await.expect("no fault"), None, "{bad:?}");
        }
        #[cfg(unix)]
        {
            let target = outside.path().join("secret.eml");
            std::os::unix::fs::symlink(target, folder.join("link.eml")).expect("link");
            assert_eq!(mailbox.read("link").await.expect("no fault"), None);
        }
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_is_empty() {
        let folder = tempfile::tempdir().expect("folder");
        let mailbox = Mailbox::new(folder.path().join("later"));
        assert_eq!(mailbox.list(10).await.expect("list"), []);
        assert_eq!(mailbox.read("a").await.expect("read"), None);
    }
}
