//! What the audit log gets of the messages of an ACP client.

use agentline_core::rpc::{self, RpcMessage};
use serde::Deserialize;
use serde_json::{Value, json};

/// The methods that are recorded, each with its session only.
const METHODS: &[&str] = &[
    "session/prompt",
    "session/cancel",
    "session/close",
    "session/set_mode",
    "session/set_config_option",
    "session/set_model",
];
/// How many notifications and answers of the clients of one token are recorded per minute. The number of requests is
/// limited elsewhere.
pub(crate) const MOST_PER_MINUTE: u32 = 120;
/// The longest text of a client in an entry, in characters.
const LONGEST: usize = 128;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SessionParams {
    session_id: String,
}

/// The result of `session/request_permission`.
#[derive(Deserialize)]
struct PermissionResult {
    outcome: PermissionOutcome,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PermissionOutcome {
    outcome: String,
    #[serde(default)]
    option_id: Option<String>,
}

/// Returns the action and the details of a message that is recorded. Texts of prompts are not.
pub(crate) fn entry(agent: &str, message: &str) -> Option<(&'static str, Value)> {
    match rpc::parse(message).ok()? {
        RpcMessage::Request { method, params, .. } | RpcMessage::Notification { method, params } => {
            let method = METHODS.iter().find(|known| **known == method)?;
            let params: SessionParams = serde_json::from_str(params.get()).unwrap_or_default();
            Some((
                "acp_message",
                json!({"agent": agent, "method": method, "session": short(&params.session_id)}),
            ))
        }
        // No other result of a client has this form.
        RpcMessage::Response { id, result } => {
            let PermissionResult { outcome } = serde_json::from_str(result.ok()?.get()).ok()?;
            let decision = short(&outcome.option_id.unwrap_or(outcome.outcome));
            let about = json!({"agent": agent, "permission": short(id.get()), "decision": decision});
            Some(("acp_permission", about))
        }
    }
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_cancels_and_answers_are_recorded_without_texts() {
        let about = |message: Value| entry("a", &message.to_string());
        let prompt = json!({"sessionId": "s", "prompt": [{"type": "text", "text": "secret"}]});
        let prompt = about(json!({"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": prompt}));
        let expected = json!({"agent": "a", "method": "session/prompt", "session": "s"});
        assert_eq!(prompt, Some(("acp_message", expected)));
        let long = json!({"sessionId": "s".repeat(10_000)});
        let cancel = about(json!({"jsonrpc": "2.0", "method": "session/cancel", "params": long}));
        assert_eq!(cancel.unwrap().1["session"].as_str().unwrap().len(), LONGEST);
        for (outcome, decision) in [
            (json!({"outcome": "selected", "optionId": "allow"}), "allow"),
            (json!({"outcome": "cancelled"}), "cancelled"),
        ] {
            let answer = about(json!({"jsonrpc": "2.0", "id": "p", "result": {"outcome": outcome}}));
            let expected = json!({"agent": "a", "permission": "\"p\"", "decision": decision});
            assert_eq!(answer, Some(("acp_permission", expected)));
        }
        for other in [
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}),
            json!({"jsonrpc": "2.0", "id": 1, "result": {"content": "text of a file"}}),
            json!({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "secret"}}),
        ] {
            assert_eq!(about(other.clone()), None, "{other}");
        }
    }
}
