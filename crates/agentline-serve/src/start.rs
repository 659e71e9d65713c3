//! Checks the request for a run before it is passed on: its fields, its keys, its paths and the policy of its token.

use crate::{
    http_error::ApiError,
    messages::{SessionAccess, StartRun, TokenPolicy},
    roots::Roots,
};
use agentline::{AgentRegistry, PermissionMode, Problem};
use agentline_core::{agents::split_version, config};
use serde_json::{Map, Value};

/// The configuration keys that every token may set. All others run commands, read or write files of their own choice,
/// or pass secrets; a policy can add them one by one.
const KEYS: &[&str] = &[
    "agent",
    "allow",
    "ask",
    "attachments",
    "deadline",
    "deny",
    "diffs",
    "effort",
    "emit_thoughts",
    "extract_json",
    "fallback_models",
    "idle_timeout",
    "include_directories",
    "max_cost",
    "max_output_tokens",
    "max_rounds",
    "max_tokens",
    "max_tool_calls",
    "max_turns",
    "model",
    "model_validation",
    "name",
    "output_schema",
    "permission_mode",
    "prompt",
    "prompt_file",
    "quiet_period_ms",
    "repair_turns",
    "resume",
    "retries",
    "retry_after_changes",
    "retry_patience",
    "sandbox",
    "session_id",
    "startup_timeout",
    "surface",
    "system_mode",
    "system_prompt",
    "timeout",
    "tool_timeout",
    "trust",
    "working_dir",
];
/// The keys that can loosen the permission mode. A policy that limits the modes forbids them.
const LOOSENING: &[&str] = &["allow", "mode_id", "sandbox", "trust"];
/// The fields of `run` that need a host which answers calls, or that have a fixed value here.
const HOST_FIELDS: &[&str] = &[
    "run",
    "events",
    "tools",
    "tool_server",
    "check",
    "lines",
    "merge_events",
    "ignore_unknown",
    "report_launch",
    "request",
];
/// The default time limit for the answer to a permission request in milliseconds.
const ANSWER_TIME_MS: u64 = 300_000;

/// What limits a request.
pub(crate) struct StartRules<'a> {
    pub(crate) roots: &'a Roots,
    pub(crate) policy: &'a TokenPolicy,
    pub(crate) agents: &'a AgentRegistry,
}

