//! The pages: rendered on the server. They need no script; the first page has one
//! that keeps it fresh.
//!
//! | route | for whom |
//! | --- | --- |
//! | `GET`, `POST /d/{token}` | whoever holds the personal link |
//! | `GET /signin/{token}`, `POST /signout` | everybody |
//! | `GET /`, `/threads/{id}`, `/threads/{id}/checkpoints/{checkpoint}` | signed in |
//! | `POST /threads/{id}/checkpoints/{checkpoint}` | the administrator |
//! | `GET`, `POST /interrupts/{id}` | signed in |
//! | `GET /mailbox`, `/mailbox/{id}`, `/mailbox/{id}/html` | the administrator |
//! | `GET /overview/events` | signed in |
//! | `GET /assets/style.css`, `/assets/live.js`, `/assets/icon.svg`, `/favicon.ico` | everybody |
//!
//! Reading decides nothing: `GET` and `HEAD` never write. Every answer goes
//! through [`Engine::vote`](countersign_worker::engine::Engine::vote), which
//! judges it; the pages only say what came of it. The paths of `/d/` and
//! `/signin/` are secrets: do not log or trace them.

mod answer;
mod assets;
mod checkpoint;
mod decide;
mod decision;
mod doors;
mod fields;
mod home;
mod live;
mod mailbox;
mod origin;
mod over;
mod page;
mod people;
mod problem;
mod session;
mod site;
mod standing;
#[cfg(test)]
mod tests;
mod thread;
mod time;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

pub use self::session::sign_in_link;
use crate::state::AppState;

/// The pages, with a page for every address that is none. Errors of handlers
/// and the headers that protect pages are added here.
pub fn router(state: AppState) -> Router {
    let body_limit = usize::try_from(state.config.limits.body_bytes).unwrap_or(usize::MAX);
    Router::new()
        .route("/", get(home::show))
        .route("/overview/events", get(live::events))
        .route("/d/{token}", get(doors::show_link).post(doors::decide_link))
        .route("/interrupts/{id}", get(doors::show_page).post(doors::decide_page))
        .route("/threads/{id}", get(thread::show))
        .route("/threads/{id}/checkpoints/{checkpoint}", get(checkpoint::show).post(checkpoint::run_again))
        .route("/mailbox", get(mailbox::list))
        .route("/mailbox/{id}", get(mailbox::show))
        .route("/mailbox/{id}/html", get(mailbox::html))
        .route("/signin/{token}", get(session::sign_in))
        .route("/signout", post(session::sign_out))
        .route("/assets/style.css", get(assets::style))
        .route("/assets/live.js", get(assets::script))
        .route("/assets/icon.svg", get(assets::icon))
        .route("/favicon.ico", get(assets::icon))
        .fallback(problem::no_page)
        .method_not_allowed_fallback(problem::wrong_method)
        .layer(DefaultBodyLimit::max(body_limit))
        .layer(from_fn_with_state(state.clone(), page::finish))
        .with_state(state)
}
