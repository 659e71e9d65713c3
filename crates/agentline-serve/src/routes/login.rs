//! Signs browsers in with a link that works once, and out.

use crate::{
    app::{App, Peer, Sender},
    extract::Params,
    guard::{cookie, cookie_name},
    http_error::ApiError,
    messages::LoginLink,
    sign_in::SESSION_TIME,
    tokens::OWNER,
};
use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// The code of a link.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginQuery {
    once: String,
}

pub(crate) async fn login(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    Params(query): Params<LoginQuery>,
) -> Result<Response, ApiError> {
    let Some(session) = app.sign_in.begin(&query.once) else {
        if !app.wrong_tokens.take(peer.remote.ip()) {
            return Err(ApiError::rate_limited("too many wrong tokens from this address"));
        }
        let error = ApiError::forbidden("the link was used already or has expired");
        return Err(error.hint("restart `agentline serve`, or use POST /v1/login-links with a token"));
    };
    app.audit.record(OWNER, peer.remote, "login", json!({}));
    redirect(&app, peer, &session, SESSION_TIME.as_secs(), StatusCode::SEE_OTHER)
}

pub(crate) async fn new_link(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Sender>,
) -> Result<Json<LoginLink>, ApiError> {
    if sender.token.name != OWNER {
        return Err(ApiError::forbidden("only the owner's token creates links"));
    }
    Ok(Json(LoginLink { path: format!("/login?once={}", app.sign_in.new_link()) }))
}

pub(crate) async fn logout(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    if let Some(session) = cookie(&headers, peer) {
        app.sign_in.end(session);
    }
    redirect(&app, peer, "", 0, StatusCode::NO_CONTENT)
}

/// Sets the cookie and leads to the page.
fn redirect(app: &App, peer: Peer, value: &str, age: u64, status: StatusCode) -> Result<Response, ApiError> {
    let secure = if app.is_tls { "; Secure" } else { "" };
    let name = cookie_name(peer);
    let cookie = format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={age}{secure}");
    let cookie = HeaderValue::from_str(&cookie).map_err(|error| ApiError::internal(error.to_string()))?;
    let mut response = status.into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    if status == StatusCode::SEE_OTHER {
        response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/"));
    }
    Ok(response)
}
