//! Reading bodies and queries, with clear answers when they are wrong.

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::problem::Problem;
use crate::state::AppState;
use crate::strict_json::Strict;

/// A JSON body of at most the configured size.
pub(super) struct ApiJson<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<AppState> for ApiJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        check_kind(&request)?;
        let bytes = read(request.into_body(), state.config.limits.body_bytes).await?;
        from_bytes(&bytes).map(Self)
    }
}

/// As [`ApiJson`], for a body with many things, which may be larger.
pub(super) struct BatchJson<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<AppState> for BatchJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        check_kind(&request)?;
        let limit = ("limits.batch_body_bytes", state.config.limits.batch_body_bytes);
        let bytes = read_within(request.into_body(), limit).await?;
        from_bytes(&bytes).map(Self)
    }
}

/// A JSON body that may be left out, or be `null`.
pub(super) struct OptionalJson<T>(pub(super) T);

impl<T: DeserializeOwned + Default> FromRequest<AppState> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let kind = check_kind(&request);
        let bytes = read(request.into_body(), state.config.limits.body_bytes).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        kind?;
        from_bytes::<Option<T>>(&bytes).map(|body| Self(body.unwrap_or_default()))
    }
}

/// A JSON body that is the caller's own: any value; `null` if it is left out.
pub(super) struct AnyJson(pub(super) Value);

impl FromRequest<AppState> for AnyJson {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let kind = check_kind(&request);
        let bytes = read(request.into_body(), state.config.limits.body_bytes).await?;
        if bytes.is_empty() {
            return Ok(Self(Value::Null));
        }
        kind?;
        serde_json::from_slice(&bytes).map(|Strict(value)| Self(value)).map_err(|error| json_problem(&error))
    }
}

fn check_kind(request: &Request) -> Result<(), Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let essence = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    if essence != "application/json" && !essence.ends_with("+json") {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "not-json",
            "The body must be JSON",
            "send `Content-Type: application/json`",
        ));
    }
    Ok(())
}

fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let Strict(value) = serde_json::from_slice(bytes).map_err(|error| json_problem(&error))?;
    if value.is_array() {
        // A list would be taken for the members of the object, in order.
        return Err(Problem::invalid("invalid-body", "the body must be an object"));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let place = pointer(error.path());
        let what = error.into_inner().to_string();
        let what = if place.is_empty() { what } else { format!("{place}: {what}") };
        Problem::invalid("invalid-body", what)
    })
}

/// Where in the body, as a JSON pointer (RFC 6901).
fn pointer(path: &serde_path_to_error::Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Map { key } => pointer.push_str(&format!("/{}", key.replace('~', "~0").replace('/', "~1"))),
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}

async fn read(body: Body, limit: u64) -> Result<Vec<u8>, Problem> {
    read_within(body, ("limits.body_bytes", limit)).await
}

async fn read_within(body: Body, (name, limit): (&str, u64)) -> Result<Vec<u8>, Problem> {
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    to_bytes(body, most).await.map(|bytes| bytes.to_vec()).map_err(|error| {
        let too_large =
            std::error::Error::source(&error).is_some_and(|source| source.to_string().contains("length limit"));
        if too_large {
            Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body-too-large",
                "The body is too large",
                format!("at most {limit} bytes are read (`{name}`)"),
            )
        } else {
            Problem::new(StatusCode::BAD_REQUEST, "broken-body", "The body did not arrive whole", "send it again")
        }
    })
}

fn json_problem(error: &serde_json::Error) -> Problem {
    if error.is_data() {
        Problem::invalid("invalid-body", error.to_string())
    } else {
        Problem::new(StatusCode::BAD_REQUEST, "malformed-json", "The body is not JSON", error.to_string())
    }
}

/// A query string; unknown parameters are refused.
pub(super) struct ApiQuery<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for ApiQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        Query::<T>::from_request_parts(parts, state).await.map(|Query(query)| Self(query)).map_err(|rejection| {
            Problem::new(StatusCode::BAD_REQUEST, "invalid-query", "The query is not valid", rejection.body_text())
        })
    }
}

/// An identifier from the path; one that cannot exist is "not found".
pub(super) struct ApiPath<T>(pub(super) T);

impl<T: TryFrom<String> + Send> FromRequestParts<AppState> for ApiPath<T>
where
    T::Error: std::fmt::Display,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let Path(text) =
            Path::<String>::from_request_parts(parts, state).await.map_err(|error| no_such_id(error.body_text()))?;
        T::try_from(text).map(Self).map_err(|error| no_such_id(error.to_string()))
    }
}

/// Two identifiers from the path.
pub(super) struct ApiPaths<T, U>(pub(super) T, pub(super) U);

impl<T: TryFrom<String> + Send, U: TryFrom<String> + Send> FromRequestParts<AppState> for ApiPaths<T, U>
where
    T::Error: std::fmt::Display,
    U::Error: std::fmt::Display,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let Path((outer, inner)) = Path::<(String, String)>::from_request_parts(parts, state)
            .await
            .map_err(|error| no_such_id(error.body_text()))?;
        let outer = T::try_from(outer).map_err(|error| no_such_id(error.to_string()))?;
        let inner = U::try_from(inner).map_err(|error| no_such_id(error.to_string()))?;
        Ok(Self(outer, inner))
    }
}

fn no_such_id(detail: String) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "unknown-id", "There is no such thing", detail)
}
