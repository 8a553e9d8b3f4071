//! What every page needs: where it is served, and who looks at it.

use std::sync::Arc;

use super::assets;
use super::session::Session;
use crate::state::AppState;

/// The frame around a page.
#[derive(Debug, Clone)]
pub(super) struct Site {
    /// What stands before every path, behind a proxy with a prefix; without a
    /// slash at the end, so mostly empty.
    pub(super) prefix: Arc<str>,
    /// Names this build's style sheet, so that it can be cached for long.
    pub(super) style: &'static str,
    /// Who is signed in.
    pub(super) session: Option<Session>,
    /// Whether there are mails to look at here.
    pub(super) mailbox: bool,
}

impl Site {
    /// The frame for whoever is signed in.
    pub(super) fn new(state: &AppState, session: Option<Session>) -> Self {
        Self {
            prefix: prefix(&state.base_url).into(),
            style: assets::style_version(),
            session,
            mailbox: state.mailbox.is_some(),
        }
    }

    /// The frame for the holder of a link, whoever may be signed in.
    pub(super) fn for_link(&self) -> Self {
        Self { session: None, ..self.clone() }
    }

    /// Whether to offer the mailbox.
    pub(super) fn shows_mailbox(&self) -> bool {
        self.mailbox && self.session.as_ref().is_some_and(|session| session.administrator)
    }
}

/// The path of a base URL, without a slash at its end.
pub(super) fn prefix(base_url: &str) -> &str {
    let behind_scheme = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
    let path = behind_scheme.find('/').map_or("", |at| &behind_scheme[at..]);
    path.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_the_path_of_the_base_url() {
        assert_eq!(prefix("https://example.com"), "");
        assert_eq!(prefix("https://example.com/"), "");
        assert_eq!(prefix("https://example.com:8443/ops/sign/"), "/ops/sign");
        assert_eq!(prefix("http://[::1]:8420"), "");
    }
}
