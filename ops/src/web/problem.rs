//! What went wrong, and the page that says so and what to do next.

use askama::Template;
use axum::extract::rejection::FormRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use countersign_notifier::{LinkFault, MailboxFault};
use countersign_worker::engine::RequestError;
use countersign_worker::store::{Refusal, StoreError};

use super::page::render;
use super::site::Site;
use super::time::Moment;

/// Why a page is not shown. None of the pages tells anything of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Problem {
    /// A personal link that is not accepted.
    Link(LinkFault),
    /// A sign-in link that is not accepted.
    SignInLink(LinkFault),
    /// A sign-in link for somebody whom the directory does not know.
    Nobody,
    /// The one who looks may not decide this.
    NotAsked,
    /// There is no such request.
    NoRequest,
    /// There is no such thread.
    NoThread,
    /// The thread has no such checkpoint.
    NoCheckpoint,
    /// There is no such mail.
    NoMail,
    /// There is no such page.
    NoPage,
    /// The page cannot be used this way.
    WrongMethod,
    /// Nobody is signed in.
    SignedOut,
    /// Only the administrator sees this.
    NotAdministrator,
    /// A form that was not posted from one of our pages.
    FromElsewhere,
    /// A body that is too large.
    TooLarge,
    /// A body that is no form.
    NoForm(StatusCode),
    /// The database or something else of ours failed; it is in the log.
    Failed,
}

impl From<FormRejection> for Problem {
    fn from(rejection: FormRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge,
            status => Self::NoForm(status),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(Refusal::UnknownInterrupt(_)) => Self::NoRequest,
            StoreError::Refused(Refusal::UnknownThread(_)) => Self::NoThread,
            StoreError::Refused(Refusal::UnknownCheckpoint(_)) => Self::NoCheckpoint,
            StoreError::Refused(Refusal::NotAllowed { .. } | Refusal::OperatorOnly { .. }) => Self::NotAsked,
            error => {
                tracing::error!(%error, "a page could not be shown");
                Self::Failed
            }
        }
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Store(error) => error.into(),
            error => {
                tracing::error!(%error, "an answer could not be recorded");
                Self::Failed
            }
        }
    }
}

impl From<MailboxFault> for Problem {
    fn from(error: MailboxFault) -> Self {
        tracing::error!(%error, "a mail could not be shown");
        Self::Failed
    }
}

/// The page is made by the outermost layer, which knows who looks.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// The variable part of an address.
pub(super) struct Segment(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(text) = Path::from_request_parts(parts, state).await.map_err(|_| Problem::NoPage)?;
        Ok(Self(text))
    }
}

/// For addresses that are none.
pub(super) async fn no_page() -> Problem {
    Problem::NoPage
}

/// For pages that are not used as they are meant to.
pub(super) async fn wrong_method() -> Problem {
    Problem::WrongMethod
}

#[derive(Template)]
#[template(path = "problem.html")]
pub(super) struct ProblemPage {
    pub(super) site: Site,
    pub(super) title: &'static str,
    pub(super) what: String,
    pub(super) next: &'static str,
    /// Whether to offer the page once more, for a cookie that another site's
    /// link did not take along.
    pub(super) again: bool,
}

const SIGN_IN: &str = "To see what waits for you, sign in: start the server with “countersign up” and open the \
                       sign-in link that it prints.";
const OPEN_AGAIN: &str = "Open the link again from the message, and copy all of it.";

