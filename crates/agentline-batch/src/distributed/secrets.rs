//! Secrets never enter a queue: workers have their own.

use super::DistributedError;
use agentline::{Problem, RunRequest};
use agentline_core::looks_secret;
use serde_json::Value;

/// Checks that a request contains no literal secret.
///
/// # Errors
/// Names the setting that contains one.
pub(super) fn check(request: &RunRequest) -> Result<(), DistributedError> {
    if request.api_key.is_some() {
        return Err(found("api_key", "sign in to the agent on each worker"));
    }
    if let Some(name) = request.env.iter().find(|(name, value)| looks_secret(name) && !value.is_empty()) {
        let name = name.0;
        let hint = format!("set {name} in the environment of each worker, and add it to `pass_env`");
        return Err(found(&format!("env.{name}"), &hint));
    }
    let servers = serde_json::to_value(&request.mcp_servers).unwrap_or_default();
    if let Some(path) = find(&servers, "mcp_servers") {
        return Err(found(&path, "take the secret from the environment of each worker"));
    }
    Ok(())
}

fn found(key: &str, hint: &str) -> DistributedError {
    let message = "contains a secret, which would be stored in the queue";
    DistributedError::Invalid(Problem::new(key, message).hint(hint).into())
}

/// Returns the path of a value whose name is that of a secret.
fn find(value: &Value, path: &str) -> Option<String> {
    match value {
        Value::Object(table) => table.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            let is_literal = value.as_str().is_some_and(|text| !text.is_empty() && !text.contains('$'));
            if is_literal && looks_secret(name) { Some(path) } else { find(value, &path) }
        }),
        Value::Array(list) => {
            list.iter().enumerate().find_map(|(index, value)| find(value, &format!("{path}[{index}]")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_secrets_are_found_wherever_they_are() {
        let key = |change: &dyn Fn(&mut Value)| {
            let mut value = serde_json::to_value(RunRequest::new("")).expect("JSON");
            change(&mut value);
            let request: RunRequest = serde_json::from_value(value).expect("a request");
            match check(&request) {
                Err(DistributedError::Invalid(problems)) => problems.0[0].key.clone(),
                Err(error) => panic!("{error}"),
                Ok(()) => String::new(),
            }
        };
        assert_eq!(key(&|_| {}), "");
        assert_eq!(key(&|value| value["env"] = serde_json::json!({"LANG": "C"})), "");
        assert_eq!(key(&|value| value["env"] = serde_json::json!({"MY_API_KEY": "x"})), "env.MY_API_KEY");
        assert_eq!(key(&|value| value["api_key"] = "x".into()), "api_key");
        let servers = serde_json::json!({"s": {"command": "x", "env": {"GH_TOKEN": "abc"}}});
        assert_eq!(key(&|value| value["mcp_servers"] = servers.clone()), "mcp_servers.s.env.GH_TOKEN");
    }
}
