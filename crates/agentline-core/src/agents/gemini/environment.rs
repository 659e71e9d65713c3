//! The environment of a Gemini CLI run, and the secrets in it and in the request.

use super::{INFO, options, settings::expand_home, user::UserConfig};
use crate::{
    FileSystem, FilteredEnv, Launch, LaunchContext, Notice, Plan, Sandbox, Secrets, Trust, filter_env,
    looks_secret,
};
use serde_json::Value;
use std::{collections::BTreeMap, path::Path};

/// Warns about a profile of the macOS sandbox in which the CLI cannot reach its model directly. The profiles are the files
/// `sandbox-macos-*.sb` of the CLI 0.61.0; earlier versions also have `-closed` ones.
pub(super) fn profile_warning(profile: &str) -> Option<Notice> {
    let network = match profile.rsplit_once('-')?.1 {
        "closed" => "allows no network connections",
        "proxied" => {
            "allows network connections only through a proxy on localhost:8877 (GEMINI_SANDBOX_PROXY_COMMAND)"
        }
        _ => return None,
    };
    let text = format!("the sandbox profile `{profile}` {network}, so Gemini CLI may not reach its model");
    Some(Notice::new("sandbox_profile", text))
}

/// Keys in the CLI's own files whose values are secrets.
const STORED_SECRETS: &[&str] = &["access_token", "refresh_token", "id_token"];

/// The directories of a run: its own home if it has one, the user's home, and the directory of generated files.
pub(super) struct LaunchPaths<'a> {
    pub(super) home: Option<&'a Path>,
    pub(super) users: &'a Path,
    pub(super) generated: &'a Path,
}

/// Sets the environment of a launch.
pub(super) fn fill(launch: &mut Launch, plan: &Plan, context: &LaunchContext, paths: &LaunchPaths<'_>) {
    let LaunchPaths { home, users, generated } = *paths;
    let request = &plan.request;
    let FilteredEnv { passed, withheld } = filter_env(&context.env, INFO.variables, &request.pass_env);
    let mut env = passed;
    env.extend(request.env.clone());
    // Otherwise the CLI restarts itself in a second process, which does not receive signals.
    set(&mut env, "GEMINI_CLI_NO_RELAUNCH", "1");
    set(&mut env, "NO_COLOR", "1");
    if let Some(home) = home {
        set(&mut env, "GEMINI_CLI_HOME", &home.to_string_lossy());
        if let Some(path) = env.get("GEMINI_SYSTEM_MD").and_then(|p| expand_home(p, users)) {
            set(&mut env, "GEMINI_SYSTEM_MD", &path);
        }
    }
    // The request decides about trust, not a variable in the caller's environment.
    env.remove("GEMINI_CLI_TRUST_WORKSPACE");
    if request.trust == Trust::Full {
        set(&mut env, "GEMINI_CLI_TRUST_WORKSPACE", "true");
    }
    if let Some(key) = &request.api_key {
        set(&mut env, "GEMINI_API_KEY", key);
    }
    if let Some(project) = options::google_cloud_project(request) {
        set(&mut env, "GOOGLE_CLOUD_PROJECT", project);
    }
    if let Some(vertex) = options::use_vertex_ai(request) {
        set(&mut env, "GOOGLE_GENAI_USE_VERTEXAI", if vertex { "true" } else { "false" });
    }
    if let Some(profile) = &request.sandbox_profile {
        set(&mut env, "SEATBELT_PROFILE", profile);
    }
    match &request.sandbox {
        Sandbox::By(name) => set(&mut env, "GEMINI_SANDBOX", name),
        Sandbox::Off | Sandbox::On => {}
    }
    if request.sandbox != Sandbox::Off {
        // A container sees only the settings of the overlay home, so everything else that a run needs is
        // mounted.
        let generated = generated.display();
        let mount = format!("{generated}:{generated}:ro,{generated}/commands:/home/node/.gemini/commands:ro");
        let mounts = env.get("SANDBOX_MOUNTS").map_or(mount.clone(), |m| format!("{m},{mount}"));
        set(&mut env, "SANDBOX_MOUNTS", &mounts);
    }
    launch.withheld = withheld.into_iter().filter(|name| !env.contains_key(name)).collect();
    launch.env = env;
}

