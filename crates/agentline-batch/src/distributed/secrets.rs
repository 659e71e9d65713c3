//! Secrets never enter a queue: workers have their own.

use super::DistributedError;
use agentline::{McpServer, Problem, RunRequest};
use agentline_core::looks_secret;
use serde_json::Value;
use std::collections::BTreeSet;

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

/// Returns the variables with names of secrets to which the MCP servers of a request refer, as agents resolve them: values
/// that are references, and nothing else. Other text with a `$` may be meant for a shell. Variables that the request sets
/// are left out.
pub(super) fn referenced_variables(request: &RunRequest) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for server in request.mcp_servers.values() {
        match server {
            McpServer::Command { args, env, .. } => {
                env.values().for_each(|value| add_references(value, &mut names));
                let mut in_args = BTreeSet::new();
                args.iter().for_each(|arg| add_references(last_value(arg), &mut in_args));
                names.extend(in_args.into_iter().filter(|name| !env.contains_key(name)));
            }
            McpServer::Url { url, headers } => {
                headers.values().for_each(|value| add_references(value, &mut names));
                let parameters = url.split_once('?').map_or("", |(_, parameters)| parameters);
                parameters.split('&').for_each(|part| add_references(last_value(part), &mut names));
            }
            _ => {}
        }
    }
    // Other names may be those that the agent or the server sets, such as `$PWD`.
    names.retain(|name| looks_secret(name) && !request.env.contains_key(name));
    names
}

/// Returns the value of `name=value`, `--flag=name: value` and so on; a text without a name is a value.
fn last_value(text: &str) -> &str {
    named_value(text).map_or(text, |(_, value)| last_value(value))
}

/// Adds the names of the variables to which a value refers, unless it is more than references.
fn add_references(value: &str, names: &mut BTreeSet<String>) {
    if !is_literal(value) {
        let parts = without_scheme(value).split(['$', '{', '}']).flat_map(str::split_whitespace);
        names.extend(parts.map(str::to_owned));
    }
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
        let is_value = is_value_of_secret && !arg.starts_with('-') && is_literal(last_value(arg));
        if has_secret(arg) || is_value {
            return Some(format!("{path}[{index}]"));
        }
        is_value_of_secret =
            arg.starts_with('-') && named_value(arg).is_none() && looks_secret(flag_name(arg));
    }
    None
}

/// Returns whether a text is a named secret, or contains one: `--env=A=b,TOKEN=X`, `--header=Authorization: X`, a URL.
fn has_secret(text: &str) -> bool {
    std::iter::once(text).chain(text.split(',')).any(|part| {
        let values = std::iter::successors(Some(("", part)), |(_, value)| named_value(value));
        values.into_iter().any(|(name, value)| {
            has_secret_parameter(value) || (looks_secret(flag_name(name)) && is_literal(value))
        })
    })
}

/// Returns the name and the value of `name=value` or `name: value`.
fn named_value(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once(['=', ':'])?;
    is_name(name).then_some((name, value.trim()))
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
    !without_scheme(value).split_whitespace().all(is_reference)
}

fn without_scheme(value: &str) -> &str {
    let is_scheme = |word: &str| word.len() <= 12 && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    match value.split_once(' ') {
        Some((scheme, rest)) if is_scheme(scheme) => rest,
        _ => value,
    }
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
    fn variables_are_the_secrets_to_which_values_of_servers_refer() {
        let mut value = serde_json::to_value(RunRequest::new("")).expect("JSON");
        value["env"] = serde_json::json!({"SET_TOKEN": "x"});
        value["mcp_servers"] = serde_json::json!({
            "command": {
                "command": "x",
                "args": [
                    "--token", "$A_TOKEN", "--env=T=${B_TOKEN}", "-c", "for x in 1; do echo $X_TOKEN; done", "$OWN_TOKEN",
                    "$SET_TOKEN", "--root=${workspaceFolder}", "$PWD", "$1",
                ],
                "env": {"OWN_TOKEN": "1", "C": "$C_TOKEN", "PRICE": "5$", "D": "${D_TOKEN}$D"},
            },
            "url": {"url": "http://h/?key=$E_TOKEN&b=c", "headers": {"Authorization": "Bearer ${F_TOKEN}", "X": "y"}},
        });
        let request: RunRequest = serde_json::from_value(value).expect("a request");
        let names: Vec<String> = referenced_variables(&request).into_iter().collect();
        assert_eq!(names, ["A_TOKEN", "B_TOKEN", "C_TOKEN", "D_TOKEN", "E_TOKEN", "F_TOKEN"]);
    }

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
            (serde_json::json!({"command": "x", "args": ["--env=GH_TOKEN=abc"]}), "args[0]"),
            (serde_json::json!({"command": "x", "args": ["-e", "A=b,GH_TOKEN=abc"]}), "args[1]"),
            (serde_json::json!({"command": "x", "args": ["--header=Authorization: Bearer abc"]}), "args[0]"),
            (serde_json::json!({"command": "x", "args": ["--url=https://u:abc@h/"]}), "args[0]"),
            (
                serde_json::json!({"command": "x", "args": [
                    "--env=GH_TOKEN=$T", "--env=A=b,GH_TOKEN=${T}", "--header=Authorization: Bearer $T",
                    "https://h:80/?a=b,c", "--filter=a=b:c,d=e",
                ]}),
                "",
            ),
            (serde_json::json!({"command": "x", "args": ["--token", "--verbose", "abc"]}), ""),
        ] {
            let expected = if found.is_empty() { String::new() } else { format!("mcp_servers.s.{found}") };
            let servers = serde_json::json!({"s": server});
            assert_eq!(key(&|value| value["mcp_servers"] = servers.clone()), expected, "{servers}");
        }
    }
}
