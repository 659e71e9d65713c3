//! What every request passes before its route: `Host`, `Origin`, token, rate; and the headers of every response.

use crate::{
    app::{App, Peer, Sender},
    http_error::ApiError,
};
use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use std::{net::IpAddr, sync::Arc};

/// The route that signs a browser out.
pub(crate) const LOGOUT: &str = "/v1/logout";
/// The route that searches saved sessions.
pub(crate) const SEARCH: &str = "/v1/sessions/search";

const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                   connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HEADERS: &[(&str, &str)] = &[
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];

/// Checks a request and passes it on.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match admit(&app, request) {
        Ok(request) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(CSP));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn admit(app: &App, mut request: Request) -> Result<Request, ApiError> {
    let peer = *request.extensions().get::<Peer>().ok_or_else(|| ApiError::internal("no connection"))?;
    let host = host_of(&request)?;
    if !is_own_host(app, peer, &host) {
        return Err(ApiError::bad_host());
    }
    let has_origin = check_origin(app, request.headers(), &host)?;
    if is_public(request.method(), request.uri().path()) {
        return Ok(request);
    }
    let sender = authenticate(app, peer, request.headers())?;
    let is_upgrade = request.headers().contains_key(header::UPGRADE);
    let is_change = !matches!(*request.method(), Method::GET | Method::HEAD) || is_upgrade;
    if is_change {
        if sender.session_end.is_some() && !has_origin {
            return Err(ApiError::forbidden("a change with a cookie needs an `Origin`"));
        }
        if !is_end(&request) && request.uri().path() != SEARCH && !app.changes.take(sender.token.name.clone())
        {
            return Err(ApiError::rate_limited("too many changes with this token"));
        }
    }
    request.extensions_mut().insert(sender);
    Ok(request)
}

/// Returns whether a request only ends something, or answers a permission request, of which there are no more than agents
/// ask. It is not limited, so that other clients of the token can keep neither a browser signed in, nor a conversation
/// open, nor a run in progress.
fn is_end(request: &Request) -> bool {
    let path = request.uri().path();
    let of_run = path.strip_prefix("/v1/runs/").and_then(|rest| rest.split_once('/')).map(|(_, rest)| rest);
    let ends_run = of_run.is_some_and(|action| action == "cancel" || action.starts_with("permissions/"));
    *request.method() == Method::DELETE || path == LOGOUT || ends_run
}

/// Returns whether a route needs no token: the shell of the page, which has no data, and the link that signs in.
fn is_public(method: &Method, path: &str) -> bool {
    let is_file = path == "/" || path.starts_with("/assets/") || path == "/favicon.ico";
    *method == Method::GET && (is_file || path == "/login")
}

/// Returns the host that a request names, in lower case.
fn host_of(request: &Request) -> Result<String, ApiError> {
    let mut values = request.headers().get_all(header::HOST).iter();
    let (Some(host), None) = (values.next(), values.next()) else { return Err(ApiError::bad_host()) };
    let host = host.to_str().map_err(|_| ApiError::bad_host())?.to_ascii_lowercase();
    // A request line may name the host again.
    let named = request.uri().authority().map(|authority| authority.as_str().to_ascii_lowercase());
    if named.is_some_and(|named| named != host) {
        return Err(ApiError::bad_host());
    }
    Ok(host)
}

/// Returns whether a host is this server: the address that the client connected to, or a name of the loopback or of the
/// options. A name that an attacker's DNS points here is none of them.
fn is_own_host(app: &App, peer: Peer, host: &str) -> bool {
    let default_port = if app.is_tls { 443 } else { 80 };
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port.parse().ok()),
        _ => (host, Some(default_port)),
    };
    if app.allowed_hosts.iter().any(|allowed| allowed == name) {
        // A proxy in front may have another port.
        return true;
    }
    if port != Some(peer.local.port()) {
        return false;
    }
    let local = peer.local.ip().to_canonical();
    let literal: Option<IpAddr> = name.trim_start_matches('[').trim_end_matches(']').parse().ok();
    literal.map_or(name == "localhost" && local.is_loopback(), |literal| literal.to_canonical() == local)
}

/// Refuses a foreign `Origin`. Returns whether there is one.
fn check_origin(app: &App, headers: &HeaderMap, host: &str) -> Result<bool, ApiError> {
    let mut values = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = values.next() else { return Ok(false) };
    let scheme = if app.is_tls { "https" } else { "http" };
    let own = [format!("{scheme}://{host}"), format!("https://{host}")];
    // A proxy in front may add TLS, so https is accepted for the names of the options.
    let is_own = |origin: &str| origin == own[0] || (!app.allowed_hosts.is_empty() && origin == own[1]);
    let is_allowed =
        values.next().is_none() && origin.to_str().is_ok_and(|text| is_own(&text.to_ascii_lowercase()));
    if is_allowed { Ok(true) } else { Err(ApiError::forbidden("the `Origin` is not this server")) }
}

/// Returns who sent a request, by its token or by the cookie that stands for one.
fn authenticate(app: &App, peer: Peer, headers: &HeaderMap) -> Result<Sender, ApiError> {
    let sender = |token, session_end| Sender { token: Arc::clone(token), remote: peer.remote, session_end };
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        // The value of a session cannot be guessed, and browsers repeat that of an earlier server, so it is not counted.
        let end = cookie(headers, peer).and_then(|cookie| app.sign_in.find(cookie));
        return end.map(|end| sender(app.tokens.of_owner(), Some(end))).ok_or_else(ApiError::unauthorized);
    };
    let presented = bearer(value);
    // The right token is accepted from every address: the limit must not lock out its owner, who shares the address with
    // other programs of the machine. It makes guesses of a random token visible, not fewer.
    if let Some(token) = presented.and_then(|presented| app.tokens.find(presented.as_bytes())) {
        return Ok(sender(token, None));
    }
    if presented.is_some() && !app.wrong_tokens.take(peer.remote.ip()) {
        return Err(ApiError::rate_limited("too many wrong tokens from this address"));
    }
    Err(ApiError::unauthorized())
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Returns the name of the cookie of this server. Cookies are shared by all ports of a host, so it has the port.
pub(crate) fn cookie_name(peer: Peer) -> String {
    format!("agentline_session_{}", peer.local.port())
}

/// Returns the value of the cookie.
pub(crate) fn cookie(headers: &HeaderMap, peer: Peer) -> Option<&str> {
    let own = cookie_name(peer);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == own).map(|(_, value)| value)
}
