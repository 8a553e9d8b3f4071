//! Databases on the tests' Postgres server.
//!
//! The server is named by `COUNTERSIGN_TEST_POSTGRES`. Migrating takes longer
//! than most tests, so one database is migrated and the others are copies,
//! used again where a process needs many.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use countersign_kernel::ports::Ids;
use countersign_worker::store::SqlStore;
use countersign_worker::system::SystemIds;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

/// Whoever holds it makes the template, or copies it: Postgres lets nobody copy
/// a database that somebody is connected to.
const TEMPLATE: i64 = 0x7465_6d70;

/// How long the server may take to hear of a death.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// A database of a test.
pub(crate) struct Database {
    name: String,
    url: String,
}

/// The databases of this process: how many are in use, and which were. Those
/// are used again, which is quicker than making them, until nobody uses any.
static OURS: Mutex<(usize, Vec<String>)> = Mutex::new((0, Vec::new()));

/// Empties every table of ours and of the carrier, in any order.
const EMPTY: &str = "
SET session_replication_role = replica;
DO $$
DECLARE name text;
BEGIN
    FOR name IN SELECT oid::regclass::text FROM pg_class
        WHERE relkind = 'r' AND relnamespace IN ('public'::regnamespace, 'apalis'::regnamespace)
          AND relname NOT LIKE '%migrations'
    LOOP EXECUTE 'DELETE FROM ' || name; END LOOP;
END $$";

#[expect(clippy::disallowed_methods, reason = "a server of the tests is no configuration")]
fn server() -> String {
    std::env::var("COUNTERSIGN_TEST_POSTGRES").unwrap_or_else(|_| {
        panic!(
            "this test needs a Postgres server: run `cargo xtask test`, which starts one, or name one in \
             COUNTERSIGN_TEST_POSTGRES (`cargo xtask servers` prints the line)"
        )
    })
}

/// The URL of a database of the server.
fn named(name: &str) -> String {
    let server = server();
    let end = server.rfind('/').expect("a URL with a database");
    format!("{}/{name}", &server[..end])
}

async fn admin() -> PgConnection {
    let options = PgConnectOptions::from_str(&server()).expect("the server's URL");
    options.disable_statement_logging().connect().await.expect("the server of COUNTERSIGN_TEST_POSTGRES answers")
}

async fn run(admin: &mut PgConnection, statement: String) {
    sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(admin).await.expect(&statement);
}

/// The template's name changes with the migrations.
fn template() -> String {
    let mut digest: u64 = 0xcbf2_9ce4_8422_2325;
    for text in [
        include_str!("../../../migrations/postgres/0001_initial.sql"),
        include_str!("../../../migrations/postgres/0002_frames.sql"),
        include_str!("../../../migrations/postgres/0003_events.sql"),
        include_str!("../../../migrations/postgres/0004_outbox.sql"),
        include_str!("../../../migrations/postgres/0005_timers.sql"),
        include_str!("../../../migrations/postgres/0006_signals.sql"),
        include_str!("../../../migrations/postgres/0007_schedules.sql"),
        include_str!("../../../migrations/postgres/0008_workers.sql"),
        include_str!("../../../migrations/postgres/0009_controls.sql"),
        include_str!("../../../migrations/postgres/0010_retention.sql"),
    ] {
        for byte in text.bytes() {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("countersign_template_{digest:016x}")
}

impl Database {
    /// A database with all tables and nothing in them.
    pub(crate) async fn fresh() -> Self {
        let used = {
            let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
            ours.0 += 1;
            ours.1.pop()
        };
        let Some(name) = used else { return Self::made().await };
        let again = Self { url: named(&name), name };
        again.left().await;
        let mut conn = PgConnection::connect(&again.url).await.expect("the database opens");
        sqlx::raw_sql(EMPTY).execute(&mut conn).await.expect("it is emptied");
        conn.close().await.expect("the connection closes");
        again
    }

    async fn made() -> Self {
        let name = format!("test_{}", SystemIds.uuid().replace('-', ""));
        let template = template();
        let mut admin = admin().await;
        sqlx::query("SELECT pg_advisory_lock($1)").bind(TEMPLATE).execute(&mut admin).await.expect("the lock");
        let known: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)")
            .bind(&template)
            .fetch_one(&mut admin)
            .await
            .expect("the catalogue reads");
        if !known {
            let making = format!("{template}_making");
            run(&mut admin, format!("DROP DATABASE IF EXISTS {making}")).await;
            run(&mut admin, format!("CREATE DATABASE {making}")).await;
            SqlStore::connect(&named(&making), 4).await.expect("it migrates").close().await;
            run(&mut admin, format!("ALTER DATABASE {making} RENAME TO {template}")).await;
        }
        run(&mut admin, format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        admin.close().await.expect("the connection closes");
        let url = named(&name);
        Self { name, url }
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Waits until nobody is connected. The server hears late of the death of a
    /// process, and what that had begun may still be carried out.
    pub(crate) async fn left(&self) {
        let mut admin = admin().await;
        let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'";
        let gone = tokio::time::timeout(GONE_WITHIN, async {
            while sqlx::query_scalar::<_, i64>(query).bind(&self.name).fetch_one(&mut admin).await.expect(query) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        assert!(gone.await.is_ok(), "somebody is connected to {} after {GONE_WITHIN:?}", self.name);
        admin.close().await.expect("the connection closes");
    }
}

impl Drop for Database {
    /// The last one deletes them all, whoever is still connected: the server has
    /// room for few.
    fn drop(&mut self) {
        let gone = {
            let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
            ours.0 -= 1;
            ours.1.push(std::mem::take(&mut self.name));
            if ours.0 == 0 { std::mem::take(&mut ours.1) } else { return }
        };
        let gone = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut admin = admin().await;
                for name in gone {
                    run(&mut admin, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
                }
            });
        });
        // What a panic in there would say was said by its hook.
        let _ = gone.join();
    }
}
