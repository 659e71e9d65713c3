//! The routes, and which function answers each.

mod acp;
mod conversations;
mod experiments;
mod login;
mod page;
mod runs;
mod server;
mod sessions;

use crate::{
    app::App,
    guard::{LOGOUT, guard},
    http_error::ApiError,
};
use axum::{
    Router,
    http::Method,
    middleware,
    routing::{MethodRouter, delete, get, post},
};
use std::sync::Arc;

/// Returns the service of all routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for (path, routes) in table() {
        router = router.route(path, routes);
    }
    router
        .fallback(async || ApiError::not_found("the route"))
        .method_not_allowed_fallback(async |method: Method| {
            ApiError::bad_request(format!("the route does not have the method {method}"))
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&app), guard))
        .with_state(app)
}

/// Returns the paths with their functions. [`crate::openapi`] describes them.
fn table() -> Vec<(&'static str, MethodRouter<Arc<App>>)> {
    vec![
        ("/", get(page::index)),
        ("/assets/{name}", get(page::asset)),
        ("/favicon.ico", get(page::favicon)),
        ("/docs", get(page::docs)),
        ("/openapi.json", get(page::openapi)),
        ("/acp", get(acp::connect)),
        ("/login", get(login::login)),
        ("/v1/login-links", post(login::new_link)),
        (LOGOUT, post(login::logout)),
        ("/v1/info", get(server::info)),
        ("/v1/agents", get(server::agents)),
        ("/v1/agents/{agent}", get(server::agent)),
        ("/v1/pool", get(server::pool)),
        ("/v1/directories", get(server::directories)),
        ("/v1/runs", get(runs::list).post(runs::start)),
        ("/v1/runs/{run}", get(runs::show)),
        ("/v1/runs/{run}/events", get(runs::events)),
        ("/v1/runs/{run}/poll", get(runs::poll)),
        ("/v1/runs/{run}/cancel", post(runs::cancel)),
        ("/v1/runs/{run}/outcome", get(runs::outcome)),
        ("/v1/runs/{run}/files", get(runs::files)),
        ("/v1/runs/{run}/file", get(runs::file)),
        ("/v1/runs/{run}/permissions", get(runs::permissions)),
        ("/v1/runs/{run}/permissions/{id}", post(runs::reply)),
        ("/v1/runs/{run}/steer", post(runs::steer)),
        ("/v1/conversations", get(conversations::list).post(conversations::open)),
        ("/v1/conversations/{id}", get(conversations::show).merge(delete(conversations::close))),
        ("/v1/conversations/{id}/prompts", post(conversations::prompt)),
        ("/v1/sessions", get(sessions::list)),
        ("/v1/sessions/search", post(sessions::search)),
        ("/v1/sessions/show", get(sessions::show)),
        ("/v1/sessions/usage", get(sessions::usage)),
        ("/v1/experiments", get(experiments::list)),
        ("/v1/experiments/status", get(experiments::status)),
        ("/v1/experiments/report", get(experiments::report)),
    ]
}
