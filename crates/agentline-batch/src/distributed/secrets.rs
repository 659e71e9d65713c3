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
    if request.pass_env.iter().any(|name| name == "*") {
        let problem = Problem::new("pass_env", "`*` would give an agent all variables of a worker");
        return Err(DistributedError::Invalid(problem.hint("name the variables that the runs need").into()));
    }
    if let Some(path) = request.agent_args.as_deref().and_then(|args| find_in_args(args.iter(), "agent_args"))
    {
        return Err(found(&path, "set it in the configuration of the agent on each worker"));
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
            match value.as_str() {
                Some(text) if looks_secret(name) => is_literal(text).then_some(path),
                Some(url) if name == "url" => has_secret_parameter(url).then_some(path),
                _ => find(value, &path),
            }
        }),
        Value::Array(list) => find_in_args(list.iter().filter_map(Value::as_str), path),
        _ => None,
    }
}

/// Returns the position of an argument that is the value of a flag, a header or a variable whose name is that of a
/// secret: `--api-key X`, `--api-key=X`, `Authorization: X`.
fn find_in_args<S: AsRef<str>>(args: impl Iterator<Item = S>, path: &str) -> Option<String> {
    let mut is_value_of_secret = false;
    for (index, arg) in args.enumerate() {
        let arg = arg.as_ref();
        let parts = arg.split_once(['=', ':']).filter(|(name, _)| is_name(name));
        let is_secret = match parts {
            Some((name, value)) => looks_secret(flag_name(name)) && is_literal(value.trim()),
            None => is_value_of_secret && !arg.starts_with('-') && is_literal(arg),
        };
        if is_secret {
            return Some(format!("{path}[{index}]"));
        }
        is_value_of_secret = arg.starts_with('-') && parts.is_none() && looks_secret(flag_name(arg));
    }
    None
}

fn flag_name(arg: &str) -> &str {
    arg.trim_start_matches('-')
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Returns whether a URL has a password, or a parameter whose name is that of a secret.
fn has_secret_parameter(url: &str) -> bool {
    let authority =
        url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    let password = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    let parameters = url.split_once('?').map_or("", |(_, parameters)| parameters).split('&');
    let mut parameters = parameters.filter_map(|parameter| parameter.split_once('='));
    password.is_some_and(|(_, password)| is_literal(password))
        || parameters.any(|(name, value)| looks_secret(name) && is_literal(value))
}

/// Returns whether a value is more than references to variables, `$NAME` or `${NAME}`, after the name of a scheme such as
/// `Bearer`.
fn is_literal(value: &str) -> bool {
    let is_scheme = |word: &str| word.len() <= 12 && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    let value = match value.split_once(' ') {
        Some((scheme, rest)) if is_scheme(scheme) => rest,
        _ => value,
    };
    !value.split_whitespace().all(is_reference)
}

/// Returns whether a text consists of references to variables.
fn is_reference(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('$') else { return false };
    rest.split('$').all(|part| {
        let name = part.strip_prefix('{').map_or(Some(part), |part| part.strip_suffix('}'));
        name.is_some_and(|name| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
    })
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
        assert_eq!(key(&|value| value["pass_env"] = serde_json::json!(["A", "*"])), "pass_env");
        let args = serde_json::json!(["--flag", "--api-key", "abc"]);
        assert_eq!(key(&|value| value["agent_args"] = args.clone()), "agent_args[2]");
        for (server, found) in [
            (serde_json::json!({"url": "http://h", "headers": {"Authorization": "Bearer $TOKEN"}}), ""),
            (serde_json::json!({"url": "http://h", "headers": {"X-Api-Key": "${A}${B}"}}), ""),
            (
                serde_json::json!({"url": "http://h", "headers": {"X-Api-Key": "pa$word"}}),
                "headers.X-Api-Key",
            ),
            (
                serde_json::json!({"url": "http://h", "headers": {"X-Api-Key": "${A:-abc}"}}),
                "headers.X-Api-Key",
            ),
            (serde_json::json!({"url": "http://h", "headers": {"Cookie": "Bearer abc"}}), "headers.Cookie"),
            (serde_json::json!({"url": "http://u:abc@h/"}), "url"),
            (serde_json::json!({"url": "http://h/?a=b&api_key=abc"}), "url"),
            (serde_json::json!({"url": "http://h/?a=b&api_key=$KEY"}), ""),
            (serde_json::json!({"command": "x", "args": ["--token", "abc"]}), "args[1]"),
            (serde_json::json!({"command": "x", "args": ["--token=abc"]}), "args[0]"),
            (
                serde_json::json!({"command": "x", "args": ["--header", "Authorization: Bearer abc"]}),
                "args[1]",
            ),
            (serde_json::json!({"command": "x", "args": ["--token", "$T", "--token=${T}", "a:b"]}), ""),
            (serde_json::json!({"command": "x", "args": ["--token", "--verbose", "abc"]}), ""),
        ] {
            let expected = if found.is_empty() { String::new() } else { format!("mcp_servers.s.{found}") };
            let servers = serde_json::json!({"s": server});
            assert_eq!(key(&|value| value["mcp_servers"] = servers.clone()), expected, "{servers}");
        }
    }
}
