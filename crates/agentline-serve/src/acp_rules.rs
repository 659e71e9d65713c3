//! What a client may send over `/acp`: the messages that could reach beyond the policy of its token are refused.

use crate::{
    messages::{SessionAccess, TokenPolicy},
    roots::Roots,
};
use agentline_core::rpc::{self, RpcMessage};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json, value::RawValue};

/// The code for invalid parameters.
const INVALID_PARAMS: i64 = -32602;
/// The code for an invalid request.
const INVALID_REQUEST: i64 = -32600;
/// The methods that every token may use. The workspace of a session is checked when it is opened.
const METHODS: &[&str] =
    &["initialize", "session/prompt", "session/cancel", "session/close", "$/cancel_request"];
/// The methods that can change the permission mode.
const MODES: &[&str] = &["session/set_mode", "session/set_config_option", "session/set_model"];
/// The methods that open a session.
const OPENING: &[&str] = &["session/new", "session/load", "session/resume", "session/fork"];

/// The rules for the messages of a client.
pub(crate) struct AcpRules<'a> {
    pub(crate) roots: &'a Roots,
    pub(crate) policy: &'a TokenPolicy,
}

/// What becomes of a message.
#[derive(Debug, PartialEq)]
pub(crate) enum AcpCheck {
    /// It is passed on.
    Pass,
    /// It is passed on, and opens a session.
    Opens {
        /// The method.
        method: String,
        /// The directory that it names.
        directory: String,
    },
    /// It is not passed on, and the client gets this response, if it is a request.
    Refused(Option<String>),
}

/// The parameters with which a session could run commands or use other directories.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpeningParams {
    #[serde(default)]
    cwd: String,
    #[serde(default)]
    mcp_servers: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    additional_directories: Option<Vec<String>>,
    #[serde(default, rename = "_meta")]
    meta: Value,
}

impl AcpRules<'_> {
    /// Checks a message. What is not one gets its error from the agent's side.
    pub(crate) fn check(&self, text: &str) -> AcpCheck {
        let (id, method, params) = match rpc::parse(text) {
            Ok(RpcMessage::Request { id, method, params }) => (Some(id), method, params),
            Ok(RpcMessage::Notification { method, params }) => (None, method, params),
            _ => return AcpCheck::Pass,
        };
        if id.is_none() && (OPENING.contains(&&*method) || method == "session/prompt") {
            // A request without an id would pass the proxy as a notification, without its checks.
            return AcpCheck::Refused(None);
        }
        match self.message(&method, params) {
            Ok(Some(directory)) => AcpCheck::Opens { method: method.into_owned(), directory },
            Ok(None) => AcpCheck::Pass,
            Err(message) => AcpCheck::Refused(id.map(|id| refusal(id, INVALID_PARAMS, &message))),
        }
    }

    fn message(&self, method: &str, params: &RawValue) -> Result<Option<String>, String> {
        if OPENING.contains(&method) {
            if method != "session/new" && self.policy.sessions == SessionAccess::None {
                return Err(format!("this token may not use `{method}`"));
            }
            return self.opening(params).map(Some);
        }
        let chooses_mode = self.policy.permission_modes.is_none();
        let is_allowed = METHODS.contains(&method)
            || chooses_mode && (MODES.contains(&method) || self.policy.sessions == SessionAccess::All);
        if is_allowed { Ok(None) } else { Err(format!("this token may not use `{method}`")) }
    }

    fn opening(&self, params: &RawValue) -> Result<String, String> {
        let params: OpeningParams =
            serde_json::from_str(params.get()).map_err(|error| format!("invalid parameters: {error}"))?;
        let has_servers = params.mcp_servers.is_some_and(|servers| !servers.is_empty());
        let has_meta = !params.meta.is_null() && params.meta != json!({});
        if (has_servers || has_meta) && !self.policy.keys.iter().any(|key| key == "mcp_servers") {
            return Err("`mcpServers` and `_meta` need `mcp_servers` in `keys` of the token's policy".into());
        }
        for directory in params.additional_directories.iter().flatten() {
            let resolved = self.roots.resolve("additionalDirectories", directory);
            resolved.map_err(|error| error.message().to_owned())?;
        }
        Ok(params.cwd)
    }
}

/// Returns the response to a frame that is not text.
pub(crate) fn refused_binary() -> String {
    refusal(RawValue::NULL, INVALID_REQUEST, "a message must be a text frame")
}

fn refusal(id: &RawValue, code: i64, message: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(policy: &TokenPolicy, method: &str, params: Value) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::new(&[dir.path().to_owned()]).unwrap();
        let text = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        !matches!(AcpRules { roots: &roots, policy }.check(&text), AcpCheck::Refused(_))
    }

    #[test]
    fn messages_that_reach_beyond_the_policy_are_refused() {
        let owner = TokenPolicy { sessions: SessionAccess::All, ..TokenPolicy::default() };
        let server = json!({"cwd": "/", "mcpServers": [{"name": "a", "command": "b"}]});
        for params in [
            server.clone(),
            json!({"cwd": "/", "_meta": {"options": 1}}),
            json!({"cwd": "/", "additionalDirectories": ["/etc"]}),
            json!({"cwd": 1}),
        ] {
            assert!(!passes(&owner, "session/new", params.clone()), "{params}");
        }
        assert!(passes(&owner, "session/new", json!({"cwd": "/", "mcpServers": [], "_meta": null})));
        let with_servers = TokenPolicy { keys: vec!["mcp_servers".into()], ..owner.clone() };
        assert!(passes(&with_servers, "session/new", server));
        let modes = TokenPolicy { permission_modes: Some(vec!["plan".into()]), ..owner.clone() };
        let roots = TokenPolicy::default();
        for (method, by_owner, by_modes, by_roots) in [
            ("session/prompt", true, true, true),
            ("session/set_mode", true, false, true),
            ("session/set_config_option", true, false, true),
            ("session/list", true, false, false),
            ("unknown", true, false, false),
        ] {
            let all = [&owner, &modes, &roots].map(|policy| passes(policy, method, json!({})));
            assert_eq!(all, [by_owner, by_modes, by_roots], "{method}");
        }
    }
}
