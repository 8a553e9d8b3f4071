//! The style sheet, the script and the icon, compiled in.

use std::sync::LazyLock;

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("../../templates/style.css");
const SCRIPT: &str = include_str!("../../templates/live.js");
const ICON: &str = include_str!("../../templates/icon.svg");
/// A year: the address of these changes with their content.
const FOR_LONG: &str = "public, max-age=31536000, immutable";
/// A day: the address of the icon does not change.
const FOR_A_DAY: &str = "public, max-age=86400";

static STYLE_VERSION: LazyLock<String> = LazyLock::new(|| version(STYLE));
static SCRIPT_VERSION: LazyLock<String> = LazyLock::new(|| version(SCRIPT));
static ICON_VERSION: LazyLock<String> = LazyLock::new(|| version(ICON));

fn version(content: &str) -> String {
    let mut hash = hex::encode(Sha256::digest(content));
    hash.truncate(16);
    hash
}

/// Changes whenever the style sheet does.
pub(super) fn style_version() -> &'static str {
    &STYLE_VERSION
}

/// Changes whenever the script does.
pub(super) fn script_version() -> &'static str {
    &SCRIPT_VERSION
}

/// The style sheet.
pub(super) async fn style(headers: HeaderMap) -> Response {
    file(&headers, "text/css; charset=utf-8", FOR_LONG, &STYLE_VERSION, STYLE)
}

/// The script of the first page.
pub(super) async fn script(headers: HeaderMap) -> Response {
    file(&headers, "text/javascript; charset=utf-8", FOR_LONG, &SCRIPT_VERSION, SCRIPT)
}

/// The icon.
pub(super) async fn icon(headers: HeaderMap) -> Response {
    file(&headers, "image/svg+xml", FOR_A_DAY, &ICON_VERSION, ICON)
}

fn file(headers: &HeaderMap, kind: &str, cache: &str, version: &str, content: &'static str) -> Response {
    let tag = format!("\"{version}\"");
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let cached = [(CACHE_CONTROL, cache.to_owned()), (ETAG, tag.clone())];
    if known.is_some_and(|known| known.contains(&tag)) {
        return (StatusCode::NOT_MODIFIED, cached).into_response();
    }
    (cached, [(CONTENT_TYPE, kind.to_owned())], content).into_response()
}
