//! Builds the launches of Codex: `app-server` and `exec` on its own program, and its ACP adapter.

use super::{
    INFO, options,
    policy::{self, CodexLimits, SandboxMode},
    program, store, workspace,
};
use crate::{
    FileSystem, Launch, LaunchContext, McpServer, Notice, PermissionMode, Plan, Problem, RequestedMode,
    RequestedModel, RunRequest, Sandbox, Surface, SystemMode, Trust,
    agents::adapter::{self, AdapterLaunch},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The variables of API keys. The first one that is set wins.
const KEYS: &[&str] = &["CODEX_API_KEY", "OPENAI_API_KEY"];

/// The name of the model provider that reads its key from a variable. The provider that is built in reads only what
/// `codex login` has stored.
const KEY_PROVIDER: &str = "agentline";

/// The address of OpenAI's service.
const SERVICE: &str = "https://api.openai.com/v1";

/// Keys of a request that only ACP has.
fn needs_acp(request: &RunRequest) -> impl Iterator<Item = &'static str> {
    let keys = [
        ("mode_id", request.mode_id.is_some()),
        ("allow_file_reads", request.allow_file_reads),
        ("allow_file_writes", request.allow_file_writes),
        ("authenticate", request.authenticate.is_some()),
        ("agent_args", request.agent_args.is_some()),
    ];
    keys.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key)
}

/// Keys of a request that `exec` does not have.
fn needs_live(request: &RunRequest) -> impl Iterator<Item = &'static str> {
    let asks = matches!(request.permission_mode, PermissionMode::Deny | PermissionMode::Prompt);
    let keys = [
        ("output_schema", request.output_schema.is_some()),
        ("until", request.until.is_some()),
        ("attachments", !request.attachments.is_empty()),
        ("permission_mode", asks),
        ("surface", request.needs_live),
    ];
    keys.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key)
}

/// Chooses the surface for a request that names none.
pub(super) fn choose(request: &RunRequest) -> Surface {
    if needs_acp(request).next().is_some() { Surface::Acp } else { Surface::AppServer }
}

/// Returns a problem for each option that the surface does not support.
pub(super) fn check(request: &RunRequest, surface: Surface) -> Vec<Problem> {
    let is_native = surface != Surface::Acp;
    let mut problems = adapter::check(request, &INFO);
    if is_native {
        // Both can be done without the adapter.
        problems.retain(|problem| !matches!(&*problem.key, "system_mode" | "resume"));
        if request.sandbox == Sandbox::On {
            problems.retain(|problem| problem.key != "sandbox");
        }
    }
    let unsupported = |key: &'static str, use_instead: &str| {
        let message = if key == "surface" {
            format!("`{surface}` does not support tools and permission handlers of the calling program")
        } else {
            format!("is not supported on the surface `{surface}` of Codex")
        };
        Problem::new(key, message).hint(format!("use the surface `{use_instead}` or `auto`"))
    };
    if is_native {
        problems.extend(needs_acp(request).map(|key| unsupported(key, "acp")));
    }
    if surface == Surface::StreamJson {
        problems.extend(needs_live(request).map(|key| unsupported(key, "app-server")));
    }
    if surface == Surface::Acp && options::effort(request).is_some() && request.model.is_none() {
        problems.push(
            Problem::new("effort", "needs a model over ACP")
                .hint("pass `--model`, or use the surface `app-server`"),
        );
    }
    problems.extend(options::check(request));
    problems.extend(adapter::unenforceable(request, surface, |key, rule| {
        policy::unenforced(request, surface, key, rule)
    }));
    problems
}

/// Builds the launch of a checked plan.
pub(super) fn launch(
    plan: &Plan,
    context: &LaunchContext,
    fs: &dyn FileSystem,
) -> Result<Launch, Vec<Problem>> {
    match plan.surface {
        Surface::AppServer => app_server(plan, context, fs),
        Surface::StreamJson => exec(plan, context, fs),
        _ => acp(plan, context, fs),
    }
}

/// The parts that both native surfaces share.
fn native<'a>(plan: &Plan, context: &LaunchContext, fs: &dyn FileSystem) -> AdapterLaunch<'a> {
    let mut own = AdapterLaunch::new(INFO);
    own.key_variable = Some(KEYS[0]);
    own.takes_system = true;
    own.takes_folders = true;
    own.quiet = 0;
    // The sandbox may write there, so it must not be the one that all programs share.
    own.set("TMPDIR", context.private.join("tmp").to_string_lossy());
    if let Some(variable) = key_variable(&plan.request, context, fs) {
        let service = workspace::user_config(context, fs);
        let service = service.get("openai_base_url").and_then(toml::Value::as_str).unwrap_or(SERVICE);
        let service =
            context.env.get("OPENAI_BASE_URL").filter(|url| !url.is_empty()).map_or(service, |url| url);
        let provider =
            json!({"name": "OpenAI", "base_url": service, "env_key": variable, "wire_api": "responses"});
        own.args.extend(setting("model_provider", &json!(KEY_PROVIDER)));
        own.args.extend(setting(&format!("model_providers.{KEY_PROVIDER}"), &provider));
    }
    own
}

