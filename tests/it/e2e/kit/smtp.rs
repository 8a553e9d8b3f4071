//! Mail servers: one that works, which is the crate `mailin`, and one that
//! takes connections and never says a word.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use mailin_embedded::response::{AUTH_OK, INVALID_CREDENTIALS, OK};
use mailin_embedded::{AuthMechanism, Handler, Response, Server, SslConfig};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::{Letter, Place, eventually};

const USER: &str = "desk";
const PASSWORD: &str = "open sesame";

/// An authority of the test's own, with a certificate for `localhost`.
pub(crate) struct Authority {
    authority: String,
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut root = CertificateParams::new(Vec::new()).expect("parameters");
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root_key = KeyPair::generate().expect("a key");
        let authority = root.self_signed(&root_key).expect("a certificate").pem();
        let issuer = Issuer::new(root, root_key);
        let key = KeyPair::generate().expect("a key");
        let leaf = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        let certificate = leaf.signed_by(&key, &issuer).expect("a certificate");
        Self { authority, certificate, key }
    }
}

/// How connections are protected.
pub(crate) enum Protection<'a> {
    None,
    StartTls(&'a Authority),
    /// `mailin` has no TLS from the start, so a TLS end stands before it.
    Tls(&'a Authority),
}

/// How a mail server is set up.
pub(crate) struct SmtpSetup<'a> {
    pub(crate) protection: Protection<'a>,
    /// Nobody may send without signing in by this.
    pub(crate) auth: Option<AuthMechanism>,
    /// Takes mails and never confirms them.
    pub(crate) mute: bool,
    /// Listens here; else on a free port.
    pub(crate) port: u16,
}

impl Default for SmtpSetup<'_> {
    fn default() -> Self {
        Self { protection: Protection::None, auth: None, mute: false, port: 0 }
    }
}

/// A mail server; runs until the test ends.
pub(crate) struct Smtp {
    port: u16,
    security: &'static str,
    authority: Option<String>,
    auth: bool,
    inbox: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Smtp {
    pub(crate) fn start(place: &Place, setup: SmtpSetup<'_>) -> Self {
        let _there = rustls::crypto::ring::default_provider().install_default();
        let listen = |port: u16| TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).expect("a port");
        let port_of = |listener: &TcpListener| listener.local_addr().expect("an address").port();
        let inbox: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let handler = Inbox { mails: Arc::clone(&inbox), mail: Vec::new(), mute: setup.mute };
        let mut server = Server::new(handler);
        server.with_name("mail.test").with_num_threads(16);
        let auth = setup.auth.is_some();
        if let Some(mechanism) = setup.auth {
            server.with_auth(mechanism);
        }
        let (port, security, authority) = match setup.protection {
            Protection::None => {
                let listener = listen(setup.port);
                let port = port_of(&listener);
                server.with_tcp_listener(listener);
                (port, "none", None)
            }
            Protection::StartTls(authority) => {
                let listener = listen(setup.port);
                let port = port_of(&listener);
                let cert_path = place.file("cert.pem", &authority.certificate.pem());
                let key_path = place.file("key.pem", &authority.key.serialize_pem());
                let tls = SslConfig::SelfSigned { cert_path, key_path };
                server.with_tcp_listener(listener).with_ssl(tls).expect("TLS");
                (port, "starttls", Some(authority))
            }
            Protection::Tls(authority) => {
                let inner = listen(0);
                let inner_port = port_of(&inner);
                server.with_tcp_listener(inner);
                let outer = listen(setup.port);
                let port = port_of(&outer);
                terminate(outer, inner_port, authority);
                (port, "tls", Some(authority))
            }
        };
        std::thread::spawn(move || server.serve().is_ok());
        let authority = authority.map(|authority| place.file("ca.pem", &authority.authority));
        Self { port, security, authority, auth, inbox }
    }

    /// Makes a place send its mails here.
    pub(crate) fn serve(&self, place: &mut Place) {
        place.set("COUNTERSIGN_EMAIL_SMTP_HOST", "localhost");
        place.set("COUNTERSIGN_EMAIL_SMTP_PORT", self.port.to_string());
        place.set("COUNTERSIGN_EMAIL_SMTP_SECURITY", self.security);
        if let Some(file) = &self.authority {
            place.set("COUNTERSIGN_EMAIL_SMTP_CA_FILE", file.clone());
        }
        if self.auth {
            place.set("COUNTERSIGN_EMAIL_SMTP_USERNAME", USER);
            place.set("COUNTERSIGN_EMAIL_SMTP_PASSWORD", PASSWORD);
        }
    }

    /// What has arrived.
    pub(crate) fn mails(&self) -> Vec<Letter> {
        lock(&self.inbox).iter().map(|mail| Letter::read(mail)).collect()
    }

    /// Waits until so many mails have arrived.
    pub(crate) async fn arrived(&self, count: usize) -> Vec<Letter> {
        eventually(&format!("{count} mails"), || async {
            let mails = self.mails();
            if mails.len() >= count { Ok(mails) } else { Err(format!("{} mails", mails.len())) }
        })
        .await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes TLS connections and hands what is inside to another port.
fn terminate(listener: TcpListener, inner: u16, authority: &Authority) {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(authority.key.serialize_der()));
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![authority.certificate.der().clone()], key)
        .expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    listener.set_nonblocking(true).expect("settable");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut outside = acceptor.accept(socket).await?;
                let mut inside = tokio::net::TcpStream::connect(("127.0.0.1", inner)).await?;
                tokio::io::copy_bidirectional(&mut outside, &mut inside).await
            });
        }
    });
}

#[derive(Clone)]
struct Inbox {
    mails: Arc<Mutex<Vec<Vec<u8>>>>,
    mail: Vec<u8>,
    mute: bool,
}

impl Handler for Inbox {
    fn data(&mut self, part: &[u8]) -> io::Result<()> {
        self.mail.extend_from_slice(part);
        Ok(())
    }

    fn data_end(&mut self) -> Response {
        lock(&self.mails).push(std::mem::take(&mut self.mail));
        if self.mute {
            let (never, word) = (Mutex::new(()), Condvar::new());
            let guard = lock(&never);
            drop(word.wait_while(guard, |()| true));
        }
        OK
    }

    fn auth_plain(&mut self, _: &str, user: &str, password: &str) -> Response {
        self.auth_login(user, password)
    }

    fn auth_login(&mut self, user: &str, password: &str) -> Response {
        if (user, password) == (USER, PASSWORD) { AUTH_OK } else { INVALID_CREDENTIALS }
    }
}

/// A mail server that takes connections and never says a word.
pub(crate) struct Silent {
    port: u16,
    taken: watch::Receiver<usize>,
}

impl Silent {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (count, taken) = watch::channel(0);
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((socket, _)) = listener.accept().await {
                kept.push(socket);
                count.send_replace(kept.len());
            }
        });
        Self { port, taken }
    }

    /// Makes a place send its mails here.
    pub(crate) fn serve(&self, place: &mut Place) {
        place.set("COUNTERSIGN_EMAIL_SMTP_HOST", "localhost");
        place.set("COUNTERSIGN_EMAIL_SMTP_PORT", self.port.to_string());
        place.set("COUNTERSIGN_EMAIL_SMTP_SECURITY", "none");
    }

    /// Waits until so many connections wait for a greeting.
    pub(crate) async fn connected(&mut self, count: usize) {
        let taken = tokio::time::timeout(super::DEADLINE, self.taken.wait_for(|taken| *taken >= count));
        taken.await.expect("in time").expect("it listens");
    }
}
