//! Mails as composed, read by a real MIME parser.

use std::path::Path;

use countersign_kernel::question::{Choice, Question, modal};
use mail_parser::{Message, MessageParser};

use super::*;
use crate::mailbox::Mailbox as Folder;
use crate::testing::{NOW, links, notice, still};

fn channel(transport: EmailTransport) -> EmailChannel {
    let config =
        EmailConfig { from_name: "Freigaben Süd".into(), from_address: "desk@ops.example.com".into(), transport };
    EmailChannel::new(config, links(), still()).expect("channel")
}

async fn sent(folder: &Path, notice: &Notice) -> Vec<u8> {
    let channel = channel(EmailTransport::Folder(folder.to_owned()));
    let receipt = channel.send(notice).await.expect("sent");
    std::fs::read(folder.join(receipt.detail)).expect("file")
}

fn parsed(mail: &[u8]) -> Message<'_> {
    MessageParser::default().parse(mail).expect("a mail")
}

fn assert_short_lines(mail: &[u8]) {
    let text = std::str::from_utf8(mail).expect("ASCII");
    assert!(text.is_ascii());
    for line in text.split("\r\n") {
        assert!(line.len() <= 998, "{} octets: {line}", line.len());
        assert!(!line.contains('\n') && !line.contains('\r'), "{line}");
    }
}

#[tokio::test]
async fn a_mail_says_everything_twice_with_a_working_link() {
    let folder = tempfile::tempdir().expect("folder");
    let notice = notice(ChannelName::Email);
    let raw = sent(folder.path(), &notice).await;
    assert_short_lines(&raw);
    let mail = parsed(&raw);
    assert_eq!(mail.subject(), Some("Pay 1,200.00 EUR to Acme?"));
    assert_eq!(mail.date().expect("date").to_timestamp() * 1_000_000, NOW.as_micros());
    let from = mail.from().expect("from").first().expect("one");
    assert_eq!((from.name(), from.address()), (Some("Freigaben Süd"), Some("desk@ops.example.com")));
    assert_eq!(mail.to().expect("to").iter().count(), 1);
    assert_eq!(mail.header_raw("Auto-Submitted").map(str::trim), Some("auto-generated"));
    assert_eq!(mail.header_raw("X-Countersign-Interrupt").map(str::trim), Some(notice.interrupt.as_str()));
    let thread = format!("request.{}@ops.example.com", notice.interrupt);
    assert_eq!(mail.references().as_text(), Some(thread.as_str()));
    assert_eq!(mail.in_reply_to().as_text(), Some(thread.as_str()));
    assert!(mail.message_id().expect("id").ends_with("@ops.example.com"));

    let link = links().url(&links().claim(&notice, NOW));
    let text = mail.body_text(0).expect("text");
    let html = mail.body_html(0).expect("html");
    let both = [
        "Pay 1,200.00 EUR to Acme?",
        "The invoice came in today.",
        "It is due on Friday.",
        "2016-0417",
        "Jörg Müller",
        "the transfer is sent at once",
        "the invoice goes back",
        "the request stops waiting at the deadline",
        "Saturday, 16 January 2027, 11:46 UTC",
        "Anna Example",
        "orward this message",
        "Opening the",
        &link,
    ];
    for part in both {
        assert!(text.contains(part), "no {part:?} in {text}");
        assert!(html.contains(part), "no {part:?} in {html}");
    }
    assert!(text.contains("Supplier: Acme & Söhne <GmbH>"), "{text}");
    assert!(html.contains("Acme &#38; Söhne &#60;GmbH&#62;"), "{html}");
    assert!(text.contains(&format!("\r\n{link}\r\n")), "the link stands on a line of its own");
    assert!(html.contains(&format!("href=\"{link}\"")));
}

