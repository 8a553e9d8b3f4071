//! The HTTP API, `/api/v1`.
//!
//! Thin: a handler reads the request, asks the [engine](countersign_worker::engine::Engine),
//! and writes what it said. Errors are problem documents (RFC 9457); the
//! OpenAPI description is made from the code.

mod auth;
mod batch;
mod course;
mod cursor;
mod dead_letters;
mod events;
mod extract;
mod health;
mod history;
mod idempotency;
mod interrupts;
mod limits;
mod metrics;
mod overview;
mod pauses;
mod problem;
mod resume;
mod schedules;
mod shapes;
mod sign_in;
mod signals;
mod threads;
mod tokens;

use axum::Json;
use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use auth::{ADMIN_TOKEN, Caller, Scope, admin_token_of, hash_token};
pub(crate) use idempotency::InFlight;
pub(crate) use interrupts::STATUSES as INTERRUPT_STATUSES;
pub use problem::Problem;
pub(crate) use threads::STATUSES as THREAD_STATUSES;

use crate::state::AppState;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Countersign",
        description = "Start threads, list what waits for people, answer it, resume. \
                       Errors are problem documents (RFC 9457). Times are RFC 3339, UTC."
    ),
    security(("token" = [])),
    modifiers(&TokenScheme)
)]
struct ApiDoc;

struct TokenScheme;

impl utoipa::Modify for TokenScheme {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        openapi.components.get_or_insert_default().add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// The API and the health probes.
pub fn router(state: AppState) -> Router {
    let (v1, openapi) = OpenApiRouter::with_openapi(ApiDoc::openapi())
        .nest("/api/v1", routes_v1())
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(metrics::show))
        .split_for_parts();
    v1.route("/api/v1/openapi.json", get(move || async move { Json(openapi).into_response() }))
        .route("/api", axum::routing::any(problem::no_route))
        .route("/api/{*rest}", axum::routing::any(problem::no_route))
        .method_not_allowed_fallback(problem::no_method)
        .with_state(state)
}

/// Metrics and probes alone, for a process that serves nothing else.
pub(crate) fn probes(state: AppState) -> Router {
    Router::new()
        .route("/metrics", get(metrics::show))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .fallback(problem::no_route)
        .method_not_allowed_fallback(problem::no_method)
        .with_state(state)
}

fn routes_v1() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(threads::list, threads::create))
        .routes(routes!(threads::show))
        .routes(routes!(history::history))
        .routes(routes!(history::checkpoint))
        .routes(routes!(course::edit))
        .routes(routes!(course::run))
        .routes(routes!(resume::resume))
        .routes(routes!(resume::retry))
        .routes(routes!(batch::answer_many))
        .routes(routes!(resume::pause))
        .routes(routes!(threads::cancel))
        .routes(routes!(threads::audit))
        .routes(routes!(signals::send))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::fire))
        .routes(routes!(events::watch))
        .routes(routes!(interrupts::list))
        .routes(routes!(interrupts::show))
        .routes(routes!(interrupts::answer))
        .routes(routes!(interrupts::deliveries))
        .routes(routes!(overview::show))
        .routes(routes!(overview::graphs))
        .routes(routes!(pauses::list))
        .routes(routes!(pauses::pause_graph, pauses::resume_graph))
        .routes(routes!(pauses::pause_node, pauses::resume_node))
        .routes(routes!(pauses::pause_channel, pauses::resume_channel))
        .routes(routes!(pauses::operations))
        .routes(routes!(limits::list))
        .routes(routes!(limits::set, limits::remove))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::retry))
        .routes(routes!(tokens::list))
        .routes(routes!(tokens::put, tokens::revoke))
        .routes(routes!(sign_in::create))
}
