//! Who calls: API tokens, hashed and scoped (R18, R28).

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use countersign_kernel::principal::Principal;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::problem::Problem;
use crate::state::AppState;

/// The name of the token in `<data_dir>/token`: it stands for the local
/// administrator.
pub const ADMIN_TOKEN: &str = "admin";

/// The name of the administrator's token of one data folder, where several
/// share a database. No token that the API makes has a colon in its name.
#[must_use]
pub fn admin_token_of(hash: &str) -> String {
    format!("{ADMIN_TOKEN}:{}", hash.get(..8).unwrap_or(hash))
}

/// Whether a token is an administrator's, by its name.
pub(super) fn is_admin_token(name: &str) -> bool {
    name.strip_prefix(ADMIN_TOKEN).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Read threads, interrupts, deliveries, counts.
    #[serde(rename = "threads:read")]
    ThreadsRead,
    /// Start threads, give new input, cancel.
    #[serde(rename = "threads:write")]
    ThreadsWrite,
    /// Answer as the token's own service.
    #[serde(rename = "answer")]
    Answer,
    /// Answer for a named person.
    #[serde(rename = "answer:on_behalf")]
    AnswerOnBehalf,
    /// Retry, pause, continue, edit, start over from a checkpoint, answer points
    /// without a policy.
    #[serde(rename = "operate")]
    Operate,
    /// Everything.
    #[serde(rename = "admin")]
    Admin,
}

impl Scope {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ThreadsRead => "threads:read",
            Self::ThreadsWrite => "threads:write",
            Self::Answer => "answer",
            Self::AnswerOnBehalf => "answer:on_behalf",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

/// The hash under which a token is stored. Tokens are random and long, so a
/// plain SHA-256 is enough; nobody can guess them from it.
#[must_use]
pub fn hash_token(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}

/// Who calls, and what they may do.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The token's principal.
    pub principal: Principal,
    scopes: Vec<String>,
    graphs: Option<Vec<String>>,
}

impl Caller {
    /// Whether the token has a scope.
    #[must_use]
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|held| held == scope.name() || held == Scope::Admin.name())
    }

    /// Requires a scope.
    ///
    /// # Errors
    /// 403, naming the scope.
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        if self.may(scope) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "missing-scope",
            "The token may not do this",
            format!("it needs the scope `{}`", scope.name()),
        ))
    }

    /// Requires the scope `admin` on every graph: for what concerns all of them,
    /// such as tokens and sessions.
    ///
    /// # Errors
    /// 403.
    pub fn require_unlimited_admin(&self) -> Result<(), Problem> {
        self.require(Scope::Admin)?;
        self.require_all_graphs()
    }

    /// Requires that the token is not limited to some graphs.
    ///
    /// # Errors
    /// 403.
    pub fn require_all_graphs(&self) -> Result<(), Problem> {
        if self.graphs.is_none() {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::FORBIDDEN,
            "beyond-own-graphs",
            "The token may not do this",
            "it is limited to some graphs, and this concerns all of them",
        ))
    }

    /// Requires that the token is not limited to other graphs. What it may not
    /// see does not exist for it.
    ///
    /// # Errors
    /// 404.
    pub fn require_graph(&self, graph: &str) -> Result<(), Problem> {
        if self.sees(graph) {
            return Ok(());
        }
        Err(Problem::new(
            StatusCode::NOT_FOUND,
            "unknown-graph",
            "There is no such graph",
            format!("the token does not reach the graph `{graph}`"),
        ))
    }

    /// The flows that the token is limited to, if any.
    #[must_use]
    pub fn graphs(&self) -> Option<&[String]> {
        self.graphs.as_deref()
    }

    /// Whether the token reaches a graph.
    #[must_use]
    pub fn sees(&self, graph: &str) -> bool {
        self.graphs.as_ref().is_none_or(|graphs| graphs.iter().any(|name| name == graph))
    }

    /// The one graph that a list is limited to, given what was asked for.
    ///
    /// # Errors
    /// A token for several graphs has to name one of them.
    pub fn narrow(&self, asked: Option<String>) -> Result<Option<String>, Problem> {
        match (&self.graphs, asked) {
            (_, Some(graph)) => self.require_graph(&graph).map(|()| Some(graph)),
            (None, None) => Ok(None),
            (Some(graphs), None) => match graphs.as_slice() {
                [only] => Ok(Some(only.clone())),
                _ => Err(Problem::new(
                    StatusCode::BAD_REQUEST,
                    "graph-needed",
                    "Name a graph",
                    format!("the token reaches {}; say which with `graph=`", graphs.join(", ")),
                )),
            },
        }
    }
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let refused = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", "Who are you?", detail);
        let header = parts.headers.get(header::AUTHORIZATION).ok_or_else(|| {
            refused("send `Authorization: Bearer <token>`; the administrator's is in the data folder")
        })?;
        let token = header
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim())
            .ok_or_else(|| refused("the header must read `Authorization: Bearer <token>`"))?;
        let record = state
            .engine
            .store()
            .token(&hash_token(token))
            .await?
            .ok_or_else(|| refused("the token is unknown or revoked"))?;
        let principal =
            if is_admin_token(&record.name) { state.administrator() } else { Principal::service(&record.name) };
        Ok(Self { principal, scopes: record.scopes, graphs: record.graphs })
    }
}