#[tokio::test]
async fn the_link_in_the_mail_is_the_recipients() {
    let folder = tempfile::tempdir().expect("folder");
    let notice = notice(ChannelName::Email);
    sent(folder.path(), &notice).await;
    let mailbox = Folder::new(folder.path());
    let listed = mailbox.list(10).await.expect("list");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].from, "Freigaben Süd <desk@ops.example.com>");
    let mail = mailbox.read(&listed[0].id).await.expect("read").expect("there");
    assert_eq!(mail.summary, listed[0]);
    assert!(mail.html.expect("html").contains("<!doctype html>"));
    assert_eq!(mail.links.len(), 1);
    let (_, token) = mail.links[0].rsplit_once("/d/").expect("a link");
    let claim = links().verify(token, NOW).expect("genuine");
    assert_eq!(claim, links().claim(&notice, NOW));
    assert_eq!(claim.principal, notice.recipient.principal);
}

#[tokio::test]
async fn names_and_subjects_of_any_script_arrive() {
    let folder = tempfile::tempdir().expect("folder");
    let names = [
        "Zoë Ångström-Łukasiewicz",
        "山田 太郎",
        "Ана \"Бос\" Петровић, д.т.н.",
        "🦊 Ada 👩🏽‍💻 Ω",
        "Smith, John (Ops); \\o/ <x@y>",
        &"長い名前".repeat(40),
    ];
    let titles = [
        "é".repeat(300),
        "承認".repeat(150),
        "👩🏽‍💻".repeat(75),
        "Zahlung für 山田 🦊 freigeben? ".repeat(10),
        "x".repeat(390),
        "a b ".repeat(99),
        "=?utf-8?q?not_encoded?= here".to_owned(),
        "山 =?utf-8?b?eA==?= 🦊 ".repeat(15),
    ];
    for name in names {
        for title in &titles {
            let mut notice = notice(ChannelName::Email);
            notice.recipient.name = name.to_owned();
            notice.request.title = title.clone();
            let raw = sent(folder.path(), &notice).await;
            assert_short_lines(&raw);
            let mail = parsed(&raw);
            assert_eq!(mail.subject(), Some(title.trim()));
            let to = mail.to().expect("to").first().expect("one");
            assert_eq!((to.name(), to.address()), (Some(name), Some("anna@example.com")));
        }
    }
}

#[tokio::test]
async fn nothing_that_a_flow_says_becomes_markup_or_a_header() {
    let folder = tempfile::tempdir().expect("folder");
    let mut notice = notice(ChannelName::Email);
    let evil = "\"><script>alert(1)</script><img src=x onerror='y'>";
    notice.request.title = format!("{evil}\r\nBcc: all@example.com\r\n\r\nHello");
    notice.request.message = Some(evil.into());
    notice.request.requested_by = Some(evil.into());
    notice.request.details[0].label = evil.into();
    notice.request.details[0].value = evil.into();
    notice.request.outcomes.yes = Some(evil.into());
    notice.recipient.name = format!("{evil}\r\nBcc: all@example.com");
    notice.graph = evil.into();
    let raw = sent(folder.path(), &notice).await;
    let mail = parsed(&raw);
    let html = mail.body_html(0).expect("html");
    for markup in ["<script", "<img", "onerror='"] {
        assert!(!html.contains(markup), "{markup} in {html}");
    }
    assert!(html.matches("&#60;script&#62;").count() >= 7, "{html}");
    assert!(mail.bcc().is_none());
    assert_eq!(mail.subject(), Some(format!("{evil} Bcc: all@example.com Hello").as_str()));
}

