//! Cursors: signed keysets (R27).

use axum::http::StatusCode;
use countersign_kernel::time::Timestamp;
use countersign_worker::store::views::Keyset;

use super::problem::Problem;
use crate::state::AppState;

/// Most items in one page.
pub(super) const LIMIT_MAX: u32 = 500;
const LIMIT_DEFAULT: u32 = 50;

pub(super) fn limit(asked: Option<u32>) -> Result<u32, Problem> {
    let limit = asked.unwrap_or(LIMIT_DEFAULT);
    if (1..=LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::new(
        StatusCode::BAD_REQUEST,
        "invalid-query",
        "The query is not valid",
        format!("`limit` must lie between 1 and {LIMIT_MAX}"),
    ))
}

/// The cursor for what comes after an item. `list` keeps cursors of different
/// lists apart.
pub(super) fn encode(state: &AppState, list: &str, at: Timestamp, id: &str) -> String {
    state.links.signer().sign(&purpose(list), format!("{} {id}", at.as_micros()).as_bytes())
}

pub(super) fn decode(state: &AppState, list: &str, cursor: Option<&str>) -> Result<Option<Keyset>, Problem> {
    let Some(cursor) = cursor else { return Ok(None) };
    let bad = || {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid-cursor",
            "The cursor is not valid",
            "use `next_cursor` of the page before, unchanged and with the same filters, or start over without one",
        )
    };
    let content = state.links.signer().verify(&purpose(list), cursor).map_err(|_| bad())?;
    let text = String::from_utf8(content).map_err(|_| bad())?;
    let (at, id) = text.split_once(' ').ok_or_else(bad)?;
    let at = at.parse().map_err(|_| bad())?;
    Ok(Some(Keyset { at: Timestamp::from_micros(at), id: id.to_owned() }))
}

fn purpose(list: &str) -> String {
    format!("cursor/{list}")
}
