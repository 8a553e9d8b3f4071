//! Whether a form was posted from one of our own pages.

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};

/// The browser's word on where a request comes from.
pub(super) fn fetch_site(headers: &HeaderMap) -> Option<&str> {
    headers.get("sec-fetch-site").and_then(|value| value.to_str().ok())
}

/// Whether the browser says that one of our own pages posted this. Checked
/// besides the cookie's `SameSite`, which older browsers do not know. What
/// says nothing about its origin is refused.
pub(super) fn is_ours(headers: &HeaderMap, base_url: &str) -> bool {
    if let Some(site) = fetch_site(headers) {
        return site == "same-origin";
    }
    // Over plain HTTP, other than to this machine, browsers send only this.
    let Some(origin) = headers.get(ORIGIN).and_then(|value| value.to_str().ok()) else { return false };
    let host = headers.get(HOST).and_then(|value| value.to_str().ok());
    let named = origin.split_once("://").map(|(_, authority)| authority);
    origin.eq_ignore_ascii_case(root(base_url))
        || matches!((named, host), (Some(named), Some(host)) if named.eq_ignore_ascii_case(host))
}

/// Scheme and authority of a URL.
fn root(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    url[start..].find('/').map_or(url, |at| &url[..start + at])
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn ours(headers: &[(&'static str, &'static str)]) -> bool {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        is_ours(&headers, "https://sign.example.com/ops")
    }

    #[test]
    fn only_our_own_pages_may_post() {
        assert!(ours(&[("sec-fetch-site", "same-origin")]));
        assert!(ours(&[("sec-fetch-site", "same-origin"), ("origin", "null")]));
        assert!(ours(&[("origin", "https://sign.example.com")]));
        assert!(ours(&[("origin", "http://127.0.0.1:8420"), ("host", "127.0.0.1:8420")]));

        assert!(!ours(&[]));
        assert!(!ours(&[("host", "sign.example.com")]));
        assert!(!ours(&[("origin", "null"), ("host", "sign.example.com")]));
        assert!(!ours(&[("origin", "https://evil.example"), ("host", "sign.example.com")]));
        for site in ["cross-site", "same-site", "none"] {
            assert!(!ours(&[("sec-fetch-site", site), ("origin", "https://sign.example.com")]), "{site}");
        }
    }
}
