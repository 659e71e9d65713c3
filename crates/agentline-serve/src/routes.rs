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
    guard::{LOGOUT, SEARCH, guard},
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
        (SEARCH, post(sessions::search)),
        ("/v1/sessions/show", get(sessions::show)),
        ("/v1/sessions/usage", get(sessions::usage)),
        ("/v1/experiments", get(experiments::list)),
        ("/v1/experiments/status", get(experiments::status)),
        ("/v1/experiments/report", get(experiments::report)),
    ]
}

/// Works on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let working = tokio::task::spawn_blocking(work);
    working.await.unwrap_or_else(|error| Err(ApiError::internal(error.to_string())))
}

/// Does a read that can take long, of which few are in progress at the same time. It counts until it ends, also when its
/// client has disconnected.
async fn scan<T: Send + 'static>(
    app: &App,
    work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    let waiting = Arc::clone(&app.scans).acquire_owned();
    let permit = tokio::time::timeout(app.limits.read_timeout, waiting).await.ok().and_then(Result::ok);
    let permit = permit.ok_or_else(|| {
        ApiError::rate_limited("too many searches and reports are in progress").hint("try again later")
    })?;
    let working = tokio::spawn(async move {
        let result = work.await;
        drop(permit);
        result
    });
    working.await.unwrap_or_else(|error| Err(ApiError::internal(error.to_string())))
}
