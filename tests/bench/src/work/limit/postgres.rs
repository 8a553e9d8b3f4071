//! Bare transactions on Postgres.

use std::str::FromStr as _;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use super::{TASKS, gathered, one_by_one};
use crate::Fault;
use crate::work::Values;

/// As the store connects: `worker/src/store/sql/postgres.rs`.
async fn open(url: &str) -> Result<PgConnection, Fault> {
    let options = PgConnectOptions::from_str(url)?.statement_cache_capacity(512);
    let mut server = options.options([("synchronous_commit", "on")]).disable_statement_logging().connect().await?;
    sqlx::raw_sql(
        "CREATE TABLE runs (run_id bigint PRIMARY KEY, seq bigint NOT NULL);
         CREATE TABLE rows (run_id bigint NOT NULL, seq bigint NOT NULL, payload text NOT NULL,
                            PRIMARY KEY (run_id, seq));",
    )
    .execute(&mut server)
    .await?;
    sqlx::query("INSERT INTO runs (run_id, seq) SELECT n, 0 FROM generate_series(0, $1) AS n")
        .bind(TASKS - 1)
        .execute(&mut server)
        .await?;
    Ok(server)
}

/// One connection, one statement after another.
pub(in crate::work) async fn seq(url: &str) -> Result<Values, Fault> {
    let mut server = open(url).await?;
    let commit = async |row: super::Row| {
        sqlx::query(
            "WITH new AS (INSERT INTO rows (run_id, seq, payload) VALUES ($1, $2, $3))
             UPDATE runs SET seq = $2 WHERE run_id = $1",
        )
        .bind(row.run)
        .bind(row.seq)
        .bind(row.payload.as_ref())
        .execute(&mut server)
        .await?;
        Ok(())
    };
    let rate = one_by_one(commit).await?;
    server.close().await?;
    Ok(vec![("seq_per_s", rate)])
}

/// One writer, all that wait in one statement.
pub(in crate::work) async fn batch(url: &str) -> Result<Values, Fault> {
    let mut server = open(url).await?;
    let commit = async |rows: &[super::Row]| {
        let runs: Vec<i64> = rows.iter().map(|row| row.run).collect();
        let numbers: Vec<i64> = rows.iter().map(|row| row.seq).collect();
        let payloads: Vec<&str> = rows.iter().map(|row| row.payload.as_ref()).collect();
        sqlx::query(
            "WITH given AS (SELECT * FROM UNNEST($1::bigint[], $2::bigint[], $3::text[]) AS g (run_id, seq, payload)),
                  new AS (INSERT INTO rows (run_id, seq, payload) SELECT run_id, seq, payload FROM given)
             UPDATE runs SET seq = given.seq FROM given WHERE runs.run_id = given.run_id",
        )
        .bind(runs)
        .bind(numbers)
        .bind(payloads)
        .execute(&mut server)
        .await?;
        Ok(())
    };
    let rate = gathered(commit).await?;
    server.close().await?;
    Ok(vec![("batch_per_s", rate)])
}