/// Returns the variable with the key to use, if no other sign-in applies.
fn key_variable(request: &RunRequest, context: &LaunchContext, fs: &dyn FileSystem) -> Option<&'static str> {
    if workspace::user_config(context, fs).contains_key("model_provider") {
        return None;
    }
    if request.api_key.is_some() {
        return Some(KEYS[0]);
    }
    let is_set = |name: &&&str| {
        let value = request.env.get(**name).or_else(|| context.env.get(**name));
        value.is_some_and(|value| !value.is_empty())
    };
    let is_signed_in = fs.exists(&workspace::codex_home(context).join("auth.json"));
    KEYS.iter().find(is_set).copied().filter(|_| !is_signed_in)
}

/// The parts of a finished launch that both native surfaces share.
fn finish(mut launch: Launch, plan: &Plan, context: &LaunchContext, fs: &dyn FileSystem) -> Launch {
    launch.dirs.push(context.private.join("tmp"));
    launch.agent_home = store::home(&launch.env, &context.home);
    if let Some(native) = program::native(&context.program, fs) {
        launch.program = native;
        launch.args.drain(..context.program.args.len());
    }
    let limits = CodexLimits::of(&plan.request);
    if plan.request.permission_mode == PermissionMode::Bypass && limits.sandbox == SandboxMode::Workspace {
        launch.warnings.push(Notice::new(
            "sandbox",
            "Codex runs in its sandbox: it can write only in the workspace and has no network",
        ));
    }
    launch
}

fn app_server(plan: &Plan, context: &LaunchContext, fs: &dyn FileSystem) -> Result<Launch, Vec<Problem>> {
    let request = &plan.request;
    let mut own = native(plan, context, fs);
    own.args.insert(0, "app-server".into());
    let mut config = Map::new();
    config.insert("projects".into(), workspace::trust(plan, context, fs));
    if policy::denies_web_search(request) {
        config.insert("web_search".into(), "disabled".into());
    }
    let asked = workspace::user_servers(context, fs);
    if !asked.is_empty() {
        let ask = |name: &String| (name.clone(), json!({"default_tools_approval_mode": "prompt"}));
        config.insert("mcp_servers".into(), Value::Object(asked.iter().map(ask).collect()));
    }
    let mut thread = json!({"sandbox": "read-only", "approvalsReviewer": "user", "config": config});
    if let Some(system) = &request.system_prompt {
        let key = match request.system_mode {
            SystemMode::Append => "developerInstructions",
            SystemMode::Replace => "baseInstructions",
        };
        thread[key] = system.as_str().into();
    }
    let mut turn = CodexLimits::of(request).turn(&include_directories(request, context));
    thread["approvalPolicy"] = turn["approvalPolicy"].clone();
    if let Some(effort) = options::effort(request) {
        turn["effort"] = effort.into();
    }
    if let Some(schema) = &request.answer_schema {
        turn["outputSchema"] = schema.clone();
    }
    own.meta = Some(json!({"thread": thread, "turn": turn}));
    Ok(finish(adapter::launch(plan, context, fs, own)?, plan, context, fs))
}

fn exec(plan: &Plan, context: &LaunchContext, fs: &dyn FileSystem) -> Result<Launch, Vec<Problem>> {
    let request = &plan.request;
    let mut own = native(plan, context, fs);
    let mut args: Vec<String> =
        ["exec", "--json", "--skip-git-repo-check", "--color", "never"].map(str::to_owned).to_vec();
    let sandbox = match CodexLimits::of(request).sandbox {
        SandboxMode::Nothing => "read-only",
        SandboxMode::Workspace => "workspace-write",
        SandboxMode::Everything => "danger-full-access",
    };
    args.extend(["--sandbox".into(), sandbox.into()]);
    if let Some(model) = &request.model {
        args.extend(["--model".into(), model.clone()]);
    }
    args.append(&mut own.args);
    let writable = json!({
        "writable_roots": include_directories(request, context), "exclude_slash_tmp": true,
        "exclude_tmpdir_env_var": false,
    });
    args.extend(setting("sandbox_workspace_write", &writable));
    args.extend(setting("projects", &workspace::trust(plan, context, fs)));
    if let Some(effort) = options::effort(request) {
        args.extend(setting("model_reasoning_effort", &json!(effort)));
    }
    let system = context.private.join("system.md");
    match (&request.system_prompt, request.system_mode) {
        (Some(text), SystemMode::Append) => args.extend(setting("developer_instructions", &json!(text))),
        (Some(_), SystemMode::Replace) => {
            args.extend(setting("model_instructions_file", &json!(system.to_string_lossy())));
        }
        (None, _) => {}
    }
    own.args = args;
    let mut launch = adapter::launch(plan, context, fs, own)?;
    let servers = exec_servers(&mut launch);
    launch.args.extend(servers);
    if let Some(id) = &request.resume {
        launch.args.extend(["resume".into(), id.clone()]);
    }
    // The prompt is read from standard input.
    launch.args.push("-".into());
    if let (Some(text), SystemMode::Replace) = (&request.system_prompt, request.system_mode) {
        launch.files.push(crate::NewFile::new(system, text.as_str()));
    }
    Ok(finish(launch, plan, context, fs))
}

