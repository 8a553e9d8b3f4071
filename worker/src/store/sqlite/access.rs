//! API tokens, by their hashes.

use countersign_kernel::time::Timestamp;
use sqlx::{Row, SqliteConnection};

use super::super::StoreError;
use super::super::views::TokenRecord;

pub(super) async fn put_token(
    conn: &mut SqliteConnection,
    token: TokenRecord,
    hash: String,
    now: Timestamp,
) -> Result<(), StoreError> {
    let list = |names: &[String]| serde_json::to_string(names).map_err(|error| StoreError::Database(error.to_string()));
    sqlx::query(
        "INSERT INTO api_tokens (name, hash, scopes, graphs, created_at) VALUES (?1, ?2, ?3, ?4, ?5)
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

pub(super) async fn token(conn: &mut SqliteConnection, hash: &str) -> Result<Option<TokenRecord>, StoreError> {
    let row = sqlx::query("SELECT name, scopes, graphs FROM api_tokens WHERE hash = ?1 AND revoked_at IS NULL")
        .bind(hash)
        .fetch_optional(conn)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let name: String = row.try_get(0)?;
    let list = |text: &str| super::super::codec::decode::<Vec<String>>("token", &name, text.as_bytes());
    let graphs: Option<String> = row.try_get(2)?;
    Ok(Some(TokenRecord { scopes: list(row.try_get(1)?)?, graphs: graphs.as_deref().map(list).transpose()?, name }))
}
