//! Redis servers: the one that the tests share, named by
//! `COUNTERSIGN_TEST_REDIS`, and such as belong to one test, which may empty,
//! kill and start them again.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::time::Duration;

use countersign_kernel::ports::Ids as _;
use countersign_worker::queue::Redis;
use countersign_worker::system::SystemIds;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::eventually_or;

/// A Redis, and what a test's keys in it begin with.
#[derive(Debug, Clone)]
pub(crate) struct RedisPlace {
    pub(crate) url: String,
    pub(crate) prefix: String,
}

#[expect(clippy::disallowed_methods, reason = "a server of the tests is no configuration")]
fn shared() -> String {
    std::env::var("COUNTERSIGN_TEST_REDIS").unwrap_or_else(|_| {
        panic!(
            "this test needs a Redis server: run `cargo xtask test`, which starts one, or name one in \
             COUNTERSIGN_TEST_REDIS (`cargo xtask servers` prints the line)"
        )
    })
}

/// A Redis that is never asked.
pub(crate) fn nowhere() -> Redis {
    Redis::new("redis://127.0.0.1:1", "test").expect("a Redis")
}

impl RedisPlace {
    /// In the Redis that the tests share.
    pub(crate) fn fresh() -> Self {
        Self { url: shared(), prefix: format!("test-{}", SystemIds.uuid()) }
    }

    /// What a store sends through.
    pub(crate) fn carrier(&self) -> Redis {
        Redis::new(&self.url, &self.prefix).expect("a Redis")
    }

    pub(crate) async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url.as_str()).expect("a URL");
        client.get_multiplexed_async_connection().await.expect("the Redis answers")
    }

    /// All keys of this place with how much is in each.
    pub(crate) async fn keys(&self) -> Vec<(String, u64)> {
        let mut conn = self.connect().await;
        let keys: Vec<String> =
            redis::cmd("KEYS").arg(format!("{}:*", self.prefix)).query_async(&mut conn).await.expect("keys");
        let mut sizes = Vec::new();
        for key in keys {
            let kind: String = redis::cmd("TYPE").arg(&key).query_async(&mut conn).await.expect("a type");
            let size = match kind.as_str() {
                "list" => "LLEN",
                "set" => "SCARD",
                "zset" => "ZCARD",
                "hash" => "HLEN",
                "string" => "STRLEN",
                // Gone since.
                "none" => continue,
                other => panic!("{key} is a {other}"),
            };
            let size: u64 = redis::cmd(size).arg(&key).query_async(&mut conn).await.expect("a size");
            sizes.push((key, size));
        }
        sizes.sort();
        sizes
    }
}

/// A Redis server of one test. Killed when dropped.
pub(crate) struct RedisServer {
    folder: TempDir,
    port: u16,
    more: Vec<String>,
    running: Option<Child>,
}

impl RedisServer {
    /// A server that keeps nothing when it ends.
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    /// With more settings.
    pub(crate) async fn with(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let port = {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            free.local_addr().expect("its address").port()
        };
        let more = more.iter().map(|word| (*word).to_owned()).collect();
        let mut server = Self { folder, port, more, running: None };
        server.start_again().await;
        server
    }

    /// Starts it on the same port, and waits until it answers.
    pub(crate) async fn start_again(&mut self) {
        let mut command = Command::new("redis-server");
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.args(&self.more).arg("--dir").arg(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        self.running = Some(command.spawn().expect("redis-server starts"));
        let client = redis::Client::open(self.url()).expect("a URL");
        eventually_or("Redis answers", || async {
            let connecting = tokio::time::timeout(Duration::from_secs(1), client.get_multiplexed_async_connection());
            let mut conn = connecting.await.map_err(|late| late.to_string())?.map_err(|error| error.to_string())?;
            redis::cmd("PING").query_async::<()>(&mut conn).await.map_err(|error| error.to_string())
        })
        .await;
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) async fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill().await.expect("killed");
        }
    }

    /// Empties it.
    pub(crate) async fn flush(&self) {
        let mut conn = self.place().connect().await;
        redis::cmd("FLUSHALL").query_async::<()>(&mut conn).await.expect("emptied");
    }

    pub(crate) fn url(&self) -> String {
        let password = self.more.iter().position(|word| word == "--requirepass");
        let password = password.map(|at| format!(":{}@", self.more[at + 1])).unwrap_or_default();
        format!("redis://{password}127.0.0.1:{}", self.port)
    }

    pub(crate) fn place(&self) -> RedisPlace {
        RedisPlace { url: self.url(), prefix: "test".to_owned() }
    }
}
