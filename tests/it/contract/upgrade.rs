//! A data file of an earlier version, opened by this build: nothing is lost.

use std::collections::BTreeMap;
use std::path::Path;

use countersign_kernel::principal::Principal;
use countersign_worker::store::Overviews as _;
use countersign_worker::store::commands::IdempotencyEntry;
use countersign_worker::store::views::{InterruptFilter, ThreadFilter};
use countersign_worker::store::{SqlStore, Store};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use super::place::{Place, at, thread};
use crate::support::ann;

/// Made by the release that had one migration.
pub(crate) const MIGRATION_0001: &str = include_str!("files/migration_0001.sql");

/// Tables of the libraries below, and of the migrations themselves.
const NOT_OURS: [&str; 4] = ["Jobs", "Workers", "apalis_migrations", "countersign_migrations"];

pub(super) async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.expect("the file opens")
}

/// The columns of our tables.
pub(super) async fn columns(file: &mut SqliteConnection) -> BTreeMap<String, Vec<String>> {
    let rows: Vec<(String, String)> = sqlx::query_as(
        "SELECT t.name, c.name FROM sqlite_master t JOIN pragma_table_info(t.name) c
         WHERE t.type = 'table' ORDER BY t.name, c.cid",
    )
    .fetch_all(file)
    .await
    .expect("it has a schema");
    let mut columns: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (table, column) in rows.into_iter().filter(|(table, _)| !NOT_OURS.contains(&table.as_str())) {
        columns.entry(table).or_default().push(column);
    }
    columns
}

/// All rows of these columns, as text.
async fn rows(file: &mut SqliteConnection, of: &BTreeMap<String, Vec<String>>) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    for (table, columns) in of {
        let quoted: Vec<String> = columns.iter().map(|column| format!("quote({column})")).collect();
        let statement = format!("SELECT {} AS line FROM {table} ORDER BY line", quoted.join(" || ' ' || "));
        let lines: Vec<String> = sqlx::query_scalar(AssertSqlSafe(statement)).fetch_all(&mut *file).await.expect(table);
        all.insert(table.clone(), lines);
    }
    all
}

#[tokio::test]
async fn every_row_of_a_file_at_migration_0001_is_there_afterwards() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("old.db");
    let mut file = raw(&path).await;
    sqlx::raw_sql(MIGRATION_0001).execute(&mut file).await.expect("sound statements");
    let old = columns(&mut file).await;
    let before = rows(&mut file, &old).await;
    file.close().await.expect("written");
    assert!(before.values().all(|rows| !rows.is_empty()), "the file has rows in every table");
    assert_eq!(before.len(), 17);

    let store = SqlStore::open(&path).await.expect("it opens");
    assert!(store.migrated().contains(&"0002 frames".to_owned()), "{:?}", store.migrated());
    store.close().await;
    let mut file = raw(&path).await;
    assert_eq!(rows(&mut file, &old).await, before);
    let broken: Vec<String> = sqlx::query_scalar("SELECT \"table\" FROM pragma_foreign_key_check")
        .fetch_all(&mut file)
        .await
        .expect("checked");
    assert_eq!(broken, Vec::<String>::new());
    let sound: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut file).await.expect("checked");
    assert_eq!(sound, "ok");
    file.close().await.expect("read");

    let again = SqlStore::open(&path).await.expect("it opens again");
    assert_eq!(again.migrated(), Vec::<String>::new());
}

#[tokio::test]
async fn a_new_file_and_an_upgraded_one_have_one_schema() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (new, upgraded) = (dir.path().join("new.db"), dir.path().join("old.db"));
    let mut file = raw(&upgraded).await;
    sqlx::raw_sql(MIGRATION_0001).execute(&mut file).await.expect("sound statements");
    file.close().await.expect("written");
    let mut schemas = Vec::new();
    for path in [&new, &upgraded] {
        SqlStore::open(path).await.expect("it opens").close().await;
        let mut file = raw(path).await;
        let schema: Vec<(String, String)> = sqlx::query_as(
            "SELECT name, replace(replace(sql, char(10), ' '), '\"', '') FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name",
        )
        .fetch_all(&mut file)
        .await
        .expect("it has a schema");
        schemas.push(schema);
    }
    assert_eq!(schemas[0], schemas[1]);
}

#[tokio::test]
async fn what_an_old_file_holds_is_read_as_before() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("old.db");
    let mut file = raw(&path).await;
    sqlx::raw_sql(MIGRATION_0001).execute(&mut file).await.expect("sound statements");
    file.close().await.expect("written");
    let store = SqlStore::open(&path).await.expect("it opens");

    let threads = store.threads(&ThreadFilter::default(), None, 10).await.expect("listed");
    let mut statuses: Vec<_> = threads.iter().map(|t| (t.thread.as_str(), t.status.as_str(), t.open)).collect();
    statuses.sort_unstable();
    let expected = [
        ("asks-a-manager", "parked", 1),
        ("asks-finance", "parked", 1),
        ("batch", "parked", 2),
        ("small", "succeeded", 0),
        ("tour", "parked", 1),
    ];
    assert_eq!(statuses, expected);
    for summary in &threads {
        assert_eq!(store.verify_audit(&summary.thread).await.expect("verified"), None, "{}", summary.thread);
        let held = store.load(&summary.thread).await.expect("there");
        assert_eq!((held.frames.len(), held.open.len()), (0, usize::try_from(summary.open).expect("few")));
        assert!(held.wake.is_empty());
        let chain = store.archived(&summary.thread, &held.checkpoint.id).await.expect("there");
        assert_eq!((chain.len(), chain[0].seq), (1, held.seq));
    }
    let open = InterruptFilter { status: Some("open".into()), ..InterruptFilter::default() };
    let open = store.interrupts(&open, None, 10).await.expect("listed");
    assert!(open.len() == 5 && open.iter().all(|view| view.frame.is_none() && view.request.is_some()));
    let steps = store.steps_since(&thread("batch"), &store.head(&thread("batch")).await.expect("there")).await;
    assert_eq!(steps.expect("found").len(), 3);
    assert_eq!(store.history(&thread("asks-finance"), None, None, 10).await.expect("there").len(), 2);
    let overview = store.counts().await.expect("counts");
    assert_eq!((overview.requests_open, overview.dead_letters), (5, 8));
    let token = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";
    assert!(store.token(token).await.expect("known").is_some());

    // New work goes into the old file as into a new one.
    let place = Place::on(super::sqlite::over(dir, "old.db", store));
    let entry = IdempotencyEntry {
        scope: Principal::person("admin@localhost").to_string(),
        key: "new".into(),
        request_hash: "h".into(),
        status: 202,
        body: "{}".into(),
    };
    let start = countersign_worker::store::commands::CreateThread {
        idempotency: Some(entry),
        started_by: ann(),
        ..place.create("new", at(1))
    };
    place.store.create(start).await.expect("created");
    assert_eq!(place.held(&thread("new"), at(2)).await.seq, 0);
}