impl StartRules<'_> {
    /// Reads a request and makes it safe to pass on.
    pub(crate) fn read(&self, body: Value) -> Result<StartRun, ApiError> {
        let Value::Object(mut body) = body else {
            return Err(ApiError::bad_request("the body must be a JSON object"));
        };
        if self.policy.read_only {
            return Err(ApiError::forbidden("this token may only read"));
        }
        refuse_host_fields(&body)?;
        for (field, value) in [
            ("ask_permission", Value::from(true)),
            ("diffs", true.into()),
            ("answer_timeout_ms", ANSWER_TIME_MS.into()),
            ("merge_events", false.into()),
        ] {
            body.entry(field).or_insert(value);
        }
        let mut start: StartRun = serde_json::from_value(Value::Object(body))
            .map_err(|error| ApiError::bad_request(format!("invalid request: {error}")))?;
        start.params.keys = canonical(std::mem::take(&mut start.params.keys))?;
        self.check_keys(&start.params.keys)?;
        self.check_paths(&mut start)?;
        if start.params.keys.contains_key("resume") && self.policy.sessions != SessionAccess::All {
            return Err(ApiError::forbidden("this token may not resume saved sessions"));
        }
        self.apply_policy(&mut start.params.keys)?;
        Ok(start)
    }

    fn check_keys(&self, keys: &Map<String, Value>) -> Result<(), ApiError> {
        let allowed = |key: &str| KEYS.contains(&key) || self.policy.keys.iter().any(|extra| extra == key);
        // The host reports keys that do not exist, with a suggestion.
        let refused = keys.keys().find(|key| config::find(key).is_some() && !allowed(key));
        if let Some(key) = refused {
            let error = ApiError::forbidden(format!("`{key}` cannot be set over HTTP with this token"));
            return Err(
                error.hint("set it in the configuration of the server, or in `keys` of the token's policy")
            );
        }
        if keys.get("trust").and_then(Value::as_str) == Some("full")
            && !self.policy.keys.iter().any(|extra| extra == "trust")
        {
            return Err(ApiError::forbidden("`trust` cannot be `full` over HTTP with this token"));
        }
        Ok(())
    }

    /// Replaces all paths with resolved ones in the served directories.
    fn check_paths(&self, start: &mut StartRun) -> Result<(), ApiError> {
        let params = &mut start.params;
        if !params.keys.contains_key("working_dir") && !params.temporary_workspace {
            params.keys.insert("working_dir".into(), ".".into());
        }
        if let Some(dir) = params.keys.get_mut("working_dir") {
            self.resolve("working_dir", dir)?;
        }
        if let Some(file) = params.keys.get_mut("prompt_file") {
            self.resolve("prompt_file", file)?;
        }
        for key in ["include_directories", "attachments"] {
            match params.keys.get_mut(key) {
                Some(Value::Array(list)) => {
                    // An attachment that is an object has its content in the request.
                    list.iter_mut()
                        .filter(|one| !one.is_object())
                        .try_for_each(|one| self.resolve(key, one))?;
                }
                Some(one) => self.resolve(key, one)?,
                None => {}
            }
        }
        // Another spelling of the field is a key.
        let schemas = [params.output_schema.as_mut(), params.keys.get_mut("output_schema")];
        for schema in schemas.into_iter().flatten().filter(|schema| schema.is_string()) {
            self.resolve("output_schema", schema)?;
        }
        Ok(())
    }

    fn resolve(&self, key: &str, path: &mut Value) -> Result<(), ApiError> {
        let Some(text) = path.as_str() else {
            return Err(ApiError::usage(key, "must be a path", "write a path as a string"));
        };
        let resolved = self.roots.resolve(key, text)?;
        *path = resolved.to_string_lossy().into_owned().into();
        Ok(())
    }

    /// Refuses what the policy of the token forbids, and sets what it limits.
    fn apply_policy(&self, keys: &mut Map<String, Value>) -> Result<(), ApiError> {
        if let Some(agents) = &self.policy.agents {
            let requested = keys.get("agent").and_then(Value::as_str).or(agents.first().map(String::as_str));
            let requested = requested.unwrap_or_default().to_owned();
            let agent = self.agents.find(&requested).map_err(|problem| ApiError::problems(&[problem]))?;
            let (id, version) = (agent.info().id, split_version(&requested).1);
            if !agents.iter().any(|allowed| self.allows(allowed, id, version)) {
                let error = ApiError::forbidden(format!("this token may not use `{requested}`"));
                return Err(error.hint(format!("it may use {}", agents.join(", "))));
            }
            keys.insert("agent".into(), requested.into());
        }
        if let Some(modes) = &self.policy.permission_modes {
            if let Some(key) = LOOSENING.iter().find(|key| keys.contains_key(**key)) {
                return Err(ApiError::forbidden(format!("this token may not set `{key}`")));
            }
            let default = modes.first().cloned().unwrap_or_else(|| "plan".to_owned());
            let mode = keys.entry("permission_mode").or_insert_with(|| default.into());
            let mode = mode.as_str().and_then(PermissionMode::parse);
            if !modes.iter().any(|allowed| PermissionMode::parse(allowed) == mode) || mode.is_none() {
                return Err(ApiError::forbidden("this token may not use this permission mode"));
            }
        }
        if let Some(limit) = self.policy.max_cost_usd {
            let requested = keys.entry("max_cost").or_insert_with(|| limit.into());
            if !requested.as_f64().is_some_and(|cost| cost <= limit) {
                return Err(ApiError::forbidden(format!("`max_cost` of this token is at most {limit}")));
            }
        }
        Ok(())
    }

    /// Returns whether an agent of a policy is this one. Without a version, it stands for all versions of the agent.
    fn allows(&self, allowed: &str, id: &str, version: Option<&str>) -> bool {
        let allowed_version = split_version(allowed).1;
        self.agents.find(allowed).is_ok_and(|agent| agent.info().id == id)
            && (allowed_version.is_none() || allowed_version == version)
    }
}

/// Refuses the fields that only a host can use.
fn refuse_host_fields(body: &Map<String, Value>) -> Result<(), ApiError> {
    let problems: Vec<Problem> = HOST_FIELDS
        .iter()
        .filter(|field| body.contains_key(**field))
        .map(|field| Problem::new(*field, "is not accepted over HTTP").hint("omit it"))
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(ApiError::problems(&problems)) }
}

