//! Signs browsers in with a link that works once, and out.

use crate::{
    app::{App, Peer, Sender},
    extract::Params,
    guard::{cookie, cookie_name},
    http_error::{ApiError, NEW_LINK},
    messages::LoginLink,
    sign_in::SESSION_TIME,
    tokens::OWNER,
};
use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{Html, IntoResponse as _, Redirect, Response},
};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

/// What a browser shows for a link that is not valid.
const USED_LINK: &str = include_str!("used_link.html");

/// The code of a link.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginQuery {
    once: String,
}

pub(crate) async fn login(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Params(query): Params<LoginQuery>,
) -> Result<Response, ApiError> {
    let Some(session) = app.sign_in.begin(&query.once) else { return refuse(&app, peer, &headers) };
    app.audit.record(OWNER, peer.remote, "login", json!({})).await;
    redirect(&app, peer, &session, SESSION_TIME.as_secs(), StatusCode::SEE_OTHER)
}

/// Answers a link that is not valid. A browser that is signed in gets the page, another one a text for its user.
fn refuse(app: &App, peer: Peer, headers: &HeaderMap) -> Result<Response, ApiError> {
    if cookie(headers, peer).is_some_and(|cookie| app.sign_in.is_signed_in(cookie)) {
        return Ok(Redirect::to("/").into_response());
    }
    if !app.wrong_tokens.take(peer.remote.ip()) {
        return Err(ApiError::rate_limited("too many wrong tokens from this address"));
    }
    let accepted = headers.get(header::ACCEPT).and_then(|accepted| accepted.to_str().ok());
    if accepted.is_some_and(|accepted| accepted.contains("text/html")) {
        return Ok((StatusCode::FORBIDDEN, Html(USED_LINK)).into_response());
    }
    let error = ApiError::forbidden("the link was used already or has expired");
    Err(error.hint(NEW_LINK))
}

pub(crate) async fn new_link(
    State(app): State<Arc<App>>,
    Extension(sender): Extension<Sender>,
) -> Result<Json<LoginLink>, ApiError> {
    if sender.token.name != OWNER {
        return Err(ApiError::forbidden("only the owner's token creates links"));
    }
    if sender.session_end.is_some() {
        // A link would outlive the sign-out of the browser that asked for it.
        return Err(ApiError::forbidden("a browser cannot create links")
            .hint("use the owner's token, or `agentline serve --link`"));
    }
    app.audit.record(&sender.token.name, sender.remote, "login_link", json!({})).await;
    Ok(Json(LoginLink { path: format!("/login?once={}", app.sign_in.new_link()) }))
}

pub(crate) async fn logout(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    if cookie(&headers, peer).is_some_and(|session| app.sign_in.end(session)) {
        app.audit.record(OWNER, peer.remote, "logout", json!({})).await;
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
