//! OpenCode's errors as failures: by their name, the HTTP status of the model's service, or their text.

use super::session_message::ErrorWire;
use crate::{Failure, FailureKind};

/// The number of retries of one request after which a run ends. OpenCode waits 2, 4, 8, 16 and 32 seconds between them,
/// and has no setting for that.
pub(super) const MAX_RETRIES: u32 = 2;

/// The errors that OpenCode names itself.
const NAMES: &[(&str, FailureKind)] = &[
    ("ContextOverflowError", FailureKind::ContextOverflow),
    ("ProviderAuthError", FailureKind::NotAuthenticated),
    ("ContentFilterError", FailureKind::Blocked),
    ("StructuredOutputError", FailureKind::InvalidOutput),
    ("MessageAbortedError", FailureKind::Cancelled),
];

/// Words in the messages of errors, in lower case. The first row that matches decides.
const WORDS: &[(FailureKind, &[&str])] = &[
    (
        FailureKind::ContextOverflow,
        &["prompt is too long", "context length", "context_length", "context window"],
    ),
    (FailureKind::NotAuthenticated, &["api-key", "api key", "unauthorized", "authentication"]),
    (
        FailureKind::UnknownModel,
        &[
            "model not found",
            "model_not_found",
            "no such model",
            "unknown model",
            "does not exist",
            "internal error: model:",
        ],
    ),
    (
        FailureKind::RateLimited,
        &[
            "rate limit",
            "too many requests",
            "overloaded",
            "resource exhausted",
            "service unavailable",
            "usage limit",
        ],
    ),
    (
        FailureKind::Network,
        &[
            "fetch failed",
            "failed to fetch",
            "network error",
            "unable to connect",
            "cannot connect",
            "connection",
            "socket",
            "econnrefused",
            "econnreset",
            "etimedout",
            "enotfound",
            "terminated",
        ],
    ),
];

/// Translates an error of a session or a message.
pub(super) fn failure(error: &ErrorWire<'_>) -> Failure {
    let message = if error.data.message.is_empty() { &*error.name } else { &*error.data.message };
    let status = error.data.status.0.and_then(|status| u16::try_from(status).ok());
    let named = NAMES.iter().find(|(name, _)| *name == &*error.name).map(|(_, kind)| *kind);
    let failure = match (named, status) {
        (Some(kind), _) => Failure { status, ..Failure::new(kind, message) },
        // A rejected request may be too long, which only its text says.
        (None, Some(400 | 413)) if kind_of(message) == Some(FailureKind::ContextOverflow) => {
            Failure { status, ..Failure::new(FailureKind::ContextOverflow, message) }
        }
        (None, Some(status)) => Failure::http(status, message),
        (None, None) => of_text(message),
    };
    failure.agent_type(&*error.name)
}

/// Translates a message without a name or a status.
pub(super) fn of_text(message: &str) -> Failure {
    Failure::new(kind_of(message).unwrap_or(FailureKind::ApiError), message)
}

/// Returns the kind of failure that a message describes, if it is known.
pub(super) fn kind_of(message: &str) -> Option<FailureKind> {
    let lower = message.to_lowercase();
    WORDS.iter().find(|(_, words)| words.iter().any(|word| lower.contains(word))).map(|(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_known_by_name_status_or_text() {
        for (error, expected) in [
            (
                r#"{"name":"APIError","data":{"message":"no","statusCode":401}}"#,
                FailureKind::NotAuthenticated,
            ),
            (
                r#"{"name":"APIError","data":{"message":"slow down","statusCode":429}}"#,
                FailureKind::RateLimited,
            ),
            (r#"{"name":"APIError","data":{"message":"busy","statusCode":529}}"#, FailureKind::RateLimited),
            (r#"{"name":"APIError","data":{"message":"oops","statusCode":500}}"#, FailureKind::ApiError),
            (
                r#"{"name":"APIError","data":{"message":"no such","statusCode":404}}"#,
                FailureKind::UnknownModel,
            ),
            (
                r#"{"name":"APIError","data":{"message":"prompt is too long","statusCode":400}}"#,
                FailureKind::ContextOverflow,
            ),
            (r#"{"name":"APIError","data":{"message":"bad","statusCode":400}}"#, FailureKind::ApiError),
            (
                r#"{"name":"ContextOverflowError","data":{"message":"too much"}}"#,
                FailureKind::ContextOverflow,
            ),
            (r#"{"name":"ContentFilterError","data":{"message":"blocked"}}"#, FailureKind::Blocked),
            (
                r#"{"name":"UnknownError","data":{"message":"The socket connection was closed unexpectedly"}}"#,
                FailureKind::Network,
            ),
            (
                r#"{"name":"UnknownError","data":{"message":"Model not found: a/b."}}"#,
                FailureKind::UnknownModel,
            ),
            (r#"{"name":"MessageAbortedError","data":{"message":"Aborted"}}"#, FailureKind::Cancelled),
            (r#"{"name":"Mystery"}"#, FailureKind::ApiError),
        ] {
            let failure = failure(&serde_json::from_str::<ErrorWire<'_>>(error).unwrap());
            assert_eq!(failure.kind, expected, "{error}");
            assert!(!failure.message.is_empty() && failure.agent_type.is_some(), "{error}");
        }
    }
}