#[tokio::test]
async fn in_plain_text_no_detail_passes_for_the_link() {
    let folder = tempfile::tempdir().expect("folder");
    let mut notice = notice(ChannelName::Email);
    let forged = "x\nReview and decide:\r\nhttps://evil.example";
    notice.request.title = forged.into();
    notice.request.details[0].label = forged.into();
    notice.request.details[0].value = forged.into();
    notice.request.outcomes.yes = Some(forged.into());
    let raw = sent(folder.path(), &notice).await;
    let mail = parsed(&raw);
    let text = mail.body_text(0).expect("text");
    assert_eq!(text.lines().filter(|line| line.starts_with("Review")).count(), 1, "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("https://")).count(), 1, "{text}");
}

#[tokio::test]
async fn no_text_can_end_a_part() {
    let folder = tempfile::tempdir().expect("folder");
    let plain = notice(ChannelName::Email);
    let raw = sent(folder.path(), &plain).await;
    let text = String::from_utf8(raw).expect("ASCII");
    let boundary = text.split("boundary=\"").nth(1).and_then(|rest| rest.split('"').next());
    let boundary = boundary.expect("a boundary").to_owned();
    let mut notice = plain;
    notice.request.message =
        Some(format!("\n--{boundary}\nContent-Type: text/html\n\n<b>forged</b>\n--{boundary}--\n"));
    let raw = sent(folder.path(), &notice).await;
    let mail = parsed(&raw);
    assert_eq!(mail.parts.len(), 3);
    assert!(!mail.body_html(0).expect("html").contains("<b>forged"));
    assert!(mail.body_text(0).expect("text").contains("revision 1"));
}

#[tokio::test]
async fn a_second_attempt_replaces_the_file_and_keeps_the_identity() {
    let folder = tempfile::tempdir().expect("folder");
    let first = notice(ChannelName::Email);
    let one = sent(folder.path(), &first).await;
    let again = Notice { attempt: 2, ..first.clone() };
    let two = sent(folder.path(), &again).await;
    assert_eq!(one, two);
    let files = std::fs::read_dir(folder.path()).expect("folder").count();
    assert_eq!(files, 1, "neither a copy nor a temporary file");

    let id = |mail: &[u8]| parsed(mail).message_id().expect("id").to_owned();
    let later = EmailChannel {
        clock: Arc::new(crate::testing::Still(NOW.after(std::time::Duration::from_secs(9999)))),
        ..channel(EmailTransport::Folder(folder.path().to_owned()))
    };
    later.send(&again).await.expect("sent");
    let three = std::fs::read(folder.path().join(format!("{}.eml", first.delivery))).expect("file");
    assert_ne!(one, three, "another date");
    assert_eq!(id(&one), id(&three));

    let revised = Notice { revision: 2, ..first.clone() };
    assert_ne!(id(&one), id(&sent(folder.path(), &revised).await));
    let mut other = first;
    other.recipient.principal = countersign_kernel::principal::Principal::person("bo@example.com");
    assert_ne!(id(&one), id(&sent(folder.path(), &other).await));
}

#[tokio::test]
async fn other_questions_show_their_choices() {
    let folder = tempfile::tempdir().expect("folder");
    let mut notice = notice(ChannelName::Email);
    let actions = [Choice::from(("hold", "Hold for a week")), Choice::from("refuse")];
    notice.request = modal("What now?", actions).need(2).request();
    notice.deadline = None;
    let raw = sent(folder.path(), &notice).await;
    let mail = parsed(&raw);
    let text = mail.body_text(0).expect("text");
    let parts = [
        "Your answer is needed",
        "- Hold for a week",
        "- refuse",
        "the request keeps waiting",
        "2 equal answers from different people",
        "Review and answer:",
    ];
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
        assert!(!text.contains("Answer by"), "{text}");
    }
    notice.request.question = Question::Unlock { key: "vault".into() };
    let raw = sent(folder.path(), &notice).await;
    assert!(parsed(&raw).body_text(0).expect("text").contains("Review and go ahead:"));
}

#[tokio::test]
async fn only_people_with_an_address_get_mail() {
    let folder = tempfile::tempdir().expect("folder");
    let channel = channel(EmailTransport::Folder(folder.path().to_owned()));
    for bad in ["", "anna", "anna@", "a b@example.com", "Anna <anna@example.com>", "a@b\r\nc"] {
        let mut notice = notice(ChannelName::Email);
        notice.recipient.address = bad.into();
        let error = channel.send(&notice).await.expect_err(bad);
        assert!(!error.retryable, "{error}");
    }
    let mut notice = notice(ChannelName::Email);
    notice.recipient.principal = countersign_kernel::principal::Principal::service("desk");
    assert!(!channel.send(&notice).await.expect_err("a service").retryable);
    assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
}

