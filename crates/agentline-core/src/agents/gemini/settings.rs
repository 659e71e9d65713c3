//! The settings of a run: the user's own, overridden where a run depends on them.

use super::user;
use crate::{FileSystem, McpServer, PermissionMode, Plan, Problem, RunRequest, Surface};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Settings with paths in which the CLI would expand `~` to the overlay home.
const HOME_PATHS: &[&str] = &["/context/includeDirectories", "/policyPaths", "/adminPolicyPaths"];

/// The sign-in of a run, as far as the request and the environment decide it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestedSignIn {
    /// Whether the request contains an API key.
    pub(super) has_key: bool,
    /// The method of an available sign-in that the CLI would not detect.
    pub(super) missed: Option<&'static str>,
    /// Whether Vertex AI is requested.
    pub(super) vertex: bool,
}

/// The user's settings.
pub(super) enum UserSettings {
    /// There is no file.
    None,
    /// A valid JSON object.
    Read(Value),
    /// Invalid content. It is passed to the CLI unchanged, which then reports the error.
    Broken(Vec<u8>),
}

impl UserSettings {
    /// Reads the settings as the CLI does.
    pub(super) fn read(path: &Path, fs: &dyn FileSystem) -> Self {
        let Some(bytes) = fs.read(path) else { return Self::None };
        match user::parse(&String::from_utf8_lossy(&bytes)) {
            Ok(value) if value.is_object() => Self::Read(value),
            _ => Self::Broken(bytes),
        }
    }

    /// Returns the value at a JSON pointer.
    pub(super) fn get(&self, pointer: &str) -> Option<&Value> {
        match self {
            Self::Read(value) => value.pointer(pointer),
            _ => None,
        }
    }
}

/// The settings of a run.
pub(super) struct ComposedSettings {
    /// The text of the file.
    pub(super) text: Vec<u8>,
    /// The settings in it; null if the user's file is broken, which the CLI reports.
    pub(super) value: Value,
}

/// Returns the run's settings. `home` is the user's home, used to expand `~`. `bounds` are settings
/// that restrict an untrusted workspace.
pub(super) fn compose(
    users: &UserSettings,
    plan: &Plan,
    sign_in: RequestedSignIn,
    servers: Map<String, Value>,
    home: &Path,
    bounds: Value,
) -> ComposedSettings {
    let mut settings = match users {
        UserSettings::Broken(bytes) => {
            return ComposedSettings { text: bytes.clone(), value: Value::Null };
        }
        UserSettings::None => json!({}),
        UserSettings::Read(value) => value.clone(),
    };
    for pointer in HOME_PATHS {
        for path in settings.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(text) = path.as_str()
                && let Some(expanded) = expand_home(text, home)
            {
                *path = expanded.into();
            }
        }
    }
    merge(&mut settings, run_settings(users, plan, sign_in));
    merge(&mut settings, bounds);
    if !servers.is_empty() {
        // A list of allowed servers would hide those of this run.
        if let Some(allowed) = settings.pointer_mut("/mcp/allowed").and_then(Value::as_array_mut) {
            allowed.extend(servers.keys().map(|name| json!(name)));
        }
        merge(&mut settings, json!({ "mcpServers": {} }));
        if let Some(all) = settings.get_mut("mcpServers").and_then(Value::as_object_mut) {
            // A server of the run replaces one of the same name completely.
            all.extend(servers);
        }
    }
    // A value can always be written.
    let mut text = serde_json::to_vec_pretty(&settings).unwrap_or_default();
    text.push(b'\n');
    ComposedSettings { text, value: settings }
}

