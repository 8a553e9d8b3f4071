//! Webhooks: signed, tried again, and never with a link that decides.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use countersign_kernel::ports::Clock as _;
use countersign_notifier::WebhookSecret;
use countersign_notifier::webhook::verify;
use countersign_worker::system::SystemClock;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::kit::{Place, eventually};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[derive(Clone)]
struct Received {
    line: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// An endpoint that answers with these statuses, then with the last one.
struct Endpoint {
    port: u16,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Endpoint {
    async fn start(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let all = Arc::clone(&received);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let all = Arc::clone(&all);
                tokio::spawn(async move { serve(socket, statuses, &all).await });
            }
        });
        Self { port, received }
    }

    fn place(&self, allow_private: bool) -> Place {
        Place::configured(&format!(
            "[[webhooks]]\nname = \"erp\"\nurl = \"http://127.0.0.1:{}/hook?a=b\"\nsecrets = [\"{SECRET}\"]\n\
             allow_private = {allow_private}\n",
            self.port
        ))
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Answers one request and closes.
async fn serve(socket: TcpStream, statuses: &[u16], all: &Mutex<Vec<Received>>) -> Option<()> {
    let mut socket = BufReader::new(socket);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        socket.read_line(&mut line).await.ok()?;
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let line = lines.first()?.clone();
    let headers: HeaderMap = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            (name, HeaderValue::from_str(value).expect("a value"))
        })
        .collect();
    let length = headers.get("content-length")?.to_str().ok()?.parse().ok()?;
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.ok()?;
    let status = {
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let status = statuses.get(all.len()).or(statuses.last()).copied()?;
        all.push(Received { line, headers, body });
        status
    };
    let reply = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    socket.write_all(reply.as_bytes()).await.ok()
}

fn secret(text: &str) -> WebhookSecret {
    WebhookSecret::parse(text).expect("a secret")
}

/// The webhook's delivery, once it has ended.
async fn ended(place: &Place, api: &super::kit::Api, question: &str) -> Value {
    let path = format!("interrupts/{question}/deliveries");
    eventually("the endpoint was told", || async {
        let list = api.get(&path).await.is(200);
        let mut list = list.as_array().expect("a list").iter();
        let delivery = list.find(|delivery| delivery["channel"] == "webhook").expect("one for the endpoint").clone();
        let ended = matches!(delivery["status"].as_str(), Some("sent" | "failed"));
        if ended { Ok(delivery) } else { Err(format!("{delivery}\n{}", place.log())) }
    })
    .await
}

#[tokio::test]
async fn a_request_is_signed_and_tried_again_under_the_same_id() {
    let endpoint = Endpoint::start(&[500, 200]).await;
    let place = endpoint.place(true);
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let delivery = ended(&place, &server.api, &question).await;
    assert_eq!((&delivery["status"], &delivery["attempts"]), (&json!("sent"), &json!(2)), "{delivery}");
    assert_eq!((&delivery["recipient"], &delivery["possibly_twice"]), (&json!("service:erp"), &json!(false)));

    let received = endpoint.received();
    assert_eq!(received.len(), 2);
    let verified: Vec<_> = received
        .iter()
        .map(|request| {
            assert_eq!(request.line, "POST /hook?a=b HTTP/1.1");
            assert_eq!(request.headers["content-type"], "application/json");
            let check = |secret: &WebhookSecret, body: &[u8]| {
                verify(
                    std::slice::from_ref(secret),
                    &request.headers,
                    body,
                    SystemClock.now(),
                    Duration::from_secs(300),
                )
            };
            check(&secret("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), &request.body).expect_err("another secret");
            check(&secret(SECRET), b"{}").expect_err("another body");
            check(&secret(SECRET), &request.body).expect("a good signature")
        })
        .collect();
    assert_eq!(verified[0].id, verified[1].id, "a repetition can be told");
    assert!(verified[0].signed_at < verified[1].signed_at, "and is dated anew");
    assert_eq!(received[0].body, received[1].body);
    let body: Value = serde_json::from_slice(&received[1].body).expect("JSON");
    assert_eq!(body["type"], "request.asked");
    let data = &body["data"];
    assert_eq!((&data["thread_id"], &data["interrupt_id"]), (&json!(thread), &json!(question)));
    assert_eq!(data["title"], "Pay 420.00 EUR to Ines Moreau?");
    assert_eq!(data["url"], json!(format!("{}/interrupts/{question}", server.api.base())));
    assert!(!body.to_string().contains("/d/"), "no link by which somebody becomes somebody: {body}");
    server.api.audited(&thread).await;
}

#[tokio::test]
async fn a_refusal_is_final_and_visible() {
    let endpoint = Endpoint::start(&[410]).await;
    let place = endpoint.place(true);
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let delivery = ended(&place, &server.api, &question).await;
    assert_eq!((&delivery["status"], &delivery["attempts"]), (&json!("failed"), &json!(1)), "{delivery}");
    assert!(delivery["detail"].as_str().is_some_and(|text| text.contains("410")), "{delivery}");
    assert_eq!(server.api.get("overview").await.is(200)["dead_letters"], 1);
    assert_eq!(endpoint.received().len(), 1);
}

#[tokio::test]
async fn a_private_address_is_not_called_unless_that_is_allowed() {
    let endpoint = Endpoint::start(&[200]).await;
    let place = endpoint.place(false);
    let server = place.up().await;
    let thread = server.api.expense("420.00").await;
    let question = server.api.question(&thread).await;
    let delivery = ended(&place, &server.api, &question).await;
    assert_eq!(delivery["status"], "failed", "{delivery}");
    assert!(endpoint.received().is_empty());
}
