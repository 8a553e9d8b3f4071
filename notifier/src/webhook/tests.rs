//! The webhook channel against a real HTTP server on loopback.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;
use crate::testing::{NOW, notice, still};

struct Request {
    line: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// Answers `POST /<status>` with that status, and reports what it got.
async fn server() -> (SocketAddr, mpsc::UnboundedReceiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let at = listener.local_addr().expect("address");
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, sender.clone()));
        }
    });
    (at, receiver)
}

async fn serve(mut socket: TcpStream, sender: mpsc::UnboundedSender<Request>) {
    let mut got = Vec::new();
    let mut chunk = [0; 4096];
    let request = loop {
        let read = socket.read(&mut chunk).await.expect("read");
        if read == 0 {
            return;
        }
        got.extend_from_slice(&chunk[..read]);
        if let Some(request) = parse(&got) {
            break request;
        }
    };
    let status = request.line.split(['/', ' ']).nth(2).unwrap_or_default().to_owned();
    let _ = sender.send(request);
    if status == "silence" {
        // Holds the connection until the client gives up.
        let _ = socket.read(&mut chunk).await;
        return;
    }
    let answer =
        format!("HTTP/1.1 {status} Word\r\nlocation: /200\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    let _ = socket.write_all(answer.as_bytes()).await;
}

fn parse(got: &[u8]) -> Option<Request> {
    let text = String::from_utf8_lossy(got);
    let (head, _) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let headers: HeaderMap = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.parse().expect("name"), value.parse().expect("value")))
        .collect();
    let length: usize = headers.get("content-length")?.to_str().ok()?.parse().ok()?;
    let body = got.get(head.len() + 4..head.len() + 4 + length)?.to_vec();
    Some(Request { line, headers, body })
}

fn secret(fill: u8) -> String {
    format!("whsec_{}", STANDARD.encode([fill; 32]))
}

fn channel(url: &str, change: impl FnOnce(&mut WebhookConfig)) -> WebhookChannel {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = WebhookConfig::new("https://ops.example.com/cs/");
    let secrets = [secret(1), secret(2)];
    config.endpoints.push(WebhookEndpoint::new("desk", url, &secrets).expect("endpoint"));
    change(&mut config);
    WebhookChannel::new(config, still()).expect("channel")
}

fn local(at: SocketAddr, path: &str) -> WebhookChannel {
    channel(&format!("http://{at}/{path}"), |config| config.endpoints[0].allow_private = true)
}

#[tokio::test]
async fn a_request_is_described_signed_and_handed_over() {
    let (at, mut requests) = server().await;
    let notice = notice(ChannelName::Webhook);
    let channel = local(at, "200");
    let receipt = channel.send(&notice).await.expect("delivered");
    assert_eq!(receipt.detail, "HTTP 200");
    let request = requests.recv().await.expect("a request");
    assert_eq!(request.line, "POST /200 HTTP/1.1");
    assert_eq!(request.headers["webhook-id"], notice.delivery.as_str());
    assert_eq!(request.headers["webhook-timestamp"], "1800000000");
    assert_eq!(request.headers["content-type"], "application/json");
    for fill in [1, 2] {
        let known = [WebhookSecret::parse(&secret(fill)).expect("secret")];
        let tolerance = Duration::from_secs(300);
        let received = verify(&known, &request.headers, &request.body, NOW, tolerance);
        assert_eq!(received.expect("genuine").id, notice.delivery.as_str());
    }
    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
    assert_eq!(
        body,
        json!({
            "type": "request.asked",
            "timestamp": "2027-01-15T07:43:20.000000Z",
            "data": {
                "thread_id": "invoice-17",
                "graph": "payments",
                "interrupt_id": "80fcfb93000000000000000000000abc",
                "address": "payments/approve#0",
                "kind": "approval",
                "title": "Pay 1,200.00 EUR to Acme?",
                "message": "The invoice came in today.\nIt is due on Friday.",
                "details": [
                    {"label": "Invoice", "value": "2016-0417"},
                    {"label": "Supplier", "value": "Acme & Söhne <GmbH>"},
                ],
                "policy": {"approvers": ["role:manager"], "need": 1},
                "revision": 1,
                "content_hash": notice.content_hash,
                "asked_at": "2027-01-15T07:43:20.000000Z",
                "deadline": "2027-01-16T11:46:40.000000Z",
                "url": "https://ops.example.com/cs/interrupts/80fcfb93000000000000000000000abc",
            },
        })
    );

    channel.send(&Notice { attempt: 2, ..notice.clone() }).await.expect("delivered again");
    let again = requests.recv().await.expect("a request");
    assert_eq!(again.headers["webhook-id"], notice.delivery.as_str());
    assert_eq!(again.body, request.body);
}