/// Returns the arguments for the MCP servers of a run on `exec`. Headers and variables are passed in the environment,
/// because every user of the machine can read the arguments of a process.
fn exec_servers(launch: &mut Launch) -> Vec<String> {
    let servers = std::mem::take(&mut launch.servers);
    let mut args = Vec::new();
    for (number, (name, server)) in servers.iter().enumerate() {
        let mut passed = BTreeMap::new();
        let mut value = match server {
            McpServer::Command { command, args, env } => {
                passed.extend(env.iter().map(|(name, value)| (name.clone(), value.clone())));
                let names: Vec<&String> = env.keys().collect();
                json!({"command": command, "args": args, "env_vars": names})
            }
            McpServer::Url { url, headers } => {
                let mut variables = Map::new();
                for (at, (header, value)) in headers.iter().enumerate() {
                    let variable = format!("AGENTLINE_MCP_TOKEN_{number}_{at}");
                    variables.insert(header.clone(), variable.clone().into());
                    passed.insert(variable, value.clone());
                }
                json!({"url": url, "env_http_headers": variables})
            }
        };
        value["omit_tools_from"] = json!(["deferred"]);
        args.extend(setting(&format!("mcp_servers.{name}"), &value));
        launch.env.extend(passed);
    }
    args
}

fn acp(plan: &Plan, context: &LaunchContext, fs: &dyn FileSystem) -> Result<Launch, Vec<Problem>> {
    let request = &plan.request;
    let mut own = AdapterLaunch::new(INFO);
    own.key_variable = Some("OPENAI_API_KEY");
    let writes = writes_inside(request);
    own.mode = Some(match request.permission_mode {
        PermissionMode::Bypass => RequestedMode::new("agent-full-access", false),
        _ if writes => RequestedMode::new("workspace-write", true),
        // In its mode `agent`, a model decides on permissions and the host is not asked.
        _ => RequestedMode::new("read-only", true),
    });
    own.only_when_asked = true;
    if request.trust != Trust::Full {
        own.session_cwd = workspace::undeclared(plan, context);
    }
    let mut launch = adapter::launch(plan, context, fs, own)?;
    launch.agent_home = store::home(&launch.env, &context.home);
    if let Some(model) = &mut launch.model {
        let effort = options::effort(request).map(|effort| format!("[{effort}]")).unwrap_or_default();
        // The adapter rejects a model that it does not list.
        *model = RequestedModel::new(format!("{}{effort}", model.id), true);
    }
    if writes && request.mode_id.is_none() {
        launch.warnings.push(Notice::new(
            "temporary_directories",
            "over ACP, Codex's sandbox also allows writes in `/tmp` and `$TMPDIR`; the surface `app-server` does not",
        ));
    }
    Ok(launch)
}

/// Returns whether the adapter's sandbox allows writes in the workspace, which Codex then makes without asking.
fn writes_inside(request: &RunRequest) -> bool {
    // In the read-only sandbox, Codex asks about edits, so rules apply to them. But commands that write fail there
    // without a permission request, so they cannot be allowed.
    let ruled = !request.deny.is_empty() || !request.ask.is_empty();
    matches!(request.permission_mode, PermissionMode::AcceptEdits | PermissionMode::Auto) && !ruled
}

fn include_directories(request: &RunRequest, context: &LaunchContext) -> Vec<String> {
    let resolved = request.include_directories.iter().map(|dir| context.cwd.join(dir));
    resolved.map(|dir| dir.to_string_lossy().into_owned()).collect()
}

/// Returns the arguments that override a setting.
fn setting(key: &str, value: &Value) -> [String; 2] {
    ["-c".into(), format!("{key}={}", toml_value(value))]
}

/// Formats a value as TOML on one line.
fn toml_value(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let entries = table.iter().map(|(key, value)| format!("{} = {}", json!(key), toml_value(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Array(values) => {
            format!("[{}]", values.iter().map(toml_value).collect::<Vec<_>>().join(", "))
        }
        // JSON escapes a string like TOML does.
        value => value.to_string(),
    }
}

#[cfg(test)]
#[path = "launch_tests.rs"]
mod tests;
