//! Errors that a client gets as the response to a request.

use agentline::{Error, FailureKind, Outcome, Problems, Verdict};
use serde::Serialize;
use serde_json::{Value, json};

/// The code for a frame that is not JSON.
pub(crate) const PARSE_ERROR: i64 = -32700;
/// The code for a frame that is not a message.
pub(crate) const INVALID_REQUEST: i64 = -32600;
/// The code for an unknown method.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The code for invalid parameters.
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// The code for any other failure.
pub(crate) const INTERNAL_ERROR: i64 = -32603;
/// The code of ACP for a missing sign-in.
const AUTH_REQUIRED: i64 = -32000;
/// The code of ACP for a session that does not exist.
const NOT_FOUND: i64 = -32002;
/// The code for a prompt that is refused or stopped because a limit is used up.
const LIMIT_REACHED: i64 = -32010;

/// An error response.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ErrorResponse {
    pub(crate) code: i64,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Value>,
}

impl ErrorResponse {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(crate) fn unknown_session(id: &str) -> Self {
        Self::new(NOT_FOUND, format!("no open session `{id}`"))
    }

    /// Returns the error for a limit of the connection that is used up.
    pub(crate) fn used_up(limit: &str) -> Self {
        let message = format!("the limit `{limit}` of this connection is used up; raise it and reconnect");
        Self { data: Some(json!({"agentline": {"limit": limit}})), ..Self::new(LIMIT_REACHED, message) }
    }

    /// Returns the error for a run that did not end normally.
    pub(crate) fn of_outcome(outcome: &Outcome) -> Self {
        let error = outcome.error.as_ref();
        let code = match outcome.verdict {
            Verdict::NotAuthenticated => AUTH_REQUIRED,
            Verdict::LimitReached => LIMIT_REACHED,
            _ if error.is_some_and(|error| error.kind == FailureKind::SessionNotFound) => NOT_FOUND,
            _ => INTERNAL_ERROR,
        };
        let message = error.map_or_else(|| outcome.verdict.name().to_owned(), |error| error.message.clone());
        let message = match error.and_then(|error| error.hint.as_ref()) {
            Some(hint) => format!("{message}; hint: {hint}"),
            None => message,
        };
        Self { data: Some(crate::result::meta(outcome)), ..Self::new(code, message) }
    }
}

impl From<Problems> for ErrorResponse {
    fn from(problems: Problems) -> Self {
        Self::new(INVALID_PARAMS, problems.to_string())
    }
}

impl From<Error> for ErrorResponse {
    fn from(error: Error) -> Self {
        match error {
            Error::Usage(problems) => problems.into(),
            Error::NotOpened(outcome) => Self::of_outcome(&outcome),
            Error::NoSession(problem) => Self::new(NOT_FOUND, problem.to_string()),
            error => Self::new(INTERNAL_ERROR, agentline_core::error_chain(&error)),
        }
    }
}