/// Returns every secret that a run could reveal.
pub(super) fn secrets(
    launch: &Launch,
    plan: &Plan,
    context: &LaunchContext,
    user: &UserConfig<'_>,
    settings: &Value,
) -> Vec<String> {
    let request = &plan.request;
    let mut secrets = Secrets::default();
    secrets.add_variables(&context.env);
    secrets.add_variables(launch.env.iter().filter(|(name, value)| context.env.get(*name) != Some(value)));
    // The agent's tools can read the workspace's own file, even if the agent does not load it.
    let all = [user.env_files(true), user.env_files_if_trusted()];
    for (name, variable) in all.into_iter().flatten() {
        secrets.add_variables([(&name, &variable.value)]);
    }
    if let Some(key) = &request.api_key {
        secrets.add(key);
    }
    secrets.add_servers(request.mcp_servers.values().chain(launch.servers.values()));
    // The user's own servers have secrets too. They are part of the composed settings.
    add_settings(&mut secrets, settings);
    add_sign_in(&mut secrets, user);
    secrets.into_vec()
}

/// Returns the secrets in the CLI's files of a user, independent of a run.
pub(super) fn stored_secrets(
    env: &BTreeMap<String, String>,
    home: &Path,
    fs: &dyn FileSystem,
) -> Vec<String> {
    let user = UserConfig::new(home, env, home, fs);
    let mut secrets = Secrets::default();
    for (name, variable) in user.env_files(true) {
        secrets.add_variables([(&name, &variable.value)]);
    }
    let settings = user.text("settings.json").and_then(|text| serde_json::from_str(&text).ok());
    add_settings(&mut secrets, &settings.unwrap_or_default());
    add_sign_in(&mut secrets, &user);
    secrets.into_vec()
}

fn add_settings(secrets: &mut Secrets, settings: &Value) {
    for server in settings.get("mcpServers").and_then(Value::as_object).into_iter().flat_map(|s| s.values()) {
        for (name, value) in strings(server.get("env")) {
            if looks_secret(name) {
                secrets.add_server_variable(value);
            }
        }
        strings(server.get("headers")).for_each(|(_, value)| secrets.add_header(value));
        let args = server.get("args").and_then(Value::as_array).into_iter().flatten();
        secrets.add_arguments(args.filter_map(Value::as_str));
        ["url", "httpUrl"]
            .iter()
            .filter_map(|k| server.get(k)?.as_str())
            .for_each(|url| secrets.add_url(url));
    }
}

fn add_sign_in(secrets: &mut Secrets, user: &UserConfig<'_>) {
    let stored = user.text("oauth_creds.json").and_then(|t| serde_json::from_str::<Value>(&t).ok());
    strings(stored.as_ref()).filter(|(k, _)| STORED_SECRETS.contains(k)).for_each(|(_, v)| secrets.add(v));
}

fn strings(object: Option<&Value>) -> impl Iterator<Item = (&str, &str)> {
    object
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(k, v)| Some((k.as_str(), v.as_str()?)))
}

fn set(env: &mut BTreeMap<String, String>, name: &str, value: &str) {
    env.insert(name.to_owned(), value.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_without_direct_network_access_cause_a_warning() {
        for (profile, says) in [
            ("permissive-open", None),
            ("strict-open", None),
            ("restrictive-proxied", Some("GEMINI_SANDBOX_PROXY_COMMAND")),
            ("restrictive-closed", Some("no network")),
            ("mine", None),
        ] {
            let warning = profile_warning(profile).map(|notice| notice.message);
            assert_eq!(warning.is_some(), says.is_some(), "{profile}");
            assert!(warning.unwrap_or_default().contains(says.unwrap_or_default()), "{profile}");
        }
    }
}