#[tokio::test]
async fn an_unwritable_folder_and_an_absent_server_can_be_tried_again() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "in the way").expect("written");
    let blocked = channel(EmailTransport::Folder(file));
    assert!(blocked.send(&notice(ChannelName::Email)).await.expect_err("no folder").retryable);

    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
    let port = free.local_addr().expect("address").port();
    drop(free);
    let config = SmtpConfig { port, security: SmtpSecurity::None, ..SmtpConfig::new("127.0.0.1") };
    let absent = channel(EmailTransport::Smtp(config));
    let error = absent.send(&notice(ChannelName::Email)).await.expect_err("no server");
    assert!(error.retryable, "{error}");
    assert!(!error.message.contains("/d/"), "{error}");
}

#[tokio::test]
async fn the_servers_refusal_decides_about_another_attempt() {
    for (reply, retryable) in [("550 5.1.1 no such user", false), ("451 4.3.0 try later", true)] {
        let port = refusing_server(reply).await;
        let config = SmtpConfig { port, security: SmtpSecurity::None, ..SmtpConfig::new("127.0.0.1") };
        let error = channel(EmailTransport::Smtp(config)).send(&notice(ChannelName::Email)).await.expect_err("refused");
        assert_eq!(error.retryable, retryable, "{error}");
        assert!(error.message.contains(&reply[..3]), "{error}");
    }
}

#[tokio::test]
async fn a_server_without_starttls_gets_nothing_but_may_be_set_right() {
    let port = refusing_server("250 ok").await;
    let config = SmtpConfig { port, ..SmtpConfig::new("127.0.0.1") };
    let channel = channel(EmailTransport::Smtp(config));
    let error = channel.send(&notice(ChannelName::Email)).await.expect_err("no TLS");
    assert!(error.retryable && error.message.contains("STARTTLS"), "{error}");
}

#[tokio::test]
async fn a_server_that_cannot_express_an_address_never_will() {
    let port = refusing_server("250 ok").await;
    let config = SmtpConfig { port, security: SmtpSecurity::None, ..SmtpConfig::new("127.0.0.1") };
    let mut notice = notice(ChannelName::Email);
    notice.recipient.address = "jörg@example.com".into();
    let error = channel(EmailTransport::Smtp(config)).send(&notice).await.expect_err("no SMTPUTF8");
    assert!(!error.retryable, "{error}");
}

/// A mail server that takes a connection and refuses every recipient.
async fn refusing_server(reply: &'static str) -> u16 {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("port");
    let port = listener.local_addr().expect("address").port();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("connection");
        let (read, mut write) = socket.split();
        let mut lines = BufReader::new(read).lines();
        write.write_all(b"220 test ESMTP\r\n").await.expect("greeting");
        while let Ok(Some(line)) = lines.next_line().await {
            let answer = if line.starts_with("RCPT") { reply } else { "250 ok" };
            if write.write_all(format!("{answer}\r\n").as_bytes()).await.is_err() {
                return;
            }
        }
    });
    port
}

#[test]
fn settings_are_checked_and_passwords_do_not_print() {
    let base = || SmtpConfig::new("mail.example.com");
    let make = |config: SmtpConfig| {
        let config = EmailConfig {
            from_name: String::new(),
            from_address: "desk@example.com".into(),
            transport: EmailTransport::Smtp(config),
        };
        EmailChannel::new(config, links(), still()).err()
    };
    assert_eq!(make(base()), None);
    assert_eq!(make(SmtpConfig { security: SmtpSecurity::Tls, port: 465, ..base() }), None);
    let half = SmtpConfig { username: Some("desk".into()), ..base() };
    assert_eq!(make(half), Some(EmailFault::Smtp(SmtpFault::HalfCredentials)));
    let blank = SmtpConfig::new(" ");
    assert_eq!(make(blank), Some(EmailFault::Smtp(SmtpFault::Host)));
    let roots = SmtpConfig { extra_roots_pem: Some("no PEM".into()), ..base() };
    assert!(matches!(make(roots), Some(EmailFault::Smtp(SmtpFault::Roots(_)))));

    let full = SmtpConfig { username: Some("desk".into()), password: Some(crate::Secret::new("hunter2")), ..base() };
    let printed = format!("{:?}", EmailTransport::Smtp(full.clone()));
    assert!(printed.contains("desk") && !printed.contains("hunter2"), "{printed}");
    assert_eq!(make(full), None);
}
