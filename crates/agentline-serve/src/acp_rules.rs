//! What a client may send over `/acp`: the messages that could reach beyond the policy of its token are refused.

use crate::{
    messages::{SessionAccess, TokenPolicy},
    roots::Roots,
};
use agentline_core::rpc::{self, RpcMessage};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json, value::RawValue};
use std::path::{Path, PathBuf};

/// The code for invalid parameters.
const INVALID_PARAMS: i64 = -32602;
/// The code for an invalid request.
const INVALID_REQUEST: i64 = -32600;
/// The code for a request that exceeds a limit.
const LIMITED: i64 = -32000;
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
    /// It is a request with this id, which is passed on.
    Request(String),
    /// It is a request with this id, which is passed on and opens a session.
    Opens(String, OpenedSession),
    /// It is not passed on, and the client gets this response, if it is a request.
    Refused(Option<String>),
}

/// A session that a client opens.
#[derive(Debug, PartialEq)]
pub(crate) struct OpenedSession {
    pub(crate) method: String,
    /// The directory, with links resolved.
    pub(crate) directory: PathBuf,
    /// The id of an earlier session that is continued.
    pub(crate) continued: Option<String>,
}

/// The parameters with which a session could run commands or use other directories.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpeningParams {
    #[serde(default)]
    cwd: String,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    mcp_servers: Vec<IgnoredAny>,
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
        match (self.message(&method, params), id) {
            (Ok(Some(opened)), Some(id)) => AcpCheck::Opens(id.get().to_owned(), opened),
            (Ok(None), Some(id)) => AcpCheck::Request(id.get().to_owned()),
            (Ok(_), None) => AcpCheck::Pass,
            (Err(message), id) => AcpCheck::Refused(id.map(|id| refusal(id.get(), INVALID_PARAMS, &message))),
        }
    }

    fn message(&self, method: &str, params: &RawValue) -> Result<Option<OpenedSession>, String> {
        if OPENING.contains(&method) {
            if method != "session/new" && self.policy.sessions == SessionAccess::None {
                return Err(format!("this token may not use `{method}`"));
            }
            return self.opening(method, params).map(Some);
        }
        let chooses_mode = self.policy.permission_modes.is_none();
        let is_allowed = METHODS.contains(&method)
            || chooses_mode && (MODES.contains(&method) || self.policy.sessions == SessionAccess::All);
        if is_allowed { Ok(None) } else { Err(format!("this token may not use `{method}`")) }
    }

    fn opening(&self, method: &str, params: &RawValue) -> Result<OpenedSession, String> {
        let params: OpeningParams =
            serde_json::from_str(params.get()).map_err(|error| format!("invalid parameters: {error}"))?;
        let has_servers = !params.mcp_servers.is_empty();
        let has_meta = !params.meta.is_null() && params.meta != json!({});
        if (has_servers || has_meta) && !self.policy.keys.iter().any(|key| key == "mcp_servers") {
            return Err("`mcpServers` and `_meta` need `mcp_servers` in `keys` of the token's policy".into());
        }
        for directory in params.additional_directories.iter().flatten() {
            self.directory("additionalDirectories", directory)?;
        }
        let directory = self.directory("cwd", &params.cwd)?;
        let continued = params.session_id.filter(|_| matches!(method, "session/load" | "session/resume"));
        Ok(OpenedSession { method: method.to_owned(), directory, continued })
    }

    /// Returns a directory with its links resolved. The agent has another working directory, so it must be absolute.
    fn directory(&self, key: &str, path: &str) -> Result<PathBuf, String> {
        if !Path::new(path).is_absolute() {
            return Err(format!("`{key}` must be an absolute path"));
        }
        self.roots.resolve(key, path).map_err(|error| error.message().to_owned())
    }
}

/// Returns the response to a frame that is not text.
pub(crate) fn refused_binary() -> String {
    refusal("null", INVALID_REQUEST, "a message must be a text frame")
}

/// Returns the response to a request that exceeds a limit. `id` is JSON.
pub(crate) fn limited(id: &str, message: &str) -> String {
    refusal(id, LIMITED, message)
}

