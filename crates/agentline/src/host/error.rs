//! The errors that a host receives.

use agentline_core::{Problem, error_chain};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The error of a failed request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct RpcError {
    /// The JSON-RPC error code.
    pub code: i64,
    /// One sentence about the error.
    pub message: String,
    /// Details, such as `problems` with their keys and hints, or the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// The line is not valid JSON.
    pub(super) const PARSE: i64 = -32700;
    /// The message is not a valid request.
    pub(super) const INVALID: i64 = -32600;
    /// The method does not exist.
    pub(super) const METHOD: i64 = -32601;
    /// The parameters are invalid.
    pub(super) const PARAMS: i64 = -32602;
    /// The request was cancelled.
    pub(super) const CANCELLED: i64 = -32800;
    /// An internal error.
    pub(super) const INTERNAL: i64 = -32603;

    /// Creates an error from its code and message.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Creates an error for invalid parameters, with the key and hint of each problem.
    pub(super) fn usage(problems: &[Problem]) -> Self {
        let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let data = serde_json::json!({"problems": problems});
        Self { code: Self::PARAMS, message: messages.join("\n"), data: Some(data) }
    }
}

impl RpcError {
    /// Changes every hint, in the message and in the problems.
    pub(super) fn with_hints(mut self, change: impl Fn(&str) -> String) -> Self {
        let Some(data) = &mut self.data else { return self };
        let problems = data.get_mut("problems").and_then(Value::as_array_mut);
        for hint in problems.into_iter().flatten().filter_map(|problem| problem.get_mut("hint")) {
            if let Some(text) = hint.as_str() {
                let changed = change(text);
                self.message = self.message.replace(text, &changed);
                *hint = changed.into();
            }
        }
        self
    }
}

impl From<crate::Error> for RpcError {
    fn from(error: crate::Error) -> Self {
        match error {
            crate::Error::Usage(problems) => Self::usage(&problems.0),
            crate::Error::NotOpened(outcome) => Self {
                code: Self::INTERNAL,
                message: outcome.error.as_ref().map_or_else(String::new, |error| error.message.clone()),
                data: Some(serde_json::json!({"outcome": outcome})),
            },
            crate::Error::NoSession(problem) => Self {
                code: Self::INTERNAL,
                message: problem.to_string(),
                data: Some(serde_json::json!({"kind": "no_session", "problems": [problem]})),
            },
            other => Self::new(Self::INTERNAL, error_chain(&other)),
        }
    }
}
