//! Lists that come in pages.

use serde_json::Value;

use super::client::{ClientError, Page};

/// The first `limit` items of a list whose pages `page` gets, each from a
/// cursor and with at most so many items; and whether there are more.
pub(super) async fn first(
    limit: u64,
    page: impl AsyncFn(u64, Option<&str>) -> Result<Page, ClientError>,
) -> Result<(Vec<Value>, bool), ClientError> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut items: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    while items.len() <= limit {
        // One more than asked for tells whether there are more.
        let missing = u64::try_from(limit - items.len()).unwrap_or(u64::MAX).saturating_add(1);
        let next = page(missing, cursor.as_deref()).await?;
        items.extend(next.items);
        cursor = next.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    let more = items.len() > limit;
    items.truncate(limit);
    Ok((items, more))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn cursors_are_followed_up_to_the_limit() {
        // Five items, two to a page at most.
        let page = async |limit: u64, cursor: Option<&str>| {
            let from: u64 = cursor.map_or(0, |cursor| cursor.parse().expect("a cursor"));
            let to = (from + limit.min(2)).min(5);
            Ok(Page { items: (from..to).map(|n| json!(n)).collect(), next_cursor: (to < 5).then(|| to.to_string()) })
        };
        for (limit, count, more) in [(1, 1, true), (2, 2, true), (4, 4, true), (5, 5, false), (u64::MAX, 5, false)] {
            let (items, has_more) = first(limit, page).await.expect("items");
            let expected: Vec<Value> = (0..count).map(|n| json!(n)).collect();
            assert_eq!((items, has_more), (expected, more), "{limit}");
        }
    }
}
