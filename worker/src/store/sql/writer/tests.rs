//! Commands of many callers, and disks that are full.

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};

use super::*;

struct Place {
    _folder: tempfile::TempDir,
    pool: SqlitePool,
    writer: Writer,
}

async fn place() -> Place {
    let folder = tempfile::tempdir().expect("a folder");
    let options = SqliteConnectOptions::new()
        .filename(folder.path().join("test.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.expect("a pool");
    sqlx::query("CREATE TABLE rows (batch INTEGER, part INTEGER, filler BLOB CHECK (length(filler) < 500000))")
        .execute(&pool)
        .await
        .expect("a table");
    Place {
        _folder: folder,
        writer: Writer::start(Pools::Sqlite { write: pool.clone(), read: pool.clone() }, Way::Rows, Arc::default()),
        pool,
    }
}

async fn insert(tx: &mut Tx<'_>, batch: i64, octets: i64) -> Result<(), StoreError> {
    for part in 0..2_i64 {
        db::query("INSERT INTO rows VALUES ($1, $2, zeroblob($3))")
            .bind(batch)
            .bind(part)
            .bind(octets)
            .execute(tx.now().await?)
            .await?;
    }
    Ok(())
}

impl Place {
    /// Two rows in one command.
    async fn insert(&self, batch: i64, octets: i64) -> Result<(), StoreError> {
        self.writer.run(Locks::default(), move |tx| Box::pin(insert(tx, batch, octets))).await
    }

    /// As if the disk held so many more pages and no more.
    async fn fill(&self, pages: i64) {
        let count: i64 = sqlx::query_scalar("PRAGMA page_count").fetch_one(&self.pool).await.expect("a count");
        let limit = format!("PRAGMA max_page_count = {}", count + pages);
        sqlx::query(sqlx::AssertSqlSafe(limit)).execute(&self.pool).await.expect("limited");
    }

    async fn parts_of(&self, batch: i64) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM rows WHERE batch = ?1")
            .bind(batch)
            .fetch_one(&self.pool)
            .await
            .expect("a count")
    }
}

#[tokio::test]
async fn a_disk_that_was_full_is_written_again_when_it_is_not() {
    let place = place().await;
    place.insert(1, 10).await.expect("there is room");
    place.fill(0).await;
    assert!(!place.writer.is_failing());
    let full = place.insert(2, 100_000).await.expect_err("no room");
    assert!(place.writer.is_failing(), "for the readiness probe");
    assert!(full.to_string().contains("full"), "{full}");
    // The limit went with the connection.
    place.insert(3, 100_000).await.expect("there is room again");
    assert!(!place.writer.is_failing());
    assert_eq!([place.parts_of(1).await, place.parts_of(2).await, place.parts_of(3).await], [2, 0, 2]);
}

#[tokio::test]
async fn what_was_told_to_have_failed_left_nothing_behind() {
    let place = place().await;
    place.insert(0, 10).await.expect("there is room");
    // Side by side, so that they share transactions; the large one breaks in the
    // middle of them.
    let octets = |batch: i64| if batch == 3 { 1_000_000 } else { 10 };
    let told = futures_util::future::join_all((1..=20).map(|batch| place.insert(batch, octets(batch)))).await;
    let failed: Vec<i64> = (1..).zip(&told).filter(|(_, told)| told.is_err()).map(|(batch, _)| batch).collect();
    assert_eq!(failed, [3], "whose fault it is");
    for (batch, told) in (1..).zip(told) {
        assert_eq!(place.parts_of(batch).await, if told.is_ok() { 2 } else { 0 }, "{batch}: {told:?}");
    }
    place.insert(30, 10).await.expect("the writer goes on");
}

#[tokio::test]
async fn a_command_that_panics_takes_nothing_with_it() {
    let place = place().await;
    let panics = place.writer.run(Locks::default(), |_| Box::pin(async { panic!("on purpose") }));
    let (broken, fine): (Result<(), StoreError>, _) = tokio::join!(panics, place.insert(1, 10));
    assert!(broken.is_err());
    fine.expect("not concerned");
    place.insert(2, 10).await.expect("the writer goes on");
    assert_eq!(place.parts_of(1).await, 2);
}