impl Problem {
    /// The status that says the same to machines.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Link(fault) | Self::SignInLink(fault) => match fault {
                LinkFault::Malformed => StatusCode::NOT_FOUND,
                LinkFault::Tampered => StatusCode::FORBIDDEN,
                LinkFault::UnknownKey | LinkFault::Replaced | LinkFault::Expired { .. } => StatusCode::GONE,
            },
            Self::Nobody | Self::NotAsked | Self::NotAdministrator | Self::FromElsewhere => StatusCode::FORBIDDEN,
            Self::NoRequest | Self::NoThread | Self::NoCheckpoint | Self::NoMail | Self::NoPage => {
                StatusCode::NOT_FOUND
            }
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::SignedOut => StatusCode::UNAUTHORIZED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoForm(status) => *status,
            Self::Failed => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The page, for whoever looks.
    pub(super) fn page(&self, site: &Site, cross_site: bool) -> Response {
        let (title, what, next) = self.words();
        let again = cross_site && *self == Self::SignedOut;
        let page = ProblemPage { site: site.clone(), title, what, next, again };
        let mut response = render(self.status(), &page);
        if *self == Self::SignedOut {
            let scheme = HeaderValue::from_static("SignInLink realm=\"Countersign\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        response
    }

    /// Title, what happened, what to do.
    fn words(&self) -> (&'static str, String, &'static str) {
        let (title, what, next) = match self {
            Self::Link(fault) => return link_words(fault, SIGN_IN),
            Self::SignInLink(fault) => {
                return link_words(
                    fault,
                    "Start the server again with “countersign up”: it prints a new sign-in link.",
                );
            }
            Self::Nobody => (
                "Nobody to sign in",
                "This sign-in link is for somebody who is no longer among the configured people.",
                "Ask the administrator to add you to the configuration.",
            ),
            Self::NotAsked => (
                "Not yours to decide",
                "You are not among those who may decide this request: your role may have changed, or you are \
                 excluded because you took part in an earlier step. Nothing was recorded.",
                "If you think you should be asked, talk to whoever runs this server.",
            ),
            Self::NoRequest => (
                "No such request",
                "There is no request at this address.",
                "Check the address, or look at what waits on the first page.",
            ),
            Self::NoThread => (
                "No such thread",
                "There is no thread at this address.",
                "Check the address, or look at the latest threads on the first page.",
            ),
            Self::NoCheckpoint => (
                "No such checkpoint",
                "The thread has no checkpoint at this address.",
                "Check the address, or look at the history on the thread's page.",
            ),
            Self::NoMail => {
                ("No such mail", "There is no mail at this address.", "The mailbox lists the mails there are.")
            }
            Self::NoPage => {
                ("No such page", "There is no page at this address.", "Check the address for typing errors.")
            }
            Self::WrongMethod => (
                "Not like this",
                "This page exists, but it cannot be used in this way. Nothing was changed.",
                "Open the page in a browser and use its buttons.",
            ),
            Self::SignedOut => (
                "Please sign in",
                "You are not signed in, so this page is not shown.",
                "Open the sign-in link that “countersign up” prints when the server starts. To decide a request \
                 that you got a mail about, open the link in that mail: it needs no signing in.",
            ),
            Self::NotAdministrator => (
                "For the administrator only",
                "This page holds the personal links of other people, so only the administrator may see it.",
                "The first page shows what waits for you.",
            ),
            Self::FromElsewhere => (
                "Not sent from our page",
                "This form was not sent from a page of this server, so nothing was recorded.",
                "Open the page again and send the form from there.",
            ),
            Self::TooLarge => (
                "Too much text",
                "What was sent is larger than this server takes. Nothing was recorded.",
                "Go back, shorten your answer and send it again.",
            ),
            Self::NoForm(_) => (
                "Not a form",
                "What was sent is not the form of this page. Nothing was recorded.",
                "Open the page in a browser and use its buttons.",
            ),
            Self::Failed => (
                "This did not work",
                "The server could not do this just now. If you sent an answer, it may not have been recorded.",
                "Wait a moment and open the page again: it shows whether your answer is on record.",
            ),
        };
        (title, what.to_owned(), next)
    }
}

fn link_words(fault: &LinkFault, otherwise: &'static str) -> (&'static str, String, &'static str) {
    match fault {
        LinkFault::Malformed => {
            ("This link is incomplete", "The link is damaged, or part of it is missing.".to_owned(), OPEN_AGAIN)
        }
        LinkFault::Tampered => (
            "This link is not valid",
            "The link was changed after it was made, so it is not accepted.".to_owned(),
            "Open the link again from the message, exactly as it came and all of it.",
        ),
        LinkFault::UnknownKey => (
            "This link is no longer valid",
            "The link was signed with a key that is no longer in use.".to_owned(),
            otherwise,
        ),
        LinkFault::Replaced => (
            "This link is no longer valid",
            "The link dates from before a restore of the data, which made all earlier links void.".to_owned(),
            otherwise,
        ),
        LinkFault::Expired { at } => {
            ("This link has expired", format!("The link was valid until {}.", Moment::of(*at).human), otherwise)
        }
    }
}
