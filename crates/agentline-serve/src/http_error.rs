//! Errors as HTTP responses.

use agentline::{Error, Problem, host::messages::RpcError};
use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Says how a browser gets a link that signs it in. The page says the same.
pub(crate) const NEW_LINK: &str = "on the machine of the server, `agentline serve --link` prints a new link while the server \
    runs; add the `--dir` of the server, if it has one";

/// The body of a response with an error status.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorBody {
    /// The error.
    pub(crate) error: ErrorDetail,
}

/// An error of a request.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ErrorDetail {
    /// `usage`, `unauthorized`, `forbidden`, `bad_host`, `not_found`, `conflict`, `too_large`, `rate_limited`, `timeout`,
    /// `internal` or `unavailable`.
    pub(crate) code: String,
    /// What failed.
    pub(crate) message: String,
    /// The keys that are invalid, each with a message and a hint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) problems: Vec<Value>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

/// An error of a request.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    detail: Box<ErrorDetail>,
}

impl ApiError {
    fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let detail =
            ErrorDetail { code: code.to_owned(), message: message.into(), problems: Vec::new(), hint: None };
        Self { status, detail: Box::new(detail) }
    }

    pub(crate) fn usage(key: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::problems(&[Problem::new(key, message).hint(hint)])
    }

    pub(crate) fn problems(problems: &[Problem]) -> Self {
        let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let mut error = Self::new(StatusCode::BAD_REQUEST, "usage", messages.join("\n"));
        error.detail.problems = problems.iter().filter_map(|one| serde_json::to_value(one).ok()).collect();
        error
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "usage", message)
    }

    pub(crate) fn unauthorized() -> Self {
        let error = Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "a valid token is required");
        error.hint(format!("send `Authorization: Bearer TOKEN`, or open a new link in a browser: {NEW_LINK}"))
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(crate) fn bad_host() -> Self {
        let error =
            Self::new(StatusCode::MISDIRECTED_REQUEST, "bad_host", "the `Host` is not one of this server");
        error.hint("use the address that `agentline serve` printed, or add the name with --allow-host")
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", format!("{what} was not found"))
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("the request is larger than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    pub(crate) fn timeout() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body of the request did not arrive in time")
    }

    pub(crate) fn rate_limited(message: &str) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message).hint("wait a minute")
    }

    pub(crate) fn unavailable() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the server is stopping")
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    pub(crate) fn message(&self) -> &str {
        &self.detail.message
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.detail.hint = Some(hint.into());
        self
    }
}

impl From<RpcError> for ApiError {
    fn from(error: RpcError) -> Self {
        let problems = error.data.as_ref().and_then(|data| data.get("problems")).and_then(Value::as_array);
        let kind = error.data.as_ref().and_then(|data| data.get("kind")).and_then(Value::as_str);
        let (status, code) = match (error.code, kind) {
            (_, Some("no_session")) => (StatusCode::NOT_FOUND, "not_found"),
            (-32602, _) => (StatusCode::BAD_REQUEST, "usage"),
            (-32800, _) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        let mut converted = Self::new(status, code, error.message);
        converted.detail.problems = problems.cloned().unwrap_or_default();
        converted
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::Usage(problems) => Self::problems(&problems.0),
            Error::NoSession(problem) => Self::new(StatusCode::NOT_FOUND, "not_found", problem.to_string()),
            other => Self::internal(agentline_core::error_chain(&other)),
        }
    }
}

impl From<rusqlite::Error> for ApiError {
    fn from(error: rusqlite::Error) -> Self {
        Self::internal(format!("the store of events failed: {error}"))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status;
        let mut response = (status, Json(ErrorBody { error: *self.detail })).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        }
        response
    }
}
