//! A permission request and its decision.

use serde::Serialize;
use serde_json::value::RawValue;

/// A permission request and its decision.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PermissionEvent {
    /// The id of the call.
    pub tool_use_id: String,
    /// The canonical name of the tool.
    pub tool: String,
    /// The arguments of the request.
    pub request: Option<Box<RawValue>>,
    /// `allow` or `deny`.
    pub decision: &'static str,
    /// Who decided.
    pub by: String,
    /// The reason for the decision.
    pub reason: Option<String>,
    /// The rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}