#[tokio::test]
async fn the_status_decides_about_another_attempt() {
    let (at, mut requests) = server().await;
    for status in [200, 201, 204, 299] {
        assert!(local(at, &status.to_string()).send(&notice(ChannelName::Webhook)).await.is_ok());
    }
    let cases = [
        (408, true),
        (425, true),
        (429, true),
        (500, true),
        (502, true),
        (503, true),
        (504, true),
        (400, false),
        (401, false),
        (404, false),
        (410, false),
        (301, false),
        (302, false),
        (307, false),
    ];
    for (status, retryable) in cases {
        let sent = local(at, &status.to_string()).send(&notice(ChannelName::Webhook)).await;
        let error = sent.expect_err("refused");
        assert_eq!(error.retryable, retryable, "{status}: {error}");
        assert!(error.message.contains(&status.to_string()), "{error}");
    }
    requests.close();
    let mut count = 0;
    while requests.recv().await.is_some() {
        count += 1;
    }
    assert_eq!(count, 4 + cases.len(), "no redirect was followed");
}

#[tokio::test]
async fn silence_and_absence_can_be_tried_again() {
    let (at, _requests) = server().await;
    let slow = channel(&format!("http://{at}/silence"), |config| {
        config.endpoints[0].allow_private = true;
        config.timeout = Duration::from_millis(50);
    });
    let error = slow.send(&notice(ChannelName::Webhook)).await.expect_err("no answer");
    assert!(error.retryable && error.message.contains("in time"), "{error}");

    let free = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let at = free.local_addr().expect("address");
    drop(free);
    let error = local(at, "200").send(&notice(ChannelName::Webhook)).await.expect_err("no server");
    assert!(error.retryable && error.message.contains("reached"), "{error}");
}

#[tokio::test]
async fn private_addresses_are_refused_by_number_and_by_name() {
    let (at, mut requests) = server().await;
    let port = at.port();
    let urls = [
        format!("http://127.0.0.1:{port}/200"),
        format!("http://2130706433:{port}/200"),
        format!("http://0x7f.1:{port}/200"),
        format!("http://[::1]:{port}/200"),
        format!("http://[::ffff:127.0.0.1]:{port}/200"),
        format!("http://localhost:{port}/200"),
        format!("http://LOCALHOST:{port}/200"),
        "https://169.254.169.254/latest/meta-data".to_owned(),
    ];
    for url in urls {
        let sent = channel(&url, |_| {}).send(&notice(ChannelName::Webhook)).await;
        let error = sent.expect_err(&url);
        assert!(!error.retryable, "{url}: {error}");
        assert!(error.message.contains("private"), "{url}: {error}");
    }
    assert!(requests.try_recv().is_err(), "nothing arrived");
    let allowed = channel(&format!("http://localhost:{port}/200"), |config| config.endpoints[0].allow_private = true);
    allowed.send(&notice(ChannelName::Webhook)).await.expect("allowed");
}

#[tokio::test]
async fn only_configured_endpoints_are_posted_to() {
    let (at, _requests) = server().await;
    let channel = local(at, "200");
    let mut other = notice(ChannelName::Webhook);
    other.recipient.principal = countersign_kernel::principal::Principal::service("gone");
    let error = channel.send(&other).await.expect_err("unknown");
    assert!(!error.retryable && error.message.contains("`gone`"), "{error}");
    let person = channel.send(&notice(ChannelName::Email)).await.expect_err("a person");
    assert!(!person.retryable);
}

#[test]
fn settings_are_checked() {
    let good = [secret(1)];
    let none: [&str; 0] = [];
    assert!(WebhookEndpoint::new("", "https://example.com", &good).is_err());
    for bad in ["", "example.com", "ftp://example.com", "https://user:pw@example.com/", "file:///x"] {
        let fault = WebhookEndpoint::new("desk", bad, &good).expect_err(bad);
        assert!(!fault.to_string().contains("pw"), "{fault}");
    }
    assert!(WebhookEndpoint::new("desk", "https://example.com", &none).is_err());
    assert!(WebhookEndpoint::new("desk", "https://example.com", &["whsec_short"]).is_err());

    let endpoint = WebhookEndpoint::new("desk", "https://example.com", &good).expect("endpoint");
    let mut config = WebhookConfig::new("https://ops.example.com");
    config.endpoints = vec![endpoint.clone(), endpoint];
    let fault = WebhookChannel::new(config, still()).expect_err("twice");
    assert!(matches!(fault, WebhookFault::Endpoint { .. }));
}