/// Returns the MCP servers of a request: those of its settings file, then those given by name. They are trusted by
/// default, because in headless runs the CLI only offers tools of trusted servers. In plan mode it offers none of them,
/// and in the mode `deny` none may be used without a rule.
pub(super) fn servers(plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<Map<String, Value>, Problem> {
    let mut all = Map::new();
    if let Some(path) = &plan.request.mcp_settings_path {
        let path = cwd.join(path);
        let wrong = |message: &str| {
            Problem::new("mcp_settings_path", format!("`{}` {message}", path.display()))
                .hint("pass a settings file of Gemini CLI with an `mcpServers` object")
        };
        let text = fs.text(&path).ok_or_else(|| wrong("cannot be read"))?;
        let value = user::parse(&text).map_err(|e| wrong(&format!("is not JSON: {e}")))?;
        let found = value.get("mcpServers").and_then(Value::as_object);
        for (name, server) in found.ok_or_else(|| wrong("has no `mcpServers` object"))? {
            all.insert(name.clone(), server.clone());
        }
    }
    for (name, server) in &plan.request.mcp_servers {
        let server = match server {
            McpServer::Command { command, args, env } => {
                json!({"command": command, "args": args, "env": env})
            }
            McpServer::Url { url, headers } => json!({"httpUrl": url, "headers": headers}),
        };
        all.insert(name.clone(), server);
    }
    for server in all.values_mut().filter_map(Value::as_object_mut) {
        if plan.request.permission_mode == PermissionMode::Deny {
            server.insert("trust".into(), json!(false));
        }
        server.entry("trust").or_insert(json!(true));
    }
    Ok(all)
}

/// Expands a leading `~` in a path. Returns `None` if there is none.
pub(super) fn expand_home(path: &str, home: &Path) -> Option<String> {
    let rest = path.strip_prefix('~')?;
    match rest.strip_prefix('/') {
        Some(rest) => Some(home.join(rest).to_string_lossy().into_owned()),
        None => rest.is_empty().then(|| home.to_string_lossy().into_owned()),
    }
}

/// Returns the settings that a run depends on.
fn run_settings(users: &UserSettings, plan: &Plan, sign_in: RequestedSignIn) -> Value {
    let request = &plan.request;
    let mut settings = json!({
        "general": {
            // Ten attempts would mean four minutes without output.
            "maxAttempts": 2,
            "enableAutoUpdate": false,
            "enableAutoUpdateNotification": false,
            // The cleanup mistakes a resumed session for a broken one and deletes it completely.
            "sessionRetention": {"enabled": false},
            // In a headless run, a model that enters and leaves plan mode may do everything afterwards. In bypass mode
            // it may anyway.
            "plan": {"enabled": may_plan(plan)},
        },
        // Otherwise the output of commands is not reported on some surfaces.
        "tools": {"shell": {"enableInteractiveShell": false}},
    });
    if request.limits.max_turns.is_some() {
        // The CLI stops before it requests the turn after this one.
        merge(&mut settings, json!({"model": {"maxSessionTurns": max_turns(users, request)}}));
    }
    if let Some(most) = request.limits.max_output_tokens {
        // This limits each answer; the total is tracked separately.
        let own = users.get("/modelConfigs/customOverrides").and_then(Value::as_array);
        let mut overrides = own.cloned().unwrap_or_default();
        let config = json!({"generateContentConfig": {"maxOutputTokens": most}});
        overrides.push(json!({"match": {"overrideScope": "core"}, "modelConfig": config}));
        merge(&mut settings, json!({"modelConfigs": {"customOverrides": overrides}}));
    }
    let method = if sign_in.vertex {
        Some("vertex-ai")
    } else if sign_in.has_key {
        Some("gemini-api-key")
    } else {
        sign_in.missed
    };
    if let Some(method) = method {
        merge(&mut settings, json!({"security": {"auth": {"selectedType": method}}}));
    }
    settings
}

/// Returns the turn limit that the CLI gets: that of the request, or a stricter one of the user.
pub(super) fn max_turns(users: &UserSettings, request: &RunRequest) -> Option<u32> {
    // A negative number means no limit.
    let own = users.get("/model/maxSessionTurns").and_then(Value::as_u64);
    let own = own.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
    match (own, request.limits.max_turns) {
        (Some(own), Some(most)) => Some(own.min(most)),
        (own, most) => own.or(most),
    }
}

/// Returns whether the model may enter plan mode. Over ACP, leaving it requires permission, and the mode must be
/// offered to be set.
fn may_plan(plan: &Plan) -> bool {
    let mode = plan.request.permission_mode;
    let by_mode = matches!(mode, PermissionMode::Plan | PermissionMode::Bypass);
    match plan.surface {
        Surface::Acp => by_mode || plan.request.mode_id.as_deref() == Some("plan"),
        _ => by_mode || mode == PermissionMode::Auto,
    }
}

/// Merges one object into another, key by key.
fn merge(under: &mut Value, over: Value) {
    match over {
        Value::Object(over) if under.is_object() => {
            if let Some(under) = under.as_object_mut() {
                for (key, value) in over {
                    merge(under.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        over => *under = over,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, RunRequest, memory_fs::MemoryFs};

    fn plan(request: RunRequest) -> Plan {
        Plan::new(request, Surface::StreamJson)
    }

    fn composed(users: &str, request: RunRequest, sign_in: RequestedSignIn) -> Value {
        let fs = MemoryFs::default().file("/u/settings.json", users);
        let users = UserSettings::read(Path::new("/u/settings.json"), &fs);
        let plan = plan(request);
        let servers = servers(&plan, Path::new("/ws"), &fs).unwrap();
        let composed = compose(&users, &plan, sign_in, servers, Path::new("/u"), json!({}));
        assert_eq!(serde_json::from_slice::<Value>(&composed.text).unwrap(), composed.value);
        composed.value
    }

    #[test]
    fn generated_settings_override_user_settings() {
        let users = r#"{ // mine
            "general": {"maxAttempts": 7, "vimMode": true}, /* more */
            "context": {"includeDirectories": ["~/a", "b"]}, "ui": {"theme": "x // not a comment"}}"#;
        let all = composed(users, RunRequest::new("x"), RequestedSignIn::default());
        assert_eq!(all["general"]["maxAttempts"], 2);
        assert_eq!(all["general"]["vimMode"], true);
        assert_eq!(all["general"]["plan"]["enabled"], false);
        assert_eq!(all["ui"]["theme"], "x // not a comment");
        assert_eq!(all["context"]["includeDirectories"], json!(["/u/a", "b"]));
        assert_eq!(all["tools"]["shell"]["enableInteractiveShell"], false);
        assert!(
            all.get("security").is_none() && all.get("mcpServers").is_none() && all.get("model").is_none()
        );
    }

    #[test]
    fn invalid_settings_are_passed_to_the_cli_unchanged() {
        for text in ["{ not json", "[1]", "null", ""] {
            let fs = MemoryFs::default().file("/s", text);
            let users = UserSettings::read(Path::new("/s"), &fs);
            let (plan, home) = (plan(RunRequest::new("x")), Path::new("/u"));
            let composed = compose(&users, &plan, RequestedSignIn::default(), Map::new(), home, json!({}));
            assert_eq!(composed.text, text.as_bytes());
        }
    }

    #[test]
    fn limits_become_settings_unless_the_users_are_stricter() {
        let limits = Limits { max_turns: Some(3), max_output_tokens: Some(77), ..Limits::default() };
        let request = || RunRequest::new("x").limits(limits);
        let all = composed("{}", request(), RequestedSignIn::default());
        assert_eq!(all["model"]["maxSessionTurns"], 3);
        let config = &all["modelConfigs"]["customOverrides"][0]["modelConfig"];
        assert_eq!(config["generateContentConfig"]["maxOutputTokens"], 77);
        let turns = |users| {
            composed(users, request(), RequestedSignIn::default())["model"]["maxSessionTurns"].clone()
        };
        assert_eq!(turns(r#"{"model":{"maxSessionTurns":2}}"#), 2);
        assert_eq!(turns(r#"{"model":{"maxSessionTurns":-1}}"#), 3);
        assert_eq!(turns(r#"{"model":{"maxSessionTurns":9}}"#), 3);
    }

    #[test]
    fn auth_method_is_set_only_if_needed() {
        let chosen = |users: &str, sign_in| {
            composed(users, RunRequest::new("x"), sign_in)["security"]["auth"]["selectedType"].clone()
        };
        let oauth = r#"{"security":{"auth":{"selectedType":"oauth-personal"}}}"#;
        let missed = RequestedSignIn { missed: Some("gemini-api-key"), ..RequestedSignIn::default() };
        assert_eq!(chosen("{}", missed), "gemini-api-key");
        assert_eq!(chosen(oauth, RequestedSignIn::default()), "oauth-personal");
        assert_eq!(chosen("{}", RequestedSignIn::default()), Value::Null);
        assert_eq!(
            chosen(oauth, RequestedSignIn { has_key: true, ..RequestedSignIn::default() }),
            "gemini-api-key"
        );
        assert_eq!(
            chosen(oauth, RequestedSignIn { vertex: true, ..RequestedSignIn::default() }),
            "vertex-ai"
        );
    }

    #[test]
    fn given_servers_are_trusted_replaced_and_allowed() {
        let users = r#"{"mcpServers":{"a":{"command":"old","cwd":"/x"},"b":{"command":"b"}},"mcp":{"allowed":["b"]}}"#;
        let server = McpServer::Command { command: "new".into(), args: vec!["1".into()], env: [].into() };
        let url = McpServer::Url { url: "http://h/mcp".into(), headers: [("A".into(), "B".into())].into() };
        let request = RunRequest::new("x").mcp_server("a", server).mcp_server("u", url);
        let all = composed(users, request, RequestedSignIn::default());
        assert_eq!(
            all["mcpServers"]["a"],
            json!({"command":"new","args":["1"],"env":{},"trust":true}),
            "the user's server is replaced completely"
        );
        assert_eq!(all["mcpServers"]["b"], json!({"command":"b"}));
        assert_eq!(all["mcpServers"]["u"]["httpUrl"], "http://h/mcp");
        assert_eq!(all["mcp"]["allowed"], json!(["b", "a", "u"]));
    }

    #[test]
    fn servers_are_also_read_from_a_settings_file() {
        let mut request = RunRequest::new("x");
        request.mcp_settings_path = Some("mcp.json".into());
        let fs = MemoryFs::default().file("/ws/mcp.json", r#"{"mcpServers":{"f":{"url":"http://x"}}}"#);
        let found = servers(&plan(request.clone()), Path::new("/ws"), &fs).unwrap();
        assert_eq!(found["f"], json!({"url":"http://x","trust":true}));
        for text in ["nope", "{}", "{\"mcpServers\":[]}"] {
            let fs = MemoryFs::default().file("/ws/mcp.json", text);
            let problem = servers(&plan(request.clone()), Path::new("/ws"), &fs).unwrap_err();
            assert_eq!(problem.key, "mcp_settings_path");
        }
        assert!(servers(&plan(request), Path::new("/ws"), &MemoryFs::default()).is_err());
    }
}