fn refusal(id: &str, code: i64, message: &str) -> String {
    let id: Value = serde_json::from_str(id).unwrap_or_default();
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with a root, and a directory outside of it.
    struct Directories {
        _dir: tempfile::TempDir,
        roots: Roots,
        root: String,
        outside: String,
    }

    fn directories() -> Directories {
        let dir = tempfile::tempdir().unwrap();
        let [root, outside] = ["root", "outside"].map(|name| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            dir.path().join(name)
        });
        let roots = Roots::new(std::slice::from_ref(&root)).unwrap();
        let [root, outside] = [root, outside].map(|path| path.to_string_lossy().into_owned());
        Directories { _dir: dir, roots, root, outside }
    }

    impl Directories {
        fn check(&self, policy: &TokenPolicy, message: &Value) -> AcpCheck {
            AcpRules { roots: &self.roots, policy }.check(&message.to_string())
        }

        fn passes(&self, policy: &TokenPolicy, method: &str, params: &Value) -> bool {
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            !matches!(self.check(policy, &message), AcpCheck::Refused(_))
        }
    }

    #[test]
    fn messages_that_reach_beyond_the_policy_are_refused() {
        let stage = directories();
        let (root, outside) = (&stage.root, &stage.outside);
        let owner = TokenPolicy { sessions: SessionAccess::All, ..TokenPolicy::default() };
        let server = json!({"cwd": root, "mcpServers": [{"name": "a", "command": "b"}]});
        for params in [
            server.clone(),
            json!({"cwd": root, "_meta": {"options": 1}}),
            json!({"cwd": root, "additionalDirectories": [outside]}),
            json!({"cwd": root, "additionalDirectories": [root, "."]}),
            json!({"cwd": outside}),
            json!({"cwd": "."}),
            json!({"cwd": root, "mcpServers": null}),
            json!({"cwd": 1}),
            json!({}),
        ] {
            assert!(!stage.passes(&owner, "session/new", &params), "{params}");
        }
        let good = json!({"cwd": root, "additionalDirectories": [root], "mcpServers": [], "_meta": null});
        assert!(stage.passes(&owner, "session/new", &good));
        let with_servers = TokenPolicy { keys: vec!["mcp_servers".into()], ..owner.clone() };
        assert!(stage.passes(&with_servers, "session/new", &server));
        let modes = TokenPolicy { permission_modes: Some(vec!["plan".into()]), ..owner.clone() };
        let roots = TokenPolicy::default();
        for (method, by_owner, by_modes, by_roots) in [
            ("session/prompt", true, true, true),
            ("session/set_mode", true, false, true),
            ("session/set_config_option", true, false, true),
            ("session/list", true, false, false),
            ("unknown", true, false, false),
        ] {
            let all = [&owner, &modes, &roots].map(|policy| stage.passes(policy, method, &json!({})));
            assert_eq!(all, [by_owner, by_modes, by_roots], "{method}");
        }
    }

    #[test]
    fn opening_and_prompting_need_an_id() {
        let stage = directories();
        let owner = TokenPolicy { sessions: SessionAccess::All, ..TokenPolicy::default() };
        for method in ["session/new", "session/load", "session/resume", "session/fork", "session/prompt"] {
            let message = json!({"jsonrpc": "2.0", "method": method, "params": {"cwd": stage.root}});
            assert_eq!(stage.check(&owner, &message), AcpCheck::Refused(None), "{method}");
        }
        let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {}});
        assert_eq!(stage.check(&owner, &cancel), AcpCheck::Pass);
    }

    #[test]
    fn token_without_sessions_opens_only_new_ones() {
        let stage = directories();
        let none = TokenPolicy { sessions: SessionAccess::None, ..TokenPolicy::default() };
        let params = json!({"cwd": stage.root, "sessionId": "a"});
        for (method, expected) in [
            ("session/new", true),
            ("session/load", false),
            ("session/resume", false),
            ("session/fork", false),
        ] {
            assert_eq!(stage.passes(&none, method, &params), expected, "{method}");
            assert!(stage.passes(&TokenPolicy::default(), method, &params), "{method}");
        }
    }
}