/// Gives each key its canonical name, so that an alias cannot pass a check.
fn canonical(keys: Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    let mut named = Map::new();
    for (key, value) in keys {
        let name = config::find(&key).map_or(key, |known| known.name.to_owned());
        if named.insert(name.clone(), value).is_some() {
            return Err(ApiError::usage(&name, "is given twice", "use one name of the key"));
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OUTSIDE: &str = "outside";

    fn read(policy: &TokenPolicy, body: Value) -> Result<StartRun, ApiError> {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("a")).unwrap();
        std::fs::create_dir(dir.path().join(OUTSIDE)).unwrap();
        std::fs::write(dir.path().join(OUTSIDE).join("file"), "{}").unwrap();
        let roots = Roots::new(&[root]).unwrap();
        // A path outside of the root that exists.
        let body = body.to_string().replace("/OUTSIDE", &dir.path().join(OUTSIDE).to_string_lossy());
        let body = serde_json::from_str(&body).unwrap();
        StartRules { roots: &roots, policy, agents: &AgentRegistry::default() }.read(body)
    }

    #[test]
    fn keys_that_run_commands_or_choose_files_are_refused_under_every_name() {
        let policy = TokenPolicy::default();
        for key in
            ["mcp_servers", "mcpServers", "env", "until", "record", "agent_bin", "agentBin", "cache_path"]
        {
            assert!(read(&policy, json!({"prompt": "p", (key): []})).is_err(), "{key}");
        }
        for body in [
            json!({"prompt": "p", "working_dir": "/"}),
            json!({"prompt": "p", "workingDir": ".."}),
            json!({"prompt": "p", "working_dir": ["a"]}),
            json!({"prompt": "p", "working_dir": "a", "workingDir": "/"}),
            json!({"prompt": "p", "attachments": ["/OUTSIDE/file"]}),
            json!({"prompt": "p", "include_directories": "/OUTSIDE"}),
            json!({"prompt": "p", "output_schema": "/OUTSIDE/file"}),
            json!({"prompt": "p", "outputSchema": "/OUTSIDE/file"}),
            json!({"prompt": "p", "output-schema": "/OUTSIDE/file"}),
            json!({"prompt": "p", "promptFile": "/OUTSIDE/file"}),
            json!({"prompt": "p", "includeDirectories": ["/OUTSIDE"]}),
            json!({"prompt": "p", "resume": "latest"}),
            json!({"prompt": "p", "prompt_file": "../x"}),
            json!({"prompt": "p", "trust": "full"}),
            json!({"prompt": "p", "request": {}}),
            json!({"prompt": "p", "tools": []}),
            json!([]),
        ] {
            assert!(read(&policy, body.clone()).is_err(), "{body}");
        }
        let start = read(&policy, json!({"prompt": "p", "workingDir": "a"})).unwrap();
        assert!(start.params.keys["working_dir"].as_str().unwrap().ends_with("/a"));
        assert!(start.params.ask_permission);
    }

    #[test]
    fn agent_with_a_version_needs_this_version_or_the_agent_in_the_policy() {
        let policy = |agents: &[&str]| TokenPolicy {
            agents: Some(agents.iter().map(|agent| (*agent).to_owned()).collect()),
            ..TokenPolicy::default()
        };
        let used = |agents: &[&str], body: Value| {
            let start = read(&policy(agents), body).ok()?;
            Some(start.params.keys["agent"].as_str().unwrap().to_owned())
        };
        let of = |agent: &str| json!({"prompt": "p", "agent": agent});
        for (agents, body, expected) in [
            (&["gemini"][..], of("gemini"), Some("gemini")),
            (&["gemini"], of("gemini@0.24.0"), Some("gemini@0.24.0")),
            (&["gemini"], of("claude@1.0.0"), None),
            (&["gemini@0.24.0"], of("gemini@0.24.0"), Some("gemini@0.24.0")),
            (&["gemini@0.24.0"], of("gemini@0.25.0"), None),
            (&["gemini@0.24.0"], of("gemini@0.24.0 "), None),
            (&["gemini@0.24.0"], of("gemini"), None),
            (&["gemini@0.24.0", "codex"], json!({"prompt": "p"}), Some("gemini@0.24.0")),
            (&["gemini"], of("@gemini"), None),
            (&[], of("gemini"), None),
        ] {
            assert_eq!(used(agents, body.clone()).as_deref(), expected, "{agents:?} {body}");
        }
    }

    #[test]
    fn policy_limits_agents_modes_and_cost() {
        let policy = TokenPolicy {
            agents: Some(vec!["gemini".into()]),
            permission_modes: Some(vec!["default".into(), "plan".into()]),
            max_cost_usd: Some(0.5),
            ..TokenPolicy::default()
        };
        let start = read(&policy, json!({"prompt": "p"})).unwrap();
        assert_eq!(start.params.keys["permission_mode"], "default");
        assert_eq!(start.params.keys["max_cost"], 0.5);
        for body in [
            json!({"prompt": "p", "agent": "claude"}),
            json!({"prompt": "p", "permission_mode": "yolo"}),
            json!({"prompt": "p", "permissionMode": "bypass"}),
            json!({"prompt": "p", "allow": ["Bash(*)"]}),
            json!({"prompt": "p", "max_cost": 1}),
            json!({"prompt": "p", "max_cost": null}),
        ] {
            assert!(read(&policy, body.clone()).is_err(), "{body}");
        }
        assert!(read(&TokenPolicy { read_only: true, ..policy }, json!({"prompt": "p"})).is_err());
    }
}
