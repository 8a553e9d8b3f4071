//! API tokens, by their hashes.

use countersign_kernel::time::Timestamp;

use super::super::StoreError;
use super::super::codec::decode;
use super::super::db::{self, Conn, Row};
use super::super::views::TokenRecord;

pub(super) async fn put_token(
    conn: &mut Conn<'_>,
    token: TokenRecord,
    hash: String,
    now: Timestamp,
) -> Result<(), StoreError> {
    let list = |names: &[String]| serde_json::to_string(names).map_err(|error| StoreError::Database(error.to_string()));
    db::query(
        "INSERT INTO api_tokens (name, hash, scopes, graphs, created_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (name) DO UPDATE SET hash = excluded.hash, scopes = excluded.scopes,
             graphs = excluded.graphs, revoked_at = NULL",
    )
    .bind(&token.name)
    .bind(hash)
    .bind(list(&token.scopes)?)
    .bind(token.graphs.as_deref().map(list).transpose()?)
    .bind(now.as_micros())
    .execute(conn)
    .await?;
    Ok(())
}

pub(super) async fn token(conn: &mut Conn<'_>, hash: &str) -> Result<Option<TokenRecord>, StoreError> {
    let row = db::query("SELECT name, scopes, graphs FROM api_tokens WHERE hash = $1 AND revoked_at IS NULL")
        .bind(hash)
        .fetch_optional(conn)
        .await?;
    row.as_ref().map(record).transpose()
}

fn record(row: &Row) -> Result<TokenRecord, StoreError> {
    let name: String = row.try_get(0)?;
    let list = |text: &str| decode::<Vec<String>>("token", &name, text.as_bytes());
    let graphs: Option<String> = row.try_get(2)?;
    Ok(TokenRecord { scopes: list(row.try_get(1)?)?, graphs: graphs.as_deref().map(list).transpose()?, name })
}

pub(super) async fn tokens(conn: &mut Conn<'_>) -> Result<Vec<TokenRecord>, StoreError> {
    db::query("SELECT name, scopes, graphs FROM api_tokens WHERE revoked_at IS NULL ORDER BY name")
        .fetch_all(conn)
        .await?
        .iter()
        .map(record)
        .collect()
}

pub(super) async fn revoke_token(conn: &mut Conn<'_>, name: String, now: Timestamp) -> Result<bool, StoreError> {
    let revoked = db::query("UPDATE api_tokens SET revoked_at = $2 WHERE name = $1 AND revoked_at IS NULL")
        .bind(name)
        .bind(now.as_micros())
        .execute(conn)
        .await?;
    Ok(revoked.rows_affected() > 0)
}
